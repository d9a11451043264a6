"`reproduce` end to end: failures are data, Ctrl-C stops, and a real exp_beta grid killed at 20 moments ends as one that was not."
import itertools, json, os, signal, subprocess, sys, time
from pathlib import Path

import numpy as np, pytest

from fewshot_nb import experiments, launch
from fewshot_nb.core import InputError
from fewshot_nb.results import same_rows

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes under /proc")


def notebook(path, *cells):
    "Write a notebook of raw front matter, a parameters cell and code cells."
    def cell(i, source):
        kind = "raw" if i == 0 else "code"
        return dict(cell_type=kind, id=str(i), metadata=dict(tags=["parameters"]) if i == 2 else {}, source=source, **({} if i == 0 else dict(outputs=[], execution_count=None)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(cells=[cell(i, c) for i, c in enumerate(cells)], nbformat=4, nbformat_minor=5,
                                    metadata=dict(kernelspec=dict(name="python3", display_name="Python 3", language="python")))))
    return path


def tree(pid):
    "A process and all that it started, by pid."
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try: parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError: pass
    found = {pid}
    while more := {p for p, parent in parents.items() if parent in found} - found: found |= more
    return found


def alive(pid):
    try: return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError: return False


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
    return subprocess.Popen([sys.executable, "-m", "fewshot_nb", "reproduce", *map(str, args), "--out", str(out)], env=env, cwd=out.parent,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's background jobs ignore Ctrl-C


# --- failure is data

TOY = """---
title: "exp_toy: squares"
version: 1
sweep: [x]
bank: builtins.str
profiles:
  smoke: {x: [1, 2, 3]}
---""", "import os, time\nfrom pathlib import Path\nfrom fewshot_nb import experiments", """profile: str = "smoke"  # a row of settings
data: str = "auto"  # any word
seed: int = 0
jobs: int = 1
out: str = "runs/results"
rows: str | list = "all"
""", """def square(setting):
    here, x = Path(out), setting["x"]
    if x == 2 and (here/"break").exists(): raise RuntimeError("no luck\\nat all")
    if x == 3 and (here/"break").exists(): os.kill(os.getpid(), 9)
    if x == 3 and (here/"sleep").exists(): time.sleep(100)
    return dict(square=x*x)
exp = experiments.find(PATH)
table = exp.rows(square, profile, rows, out, seed, jobs, data=data)
"""


@pytest.fixture
def toy(tmp_path):
    path = tmp_path/"exp_toy.ipynb"
    notebook(path, *TOY[:3], TOY[3].replace("PATH", repr(str(path))))
    (tmp_path/"out").mkdir()
    return str(path), tmp_path/"out"


def test_a_failing_job_keeps_its_notebook_and_the_rest_goes_on(toy, capfd):
    path, out = toy
    (out/"break").touch()
    with pytest.raises(InputError, match=r"2 jobs failed, first exp_toy-smoke-numbers-000[12]: .*run the same command again for what is missing") as e:
        launch.reproduce([path], out=out, data="numbers", jobs=2)
    assert "\n" not in str(e.value)
    rows = experiments.find(path).results("smoke", "numbers", out).read(failed=True).set_index("x")
    assert rows.status.to_dict() == {1: "ok", 2: "failed", 3: "failed"} and rows.square[1] == 1
    assert rows.message[2] == "RuntimeError: no luck at all" and "in square" in rows.cell[2] and "kernel was killed" in rows.message[3]
    assert "exp_toy-smoke-numbers-0001: " in launch.logs("exp_toy-smoke-numbers-0001", out).replace(".ipynb", "") and "no luck" in launch.logs("exp_toy-smoke-numbers-0001", out)
    assert not list(out.glob("*/jobs/*draw*"))  # there is no whole table to draw
    first = next(out.glob("*/jobs/*0000.ipynb")).stat().st_mtime_ns
    (out/"break").unlink()
    told = launch.dry_run([path], "smoke", out, "numbers")
    assert told[0][["settings", "done", "jobs"]].values.tolist() == [[3, 1, 2]] and [j.parameters["rows"] for j in told[1]] == [[dict(x=2)], [dict(x=3)]]
    drawn = launch.reproduce([path], out=out, data="numbers", jobs=2)  # only what failed
    assert next(out.glob("*/jobs/*0000.ipynb")).stat().st_mtime_ns == first and Path(drawn[0]).exists()
    rows = experiments.find(path).results("smoke", "numbers", out).read(failed=True)
    assert rows.square.tolist() == [1, 4, 9] and set(rows.status) == {"ok"}
    lines = capfd.readouterr().err
    assert "1 of 3 settings done, 2 jobs to do" in lines and "2/2 exp_toy-smoke-numbers-000" in lines  # plain lines, no bar


def test_ctrl_c_stops_all_and_leaves_a_resumable_state(toy):
    path, out = toy
    (out/"sleep").touch()
    process = start(out, path, "--data", "glyphs", "--jobs", 1)
    wait_for(lambda: len(list(out.glob("*/*/*.parquet"))) == 2, process)
    wait_for(lambda: (out/"exp_toy/jobs/exp_toy-smoke-glyphs-0002.ipynb").exists(), process)
    time.sleep(.5)
    started = tree(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said = process.communicate(timeout=60)[0]
    assert process.returncode in (1, 130) and "stopped: what was finished is kept" in said and "Traceback" not in said, said
    wait_for(lambda: not any(map(alive, started)), seconds=30)
    assert [s["x"] for s in experiments.find(path).missing("smoke", out, "glyphs")] == [3]


# --- killed at 20 moments

TINY = '  tiny: {beta: [0.25, 5.0], seed: [0, 1], samples: 2, image_size: 28, stem: patches, widths: "4", hidden: 16, context_dim: 6, latent_dim: 3, epochs: null, steps: 40, sets: 4, context: 2, lr: 0.002, schedule: fall, annealing: false, augmentation: none, cut: true}\n'

def tiny_beta(path):
    "exp_beta up to its table, with one more profile, a checkpoint after every step, and four settings a job. Returns its code cells."
    cells = json.loads((ROOT/"nbs/exp_beta.ipynb").read_text())["cells"]
    text = {c["cell_type"] + str(i): "".join(c["source"]) for i, c in enumerate(cells)}
    front = next(v for k, v in text.items() if k.startswith("raw"))
    imports = next(v for k, v in text.items() if k.startswith("code"))
    parameters = next("".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", []))
    table = next(v for v in text.values() if "exp.rows(" in v)
    changed = table.replace('experiments.find("exp_beta")', f"experiments.find({str(path)!r})").replace("generation.beta_row,", "generation.beta_row, every_seconds=0,")
    assert changed.count(str(path)) == 1 and changed.count("every_seconds") == 1 and "profiles:\n" in front, "exp_beta's table cell reads otherwise now: mend this test"
    notebook(path, front.replace("profiles:\n", "chunk: 4\nprofiles:\n" + TINY), imports, parameters, changed)
    return imports, parameters, changed


class Grid:
    "The grid computed by a forked process, which runs the notebook's own cells: no start-up, so that killing it is cheap."
    def __init__(self, cells, out):
        self.names, self.code, self.out = {}, cells[2], out
        exec(cells[0], self.names); exec(cells[1], self.names)
        import torch
        from fewshot_nb import generation
        torch.set_num_threads(1)
        generation.fit_and_judged(28, "glyphs", False); generation._exam("glyphs", False, "auto", None, "cpu")  # what all forks share
        self.names.update(profile="tiny", data="glyphs", device="cpu", jobs=1, out=str(out))

    def start(self, stuck=False):
        "Fork; `stuck` stops for ever where a part, written to its temporary file, is about to get its name."
        if pid := os.fork(): return pid
        try:
            os.environ["FEWSHOT_QUIET"] = "1"
            replace = os.replace
            if stuck: os.replace = lambda a, b, **k: time.sleep(1000) if str(b).endswith(".parquet") else replace(a, b, **k)
            exec(self.code, self.names)
            os._exit(0)
        except BaseException as e: print("fork failed:", repr(e), file=sys.stderr, flush=True)
        finally: os._exit(3)


def ended(pid):
    "Whether a forked process ended by itself; it must have ended well."
    done, status = os.waitpid(pid, os.WNOHANG)
    assert not done or status == 0, status
    return bool(done)


def test_a_grid_killed_at_twenty_moments_ends_as_one_that_was_not(tmp_path):
    import torch
    path = tmp_path/"exp_beta.ipynb"
    cells, draw = tiny_beta(path), np.random.default_rng(20)
    e = experiments.find(str(path))
    table = lambda out: e.results("tiny", "glyphs", out).read()
    whole = Grid(cells, tmp_path/"whole")
    began = time.time()
    assert os.waitpid(whole.start(), 0)[1] == 0
    lasted, expected = time.time() - began, table(tmp_path/"whole")
    assert len(expected) == 4 and expected[["diversity", "recognizability", "loss"]].nunique().min() == 4
    out = tmp_path/"out"
    folder, kills = out/"exp_beta/tiny-glyphs", []
    checkpoints = lambda: {p.name: p.stat().st_mtime_ns for p in folder.glob("checkpoints/*.pt")}
    def in_training(): return any(torch.load(p, weights_only=True)["step"] < 40 for p in folder.glob("checkpoints/*.pt"))

    # through the command: the tree of launcher, worker and kernel
    for kind in ("training", "random"):
        before, process = checkpoints(), start(out, path, "--profile", "tiny", "--data", "glyphs", "--jobs", 1, "-p", "device=cpu")
        if kind == "training": wait_for(lambda: checkpoints() != before, process)
        else: time.sleep(draw.uniform(0, 8))
        members = tree(process.pid)
        kill_tree(process.pid); process.wait()
        wait_for(lambda: not any(map(alive, members)), seconds=20)
        kills.append(("reproduce", "training" if kind == "training" and in_training() else kind))

    # the same cells in forks: quick to start, so that many moments can be tried
    grid = Grid(cells, out)
    for kind in draw.permutation(["training"]*7 + ["part"]*2 + ["random"]*9):
        while True:  # a grid that ended before its moment came is compared, removed, and begun again
            before, pid, at = checkpoints(), grid.start(stuck=kind == "part"), time.time() + draw.uniform(0, lasted/8)
            if kind == "training": ready = lambda: checkpoints().keys() & before.keys() and checkpoints() != before or checkpoints().keys() - before.keys()
            elif kind == "part": ready = lambda: any(folder.glob(".*.parquet.*.part"))
            else: ready = lambda: time.time() > at
            while not (over := ended(pid)) and not ready(): time.sleep(.002)
            if not over: break
            assert same_rows(table(out), expected)
            for p in folder.glob("*.parquet"): p.unlink()
        if kind == "training": time.sleep(draw.uniform(0, .03))
        os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
        litter = list(folder.glob(".*.parquet.*.part"))
        kills.append(("fork", "part" if litter else "training" if kind == "training" and in_training() else "elsewhere"))
        for p in litter: p.unlink()  # so that the next one is seen

    print(f"kills: { {k: kills.count(k) for k in set(kills)} }")
    inside = [k for k in kills if k[1] == "training"]
    assert len(kills) == 20 and len(inside) >= 5 and any(k[1] == "part" for k in kills) and ("reproduce", "training") in kills

    last = start(out, path, "--profile", "tiny", "--data", "glyphs", "--jobs", 1, "-p", "device=cpu")
    said = last.communicate(timeout=900)[0]
    assert last.returncode == 0 and "exp_beta-tiny-glyphs-draw" in said, said
    found = table(out)
    assert not found.duplicated(["beta", "seed"]).any() and len(found) == len(expected) and same_rows(found, expected)
