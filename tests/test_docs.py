"The site, rendered without Quarto and looked at in headless Chromium."
import ast
import base64
import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import yaml
from bs4 import BeautifulSoup
from filelock import FileLock
from matplotlib.colors import rgb_to_hsv, to_rgb

import fewshot_nb
from fewshot_nb import plots
from fewshot_nb.plots import COLOURS

root = Path(__file__).resolve().parents[1]

def render_site(copy):
    "Copy the checkout without what it has made, process its notebooks and render them."
    shutil.rmtree(copy, ignore_errors=True)
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

@pytest.fixture(scope="module")
def site(tmp_path_factory):
    "The pages of all notebooks, processed by nbdev and rendered by smalldocs, served on loopback."
    pytest.importorskip("smalldocs")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ: folder = folder.parent  # that of the whole run: one worker builds for all
    copy, built = folder/"docs", folder/"docs.built"
    with FileLock(folder/"docs.lock"):
        if not built.exists(): render_site(copy)
        built.touch()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=copy/"_proc/_docs")
    handler.func.log_message = lambda *args: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", copy/"_proc/_docs"
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

def test_the_extra_notebook_installs_what_notebooks_import():
    "Packages that a cell tries to import, or looks for first, may be absent; so may what `easyfsl` is compared with."
    from configparser import ConfigParser
    config = ConfigParser(delimiters=["="])
    config.read(root/"settings.ini")
    wanted = " ".join(config["DEFAULT"][f"{k}requirements"] for k in ("", "notebook_")).split()
    there = {re.split("[<>=]", w)[0].lower() for w in wanted} | {"ipython", "traitlets", "fewshot_nb", "easyfsl"}
    called = dict(PIL="pillow", sklearn="scikit-learn", yaml="pyyaml", IPython="ipython")
    lacking = set()
    for path in (root/"nbs").rglob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] != "code": continue
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom): names = [node.module]
                for top in {n.split(".")[0] for n in names} - set(sys.stdlib_module_names):
                    if called.get(top, top).lower() not in there: lacking.add(f"{path.name}: {top}")
    assert not lacking, sorted(lacking)

@pytest.mark.parametrize("path", sorted((root/"nbs").rglob("*.ipynb")), ids=lambda p: p.stem)
def test_a_notebook_opens_with_its_title_and_has_no_empty_cell(path):
    "JupyterLab shows no front matter, and a title that is the front matter's."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, front = "".join(cells[0]["source"]), [c for c in cells if c["cell_type"] == "raw"]
    assert cells[0]["cell_type"] == "markdown" and title.startswith("# ")
    for cell in front:
        assert cell["metadata"]["jupyter"]["source_hidden"]
        assert "# " + yaml.safe_load("".join(cell["source"]).strip("-\n"))["title"] == title
    assert all("".join(c["source"]).strip() for c in cells)

@pytest.mark.parametrize("path", sorted((root/"nbs").rglob("*.ipynb")), ids=lambda p: p.stem)
def test_options_of_cells_are_yaml(path):
    "Quarto reads them as YAML: a text with a colon and a space needs quotes, else the whole site is not built."
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        options = re.findall(r"^#\| *([\w-]+: .*)$", "".join(cell["source"]), re.M)
        if cell["cell_type"] != "code" or not options: continue
        try: read = yaml.safe_load("\n".join(options))
        except yaml.YAMLError as error: pytest.fail(f"{path.name} {cell['id']}: {error}")
        for name in "fig-alt", "fig-cap": assert isinstance(read.get(name, ""), str), (path.name, cell["id"], name)

