"""Runs whose `out` is an address: a store that fails is asked again, then there is one sentence, and nothing
half-written is ever read."""
import shutil, warnings

import fsspec, numpy as np, pandas as pd, pytest
from fsspec.implementations.memory import MemoryFileSystem

from fewshot_nb.core import InputError
from fewshot_nb.data.features import feature_bank
from fewshot_nb.engine import store as stores
from fewshot_nb.engine.results import same_rows
from fewshot_nb.engine.shards import merge_shards
from fewshot_nb.engine.store import Store
from fewshot_nb.evaluation.evaluate import evaluate, evaluate_shard, evaluation_results
from fewshot_nb.samplers import TaskSpec

class Failing(MemoryFileSystem):
    "A store in memory that fails when it is told to, in words that no library shares."
    protocol, store, pseudo_dirs = "failing", {}, [""]
    wrong = []  # for each call to come: an error, or None

    def _maybe(self):
        if Failing.wrong and (e := Failing.wrong.pop(0)): raise e

    def pipe_file(self, path, value, **kwargs):
        self._maybe()
        return super().pipe_file(path, value, **kwargs)

    def cat_file(self, path, **kwargs):
        self._maybe()
        return super().cat_file(path, **kwargs)

class Unheard(Exception): "An error of a store's own library, of no common kind."

@pytest.fixture
def address(tmp_path, monkeypatch):
    fsspec.register_implementation("failing", Failing, clobber=True)
    Failing.store.clear()
    Failing.wrong = []
    monkeypatch.setattr(stores, "_PAUSES", (0, 0, 0))
    monkeypatch.chdir(tmp_path)
    (tmp_path/"settings.ini").touch()
    yield "failing://bucket/run/mine"
    Failing.wrong = []

r = np.random.default_rng(0)
Y = np.repeat(np.arange(8), 40)
BANK = feature_bank((r.normal(size=(8, 12))[Y] + 2*r.normal(size=(320, 12))).clip(0), Y, "cloud")
ASKED = dict(methods="nearest-prototype,simpleshot", spec=TaskSpec(shot=1, n_query=15), n_tasks=1100)

def test_a_run_on_an_address_is_the_run_in_a_folder(address, tmp_path):
    plain = evaluate(BANK, **ASKED, out=tmp_path/"plain")
    there = evaluate(BANK, **ASKED, out=address)
    assert same_rows(there, plain)
    places = Store(address).places()
    assert [p.partition("-")[0] for p in places] == ["belongs_to.json", "pack"]  # one file for one kind of task
    shutil.rmtree(tmp_path/"runs/mirrors")  # another machine
    again = evaluate(BANK, **ASKED, out=address)
    assert again.seconds.tolist() == there.seconds.tolist()  # read, not computed

def test_a_store_that_fails_now_and_then_is_asked_again(address, tmp_path):
    Failing.wrong = [Unheard("slow down"), None, TimeoutError(), ConnectionResetError("reset"), None]
    rows = evaluate(BANK, **ASKED, out=address)
    assert len(rows) == 2200 and len(Store(address).places()) == 2

def test_a_store_that_fails_midway_is_one_sentence_and_the_same_command_goes_on(address, tmp_path):
    Failing.wrong = [None, *[Unheard("no route to the store")]*4]  # the note is put, the rows are not
    with pytest.raises(InputError, match=r"Cannot write 'failing://bucket/run/mine/pack.*tried 4 times.*no route"):
        evaluate(BANK, **ASKED, out=address)
    assert Store(address).places() == ["belongs_to.json"]
    kept = evaluation_results(next((tmp_path/"runs/mirrors").iterdir())).read()
    evaluate(BANK, **ASKED, out=address)  # nothing is computed again
    assert len(Store(address).places()) == 2 and len(kept) == 2200

def test_a_file_that_is_cut_short_is_not_read(address, tmp_path):
    first = evaluate(BANK, **ASKED, out=address)
    store = Store(address)
    pack = next(p for p in store.places(ending=".parquet"))
    store.put(pack, store.get(pack)[:-50])
    shutil.rmtree(tmp_path/"runs/mirrors")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        again = evaluate(BANK, **ASKED, out=address)
    assert any("cut short" in str(w.message) for w in said)
    assert same_rows(again.drop(columns="seconds"), first.drop(columns="seconds"))

