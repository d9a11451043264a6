"Each method with each of its engines, as parameters of a test."
from dataclasses import replace

import pytest
import torch

from fewshot_nb.bench.inference import engines_of
from fewshot_nb.inference import METHODS, method


def every_engine(steps):
    "Each method with each of its engines, with few steps; methods written once have the one called torch."
    short = dict(steps=steps, grid=8)
    for name in METHODS:
        m = method(name)
        m = replace(m, **{field: min(getattr(m, field), most) for field, most in short.items() if hasattr(m, field)})
        for engine in engines_of(m, torch.device("cpu")):
            yield pytest.param(replace(m, engine=engine) if hasattr(m, "engine") else m, id=f"{name} {engine}")
