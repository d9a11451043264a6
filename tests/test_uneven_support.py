"Uneven shots and wrong labels: every method, engine and way of asking agrees, and even supports are as ever."
import dataclasses
import numpy as np
import pytest
import torch
from fewshot_nb.cli.evaluate import SeveralValues, shots_asked
from fewshot_nb.core import InputError
from fewshot_nb.data.bank import Bank
from fewshot_nb.evaluation.evaluate import evaluate
from fewshot_nb.evaluation.intervals import over_images
from fewshot_nb.inference import METHODS
from fewshot_nb.inference.oversampling import Oversampled
from fewshot_nb.inference.prior_transductive import VisionEMDirichlet
from fewshot_nb.samplers import TaskSpec, draw_tasks, rectangles
from fewshot_nb.studies.present import UnrolledEM


@pytest.fixture(scope="module")
def bank():
    r = np.random.default_rng(0)
    x = r.normal(size=(14, 1, 24)) + 1.2*r.normal(size=(14, 40, 24))
    return Bank(x.reshape(-1, 24).clip(0).astype(np.float32), np.repeat(np.arange(14), 40), source="clouds")


SUPPORT = [466, 467, 454, 529, 523, 544, 0, 16, 19, 192, 191, 190, 425, 422, 423]
QUERY = [451, 526, 530, 453, 163, 538, 540, 476, 546, 164]
SPEC = TaskSpec(shot="1-5", n_query=15, marginal="dirichlet(2)")


def _quick(name):
    m = METHODS[name].published(SPEC.typical_shot)
    short = {"steps": 20} if getattr(m, "steps", 0) > 100 else {}
    return dataclasses.replace(m, **short, **({"centre": "support"} if m.needs_base else {}))


@pytest.mark.parametrize("name", list(METHODS))
def test_padded_batches_answer_as_one_task_at_a_time(bank, name):
    "The rows of a padded batch are those of each task alone, without padding; engines agree."
    tasks, m = draw_tasks(bank, SPEC, 24), _quick(name)
    rows = evaluate(bank, {name: m}, SPEC, 24)
    alone = []
    for s, y, q, truth in zip(tasks.support, tasks.support_labels, tasks.query, tasks.query_labels):
        p = m(bank.take(s[y >= 0])[None], y[y >= 0][None], bank.take(q)[None])[0]
        alone.append((p.argmax(-1) == truth).float().mean().item())
    assert np.abs(rows.accuracy - alone).max() < 1e-6
    parts = [part for _, part in rectangles(tasks)]
    for other in m.engines[1:] if len(m.engines) > 1 else ():
        far, same = [], []
        for part in parts:
            asked = bank.take(part.support), part.support_labels, bank.take(part.query)
            a, b = (dataclasses.replace(m, engine=e)(*asked) for e in (m.engines[0], other))
            far += (a - b).abs().flatten(1).amax(1).tolist()
            same.append((a.argmax(-1) == b.argmax(-1)).flatten())
        # Adam blows up the rounding of vanished gradients, in single tasks and with even shots, too
        assert np.median(far) < 2e-3 and torch.cat(same).float().mean() >= .99, (name, other)


def test_a_spec_with_even_shots_is_drawn_as_before(bank):
    "Task 0 of seed 0, written down before uneven shots existed."
    tasks = draw_tasks(bank, TaskSpec(shot=3, n_query=10, marginal="dirichlet(2)"), 1024)
    word = draw_tasks(bank, TaskSpec(shot="3", n_query=10, marginal="dirichlet(2)"), 1024)
    assert torch.equal(tasks.support, word.support) and torch.equal(tasks.query, word.query)
    assert tasks.support[0].tolist() == SUPPORT and tasks.query[0].tolist() == QUERY


