"Shards of a grid: computed by processes that are killed, merged, and equal to one run; see also shards_at_scale.py."
import contextlib, os, shutil, sys
from pathlib import Path

import pytest, yaml

from fewshot_nb.core import InputError
from fewshot_nb.engine import experiment as experiments
from fewshot_nb.engine import reproduce as launch
from fewshot_nb.engine.experiment import working_folder
from fewshot_nb.engine.results import same_rows
from fewshot_nb.engine.shards import merge_shards, shard_numbers
from fewshot_nb.engine.store import Store

import shards_at_scale
from small_notebooks import notebook

def test_shards_in_a_folder_by_processes_that_are_killed(tmp_path):
    assert "equal one run's" in shards_at_scale.all_at_once(str(tmp_path/"out"), 12, 2, (1., 2.))

def moto_server():
    "moto's server, beside this interpreter or where FEWSHOT_MOTO says."
    return os.environ.get("FEWSHOT_MOTO") or shutil.which("moto_server", path=os.path.dirname(sys.executable))

@pytest.mark.skipif(not moto_server(), reason='no S3-compatible server: pip install "moto[server]", or FEWSHOT_MOTO')
def test_shards_in_an_object_store_by_processes_that_are_killed(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.setenv(name, "any")  # given back after the test
    with shards_at_scale.s3(moto_server()) as store:
        assert "equal one run's" in shards_at_scale.all_at_once(store, 12, 2, (1., 2.))

TOY = (
    """---
title: "exp_toy: squares"
version: 1
sweep: [x]
labels: [judge]
bank: fewshot_nb.studies.realistic.no_data
profiles:
  smoke: {x: [1, 2, 3]}
---""",
    "from fewshot_nb.engine.experiment import open_experiment",
    """profile: str = "smoke"  # a row of settings
data: str = "auto"  # none is needed
judge: str = "nobody"  # names rows, too
seed: int = 0
jobs: int = 1
out: str = "runs/results"
rows: str | list = "all"
""",
    """def root(setting): return dict(root=setting["x"]**.5)
table = open_experiment(PATH, root, profile=profile, data=data, seed=seed, jobs=jobs, out=out, rows=rows,
                        judge=judge).table
""",
)

def test_an_experiment_in_shards_is_the_experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a shard for a store is computed
    path = tmp_path/"exp_toy.ipynb"
    notebook(path, *TOY[:3], TOY[3].replace("PATH", repr(str(path))))
    out, to = tmp_path/"out", tmp_path/"merged"
    file, = launch.reproduce_shard([str(path)], "0/2", out=out)
    assert file.endswith("exp_toy/smoke-none/shards/00000-of-00002.parquet")
    made = (tmp_path/"out/exp_toy/jobs").iterdir()
    assert [p.name for p in made] == ["exp_toy-smoke-none-shard00000of00002.ipynb"]
    with pytest.raises(InputError, match=r"1 of 2 shards of exp_toy/smoke-none are missing \(1\)"):
        merge_shards([out], to)
    before = os.stat(file).st_mtime_ns
    assert launch.reproduce_shard([str(path)], "0/2", out=out) == [file] and os.stat(file).st_mtime_ns == before
    launch.reproduce_shard([str(path)], "1/2", out="memory://elsewhere")
    merge_shards([out, "memory://elsewhere"], to)
    e = experiments.find_experiment(str(path))
    merged = e.results("smoke", "none", to).read()
    assert merged.x.tolist() == [1, 2, 3] and set(merged.judge) == {"nobody"}
    assert e.missing("smoke", to, "none") == []  # nothing is left to compute
    alone = [r for r in e.all_results(out) for r in [r.read()]][0]
    assert same_rows(merged[merged.x != 2].reset_index(drop=True), alone)  # what the first shard made

def test_an_experiment_on_an_address_is_drawn_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path/"settings.ini").touch()
    path = tmp_path/"exp_toy.ipynb"
    notebook(path, *TOY[:3], TOY[3].replace("PATH", repr(str(path))))
    launch.reproduce([str(path)], out="memory://bucket/results")
    places = Store("memory://bucket/results").places()
    assert len([p for p in places if p.endswith(".parquet")]) == 3 and any(p.endswith("-draw.ipynb") for p in places)
    shutil.rmtree(tmp_path/"runs")  # another machine: nothing is left to compute
    with working_folder("memory://bucket/results", ("exp_toy",)) as folder:
        assert experiments.find_experiment(str(path)).missing("smoke", folder, "none") == []
    with pytest.raises(InputError, match="--engine slurm needs a folder that all its machines see"):
        launch._refuse_engines("slurm")

CLUSTER = Path(__file__).parents[1]/"nbs/tutorials/cluster"

@pytest.mark.parametrize("name,command", [("indexed_job", "reproduce"), ("evaluate_job", "evaluate")])
def test_a_kubernetes_job_of_the_tutorial(name, command):
    "What must hold beside the schema, which `kubernetes-validate` knows where it is installed."
    job = yaml.safe_load((CLUSTER/f"{name}.yaml").read_text())
    spec, (container,) = job["spec"], job["spec"]["template"]["spec"]["containers"]
    words = container["command"] + container["args"]
    assert spec["completionMode"] == "Indexed" and words[:2] == ["fewshot_nb", command]
    assert all(isinstance(w, str) for w in words)  # Kubernetes refuses numbers among the words of a command
    shard = words[words.index("--shard") + 1]
    assert shard_numbers(shard, dict(JOB_COMPLETION_INDEX="99")) == (99, spec["completions"])
    with contextlib.suppress(ImportError):
        from kubernetes_validate import validate
        validate(job, "1.34", strict=True)

def test_the_pool_of_the_tutorial():
    "SkyPilot tells a job its rank and how many there are; a pool has what all of its jobs share."
    pool, job = (yaml.safe_load((CLUSTER/f"sky_{name}.yaml").read_text()) for name in ("pool", "job"))
    words = job["run"].split()
    assert shard_numbers(words[words.index("--shard") + 1],
                         dict(SKYPILOT_JOB_RANK="7", SKYPILOT_NUM_JOBS="100")) == (7, 100)
    assert pool["pool"]["workers"] > 1 and words[2] in pool["file_mounts"] and pool["resources"] == job["resources"]

def commands_in(file) -> list:
    "The commands of this library in a file for a cluster, in words."
    text = file.read_text()
    if file.suffix == ".sbatch":
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return [part.split("fewshot_nb ")[1].split() for line in lines for part in line.split("&&") if part.strip()]
    found = yaml.safe_load(text)
    if "run" in found: return [found["run"].split()[1:]]
    if "spec" not in found: return []
    container, = found["spec"]["template"]["spec"]["containers"]
    return [[*container["command"][1:], *container["args"]]]

def test_the_files_name_options_that_there_are():
    from typer.main import get_command
    from fewshot_nb.cli.main import app
    known, seen = get_command(app).commands, []
    for file in sorted(CLUSTER.iterdir()):
        for command, *words in commands_in(file):
            options = {o for p in known[command].params for o in p.opts}
            assert {w for w in words if w.startswith("--")} <= options, file.name
            seen.append(command)
    assert sorted(seen) == ["evaluate"]*4 + ["merge"] + ["reproduce"]*2
