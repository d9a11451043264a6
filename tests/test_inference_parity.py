"Every method against the predictions that its authors' code made on the same 40 tasks (shared/golden/transductive)."
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from fewshot_nb.inference import METHODS
from fewshot_nb.inference.base import gaussian_tasks, has_numba
from fewshot_nb.inference.inductive import Baseline, BaselinePP, NearestPrototype, SimpleShot
from fewshot_nb.inference.transductive import AlphaTIM, BDCSPN, EntropyMin, LaplacianShot, PTMAP, TIM

NEEDS_NUMBA = pytest.mark.skipif(not has_numba(), reason="numba is not installed")
ENGINES = ["torch", pytest.param("numba", marks=NEEDS_NUMBA)]


@pytest.fixture(scope="session")
def golden(shared):
    "The 40 five-shot tasks, the authors' predictions, and their weights after training."
    folder = shared/"golden/transductive"
    tasks, preds, weights = (dict(np.load(folder/f"{name}_5shot.npz")) for name in ("tasks", "preds", "weights"))
    support, labels, query, mean = (torch.from_numpy(tasks[name]) for name in ("x_s", "y_s", "x_q", "train_mean"))
    return (support, labels.long(), query, mean), preds, weights


_answers = {}


def answer(method, golden):
    "The method's probabilities on the golden tasks; several tests look at the same ones."
    if method not in _answers: _answers[method] = method(*golden[0])
    return _answers[method]


def differ(method, name, golden):
    "How many of the 3,000 queries `method` predicts unlike the authors' code."
    return int((answer(method, golden).argmax(-1).numpy() != golden[1][f"pred_{name}"]).sum())


PLAIN = [(SimpleShot(), "SimpleShot", 0), (NearestPrototype(), "ProtoNet", 0), (BDCSPN(), "BDCSPN", 0),
         (EntropyMin.published(5), "Entropy_min", 2)]
HEADS = [(Baseline(), "Baseline", 3), (BaselinePP(), "Baseline_pp", 0)]
FAST = [(LaplacianShot.published(5), "LaplacianShot"), (LaplacianShot.published(5, "balanced"), "LaplacianShot_balcfg"),
        (PTMAP(), "PT_MAP"), (PTMAP(), "PT_MAP_B1"), (TIM.published(5), "TIM_GD"), (AlphaTIM.published(5), "ALPHA_TIM")]


def test_only_what_is_held_to_a_reference_claims_one():
    """`verified_by` names this file's data for the methods that it tests, with the number of queries that may differ;
    for others a commit of public code that was run beside them once, and how many queries agreed."""
    held = {method.name: allowed for method, _, allowed in [*PLAIN, *HEADS, *((m, n, 0) for m, n in FAST)]}
    once = {name: m.verified_by for name, m in METHODS.items() if m.verified_by and name not in held}
    told = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{7} [^:]+: ([\d,]+) of ([\d,]+) queries(; .+)?")
    assert all(told.fullmatch(claim) for claim in once.values()), once
    assert {*held, *once} == set(METHODS)  # no method of ours is without
    for name, allowed in held.items():
        claim = METHODS[name].verified_by
        assert "Veilleux et al. (2021)'s code" in claim
        assert (f"at most {allowed} of 3,000 queries differ" in claim) == bool(allowed)


@pytest.mark.parametrize("method, name, allowed", PLAIN)
def test_predictions(golden, method, name, allowed):
    assert differ(method, name, golden) <= allowed


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method, name, allowed", HEADS)
def test_heads_with_each_engine(golden, method, name, allowed, engine):
    assert differ(replace(method, engine=engine), name, golden) <= allowed


def test_baseline_without_the_floor_is_another_method(golden):
    "The published loss has 1e-12 inside its logarithm; without it the head learns from misclassified support."
    assert differ(Baseline(floor=0), "Baseline", golden) > 30


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method, name", FAST)
def test_fast_predictions(golden, method, name, engine):
    assert differ(replace(method, engine=engine), name, golden) == 0


