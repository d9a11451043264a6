"""`evaluate` as users meet it: bad input is refused in one sentence before any work, odd banks give
numbers, the same tasks give the same rows."""
import os
import re
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fewshot_nb import inference
from fewshot_nb.evaluation import evaluate as module
from fewshot_nb.cli.evaluate import folder_named_after
from fewshot_nb.cli.main import app
from fewshot_nb.core import InputError
from fewshot_nb.data.bank import Bank
from fewshot_nb.data.features import Features, feature_bank, features
from fewshot_nb.evaluation.calibration import Calibrated
from fewshot_nb.evaluation.compare import compare_methods
from fewshot_nb.evaluation.evaluate import chosen_methods, evaluate
from fewshot_nb.evaluation.front import evaluate_features
from fewshot_nb.evaluation.tuning import tune_method
from fewshot_nb.inference import base
from fewshot_nb.inference.base import Method
from fewshot_nb.samplers import TaskSpec, task_stream

KEY = ["method", "shot", "marginal", "task"]

def cloud(classes=8, per_class=40, dim=12, seed=0):
    "A bank of Gaussian clouds."
    r, y = np.random.default_rng(seed), np.repeat(np.arange(classes), per_class)
    return feature_bank(r.normal(size=(classes, dim))[y] + 1.5*r.normal(size=(len(y), dim)), y, "cloud")

@pytest.fixture
def no_work(monkeypatch):
    "Any method that is run fails the test."
    def work(*_): raise AssertionError("a method was run before the input was checked")
    monkeypatch.setattr(Method, "__call__", work)

def one_sentence(message):
    return (message.endswith((".", "?")) and "\n" not in message
            and not any(m in message[:-1] for m in (". ", "Error:", "Traceback")))

def holes():
    x = np.ones((200, 3))
    x[[7, 9], 1] = np.nan
    x[50, 0] = np.inf
    return x

FOUR = TaskSpec(way=4, n_query=20)
BAD = {  # what a user may hand in, and what the sentence must say
    "NaN and Inf": (
        lambda: feature_bank(holes(), np.repeat(range(5), 40)),
        "3 of 200 rows .* the first is row 7"),
    "not 2-d": (
        lambda: feature_bank(np.ones((4, 2, 2)), [0, 0, 1, 1]),
        r"\(n, dim\), but their shape is \(4, 2, 2\)"),
    "lengths differ": (lambda: feature_bank(np.ones((4, 2)), [0, 1, 1]), "4 features but labels of shape"),
    "a class too small": (
        lambda: evaluate(
            feature_bank(np.ones((44, 2)), [*"a" * 4, *"b" * 40]), "nearest-prototype",
            TaskSpec(way=2, shot=4, n_query=20, marginal="dirichlet(2)")),
        "Class 'a' has 4 samples, but shot=4 and 1 of 20 queries need 5",
    ),
    "more ways than classes": (
        lambda: evaluate(cloud(3), "nearest-prototype", FOUR),
        "way=4 asks for more classes than there are, 3"),
    "a of 0": (lambda: TaskSpec(marginal="dirichlet(0)"), "must be finite and above 0"),
    "a below 0": (lambda: TaskSpec(marginal="dirichlet(-1)"), "must be finite and above 0"),
    "counts that no classes can serve": (
        lambda: evaluate(cloud(), "nearest-prototype", TaskSpec(way=2, n_query=100, marginal=[90, 10])),
        "has 40 samples .* need 91"),
    "all classes too small together": (
        lambda: evaluate(cloud(4, 8), "nearest-prototype", TaskSpec(way=4, n_query=40, marginal="dirichlet(2)")),
        "4 smallest classes have 28 samples left for n_query=40"),
    "marginals that classes can hardly serve": (
        lambda: evaluate(cloud(5, 9), "nearest-prototype", TaskSpec(n_query=35, marginal="dirichlet(0.2)")),
        "More than 95 % of the drawn counts"),
    "alpha": (lambda: inference.AlphaTIM(alpha=0), "alpha=0 is out of range"),
    "infinite alpha": (lambda: inference.AlphaTIM(alpha=float("inf")), "alpha=inf is out of range"),
    "temperature": (lambda: inference.TIM(temperature=-1), "temperature=-1 is out of range"),
    "unknown method": (
        lambda: evaluate(cloud(), "alpha-tin", FOUR),
        "Unknown method 'alpha-tin': did you mean alpha-tim"),
    "no base features": (
        lambda: evaluate(cloud(), inference.SimpleShot(centre="base"), FOUR),
        "centre='base', but there are no base features"),
    "another backbone's mean": (
        lambda: evaluate(cloud(), "simpleshot", FOUR, base_mean=np.ones(5)),
        r"base_mean has the shape \(5,\)"),
    "no tasks": (lambda: evaluate(cloud(), "nearest-prototype", FOUR, n_tasks=0), "n_tasks=0"),
    "one query for PT-MAP": (
        lambda: evaluate(cloud(), ["nearest-prototype", "pt-map"], TaskSpec(way=4, n_query=1, marginal="dirichlet(2)")),
        "pt-map needs 2 queries in a task or more, but n_query=1"),
    "one query for PT-MAP at a temperature": (
        lambda: evaluate(cloud(), {"warm": Calibrated(inference.PTMAP(), 2.)}, TaskSpec(n_query=1, marginal=[1]+[0]*4)),
        "warm needs 2 queries in a task or more, but n_query=1"),
    "queries that balanced twins cannot share": (
        lambda: evaluate(cloud(), "nearest-prototype", TaskSpec(way=4, n_query=22, marginal="dirichlet(2)"),
                         change=True),
        r"by way=4 classes in the balanced tasks beside these: take n_query=24 \(--queries 24\), or leave them out"),
    "unknown protocol": (lambda: TaskSpec(protocol="disjiont"), "did you mean disjoint"),
    "images": (lambda: evaluate(Bank(torch.zeros(80, 1, 4, 4, dtype=torch.uint8), torch.arange(80)//20),
                                "nearest-prototype", FOUR), "embed the images first"),
}

@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_before_any_work(case, no_work):
    call, words = BAD[case]
    with pytest.raises(InputError, match=words) as e: call()
    assert one_sentence(str(e.value)), str(e.value)

@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".safetensors", ".pt"])
def test_a_corrupt_file_on_the_command_line(tmp_path, suffix, no_work):
    path = tmp_path/f"cut{suffix}"
    path.write_bytes(b"PK\x03\x04 this is no such file")
    done = CliRunner().invoke(app, ["evaluate", str(path), "--out", str(tmp_path/"out")])
    assert done.exit_code != 0 and isinstance(done.exception, InputError)
    assert "cannot be read as a" in str(done.exception) and one_sentence(str(done.exception).replace(str(tmp_path), ""))
    assert not (tmp_path/"out").exists()

