"""Verdicts of the ledger once more, from the committed rows with numpy, pandas and scipy alone."""
import json

import numpy as np, pandas as pd, pytest
from scipy import stats

from fewshot_nb.claims.evidence import evidence_folder
from fewshot_nb.claims.report import ledger

def rows(experiment, *profiles):
    files = [next(evidence_folder(experiment).glob(f"{p}-*.parquet")) for p in profiles]
    return pd.concat(map(pd.read_parquet, files), ignore_index=True)

def over_seeds(x):
    "Mean and Student's interval."
    half = stats.t.ppf(.975, len(x) - 1)*np.std(x, ddof=1)/len(x)**.5
    return np.mean(x), np.mean(x) - half, np.mean(x) + half

def kept(paper, id, experiment="", **where):
    "Value and interval in the ledger."
    found = ledger(paper, all=True)
    found = found[(found.id == id) & (found.experiment == experiment)]
    for column, value in where.items(): found = found[found[column] == value]
    return found[["statistic", "low", "high"]].astype(float).iloc[0].tolist()

@pytest.mark.parametrize("way, shot", [(20, 1), (20, 5), (5, 1), (5, 5)])
@pytest.mark.parametrize("letter, place", [("T", "unstructured"), ("W", "within-alphabet")])
def test_errors_of_the_omniglot_protocols(letter, place, way, shot):
    table = rows("exp_omniglot_protocols", "hours", "laptop")
    table = table[(table.method == "siamese shared") & (table.train_steps == 10_000)]
    error = table[f"tight {place} {way}-{shot}"].to_numpy()
    mine = over_seeds(error*(100 if error.max() <= 1 else 1))
    theirs = kept("omniglot_eval", f"{letter}{way}-{shot}", "exp_omniglot_protocols", learner="siamese shared")
    assert mine == pytest.approx(theirs, rel=1e-6)

@pytest.mark.parametrize("id, learner, column", [
    ("O1", "classifier", "test_loss"), ("O1t", "classifier", "train_loss"), ("O1a", "classifier", "test_accuracy"),
    ("O2r", "proto_net", "test_loss"), ("O2a", "proto_net", "test_accuracy")])
def test_slopes_of_overfitting(id, learner, column):
    "Means of 20 epochs, of which each begins and ends with a halving of the rate, 20 epochs apart."
    table = rows("exp_overfitting", "hours")
    curves = np.array([text.split(",") for text in table[table.learner == learner][column]], float)
    assert curves.shape == (3, 80)
    mine = over_seeds((curves[:, 60:].mean(1) - curves[:, 40:60].mean(1))/20)
    assert mine == pytest.approx(kept("generation", id, "exp_overfitting"), rel=1e-6, abs=1e-12)

@pytest.mark.parametrize("images", ["tiny_tiered", "caltech101"])
def test_the_epoch_of_the_lowest_loss(images):
    table = rows("exp_protonet_search", "hours").query("images == @images and not normalise and configuration == -1")
    mine = np.clip(over_seeds(table.best_epoch), 1, 100)
    assert mine == pytest.approx(kept("stability", "T13", "exp_protonet_search", data=images), rel=1e-6)

def pt_map_drops(profile):
    table = rows("exp_realistic", profile)
    return -100*table[table.method == "pt-map"].set_index(["features", "shot"])[["change", "change_over_class"]]

def test_what_pt_map_loses():
    "Cells of a bank share their classes: halves added as if one error, banks in quadrature."
    for profile, theirs in (("photographs", 9.), ("cross_domain", 15.2), ("little_room", 21.7)):
        drops = pt_map_drops(profile)
        half = (drops.change_over_class.groupby("features").sum()**2).sum()**.5/len(drops)
        mine = drops.change.mean(), drops.change.mean() - half, drops.change.mean() + half
        assert mine[0] == pytest.approx(theirs, abs=.05)
        assert mine == pytest.approx(kept("alpha_tim", "V2", "exp_realistic", ran=profile), rel=1e-6)

def test_alpha_tim_against_tim_both_tuned():
    table = rows("exp_realistic", "photographs").set_index(["method", "shot"]).behind*100
    lead = table["tim tuned"] - table["alpha-tim tuned"]
    for id, fewest in (("V26", 1), ("V28", 5)):
        worst = kept("alpha_tim", id, "exp_realistic", ran="photographs")[0]
        assert lead[lead.index >= fewest].min() == pytest.approx(worst, rel=1e-6)

def test_the_reading_by_the_queries_own_moments():
    "Right answers by task: MAML's gain is there on balanced queries and gone on uneven ones."
    table = rows("exp_learners", "hours").query("learner == 'maml' and shot == 1")
    found = {r["bn"]: r for r in json.loads(table.readings.item())}
    even, uneven = (np.array(found["query"][k]) - found["support"][k] for k in ("right_balanced", "right"))
    assert [round(100*x.mean()/75, 2) for x in (even, uneven)] == [1.5, .05]
