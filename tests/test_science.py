"Our own claims, `n_tasks='auto'`, and the workers of the experiments on evaluation itself."
import numpy as np
import pytest
from scipy import stats
from fewshot_nb.claims.judge import judge_measures
from fewshot_nb.claims.report import ledger
from fewshot_nb.core import InputError
from fewshot_nb.data.bank import Bank
from fewshot_nb.engine.experiment import experiment_names
from fewshot_nb.evaluation.evaluate import evaluate
from fewshot_nb.evaluation.intervals import enough_tasks, over_images, over_tasks
from fewshot_nb.papers import PAPERS, published_claims
from fewshot_nb.samplers import BLOCK, TaskSpec, draw_tasks
from fewshot_nb.studies import noise, present


@pytest.fixture(scope="module")
def bank():
    return noise.simulated_bank(np.random.default_rng(0), 30)


def test_our_own_claims_are_apart_from_those_of_the_papers():
    own = published_claims("fewshot_nb")
    assert set(own.paper) == {"fewshot_nb"} and not set(published_claims().paper) - set(PAPERS)
    assert set(own["where"]) & set(experiment_names())
    assert not own.id.duplicated().any() and set(own.evidence) == {"measured", "trained"}
    assert set(ledger("fewshot_nb").id) == set(own.id)


def test_a_claim_of_our_own_holds_or_does_not_and_glyphs_judge_nothing():
    here = dict(data="features", profile="laptop")
    words = judge_measures("fewshot_nb", {"I2": .9, "I3": 2., "K1": [-5., -4., -6.]}, **here).verdict
    assert list(words) == ["holds here", "does not hold here", "holds here"]
    assert judge_measures("fewshot_nb", {"I2": .9}, data="glyphs", profile="smoke").verdict[0] == "not judged: glyphs"
    with pytest.raises(InputError, match="paper"):
        published_claims("fewshot_mb")


def test_tasks_are_enough_where_the_classes_rule(bank):
    drawn = draw_tasks(bank, TaskSpec(shot=1, n_query=15), 512)
    by_class = np.random.default_rng(1).normal(size=bank.classes)
    x = by_class[drawn.classes.numpy()].mean(1)
    assert enough_tasks(x, drawn, bank.labels)
    assert not enough_tasks(x[:8], drawn[:8], bank.labels)
    half, wide = over_tasks(x).half, over_images(x, drawn, bank.labels, "class").half
    assert enough_tasks(x, drawn, bank.labels, 1.01*(half/wide)**2)
    assert not enough_tasks(x, drawn, bank.labels, .99*(half/wide)**2)


def test_auto_gives_whole_blocks_the_first_tasks_and_pairs(bank, tmp_path):
    spec = TaskSpec(shot=1, n_query=15, marginal="dirichlet(2)")
    auto = evaluate(bank, "nearest-prototype,soft-kmeans", spec, "auto", change=True, out=tmp_path)
    counts = auto.groupby(["method", "marginal"]).size()
    assert counts.nunique() == 1 and counts.iloc[0] % BLOCK == 0
    given = evaluate(bank, "nearest-prototype", spec, 100)
    mine = auto[(auto.method == "nearest-prototype") & (auto.marginal == "dirichlet(2)")]
    assert given.accuracy.tolist() == mine.accuracy.tolist()[:100]


@pytest.mark.parametrize("changes", [dict(way=30, n_query=30), dict(within="alphabet")])
def test_auto_needs_a_class_to_leave_out(bank, changes):
    with pytest.raises(InputError, match="give a number"):
        evaluate(bank, "nearest-prototype", TaskSpec(**{"n_query": 15, **changes}), "auto")


def test_a_power_of_eighty_percent_is_one():
    random = np.random.default_rng(0)
    def found(n, points, groups):
        x = random.normal(0, 2., (2, 4000, n)) + [[[points]], [[0.]]]
        test = stats.ttest_1samp(x[0], 0, axis=1) if groups == 1 else stats.ttest_ind(*x, axis=1)
        return np.mean(test.pvalue < .05)
    for points, groups in ((1., 1), (3., 1), (4., 2)):  # many units, and so few that normal quantiles promise too much
        n = int(noise.units_needed(2., points=points, groups=groups))
        assert found(n, points, groups) > .775 and found(n - 1, points, groups) < .825


def test_published_pairs_are_within_cells():
    pairs = noise.published_differences()
    one = pairs[(pairs.dataset == "CUB") & (pairs.shots == 1)]
    methods = set(one["first"]) | set(one["second"])
    assert len(one) == len(methods)*(len(methods) - 1)//2
    assert 0 < noise.surviving_share(pairs, 5., .1) < noise.surviving_share(pairs, 1., .1) <= 1


def test_the_formula_knows_the_sampler_and_unknown_does_not(monkeypatch):
    scores = {1: {0.: .1, 3.: .9}, 2: {0.: .8, 3.: .2}}  # by number present and price
    monkeypatch.setattr(present, "_on_validation", lambda s, data, device, m, way, n: scores[n].get(m.price, 0.))
    def price(knowledge, number):
        s = present.PresentSettings("grocery", "paddle", knowledge, number, "1 2", way=10)
        return present._with_knowledge(s, "glyphs", "cpu").price
    assert [price("formula", n) for n in (1, 2, 5)] == [10., 5., 2.]
    assert [price("oracle", n) for n in (1, 2)] == [3., 0.]
    assert price("unknown", 1) == price("unknown", 2) == 3.


def test_a_tuner_that_does_not_know_the_ways_sees_them_all_but_no_more_than_there_are():
    s = present.PresentSettings("grocery", "paddle", "unknown way", 1, "1 10", way=10)
    assert present._seen(s, "glyphs") == ((5, 1),)  # glyphs have 16 validation classes: neither 20 nor 50 ways


def test_more_classes_present_than_ways_are_refused():
    row = dict(features="grocery", method="paddle", knowledge="published", present=6, numbers="6", tasks=2,
               tuning_tasks=2, shot=1, n_query=15)
    with pytest.raises(InputError, match="more classes than way=5"):
        present.present_row(row, data="glyphs")


def test_a_bank_without_classes_to_spare_has_no_width():
    tiny = Bank(np.zeros((40, 3), np.float32), np.repeat(np.arange(5), 8))
    with pytest.raises(InputError, match="none can be left out"):
        enough_tasks(np.zeros(4), draw_tasks(tiny, TaskSpec(n_query=5), 4), tiny.labels)