@pytest.mark.parametrize(
    "options, words",
    [
        (["--methods", "simplshot"], "did you mean simpleshot"), (["--dirichlet", "-1"], "above 0"),
        (["--dirichlet", "2", "1e-1,x"], "'x' must be numbers above 0"), (["--dirichlet", ","], "names no number"),
        (["--way", "9", "--queries", "18"], "way=9 asks for more classes"),
        (["--shots", "40"], "has 40 samples"), (["--protocol", "joint"], "did you mean disjoint"),
        (["--split", "none.csv"], "no split file"), (["--device", "gpu7"], "gpu7"),
        (["--queries", "0"], "--queries 0"), (["--tasks", "0"], "--tasks 0"),
        (["--base", "none.npz"], "no file"), (["--tune"], "needs validation classes"),
        (["--methods", "all,zzz"], "Unknown method 'zzz'"), (["--methods", ","], "No method was given"),
        (["--methods", "nowhere:Mine"], "no module 'nowhere'"), (["--way", "0"], "way=0"),
        (["--shots", ","], "names no number"), (["--shots", "1,x"], "'x' must be whole numbers"),
        (["--shots", "-1"], "'-1' must be whole numbers, 1 or more"), (["--shots", "1 5"], "leave off the quotes"),
        (["--queries", "1", "--no-change"], "pt-map needs 2 queries"),
        (["--methods", "mine.py:f"], "leave off .py, mine:f"),
        (["--device", "cpu:"], "number after the colon"), (["--seed", "4294967296"], "below 2**32"),
        (["--seed", "-3"], "seed=-3")],
)
def test_bad_options_on_the_command_line(tmp_path, options, words, no_work):
    bank = cloud()
    np.savez(tmp_path/"f.npz", features=bank.data.numpy(), labels=bank.labels.numpy())
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "f.npz"), "--out", str(tmp_path / "out"),
                                    "--shots", "1", "--queries", "20", *options])
    assert isinstance(done.exception, InputError) and words in str(done.exception), done.exception

r = np.random.default_rng(0)
ODD = {  # banks and tasks on which a division may go wrong
    "queries of one class": (cloud(), TaskSpec(way=4, shot=2, n_query=12, marginal=[12, 0, 0, 0])),
    "two classes": (cloud(2), TaskSpec(way=2, n_query=10, marginal="dirichlet(1)")),
    "one dimension": (cloud(dim=1), TaskSpec(way=4, shot=3, n_query=12)),
    "duplicate rows": (
        feature_bank(np.repeat(r.normal(size=(6, 5)), 30, 0), np.repeat(range(6), 30)),
        TaskSpec(way=5, shot=2, n_query=15)),
    "constant features": (
        feature_bank(np.full((120, 6), 0.5), np.repeat(range(6), 20)),
        TaskSpec(way=5, shot=2, n_query=10)),
    "all zero": (feature_bank(np.zeros((120, 6)), np.repeat(range(6), 20)), TaskSpec(way=5, n_query=10)),
    "one query": (cloud(), TaskSpec(way=4, n_query=1, marginal="dirichlet(2)")),
}

