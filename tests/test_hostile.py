"""What people may hand in, drawn at random: each case ends in a result or in one sentence.

Feature files, options, notebooks, archives and caches; at least 500 cases. `CASES` counts them,
and what became of them.
"""

import collections
import contextlib
import io
import json
import re
import string
import sys
import tarfile
import warnings
import zipfile

import numpy as np
import pytest
import small_notebooks
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fewshot_nb.cli.main import main
from fewshot_nb.core import InputError

CASES = collections.Counter()
MANY = dict(deadline=None, suppress_health_check=list(HealthCheck), database=None)

def one_sentence(error):
    "The message of an error that was meant for people: one line that ends as a sentence does."
    text = str(error)
    assert text.strip() and "\n" not in text.strip() and len(text) < 700, text
    assert not re.search(r"\b(Traceback|NoneType|KeyError|AttributeError|TypeError)\b", text), text
    assert text.rstrip()[-1] in ".?!", text
    return text

@contextlib.contextmanager
def told(kind):
    "Count a case; an `InputError` is told in one sentence, anything else is a fault."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
            CASES[kind, "result"] += 1
        except InputError as e:
            one_sentence(e)
            CASES[kind, "sentence"] += 1

def command(kind, *args):
    "Run the command line in this process: exit code 0, 1 with one sentence, or 2 with a usage line."
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try: main([str(a) for a in args])
        except SystemExit as e: code = e.code or 0
    said = err.getvalue()
    assert "Traceback" not in said and code in (0, 1, 2), said
    if code == 1: one_sentence(said.strip().splitlines()[-1])
    CASES[kind, ("result", "sentence", "usage")[code]] += 1
    return code, out.getvalue(), said

# Feature files

def _numbers(rng, kind, shape):
    x = rng.normal(size=shape)
    if kind == "nan" and x.size: x.flat[rng.integers(x.size)] = np.nan
    if kind == "inf" and x.size: x.flat[rng.integers(x.size)] = -np.inf
    if kind == "constant": x[...] = 1.
    return x*dict(huge=1e38, tiny=1e-38, beyond=1e300).get(kind, 1.)

NUMBERS = st.sampled_from(["plain", "plain", "nan", "inf", "huge", "tiny", "beyond", "constant"])
DTYPES = st.sampled_from(["f4", "f8", "f2", ">f4", ">f8", "g", "c8", "i8", ">i4", "u1", "?", "U3", "S3", "M8[s]"])
SHAPES = st.sampled_from([(40, 6), (40, 6), (40, 6), (40, 1), (40, 0), (0, 6), (40,), (8, 5, 6), (), (1, 6)])
LABELS = st.sampled_from(["numbers", "words", "floats", "halves", "nan", "inf", "1e300", "complex",
                          "big-endian", "short", "two columns", "one class", "singles", "bool", "negative",
                          "bytes", "dates"])

def _labels(kind, n):
    y = np.arange(n) % 5
    return {"numbers": y, "words": np.array([f"klasse {i}é" for i in y]), "floats": y.astype(float), "halves": y + .5,
            "nan": np.where(y == 2, np.nan, y), "inf": np.where(y == 2, np.inf, y), "1e300": np.where(y == 2, 1e300, y),
            "complex": y + 1j, "big-endian": y.astype(">i8"), "short": y[:-1], "two columns": np.stack([y, y], 1),
            "one class": 0*y, "singles": np.arange(n), "bool": y > 2, "negative": y - 3,
            "bytes": y.astype("S2"), "dates": y.astype("M8[s]")}[kind]

@settings(max_examples=130, **MANY)
@given(
    numbers=NUMBERS, dtype=DTYPES, shape=SHAPES, labels=LABELS, seed=st.integers(0, 9),
    suffix=st.sampled_from([".npz", ".npz", ".pt"]),
    more=st.sets(st.sampled_from(["y", "x", "scale", "word scale", "base", "narrow base", "split",
                                  "short split"]), max_size=2))
