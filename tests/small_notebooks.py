"Small notebooks for the tests of engines: raw front matter, parameters, and a table."
import ast, json
from pathlib import Path

ROOT = Path(__file__).parents[1]

def notebook(path, *cells):
    "Write a notebook of raw front matter, a parameters cell and code cells."
    def cell(i, source):
        kind = "raw" if i == 0 else "code"
        return dict(
            cell_type=kind, id=str(i), metadata=dict(tags=["parameters"]) if i == 2 else {},
            source=source, **({} if i == 0 else dict(outputs=[], execution_count=None)))

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            dict(
                cells=[cell(i, c) for i, c in enumerate(cells)], nbformat=4, nbformat_minor=5,
                metadata=dict(kernelspec=dict(name="python3", display_name="Python 3", language="python")))
        )
    )
    return path

TINY = ('  tiny: {beta: [0.25, 5.0], seed: [0, 1], samples: 2, image_size: 28, stem: patches, '
        'widths: "4", hidden: 16, context_dim: 6, latent_dim: 3, epochs: null, steps: 40, sets: 4, context: 2, '
        'lr: 0.002, schedule: fall, annealing: false, augmentation: none, cut: true}\n')
IMPORTS = """
from functools import partial
from fewshot_nb.engine.experiment import open_experiment
from fewshot_nb.studies import generation
"""  # what opening needs, and none of what figures and claims need: the notebook is started many times
STUCK = """
import os, time
from pathlib import Path
rename = os.replace
def stuck(a, b, **k):  # a part, written to its temporary file, never gets its name while the test says so
    while str(b).endswith(".parquet") and (Path(out)/"stuck").exists(): time.sleep(.1)
    # and a checkpoint takes its time while the test says so, so that no processor outruns what stops it
    if str(b).endswith(".pt") and (Path(out)/"slow").exists(): time.sleep(.5)
    return rename(a, b, **k)
os.replace = stuck
"""

def tiny_beta(path, steps=40):
    "exp_beta up to its rows, with one more profile, a checkpoint after every step, and four settings a job."
    cells = json.loads((ROOT/"nbs/exp_beta.ipynb").read_text())["cells"]
    front = "".join(next(c for c in cells if c["cell_type"] == "raw")["source"])
    parameters, table = ("".join(next(c for c in cells if tag in c["metadata"].get("tags", []))["source"])
                         for tag in ("parameters", "table"))
    opened = 'open_experiment("exp_beta", generation.generation_row,'
    opening = ast.get_source_segment(table, ast.parse(table).body[0])  # the rest prepares figures
    assert opening.count(opened) == 1 and "profiles:\n" in front, (
        "exp_beta's table cell reads otherwise now: mend this test")
    changed = opening.replace(
        opened, f"open_experiment({str(path)!r}, partial(generation.generation_row, every_seconds=0),")
    return notebook(
        path,
        front.replace("profiles:\n", "chunk: 4\nprofiles:\n" + TINY.replace("steps: 40", f"steps: {steps}")),
        IMPORTS, parameters, STUCK + changed)