@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", ODD)
def test_odd_banks_give_numbers(case):
    "Every method, with its published settings, on two tasks."
    bank, spec = ODD[case]
    asked = dict(spec=spec, n_tasks=2, base_mean=bank.data.mean(0))
    methods = [m for m in inference.METHODS if m != "pt-map" or case != "one query"]
    rows = evaluate(bank, methods, **asked)
    assert set(rows.method) == set(methods) and len(rows) == 2*len(methods)
    if len(methods) < len(inference.METHODS):  # a single query is its mean, so PT-MAP would answer at chance
        with pytest.raises(InputError, match="pt-map needs 2 queries in a task or more, but n_query=1"):
            evaluate(bank, "all", **asked)
    scores = rows[["accuracy", "balanced_accuracy", "macro_f1"]]
    assert scores.notna().all().all() and scores.ge(0).all().all() and scores.le(1).all().all()
    assert compare_methods(rows).accuracy.notna().all()

def test_pt_map_takes_negative_features_or_says_so():
    "A power transform of negative features is no number: they must not pass as accuracy."
    try: rows = evaluate(cloud(), "pt-map", FOUR, n_tasks=3)
    except InputError as e: assert one_sentence(str(e))
    else: assert rows.accuracy.mean() > .4  # chance is .25

QUICK = ["simpleshot", "nearest-prototype", "baseline", "bd-cspn", "laplacianshot", "pt-map", "paddle", "bavardage"]

def test_rows_do_not_depend_on_the_batch(monkeypatch):
    "Eight tasks answered at once or three: the same rows."
    bank, spec = cloud(), TaskSpec(shot=2, n_query=25, marginal="dirichlet(1)", protocol="veilleux2021")
    whole = evaluate(bank, QUICK, spec, 8).set_index(KEY)
    for m in inference.METHODS.values(): monkeypatch.setattr(m, "block", 3)
    parts = evaluate(bank, QUICK, spec, 8).set_index(KEY).reindex(whole.index)
    assert (whole.accuracy == parts.accuracy).all() and (whole.macro_f1 == parts.macro_f1).all()

def test_more_tasks_leave_the_first_as_they_were_and_seeds_differ():
    bank, spec = cloud(), TaskSpec(shot=2, n_query=25, marginal="dirichlet(1)")
    few, many, other = (evaluate(bank, "nearest-prototype", spec, n, seed) for n, seed in ((5, 0), (60, 0), (60, 1)))
    assert (many.accuracy[:5].to_numpy() == few.accuracy.to_numpy()).all() and (
        many.accuracy != other.accuracy).mean() > 0.5

@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_predicts_the_same():
    bank, spec = cloud(dim=64), TaskSpec(shot=2, n_query=25, marginal="dirichlet(1)")
    here, there = (evaluate(bank, "all", spec, 20, device=d, base_mean=bank.data.mean(0)) for d in ("cpu", "cuda"))
    assert abs(here.accuracy - there.accuracy).mean() < 2e-3  # at most a query in 500 by rounding

def test_memory_does_not_grow_with_the_number_of_tasks():
    "Tasks are drawn in a stream: eight blocks need no more than two."
    labels = np.repeat(np.arange(20), 100)
    def peak(n):
        tracemalloc.start()
        for _ in task_stream(labels, TaskSpec(shot=5, marginal="dirichlet(2)"), n): pass
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top
    assert peak(8*1024) < 1.2*peak(2*1024)

def test_rows_are_in_memory_once(monkeypatch):
    "While an evaluation gathers its rows, and while its table is made, little lies beside the rows."
    def rows_of(label, m, head, tasks, asked):
        x = np.linspace(0, 1, len(tasks))
        return pd.DataFrame(dict(head, task=np.arange(tasks.start, tasks.start + len(tasks)), queries=75, redrawn=0,
                                 largest=x, accuracy=x, balanced_accuracy=x, macro_f1=x, seconds=x))
    monkeypatch.setattr(module, "_block_rows", rows_of)
    monkeypatch.setattr(module, "_warm_up", lambda *a: None)
    def peak(work):
        tracemalloc.start()
        try: return work(), tracemalloc.get_traced_memory()[1]
        finally: tracemalloc.stop()
    methods = {f"simpleshot {i}": "simpleshot" for i in range(17)}
    specs = [FOUR.replace(shot=shot, marginal="dirichlet(2)") for shot in (1, 2)]
    evaluate(cloud(), methods, specs, 5)  # what is imported or compiled once is not counted
    rows, gathering = peak(lambda: evaluate(cloud(), methods, specs, 4000, change=True))
    size = rows.memory_usage(deep=True).sum()
    assert len(rows) == 17*4*4000 and size < 85*len(rows)
    table, making = peak(lambda: compare_methods(rows))
    assert len(table) == 17*4 and gathering < 1.2*size and making < .5*size

def test_rows_are_the_same_in_memory_in_a_folder_and_read_again(tmp_path):
    "Words are kept once, counts in 32 bits; what the rows say is the same wherever they come from."
    ask = dict(methods=["simpleshot", "nearest-prototype"],
               spec=[FOUR, FOUR.replace(marginal="dirichlet(2)")], n_tasks=30)
    kept, written, read = evaluate(cloud(), **ask), *(evaluate(cloud(), **ask, out=tmp_path) for _ in range(2))
    pd.testing.assert_frame_equal(written, read, check_categorical=False)
    kept, written = (rows.sort_values(KEY, ignore_index=True).drop(columns="seconds") for rows in (kept, written))
    pd.testing.assert_frame_equal(kept[list(written)], written, check_categorical=False)
    assert {str(kept[k].dtype) for k in ("method", "content", "parameters", "note")} == {"category"}
    assert kept.task.max() == 29 and kept.dtypes["task"] == np.int32 and len(kept) == 120
    as_text = read.astype({k: object for k in read.select_dtypes("category")})
    pd.testing.assert_frame_equal(compare_methods(read), compare_methods(as_text), check_dtype=False)

