"""The front door as a newcomer uses it: three lines, a table, a picture; what cannot be is refused in a sentence."""
import json
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch

matplotlib.use("Agg")
import fewshot_nb as fs
from fewshot_nb.core import InputError

WORDS = np.repeat(["ant", "bee", "cat", "dog", "elk", "fox", "gnu"], 40)

def cloud(spread=2., seed=0, labels=WORDS):
    r = np.random.default_rng(seed)
    means = np.random.default_rng(9).normal(size=(len(np.unique(labels)), 16))
    return means[np.unique(labels, return_inverse=True)[1]] + spread*r.normal(size=(len(labels), 16))

X, WORDS_AS_NUMBERS = cloud(), np.unique(WORDS, return_inverse=True)[1]
FAST = dict(methods=["nearest-prototype", "bd-cspn"], shots=1, n_tasks=40)

def test_the_import_is_light_and_offers_the_front_door():
    code = ("import sys, fewshot_nb as fs; heavy = {'torch', 'pandas', 'numpy', 'matplotlib'} & set(sys.modules); "
            "assert not heavy, heavy; assert {'evaluate', 'compare', 'features', 'Bank', 'TaskSpec', 'METHODS', "
            "'Method'} <= set(dir(fs)); import fewshot_nb.evaluation.evaluate as m; "
            "assert fs.evaluate is not m and callable(fs.evaluate); assert fs.evaluation.evaluate is m")
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'evaluat'"): fs.evaluat

def test_no_folder_of_the_package_hides_a_name_of_the_front_door():
    there = {p.stem for p in Path(fs.__file__).parent.iterdir()}
    assert not there & set(fs.__all__), "an `import fewshot_nb.NAME` would put the folder in the name's place"
    code = ("import importlib, fewshot_nb as fs\nfor name in fs.__all__:\n    try: importlib.import_module("
            "f'fewshot_nb.{name}')\n    except ModuleNotFoundError: pass\nassert callable(fs.features), fs.features")
    subprocess.run([sys.executable, "-c", code], check=True)

