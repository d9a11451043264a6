"`fewshot_nb bench` runs every method with every engine, and they predict the same."
import subprocess
import sys

import pandas as pd
import pytest
import torch

from fewshot_nb.bench.training import path_difference
from fewshot_nb.data.glyphs import glyphs
from fewshot_nb.inference import METHODS
from fewshot_nb.inference.base import has_numba
from fewshot_nb.train import compiling

def bench(*args):
    return subprocess.run(
        [sys.executable, "-m", "fewshot_nb", "bench", *args], capture_output=True, text=True, timeout=300)

def check(rows):
    assert set(rows.method) == set(METHODS)
    assert (rows.seconds > 0).all() and (rows.same > .99).all() and (rows.contradicted == 0).all()

def test_quick_on_the_cpu(tmp_path):
    done = bench("inference", "--quick", "--device", "cpu", "--to", str(tmp_path/"rows.parquet"))
    assert done.returncode == 0, done.stderr
    assert "the times mean nothing" in done.stdout and all(name in done.stdout for name in METHODS)
    rows = pd.read_parquet(tmp_path/"rows.parquet")
    check(rows)
    engines = {"plain", "torch"} | ({"numba"} if has_numba() else set())
    for name in ("alpha-tim", "tim", "entropy-min", "pt-map", "laplacianshot"):
        assert set(rows[rows.method == name].engine) == engines
    for name in ("baseline", "baseline++", "tim-adm", "lr+ici", "paddle", "bavardage"):
        assert set(rows[rows.method == name].engine) == engines - {"plain"}
    pytest.importorskip("easyfsl")
    assert rows.groupby("method").peer.first().notna().sum() == 8

@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_quick_on_a_gpu_predicts_what_the_cpu_does(tmp_path):
    done = bench("inference", "--quick", "--device", "cuda", "--to", str(tmp_path/"rows.parquet"))
    assert done.returncode == 0, done.stderr
    check(pd.read_parquet(tmp_path/"rows.parquet"))

def test_a_wrong_name_is_one_sentence():
    done = bench("inferenc")
    assert done.returncode == 1 and done.stderr == "fewshot_nb: Unknown bench 'inferenc': did you mean inference?\n"

def test_the_training_bench_runs(tmp_path):
    done = bench(
        "training", "--quick", "--device", "cpu", "--methods", "vae-stn", "--to", str(tmp_path/"rows.csv"))
    assert done.returncode == 0, done.stderr
    assert "the times mean nothing" in done.stdout and "VAE-STN" in done.stdout
    rows = pd.read_csv(tmp_path/"rows.csv").set_index("path")
    assert list(rows.index) == ["plain", "fast", "batched", "bfloat16"] and set(rows.model) == {"vae-stn"}
    assert (rows.seconds > 0).all() and (rows.operations > 0).all() and rows.quick.all()
    assert rows.difference.fast < 1e-5 < rows.difference.bfloat16 < .2

@pytest.mark.parametrize("model", ["vae-ns", "vae-stn"])
def test_the_compiled_path_is_the_same_training_on_a_cpu(model, monkeypatch):
    "Hot parts are traced as for a compiler, then run as they are written. (A DA-GAN's take a minute: left out.)"
    real, traced = torch.compile, []
    def trace(work, mode=None, dynamic=False):
        traced.append(work)
        return real(work, backend="eager", dynamic=dynamic)
    monkeypatch.setattr(torch, "compile", trace)
    monkeypatch.setattr(compiling, "_uncompilable", lambda kind: "")
    assert path_difference(model, glyphs(28, alphabets=2), 2, "compiled", quick=True) == 0 and traced
    torch._dynamo.reset()

def test_the_protocols_bench_runs(tmp_path):
    done = bench(
        "protocols", "--quick", "--device", "cpu", "--methods", "ours shared,plain DataLoader",
        "--to", str(tmp_path / "rows.csv"))
    assert done.returncode == 0, done.stderr
    rows = pd.read_csv(tmp_path/"rows.csv")
    assert (list(rows.loop) == ["ours shared", "plain DataLoader"] and (rows.times_floor > 0).all()
            and "the times mean nothing" in done.stdout)
