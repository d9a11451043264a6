"The site, rendered without Quarto and looked at in headless Chromium."
import ast
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

root = Path(__file__).resolve().parents[1]

@pytest.fixture(scope="module")
def site(tmp_path_factory):
    "The pages of all notebooks, processed by nbdev and rendered by smalldocs, served on loopback."
    pytest.importorskip("smalldocs")
    copy = tmp_path_factory.mktemp("docs")/"checkout"
    shutil.copytree(
        root, copy, symlinks=True,
        ignore=shutil.ignore_patterns(".git", ".venv", "runs", "_proc", "_docs", "build", "__pycache__"))
    env = {**os.environ, "PYTHONPATH": str(copy), "FEWSHOT_QUIET": "1"}
    subprocess.run(
        [sys.executable, "-c", "from nbdev.serve import proc_nbs; proc_nbs()"], cwd=copy, env=env,
        check=True, stdout=subprocess.DEVNULL)
    subprocess.run(
        [Path(sys.executable).with_name("smalldocs"), "render", "_proc"], cwd=copy, env=env,
        check=True, capture_output=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=copy/"_proc/_site")
    handler.func.log_message = lambda *args: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", copy/"_proc/_site"
    server.shutdown()

@pytest.fixture(scope="module")
def browser():
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        reason = "no chromium with chromedriver on the path: apt-get install chromium chromium-driver"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    from selenium import webdriver
    options = webdriver.ChromeOptions()
    for flag in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-dev-shm-usage", "--window-size=1200,2400"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()

@pytest.mark.parametrize("path", sorted((root/"nbs").rglob("*.ipynb")), ids=lambda p: p.stem)
def test_example_cells_import_nothing_beside_other_code(path):
    "Building the site executes every cell that imports, and its other lines then miss what was not executed before."
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "#| export" in source: continue
        kinds = {isinstance(n, (ast.Import, ast.ImportFrom)) for n in ast.parse(source).body}
        assert len(kinds) < 2, f"imports need a cell of their own:\n{source}"

def test_every_notebook_has_a_page(site):
    _, folder = site
    notebooks = {p.stem for p in (root/"nbs").rglob("*.ipynb") if "results" not in p.parts}
    pages = {p.stem for p in folder.rglob("*.html")}
    assert notebooks <= pages, f"no page for {sorted(notebooks - pages)}"

@pytest.mark.parametrize("page, texts", [
    ("index.html", ["Few-shot learning results", "pip install .", "nbdev_test", "Real Omniglot"]),
    ("exp_beta.html", ["recognizab", "Fig. 4b", "claims"])])
def test_page(site, browser, page, texts):
    address, _ = site
    browser.get_log("browser")
    browser.get(f"{address}/{page}")
    text = browser.find_element("tag name", "body").text
    for t in texts: assert t.lower() in text.lower(), f"{t!r} is not on {page}"
    images = browser.execute_script(
        "return [...document.images].map(i => [i.src.slice(0, 80), i.complete && i.naturalWidth > 0])")
    assert images and all(ok for _, ok in images), f"missing images on {page}: {[s for s, ok in images if not ok]}"
    # the renderer's fonts and formula script come from other hosts, which a machine without a network cannot reach
    errors = [
        e["message"]
        for e in browser.get_log("browser")
        if e["level"] == "SEVERE"
        and "favicon" not in e["message"]
        and "ERR_NAME_NOT_RESOLVED" not in e["message"]
    ]
    assert not errors, errors
    if folder := os.environ.get("FEWSHOT_SCREENSHOTS"): browser.save_screenshot(f"{folder}/{page}.png")
