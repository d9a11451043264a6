"""Execute notebooks and keep their outputs, with pictures that are sharp and light.

`python .ci/redraw.py nbs/exp_beta.ipynb nbs/api/700_claims_rules.ipynb ...`

An experiment is drawn from the committed evidence, any other notebook runs as it is. Pictures have two pixels
for each shown one and at most 256 colours: a quarter of the bytes.
"""

import base64
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

root = Path(__file__).resolve().parents[1]
os.environ.setdefault("FEWSHOT_QUIET", "1")
retina = "--InlineBackend.figure_formats=retina"

def light_png(
    picture: str,  # a PNG in base64
    heavy: int = 70_000,  # bytes in base64 that a picture may weigh
) -> str:
    "The same picture with a palette. What is too heavy (sheets of blur) gives up colours, then pixels."
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    rare, even = Image.Quantize.MAXCOVERAGE, Image.Quantize.MEDIANCUT  # `rare`: a thin line keeps its colour
    half = image.resize((image.width//2, image.height//2), Image.Resampling.LANCZOS)
    for version, colours, method in (image, 256, rare), (image, 64, rare), (half, 24, even):
        reduced = version.quantize(colours, method=method, dither=Image.Dither.NONE)
        reduced.save(kept := io.BytesIO(), "png", optimize=True)
        light = base64.b64encode(kept.getvalue()).decode()
        if len(light) <= heavy: break
    return light + "\n"

def executed(notebook, folder):
    "The notebook with its outputs; the parameters of an experiment say that its evidence is committed."
    cells = notebook.cells
    at = next((i for i, c in enumerate(cells) if "parameters" in c.metadata.get("tags", ())), None)
    with tempfile.TemporaryDirectory() as out:
        if at is not None:
            cells.insert(at + 1, nbformat.v4.new_code_cell(f"profile, out = 'committed', {out!r}"))
        NotebookClient(notebook, timeout=1800, kernel_name="python3", extra_arguments=[retina],
                       resources={"metadata": {"path": str(folder)}}).execute()
    if at is not None: del cells[at + 1]
    return notebook

def redraw(path):
    "Execute one notebook in its place."
    kept = json.loads(path.read_text(encoding="utf-8"))
    drawn = executed(nbformat.read(path, 4), path.parent)
    for cell, new in zip(kept["cells"], drawn.cells, strict=True):
        if cell["cell_type"] != "code": continue
        cell["outputs"] = json.loads(nbformat.v4.writes(nbformat.v4.new_notebook(cells=[new])))["cells"][0]["outputs"]
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data: data["image/png"] = light_png("".join(data["image/png"]))
    text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")
    subprocess.run(["nbdev_clean", "--fname", str(path)], check=True)

for name in sys.argv[1:]:
    redraw(path := Path(name).resolve())
    print(f"{name}: {path.stat().st_size//1000} KB")
