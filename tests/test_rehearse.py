"""A rehearsal takes two steps of every kind of job, leaves no row and no checkpoint, and fails loudly."""
import os, re, subprocess, sys
from pathlib import Path

import pandas as pd, pytest

from fewshot_nb.core import InputError
from fewshot_nb.engine import rehearse as rehearsals
from fewshot_nb.engine.experiment import experiment_names, find_experiment

from small_notebooks import notebook

ROOT = Path(__file__).parents[1]

TRAINS = (
    """---
title: "exp_rehearsed: lines"
version: 1
sweep: [width, seed]
bank: fewshot_nb.studies.realistic.no_data
work: width
profiles:
  paper: {width: [4, 64], seed: [0, 1], steps: 100000, mode: NAMED}
---""",
    "from fewshot_nb.engine.experiment import open_experiment",
    """profile: str = "paper"  # a row of settings
data: str = "auto"  # none is needed
device: str = "cpu"
seed: int = 0
jobs: int = 1
out: str = "runs/results"
rows: str | list = "all"
""",
    """import os, time, torch
from pathlib import Path
from torch import nn
from fewshot_nb.train.loop import State, descend, run_steps
def line(setting, folder):
    if setting["mode"] == "breaks": raise RuntimeError("no such layer")
    if setting["mode"] == "dies": os.kill(os.getpid(), 9)
    if setting["mode"] == "greedy": torch.zeros(10**13)
    w = setting["width"]
    net = nn.Sequential(nn.Linear(1, w), nn.Linear(w, 1))
    state = State(seed=setting["seed"], net=net, optimizer=torch.optim.SGD(net.parameters(), lr=.01))
    if setting["mode"] == "endless": loss = lambda s: time.sleep(300)
    else: loss = lambda s: s.net(torch.randn(8, 1, generator=s.generator)).square().mean()
    path = Path(folder)/"line.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    run_steps(descend(loss), state, setting["steps"], path, every=1, seconds=0)
    assert not path.exists() and state.step == setting["steps"]
    if setting["mode"] == "waits": time.sleep(300)
    Path(WHERE).write_text("came to its end")
    return dict(loss=state.history[-1]["loss"])
exp = open_experiment(PATH, line, profile=profile, data=data, device=device, seed=seed, jobs=jobs, out=out, rows=rows)
exp.table.nothing_that_is_there
""",
)

def toy(tmp_path, mode):
    path, end = tmp_path/"exp_rehearsed.ipynb", tmp_path/"end.txt"
    source = TRAINS[3].replace("PATH", repr(str(path))).replace("WHERE", repr(str(end)))
    notebook(path, TRAINS[0].replace("NAMED", mode), *TRAINS[1:3], source)
    return str(path), end

LENGTHS = dict(epochs="setting['epochs']*(1000//setting['batch'])", steps="5000", tasks="5000")

def lengthy(tmp_path, mode):
    "A notebook with a batch of 64 and .05 s an item: so many epochs of 1,000 images, so many steps, or tasks of 8."
    rows = "8" if mode == "tasks" else "setting['batch']"
    source = (TRAINS[3].replace("setting[\"steps\"]", LENGTHS[mode]).replace("torch.randn(8,", f"torch.randn({rows},")
              .replace("loss = lambda s: s.net", f"loss = lambda s: time.sleep(.05*{rows}) or s.net"))
    path = tmp_path/"exp_lengthy.ipynb"
    front = TRAINS[0].replace("steps: 100000, mode: NAMED", "batch: 64, epochs: 10, mode: works")
    source = source.replace("PATH", repr(str(path))).replace("WHERE", repr(str(tmp_path/"end.txt")))
    notebook(path, front, *TRAINS[1:3], source)
    return str(path)

