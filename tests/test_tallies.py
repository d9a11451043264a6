"Tallies: any order and any grouping gives the same bits, and the intervals of all rows."
import functools, operator

import numpy as np, pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewshot_nb.evaluation.intervals import over_images, over_tasks, tally
from fewshot_nb.samplers import TaskSpec, task_stream

LABELS = np.repeat(np.arange(9), 30)
BATCHES = list(task_stream(LABELS, TaskSpec(3, 1, 15, "dirichlet(2)"), 600, batch=100))
SCORES = np.random.default_rng(0).integers(0, 16, (600, 2))/15
OF_IMAGES = np.random.default_rng(1).random(270)[np.concatenate([b.query.numpy() for b in BATCHES])].mean(1)

def tallies(unit, x): return [tally(x[100*k:100*(k + 1)], b, LABELS, unit) for k, b in enumerate(BATCHES)]

TALLIES = {unit: tallies(unit, SCORES[:, 0]) for unit in ("image", "class")}

@settings(deadline=None, max_examples=60)
@given(order=st.permutations(range(6)), cuts=st.sets(st.integers(1, 5)), unit=st.sampled_from(["image", "class"]))
def test_any_order_and_any_grouping_give_the_same_bits(order, cuts, unit):
    def total(some): return functools.reduce(operator.add, some)
    parts = np.split([TALLIES[unit][k] for k in order], sorted(cuts))
    assert total([total(list(p)) for p in parts]).to_json() == total(TALLIES[unit]).to_json()

@pytest.mark.parametrize("unit", ["image", "class"])
@pytest.mark.parametrize("x", [SCORES[:, 0], SCORES[:, 0] - SCORES[:, 1], np.full(600, .75), OF_IMAGES])
def test_intervals_from_tallies_are_those_of_all_rows(unit, x):
    whole = functools.reduce(operator.add, tallies(unit, x))
    pairs = (whole.unit_interval(), over_images(x, BATCHES, LABELS, unit)), (whole.task_interval(), over_tasks(x))
    for ours, theirs in pairs:
        assert abs(ours.mean - theirs.mean) < 1e-9
        np.testing.assert_allclose(ours.half, theirs.half, atol=1e-7)  # both unknown where images drown in noise
    assert x is not OF_IMAGES or unit != "image" or whole.unit_interval().half > 2*whole.task_interval().half
