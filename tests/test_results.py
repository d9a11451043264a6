"""Results: rows keep their bits, parts merge whatever their order, and nothing that goes wrong is
silently merged or lost."""
import json, math, os, re, signal, struct, subprocess, sys, textwrap, time, warnings
from pathlib import Path

import numpy as np, pandas as pd, pyarrow.parquet as pq, pytest
from hypothesis import given, settings as budget, strategies as st

import fewshot_nb
from fewshot_nb.core import InputError, done_with
from fewshot_nb.engine.pool import Failed, compute_grid
from fewshot_nb.engine.experiment import experiment_names
from fewshot_nb.engine.results import CLOCK, Results, committed_rows, merge_parts, same_rows

from proc import alive

ROOT = Path(__file__).parents[1]
bits = lambda x: struct.pack(">d", x)

def new(folder, version=1, keys=("beta", "seed"), **kwargs):
    return Results(folder, "exp_t", version, list(keys), **kwargs)

def quietly(read):
    "What `read` returns, and the warnings it gave."
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        return read(), [str(x.message) for x in w]

# --- workers that a spawned process can import

def sums(setting):
    import torch
    g = torch.Generator().manual_seed(setting["seed"])
    x = torch.randn(300, 700, generator=g)
    y = np.random.default_rng(setting["seed"]).normal(size=(400, 300))
    return dict(
        torch=float((x @ x.T).exp().log1p().nan_to_num(0, 1, 1).sum()),
        numpy=float((y @ y.T).sum()), mean=x.mean())

def fragile(setting):
    if setting["seed"] == 1: os.kill(os.getpid(), signal.SIGKILL)
    if setting["seed"] == 2: raise RuntimeError("no luck\nat all")
    return [dict(unit=u, value=setting["seed"] + u/3) for u in range(2)]

def trained(setting):
    "Leaves a checkpoint that is done with, as a long training does, or fails after it."
    file = Path(os.environ["CHECKPOINTS"], f"{setting['seed']}.ckpt")
    file.touch()
    done_with(file)
    if setting["seed"] == 3: raise RuntimeError("asked, and failed")
    return dict(value=setting["seed"]/2)

def trained_together(settings):
    return [trained(s) for s in settings] if isinstance(settings, list) else trained(settings)

def slow(setting):
    Path(os.environ["PIDS"], str(os.getpid())).touch()
    if setting["seed"] >= 2 and not os.environ.get("FAST"): time.sleep(60)
    return dict(value=math.sin(setting["seed"]))

# --- rows

@pytest.mark.parametrize("jobs", [1, 2])
def test_a_checkpoint_stays_until_its_row_is_written(tmp_path, monkeypatch, jobs):
    monkeypatch.setenv("CHECKPOINTS", str(tmp_path))
    there = lambda: {int(f.stem) for f in tmp_path.glob("*.ckpt")}
    r, grid = new(tmp_path/"rows", keys=["seed"]), [dict(seed=s) for s in range(5)]
    def full(rows, seconds, setting): raise InputError("no space left")
    pairs = lambda settings: [settings[i:i + 2] for i in range(0, len(settings), 2)]
    with monkeypatch.context() as m, pytest.raises(InputError, match="no space left"):
        m.setattr(r, "write", full)
        compute_grid(grid, trained_together, r, jobs, together=pairs)
    assert there()  # what was computed, and could not be kept
    with pytest.raises(Failed, match="1 of . settings failed, first seed=3"):
        compute_grid(grid, trained_together, r, jobs, together=pairs)
    assert there() == {3}  # what failed after its training is asked again without it
    done_with(tmp_path/"3.ckpt", tmp_path/"none.ckpt")  # nobody waits for a row: at once
    assert not there()

@budget(max_examples=15, deadline=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True, width=64), min_size=1,
             max_size=20))
def test_floats_keep_their_bits(tmp_path_factory, values):
    r = new(tmp_path_factory.mktemp("bits"), keys=["i"])
    r.write([dict(i=i, value=v) for i, v in enumerate(values)])
    file = r.export(r.folder.parent/f"{r.folder.name}.csv")
    back = [r.read(), pd.read_csv(file, float_precision="round_trip")]  # older pandas round by default
    for table in back:
        got = dict(zip(table.i, table.value))
        assert all(math.isnan(got[i]) if math.isnan(v) else bits(got[i]) == bits(v) for i, v in enumerate(values))