def test_an_interrupted_run_goes_on(tmp_path, monkeypatch):
    "What was written before the interruption is not computed again, and nothing is lost."
    bank, spec = cloud(per_class=60), TaskSpec(n_query=10, shot=1)
    keep, kept = module._keep, []
    def interrupted(*args):
        if len(kept) == 2: raise KeyboardInterrupt
        kept.append(1)
        keep(*args)
    monkeypatch.setattr(module, "_keep", interrupted)
    with pytest.raises(KeyboardInterrupt): evaluate(bank, "nearest-prototype", spec, 2100, out=tmp_path)
    monkeypatch.setattr(module, "_keep", lambda *args: (kept.append(2), keep(*args)))
    rows = evaluate(bank, "nearest-prototype", spec, 2100, out=tmp_path)
    assert kept == [1, 1, 2] and rows.task.tolist() == list(range(2100))
    assert (rows.accuracy.to_numpy() == evaluate(bank, "nearest-prototype", spec, 2100).accuracy.to_numpy()).all()

def test_tuning_looks_at_validation_classes_only():
    "Novel features may be anything: the tuned value and its tasks stay."
    validation = cloud(seed=1)
    found = [tune_method("laplacianshot", Features(cloud(seed=s), validation, validation.data.mean(0)),
                         TaskSpec(n_query=25), 40) for s in (2, 3)]
    assert found[0][0] == found[1][0] and (found[0][1].accuracy == found[1][1].accuracy).all()
    assert found[0][0].lam == found[0][1].set_index("value").accuracy.idxmax()

def test_all_and_labels():
    assert list(chosen_methods("all", 5)) == list(inference.METHODS)
    rows = evaluate(
        cloud(), {"mine": inference.LaplacianShot(lam=0.2), "published": "laplacianshot"}, FOUR, 10,
        base_mean=np.zeros(12))
    assert set(rows.method) == {"mine", "published"} and "lam=0.2" in rows.parameters.iloc[0]

def test_real_features_on_the_command_line(shared, tmp_path):
    "Grocery from its file to the table: PT-MAP drops under imbalance, SimpleShot does not; tuned stands beside preset."
    import pandas as pd

    line = [
        "evaluate", str(shared / "data/features/grocery_mobilenet_v1.npz"), "--split", "grocery",
        "--shots", "1", "--methods", "simpleshot", "pt-map", "laplacianshot", "--tasks", "60",
        "--tune", "--images", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, line, catch_exceptions=False)
    assert (done.exit_code == 0 and "tuned on validation classes, 1-shot: laplacianshot lam=" in done.stdout
            and "± classes" in done.stdout)
    table = pd.read_csv(tmp_path/"table.csv").query("marginal != 'balanced'").set_index("method")
    assert table.change["pt-map"] + table.change_half["pt-map"] < 0 and abs(table.change["simpleshot"]) < .03
    assert {"laplacianshot", "laplacianshot tuned"} <= set(table.index) and (tmp_path/"drops.png").stat().st_size > 5000
    f = features(line[1], split="grocery")
    again = evaluate(f, "pt-map", TaskSpec(shot=1, marginal="dirichlet(2)"), 60)
    assert np.isclose(again.accuracy.mean(), table.accuracy["pt-map"])

def saved(path, bank):
    "A file of features."
    np.savez(path, features=bank.data.numpy(), labels=bank.labels.numpy())
    return str(path)

LINE = ["--methods", "simpleshot", "--shots", "1", "--way", "4", "--queries", "20", "--tasks", "30"]

def command(*args):
    "`fewshot_nb evaluate` in this process."
    return CliRunner().invoke(app, ["evaluate", *map(str, args), *LINE], catch_exceptions=False)

def test_what_stands_beside_a_method_has_its_settings(tmp_path):
    "On balanced queries the tuned and the calibrated line start from the settings published for these queries."
    import pandas as pd

    classes = np.arange(8).repeat(40)
    np.savez(tmp_path/"f.npz", features=cloud().data.numpy(), labels=classes,
             split=np.where(classes < 4, "validation", "novel"))
    line = ["--methods", "laplacianshot", "--shots", "1", "--way", "4", "--queries", "20", "--tasks", "30"]
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path/"f.npz"), "--balanced", "--calibrate", "--tune", "--out",
                                    str(tmp_path/"out"), *line], catch_exceptions=False)
    table = pd.read_csv(tmp_path/"out/table.csv").set_index("method")
    assert done.exit_code == 0 and len(table) == 3 and table.parameters.str.contains("rectify=True").all(), table
    assert table.accuracy["laplacianshot calibrated"] == table.accuracy["laplacianshot"]