def test_every_figure_has_a_caption_and_is_told_in_words():
    "The caption says how to read it, the alternative text what it shows to whom cannot see it."
    lacking = []
    for path in sorted((root/"nbs").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            pictures = sum("image/png" in o.get("data", {}) for o in cell.get("outputs", ()))
            if not pictures: continue
            if pictures > 1: lacking.append(f"{path.name} {cell['id']}: one caption for {pictures} pictures")
            said = yaml.safe_load("\n".join(re.findall(r"^#\| *([\w-]+: .*)$", "".join(cell["source"]), re.M))) or {}
            lacking += [f"{path.name} {cell['id']}: {n}" for n in ("fig-alt", "fig-cap") if not said.get(n)]
    assert not lacking, lacking

def test_a_method_is_documented_once():
    "nbdev documents what `@patch` adds where it is added: a `show_doc` of it would stand there a second time."
    twice = []
    for path in sorted((root/"nbs/api").glob("*.ipynb")):
        code = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
        sources = ["".join(c["source"]) for c in code]
        added = {(owner, name) for s in sources if "@patch" in s
                 for name, owner in re.findall(r"def (\w+)\(\s*(?:self|cls): (\w+)", s)}
        twice += [(path.stem, *m) for s in sources for m in re.findall(r"show_doc\((\w+)\.(\w+)\)", s) if m in added]
    assert not twice, twice

def test_every_notebook_has_a_page(site):
    _, folder = site
    notebooks = {p.stem for p in (root/"nbs").rglob("*.ipynb") if "results" not in p.parts}
    pages = {p.stem for p in folder.rglob("*.html")}
    assert notebooks <= pages, f"no page for {sorted(notebooks - pages)}"

@pytest.mark.parametrize("page, texts", [
    ("index.html", ["Few-shot learning results", "pip install .", "nbdev_test", "Real data"]),
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
    errors = [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"
              and "favicon" not in e["message"] and "ERR_NAME_NOT_RESOLVED" not in e["message"]]
    assert not errors, errors
    if folder := os.environ.get("FEWSHOT_SCREENSHOTS"): browser.save_screenshot(f"{folder}/{page}.png")

def test_the_site_knows_where_it_lives():
    "Without these the site is built into another folder, and its links to the repository lead nowhere."
    site, ours = (yaml.safe_load((root/f).read_text(encoding="utf-8")) for f in ("nbs/nbdev.yml", "_quarto.yml"))
    assert ours["metadata-files"] == ["nbdev.yml"]
    assert site["project"]["output-dir"] == "_docs"
    assert site["website"]["site-url"].startswith("https://") and site["website"]["repo-url"].startswith("https://")
    for picture in (ours["website"]["favicon"], ours["website"]["open-graph"]["image"]):
        assert (root/"nbs"/picture).is_file(), f"{picture} is not there"

def test_building_the_site_leaves_the_readme_alone():
    ".ci/readme.py makes it; nbdev_docs would write another one over it, were the notebook there that is named."
    from configparser import ConfigParser
    config = ConfigParser(delimiters=["="])
    config.read(root/"settings.ini")
    assert not (root/"nbs"/config["DEFAULT"]["readme_nb"]).exists()

@pytest.mark.parametrize("path", sorted((root/"nbs").rglob("*.ipynb")), ids=lambda p: p.stem)
def test_no_page_weighs_more_than_300_kb(path):
    "Whatever a page shows is in its notebook: `.ci/redraw.py` keeps pictures light, smaller sheets do the rest."
    assert path.stat().st_size <= 300_000, f"{path.name} weighs {path.stat().st_size//1000} KB"

def test_no_rendered_page_weighs_more_than_300_kb(site):
    "With its sidebar and with the pictures inside: `python .ci/redraw.py --lighter NOTEBOOK` gives up colours."
    _, folder = site
    heavy = {p.name: p.stat().st_size for p in folder.rglob("*.html") if p.stat().st_size > 300_000}
    assert not heavy, heavy

# what pandoc turns into MathML, tried word by word and on every formula; of others (\\Bigl) it may show the source
FORMULA_WORDS = set("""
    Big Delta Gamma Lambda Leftrightarrow Omega Phi Pi Pr Psi Rightarrow Sigma Theta Vert Xi alpha approx arg
    ast bar begin beta big binom boldsymbol cap cdot cdots chi circ colon cos cup delta det dfrac dim
    displaystyle dot dots ell end epsilon equiv eta exists exp forall frac gamma gcd ge geq gg hat in inf infty
    int iota kappa lVert lambda land langle lceil ldots le left leftarrow leftrightarrow leq lfloor lim limits
    ll ln log lor lvert mapsto mathbb mathbf mathcal mathit mathrm mathsf max mid min mp mu nabla ne neg neq
    notin nu odot omega operatorname oplus otimes overbrace overleftarrow overline overrightarrow partial perp
    phi pi pm prime prod propto psi qquad quad rVert rangle rceil rfloor rho right rightarrow rvert setminus
    sigma sim simeq sin sqrt subset subseteq sum sup tan tanh tau text textbf textstyle tfrac theta tilde times
    to top underbrace underline varepsilon varphi varrho vartheta vec vert widehat widetilde xi zeta
    """.split())

def formulas_of(text):
    "The formulas in a text of Markdown, code left out."
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
    return re.findall(r"\$\$(.+?)\$\$|(?<![\\$])\$(?=\S)([^$]+?)(?<=\S)\$(?!\d)", text, re.S)

def test_formulas_need_nothing_from_elsewhere():
    "As MathML, which the page itself holds; every word of a formula is one that is translated."
    ours = yaml.safe_load((root/"_quarto.yml").read_text(encoding="utf-8"))
    assert ours["format"]["html"]["html-math-method"] == "mathml"
    found, wrong = 0, []
    for path in sorted((root/"nbs").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] != "markdown": continue
            for shown, inline in formulas_of("".join(cell["source"])):
                formula = shown or inline
                found += 1
                words = set(re.findall(r"\\([A-Za-z]+)", formula)) - FORMULA_WORDS
                doubled = inline and re.search(r"\\\\[A-Za-z]", inline)
                if words or doubled: wrong.append(f"{path.name}: {formula}")
    assert found > 200 and not wrong, wrong

def test_a_wide_formula_scrolls_by_itself():
    sheet = (root/"nbs/styles.css").read_text(encoding="utf-8")
    rule = re.search(r'math\[display="block"\] \{([^}]*)\}', sheet).group(1)
    assert "overflow-x: auto" in rule and "max-width: 100%" in rule

def test_nobody_is_told_to_install_what_no_index_has():
    "`pip install fewshot_nb` finds nothing: a copy of the repository, or a wheel made of it, is installed."
    files = [root/"README.md", *(root/"nbs").glob("*.ipynb"), *(root/"nbs/tutorials").rglob("*.*")]
    install = r"pip install \S?fewshot_nb(?!-[\d.]+-py3)"
    wrong = [f.name for f in files if re.search(install, f.read_text(encoding="utf-8"))]
    assert not wrong, wrong

def test_the_library_begins_at_its_front_door():
    "The navbar opened `core`; the reference of `fs.evaluate` was the last of 160 chapters."
    ours = yaml.safe_load((root/"_quarto.yml").read_text(encoding="utf-8"))["website"]
    library = next(e for e in ours["sidebar"]["contents"] if e.get("section") == "Library")["contents"]
    door = next(e["href"] for e in ours["navbar"]["left"] if e["text"] == "Library")
    text = (root/"nbs"/door).read_text(encoding="utf-8")
    assert library[0]["href"] == door
    assert all(f"`fs.{name}" in text for name in fewshot_nb.__all__)

def pages_of_results():
    "The experiments that belong to a paper."
    ours = yaml.safe_load((root/"_quarto.yml").read_text(encoding="utf-8"))["website"]["sidebar"]["contents"]
    papers = [e for e in ours if e.get("section", "") not in ("", "Start", "Library", "The science of evaluation")]
    return sorted(p for p in sidebar_pages(papers) if p.startswith("exp_"))

def test_tables_have_eight_columns_and_no_nan():
    "On every page, an index counted: `plots.reading_table` says once what all rows share, and writes a dash for a gap."
    wrong = []
    for path in sorted((root/"nbs").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if re.search(r"^#\| *hide$", "".join(cell["source"]), re.M): continue
            for output in cell.get("outputs", ()):
                html = BeautifulSoup("".join(output.get("data", {}).get("text/html", "")), "html.parser")
                for table in html.find_all("table"):
                    widest = max(len(row.find_all(["td", "th"])) for row in table.find_all("tr"))
                    said = {c.text.strip() for c in table.find_all("td")}
                    gaps = said & {"NaN", "nan", "<NA>", "None"}
                    if widest > 8 or gaps: wrong.append((path.stem, cell["id"], widest))
    assert not wrong, wrong

def test_pictures_have_two_pixels_for_each_shown_one():
    "A drawn figure says how wide it is shown: `.ci/redraw.py` keeps twice as many pixels, sharp on fine screens."
    blurred, seen = [], 0
    for path in sorted((root/"nbs").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", ()):
                if "image/png" not in output.get("data", {}): continue
                head = base64.b64decode("".join(output["data"]["image/png"])[:64])
                width, seen = int.from_bytes(head[16:20], "big"), seen + 1
                shown = output["metadata"].get("image/png", {}).get("width", width)
                if width < 1.9*shown: blurred.append(f"{path.stem} {cell['id']}: {width} pixels for {shown}")
    assert seen > 150 and not blurred, blurred

def test_no_heading_repeats_a_name():
    "The reference below a heading is headed by its name already."
    twice = []
    for path in sorted((root/"nbs").rglob("*.ipynb")):
        cells = [(c["cell_type"], "".join(c["source"])) for c in json.loads(path.read_text(encoding="utf-8"))["cells"]]
        names = {name for kind, s in cells if kind == "code" and "#| export" in s
                 for name in re.findall(r"^(?:def|class) (\w+)", s, re.M)}
        heads = [h.strip("` ") for kind, s in cells if kind == "markdown" for h in re.findall(r"^##+ (.*)$", s, re.M)]
        twice += [f"{path.stem}: {h}" for h in heads if h in names]
    assert not twice, twice

def test_an_experiment_begins_with_its_figure():
    "Above the first picture of a page stand its title, links, folded code and one heading."
    late = []
    for path in sorted((root/"nbs").glob("exp_*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        at = [i for i, c in enumerate(cells) for o in c.get("outputs", ()) if "image/png" in o.get("data", {})]
        above = "\n".join("".join(c["source"]) for c in cells[:at[0]] if c["cell_type"] == "markdown") if at else ""
        if not at or len(re.findall("^## ", above, re.M)) > 1: late.append(path.stem)
    assert not late, late

def shown_outputs():
    "(notebook's path, cell's id, output) of every cell that a page shows."
    for path in sorted((root/"nbs").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if re.search(r"^#\| *hide$", "".join(cell["source"]), re.M): continue
            for output in cell.get("outputs", ()): yield path, cell["id"], output

def shown_words(output):
    "What an output says: its table, what it prints, or its value's words; not the code of a reference, no pictures."
    data = output.get("data", {})
    if any(kind.startswith("image/") for kind in data) or "text/markdown" in data: return ""
    if "text/html" in data: return BeautifulSoup("".join(data["text/html"]), "html.parser").get_text(" ")
    return "".join(output.get("text", ())) + "".join(data.get("text/plain", ()))

@functools.cache
def shown_tables():
    "(notebook's stem, cell's id, table) of every table that is not in a form of its own: verdicts, the front door's."
    found = []
    for path, id, output in shown_outputs():
        html = "".join(output.get("data", {}).get("text/html", ""))
        if "<table" not in html or ".35em" in html or "white-space:nowrap" in html: continue
        found += [(path, id, table) for table in BeautifulSoup(html, "html.parser").find_all("table")]
    return found

def columns_of(table):
    "The cells of each column; a cell that reaches over several rows stands in each of them."
    found, reach = [], {}
    for row in table.find("tbody").find_all("tr"):
        cells, line = iter(row.find_all(["td", "th"])), []
        while True:
            if reach.get(len(line), (0, ""))[0]: left, words = reach[len(line)]
            elif (cell := next(cells, None)) is None: break
            else: left, words = int(cell.get("rowspan", 1)), cell.get_text(" ", strip=True)
            reach[len(line)] = (left - 1, words)
            line.append(words)
        found.append(line)
    return list(zip(*found))

def test_a_cell_over_several_rows_counts_in_each():
    rows = "<tr><th rowspan=2>a</th><td>1</td></tr><tr><td>2</td></tr><tr><th>b</th><td>3</td></tr>"
    table = BeautifulSoup(f"<table><tbody>{rows}</tbody></table>", "html.parser")
    assert columns_of(table) == [("a", "a", "b"), ("1", "2", "3")]

def test_no_setting_says_the_same_in_every_row():
    "What all rows share of what was set stands in the caption (`plots.reading_table`); results that agree are results."
    wrong = []
    for path, id, table in shown_tables():
        heads = [h.get_text(" ", strip=True) for h in table.find("thead").find_all("th")]
        wrong += [(path.stem, id, head, column[0]) for head, column in zip(heads, columns_of(table))
                  if len(column) > 2 and len(set(column)) == 1 and plots._is_setting(head, column[0])]
    assert not wrong, wrong

def test_heads_of_results_are_words_with_units():
    "An identifier is no head, and a share, an error or a time says in what, in its head or in the caption."
    bare = {"accuracy", "error", "recognizability", "ece", "ECE", "loss", "seconds", "train", "test", "spread"}
    wrong = []
    for path, id, table in shown_tables():
        if path.parent.name == "api": continue
        caption = table.find("caption").get_text() if table.find("caption") else ""
        heads = [h.get_text(" ", strip=True) for h in table.find("thead").find_all("th")]
        said = re.search(r"in %|in points|[Pp]oints|[Ss]hares of 1", caption)
        wrong += [(path.stem, id, h) for h in heads if re.search(r"\w_\w", h) or h in bare and not said]
    assert not wrong, wrong

NOISE = re.compile(r"np\.\w+\(|/tmp/|object at 0x|PosixPath\(|\d\.\d{9,}|ipykernel_\d")

def test_no_output_is_noise():
    "A person wants the number, not its type; and no page knows the folders of the machine that made it."
    by_hand = {"own_critics"}  # a training of its own, which nobody repeats for its words
    wrong = [(path.stem, id, found[0]) for path, id, output in shown_outputs()
             if path.stem not in by_hand and (found := NOISE.search(shown_words(output)))]
    assert not wrong, wrong

def test_cells_of_tables_are_short_and_whole():
    "Six digits behind the point tell nobody more than four; three dots hide the end of a cell."
    wrong = [(path.stem, id, cell) for path, id, table in shown_tables()
             for cell in (c.get_text(" ", strip=True) for c in table.find_all("td"))
             if re.fullmatch(r"[-+]?\d*\.\d{6,}|.*\.\.\.", cell) and not re.fullmatch(r"0\.0+\d\d?\d?", cell)]
    assert not wrong, wrong

def test_no_shown_output_is_a_warning():
    "Nor does it name a file of the kernel that executed the cell."
    wrong = []
    for path in sorted((root/"nbs").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            said = "".join("".join(o.get("text", ())) for o in cell.get("outputs", ()))
            hidden = re.search(r"^#\| *hide$", "".join(cell["source"]), re.M)
            if not hidden and re.search(r"ipykernel_|\w*Warning:", said): wrong.append((path.stem, cell["id"]))
    assert not wrong, wrong

def test_experiment_pages_fold_their_code():
    "A page of results is read for its figures; whoever wants the code opens it."
    for page in pages_of_results():
        for cell in json.loads((root/"nbs"/page).read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            folded = re.search(r"^#\| (code-fold: true|echo: false|hide)", source, re.M)
            assert cell["cell_type"] != "code" or folded, source

def named_profiles(source):
    "The profiles that the comment of `profile: str = ...` names, on its line or those right above; what is said last."
    found = re.search(r"^((?:#(?!\|).*\n)*)profile: str = \S+ *(#.*)?$", source, re.M)
    said = " ".join(line.lstrip("# ") for line in [*found[1].splitlines(), found[2] or ""]).strip()
    names, _, last = said.removeprefix("a row of settings: ").partition("; ")
    return sorted(re.sub(r" \(.*\)", "", names).split(", ")), last

def test_what_is_a_named_profile():
    beside = '#| x: y\nprofile: str = "a"  # b, a (see below); or committed'
    above = '# a row of settings: b,\n# a; committed: c\nprofile: str = "a"'
    assert named_profiles(beside) == (["a", "b"], "or committed")
    assert named_profiles(above) == (["a", "b"], "committed: c")
    assert named_profiles('profile: str = "a"\nseed: int = 0  # b; or committed') == ([""], "")

@pytest.mark.parametrize("path", sorted((root/"nbs").glob("exp_*.ipynb")), ids=lambda p: p.stem)
def test_the_comment_of_a_profile_names_all_of_them(path):
    "Those of the front matter and no other, and that the committed rows can be shown."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    front, = [yaml.safe_load("".join(c["source"]).strip("-\n")) for c in cells if c["cell_type"] == "raw"]
    source, = ["".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", ())]
    names, last = named_profiles(source)
    assert names == sorted(front["profiles"]) and re.match("(or )?committed", last), (
        f"the comment of profile: {', '.join(front['profiles'])}; or committed")

def test_experiment_pages_say_how_they_were_made():
    "By code, from the committed rows: profile, data, seeds, day, machine, command."
    for path in sorted((root/"nbs").glob("exp_*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        said = [c for c in cells if c["cell_type"] == "code" and "exp.made()" in "".join(c["source"])]
        assert len(said) == 1, f"{path.name}: one cell calls exp.made()"
        if not (root/"nbs/results"/path.stem).is_dir(): continue
        shown = "".join("".join(o["data"].get("text/html", "")) for o in said[0]["outputs"])
        assert f"fewshot_nb run {path.stem} --profile" in shown, f"{path.name}: python .ci/redraw.py nbs/{path.name}"

def shown_expression(source):
    "The expression at the end of a cell whose value a notebook shows; None where there is none, or it says nothing."
    if source.rstrip().endswith(";") or re.search(r"^#\| *(export|hide$|eval: *false)", source, re.M): return None
    lines = source.splitlines()
    body = ast.parse("\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)).body
    if not body or not isinstance(body[-1], ast.Expr): return None
    text = ast.unparse(body[-1].value)
    silent = r"(test_\w+|show_doc|refuse_\w+|np\.save\w*|\w+\.(append|update|train|eval|write|export|close|mkdir))\("
    return None if re.match(silent, text) else text

def test_what_is_a_shown_expression():
    assert shown_expression("a = 1\na + 1") == "a + 1" and shown_expression("print(1)") == "print(1)"
    assert shown_expression("plot(a);") is None and shown_expression("test_eq(1, 1)") is None
    assert shown_expression("#| hide\na") is None and shown_expression("#| eval: false\na") is None

def test_what_a_notebook_shows_is_there():
    "In a notebook that is committed with outputs: whoever adds a cell executes it (`python .ci/redraw.py NOTEBOOK`)."
    empty = []
    for path in sorted((root/"nbs").rglob("*.ipynb")):
        cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
        if not any(c["outputs"] for c in cells): continue
        found = [(c, shown_expression("".join(c["source"]))) for c in cells if not c["outputs"]]
        empty += [f"{path.relative_to(root)} {c['id']}: {text[:60]}" for c, text in found if text]
    assert not empty, "\n".join(empty)

@pytest.mark.parametrize("path", sorted((root/"nbs/tutorials").glob("*.ipynb")), ids=lambda p: p.stem)
def test_what_a_tutorial_shows_can_be_copied(path):
    "The visible cells name nothing that only a hidden one brings."
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    seen = [code for c in cells if "#| hide" not in (code := "".join(c["source"]))]
    rule = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise", "-"]
    done = subprocess.run(rule, input="\n".join(seen), capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr

def test_results_and_chapters_link_to_each_other():
    "A chapter says which results use it, and each of these says so too."
    for path in sorted((root/"nbs").glob("exp_*.ipynb")):
        text = path.read_text(encoding="utf-8")
        for line in re.findall(r"Read on: .*", text):
            assert "claims.ipynb" in line
            for chapter in re.findall(r"\]\((api/\w+\.ipynb)\)", line):
                there = (root/"nbs"/chapter).read_text(encoding="utf-8")
                said = [used for used in re.findall(r"Used in: .*", there) if f"(../{path.name})" in used]
                assert said, f"{chapter} does not say that {path.stem} uses it"

def test_themes_take_no_fonts_from_elsewhere(site):
    _, folder = site
    for sheet in [*folder.rglob("*.css")]:
        assert not re.search(r"(@import|url\()[^;]{0,20}https?:", sheet.read_text(encoding="utf-8")), sheet.name

def test_badges_on_the_front_page_are_true():
    from configparser import ConfigParser
    from fewshot_nb.claims.overview import headline_counts
    from fewshot_nb.claims.report import ledger
    from fewshot_nb.papers import PAPERS
    config = ConfigParser(delimiters=["="])
    config.read(root/"settings.ini")
    cells = json.loads((root/"nbs/index.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = "".join("".join(o["data"].get("text/markdown", "")) for c in cells for o in c.get("outputs", []))
    badges = dict(re.findall(r"!\[(\w+): ([^]]*)\]\(images/badge-\w+\.svg\)", shown))
    found = headline_counts(r for paper in PAPERS for r in ledger(paper).to_dict("records"))
    assert badges["python"] == f"{config['DEFAULT']['min_python']} or later"
    assert badges["license"] == "Apache-2.0" and config["DEFAULT"]["license"] == "apache2"
    assert badges["claims"] == f"{found['hold']} hold, {found['do not']} do not, {found['open']} open"
    for name, says in badges.items():
        assert f'aria-label="{name}: {says}"' in (root/f"nbs/images/badge-{name}.svg").read_text(encoding="utf-8")

def sidebar_pages(contents):
    "Every page that a sidebar names, globs resolved."
    for entry in contents:
        if "href" in entry: yield entry["href"]
        elif isinstance(entry.get("contents"), str):
            yield from sorted(str(p.relative_to(root/"nbs")) for p in (root/"nbs").glob(entry["contents"]))
        else: yield from sidebar_pages(entry["contents"])

def test_the_sidebar_names_every_page_once():
    ours = yaml.safe_load((root/"_quarto.yml").read_text(encoding="utf-8"))
    named = [p for p in sidebar_pages(ours["website"]["sidebar"]["contents"]) if "://" not in p]
    there = {str(p.relative_to(root/"nbs")) for p in (root/"nbs").rglob("*.ipynb") if "results" not in p.parts}
    assert len(named) == len(set(named)), sorted(p for p in named if named.count(p) > 1)
    assert set(named) == there, f"missing: {sorted(there - set(named))}; not there: {sorted(set(named) - there)}"

def pictures_in(notebook):
    "The PNG outputs of a notebook, in bytes."
    cells = json.loads((root/"nbs"/notebook).read_text(encoding="utf-8"))["cells"]
    drawn = (o["data"]["image/png"] for c in cells for o in c.get("outputs", ()) if "image/png" in o.get("data", {}))
    return [base64.b64decode("".join(d)) for d in drawn]

def test_the_gallery_shows_every_figure():
    "It is made from the notebooks' outputs: whoever redraws a page executes it again."
    text, wanted = (root/"nbs/gallery.ipynb").read_text(encoding="utf-8"), set()
    pages = sorted(
        [
            *(root / "nbs").glob("exp_*.ipynb"), root / "nbs/own_critics.ipynb",
            root / "nbs/glyphs_beside_omniglot.ipynb"]
    )
    for page in pages:
        shown, there = text.count(f"{page.stem}.ipynb#"), pictures_in(page)
        files = {f"images/gallery/{page.stem}-{hashlib.sha256(picture).hexdigest()[:8]}.avif" for picture in there}
        missing = {f for f in files if f not in text or not (root/"nbs"/f).is_file()}
        assert shown == len(there) and not missing, (
            f"{page.stem} holds {len(there)} figures, the gallery {shown}, {missing}: execute nbs/gallery.ipynb again")
        wanted |= files
    kept = {f"images/gallery/{f.name}" for f in (root/"nbs/images/gallery").iterdir()}
    assert kept == wanted, kept ^ wanted

def test_every_link_inside_the_site_leads_somewhere(site):
    _, folder = site
    pages = {p: BeautifulSoup(p.read_text(encoding="utf-8"), "html.parser") for p in folder.rglob("*.html")}
    anchors = {p: {e["id"] for e in page.find_all(id=True)} for p, page in pages.items()}
    broken = []
    for path, page in pages.items():
        for link in page.find_all("a", href=True):
            target, _, anchor = link["href"].partition("#")
            if "://" in target or target.startswith(("mailto:", "data:", "javascript:")): continue
            place = (path.parent/target).resolve() if target else path
            if place.is_dir(): place = place/"index.html"
            if not place.exists() or anchor and place in anchors and anchor not in anchors[place]:
                broken.append(f"{path.relative_to(folder)}: {link['href']}")
    assert not broken, "\n".join(sorted(set(broken))[:40])

def test_prose_names_nothing_private_in_backticks():
    "nbdev makes such a name a link to an anchor that no page has."
    from fewshot_nb._modidx import d
    names = {name.split(".")[-1] for module in d["syms"].values() for name in module}
    wrong = []
    for path in sorted((root/"nbs").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] != "markdown": continue
            said = set(re.findall(r"`(_[a-z]\w*)`", "".join(cell["source"]))) & names
            if said: wrong.append((path.stem, said))
    assert not wrong, wrong

def test_a_link_has_no_words_that_nbdev_links():
    "nbdev links names in backticks; inside the words of a link that leaves a link in a link, which is no Markdown."
    from fewshot_nb._modidx import d
    names, nested = {name.rpartition(".")[2] for module in d["syms"].values() for name in module}, []
    for path in (root/"nbs").rglob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] != "markdown": continue
            said = re.findall(r"\[[^]]*`(\w+)`[^]]*\]\(", "".join(cell["source"]))
            nested += [f"{path.relative_to(root)} {cell['id']}: {name}" for name in said if name in names]
    assert not nested, "\n".join(nested)

def test_code_holds_no_links_and_a_page_says_how_to_open_it(site):
    _, folder = site
    wrong = []
    for path in sorted(folder.rglob("*.html")):
        page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        code = "\n".join(block.text for block in page.find_all("pre"))
        if re.search(r"\]\(\S+\.html", code): wrong.append(f"{path.name}: a link inside code")
        if any(not image.get("alt", "").strip() for image in page.find_all("img")): wrong.append(f"{path.name}: no alt")
        if "jupyter lab nbs/" not in page.text: wrong.append(f"{path.name}: no command that opens it")
    assert not wrong, "\n".join(wrong)

def test_search_finds_both_spellings(site, browser):
    "People write alpha-TIM, programs alpha_tim: both find a page in common among the first five."
    browser.get(f"{site[0]}/index.html")
    found = """const done = arguments[arguments.length - 1]
               fetch("search.json").then(r => r.json()).then(pages => {
                 const fuse = new Fuse(pages, {keys: ["title", "section", "text"], ignoreLocation: true, threshold: .1})
                 const first = w => fuse.search(w).slice(0, 5).map(r => r.item.href.split("#")[0])
                 done(["alpha-TIM", "alpha_tim"].map(first)) })"""
    people, programs = browser.execute_async_script(found)
    assert set(people) & set(programs), (people, programs)

@pytest.fixture
def phone(browser):
    "The browser as a phone of 390 x 844."
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", dict(width=390, height=844, deviceScaleFactor=1, mobile=True))
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

def lighten_module():
    "nbs/lighten.py, which belongs to no package."
    from importlib import util
    spec = util.spec_from_file_location("lighten", root/"nbs/lighten.py")
    spec.loader.exec_module(module := util.module_from_spec(spec))
    return module

def test_the_search_box_knows_every_spelling_and_no_tex():
    "What Quarto's box searches is changed after rendering: a name is found as people write it and as programs do."
    module, blank = lighten_module(), dict(href="", section="")
    entries = [dict(blank, title="losses", text="TIM and alpha-TIM"), dict(blank, title="papers", text="alpha_tim"),
               dict(blank, title="inference", text="AlphaTIM(alpha=7)"), dict(blank, title="core", text="a-b a_b")]
    found = module.every_spelling(entries)
    for e in found[:3]:
        for name in ("alpha-tim", "alpha_tim", "alphatim", "alpha tim"): assert name in e["text"].lower(), e
    assert found[3] == entries[3]  # too short for a name
    page = "<math>x<annotation encoding=t>\\alpha &gt; 1</annotation></math>"
    assert module.without_tex("α > 1\\alpha > 1 holds", page) == "α > 1 holds"

def test_pages_ask_nobody_else_for_a_script(tmp_path):
    "Quarto adds two to each notebook with a table; what it runs after rendering takes them out, and HTML's spare ends."
    ours = yaml.safe_load((root/"_quarto.yml").read_text(encoding="utf-8"))
    assert ours["project"]["post-render"] == "python3 lighten"  # the name under which nbdev copies lighten.py
    module = lighten_module()
    code = "<pre>a\n    b</dt></pre>"
    page = ('<script src="https://cdnjs.cloudflare.com/r.js" integrity="x"></script>\n'
            "<script type=\"application/javascript\">define('jquery', [],function() {return 1})</script>\n"
            f"<dl>\n  <dt>why</dt>\n  <dd>so</dd></dl>{code}<script>own\n  ()</script>")
    assert module.lighter(page) == f"<dl>\n<dt>why\n<dd>so</dl>{code}<script>own\n()</script>"
    drawn, logo = '<img src="x/1.png" alt="y" class="figure-img">', '<img src="logo.svg" alt="y" class="navbar-logo">'
    assert module.lighter(drawn + logo) == f'<a class="full" href="x/1.png">{drawn}</a>{logo}'
    printed = '<div class="cell-output cell-output-stdout{}">\n<pre><code>{}</code>'
    for text, way in (("3 rows: all there", " said"), ("a   b\n1   2", "")):
        assert module.lighter(printed.format("", text)) == printed.format(way, text)
    line = '<pre><span id="cb1-1">{}x </span></pre><ul><li>a{}</ul>'
    spare = '<a href="#cb1-1" aria-hidden="true" tabindex="-1"></a>', "</li>"
    assert module.lighter(line.format(*spare)) == line.format("", "")
    assert module.lighter("<code>run a-b --data-in X</code>") == (
        '<code>run a-b <span class="option">--data-in</span> X</code>')
    verdict = '<a href="./claims.html#p_q-V1" id="p_q-V1">V1</a>'
    assert module.lighter(f"<p>falls (V1, V2)</p>{verdict}") == f'<p>falls (<a href="#p_q-V1">V1</a>, V2)</p>{verdict}'
    formula = "<p>x <math><mtext>(V1)</mtext></math> y</p>"
    assert module.lighter(formula + verdict) == formula + verdict
    assert module.lighter("<td>fewshot_nb run a --profile b</td>") == (
        '<td>fewshot_nb run a <span class="option">--profile</span> b</td>')
    two = "x</code></pre></div>\n<p><em>What it is<code>n</code>, first</em> line and second{}.</p>"
    assert module.lighter(two.format("")) == two.replace("</em>", "").replace("{}.", ".</em>")
    assert module.lighter(two.format(" <em>x</em>")) == two.format(" <em>x</em>")
    assert module.lighter('<h1 class="title">exp_beta: who') == '<h1 class="title">Who'
    foot = '<span class="nav-page-text">{}</span>'
    assert module.lighter(foot.format("studies.generator_claims")) == foot.format("studies.<wbr>generator_<wbr>claims")
    name = '<span class="menu-text">{}</span>'  # a chapter in the sidebar, under its folder
    assert module.lighter(name.format("inference.kernels.common")) == name.format("kernels.common")
    assert module.lighter(name.format("Who draws as people do")) == name.format("Who draws as people do")
    home = "https://here.io/book"
    link, card = f'<a href="{home}/api/core.html#rng">', f'<meta content="{home}/api/images/card.png">'
    card_said = '<meta content="https://here.io/book/images/card.png">'
    assert module.lighter(link + card, home, "../", tmp_path) == link + card_said  # no such page beside
    (tmp_path/"api").mkdir()
    (tmp_path/"api/core.html").touch()
    assert module.lighter(link + card, home, "../", tmp_path) == '<a href="../api/core.html#rng">' + card_said
    assert module.home_of(root/"nbs").startswith("https://") and module.home_of(root/"tests") == ""

def test_no_page_is_wider_than_a_phone(site, phone):
    "All pages of results and tutorials, and every third chapter; what is wide scrolls by itself."
    address, folder = site
    chapters = sorted((folder/"api").glob("*.html"))[::3]
    wide = {}
    for path in [*sorted(folder.glob("*.html")), *sorted((folder/"tutorials").glob("*.html")), *chapters]:
        phone.get(f"{address}/{path.relative_to(folder)}")
        width = phone.execute_script("return document.documentElement.scrollWidth")
        if width != 390: wide[path.name] = width
    assert not wide, wide

def test_the_claims_fill_at_most_five_screens_of_a_phone(site, phone):
    phone.get(f"{site[0]}/claims.html")
    size = "return [document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
    height, width = phone.execute_script(size)
    assert height <= 5*844 and width == 390
    if folder := os.environ.get("FEWSHOT_SCREENSHOTS"): phone.save_screenshot(f"{folder}/claims-phone.png")

def test_claims_are_found_and_opened(site, browser):
    "The filter shows what was asked for; a link opens the folded row that it names."
    shown = "return [...document.querySelectorAll('.cl-row')].filter(r => r.checkVisibility()).map(r => r.dataset.kind)"
    browser.get(f"{site[0]}/claims.html")
    assert browser.execute_script(shown) == []
    choose = """const field = document.querySelectorAll('.cl-filter select')[1]
                field.value = arguments[0]; field.dispatchEvent(new Event('input', {bubbles: true}))"""
    browser.execute_script(choose, "parity")
    kinds = browser.execute_script(shown)
    said = browser.find_element("css selector", ".cl-filter output").text
    assert set(kinds) == {"parity"} and said.startswith(f"{len(kinds)} of ")
    browser.execute_script(choose, "")
    assert browser.execute_script(shown) == []
    word = """const field = document.querySelector('.cl-filter input')
              field.value = arguments[0]; field.dispatchEvent(new Event('input', {bubbles: true}))"""
    browser.execute_script(word, "PT-MAP drops by more than 18 points")
    papers = "return [...document.querySelectorAll('.cl-paper')].filter(p => p.checkVisibility()).map(p => p.id)"
    assert browser.execute_script(papers) == ["alpha_tim"]  # no heading of another paper stands between
    assert browser.execute_script("return document.querySelector('.cl-row[open]').checkVisibility()")
    browser.execute_script(word, "")
    name = browser.execute_script("return document.querySelector('.cl-row').id")
    browser.get(f"{site[0]}/claims.html#{name}")
    browser.refresh()
    assert browser.execute_script("return document.getElementById(arguments[0]).open", name)

def dark(colour, degrees, brightness, saturation):
    "What the filter of dark pages makes of a colour (Filter Effects, section 8), before it is laid over the page."
    weights, blue_yellow = np.array([.213, .715, .072]), np.array([[-.213, -.715, .928], [.143, .140, -.283],
                                                                   [-.787, .715, .072]])
    grey, c, s = np.tile(weights, (3, 1)), np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    turned = np.clip((grey + c*(np.eye(3) - grey) + s*blue_yellow) @ (1 - np.array(colour)), 0, 1)
    lit = np.clip(brightness*turned, 0, 1)
    return np.clip((grey + saturation*(np.eye(3) - grey)) @ lit, 0, 1)

def test_a_colour_keeps_its_hue_on_a_dark_page():
    "PT-MAP's red and TIM's orange had changed places there."
    css = (root/"nbs/styles.css").read_text(encoding="utf-8")
    found = re.search(r"hue-rotate\((\d+)deg\) brightness\(([\d.]+)\) saturate\(([\d.]+)\)", css)
    how = [float(v) for v in found.groups()]
    named = {name: to_rgb(COLOURS[name]) for name in ("blue", "orange", "green", "vermillion", "sky", "purple")}
    hues = {name: (rgb_to_hsv(c)[0]*360, rgb_to_hsv(dark(c, *how))[0]*360) for name, c in named.items()}
    assert max(abs((a - b + 180) % 360 - 180) for a, b in hues.values()) < 15, hues
    assert hues["vermillion"][1] < hues["orange"][1] - 5

def contrast(one, other):
    "Of two colours, as WCAG 2 has it."
    def luminance(colour):
        c = np.array(to_rgb(colour))
        return np.where(c <= .04045, c/12.92, ((c + .055)/1.055)**2.4) @ [.2126, .7152, .0722]
    low, high = sorted((luminance(one), luminance(other)))
    return (high + .05)/(low + .05)

def test_verdicts_stand_out_on_a_dark_page():
    "By 3 to 1 from the ground; numerals on them by 4.5, but for *not tried*, which is no filled box."
    from fewshot_nb.claims.judge import VERDICT_COLOURS
    css = (root/"nbs/styles.css").read_text(encoding="utf-8")
    lit = dict(re.findall(r'\[style\*="(#\w+)"\] \{ --lit: (#\w+); \}', css))
    for verdict, colour in VERDICT_COLOURS.items():
        assert contrast(lit[colour], "#272b30") >= 3, verdict
        assert verdict == "not tried" or contrast(lit[colour], "white") >= 4.5, verdict
