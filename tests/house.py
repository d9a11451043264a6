"""The plan of the house, read from the notebooks and the package: who imports whom, and what breaks the rules.

`python tests/house.py` counts; `--list` names every fault; `--draw FILE.png` draws folders, chapters and imports.
"""
import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT/"fewshot_nb"
WIDEST, LONGEST, TOP = 120, 25, 18  # characters of a line, lines of an export cell, entries at the top of the package
DATA = ("banks", "papers", "splits", "weights", "_nbs")  # folders of data beside the modules

def cells_of(path):
    "Sources of the code cells of a notebook."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]

def chapters():
    "`{module: (number, path, sources of the code cells)}` of the library, in reading order."
    found = {}
    for path in sorted((ROOT/"nbs/api").glob("*.ipynb")):
        sources = cells_of(path)
        module = next((m[1] for s in sources if (m := re.search(r"^#\| default_exp (\S+)", s, re.M))), path.stem)
        found[module.removesuffix(".__init__")] = int(path.stem.split("_")[0]), path, sources
    return found

def trees():
    "`{module: syntax tree}` of the exported package."
    files = [p for p in PACKAGE.rglob("*.py") if p.name not in ("_modidx.py", "__main__.py")]
    name = lambda p: ".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").strip(".")
    return {name(p): (p, ast.parse(p.read_text(encoding="utf-8"))) for p in sorted(files)}

def imported(tree, module, package, known):
    "The modules of the library that a syntax tree imports, inside functions too."
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.startswith("fewshot_nb.")]
            found |= {n.removeprefix("fewshot_nb.") for n in names}
        if not isinstance(node, ast.ImportFrom): continue
        base = (node.module or "").split(".") if node.module else []
        if node.level:
            base = (module.split(".") if package else module.split(".")[:-1])[
                : None if node.level == 1 else 1 - node.level] + base
        elif base[:1] == ["fewshot_nb"]: base = base[1:]
        else: continue
        for alias in node.names:
            full = ".".join([*base, alias.name])
            found.add(full if full in known else ".".join(base))
    return {f for f in found if f in known and f and f != module}

def arrows():
    "`{module: modules that it imports}` of the exported package."
    known = trees()
    return {m: imported(t, m, p.name == "__init__.py", known) for m, (p, t) in known.items() if m}

def public():
    "`{module: names in its __all__}`."
    found = {}
    for module, (_, tree) in trees().items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                found[module] = [e.value for e in node.value.elts]
    return found

def _python(source):
    "The syntax tree of a cell without magics; an empty one where that is no Python."
    text = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
    try: return ast.parse(text)
    except SyntaxError: return ast.parse("")

def numbers_twice():
    "Chapters that share a number."
    seen = defaultdict(list)
    for module, (number, path, _) in chapters().items(): seen[number].append(path.name)
    return [f"{n}: {', '.join(names)}" for n, names in seen.items() if len(names) > 1]

def misnamed():
    "Chapters whose file is not called by their number and module."
    return [f"{path.name} holds {module}" for module, (_, path, _) in chapters().items()
            if path.stem.split("_", 1)[1] != module.replace(".", "_")]

def later():
    "Chapters that import a later one, in any cell."
    book, faults = chapters(), []
    for module, (number, path, sources) in book.items():
        used = set().union(*[imported(_python(s), module, False, book) for s in sources])
        faults += [f"{path.name} imports the later {book[u][1].stem}" for u in sorted(used) if book[u][0] > number]
    return faults

def circles():
    "A circle of imports in the package, if there is one."
    try: TopologicalSorter(arrows()).prepare()
    except CycleError as e: return [" -> ".join(e.args[1])]
    return []

def crowded():
    "The entries at the top of the package, where there are too many."
    top = sorted(p.name for p in PACKAGE.iterdir() if not p.name.startswith("_") and p.name not in DATA)
    return top if len(top) > TOP else []

def shared_names():
    "Public names that stand in two or more modules."
    where = defaultdict(list)
    for module, names in public().items():
        for name in names: where[name].append(module)
    return [f"{name}: {', '.join(m)}" for name, m in sorted(where.items()) if len(m) > 1]

def exported_methods():
    "Functions in `__all__` whose first argument is `self`, and methods that are set from outside (`Class.f = f`)."
    names, faults = public(), []
    for module, (_, tree) in trees().items():
        for node in tree.body:
            first = isinstance(node, ast.FunctionDef) and node.args.args[:1]
            if first and first[0].arg == "self" and node.name in names.get(module, []):
                faults.append(f"{module}.{node.name}")
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Attribute): faults.append(f"{module}: {ast.unparse(node)[:60]}")
    return faults

