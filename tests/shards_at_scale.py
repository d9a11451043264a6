"""Many shards by several processes that are killed at random, against a folder or an S3-compatible server on this
machine; merged they equal one run to the last bit.

    python tests/shards_at_scale.py --shards 1000 --processes 8 --server /path/to/moto_server

Without --server (moto's, from `pip install "moto[server]"`) the shards go into a folder."""
import argparse, contextlib, os, random, signal, socket, subprocess, sys, tempfile, time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np, pandas as pd

from fewshot_nb.engine.results import Results, same_rows
from fewshot_nb.engine.shards import ShardedGrid, merge_shards, put_shard, packed_dataset, shard_is_done
from fewshot_nb.engine.store import Store

PER_SHARD = 2  # settings

def grid_of(folder, n, shards):
    "The grid, with its rows in a folder of one machine."
    results = Results(Path(folder)/"exp_sums/smoke-numbers", "exp_sums", 1, ["x", "seed", "task"])
    settings = tuple(dict(x=i//4, seed=i % 4) for i in range(PER_SHARD*n))
    return ShardedGrid(results, settings, shards)

TASKS = 32  # of a setting: a row for each

def rows_of(setting):
    "Rows whose last bits would show any confusion; their accuracies are counts of 75 queries, as packs keep them."
    draws = np.random.default_rng([setting["x"], setting["seed"]]).normal(size=(TASKS, 75))
    right = (draws > 0).sum(1)
    return pd.DataFrame(dict(setting, task=range(TASKS), queries=75, accuracy=right/75, mean=draws.mean(1)))

def work_on(store, n, which, of):
    "What one process does: every of-th shard, those that are there left alone."
    store = Store(store)
    for i in range(which, n, of):
        with tempfile.TemporaryDirectory() as machine:
            grid = grid_of(machine, n, n)
            if shard_is_done(grid, store, i): continue
            for s in grid.of(i): grid.results.write(rows_of(s), 0., s)
            put_shard(grid, store, i)

@contextlib.contextmanager
def s3(server):
    "An address on a server of this machine, with a bucket; the server ends with the block."
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, MOTO_PORT=str(port))
    process = subprocess.Popen([server, "-H", "127.0.0.1", "-p", str(port)], env=env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any", AWS_EC2_METADATA_DISABLED="true")
    try:
        end = time.time() + 120
        while time.time() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1): break
            time.sleep(.2)
        import pyarrow.fs as pafs
        where = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        files, _ = pafs.FileSystem.from_uri(f"s3://shards/?{where}&allow_bucket_creation=true")
        files.create_dir("shards")
        yield f"s3://shards/results?{where}"
    finally:
        process.terminate()
        process.wait()

def killed_at_random(start, processes, pause, seed=0):
    "Run `start(i)` for each i, kill one at random after each pause and start it again; how many were killed."
    chance, killed = random.Random(seed), 0
    running = {i: start(i) for i in range(processes)}
    while running:
        time.sleep(chance.uniform(*pause))
        for i in [i for i, p in running.items() if p.poll() is not None]:
            if running[i].returncode not in (0, -signal.SIGKILL): raise SystemExit(f"process {i} failed")
            if running.pop(i).returncode: running[i] = start(i)
        if running and killed < 3*processes:
            i = chance.choice(sorted(running))
            if running[i].poll() is None:
                running[i].kill()
                killed += 1
    return killed

def all_at_once(store, n, processes, pause):
    "Shards, kills, merge, comparison; what was seen, in one sentence."
    words = [sys.executable, __file__, "--worker"]
    where = ["--processes", str(processes), "--shards", str(n), "--store", store]
    def start(i): return subprocess.Popen([*words, str(i), *where])
    began, before = time.perf_counter(), sum(os.times()[2:4])  # seconds of children that have ended
    killed = killed_at_random(start, processes, pause)
    computed, cpu = time.perf_counter() - began, sum(os.times()[2:4]) - before
    with tempfile.TemporaryDirectory() as merged, tempfile.TemporaryDirectory() as alone:
        start = time.process_time()
        merge_shards([store], merged)
        merging = time.process_time() - start
        one = grid_of(alone, n, 1)
        for s in one.settings: one.results.write(rows_of(s), 0., s)
        rows = grid_of(merged, n, n).results.read()
        packs = list(Path(merged).rglob("*.parquet"))
        packed = sum(p.stat().st_size for p in packs)
        assert len(rows) == PER_SHARD*n*TASKS and same_rows(rows, one.results.read()), "merged and alone differ"
    counts = packed_dataset(store).to_table(columns=["correct"])["correct"].to_pylist()
    assert sum(counts) == int((75*rows.accuracy).round().sum())
    return (f"{n} shards by {processes} processes, {killed} killed: {cpu:.0f} cpu-s, {computed:.0f} s; merged in "
            f"{merging:.1f} cpu-s to {len(packs)} {'file' if len(packs) == 1 else 'files'} of {packed:,} bytes; "
            f"{len(rows):,} merged rows equal one run's to the last bit")

def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--shards", type=int, default=1000)
    ask.add_argument("--processes", type=int, default=8)
    ask.add_argument("--server", help="moto_server of some environment")
    ask.add_argument("--store", help=argparse.SUPPRESS)
    ask.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    a = ask.parse_args()
    if a.worker is not None: return work_on(a.store, a.shards, a.worker, a.processes)
    place = s3(a.server) if a.server else tempfile.TemporaryDirectory()
    with place as store: print(all_at_once(str(store), a.shards, a.processes, (1., 6.)))

if __name__ == "__main__": main()