def test_a_shard_whose_store_fails_leaves_no_file(address, tmp_path):
    Failing.wrong = [*[Unheard("no route")]*4]  # looking whether it is there
    with pytest.raises(InputError, match="Cannot read"): evaluate_shard([BANK], "0/2", address, **ASKED)
    Failing.wrong = [None, *[Unheard("no route")]*4]
    with pytest.raises(InputError, match="Cannot write"): evaluate_shard([BANK], "0/2", address, **ASKED)
    assert Store(address).places() == []
    evaluate_shard([BANK], "0/2", address, **ASKED)
    with pytest.raises(InputError, match=r"1 of 2 shards of mine/rows are missing \(1\)"):
        merge_shards([address], tmp_path/"to")
    evaluate_shard([BANK], "1/2", address, **ASKED)
    Failing.wrong = [None, *[Unheard("no route")]*4]
    with pytest.raises(InputError, match="Cannot read"): merge_shards([address], tmp_path/"to")
    assert not (tmp_path/"to").exists()
    merge_shards([address], tmp_path/"to")
    merged = evaluation_results(tmp_path/"to/mine/rows").read()
    evaluate(BANK, **ASKED, out=tmp_path/"one")
    assert same_rows(merged, evaluation_results(tmp_path/"one").read())

def test_a_bucket_that_is_not_there_is_one_sentence(address, monkeypatch):
    def none(*args, **kwargs): raise FileNotFoundError("no such bucket")
    monkeypatch.setattr(Failing, "pipe_file", none)
    with pytest.raises(InputError, match="Cannot write .* no such bucket"):
        evaluate(BANK, "nearest-prototype", TaskSpec(shot=1, n_query=15), 20, out=address)

def test_the_commands_shard_merge_and_show_one_table(address, tmp_path):
    "Two files compared and one evaluated, each in shards on an address: the merged tables are those of plain runs."
    from typer.testing import CliRunner
    from fewshot_nb.cli.main import app
    def said(*words): return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False).stdout
    for name, noise in dict(mine=2, other=1.5).items():
        x = (r.normal(size=(8, 12))[Y] + noise*r.normal(size=(320, 12))).astype("f4")
        np.savez(tmp_path/f"{name}.npz", features=x, labels=Y)
    line = ["--shots", "1", "--methods", "nearest-prototype,simpleshot", "--tasks", "60", "--queries", "15"]
    for i in range(2): assert "shard: failing://" in said("evaluate", "mine.npz", *line, "--shard", f"{i}/2",
                                                          "--out", address)
    assert "2 shards" in said("merge", address, "--to", "runs/evaluate")
    said("evaluate", "mine.npz", *line)
    said("evaluate", "mine.npz", *line, "--out", "one")
    merged, one = (pd.read_csv(p/"table.csv").drop(columns="seconds_per_1000")
                   for p in (tmp_path/"runs/evaluate/mine", tmp_path/"one"))
    assert len(one) == 4 and merged.equals(one)
    both = "failing://bucket/run/both"
    for i in range(2): said("compare", "mine.npz", "other.npz", *line, "--shard", f"{i}/2", "--out", both)
    said("merge", both, "--to", "runs/compare")
    shown = said("compare", "mine.npz", "other.npz", *line, "--out", "runs/compare/both").partition("rows in")[0]
    assert shown == said("compare", "mine.npz", "other.npz", *line, "--out", "plain").partition("rows in")[0]
    assert "kept in failing://bucket/run/plain" in said("evaluate", "mine.npz", *line, "--out",
                                                        "failing://bucket/run/plain")
    assert "table.csv" in Store("failing://bucket/run/plain").places()

def test_a_damaged_shard_is_named_and_nothing_of_the_merge_stays(address, tmp_path):
    "A page that is not what was written shows only when it is read, after the ends of all files were."
    for i in range(2): evaluate_shard([BANK], f"{i}/2", address, **ASKED)
    place = Store(address).places()[1]
    whole = Store(address).get(place)
    torn = bytearray(whole)
    torn[60] ^= 255
    Store(address).put(place, bytes(torn))
    for _ in range(2):
        with pytest.raises(InputError, match="00001-of-00002.parquet' is no whole shard: remove it and run"):
            merge_shards([address], tmp_path/"to")
        assert not [p for p in (tmp_path/"to").rglob("*") if p.suffix in (".parquet", ".part")]
    Store(address).put(place, whole)
    assert merge_shards([address], tmp_path/"to") == {"mine/rows": 2}

def test_rows_are_not_merged_into_an_address(tmp_path, monkeypatch):
    from typer.testing import CliRunner
    from fewshot_nb.cli.main import app
    monkeypatch.chdir(tmp_path)
    failed = CliRunner().invoke(app, ["merge", "shards", "--to", "s3://bucket/rows"])
    assert "is no folder" in str(failed.exception) and not list(tmp_path.iterdir())

@pytest.mark.parametrize("address, package", [("s3://bucket/x", "s3fs"), ("gs://bucket/x", "gcsfs")])
def test_a_store_whose_package_is_missing_names_it(address, package, monkeypatch):
    "It said only: install the package that fsspec names for it."
    def lacking(*args, **kwargs): raise ImportError(f"Install {package}")
    def unreachable(address): raise OSError("no network")
    monkeypatch.setattr(fsspec.core, "url_to_fs", lacking)
    monkeypatch.setattr(stores, "_from_uri", unreachable)
    with pytest.raises(InputError, match=f"or `pip install {package}`"): Store(address)