tables = st.lists(
    st.tuples(st.sampled_from([None, 0.25, 1.0, 3.0]), st.integers(0, 4)), unique=True, min_size=1,
    max_size=12)

@budget(max_examples=25, deadline=None)
@given(keys=tables, data=st.data())
def test_merging_depends_only_on_the_rows(keys, data):
    rows = [dict(beta=b, seed=s, metric=math.sin(7*s + (b or 9)), status="ok") for b, s in keys]
    cut = lambda rows: [data.draw(st.integers(0, 3), label="part") for _ in rows]
    def parts(rows):
        split = {}
        for row, p in zip(rows, cut(rows)): split.setdefault(f"p{p}", []).append(row)
        return {p: pd.DataFrame(r) for p, r in split.items()}
    again = data.draw(st.lists(st.sampled_from(rows), unique_by=lambda r: (r["beta"], r["seed"])))
    one = merge_parts({"all": pd.DataFrame(rows)}, ["beta", "seed"])
    many = merge_parts(
        {**parts(data.draw(st.permutations(rows))), "again": pd.DataFrame(again or rows)}, ["beta", "seed"])
    assert same_rows(one, many) and len(many) == len(rows) and list(many.seed) == list(one.seed)

@budget(max_examples=15, deadline=None)
@given(keys=tables, data=st.data())
def test_two_different_rows_under_one_key_are_refused(keys, data):
    rows = pd.DataFrame([dict(beta=b, seed=s, metric=.5, status="ok") for b, s in keys])
    at = data.draw(st.integers(0, len(rows) - 1))
    with pytest.raises(InputError, match=rf"seed={rows.seed[at]}\) in parts (one and two|two and one)") as e:
        merge_parts({"one": rows, "two": rows[at:at + 1].assign(metric=np.nextafter(.5, 1))}, ["beta", "seed"])
    assert str(e.value).count("\n") == 0

def test_same_rows_sees_one_bit_and_ignores_the_clock():
    t = pd.DataFrame(dict(seed=[0, 1], a=[np.nan, .1], name=["x", None], seconds=[1., 2.]))
    assert same_rows(t, t.assign(seconds=0.)[::-1])
    assert not same_rows(t, t.assign(a=[np.nan, np.nextafter(.1, 0)]))
    assert not same_rows(t, t.assign(a=[.1, np.nan])) and not same_rows(t, t.drop(columns="a"))
    assert not same_rows(t, t.assign(seed=[0., 1.]))

def test_every_column_that_a_clock_fills_is_known_as_such():
    timed = re.compile("seconds|per_second|_ms$|flop|drawing_share")
    for name in experiment_names():
        if (ROOT/"nbs"/"results"/name).is_dir(): assert {c for c in committed_rows(name) if timed.search(c)} <= {*CLOCK}

# --- parts

def test_a_rerun_replaces_only_itself(tmp_path):
    r = new(tmp_path/"r")
    for seed in (0, 1): r.write([dict(beta=1, seed=seed, m=.1)], setting=dict(beta=1, seed=seed))
    r.write([dict(beta=1., seed=np.int64(1), m=.2)], setting=dict(seed=1, beta=1.))
    assert list(r.read().m) == [.1, .2] and len(list((tmp_path/"r").glob("*.parquet"))) == 2

def test_settings_are_found_whatever_their_number_types(tmp_path):
    r = new(tmp_path, keys=["alpha", "method", "seed"])
    r.write([dict(alpha=float("nan"), method="TIM", seed=0, a=1.), dict(alpha=2, method="alpha-TIM", seed=0, a=2.)])
    grid = [
        dict(alpha=None, method="TIM", seed=0),
        dict(alpha=np.float32(2), method="alpha-TIM", seed=0.0),
        dict(alpha=3, method="alpha-TIM", seed=0)]
    assert r.missing(grid) == grid[2:] and r.missing([dict(method="TIM")]) == []
    with pytest.raises(InputError, match="names gamma"): r.missing([dict(gamma=1)])

