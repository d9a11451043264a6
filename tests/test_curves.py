"Paths fitted to several pictures at once, and smoothed curves."
import numpy as np, pandas as pd, pytest

import matplotlib
matplotlib.use("Agg")
from hypothesis import example, given, settings, strategies as st
from scipy.optimize import minimize
from fewshot_nb import plots
from fewshot_nb.stats import curves
from fewshot_nb.core import InputError

numbers = st.floats(-3, 3, allow_subnormal=False)

@settings(max_examples=20, deadline=None)
@given(c=st.lists(numbers, min_size=6, max_size=6), n=st.integers(4, 12), shift=numbers)
@example(c=[0., 1.9, 0., 0., 0., 0.], n=6, shift=0.)  # constant but for rounding
def test_a_path_of_second_order_comes_back(c, n, shift):
    t = shift + np.cumsum(np.linspace(.5, 1.5, n))
    known = np.polynomial.polynomial.polyval(t - t[0], np.reshape(c, (3, 2))).T
    fit = curves.least_curve(t, known)
    scale = np.abs(known).max() + 1
    assert np.allclose(fit(t), known, atol=1e-6*scale)
    assert fit.errors[-1] < 1e-12

@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), weight=st.sampled_from([.3, 1., 4.]))
def test_refining_never_makes_it_worse_and_keeps_the_order(seed, weight):
    rng = np.random.default_rng(seed)
    t, points = np.repeat(np.arange(6.), 2), rng.normal(size=(12, 2))
    fit = curves.least_curve(t, points, weight)
    assert all(b <= a*(1 + 1e-9) for a, b in zip(fit.errors, fit.errors[1:])) and (np.diff(fit.places) >= 0).all()

def test_units_do_not_matter():
    rng = np.random.default_rng(0)
    t, points = np.arange(8.), rng.normal(size=(8, 2)).cumsum(0)
    a, b = curves.least_curve(t, points), curves.least_curve(1000*t, points*[.01, 100] + [5, -7])
    assert np.allclose(b(1000*t), a(t)*[.01, 100] + [5, -7], rtol=1e-6)
    assert np.allclose(b.turns, 1000*a.turns, rtol=1e-6)

def test_a_general_minimizer_finds_nothing_better_nearby():
    "The coefficients at the end are a minimum of the sum of errors, with every place free (no order, no grid)."
    rng = np.random.default_rng(3)
    t = np.linspace(0, 4, 9)
    points = np.stack([2 - .4*t + .03*t**2, 1 + t - .2*t**2], -1) + .05*rng.normal(size=(9, 2))
    fit = curves.least_curve(t, points, places=4000)
    y = points/points.std(0)
    def error(v):
        c, s = v[:6].reshape(3, 2), v[6:]
        at = lambda x: np.stack([np.ones(9), x/2 - 1, (x/2 - 1)**2], -1) @ c
        return ((y - at(t))**2).sum() + ((y - at(s))**2).sum()
    start = np.concatenate([(fit.coefficients/points.std(0)).ravel(), fit.places])
    assert np.isclose(error(start), fit.errors[-1], rtol=1e-6)
    assert minimize(error, start).fun > .99*fit.errors[-1]

def test_order_in_the_plane_is_the_best_of_all():
    "Against all ways to put four levels at five places."
    import itertools
    for seed in range(10):
        costs = np.random.default_rng(seed).random((4, 5))
        def total(at, costs=costs): return costs[range(4), at].sum()
        found = curves._in_order(costs)
        best = min(total(list(at)) for at in itertools.combinations_with_replacement(range(5), 4))
        assert (np.diff(found) >= 0).all() and np.isclose(total(found), best, rtol=1e-12)

def test_smoothing_is_a_sliding_parabola():
    rng = np.random.default_rng(0)
    t, y = np.arange(2, 21), rng.normal(size=(19, 3))
    smoothed = curves.savitzky_golay(t, y)
    fit = lambda i, a: np.stack([np.polyval(np.polyfit(t[a:a + 7], column[a:a + 7], 2), t[i]) for column in y.T])
    for i in range(19): assert np.allclose(smoothed[i], fit(i, min(max(i - 3, 0), 12)), atol=1e-8)
    assert np.array_equal(curves.savitzky_golay(t[:2], y[:2]), y[:2])

def test_paths_of_tables_with_holes():
    t = np.repeat(np.arange(5.), 2)
    # seed 1 lacks a value
    table = pd.DataFrame(dict(beta=t, seed=[0, 1]*5, diversity=2 - .1*t, recognizability=60 + t - t**2)).drop(3)
    at, found = curves.seed_paths(table, "beta", "points")
    # no value is given up: the seed that has them all is drawn
    assert at.tolist() == [0, 1, 2, 3, 4] and found.shape == (1, 5, 2)
    at, found = curves.seed_paths(table, "beta")
    # a fit bridges the hole
    assert found.shape == (2, 100, 2) and np.allclose(found, np.stack([2 - .1*at, 60 + at - at**2], -1), atol=1e-4)
    uneven = table[table.beta != 1]  # no filter takes these: the points are joined, and the figure says so
    smooth, points = (curves.seed_paths(uneven, "beta", how)[1] for how in ("smooth", "points"))
    assert np.array_equal(smooth, points)
    titles = [ax.get_title() for ax in curves.three_pictures({"vae-ns": uneven}, "beta", how="smooth").axes]
    assert titles[2] == "c, means joined"
    # without an end; one value alone
    lone = pd.concat([table[table.seed == 0], table[(table.seed == 1) & (table.beta < 3)], table[:1].assign(seed=2)])
    assert (curves.seed_paths(lone, "beta")[1].shape == (1, 100, 2)
            and len(curves.three_pictures({"vae-ns": lone}, "beta").axes) == 3)
    with pytest.raises(InputError, match="did you mean smooth"): curves.seed_paths(table, "beta", "smoth")

def test_arrows_point_to_where_the_setting_grows():
    import matplotlib.pyplot as plt
    fig, ax = plt.subplots()
    ax.set(xlim=(0, 10), ylim=(0, 1))
    curves.path_arrows(ax, np.stack([np.linspace(10, 0, 50), np.full(50, .5)], -1), plots.COLOURS["blue"], 4)
    assert len(ax.texts) == 4 and all(a.xy[0] < a.xyann[0] for a in ax.texts)
    plt.close(fig)
