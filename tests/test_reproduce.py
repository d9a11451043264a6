"""`reproduce` end to end: failures are data, Ctrl-C stops, and a real exp_beta grid killed at 20
moments, and its command killed in each of its phases, end as one that was not."""
import json, os, shutil, signal, subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace

import numpy as np, pytest

from fewshot_nb.engine import experiment as experiments
from fewshot_nb.engine import plan, reproduce as launch
from fewshot_nb.core import InputError
from fewshot_nb.engine.results import same_rows

from proc import alive, command_line
from small_notebooks import notebook, tiny_beta

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes under /proc")

def tree(pid):
    "A process and all that it started, by pid."
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try: parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError: pass
    found = {pid}
    while more := {p for p, parent in parents.items() if parent in found} - found: found |= more
    return found

def kill_tree(pid):
    "SIGKILL to a process and everything below it, stopped first so that none can start another."
    for _ in range(3):
        all_ = tree(pid)
        for p in all_:
            try: os.kill(p, signal.SIGSTOP)
            except ProcessLookupError: pass
    for p in all_:
        try: os.kill(p, signal.SIGKILL)
        except ProcessLookupError: pass

def wait_for(condition, process=None, seconds=240):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, "waited in vain"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(.02)

def start(out, *args):
    "`fewshot_nb reproduce` as a process of its own, as a user would start it."
    env = dict(os.environ, FEWSHOT_QUIET="1", PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", "fewshot_nb", "reproduce", *map(str, args), "--out", str(out)],
        env=env, cwd=out.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )  # a shell's background jobs ignore Ctrl-C

# --- failure is data

TOY = (
    """---
title: "exp_toy: squares"
version: 1
sweep: [x]
bank: toy_bank.name_of_data
profiles:
  smoke: {x: [1, 2, 3]}
---""",
    "import os, time\nfrom pathlib import Path\nfrom fewshot_nb.engine.experiment import open_experiment",
    """profile: str = "smoke"  # a row of settings
data: str = "auto"  # any word
seed: int = 0
jobs: int = 1
out: str = "runs/results"
rows: str | list = "all"
""",
    """def square(setting):
    here, x = Path(out), setting["x"]
    if x == 2 and (here/"break").exists(): raise RuntimeError("no luck\\nat all")
    if x == 3 and (here/"break").exists(): os.kill(os.getpid(), 9)
    if x == 3 and (here/"sleep").exists(): time.sleep(100)
    return dict(square=x*x)
table = open_experiment(PATH, square, profile=profile, data=data, seed=seed, jobs=jobs, out=out,
                        rows=rows, modules=["toy_bank"]).table
""",
)