def test_failed_rows_give_way_and_never_replace_good_ones(tmp_path):
    r, setting = new(tmp_path, keys=["beta", "seed", "unit"]), dict(beta=1, seed=0)
    r.write([dict(status="failed", cell="cell 3", message="boom")], setting=setting)
    r.write([dict(status="failed", cell="cell 3", message="boom")], setting=dict(beta=2, seed=0))
    assert (len(r.read()) == 0 and list(r.read(failed=True).message) == ["boom", "boom"]
            and r.missing([setting]) == [setting])
    r.write([dict(unit=u, m=u/2) for u in range(3)], setting=setting)
    both = r.read(failed=True)
    assert list(both.status) == ["ok"]*3 + ["failed"] and r.missing([setting]) == []
    assert r.read().unit.dtype == np.int64  # gaps of the failed row leave whole numbers whole
    r.write([dict(status="failed", message="later")], setting=setting)
    assert same_rows(r.read(failed=True), both)

@pytest.mark.parametrize("keep", [0, 3, 100, .5, -1])
def test_a_part_cut_short_is_set_aside_and_named(tmp_path, keep):
    r = new(tmp_path)
    paths = [r.write([dict(beta=1, seed=s, m=.1)]) for s in (0, 1)]
    whole = paths[0].read_bytes()
    paths[0].write_bytes(whole[:int(len(whole)*keep) if isinstance(keep, float) else keep])
    rows, told = quietly(r.read)
    assert list(rows.seed) == [1] and len(told) == 1 and paths[0].name in told[0] and "set aside" in told[0]
    assert paths[0].with_name(paths[0].name + ".aside").exists() and not paths[0].exists()
    assert r.missing([dict(beta=1, seed=0), dict(beta=1, seed=1)]) == [dict(beta=1, seed=0)]

def test_a_damaged_part_is_set_aside_and_computed_again(tmp_path):
    r, setting = new(tmp_path), dict(beta=1, seed=0)
    path = r.write([dict(beta=1, seed=0, m=v/7, n=str(v)) for v in [5]], setting=setting)
    whole = path.read_bytes()
    at = whole.index(struct.pack("<d", 5/7))  # in the page, not only in the statistics
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
    assert r.write([dict(status="failed", message="x")], setting=setting) and not r._good_in(path)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
    rows, told = quietly(r.read)
    assert len(rows) == 0 and "damaged" in told[0] and r.missing([setting]) == [setting]

def test_foreign_parts_are_set_aside_and_named(tmp_path):
    r = new(tmp_path/"a"); r.write([dict(beta=1, seed=0, m=.1)])
    other = Results(tmp_path/"b", "exp_other", 1, ["beta", "seed"]); p = other.write([dict(beta=1, seed=0, m=.9)])
    (tmp_path/"a"/"other.parquet").write_bytes(p.read_bytes())
    pd.DataFrame(dict(beta=[7.], seed=[7], m=[7.])).to_parquet(tmp_path/"a"/"plain.parquet")
    pd.DataFrame(dict(verdict=["reproduced"])).to_parquet(tmp_path/"a"/"claims.parquet")  # no part, and no stranger
    rows, told = quietly(r.read)
    assert (list(rows.m) == [0.1] and "other.parquet" in told[0] and "plain.parquet" in told[0]
            and "claims.parquet" not in told[0])
    assert quietly(r.read)[1] == []

def test_parts_of_an_older_version_are_named_and_computed_again(tmp_path):
    old = new(tmp_path); path = old.write([dict(beta=1, seed=0, m=.1)], setting=dict(beta=1, seed=0))
    r = new(tmp_path, version=2)
    rows, told = quietly(r.read)
    assert len(rows) == 0 and path.name in told[0] and "version 1" in told[0]
    assert quietly(lambda: r.missing([dict(beta=1, seed=0)]))[0] == [dict(beta=1, seed=0)]
    r.write([dict(beta=1, seed=0, m=.2)], setting=dict(beta=1, seed=0))
    assert quietly(r.read)[1] == [] and list(r.read().version) == [2]
    assert list(old.read().m) == [.1]  # version 1's part was left alone

def test_parts_named_as_before_are_read_and_replaced(tmp_path):
    r, setting = new(tmp_path), dict(beta=1, seed=0)
    path = r.write([dict(beta=1, seed=0, m=.1)], setting=setting)
    path.rename(tmp_path/f"{path.name[:16]}.parquet")  # names did not hold the version
    assert list(r.read().m) == [.1] and r.missing([setting]) == []
    r.write([dict(beta=1, seed=0, m=.2)], setting=setting)
    assert list(r.read().m) == [.2] and [p.name for p in tmp_path.glob("*.parquet")] == [path.name]