@pytest.mark.parametrize("method, name, tolerance", [
    (AlphaTIM.published(5), "ALPHA_TIM", 2e-5),
    (TIM.published(5), "TIM_GD", 2e-4),
    (EntropyMin.published(5), "Entropy_min", 1e-5),
    (PTMAP(), "PT_MAP_B1", 2e-3),  # stops at 1e-6 of a row sum, so that rounding may cost a step
])
def test_probabilities(golden, method, name, tolerance):
    fastest = replace(method, engine="numba" if has_numba() else "torch")
    expected = torch.from_numpy(golden[1][f"probs_{name}"])
    torch.testing.assert_close(answer(fastest, golden), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("engine", ["plain", *ENGINES])
@pytest.mark.parametrize("steps, tolerance", [(1, 2e-7), (10, 2e-6), (100, 5e-6)])
def test_weights_on_the_way(golden, engine, steps, tolerance):
    "W after 1, 10 and 100 steps of alpha-TIM on the first 8 tasks."
    (support, labels, query, _), _, weights = golden
    method = replace(AlphaTIM.published(5), steps=steps, engine=engine)
    s, q = method.prepare(support[:8].float(), query[:8].float(), None)
    expected = torch.from_numpy(weights[f"W_ALPHA_TIM_it{steps}_first8"])
    torch.testing.assert_close(method.train(s, labels[:8], q, 5), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method, name, tolerance", [
    (AlphaTIM.published(5), "ALPHA_TIM", 1e-4), (TIM.published(5), "TIM_GD", 5e-3)])
def test_weights_after_a_thousand_steps(golden, method, name, tolerance, engine):
    (support, labels, query, _), _, weights = golden
    n = 40 if engine == "numba" else 4
    method = replace(method, engine=engine)
    s, q = method.prepare(support[:n].float(), query[:n].float(), None)
    expected = torch.from_numpy(weights[f"W_{name}"][:n])
    torch.testing.assert_close(method.train(s, labels[:n], q, 5), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("method, name", [
    (LaplacianShot.published(5), "LaplacianShot"), (PTMAP(), "PT_MAP"),
    (replace(AlphaTIM.published(5), steps=300), None)])
def test_plain_on_golden_tasks(golden, method, name):
    "The plain engine, in float64 where no authors' predictions are at hand, agrees with the fast ones."
    (support, labels, query, mean), preds, _ = golden
    batch = support[:8].double(), labels[:8], query[:8].double(), mean
    plain = replace(method, engine="plain")(*batch).argmax(-1)
    if name: assert (plain.numpy() == preds[f"pred_{name}"][:8]).all()
    fast = method(*(x.float() if x.is_floating_point() else x for x in batch)).argmax(-1)
    assert torch.equal(plain, fast)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", [
    AlphaTIM(alpha=7., steps=150), AlphaTIM(alpha=2.5, marginal=2, steps=150), AlphaTIM(alpha=.5, steps=150),
    TIM(marginal=10, steps=150), PTMAP(), LaplacianShot(), LaplacianShot.published(5, "balanced")])
@pytest.mark.parametrize("shape", [
    dict(way=5, shot=5, dim=64), dict(way=3, shot=1, n_query=50, dim=17), dict(way=2, shot=7, n_query=9, dim=640),
    dict(way=20, shot=1, n_query=61, dim=33)])
def test_fast_is_plain_on_random_tasks(method, shape, engine):
    "Prediction by prediction; a query on the very edge between two classes may fall to either side by rounding."
    support, labels, query, _ = gaussian_tasks(6, dirichlet=1, seed=5, **shape)
    mean = support.mean((0, 1))
    plain = replace(method, engine="plain")(support, labels, query, mean)
    fast = replace(method, engine=engine)(support, labels, query, mean)
    top = plain.topk(2).values
    decided = top[..., 0] - top[..., 1] > 1e-3
    assert decided.float().mean() > .9
    assert torch.equal(plain.argmax(-1)[decided], fast.argmax(-1)[decided])
    torch.testing.assert_close(fast, plain, atol=5e-3, rtol=0)