@pytest.fixture
def toy_bank(tmp_path, monkeypatch):
    "A module of the user's own, which the toy's front matter names."
    (tmp_path/"toy_bank.py").write_text("def name_of_data(data): return str(data)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    sys.modules.pop("toy_bank", None)
    return ("toy_bank",)

@pytest.fixture
def toy(tmp_path, toy_bank):
    path = tmp_path/"exp_toy.ipynb"
    notebook(path, *TOY[:3], TOY[3].replace("PATH", repr(str(path))))
    (tmp_path/"out").mkdir()
    return str(path), tmp_path/"out"

def test_a_failing_job_keeps_its_notebook_and_the_rest_goes_on(toy, capfd):
    path, out = toy
    (out/"break").touch()
    with pytest.raises(
        InputError,
        match=r"2 jobs failed, first exp_toy-smoke-numbers-000[12]: .*run the same command again for what is missing"
    ) as e:
        launch.reproduce([path], out=out, data="numbers", jobs=2, modules=["toy_bank"])
    assert "\n" not in str(e.value)
    rows = experiments.find_experiment(path).results("smoke", "numbers", out).read(failed=True).set_index("x")
    assert rows.status.to_dict() == {1: "ok", 2: "failed", 3: "failed"} and rows.square[1] == 1
    assert (rows.message[2] == "RuntimeError: no luck at all" and "in square" in rows.cell[2]
            and "kernel was killed" in rows.message[3])
    assert "exp_toy-smoke-numbers-0001: " in launch.job_logs("exp_toy-smoke-numbers-0001", out).replace(
        ".ipynb", "") and "no luck" in launch.job_logs("exp_toy-smoke-numbers-0001", out)
    assert not list(out.glob("*/jobs/*draw*"))  # there is no whole table to draw
    first = next(out.glob("*/jobs/*0000.ipynb")).stat().st_mtime_ns
    (out/"break").unlink()
    told = plan.dry_run([path], "smoke", out, "numbers", modules=["toy_bank"])
    assert told[0][["settings", "done", "jobs"]].values.tolist() == [[3, 1, 2]] and [
        j.parameters["rows"] for j in told[1]] == [[dict(x=2)], [dict(x=3)]]
    drawn = launch.reproduce([path], out=out, data="numbers", jobs=2, modules=["toy_bank"])  # only what failed
    assert next(out.glob("*/jobs/*0000.ipynb")).stat().st_mtime_ns == first and Path(drawn[0]).exists()
    rows = experiments.find_experiment(path).results("smoke", "numbers", out).read(failed=True)
    assert rows.square.tolist() == [1, 4, 9] and set(rows.status) == {"ok"}
    lines = capfd.readouterr().err
    assert (
        "1 of 3 settings done, 2 jobs to do" in lines and "2/2 exp_toy-smoke-numbers-000" in lines
    )  # plain lines, no bar

def test_what_is_remarked_on_data_is_told_once_and_stands_on_the_page(tmp_path, toy_bank, capfd):
    path, out = tmp_path/"exp_toy.ipynb", tmp_path/"out"
    said = "44 of 462 images of 'my_images' are equal to one of another part: this is a leak."
    tell = f"from fewshot_nb.data.image_sets import _tell_once\n_tell_once([{said!r}], 'my_images')\n"
    tell += f"if rows != 'none': _tell_once([{said.replace('44', '7')!r}], 'other')\n"
    notebook(path, *TOY[:3], tell + TOY[3].replace("PATH", repr(str(path))))
    page, = launch.reproduce([str(path)], out=out, data="numbers", jobs=2, modules=["toy_bank"])
    lines = [line for line in capfd.readouterr().err.splitlines() if "images" in line]
    assert lines == [f"fewshot_nb: {s}" for s in (said, said.replace("44", "7"))]
    for _ in range(2):  # also where all is done, and only drawn again
        cells = json.loads(Path(page).read_text(encoding="utf-8"))["cells"]
        note, = [c for c in cells if c["cell_type"] == "markdown"]
        assert note["source"].count("this is a leak.") == 2 and "my\\_images" in note["source"]
        assert "UserWarning" not in Path(page).read_text(encoding="utf-8")
        page, = launch.reproduce([str(path)], out=out, data="numbers", jobs=2, modules=["toy_bank"])
    capfd.readouterr()
    given = dict(out=str(out), data="numbers")
    experiments.find_experiment(str(path), ["toy_bank"]).run(tmp_path/"mine.ipynb", given)  # as `fewshot_nb run`
    err = capfd.readouterr().err
    assert err.count("44 of 462") == 1 and f"fewshot_nb: {said}\n" in err and "UserWarning" not in err

def test_a_profile_of_seconds_is_computed_and_drawn_in_one_run(toy, capfd):
    path, out = toy
    drawn = launch.reproduce([path], out=out, data="numbers", modules=["toy_bank"], whole=True)
    assert "0 of 3 settings done, 1 job to do\n" in capfd.readouterr().err
    assert [p.name for p in (out/"exp_toy/jobs").iterdir()] == [Path(drawn[0]).name]
    assert experiments.find_experiment(path).results("smoke", "numbers", out).read().square.tolist() == [1, 4, 9]
    with pytest.raises(InputError, match="--whole computes on this machine: leave out --engine slurm"):
        launch.reproduce([path], engine="slurm", out=out, data="numbers", modules=["toy_bank"], whole=True)

def test_a_job_that_dies_before_its_rows_leaves_failed_rows(tmp_path, toy_bank):
    path, out = tmp_path/"exp_toy.ipynb", tmp_path/"out"
    notebook(
        path, TOY[0].replace("sweep: [x]", "sweep: [x]\nlabels: [judge]\nchunk: 3"),
        "import no_such_module", *TOY[2:])
    with pytest.raises(
        InputError, match=r"1 job failed, first exp_toy-smoke-numbers-0000: .*ModuleNotFoundError"):
        launch.reproduce([str(path)], out=out, data="numbers", modules=toy_bank)
    rows = experiments.find_experiment(str(path)).results("smoke", "numbers", out).read(failed=True)
    assert (rows.x.tolist() == [1, 2, 3] and set(rows.status) == {"failed"}
            and rows.message.str.contains("failed in cell .*no_such_module").all())
    assert (
        rows.cell.tolist() == [str(out / "exp_toy/jobs/exp_toy-smoke-numbers-0000.ipynb")] * 3
        and len(plan.plan_jobs(experiments.find_experiment(str(path), toy_bank), "smoke", out, "numbers").missing) == 3
    )

def test_failures_are_told_apart_by_labels_and_the_rows_are_read_once(tmp_path, monkeypatch):
    about = SimpleNamespace(folder=lambda *a: tmp_path, name="exp_x", version=1, sweep=["x"],
                            keys=lambda profile: ["profile", "data", "judge", "x"])
    jobs = [SimpleNamespace(name=f"j{i}", parameters=dict(rows=[dict(x=i)]), record="job.ipynb") for i in range(4)]
    p = SimpleNamespace(experiment=about, source="numbers", content="", labels=dict(judge="new"), jobs=jobs,
                        missing=[dict(x=i) for i in range(4)])
    results, reads, read = launch.Results(tmp_path, "exp_x", 1, about.keys("smoke")), [], launch.Results.read
    for judge, x in (("old", 0), ("new", 1)):
        results.write([dict(m=1.)], setting=dict(profile="smoke", data="numbers", judge=judge, x=x))
    monkeypatch.setattr(launch.Results, "read", lambda self, **how: reads.append(how) or read(self, **how))
    launch._keep_failures([p], {j.name: "boom" for j in jobs[:3]}, "smoke", tmp_path)
    assert len(reads) == 1
    rows = results.read(failed=True)
    assert sorted(zip(rows.judge, rows.x, rows.status)) == [
        ("new", 0, "failed"), ("new", 1, "ok"), ("new", 2, "failed"), ("old", 0, "ok")]

def test_failures_of_settings_that_differ_by_more_than_is_swept(tmp_path):
    "Two parts of a profile, alike in what is swept: the failure of one was written as that of the other."
    about = SimpleNamespace(folder=lambda *a: tmp_path, name="exp_x", version=1, sweep=["x"],
                            keys=lambda profile: ["profile", "data", "x", "rule"])
    missing = [dict(x=1, rule=rule) for rule in ("paper", "counterbalanced")]
    names = plan._telling_names(about, missing)
    assert names == ["x", "rule"] and plan._telling_names(about, [dict(x=1, rule="a"), dict(x=2, rule="b")]) == ["x"]
    jobs = [SimpleNamespace(name=s["rule"], parameters=dict(rows=[s]), record="job.ipynb") for s in missing]
    p = SimpleNamespace(experiment=about, source="numbers", content="", labels={}, jobs=jobs, missing=missing)
    launch._keep_failures([p], {"paper": "boom"}, "smoke", tmp_path)
    rows = launch.Results(tmp_path, "exp_x", 1, about.keys("smoke")).read(failed=True)
    assert rows[["x", "rule", "status"]].values.tolist() == [[1, "paper", "failed"]]

def test_a_worker_of_the_notebook_runs_in_several_processes(tmp_path, toy_bank):
    "With jobs=0, the default, on a machine of two cores: the notebook's own function, and what it uses, travel."
    path = notebook(
        tmp_path / "exp_own.ipynb",
        TOY[0],
        TOY[1] + "\noffset = 100",
        TOY[2].replace("jobs: int = 1", "jobs: int = 0"),
        f"""
def shifted(setting, source): return dict(square=setting["x"]**2 + offset, of=source, process=os.getpid())
exp = open_experiment({str(tmp_path / "exp_own.ipynb")!r}, shifted, profile=profile, data=data, seed=seed,
                      jobs=jobs, out=out, rows=rows, modules=["toy_bank"])
""",
    )
    for jobs in ("0", "2"):
        out = tmp_path/f"out{jobs}"
        experiments.find_experiment(str(path), toy_bank).run(
            tmp_path / "done.ipynb", dict(data="numbers", jobs=jobs, out=str(out)), progress=False)
        rows = experiments.find_experiment(str(path), toy_bank).results("smoke", "numbers", out).read()
        assert rows.square.tolist() == [101, 104, 109] and set(rows.of) == {"numbers"}

def test_ctrl_c_stops_all_and_leaves_a_resumable_state(toy):
    path, out = toy
    (out/"sleep").touch()
    process = start(out, path, "--data", "glyphs", "--jobs", 1, "--module", "toy_bank")
    wait_for(lambda: len(list(out.glob("*/*/*.parquet"))) == 2, process)
    wait_for(lambda: (out/"exp_toy/jobs/exp_toy-smoke-glyphs-0002.ipynb").exists(), process)
    time.sleep(.5)
    started = tree(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said = process.communicate(timeout=60)[0]
    assert (process.returncode in (1, 130) and "stopped: what was finished is kept" in said
            and "Traceback" not in said), said
    wait_for(lambda: not any(map(alive, started)), seconds=30)
    assert [s["x"] for s in experiments.find_experiment(path).missing("smoke", out, "glyphs")] == [3]

# --- killed

class Nursery:
    """A process that has imported what the tiny exp_beta needs, and forks one that computes its table when told to:
    a start takes no seconds, so that there can be many."""
    code = """
import json, os, signal, sys, traceback
from fewshot_nb.studies import critics, generation
from fewshot_nb.engine import experiment
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children leave nothing behind
for line in sys.stdin:
    (imports, parameters, table), given = json.loads(line)
    if child := os.fork():
        print(child, flush=True)
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    here = {}
    exec(imports + parameters, here)
    here.update(given)
    try: exec(table, here)
    except BaseException: traceback.print_exc(); os._exit(1)
    open(given["out"] + "/ended", "w").close()
    os._exit(0)
"""
    def __init__(self, path):
        self.cells = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"]][1:]
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self.process = subprocess.Popen([sys.executable, "-c", self.code], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self, out):
        "The pid of a new process that computes what is missing in `out`."
        (out/"ended").unlink(missing_ok=True)
        given = dict(profile="tiny", data="glyphs", seed=0, jobs=1, out=str(out), device="cpu", rows="all")
        self.process.stdin.write(json.dumps([self.cells, given]) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(20)

@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    "(the notebook of a tiny exp_beta, the nursery of its processes, its whole table, the seconds that this took)"
    folder = tmp_path_factory.mktemp("tiny")
    path = tiny_beta(folder/"exp_beta.ipynb", steps=20)
    nursery, whole = Nursery(path), folder/"whole"
    try:
        for _ in range(2):  # the first one may have to fill caches
            shutil.rmtree(whole, ignore_errors=True)
            whole.mkdir()
            began, pid = time.time(), nursery.begin(whole)
            wait_for(lambda: not alive(pid), seconds=600)
            lasted = time.time() - began
        assert (whole/"ended").exists()
        expected = experiments.find_experiment(str(path)).results("tiny", "glyphs", whole).read()
        assert len(expected) == 4 and expected[["diversity", "loss"]].nunique().min() == 4
        yield path, nursery, expected, lasted
    finally: nursery.end()

def training_in(folder, steps=20):
    "Whether a checkpoint in a folder of results is one of a training that is not over."
    import torch
    return any(torch.load(p, weights_only=True)["step"] < steps for p in folder.glob("checkpoints/*.pt"))

def newest(folder): return {p.name: p.stat().st_mtime_ns for p in folder.glob("checkpoints/*.pt")}
def litter(folder): return list(folder.glob(".*.parquet.*.part"))

def test_a_grid_killed_at_twenty_moments_ends_as_one_that_was_not(tiny, tmp_path):
    "SIGKILL to the process that computes; the next one goes on, and the table ends bit for bit the same."
    path, nursery, expected, lasted = tiny
    e, out, draw, kills = experiments.find_experiment(str(path)), tmp_path/"out", np.random.default_rng(20), []
    out.mkdir()
    folder = out/"exp_beta/tiny-glyphs"
    def table(): return e.results("tiny", "glyphs", out).read()
    for kind in draw.permutation(["training"]*8 + ["part"]*2 + ["random"]*10):
        over = True
        while over:  # a grid that ended before its moment came is compared, removed, and begun again
            if kind == "part": (out/"stuck").touch()
            before, pid, at = newest(folder), nursery.begin(out), time.time() + draw.uniform(0, lasted)
            ready = dict(
                training=lambda: newest(folder).items() - before.items(), part=lambda: litter(folder),
                random=lambda: time.time() > at)[kind]
            while not (over := not alive(pid)) and not ready(): time.sleep(.005)
            if over:
                assert (out/"ended").exists() and same_rows(table(), expected)
                for p in folder.glob("*.parquet"): p.unlink()
        if kind == "training": time.sleep(draw.uniform(0, .05))
        kill_tree(pid)
        wait_for(lambda: not alive(pid), seconds=20)
        kills.append("part" if litter(folder) else
                     "training" if kind == "training" and training_in(folder) else "elsewhere")
        for p in litter(folder): p.unlink()  # so that the next one is seen
        (out/"stuck").unlink(missing_ok=True)

    print(f"kills: { {k: kills.count(k) for k in set(kills)} }, the whole grid takes {lasted:.1f} s")
    assert len(kills) == 20 and kills.count("training") >= 5 and "part" in kills
    pid = nursery.begin(out)
    wait_for(lambda: not alive(pid), seconds=600)
    found = table()
    assert (out/"ended").exists() and not found.duplicated(["beta", "seed"]).any()
    assert len(found) == len(expected) and same_rows(found, expected)

def test_the_command_killed_in_each_of_its_phases_goes_on(tiny, tmp_path):
    """SIGKILL to launcher, worker and kernel at once: while the kernel starts, in a training, with a part half written,
    between two settings, while figures are drawn. The same command ends as one that was not killed."""
    path, _, expected, _ = tiny
    e, out = experiments.find_experiment(str(path)), tmp_path/"out"
    out.mkdir()
    folder = out/"exp_beta/tiny-glyphs"
    def begin(): return start(out, path, "--profile", "tiny", "--data", "glyphs", "--jobs", 1, "-p", "device=cpu")
    def kernel(process): return any(b"ipykernel" in command_line(p) for p in tree(process.pid))
    def parts(): return len(list(folder.glob("*.parquet")))
    known, rows = {}, [0]
    phases = dict(
        starting=lambda process: kernel(process),
        training=lambda process: newest(folder).items() - known.items() and training_in(folder),
        part=lambda process: litter(folder),
        between=lambda process: parts() > rows[0],
        drawing=lambda process: parts() == 4 and (out/"exp_beta/jobs/exp_beta-tiny-glyphs-draw.ipynb").exists())
    for phase, ready in phases.items():
        if phase == "part": (out/"stuck").touch()
        known, rows[0] = newest(folder), parts()
        process = begin()
        wait_for(lambda: ready(process), process)
        members = tree(process.pid)
        kill_tree(process.pid); process.communicate()
        wait_for(lambda: not any(map(alive, members)), seconds=20)
        assert len(members) >= 3 and (phase != "part" or litter(folder)), f"{phase}: {members}"
        (out/"stuck").unlink(missing_ok=True)
    process = begin()
    said = process.communicate(timeout=900)[0]
    assert process.returncode == 0 and "4 of 4 settings done" in said and "exp_beta-tiny-glyphs-draw" in said, said
    found = e.results("tiny", "glyphs", out).read()
    assert not found.duplicated(["beta", "seed"]).any() and same_rows(found, expected)