@pytest.mark.parametrize("option", ["--tune", "--calibrate"])
@pytest.mark.parametrize("classes, rows, words", [
    (1, 40, r"\(1 class\): way=4 asks for more classes than there are, 1"), (4, 4, r"\(4 classes\): .* --queries 20")])
def test_too_few_validation_classes_are_refused_before_the_work(tmp_path, option, classes, rows, words):
    y = np.r_[np.arange(classes*rows)//rows, 8 + np.arange(320)//40]
    np.savez(tmp_path/"f.npz", features=np.random.default_rng(0).normal(size=(len(y), 12)), labels=y,
             split=np.where(y < 8, "validation", "novel"))
    with pytest.raises(InputError, match=f"{option} finds no tasks in the validation part of f.npz {words}"):
        command(tmp_path/"f.npz", option, "--out", tmp_path/"out")
    assert not (tmp_path/"out/rows").exists()

def noisy(bank):
    noise = torch.randn(bank.data.shape, generator=torch.Generator().manual_seed(0))
    return feature_bank(bank.data + 5*noise, bank.labels, bank.source), None

def swapped(bank):
    "The same features in the same order, but samples change their class."
    return feature_bank(bank.data, np.tile(np.arange(8), 40), bank.source), None

CHANGED = {  # what differs, though the name is the same
    "features": noisy, "labels": swapped, "split": lambda bank: (bank.select([7, 6, 5, 4, 3]), None),
    "base mean": lambda bank: (bank, torch.full((12,), 9.))}

@pytest.mark.parametrize("what", CHANGED)
def test_rows_are_of_their_content(tmp_path, what):
    "What has the same name but another content is computed anew, says so once, and leaves the first rows alone."
    first = evaluate(cloud(), "simpleshot", FOUR, 30, out=tmp_path)
    bank, mean = CHANGED[what](cloud())
    with pytest.warns(UserWarning, match="computed anew"):
        found = evaluate(bank, "simpleshot", FOUR, 30, base_mean=mean, out=tmp_path)
    true = evaluate(bank, "simpleshot", FOUR, 30, base_mean=mean)
    assert found.accuracy.tolist() == true.accuracy.tolist() != first.accuracy.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = evaluate(cloud(), "simpleshot", FOUR, 30, out=tmp_path)
    assert again.accuracy.tolist() == first.accuracy.tolist()

def test_a_folder_keeps_the_larger_number_of_tasks(tmp_path):
    many = evaluate(cloud(), "simpleshot", FOUR, 1100, out=tmp_path)
    few = evaluate(cloud(), "simpleshot", FOUR, 40, out=tmp_path)
    assert few.accuracy.tolist() == many.accuracy[:40].tolist()
    assert len(module.evaluation_results(tmp_path).read()) == 1100

def test_rows_of_an_earlier_version_stay(tmp_path):
    "Rows that do not say what they are of are neither read nor touched."
    from fewshot_nb.engine.results import Results
    keys = [k for k in module.EVALUATION_KEYS if k not in ("content", "base", "implementation")]
    part = Results(tmp_path, "evaluate", 1, keys).write([dict.fromkeys(keys, 0)])
    with pytest.raises(InputError, match="earlier version") as e:
        evaluate(cloud(), "nearest-prototype", FOUR, 3, out=tmp_path)
    assert one_sentence(str(e.value).replace(str(tmp_path), "")) and part.is_file()

MINE = """from dataclasses import dataclass
from fewshot_nb.inference import NearestPrototype
@dataclass(frozen=True)
class Mine(NearestPrototype): name = "mine"
"""

def test_a_method_of_ones_own_is_named_by_its_code(tmp_path, monkeypatch):
    "`module:Class`: a changed module is another method."
    monkeypatch.chdir(tmp_path)
    file = tmp_path/"mine_of_a_test.py"
    file.write_text(MINE)
    try:
        (label, m), = chosen_methods("mine_of_a_test:Mine", 1).items()
        before = module.method_implementation(m)
        file.write_text(MINE + "# changed\n")
        assert label == "mine_of_a_test:Mine" and before.startswith("mine 1 ")
        assert module.method_implementation(m) != before
    finally: inference.METHODS.pop("mine", None)

def test_the_picture_is_of_the_tasks_that_were_asked(tmp_path, monkeypatch):
    "Rows of other features in the folder are in the table, not in the picture; other methods on the same are in both."
    from fewshot_nb.cli import evaluate as cli
    asked = dict(spec=TaskSpec(way=4, shot=1, n_query=20, marginal="dirichlet(2)"), n_tasks=10, change=True)
    for bank, method in ((cloud(seed=1), "simpleshot"), (cloud(), "tim"), (cloud(), "simpleshot")):
        rows = evaluate(bank, method, **asked, out=tmp_path/"rows")
    drawn = []
    monkeypatch.setattr(cli, "_save_drops", lambda table, path: drawn.append(table))
    assert cli._update_files(tmp_path, rows)
    assert set(drawn[0].content) == {cloud().fingerprint} and set(drawn[0].method) == {"simpleshot", "tim"}
    assert pd.read_csv(tmp_path/"table.csv").content.nunique() == 2
    alone = evaluate(cloud(seed=2), "simpleshot", asked["spec"], 10, out=tmp_path/"rows")
    assert not cli._update_files(tmp_path, alone) and len(drawn) == 1  # nothing to compare with

def test_several_dirichlet_parameters_are_a_table_each_and_a_curve(tmp_path, monkeypatch):
    from fewshot_nb.evaluation import front
    drawn = []
    real = front._draw_curves
    monkeypatch.setattr(front, "_draw_curves", lambda *args: drawn.append(real(*args)) or drawn[-1])
    args = ["evaluate", saved(tmp_path/"f.npz", cloud()), "--shots", "1", "5", "--methods", "simpleshot", "bd-cspn",
            "--way", "4", "--queries", "20", "--tasks", "12", "--out", str(tmp_path/"out")]
    def asked(*more): return CliRunner().invoke(app, [*args, *map(str, more)], catch_exceptions=False)
    said = asked("--dirichlet", "10", "1", "5e-1,.2", "--plot", tmp_path/"curve.png").stdout
    assert [re.search(r"dirichlet\(([\d.]+)\)", line)[1] for line in said.splitlines() if "-shot," in line] == (
        ["10", "1", "0.5", "0.2"]*2)
    panels = [ax for ax in drawn[0].axes if ax.lines]
    assert [ax.get_title() for ax in panels] == ["1-shot", "5-shot"] and len(drawn) == 1
    assert [t.get_text() for t in panels[0].get_xticklabels()] == ["10", "1", "0.5", "0.2"]
    asked("--dirichlet", "10", "1", "--plot", tmp_path/"bars.png")  # two points are no curve
    assert len(drawn) == 1 and (tmp_path/"bars.png").is_file() and (tmp_path/"curve.png").stat().st_size > 9000
    x, y = cloud().data, cloud().labels
    several = evaluate_features(x, y, methods="simpleshot", shots=1, way=4, n_query=20, n_tasks=12,
                                marginal=["dirichlet(10)", "dirichlet(0.2)"])
    for marginal, mine in several.tasks[several.tasks.marginal != "balanced"].groupby("marginal"):
        alone = evaluate(cloud(), "simpleshot", TaskSpec(4, 1, 20, marginal), 12)
        assert mine.accuracy.tolist() == alone.accuracy.tolist()  # the tasks are those of each by itself

def test_the_table_adds_and_never_forgets(tmp_path):
    "Two files of one name in one folder: both in table.csv; a line whose rows are gone stays."
    import pandas as pd
    for folder, seed in (("a", 0), ("b", 1)):
        (tmp_path/folder).mkdir()
        saved(tmp_path/folder/"features.npz", cloud(seed=seed))
    out = tmp_path/"out"
    said = [command(tmp_path/f/"features.npz", "--out", out).stdout.split("rows in")[0] for f in ("a", "b")]
    table = pd.read_csv(out/"table.csv")
    assert said[0] != said[1] and table.content.nunique() == 2 and (out/"drops.png").stat().st_size > 2000
    for part in (out/"rows").glob("*.parquet"): part.unlink()
    command(tmp_path/"a/features.npz", "--out", out)
    again = pd.read_csv(out/"table.csv")
    assert set(zip(again.content, again.marginal)) == set(zip(table.content, table.marginal))
    assert len(again) == len(table)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_any_terminal_gets_a_table(tmp_path, encoding):
    "Arrows that the terminal lacks are written plainly, and the files are there."
    line = [sys.executable, "-m", "fewshot_nb", "evaluate", saved(tmp_path/"mine.npz", cloud()), *LINE]
    env = dict(os.environ, PYTHONIOENCODING=encoding, FEWSHOT_QUIET="1")
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True)
    text = done.stdout.decode(encoding)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert ("↓" in text or "↑" in text) == (encoding == "utf-8") and "from balanced" in text
    assert all((tmp_path/"runs/evaluate/mine"/file).is_file() for file in ("table.csv", "drops.png"))

