"Properties of the sampler on random specifications and class sizes."
import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given as forall, settings, strategies as st

from fewshot_nb.core import InputError
from fewshot_nb.samplers import (
    Balanced, Dirichlet, TaskSpec, distinct, draw_tasks, join_tasks, largest_remainder, marginal,
    rectangles, task_stream)

few = settings(max_examples=25, deadline=None)

@st.composite
def cases(draw_):
    "A specification and a bank of labels in random order that can serve it."
    way, shot = draw_(st.integers(2, 8)), draw_(st.integers(1, 6))
    n_query = way*draw_(st.integers(1, 8))
    kind = draw_(st.sampled_from(["balanced", "dirichlet", "vector", "effective", "counts"]))
    a = st.floats(0.3, 50)
    m = {"balanced": lambda: "balanced", "dirichlet": lambda: f"dirichlet({draw_(a)})",
         "vector": lambda: Dirichlet(tuple(draw_(a) for _ in range(way))),
         "effective": lambda: f"effective({draw_(st.integers(1, way))})",
         "counts": lambda: (n_query,) + (0,)*(way - 1)}[kind]()
    spec = TaskSpec(way, shot, n_query, m, draw_(st.sampled_from(["disjoint", "veilleux2021"])),
                    order=draw_(st.sampled_from(["grouped", "interleaved"])))
    least = shot + n_query
    sizes = draw_(st.lists(st.integers(least, 3*least), min_size=way, max_size=way + 4))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return spec, np.random.default_rng(draw_(st.integers(0, 99))).permutation(labels)

