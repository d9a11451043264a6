"`reproduce --engine slurm` on a real Slurm of one node with fake GPUs, which the test starts on loopback and stops."
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from proc import command_line
from small_notebooks import notebook, tiny_beta

CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={d}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={home}/munge/socket,cred_expire=10
SlurmUser=root
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={home}/ctld
SlurmdSpoolDir={home}/d
SlurmctldPidFile={home}/ctld.pid
SlurmdPidFile={home}/d.pid
SlurmctldLogFile={home}/ctld.log
SlurmdLogFile={home}/d.log
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
KillWait=5
{gres}
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=3000 {node_gres} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

def cannot(reason):
    print(f"Slurm test not run: {reason}")
    pytest.skip(reason)

@pytest.fixture(scope="module")
def slurm():
    "A running cluster; its value says whether it has (fake) GPUs."
    if os.getuid() != 0: cannot("starting munged and slurmd needs root")
    for tool in ("slurmctld", "slurmd", "munged", "sbatch"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin"):
            cannot(f"no {tool}: apt-get install slurmctld slurmd slurm-client munge")
    home, host = Path(tempfile.mkdtemp(prefix="slurm")), socket.gethostname().split(".")[0]
    home.chmod(0o755)
    for folder in ("munge", "ctld", "d"): (home/folder).mkdir()
    fake = subprocess.run(f"mknod {home}/gpu0 c 195 0 && mknod {home}/gpu1 c 195 1", shell=True).returncode == 0
    if not fake: print("mknod is refused here: the Slurm test runs without fake GPUs")
    (home/"slurm.conf").write_text(CONF.format(host=host, home=home, ctld=free_port(), d=free_port(),
        gres="GresTypes=gpu" if fake else "", node_gres="Gres=gpu:2" if fake else ""))
    if fake: (home/"gres.conf").write_text(f"NodeName={host} Name=gpu File={home}/gpu[0-1] Flags=nvidia_gpu_env\n")
    (home/"munge/key").write_bytes(os.urandom(1024)); (home/"munge/key").chmod(0o400)
    subprocess.run(["chown", "-R", "munge", home/"munge"], check=True)
    m = home/"munge"
    subprocess.run(
        ["su", "munge", "-s", "/bin/sh", "-c",
         f"/usr/sbin/munged --key-file={m}/key --socket={m}/socket --pid-file={m}/pid "
         f"--log-file={m}/log --seed-file={m}/seed --force"], check=True)
    os.environ["SLURM_CONF"] = str(home/"slurm.conf")
    path = os.environ["PATH"] + ":/usr/sbin"
    daemons = [subprocess.Popen([shutil.which(d, path=path), "-D"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL) for d in ("slurmctld", "slurmd")]
    try:
        for _ in range(60):
            if "idle" in subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True).stdout: break
            time.sleep(.5)
        else:
            pytest.fail(
                f"the test's Slurm did not come up: {(home / 'ctld.log').read_text()[-1000:]} "
                f"{(home / 'd.log').read_text()[-1000:]}"
            )
        yield fake
    finally:
        subprocess.run(["scancel", "-u", "root"], capture_output=True)
        for d in daemons[::-1]: d.terminate()
        for d in daemons:
            try: d.wait(20)
            except subprocess.TimeoutExpired: d.kill()
        os.kill(int((m/"pid").read_text()), signal.SIGTERM)
        os.environ.pop("SLURM_CONF")
        shutil.rmtree(home, ignore_errors=True)

def queue():
    "The ids of running jobs, one for each task of an array."
    return subprocess.run(
        ["squeue", "-h", "-r", "-t", "RUNNING", "-o", "%A"], capture_output=True, text=True).stdout.split()

def processes(job):
    "The processes of a job, found by the id in their environment."
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            if f"SLURM_JOB_ID={job}".encode() in (proc / "environ").read_bytes().split(b"\0"):
                found.append(int(proc.name))
        except OSError:
            pass
    return found

def begun(job):
    "Whether the Python of a job is there."
    lines = map(command_line, processes(job))
    return any(b"submitit" in line and b"srun" not in line for line in lines)

def command(out, gpus, experiment="exp_beta", profile="smoke"):
    return [
        sys.executable, "-m", "fewshot_nb", "reproduce", str(experiment), "--engine", "slurm",
        "--profile", profile, "--jobs", "2", "--data", "glyphs", "--out", str(out), "--mem", "2",
        "-p", "device=cpu", *(["--gpus", "1"] if gpus else [])]

def test_a_training_goes_on_from_its_checkpoint(slurm, tmp_path):
    """Preempted in the middle of a training, and once more told by Slurm that its time is up: both
    times the job comes back to the step where it was."""
    import torch
    from fewshot_nb.engine import experiment as experiments
    path, out = tiny_beta(tmp_path/"exp_beta.ipynb", steps=100), tmp_path/"results"
    folder, slow = out/"exp_beta/tiny-glyphs", out/"slow"
    out.mkdir()
    slow.touch()
    def reached():
        "(when the newest checkpoint was written, the steps done in it)"
        found = sorted((p.stat().st_mtime_ns, p) for p in folder.glob("checkpoints/*.pt"))
        return (found[-1][0], torch.load(found[-1][1], weights_only=True)["step"]) if found else (0, 0)

    process = subprocess.Popen(
        command(out, slurm, path, "tiny"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, cwd=tmp_path)
    came_back = []
    # what the scheduler does in a preemption; what it sends before the time is up
    for stop in (["scontrol", "requeue"], ["scancel", "--signal=USR2"]):
        before, last = reached(), time.time() + 300
        while reached()[1] < before[1] + 5 and process.poll() is None and time.time() < last: time.sleep(.05)
        assert process.poll() is None, process.communicate()[0]
        job = queue()[0]
        subprocess.run([*stop, job], check=True)
        while processes(job) and time.time() < last: time.sleep(.05)
        stopped = reached()
        # Slurm would wait two minutes
        subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], capture_output=True)
        while reached()[0] == stopped[0] and process.poll() is None and time.time() < last: time.sleep(.02)
        came_back.append((stopped[1], reached()[1]))
    slow.unlink()
    said = process.communicate(timeout=900)[0]
    print(came_back, said)
    assert process.returncode == 0, said
    assert all(5 <= before < after for before, after in came_back)
    assert len(experiments.find_experiment(str(path)).results("tiny", "glyphs", out).read()) == 4