def test_feature_files(tmp_path_factory, numbers, dtype, shape, labels, seed, suffix, more):
    from fewshot_nb.data.features import features
    from fewshot_nb.inference import METHODS
    folder = tmp_path_factory.mktemp("features")
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = _numbers(rng, numbers, shape)
        x = x.astype(dtype) if dtype != "M8[s]" else np.zeros(shape, dtype)
    n = shape[0] if shape else 1
    extra = {
        "y": dict(y=_labels("numbers", n)[::-1]), "x": dict(x=x),
        "scale": dict(scale=np.array([0.1, 0.2])), "word scale": dict(scale=np.array("much")),
        "base": dict(base=x), "narrow base": dict(base=rng.normal(size=(9, 2))),
        "split": dict(split=np.array(["novel"] * n)), "short split": dict(split=np.array(["base"]))}
    arrays = dict(features=x, labels=_labels(labels, n))
    for m in sorted(more): arrays |= extra[m]
    file = folder/f"f{suffix}"
    if suffix == ".npz": np.savez(file, **arrays)
    else:
        try: torch.save({k: torch.as_tensor(v) for k, v in arrays.items()}, file)
        except (TypeError, ValueError): return  # torch has no such tensor
    with told("feature file"):
        read = features(file)
        assert read.novel.data.isfinite().all()
        support, query = read.novel.data[:5][None].float(), read.novel.data[5:9][None].float()
        if len(query[0]) == 4:
            p = METHODS["simpleshot"]()(support, torch.arange(5)[None], query, None)
            assert p.isfinite().all(), "an answer that is not a number must be refused"

@settings(max_examples=60, **MANY)
@given(
    where=st.floats(0, 1), bits=st.integers(1, 255), cut=st.booleans(),
    suffix=st.sampled_from([".npz", ".pt", ".safetensors", ".parquet"]))
def test_feature_files_that_are_damaged(tmp_path_factory, where, bits, cut, suffix):
    import pandas as pd
    from safetensors.numpy import save_file

    from fewshot_nb.data.features import features
    file = tmp_path_factory.mktemp("damaged")/f"f{suffix}"
    x, y = np.random.default_rng(0).normal(size=(40, 6)).astype("f4"), np.arange(40) % 5
    if suffix == ".npz": np.savez(file, features=x, labels=y)
    if suffix == ".pt": torch.save(dict(features=torch.as_tensor(x), labels=torch.as_tensor(y)), file)
    if suffix == ".safetensors": save_file(dict(features=x, labels=y), file)
    if suffix == ".parquet": pd.DataFrame(x, columns=[f"d{i}" for i in range(6)]).assign(label=y).to_parquet(file)
    content = bytearray(file.read_bytes())
    at = int(where*(len(content) - 1))
    content[at] ^= bits
    file.write_bytes(content[:at] if cut else content)
    with told("damaged feature file"): features(file)

# Options

WORDS = st.sampled_from(["", ",", "0", "-1", "1", "5", "1e9", "2.5", "nan", "inf", "all", "all,zzz",
                         "simpleshot", "SimpleShot", "zzz", "cpu", "cpu:", "cuda:99", "é→", "--", "''",
                         "$(true)", "a b", "9" * 30, "True", "[3]", "{", "\x1b[31m", ".", "/"])
OPTIONS = [
    "--shots", "--way", "--queries", "--dirichlet", "--protocol", "--methods", "--seed", "--device",
    "--base", "--split"]

@settings(max_examples=110, **MANY)
@given(
    options=st.lists(st.tuples(st.sampled_from(OPTIONS), WORDS), max_size=3),
    flags=st.sets(st.sampled_from(["--balanced", "--no-change", "--images", "--tune"])))
def test_options_of_evaluate(tmp_path_factory, options, flags):
    folder = tmp_path_factory.mktemp("options")
    rng = np.random.default_rng(0)
    np.savez(folder/"f.npz", features=rng.normal(size=(150, 4)).astype("f4"), labels=np.arange(150) % 6)
    words = [w for option in options for w in option]
    methods = [] if "--methods" in words else ["--methods", "simpleshot"]
    command("option", "evaluate", folder/"f.npz", *methods, "--tasks", "3", "--out", folder/"out", *words, *flags)

TEXTS = st.one_of(WORDS, st.text(string.printable, max_size=12), st.integers(-2, 2**70).map(str))

@settings(max_examples=90, **MANY)
@given(
    name=st.sampled_from(["exp_dirichlet", "exp_dirchlet", "exp_beta", "", "nothing.ipynb", ".", "../x"]),
    pairs=st.lists(st.tuples(st.sampled_from(["seed", "jobs", "out", "profile", "data", "device", "rows",
                                              "zzz", "", "=", "-"]), TEXTS), max_size=2),
    profile=st.sampled_from(["smoke", "committed", "zzz", "paper"]),
    what=st.sampled_from(["reproduce", "run", "results", "logs"]),
)
def test_options_of_reproduce(tmp_path_factory, name, pairs, profile, what):
    """Everything is refused before work starts, or only foretold: a run that would start carries a
    parameter that is none."""
    out = tmp_path_factory.mktemp("reproduce")
    given_ = [a for key, value in pairs for a in ("-p", f"{key}={value}")]
    if what == "reproduce":
        command(
            "parameter", what, name, "--profile", profile, "--data", "glyphs", "--out", out,
            "--dry-run", *given_)
    elif what == "run":
        command(
            "parameter", what, name, "--profile", profile, *given_, "-p", "no_such_parameter=1",
            "--to", out / "x.ipynb")
    else: command("parameter", what, name, "--out", out)