@pytest.mark.parametrize("mode,steps,seconds,scaled", [
    ("epochs", 10*(1000//64), 3.2, True), ("steps", 5000, 3.2, True), ("tasks", 5000, .4, False)])
def test_steps_and_hours_are_those_of_the_real_batch(tmp_path, mode, steps, seconds, scaled):
    seen = rehearsals.rehearse([lengthy(tmp_path, mode)], "paper", seconds=3.).iloc[0]
    assert seen.status == "ok" and seen.steps == steps and ("batch 2 of 64, scaled" in seen.note) == scaled
    assert seconds < seen.step_seconds < 3*seconds
    whole = (2 + 2*4/64)*(steps*seen.step_seconds + seen.rest_seconds)/3600
    assert abs(seen.hours - whole) < 1e-6*whole

def test_a_kind_is_rehearsed_at_full_size_and_its_hours_are_foretold(tmp_path):
    path, end = toy(tmp_path, "works")
    found = rehearsals.rehearse([path], "paper")
    assert found.status.tolist() == ["ok"] and found.kind.tolist() == ["width=64"] and found.settings.tolist() == [4]
    seen = found.iloc[0]
    assert seen.trainings == 1 and seen.steps == 100_000 and 0 < seen.step_seconds and 0 < seen.memory_gb < 10
    # two settings of the largest size, two of a sixteenth of it
    whole = (2 + 2*4/64)*(seen.steps*seen.step_seconds + seen.rest_seconds)/3600
    assert abs(seen.hours - whole) < 1e-6*whole and end.read_text() == "came to its end"
    assert not list(tmp_path.rglob("*.parquet")) and not list(tmp_path.rglob("*.pt"))
    rehearsals.refuse_failures(found)

@pytest.mark.parametrize("mode,said", [("breaks", "RuntimeError: no such layer"), ("dies", "killed by SIGKILL"),
                                       ("greedy", "allocate")])
def test_what_fails_is_named(tmp_path, mode, said):
    found = rehearsals.rehearse([toy(tmp_path, mode)[0]], "paper")
    with pytest.raises(InputError, match=rf"1 of 1 rehearsals failed, first exp_rehearsed paper .*{said}") as e:
        rehearsals.refuse_failures(found)
    assert "\n" not in str(e.value)

def test_what_does_not_grow_with_the_tasks_is_counted_once_a_setting(tmp_path, capfd):
    "Loading takes as long for ten thousand tasks as for sixty-four; what is remarked of the data is told once."
    path = tmp_path/"exp_tasks.ipynb"
    front = (TRAINS[0].replace("work: width", "work: tasks")
             .replace("width: [4, 64], seed: [0, 1], steps: 100000, mode: NAMED",
                      "width: [4, 5], seed: 0, tasks: 6400"))
    source = """import time
from pathlib import Path
from fewshot_nb.data.image_sets import _tell_once
def score(setting):
    _tell_once(["3 of 9 images are a leak."], "mine")
    if not Path("LOADED").exists(): time.sleep(4)
    Path("LOADED").touch()
    time.sleep(.5 + .005*setting["tasks"])
    return dict(accuracy=.5)
exp = open_experiment(PATH, score, profile=profile, data=data, device=device, seed=seed, jobs=jobs, out=out, rows=rows)
"""
    source = source.replace("LOADED", str(tmp_path/"loaded")).replace("(PATH", f"({str(path)!r}")
    notebook(path, front, *TRAINS[1:3], source)
    found = rehearsals.rehearse([str(path)], "paper")
    assert found.status.tolist() == ["ok"]*len(found) and found.settings.sum() == 2
    # 64 seconds by what sleeps; a hundred times everything would be 960 and more, and a busy machine adds some
    assert 0 < 3600*found.hours.sum() < 100*found.rest_seconds.iloc[0]
    err = capfd.readouterr().err
    assert err.count("a leak") == 1 and "fewshot_nb: 3 of 9 images are a leak.\n" in err

def test_what_follows_a_training_is_cut_and_told(tmp_path):
    path, end = toy(tmp_path, "waits")
    seen = rehearsals.rehearse([path], "paper", seconds=9).iloc[0]
    assert seen.status == "ok" and "rest cut" in seen.note and not end.exists()

def test_a_step_without_an_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsals, "_LONGEST", 1)
    seen = rehearsals.rehearse([toy(tmp_path, "endless")[0]], "paper", seconds=9).iloc[0]
    assert seen.status == "failed" and "not through after 9 s: give it more with --seconds" in seen.note

def test_a_rehearsal_goes_on_where_it_was(tmp_path, monkeypatch):
    keep = tmp_path/"rehearsal-paper.csv"
    for mode, status in (("breaks", "failed"), ("works", "ok")):  # what failed is tried again
        found = rehearsals.rehearse([toy(tmp_path, mode)[0]], "paper", keep=keep)
        assert found.status.tolist() == [status] == pd.read_csv(keep).status.tolist()[-1:]
    monkeypatch.setattr(rehearsals, "_looked_at", None)  # what is good is not
    again = rehearsals.rehearse([toy(tmp_path, "works")[0]], "paper", keep=keep)
    line = rehearsals.read_rehearsal(keep).iloc[-1]  # which says where it was made; a terminal knows
    assert re.search(r"\d cores?$|NVIDIA", line.device) and re.fullmatch(r"\d{4}-\d\d-\d\d", line.day)
    assert line.device not in rehearsals.rehearsal_text(again) and "commit" in line.index
    assert rehearsals.rehearsal_text(again) == rehearsals.rehearsal_text(found)
    keep.write_text("a,b\n")
    with pytest.raises(InputError, match="no table of a rehearsal"):
        rehearsals.rehearse([toy(tmp_path, "works")[0]], "paper", keep=keep)

def test_the_command_ends_with_one(tmp_path):
    path, _ = toy(tmp_path, "breaks")
    out = tmp_path/"out"
    words = [sys.executable, "-m", "fewshot_nb", "reproduce", path, "--rehearse", "--profile", "paper"]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    ended = subprocess.run([*words, "--out", str(out)], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1 and "1 of 1 rehearsals failed" in ended.stderr.splitlines()[-1]
    assert [p.name for p in out.iterdir()] == ["rehearsal-paper.csv"]  # and nothing that holds rows

@pytest.mark.parametrize("name", experiment_names())
def test_every_setting_of_every_profile_has_a_kind(name):
    e = find_experiment(name)
    for profile in [p for p in e.profiles if p.startswith(("smoke", "paper"))]:
        kinds = rehearsals.job_kinds(e, profile)
        assert sum(len(of) for _, of in kinds) == len(e.grid(profile))
        assert all(setting in e.grid(profile) for setting, _ in kinds)

@pytest.mark.parametrize("name", experiment_names())
def test_every_profile_of_an_experiment_reaches_its_grid(name, tmp_path):
    "What stands in a notebook before its experiment is opened, such as the note of a design, knows every profile."
    about = find_experiment(name)
    for profile in about.profiles:
        parameters = dict(profile=profile, data="glyphs", out=str(tmp_path/profile))
        opened, _, given = rehearsals._call_of(about.path, parameters)
        assert opened == name and given["profile"] == profile