def test_a_grid_survives_preemption_and_a_kill(slurm, tmp_path):
    from fewshot_nb.engine import experiment as experiments
    out, disturbed = tmp_path/"results", []
    process = subprocess.Popen(
        command(out, slurm), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path)
    end = time.time() + 900
    while process.poll() is None and time.time() < end:
        running = queue()
        if not disturbed and running and begun(running[0]):
            subprocess.run(["scontrol", "requeue", running[0]], check=True)
            # Slurm would wait two minutes
            subprocess.run(["scontrol", "update", f"JobId={running[0]}", "StartTime=now"], capture_output=True)
            disturbed.append(("requeued", running[0]))
        elif len(disturbed) == 1 and (other := [r for r in running if r != disturbed[0][1] and begun(r)]):
            for pid in processes(other[0]): os.kill(pid, signal.SIGKILL)
            disturbed.append(("killed", other[0]))
        time.sleep(.3)
    first = process.communicate()[0]
    print(first)
    assert [d[0] for d in disturbed] == ["requeued", "killed"]
    assert process.returncode == 1 and "Slurm ended job" in first  # the killed job is named; the requeued one is not
    again = subprocess.run(command(out, slurm), capture_output=True, text=True, cwd=tmp_path, timeout=900)
    print(again.stdout, again.stderr)
    assert again.returncode == 0, again.stderr
    grid = experiments.find_experiment("exp_beta").grid("smoke")
    rows = experiments.find_experiment("exp_beta").results("smoke", "glyphs", out).read()
    assert len(rows) == len(grid) and set(zip(rows.beta, rows.seed)) == {(s["beta"], s["seed"]) for s in grid}
    job = next((out/"exp_beta/jobs").glob("*-0000.ipynb")).stem  # parameters that were given are in its name
    log = subprocess.run(
        [sys.executable, "-m", "fewshot_nb", "logs", job, "--out", str(out)],
        capture_output=True, text=True, cwd=tmp_path)
    assert log.returncode == 0 and "no error" in log.stdout

