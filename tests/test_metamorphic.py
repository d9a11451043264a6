"""What must not change an answer, asked of every method with every engine.

Order, company, copies, names, unit and origin say nothing about a class. A query on the very edge between two classes
may fall to either side by rounding, so predictions are compared where the two largest probabilities differ by more
than `EDGE`, and probabilities within a bound.
"""
import numpy as np
import pytest
import torch

from fewshot_nb.core import InputError, threads
from fewshot_nb.inference import METHODS
from fewshot_nb.inference.base import BaseStatistics, gaussian_tasks

from engines import every_engine

EDGE = 1e-3
COMPANY = 1e-5  # by how much company may change a probability: `Method.__call__` states it
WAY, SHOT = 4, 3
OFFSET_FREE = {"nearest-prototype", "baseline", "simpleshot", "bd-cspn", "laplacianshot", "bavardage", "soft-kmeans",
               "paddle"}
SIZED = {"baseline", "baseline++", "pt-map"}  # their settings are meant for the size of the features
COPIES = {"nearest-prototype", "simpleshot", "baseline", "baseline++"}  # means over the support alone

every = pytest.mark.parametrize("m", list(every_engine(steps=30)))


@pytest.fixture(scope="module")
def tasks():
    support, labels, query, _ = gaussian_tasks(9, WAY, SHOT, n_query=22, dim=24, spread=1.5, dirichlet=1, seed=3)
    return support, labels, query, support.mean((0, 1))


_answers = {}


def answer(m, tasks):
    "The method's probabilities on the tasks as they are; every test compares with the same ones."
    if m not in _answers: _answers[m] = m(*tasks)
    return _answers[m]


def agree(found, expected, what="", within=EDGE, rate=1.):
    "The same predictions where they are decided, and probabilities within a bound."
    top = expected.topk(2).values
    decided = top[..., 0] - top[..., 1] > 2*EDGE
    assert decided.float().mean() > .8, what
    same = (found.argmax(-1) == expected.argmax(-1))[decided].float().mean().item()
    assert same >= rate, f"{what}: {same:.2%} of the decided queries keep their class"
    if within is None: return
    torch.testing.assert_close(found, expected, atol=within, rtol=0, msg=lambda text: f"{what}: {text}")


def order(n, seed=0): return torch.from_numpy(np.random.default_rng(seed).permutation(n))


@every
def test_the_order_of_queries_support_and_tasks(m, tasks):
    support, labels, query, mean = tasks
    p, q, s, t = answer(m, tasks), order(query.shape[1]), order(support.shape[1], 1), order(len(query), 2)
    agree(m(support, labels, query[:, q], mean), p[:, q], "queries")
    agree(m(support[:, s], labels[:, s], query, mean), p, "support")
    agree(m(support[t], labels[t], query[t], mean), p[t], "tasks", COMPANY)


@every
def test_company_and_the_size_of_blocks(m, tasks, monkeypatch):
    support, labels, query, mean = tasks
    p = answer(m, tasks)
    alone = torch.cat([m(support[i:i + 1], labels[i:i + 1], query[i:i + 1], mean) for i in (0, 4, 8)])
    agree(alone, p[[0, 4, 8]], "alone", COMPANY)
    for block in (1, 4, 64):
        monkeypatch.setattr(type(m), "block", block)
        agree(m(*tasks), p, f"blocks of {block}", COMPANY)


@every
def test_threads_change_no_bit(m, tasks, monkeypatch):
    monkeypatch.setattr(type(m), "block", 2)
    found = []
    for n in (1, 2, 5):
        with threads(n): found.append(m(*tasks))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@every
def test_copies(m, tasks):
    "Two tasks that are one, two queries that are one, and for means of the support each sample twice."
    support, labels, query, mean = tasks
    p = answer(m, tasks)
    twice = torch.tensor([0, 1, 0, 1])
    agree(m(support[twice], labels[twice], query[twice], mean), p[twice], "tasks", COMPANY)
    doubled = m(support, labels, torch.cat([query, query], 1), mean)
    # of two equal queries a round of LR+ICI may have room for one only
    within, rate = (None, .95) if m.name == "lr+ici" else (EDGE, 1)
    agree(doubled[:, 22:], doubled[:, :22], "queries", within, rate)
    if m.transductive: return
    agree(doubled[:, :22], p, "queries of an inductive method", COMPANY)
    if m.name in COPIES: agree(m(support.repeat(1, 2, 1), labels.repeat(1, 2), query, mean), p, "support")