# Notebooks

FRONT = dict(title="t", version=1, sweep=["beta"], profiles=dict(smoke=dict(beta=[1, 2], seed=0)))
HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.just(10**30), st.just(float("nan")),
    st.text(string.printable, max_size=8), st.just([]), st.just({}), st.just([[]]),
    st.just({"smoke": None}), st.just({"smoke": []}), st.just({"smoke": [1]}), st.just("os.system"),
    st.just("runpy.run_path"), st.just("fewshot_nb.core.nothing"), st.just("fewshot_nb"),
    st.just("..core"))
FIELDS = st.sampled_from(["title", "version", "sweep", "profiles", "bank", "work", "together", "chunk",
                          "labels", "needs", "regenerates", "zzz"])

@settings(max_examples=130, **MANY)
@given(
    changes=st.dictionaries(FIELDS, HOSTILE, max_size=2),
    lost=st.sets(FIELDS, max_size=1),
    damage=st.sampled_from(["none"] * 6 + ["empty", "no json", "list", "no cells", "no source", "bad yaml",
                                           "no parameters", "no raw", "half"]),
)
def test_notebooks(tmp_path_factory, changes, lost, damage):
    folder = tmp_path_factory.mktemp("notebooks")
    front = {k: v for k, v in {**FRONT, **changes}.items() if k not in lost}
    text = "---\n" + ("title: [\n  :" if damage == "bad yaml" else yaml.safe_dump(front)) + "\n---"
    cells = [
        text,
        "import os",
        "profile: str = 'smoke'\nseed: int = 0\njobs: int = 0\nout: str = 'runs'\nrows: str = "
        "'all'\ndata: str = 'auto'\ndevice: str = 'cpu'",
        "1",
    ]
    if damage == "no parameters": cells = cells[:2]
    path = small_notebooks.notebook(folder/"exp_own.ipynb", *cells)
    content = json.loads(path.read_text())
    if damage == "no cells": del content["cells"]
    if damage == "no source":
        content["cells"] = [{k: v for k, v in c.items() if k != "source"} for c in content["cells"]]
    if damage == "no raw": content["cells"] = content["cells"][1:]
    if damage == "list": content = [content]
    text = json.dumps(content)
    path.write_text(dict(empty="", half=text[:len(text)//2]).get(damage, "nothing" if damage == "no json" else text))
    ran = []
    import os
    import runpy
    before = os.system, runpy.run_path
    os.system = runpy.run_path = lambda *a, **k: ran.append(a)
    try: command("notebook", "reproduce", path, "--data", "glyphs", "--out", folder/"out", "--dry-run")
    finally: os.system, runpy.run_path = before
    assert not ran, "a name in front matter ran code from outside the library"

# Archives and trees of images

def _png(size=105, level=255):
    file = io.BytesIO()
    Image.new("L", (size, size), level).save(file, "png")
    return file.getvalue()

NAMES = st.sampled_from(
    [
        "images_background/A/character01/0001_01.png",
        "images_evaluation/B/character01/0002_01.png", "../out.png", "/abs.png", "flat.png",
        "images_background/0001_01.png", "images_background/A/character01/readme.txt",
        "a" * 200 + "/b.png", "images_background/A\n/c/0001_01.png"]
)
FILES = st.sampled_from(["image", "image", "text", "empty", "huge", "link"])

@settings(max_examples=60, **MANY)
@given(
    members=st.lists(st.tuples(NAMES, FILES), max_size=4),
    kind=st.sampled_from(["tar.xz", "zip", "text", "cut"]), cut=st.floats(0.05, 0.95))
def test_archives_of_images(tmp_path_factory, members, kind, cut):
    from fewshot_nb.data.source import characters
    folder = tmp_path_factory.mktemp("archive")
    content = {"image": _png(), "text": b"no image", "empty": b"", "huge": _huge(), "link": b""}
    if kind == "zip":
        with zipfile.ZipFile(folder/"images_background.zip", "w") as z:
            for name, what in members: z.writestr(name, content[what])
    elif kind == "text": (folder/"omniglot.tar.xz").write_text("this is no archive")
    else:
        with tarfile.open(folder/"omniglot.tar.xz", "w:xz") as t:
            for name, what in members:
                info = tarfile.TarInfo(name)
                info.size = len(content[what])
                if what == "link": info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0
                t.addfile(info, io.BytesIO(content[what]))
        if kind == "cut":
            whole = (folder/"omniglot.tar.xz").read_bytes()
            (folder/"omniglot.tar.xz").write_bytes(whole[:int(cut*len(whole))])
    with told("archive"): characters(28, data=str(folder))
    assert not (folder.parent/"out.png").exists()

def _huge():
    "A picture of 30,000 x 30,000 pixels in a few bytes: its header alone."
    import struct
    import zlib

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 0, 0, 0, 0))
        + chunk(b"IEND", b"")
    )