@few
@forall(cases(), st.integers(0, 2**40))
def test_every_task_keeps_its_promises(case, seed):
    spec, labels = case
    tasks, truth = draw_tasks(labels, spec, 40, seed=seed), torch.from_numpy(labels)
    assert tasks.support.shape == (40, spec.way*spec.shot) and tasks.query.shape == (40, spec.n_query)
    for index, label in [(tasks.support, tasks.support_labels), (tasks.query, tasks.query_labels)]:
        assert (truth[index] == tasks.classes.gather(1, label)).all()  # labels are right
    for row in tasks.classes: assert len(row.unique()) == spec.way
    assert (tasks.counts.sum(1) == spec.n_query).all()
    if spec.marginal == Balanced(): assert (tasks.counts == spec.n_query//spec.way).all()
    expected = torch.arange(spec.way)
    expected = expected.repeat_interleave(spec.shot) if spec.order == "grouped" else expected.repeat(spec.shot)
    assert (tasks.support_labels == expected).all()
    for s, q in zip(tasks.support, tasks.query):
        assert len(s.unique()) == len(s) and len(q.unique()) == len(q)  # nobody twice
        if spec.protocol == "disjoint": assert not set(s.tolist()) & set(q.tolist())

@few
@forall(cases(), st.integers(1, 900), st.integers(0, 2100), st.integers(1, 1200))
def test_a_task_depends_on_its_number_only(case, batch, start, n):
    spec, labels = case
    whole = draw_tasks(labels, spec, start + n, seed=3)[start:]
    streamed = join_tasks(list(task_stream(labels, spec, n, seed=3, batch=batch, start=start)))
    for name in ["support", "query", "support_labels", "query_labels", "classes", "redrawn"]:
        assert torch.equal(getattr(whole, name), getattr(streamed, name)), name
    assert streamed.start == whole.start == start

def test_seeds_and_specs_differ():
    labels = np.repeat(np.arange(20), 100)
    a, b = draw_tasks(labels, TaskSpec(), 50, seed=0), draw_tasks(labels, TaskSpec(), 50, seed=1)
    assert not torch.equal(a.query, b.query)

@few
@forall(st.lists(st.tuples(st.integers(1, 70), st.integers(0, 70)), min_size=1, max_size=30), st.integers(0, 99))
def test_distinct_numbers(rows, seed):
    sizes = np.array([s for s, _ in rows]); need = np.minimum([n for _, n in rows], sizes)
    flat = distinct(np.random.default_rng(seed), sizes, need)
    for part, size in zip(np.split(flat, need.cumsum()[:-1]), sizes):
        assert len(set(part)) == len(part) and ((0 <= part) & (part < size)).all()

@few
@forall(st.integers(1, 500), st.integers(2, 12), st.integers(0, 99))
def test_rounding_keeps_the_sum_and_stays_within_one(total, way, seed):
    p = np.random.default_rng(seed).dirichlet(np.ones(way), size=20)
    counts = largest_remainder(p, total)
    assert (counts.sum(1) == total).all() and (np.abs(counts - total*p) < 1).all() and (counts >= 0).all()

def test_rounding_is_the_nearest_vector_of_whole_numbers():
    "Largest remainders minimise the distance to the exact shares: compare with all vectors of three counts."
    every = np.array([(i, j, 9 - i - j) for i in range(10) for j in range(10 - i)])
    for p in np.random.default_rng(0).dirichlet(np.ones(3), size=200):
        best = np.linalg.norm(every - 9*p, axis=1).min()
        assert np.isclose(np.linalg.norm(largest_remainder(p[None], 9) - 9*p), best)

def test_support_images_are_uniform():
    "Every image of every class is as likely as any other to be support and to be query."
    labels = np.repeat(np.arange(6), 12)
    tasks = draw_tasks(labels, TaskSpec(way=3, shot=2, n_query=6), 6000)
    for index in (tasks.support, tasks.query):
        times = np.bincount(index.ravel().numpy(), minlength=72)
        expected = index.numel()/72
        assert (np.abs(times - expected) < 5*np.sqrt(expected)).all()

def test_a_class_that_is_just_large_enough():
    labels = np.repeat(np.arange(5), 20)
    tasks = draw_tasks(labels, TaskSpec(shot=5, n_query=75), 30)
    assert (torch.cat([tasks.support, tasks.query], 1).sort(1).values == torch.arange(100)).all()

def test_groups_are_uniform_and_not_mixed():
    groups = np.repeat([0, 1, 2], [30, 5, 5])
    labels = np.repeat(np.arange(40), 20)
    tasks = draw_tasks(labels, TaskSpec(within="alphabet", n_query=5), 6000, groups=groups)
    drawn = groups[tasks.classes]
    assert (drawn == drawn[:, :1]).all()
    assert (np.abs(np.bincount(drawn[:, 0]) - 2000) < 5*np.sqrt(2000)).all()  # by alphabet, not by number of classes

def test_cut_tasks_come_in_rectangles():
    labels = np.repeat(np.arange(8), 25)
    tasks = draw_tasks(labels, TaskSpec(shot=5, marginal="dirichlet(1)", protocol="veilleux2021"), 300)
    seen = []
    for which, part in rectangles(tasks):
        assert (part.query >= 0).all() and (part.query_labels >= 0).all() and part.counts.max() <= 25
        assert torch.equal(torch.from_numpy(labels)[part.query], part.classes.gather(1, part.query_labels))
        seen += which.tolist()
    assert sorted(seen) == list(range(300))

def test_redraw_warning_and_refusal():
    labels = np.repeat(np.arange(10), 30)
    with pytest.warns(UserWarning, match="were drawn again"):
        draw_tasks(labels, TaskSpec(shot=5, marginal="dirichlet(2)"), 10)
    with pytest.raises(InputError, match="More than 95 %"):
        draw_tasks(labels, TaskSpec(shot=5, n_query=120, marginal="dirichlet(0.5)"), 10)

@pytest.mark.parametrize("m", [(60, 10, 5, 0), Dirichlet((9, 1, 1, 1))])
def test_no_label_has_more_queries_than_another(m):
    "Else who answers one label whenever undecided would gain by it."
    spec = TaskSpec(4, n_query=75, marginal=m)
    counts = draw_tasks(np.repeat(np.arange(9), 90), spec, 3000).counts.numpy()
    if isinstance(m, tuple): assert (np.sort(counts, 1) == sorted(m)).all()
    assert (np.abs(counts.mean(0) - 75/4) < 5*counts.std(0)/3000**.5).all()
    assert counts.max(1).mean() > 50  # and they are as uneven as was asked
    assert str(spec.marginal).endswith(" in any order") and marginal(str(spec.marginal)) == spec.marginal

def test_plain_dirichlet_tasks_are_what_they_were():
    tasks = draw_tasks(np.repeat(np.arange(9), 90), TaskSpec(shot=3, marginal="dirichlet(2)"), 1500)
    drawn = hashlib.sha256(tasks.query.numpy().astype("<i8").tobytes()).hexdigest()
    assert drawn.startswith("75e50c41bebd8c87")

@pytest.mark.parametrize("noise", [0., .4])
def test_specs_that_draw_other_samples_have_other_words(noise):
    one, other = [TaskSpec(shot=3, noise=noise, order=order) for order in ("grouped", "interleaved")]
    a, b = [draw_tasks(np.repeat(np.arange(9), 90), spec, 50) for spec in (one, other)]
    same = torch.equal(a.support.sort(1).values, b.support.sort(1).values) and torch.equal(a.query, b.query)
    assert same == (not noise) == (one.protocol_word == other.protocol_word)

@few
@forall(st.one_of(st.floats(1e-9, 1e6).map(Dirichlet), st.integers(1, 9).map(lambda k: marginal(f"effective({k})"))))
def test_a_marginal_survives_its_word(m):
    assert marginal(str(m)) == m

def test_support_does_not_depend_on_the_marginal():
    labels = np.repeat(np.arange(9), 90)
    one, *others = [draw_tasks(labels, TaskSpec(shot=3, marginal=m, protocol=p), 1500)
                    for m in ("balanced", "dirichlet(1)", (75, 0, 0, 0, 0)) for p in ("disjoint", "veilleux2021")]
    for tasks in others: assert torch.equal(tasks.support, one.support) and torch.equal(tasks.classes, one.classes)