@every
def test_names_of_classes(m, tasks):
    support, labels, query, mean = tasks
    new = order(WAY, 5)
    agree(m(support, new[labels], query, mean)[..., new], answer(m, tasks), "other numbers")


@every
@pytest.mark.parametrize("k", [-30, -25, -12, -5, 5, 12, 25])
def test_the_unit_of_features(m, k, tasks):
    "The same classes in any unit, or a sentence that names the method."
    support, labels, query, mean = tasks
    unit = 10.**k
    scaled = support*unit, labels, query*unit, mean*unit
    low, high = m.carries(torch.float32)
    if not low < unit < high:
        with pytest.raises(InputError, match="cannot carry the features of task 0 in float32") as said: m(*scaled)
        assert m.name in SIZED and str(said.value).startswith(m.name)
        return
    p = m(*scaled)
    assert p.isfinite().all()
    if m.name not in SIZED: agree(p, answer(m, tasks), f"x 1e{k}", None if m.name == "nearest-prototype" else EDGE)


@every
@pytest.mark.parametrize("far", [100., 1e4])
def test_the_origin_of_features(m, far, tasks):
    "Features and base mean moved alike; the move itself costs digits, so the reference is what is left of them."
    if m.name not in OFFSET_FREE: pytest.skip("its answers depend on the origin")
    support, labels, query, mean = tasks
    move = far*torch.linspace(-1, 1, support.shape[2])
    moved = support + move, labels, query + move, mean + move
    left = moved[0] - move, labels, moved[2] - move, moved[3] - move
    agree(m(*moved), m(*left), f"moved by {far}", None, .99)


@every
def test_arrays_and_lists(m, tasks):
    few = [x[:2] for x in tasks[:3]]
    p = m(*few, tasks[3])
    arrays = [x.numpy() for x in few]
    agree(m(*arrays, tasks[3].numpy()), p, "arrays", 0)
    agree(m(*(x.tolist() for x in arrays), tasks[3].tolist()), p, "lists", 0)
    agree(m(arrays[0].astype(">f4"), arrays[1].astype(np.int8), arrays[2].astype(">f4"), tasks[3]), p, "big-endian", 0)
    fitted = m.fit(arrays[0][0].tolist(), ["abcd"[i] for i in arrays[1][0]], tasks[3].tolist())
    assert (fitted.predict(arrays[2][0].tolist()) == np.array(list("abcd"))[p[0].argmax(-1)]).mean() > .95


@every
def test_what_is_no_number_is_refused(m, tasks):
    support, labels, query, mean = tasks
    for bad in (torch.nan, torch.inf, -torch.inf):
        broken = query.clone()
        broken[3, 7, 2] = bad
        with pytest.raises(InputError, match="query holds 1 values .*, the first in sample 7 of task 3"):
            m(support, labels, broken, mean)
        with pytest.raises(InputError, match="base_mean holds 1 values"): m(support, labels, query, broken[3, 7])
    precision = torch.eye(24)
    precision[1, 1] = torch.nan
    with pytest.raises(InputError, match="precision of the base classes"):
        m(support, labels, query, BaseStatistics(mean, precision))


@every
def test_features_at_the_end_of_float32(m, tasks):
    "Finite features of any size end in finite probabilities or in one sentence, never in a silent first class."
    support, labels, query, mean = tasks
    for unit in (1e-45, 1e-38, 1e-20, 1e17, 1e19, 3e37):
        try: p = m(support*unit, labels, query*unit, mean*unit)
        except InputError as e: assert m.name in str(e) or "NaN or infinite" in str(e)
        else:
            assert p.isfinite().all()
            if m.name not in SIZED: agree(p, answer(m, tasks), f"x {unit}", None)


def test_small_differences_decide():
    "A softmax of tiny distances is flat to the last digit; the nearest prototype wins all the same."
    support, labels, query, truth = gaussian_tasks(40, n_query=30, dim=64, spread=3, seed=1)
    exact = torch.cdist(query.double(), torch.stack([
        torch.stack([s[y == k].double().mean(0) for k in range(5)]) for s, y in zip(support, labels)])).argmin(-1)
    for unit in (1e-6, 1e-9):
        p = METHODS["nearest-prototype"]()(support*unit, labels, query*unit)
        assert (p.argmax(-1) == exact).float().mean() > .999