def test_out_is_one_folder_from_anywhere_in_a_project(tmp_path, monkeypatch):
    "JupyterLab starts in nbs, a shell elsewhere: the default of the command and a relative `out` mean one folder."
    (tmp_path/"project/nbs").mkdir(parents=True)
    (tmp_path/"project/settings.ini").touch()
    for start in ("project", "project/nbs"):
        monkeypatch.chdir(tmp_path/start)
        assert folder_named_after("mine.npz") == tmp_path/"project/runs/evaluate/mine"
        evaluate(cloud(), "nearest-prototype", TaskSpec(shot=1, n_query=10), 4, out="runs/rows")
    assert list((tmp_path/"project/runs/rows").rglob("*.parquet")) and not (tmp_path/"project/nbs/runs").exists()

def test_kept_rows_choose_their_engine_by_the_request(monkeypatch):
    "What this session or machine has compiled changes no engine: two sessions keep the same bits."
    def engines(loaded, on_disk):
        monkeypatch.setattr(base, "_loaded", set(loaded))
        monkeypatch.setattr(base, "_is_on_disk", lambda kernel: on_disk)
        chosen = []
        def noted(label, m, *rest): return chosen.append(m.engine) or block(label, m, *rest)
        monkeypatch.setattr(module, "_block_rows", noted)
        evaluate(cloud(), "tim,pt-map,simpleshot", TaskSpec(shot=1, n_query=10), 3)
        return chosen
    block, kernels = module._block_rows, [m.compiled.kernel for m in inference.METHODS.values() if m.compiled]
    assert engines([], False) == engines(kernels, True) == ["torch"]*3