@pytest.mark.parametrize("form", [
    lambda: (X, WORDS), lambda: (X.tolist(), WORDS.tolist()),
    lambda: (torch.tensor(X), torch.arange(7).repeat_interleave(40)),
    lambda: (pd.DataFrame(X), pd.Series(WORDS)), lambda: (pd.DataFrame(X), pd.Categorical(WORDS)),
    lambda: ((X, WORDS), None), lambda: (X.astype("f2"), [f"{w} é" for w in WORDS]),
    lambda: (X, pd.to_datetime([f"2026-01-0{1 + i//40}" for i in range(280)])), lambda: (X, np.arange(280)//40 + .0)],
    ids="numpy lists torch pandas categories pair words dates floats".split())
def test_every_form_gives_the_same_tasks(form):
    rows = fs.evaluate(*form(), **FAST).tasks
    assert len(rows) == 2*2*40
    np.testing.assert_allclose(rows.accuracy.mean(), fs.evaluate(X, WORDS, **FAST).tasks.accuracy.mean(), atol=.01)

def test_the_table_shows_itself(monkeypatch):
    t = fs.evaluate(X, WORDS, base=X, groups=dict.fromkeys(np.unique(WORDS), "animals"), **FAST)
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        assert max(map(len, repr(t).splitlines())) <= width
    assert "<table>" in t._repr_html_() and "5-way 1-shot" in repr(t)
    assert r"\toprule" in t.to_latex() and "| method" in t.to_markdown()
    assert len(json.loads(t.to_json())) == 4 and t.tasks.base.iloc[0] != ""
    best = t.numbers[t.numbers.marginal != "balanced"].set_index("method").accuracy.idxmax()
    assert f"**{max(t.tables[0].words.accuracy)}**" in t.to_markdown() and t.tables[0].words.method[0].startswith(best)
    assert len(t.plot().axes) == 1

def test_a_tie_is_marked_and_a_loser_is_not():
    from fewshot_nb.evaluation.front import Evaluation
    t = fs.evaluate(X, WORDS, **FAST)
    one = t.tasks[(t.tasks.method == "nearest-prototype") & (t.tasks.marginal != "balanced")]
    noise = np.where(np.arange(len(one)) % 2, .01, -.01)
    rows = pd.concat([one, one.assign(method="twin", accuracy=one.accuracy + noise - 1e-6),
                      one.assign(method="loser", accuracy=one.accuracy - .1 + noise)])
    marks = dict(zip(["nearest-prototype", "twin", "loser"], Evaluation(rows, t.bank).tables[0].marks))
    assert marks == {"nearest-prototype": "*", "twin": "~", "loser": ""}

def test_backbones_are_compared_on_the_same_tasks():
    c = fs.compare({"worse": cloud(3.), "better": cloud(1.5)}, WORDS, **FAST)
    assert (c.numbers.ahead == "better").all() and (c.numbers.holds_for != "undecided").all()
    assert (c.numbers.lead > 0).all() and "better is ahead with 2" in repr(c)
    first = c.tasks[c.tasks.method == "nearest-prototype"].pivot(index="task", columns="data", values="accuracy")
    lead = c.numbers.set_index("method").lead["nearest-prototype"]
    np.testing.assert_allclose(lead, (first.better - first.worse).mean())
    figure = c.plot()
    figure.canvas.draw()
    legend, = figure.legends
    inside = figure.bbox.padded(1)
    assert len(figure.axes) == 1 and [t.get_text() for t in legend.get_texts()][0] == "better"
    assert all(inside.containsx(x) for t in legend.get_texts() for x in t.get_window_extent().intervalx)

def test_no_backbone_is_left_out_and_the_runner_up_is_named(monkeypatch):
    "Long names become letters where they have no room; columns that are empty in all lines are no columns."
    monkeypatch.setenv("COLUMNS", "80")
    names = ["resnet50_imagenet1k", "dinov2_vitb14_reg_features", "clip_vitb32_openai"]
    for n in (2, 3):
        some = {b: cloud(2. + i) for i, b in enumerate(names[:n])}
        c = fs.compare(some, WORDS, n_query=100, **FAST | dict(n_tasks=300))
        table, text = c.tables[0], c.tables[0].text()
        head = next(line for line in text.splitlines() if line.startswith("method"))
        assert head.split()[1:n + 1] == list("ABC")[:n] and "A: resnet50_imagenet1k, B: dinov2" in text
        assert "holds for" in head and "± classes" in head and max(map(len, text.splitlines())) <= 80
        assert all(f"<th>{b} (%)</th>" in table.html() for b in names[:n])
        assert table.words.ahead.str.contains(" over ").eq(n == 3).all()
        assert "± images" not in table.words  # no line has it: its tasks use every image of a class
        assert "± images unknown: some task uses every image of a class, so none can be left out: lower n_query or sh" \
            in " ".join(text.split())

def test_footnotes_go_with_their_columns():
    "A page of eight columns names those that it leaves out, and says nothing more of them."
    t = fs.evaluate(X, WORDS, images=True, calibration=True, way=3, n_query=15, **FAST | dict(n_tasks=20)).tables[0]
    assert "no room for: s / 1,000, macro-F1" in t.html() and t.html().count("<th>") == 8
    c = fs.compare({"a": cloud(2.), "b": cloud(3.), "c": cloud(4.)}, WORDS, way=3, n_query=15, **FAST).tables[0]
    rough = [f"± {unit} is rough: 40 tasks" for unit in ("images", "classes")]
    assert [r in c.text(200) for r in rough] == [r.split(" is")[0] in c.words for r in rough] and rough[1] in c.html()
    narrow = c.text(60)
    lost = narrow.split("no room for: ")[1]
    assert lost.startswith("± tasks") and not any(r in narrow for r in rough if r.split(" is")[0] in lost)

def test_what_an_earlier_version_called_otherwise_is_told():
    for call, now in [(lambda: fs.evaluate(X, WORDS, balanced=False, **FAST), "give change=False"),
                      (lambda: fs.evaluate(X, WORDS, names=list("abcdefg"), **FAST), "give class_names="),
                      (lambda: fs.compare({"a": X, "b": X}, WORDS, names={}, **FAST), "give image_names="),
                      (lambda: fs.compare({"a": X, "b": X}, WORDS, balanced=True, **FAST), "change=, which compares")]:
        with pytest.raises(InputError, match="There is no (names|balanced)= any more") as e: call()
        assert now in str(e.value) and str(e.value).endswith(".")

def test_the_usual_number_of_queries_fits_any_way():
    for way, n in ((2, 76), (5, 75), (7, 77)):
        assert set(fs.evaluate(X, WORDS, way=way, **FAST | dict(n_tasks=5)).tasks.n_query) == {n}

BAD = {
    "no labels": (lambda: fs.evaluate(X), "labels are missing"),
    "unlabelled rows": (lambda: fs.evaluate(X, [None, *WORDS[1:]]), "1 row without a label"),
    "unlabelled numbers": (lambda: fs.evaluate(X, [np.nan, *range(279)]), r"1 row without a label \(nan\)"),
    "a class of one image": (lambda: fs.evaluate(X, ["axolotl", *WORDS[1:]], **FAST), "'axolotl' has 1 sample"),
    "more ways than classes": (lambda: fs.evaluate(X, WORDS, way=9, **FAST), "way=9"),
    "lengths": (lambda: fs.evaluate(X[1:], WORDS), "279 features but labels"),
    "an order that is not": (lambda: fs.evaluate(X, WORDS, sort="speed", **FAST), "Unknown order 'speed'"),
    "another backbone's base": (
        lambda: fs.evaluate(X, WORDS, base=X[:, 1:], **FAST), r"base_mean has the shape \(15,\)"),
    "other images": (lambda: fs.compare({"a": X, "b": X[1:]}, WORDS), "280 rows in a and 279 rows in b"),
    "one backbone": (lambda: fs.compare({"a": X}, WORDS), "two backbones or more"),
    "other order": (lambda: fs.compare({"a": (X, WORDS), "b": (X, WORDS[::-1])}), "Row 0 is 'ant' in a and 'gnu' in b"),
    "within groups that are not there": (
        lambda: fs.evaluate(X, WORDS, within="kind", **FAST), "all are in one: give groups"),
    "no features": (lambda: fs.evaluate(None, WORDS), "X is missing: give features"),
    "no features of one": (lambda: fs.compare({"a": X, "b": None}, WORDS), "The features of b are missing"),
    "one base for several": (lambda: fs.compare({"a": X, "b": X}, WORDS, base=X), "base is ndarray, but each backbone"),
    "one name twice": (lambda: fs.compare({1: X, "1": X}, WORDS), "1 and '1' are one name"),
    "queries that balanced tasks cannot share": (
        lambda: fs.evaluate(X, WORDS, way=2, n_query=75, **FAST), "take n_query=76 .*change=False"),
    "a split without a file": (lambda: fs.evaluate(X, WORDS, split="grocery"), "split= is for a file"),
    "labels beside a bank": (
        lambda: fs.evaluate(fs.Bank(X, WORDS_AS_NUMBERS), WORDS[::-1], **FAST), "labels of its own"),
    "as many tasks as it takes, of several": (
        lambda: fs.compare({"a": X, "b": X}, WORDS, n_tasks="auto"), "n_tasks='auto' must be a whole number"),
    "a seed of more than 32 bits": (lambda: fs.evaluate(X, WORDS, seed=2**32, **FAST), "take one below 2\\*\\*32"),
}

@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case, monkeypatch):
    from fewshot_nb.inference.base import Method
    def work(*_): raise AssertionError("a method was run before the input was checked")
    monkeypatch.setattr(Method, "__call__", work)
    call, words = BAD[case]
    with pytest.raises(InputError, match=words) as e: call()
    assert str(e.value).endswith((".", "?")) and "\n" not in str(e.value)
