"Fixtures that every test may use: the shared real data, and a quiet, light torch."
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    "The folder with real data, weights and golden results: `FEWSHOT_SHARED`, or `../shared` beside the checkout."
    folder = Path(os.environ.get("FEWSHOT_SHARED") or Path(__file__).resolve().parents[2]/"shared")
    if not (folder/"data").is_dir():
        pytest.skip(f"shared data not found: no folder {folder}/data (set FEWSHOT_SHARED)")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _quiet():
    os.environ.setdefault("FEWSHOT_QUIET", "1")