def test_gpus_that_the_cluster_has_not(slurm, tmp_path):
    if slurm: cannot("this cluster has (fake) GPUs")
    done = subprocess.run([*command(tmp_path, False), "--gpus", "1"], capture_output=True, text=True)
    assert done.returncode == 1 and "nodes have none" in done.stderr

def test_the_array_of_the_tutorial(slurm, tmp_path):
    "The file that the tutorial shows, sent to Slurm as an array of two: its shards merge into the whole grid."
    from fewshot_nb.engine import experiment as experiments
    from fewshot_nb.engine.shards import merge_shards
    from test_shards import TOY
    path, out = tmp_path/"exp_toy.ipynb", tmp_path/"results"
    notebook(path, *TOY[:3], TOY[3].replace("PATH", repr(str(path))))
    script = Path(__file__).parents[1]/"nbs/tutorials/cluster/array.sbatch"
    # a command on the path
    (tmp_path/"fewshot_nb").write_text(f'#!/bin/sh\nexec {sys.executable} -m fewshot_nb "$@"\n')
    (tmp_path/"fewshot_nb").chmod(0o755)
    env = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}", EXPERIMENT=str(path), PROFILE="smoke", SHARDS="2",
               OUT=str(out), PYTHONPATH=str(Path(__file__).parents[1]))
    sent = subprocess.run(["sbatch", "--wait", "--array=0-1", "--mem=1000", "--time=10", "--export=ALL", str(script)],
                          env=env, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    logs = "".join(p.read_text() for p in sorted(tmp_path.glob("shard-*.log")))
    assert sent.returncode == 0, sent.stderr + logs
    merge_shards([out], tmp_path/"merged")
    rows = experiments.find_experiment(str(path)).results("smoke", "none", tmp_path/"merged").read()
    assert rows.x.tolist() == [1, 2, 3]

def test_the_arrays_of_the_tutorial_evaluate_and_merge(slurm, tmp_path, monkeypatch):
    "An array answers an evaluation into an object store, and a job that waits for it merges: one run's table."
    import contextlib
    import numpy as np, pandas as pd
    from test_shards import moto_server
    import shards_at_scale
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.setenv(name, "any")
    (tmp_path/"settings.ini").touch()
    r, y = np.random.default_rng(0), np.repeat(np.arange(8), 40)
    np.savez(tmp_path/"mine.npz", features=r.normal(size=(8, 12))[y] + 2*r.normal(size=(320, 12)), labels=y)
    asked = "mine.npz --shots 1 --methods nearest-prototype,simpleshot --tasks 60 --queries 15".split()
    (tmp_path/"fewshot_nb").write_text(f'#!/bin/sh\nexec {sys.executable} -m fewshot_nb "$@"\n')
    (tmp_path/"fewshot_nb").chmod(0o755)
    scripts, here = Path(__file__).parents[1]/"nbs/tutorials/cluster", str(Path(__file__).parents[1])
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(shards_at_scale.s3(moto_server())) if moto_server() else str(tmp_path/"store/mine")
        out = out.replace("shards/results", "shards/run/mine")
        env = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}", PYTHONPATH=here, SHARDS="2", OUT=out)
        def send(*words):
            sent = subprocess.run(["sbatch", "--parsable", "--mem=1000", "--time=10", "--export=ALL", *map(str, words)],
                                  env=env, cwd=tmp_path, capture_output=True, text=True, timeout=600)
            assert sent.returncode == 0, sent.stderr
            return sent.stdout.strip()
        array = send("--array=0-1", scripts/"evaluate.sbatch", *asked)
        send("--wait", f"--dependency=afterok:{array}", scripts/"merge.sbatch", *asked)
    logs = "".join(p.read_text() for p in sorted(tmp_path.glob("*.log")))
    print(logs)
    assert logs.count("shard: ") == 2 and "2 shards: " in logs
    subprocess.run([tmp_path/"fewshot_nb", "evaluate", *asked, "--out", "one"], env=env, cwd=tmp_path, check=True)
    merged, one = (pd.read_csv(tmp_path/p/"table.csv").drop(columns="seconds_per_1000")
                   for p in ("runs/evaluate/mine", "one"))
    assert len(one) == 4 and merged.equals(one)
