"Fixtures that every test may use: the shared real data, and a quiet torch."
import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("FEWSHOT_QUIET", "1")
if "PYTEST_XDIST_WORKER" in os.environ: os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side
# the same examples for everyone; `pytest --hypothesis-profile=default` draws new ones
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

@pytest.fixture(scope="session")
def shared() -> Path:
    "The folder with real data, weights and golden results: `FEWSHOT_SHARED`, or `../shared` beside the checkout."
    folder = Path(os.environ.get("FEWSHOT_SHARED") or Path(__file__).resolve().parents[2]/"shared")
    if not (folder/"data").is_dir():
        reason = f"shared data not found: no folder {folder}/data (set FEWSHOT_SHARED)"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return folder

@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    "An empty cache of one's own."
    monkeypatch.setenv("FEWSHOT_CACHE", str(tmp_path/"cache"))
    monkeypatch.delenv("FEWSHOT_DATA", raising=False)
    return tmp_path/"cache"

def pytest_collection_modifyitems(items):
    """The long tests first, so that tests run side by side end together, and what shares Slurm, a tiny experiment or
    the built site in one row: a process that is idle takes tests over from the end."""
    first = ["test_slurm.py", "test_reproduce.py", "test_docs.py"]
    items.sort(key=lambda item: first.index(item.path.name) if item.path.name in first else len(first))