def test_fewer_rows_never_replace_more_nor_rows_of_other_data(tmp_path):
    r, setting = new(tmp_path, keys=["beta", "task"]), dict(beta=1)
    for n in (40, 1000, 40): r.write([dict(beta=1, task=t, m=.1) for t in range(n)], setting=setting)
    assert len(r.read()) == 1000
    other = new(tmp_path, keys=["beta", "task"], content="other features")
    rows, told = quietly(other.read)
    assert (len(rows) == 0 and "rows of other data" in told[0]
            and quietly(lambda: other.missing([setting]))[0] == [setting])
    other.write([dict(beta=1, task=0, m=.9)], setting=setting)
    assert list(other.read().m) == [.9] and set(r.read().m) == {.1}

def test_two_commands_that_write_one_part_at_once_keep_the_larger(tmp_path):
    code = f"""
        import sys
        from fewshot_nb.engine.results import Results
        r = Results({str(tmp_path)!r}, "exp_t", 1, ["beta", "task"])
        for _ in range(20): r.write([dict(beta=1, task=t, m=.1) for t in range(int(sys.argv[1]))], setting=dict(beta=1))
    """
    run = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(n)], cwd=ROOT) for n in (400, 40)]
    assert [p.wait() for p in run] == [0, 0]
    assert len(new(tmp_path, keys=["beta", "task"]).read()) == 400

def test_provenance_is_in_each_part(tmp_path):
    r = new(tmp_path); path = r.write([dict(beta=1, seed=0, m=.1)], seconds=3.5)
    meta = json.loads(pq.read_schema(path).metadata[b"fewshot_nb"])
    p = meta["provenance"][0]
    assert (meta["experiment"] == "exp_t" and p["seconds"] == 3.5 and p["package"] == fewshot_nb.__version__
            and "cores" in p["device"])
    assert p["torch"] and p["start"].endswith("+00:00") and os.uname().nodename not in json.dumps(meta)
    assert r.parts().seconds.tolist() == [3.5]

# --- refusals

def test_a_folder_of_another_experiment_or_grid_is_refused(tmp_path):
    new(tmp_path, grid=dict(profile="smoke")).write([dict(beta=1, seed=0, m=.1)])
    for other, words in [(lambda: Results(tmp_path, "exp_u", 1, ["beta", "seed"]), "another experiment"),
                         (lambda: new(tmp_path, keys=["beta"]), "another grid"),
                         (lambda: new(tmp_path, grid=dict(profile="laptop")), "another grid .*smoke")]:
        for _ in range(2):  # by its note, and by its parts where the note is lost
            with pytest.raises(InputError, match=words): other()
            (tmp_path/"belongs_to.json").unlink(missing_ok=True)
        new(tmp_path, grid=dict(profile="smoke"))

def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path/"file").write_text("")
    with pytest.raises(InputError, match="Cannot write to the folder .* choose another out"): new(tmp_path/"file"/"out")

def test_a_folder_that_can_only_be_read_is_read(tmp_path, monkeypatch):
    from fewshot_nb.engine import pool, results
    setting = dict(beta=1, seed=0)
    new(tmp_path).write([dict(setting, m=.1)], setting=setting)
    def refused(folder, what, remedy): raise InputError(f"Cannot write to the folder {str(folder)!r}")  # root may all
    monkeypatch.setattr(results, "writable", refused)
    here, calls = new(tmp_path), []
    assert list(here.read().m) == [.1] and here.missing([setting]) == []
    assert len(pool.compute_grid([setting], calls.append, here, jobs=1)) == 1  # nothing is missing
    with pytest.raises(InputError, match="Cannot write to the folder"):
        pool.compute_grid([dict(beta=2, seed=0)], calls.append, here, jobs=1)
    assert calls == []
    with pytest.raises(InputError, match="Cannot write to the folder"): new(tmp_path/"empty")

def test_rows_that_are_no_rows_are_refused(tmp_path):
    r = new(tmp_path)
    for rows, words in [
        ([], "no row"), ([dict(beta=1, m=1)], "lack seed"),
        ([dict(beta=1, seed=0, m=[1, 2])], "one number, word"),
        ([dict(beta=1, seed=0, m=1), dict(beta=1, seed=1, m="high")], "of one kind"),
        ([dict(beta=1, seed=0, m=1.0), dict(beta=1, seed=0, m=2.0)], "Two different rows")]:
        with pytest.raises(InputError, match=words):
            r.write(rows)
    assert r._files() == []