def test_the_protocol_word_brings_the_same_tasks_back(bank):
    spec = TaskSpec(shot="step(1, 9)", n_query=10, noise=.3)
    row = evaluate(bank, "nearest-prototype", spec, 5).iloc[0]
    again = TaskSpec(int(row.way), int(row["shot"]), int(row.n_query), row.marginal, row.protocol)
    assert again == spec and torch.equal(draw_tasks(bank, again, 5).support, draw_tasks(bank, spec, 5).support)


def test_oversampling_lifts_small_classes_for_a_trained_head(bank):
    spec = TaskSpec(shot="step(1, 15, 4)", n_query=25)
    head = dataclasses.replace(METHODS["baseline"](), lr=.01, temperature=1.)  # at 15 samples are fitted either way
    rows = evaluate(bank, {"plain": head, "even": Oversampled(head)}, spec, 200)
    assert "classes with more shots weigh more" in rows[rows.method == "plain"].note.iloc[0]
    assert rows[rows.method == "even"].note.iloc[0] == "oversampled"
    mean = rows.groupby("method").macro_f1.mean()
    assert mean["even"] > mean["plain"] + .02


def test_wrong_labels_cost_accuracy_and_intervals_over_images_are_refused(bank):
    clean, noisy = (TaskSpec(shot=5, n_query=25, noise=n) for n in (0, .4))
    found = [evaluate(bank, "nearest-prototype", s, 200).accuracy for s in (clean, noisy)]
    assert found[0].mean() > found[1].mean() + .02
    tasks = draw_tasks(bank, noisy, 200)
    assert over_images(found[1], tasks, bank.labels, "class").half > 0
    with pytest.raises(InputError, match="unit='class'"): over_images(found[1], tasks, bank.labels)
    padded = draw_tasks(bank, SPEC, 200)
    assert over_images(evaluate(bank, "nearest-prototype", SPEC, 200).accuracy, padded, bank.labels).half > 0


@pytest.mark.parametrize("fields, says", [
    (dict(shot="9-1"), "write 1-9"), (dict(shot="0-3"), "low=0"), (dict(noise=1), "below 1"),
    (dict(noise=-.1), "below 1"), (dict(shot="linear(1, 9, 2)"), "unknown"), (dict(shot="step(1, 9, 5)"), "no class"),
    (dict(shot=2.5), "shot=2.5"), (dict(shot=None), "shot=None"), (dict(protocol="disjoint; noise x"), "is unknown")])
def test_bad_shots_get_one_sentence(fields, says):
    with pytest.raises(InputError, match=says): TaskSpec(**fields)


def test_more_shots_than_images_are_refused(bank):
    with pytest.raises(InputError, match="shot=1-40 and 1 of 15 queries need 41"):
        draw_tasks(bank, TaskSpec(shot="1-40", n_query=15, marginal="dirichlet(2)"), 1)


def test_shots_on_the_command_line():
    assert shots_asked(["1", "5"]) == [1, 5] and list(map(str, shots_asked(["1-9,5", "step(1,9)"]))) == \
        ["1-9", "5", "step(1, 9)"]
    command = object.__new__(SeveralValues)
    assert command.belongs("1-9", "--shots") and not command.belongs("a-b.npz", "--shots")
    with pytest.raises(InputError, match="write 1-9"): shots_asked(["9-1"])
    with pytest.raises(InputError, match="--shots '-1'"): shots_asked(["-1"])


@pytest.mark.parametrize("m", [VisionEMDirichlet(), UnrolledEM()], ids=lambda m: m.name)
def test_methods_beside_the_registry_take_uneven_supports_too(bank, m):
    "EM-Dirichlet without text and learned weights: padded batches answer as one task at a time."
    tasks = draw_tasks(bank, SPEC, 12)
    rows = evaluate(bank, {m.name: m}, SPEC, 12)
    for s, y, q, truth, found in zip(tasks.support, tasks.support_labels, tasks.query, tasks.query_labels,
                                     rows.accuracy):
        p = m(bank.take(s[y >= 0])[None], y[y >= 0][None], bank.take(q)[None])[0]
        assert abs((p.argmax(-1) == truth).float().mean().item() - found) < 1e-6