@pytest.mark.parametrize("files", [["evaluate", "mine.npz"], ["compare", "mine.npz", "other.npz"]])
def test_ctrl_c_shows_what_is_there_and_says_once_how_to_go_on(tmp_path, monkeypatch, capsys, files):
    from fewshot_nb.cli.main import main
    keep, kept = module._keep, []
    for seed, name in enumerate(("mine.npz", "other.npz")): saved(tmp_path/name, cloud(seed=seed))
    def interrupted(*args):
        keep(*args)
        kept.append(1)
        if len(kept) == 2: raise KeyboardInterrupt
    monkeypatch.setattr(module, "_keep", interrupted)
    line = [files[0], *(str(tmp_path/f) for f in files[1:]), "--methods", "nearest-prototype", "bd-cspn",
            "--tasks", "20",
            "--shots", "1", "--queries", "10", "--out", str(tmp_path/"out")]
    with pytest.raises(SystemExit) as e: main(line)
    out, err = capsys.readouterr()
    assert e.value.code == 130 and err.lower().count("stopped") == 1 and "the same command goes on from there" in err
    assert "320 samples of 12 numbers" in out and "accuracy" in out and f"rows are kept in {tmp_path/'out/rows'}" in err
    assert not (tmp_path/"out/table.csv").exists()
    monkeypatch.setattr(module, "_keep", keep)
    with pytest.raises(SystemExit) as e: main(line)
    assert e.value.code == 0 and "stopped" not in capsys.readouterr().err.lower()

def test_ctrl_c_through_typer(tmp_path, monkeypatch):
    path, keep = saved(tmp_path/"mine.npz", cloud()), module._keep
    def interrupted(*args):
        keep(*args)
        raise KeyboardInterrupt
    monkeypatch.setattr(module, "_keep", interrupted)
    done = command(path, "--out", tmp_path/"out")
    assert done.exit_code == 130 and "the same command goes on from there" in done.output
    monkeypatch.setattr(module, "_keep", keep)
    assert command(path, "--out", tmp_path/"out").exit_code == 0

def test_an_answer_that_is_no_number_is_refused():
    class Silent(inference.NearestPrototype):
        def __call__(self, support, labels, query, base_mean=None):
            return torch.full((len(query), query.shape[1], 4), float("nan"))
    with pytest.raises(InputError, match="The answers of nearest-prototype are not numbers"):
        evaluate(cloud(), Silent(), FOUR, 3)

def test_a_change_of_settings_is_told():
    "A name takes the published settings for each kind of query and number of shots; fixed ones have no footnote."
    from fewshot_nb.evaluation.front import evaluate_features
    from fewshot_nb.inference.transductive import LaplacianShot
    b, methods = cloud(), {n: n for n in ("tim-adm", "laplacianshot", "alpha-tim", "simpleshot")}
    methods["fixed"] = LaplacianShot(centre="support")
    found = evaluate_features(b, methods=methods, shots=(1, 5), n_query=15, n_tasks=6)
    one, five = ([n for n in t.notes if "published" in n] for t in found.tables)
    told = "from balanced also holds a change of settings, as published: "
    assert len(one) == 1 and one[0].startswith(told) and "fixed" not in one[0] and "simpleshot" not in one[0]
    assert "laplacianshot rectify=False (balanced: True)" in one[0]
    assert "tim-adm conditional=1 (balanced: 0.1), ce=1 (balanced: 0.1)" in one[0]
    assert "laplacianshot lam=0.7 (balanced: 0.3), rectify=False (balanced: True)" in five[0]
    assert five[1:] == ["alpha-tim: alpha=7, as published for 5 shots"]
    for text in (found.tables[0].html(), found.to_markdown(), found.to_latex(), repr(found).replace("\n  ", " ")):
        assert told in text
    even = evaluate_features(b, methods="laplacianshot", shots=5, n_query=15, n_tasks=6, marginal="balanced").tables[0]
    assert even.notes[-1] == "laplacianshot: lam=0.3, rectify=True, as published for 5 shots and balanced queries"
    fixed = evaluate_features(b, methods=LaplacianShot(centre="support"), shots=1, n_query=15, n_tasks=6).tables[0]
    assert not any("published" in n for n in fixed.notes)

def test_settings_are_not_called_published_where_they_are_not():
    "A function, a class of another module and settings of one's own have no preset, and none is told."
    from fewshot_nb.evaluation.tables import preset_notes
    from fewshot_nb.inference.transductive import AlphaTIM
    row = dict(method="m", implementation="alpha-tim 1", shot=5, marginal="dirichlet(2)")
    def told(**changes): return preset_notes(pd.DataFrame([row | changes]))
    own = {a: module.method_parameters(AlphaTIM(alpha=a)) for a in (2., 3., 7.)}
    assert told(parameters=own[7.]) == ["m: alpha=7, as published for 5 shots"]
    assert not told(parameters=own[3.]) and not told(parameters=own[2.]) and not told(parameters=own[7.], shot=1)
    assert not told(parameters=own[7.], implementation="alpha-tim 0")
    assert not told(parameters=own[7.], implementation="alpha-tim 1 0123456789ab")
    assert not told(parameters="LogisticRegression(C=2, max_iter=9)", implementation="LogisticRegression 1")