def _texts():
    "`(name, text)` of all Python that people read: code cells, tests, scripts."
    for path in sorted((ROOT/"nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts: continue
        for i, source in enumerate(cells_of(path)): yield f"{path.relative_to(ROOT)} code cell {i}", source
    for path in [*sorted((ROOT/"tests").glob("*.py")), *sorted((ROOT/".ci").glob("*.py")), ROOT/"setup.py"]:
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")

def wide():
    "Lines of code over the widest."
    return [f"{name}: {len(line)} characters: {line.strip()[:50]}..." for name, text in _texts()
            for line in text.splitlines() if len(line) > WIDEST]

def _comments(source):
    "Numbers of the lines that end with a comment; the text is Python."
    tokens = tokenize.generate_tokens(io.StringIO(source + "\n").readline)
    return {t.start[0] for t in tokens if t.type == tokenize.COMMENT}

def documented(source):
    """Numbers of the lines on which a parameter, a field of a dataclass or an option of a command stands with what it
    means: a comment, or the option's help."""
    tree = _python(source)
    noted, found = _comments(source) if tree.body else set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            inside = range(node.lineno + 1, node.body[0].lineno)
            helped = [a.annotation for a in [*node.args.args, *node.args.kwonlyargs]
                      if a.annotation is not None and "help=" in ast.unparse(a.annotation)]
            found |= noted & set(inside)
            found |= {n for a in helped for n in range(a.lineno, a.end_lineno + 1)} & set(inside)
        elif isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
            found |= noted & {n for f in fields for n in range(f.lineno, f.end_lineno + 1)}
    return found

def length(source):
    "Lines of an export cell, without its directives, blank ones, the excuse and what parameters mean."
    told, aside = documented(source), ("#|", "# long: ")
    return sum(i not in told and bool(line.strip()) and not line.lstrip().startswith(aside)
               for i, line in enumerate(source.splitlines(), 1))

def _export_cells():
    "`(name of the notebook, length, whether it is excused, its first line of code)` of each export cell."
    for _, path, sources in chapters().values():
        for source in sources:
            if "#| export" not in source: continue
            code = [line for line in source.splitlines() if line.strip() and not line.startswith(("#|", "# long: "))]
            yield path.name, length(source), "# long: " in source, code[0][:60] if code else ""

def long_cells():
    "Export cells that are too long and give no reason (a comment `# long: why`)."
    return [f"{name}: {n} lines from {first!r}" for name, n, excused, first in _export_cells()
            if n > LONGEST and not excused]

def excused_in_vain():
    "Export cells that give a reason (a comment `# long: why`) and are short."
    return [f"{name}: {n} lines from {first!r}" for name, n, excused, first in _export_cells()
            if n <= LONGEST and excused]

RULES = {"numbers that stand twice": numbers_twice, "chapters not named as their module": misnamed,
         "imports of a later chapter": later, "circles of imports": circles,
         "too many entries at the top": crowded, "public names in two modules": shared_names,
         "methods set from outside or exported": exported_methods,
         f"lines over {WIDEST} characters": wide, f"export cells over {LONGEST} lines": long_cells,
         f"excuses of cells up to {LONGEST} lines": excused_in_vain}

def draw(file):
    "Folders as columns, modules as boxes in reading order, an arrow from each to what it imports."
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    book = chapters()
    folders = defaultdict(list)
    for module in book: folders[module.split(".")[0] if "." in module else module].append(module)
    place = {m: (x, -y) for x, (_, modules) in enumerate(folders.items()) for y, m in enumerate(modules)}
    fig, ax = plt.subplots(figsize=(1.35*len(folders), .34*max(map(len, folders.values())) + 1.2), layout="constrained")
    for module, uses in arrows().items():
        for used in uses & place.keys() if module in place else ():
            (x0, y0), (x1, y1) = place[module], place[used]
            back = book[used][0] > book[module][0]
            ax.annotate("", (x1 + .42*(x1 < x0), y1), (x0 - .42*(x1 < x0), y0), arrowprops=dict(
                arrowstyle="-|>", color="#D55E00" if back else "#0072B2", alpha=.9 if back else .13, lw=.8))
    for module, (x, y) in place.items():
        ax.text(x, y, module.split(".")[-1], ha="center", va="center", fontsize=7,
                bbox=dict(boxstyle="round,pad=.25", fc="white", ec="#888888", lw=.6))
    for x, folder in enumerate(folders): ax.text(x, .8, folder, ha="center", fontsize=9, weight="bold")
    ax.set(xlim=(-.6, len(folders) - .4), ylim=(-max(map(len, folders.values())), 1.2))
    ax.axis("off")
    fig.savefig(file, dpi=130)

def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--list", action="store_true", help="name every fault")
    options.add_argument("--draw", metavar="FILE", help="draw the house")
    chosen = options.parse_args()
    modules, edges = trees(), arrows()
    print(f"{len(modules) - 1} modules, {sum(map(len, edges.values()))} imports between them,",
          f"{sum(len(p.read_text().splitlines()) for p, _ in modules.values())} lines")
    broken = 0
    for rule, faults in RULES.items():
        found = faults()
        broken += len(found)
        print(f"{len(found):5d} {rule}")
        if chosen.list: print(*(f"        {f}" for f in found), sep="\n")
    if chosen.draw: draw(chosen.draw)
    return min(broken, 1)

if __name__ == "__main__": sys.exit(main())