def test_a_full_disk_leaves_the_old_state(tmp_path):
    r, setting = new(tmp_path), dict(beta=1, seed=0)
    r.write([dict(beta=1, seed=0, m=.1)], setting=setting)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    code = f"""
        import resource
        from fewshot_nb.core import InputError
        from fewshot_nb.engine.results import Results
        r = Results({str(tmp_path)!r}, "exp_t", 1, ["beta", "seed"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
        try: r.write([dict(beta=1, seed=0, m=.2)], setting=dict(beta=1, seed=0))
        except InputError as e: print("refused:", e)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=ROOT)
    assert "refused: Cannot write" in out.stdout and "make room" in out.stdout, out.stderr
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before

@pytest.mark.parametrize("moment", ["before the flush", "before the rename"])
def test_killed_while_a_part_is_written(tmp_path, moment):
    r = new(tmp_path); r.write([dict(beta=1, seed=0, m=.1)], setting=dict(beta=1, seed=0))
    old = r.read()
    code = f"""
        import os, signal
        from fewshot_nb.engine.results import Results
        r = Results({str(tmp_path)!r}, "exp_t", 1, ["beta", "seed"])
        def die(*args): os.kill(os.getpid(), signal.SIGKILL)
        setattr(os, {'"fsync"' if "flush" in moment else '"replace"'}, die)
        r.write([dict(beta=1, seed=0, m=.2)], setting=dict(beta=1, seed=0))
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT)
    assert out.returncode == -signal.SIGKILL
    rows, told = quietly(new(tmp_path).read)
    assert same_rows(rows, old) and told == []
    litter = list(tmp_path.glob(".*.part"))
    assert litter
    os.utime(litter[0], (0, 0)); new(tmp_path)
    assert not list(tmp_path.glob(".*.part"))

def test_litter_is_swept_up_in_the_folders_of_the_folder_too(tmp_path):
    "What lay beside checkpoints and sheets was never removed."
    new(tmp_path)
    old, young, other = (tmp_path/"checkpoints"/name for name in (".a.pt.1.part", ".a.pt.2.part", "a.pt"))
    old.parent.mkdir()
    for file in (old, young, other): file.touch()
    for file in (old, other): os.utime(file, (0, 0))
    new(tmp_path)
    assert not old.exists() and young.exists() and other.exists()

# --- committed evidence

def test_committed_evidence_in_a_checkout_and_in_a_wheel(tmp_path, monkeypatch):
    r = new(tmp_path/"r"); r.write([dict(beta=1, seed=0, m=.1)], seconds=2); r.write([dict(beta=2, seed=0, m=.2)])
    (tmp_path/"pkg").mkdir()
    monkeypatch.setattr(fewshot_nb, "__file__", str(tmp_path/"pkg"/"__init__.py"))
    for place in (tmp_path/"nbs/results/exp_t", tmp_path/"pkg/_nbs/results/exp_t"):
        (tmp_path / "nbs/api").mkdir(parents=True, exist_ok=True) if "pkg" not in str(place) else (
            tmp_path / "nbs/api").rmdir()
        with pytest.raises(InputError, match="no committed evidence"): committed_rows("t")
        r.export(place/"laptop.parquet")
        rows = committed_rows("exp_t")
        assert same_rows(rows, r.read()) and len(rows.attrs["provenance"]) == 2
        pd.DataFrame(dict(x=[1])).to_parquet(place/"claims.parquet")
        assert len(committed_rows("t")) == 2

# --- grids

def grid(n): return [dict(seed=s) for s in range(n)]

def test_one_and_two_processes_agree_bit_for_bit(tmp_path):
    one = compute_grid(grid(3), sums, new(tmp_path/"1", keys=["seed"]), jobs=1)
    two = compute_grid(grid(3), sums, new(tmp_path/"2", keys=["seed"]), jobs=2)
    assert len(one) == 3 and same_rows(one, two)