def test_one_task_has_no_interval_and_no_best():
    "One task tells no method from another: no star, no nan, and a sentence."
    from fewshot_nb.evaluation.front import evaluate_features
    table = evaluate_features(cloud(), methods=["simpleshot", "nearest-prototype"], shots=1, n_query=15,
                              n_tasks=1).tables[0]
    assert set(table.marks) == {""} and "nan" not in table.text(200) and "±" not in table.text(200)
    assert "one task: no intervals, and no method is told from another" in table.notes
    assert table.title.endswith(", 1 task")

def test_one_line_is_not_the_best_of_its_table():
    from fewshot_nb.evaluation.front import evaluate_features
    table = evaluate_features(cloud(), methods="simpleshot", shots=1, n_query=15, n_tasks=20).tables[0]
    assert table.marks == ("",) and "vs. inductive" not in table.words
    assert not any("best" in form for form in (table.text(200), table.markdown(), table.html(), table.latex()))

def test_few_tasks_give_no_verdict_on_new_classes():
    "The interval over classes wanders while tasks are few: a footnote says so; from 1,000 on there is a verdict."
    from fewshot_nb.evaluation.backbones import compare_features
    b = cloud(10, 100)
    r = np.random.default_rng(1)
    pair = {"good": b.data, "bad": b.data + 3*torch.from_numpy(r.normal(size=b.data.shape)).float()}
    for n in (999, 1000):
        c = compare_features(pair, b.labels, methods="simpleshot", shots=1, n_query=15, marginal="balanced", n_tasks=n)
        rough = "± classes is rough: 999 tasks, take 1,000 or more"
        assert c.numbers.lead_holm_over_class[0] <= .05
        assert c.numbers.holds_for[0] == ("new images" if n < 1000 else "new classes")
        assert (rough in c.tables[0].notes) == (n < 1000)
        assert ("holds for: no verdict on new classes below 1,000 tasks" in c.tables[0].notes) == (n < 1000)

def test_the_warning_and_the_table_say_one_share_of_redrawn_counts():
    "The warning is of the tasks that were asked for, as the footnote is."
    from fewshot_nb.evaluation.front import evaluate_features
    with pytest.warns(UserWarning, match="of 100 tasks were drawn again") as said:
        t = evaluate_features(cloud(per_class=30), methods="simpleshot", shots=1, n_tasks=100)
    share = next(str(w.message) for w in said if "drawn again" in str(w.message)).split()[0]
    assert f"counts drawn again as a class was too small: {share}" in t.tables[0].notes

@pytest.mark.parametrize("size, names, lone", [
    (1e18, "baseline, ", None), (1e30, "pt-map", None), (1e-30, "pt-map", None), (1e18, None, "nearest-prototype")])
def test_features_that_a_method_cannot_carry_are_refused_before_any_work(size, names, lone, no_work):
    "All such methods are named, whichever kind of task comes first; the others take them."
    b = cloud()
    b = feature_bank(b.data*np.float32(size), b.labels, "cloud")
    if lone:
        assert module._planned_work(b, lone, TaskSpec(5, 1, 15), 9, 0, "cpu", None, True, None, False)
        return
    with pytest.raises(InputError, match="cannot carry the features of cloud in float32: the largest") as said:
        evaluate(b, "all", [TaskSpec(5, 1, 15), TaskSpec(5, 5, 15)], 9)
    assert names in str(said.value) and str(said.value).endswith("Rescale the features, or name other methods.")

def test_a_folder_that_is_none_is_refused(no_work):
    with pytest.raises(InputError, match="out=5 names no folder"): evaluate(cloud(), out=5)

def test_counts_that_were_drawn_again_are_told_once():
    from fewshot_nb.evaluation.backbones import compare_features
    from fewshot_nb.evaluation.front import evaluate_features
    b, ask = cloud(per_class=30), dict(methods="simpleshot,nearest-prototype", shots=(1, 5), n_tasks=40)
    pair = dict(a=b.data, b=b.data + 1)
    for make in (lambda: evaluate_features(b, images=True, **ask), lambda: compare_features(pair, b.labels, **ask)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            make()
        assert sum("drawn again" in str(w.message) for w in said) == 1

def test_masked_values_are_refused_like_nan():
    "A mask that hides nothing is taken; a hidden value is no feature."
    from fewshot_nb.evaluation.front import features_from
    b = cloud()
    x = np.ma.masked_array(b.data.numpy(), mask=False)
    assert torch.equal(features_from(x, b.labels).novel.data, b.data)
    x[3, 2] = np.ma.masked
    with pytest.raises(InputError, match="hold 1 masked value: fill them"): features_from(x, b.labels)