# Methods of one's own that answer something else

ANSWERS = {
    "class numbers": lambda p: p.argmax(-1), "whole numbers": lambda p: p.long(), "transposed": lambda p: p.mT,
    "a class too many": lambda p: torch.cat([p, p[..., :1]], -1), "a class too few": lambda p: p[..., 1:],
    "fewer tasks": lambda p: p[:1], "fewer queries": lambda p: p[:, :3], "nothing": lambda p: None,
    "numpy": lambda p: p.numpy(), "lists": lambda p: p.tolist(), "elsewhere": lambda p: p.to("meta"),
    "not numbers": lambda p: p*float("nan"), "infinite": lambda p: p/0}

@pytest.mark.parametrize("what", ANSWERS)
def test_wrong_answers_of_methods(what):
    "Refused in one sentence, by `evaluate` and when called, and also in a method that changes one of ours."
    from dataclasses import dataclass

    import fewshot_nb as fs
    from fewshot_nb import inference
    from fewshot_nb.inference.base import Method, gaussian_tasks, nearest, prototypes

    def answer(self, support, labels, query, way):
        return ANSWERS[what](nearest(prototypes(support, labels, way), query))
    x = np.random.default_rng(0).normal(size=(120, 4))
    ask = dict(shots=1, n_tasks=20, n_query=20, change=False)
    support, labels, query, _ = gaussian_tasks(20, n_query=20)
    for base in Method, inference.NearestPrototype:
        wrong = dataclass(frozen=True)(type("Wrong", (base,), dict(name="wrong", title="", answer=answer)))()
        for call in (lambda: fs.evaluate(x, np.arange(120)//20, methods=[wrong], **ask),
                     lambda: wrong(support, labels, query)):
            with pytest.raises(InputError, match="wrong") as e: call()
            one_sentence(e.value)
            if what not in ("not numbers", "infinite"):
                assert re.search(r"shape \(task, query, way\) = \(\d+, 20, 5\) on cpu is due", str(e.value))

def test_a_method_with_a_call_of_its_own_and_functions_of_other_arguments():
    from dataclasses import dataclass

    import fewshot_nb as fs
    from fewshot_nb.inference.base import Method

    @dataclass(frozen=True)
    class Numpy(Method):
        name = "own call"
        def __call__(self, support, labels, query, base_mean=None): return np.ones((len(query), query.shape[1], 5))
    x = np.random.default_rng(0).normal(size=(120, 4))
    for m, words in [(Numpy(), "own call answered ndarray"), (lambda s, q: 1, r"takes \(s, q\), but it must be called"),
                     (lambda s, y, q, way: 1, r"takes \(s, y, q, way\), but it must be called with three")]:
        with pytest.raises(InputError, match=words) as e:
            fs.evaluate(x, np.arange(120)//20, methods=[m], shots=1, n_tasks=5, n_query=20, change=False)
        one_sentence(e.value)

# Caches and results

@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    "A cache that holds glyphs and something computed once; and a folder of results."
    return tmp_path_factory.mktemp("kept")

@settings(max_examples=60, **MANY)
@given(where=st.floats(0, 1), bits=st.integers(1, 255), how=st.sampled_from(["flip", "flip", "cut", "empty", "longer"]))
def test_caches_with_a_flipped_byte(kept, where, bits, how):
    from fewshot_nb.core import computed_once
    source, answer = torch.arange(300.), torch.arange(300.)**2
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEWSHOT_CACHE", str(kept))
        make = lambda: dict(squares=answer.clone())
        computed_once("squares", [source], make)
        [file] = [f for f in kept.glob("squares-*") if f.suffix not in (".lock",)]
        whole = bytearray(file.read_bytes())
        at = int(where*(len(whole) - 1))
        whole[at] ^= bits
        file.write_bytes({"flip": whole, "cut": whole[:at], "empty": b"", "longer": whole + b"x"}[how])
        with told("cache"): assert torch.equal(computed_once("squares", [source], make)["squares"], answer)

def test_there_were_enough_cases(request):
    "At least 500, where the whole file ran; printed with what became of them."
    kinds = {k for k, _ in CASES}
    for kind in sorted(kinds): print(kind, {how: n for (k, how), n in CASES.items() if k == kind}, file=sys.stderr)
    if len(kinds) == 7: assert sum(CASES.values()) >= 500, CASES
    assert all(CASES[k, "sentence"] + CASES[k, "usage"] for k in kinds - {"cache"}), (
        "nothing was refused: these cases are not hostile")