def test_failure_is_data(tmp_path):
    r = new(tmp_path, keys=["seed", "unit"])
    with pytest.raises(Failed, match="2 of 4 settings failed") as e: compute_grid(grid(4), fragile, r, jobs=2)
    assert "\n" not in str(e.value)
    rows = r.read(failed=True)
    assert sorted(zip(rows.seed[rows.status == "ok"], rows.unit[rows.status == "ok"])) == [
        (0, 0), (0, 1), (3, 0), (3, 1)]
    told = rows[rows.status == "failed"].set_index("seed")
    assert ("SIGKILL" in told.message[1] and told.message[2] == "RuntimeError: no luck at all"
            and "in fragile" in told.cell[2])
    assert r.missing(grid(4)) == [dict(seed=1), dict(seed=2)]

def refuses(setting): raise InputError(f"There is no place {str(setting['place'])!r}: choose another.")

def test_a_failure_names_what_differs_and_says_once_how_to_go_on(tmp_path):
    "A refusal for a bad place had 1,013 characters: every setting, a line of core.py, and three ways to go on."
    from fewshot_nb.engine import reproduce
    keys = ["place", "seed", *"abcdef"]
    todo = [dict(place="/none", seed=s, **dict.fromkeys("abcdef", 1)) for s in range(3)]
    with pytest.raises(Failed) as e: compute_grid(todo, refuses, new(tmp_path, keys=keys), jobs=1)
    told = str(e.value)
    assert told.startswith("3 of 3 settings failed, first seed=0: There is no place '/none': choose another; the other")
    assert ".;" not in told and " (in " not in told
    job = reproduce._what_failed({"exp_t-smoke-0000": f"exp_t: {told}"})
    assert job == ("1 job failed, first exp_t-smoke-0000: exp_t: 3 of 3 settings failed, first seed=0: There is no "
                   "place '/none': choose another; run the same command again for what is missing, and see "
                   "`fewshot_nb logs exp_t-smoke-0000`.")

def test_every_refusal_of_the_package_is_known_by_its_name_in_a_kernel():
    from fewshot_nb.engine import notebook, pool
    kinds = {name for f in (ROOT/"fewshot_nb").rglob("*.py") for name in re.findall(
        r"^class (\w+)\((?:InputError|DamagedFile|NoOmniglotError)\):", f.read_text(encoding="utf-8"), re.M)}
    assert kinds | {"InputError"} == {*notebook._REFUSALS, pool.Failed.__name__}

@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes under /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_whoever_ends_the_parent_ends_the_children_and_the_grid_resumes(tmp_path, how):
    (tmp_path/"pids").mkdir()
    script = tmp_path/"main.py"
    script.write_text(
        textwrap.dedent(f"""
        import signal, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        if __name__ == "__main__":
            import test_results as t
            # a shell's background job would start with it ignored
            signal.signal(signal.SIGINT, signal.default_int_handler)
            t.compute_grid(t.grid(5), t.slow, t.new({str(tmp_path / "out")!r}, keys=["seed"]), jobs=2)
    """)
    )
    env = dict(
        os.environ, PIDS=str(tmp_path / "pids"),
        PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    run = subprocess.Popen(
        [sys.executable, script], env=env, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )  # a shell's background jobs ignore Ctrl-C
    r = new(tmp_path/"out", keys=["seed"])
    for _ in range(600):
        if len(r._files()) == 2 and len(list((tmp_path/"pids").iterdir())) == 2: break
        assert run.poll() is None, run.stderr.read()
        time.sleep(.1)
    time.sleep(.3)
    os.killpg(run.pid, how) if how == signal.SIGINT else run.send_signal(how)  # a terminal's Ctrl-C goes to all
    run.communicate(timeout=30)
    assert run.returncode != 0
    children = [int(p.name) for p in (tmp_path/"pids").iterdir()]
    for _ in range(100):
        if not any(map(alive, children)): break
        time.sleep(.1)
    assert len(children) == 2 and not any(map(alive, children))
    assert list(r.read(failed=True).status) == ["ok", "ok"]
    os.environ.update(FAST="1", PIDS=str(tmp_path/"pids"))
    try: rows = compute_grid(grid(5), slow, r)
    finally: del os.environ["FAST"], os.environ["PIDS"]
    assert same_rows(rows, compute_grid(grid(5), slow_whole, new(tmp_path/"whole", keys=["seed"])))

def slow_whole(setting): return dict(value=math.sin(setting["seed"]))
