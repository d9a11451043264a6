"""Execute notebooks and keep their outputs, with pictures that are sharp and light.

`python .ci/redraw.py nbs/exp_beta.ipynb nbs/api/700_claims_rules.ipynb ...`

An experiment is drawn from the committed evidence, or, while it has none, from a run of its profile smoke, as its
figures then say; any other notebook runs as it is. Pictures have two pixels for each shown one and at most 256
colours: a quarter of the bytes. Drawings in grey have even shades, 32 of them while there is room, so that what a
model leaves in doubt stays soft. A page weighs at most 300 KB: where pictures are too much for that, the heaviest give
up colours, curves before drawings. `--lighter` does no more than that to the pictures that are there.
"""

import base64
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import numpy as np
from nbclient import NotebookClient
from PIL import Image

root = Path(__file__).resolve().parents[1]
os.environ.setdefault("FEWSHOT_QUIET", "1")
retina = "--InlineBackend.figure_formats=retina"
page = 294_500  # bytes, by `page_weight`, right to within 5 KB for pages of results; a test asks for 300,000

def page_weight(notebook):
    "About how many bytes a page will have: sidebar and frame, words, code with its colours, tables and pictures."
    weight = 60_000
    for cell in notebook["cells"]:
        source, kind = "".join(cell["source"]), cell["cell_type"]
        if kind == "raw" or re.search(r"^#\| *hide$", source, re.M): continue
        weight += len(source.encode())*(1.7 if kind == "markdown" else 1 if "#| export" in source else 4.1)
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            shown = next((data[form] for form in ("image/png", "text/html", "text/plain") if form in data), "")
            weight += len("".join(shown).encode())
    return weight

def light_png(
    picture: str,  # a PNG in base64
    heavy: int = 70_000,  # bytes in base64 that a picture may weigh
) -> str:
    "The same picture with a palette: 256 colours, of drawings 32. What is too heavy gives up more."
    if is_sheet(opened(picture)[1]): return with_colours(picture, 32)
    for colours in 256, 64, 32, 16:
        if len(light := with_colours(picture, colours)) <= heavy: break
    return light

def main_colours(
    points,  # RGB, (n, 3)
    most: int,  # how many to find
    apart: int = 24,  # least distance between two of them
):
    "The colours that most points have, each told apart from those before it."
    seen, counts = np.unique(points, axis=0, return_counts=True)
    kept = seen[[counts.argmax()]]
    for colour in seen[np.argsort(-counts, kind="stable")]:
        if len(kept) == most: break
        if ((kept - colour)**2).sum(1).min() > apart**2: kept = np.concatenate([kept, colour[None]])
    return kept

def painted(points, palette):
    "A picture with each point in the nearest colour of a palette."
    seen, which = np.unique(points.reshape(-1, 3), axis=0, return_inverse=True)
    index = ((seen[:, None] - palette)**2).sum(2).argmin(1)[which].reshape(points.shape[:2])
    (image := Image.fromarray(index.astype(np.uint8), "P")).putpalette(palette.ravel().tolist())
    return image

def in_shades(
    points,  # RGB, mostly grey: drawings, and a few thin lines in colour
    colours: int,  # of the palette
):
    "The picture in evenly spaced greys and the colours that it has most of: paper stays white, and text black."
    few, ink = max(4, colours//4), np.ptp(points, 2) > 24
    greys = np.linspace(0, 255, colours - few).round().astype(int)[:, None].repeat(3, 1)
    return painted(points, np.concatenate([greys, main_colours(points[ink], few)]) if ink.any() else greys)

def is_sheet(points):
    "Whether a picture, RGB, shows drawings: much of it is neither paper nor ink nor coloured."
    return ((np.ptp(points, 2) <= 24) & (points.min(2) > 30) & (points.max(2) < 225)).mean() > .03

def opened(picture):
    "A PNG in base64 as an image without a palette, and its RGB as numbers."
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    return image, np.asarray(image).astype(int)

def with_colours(picture, colours):
    "A picture with fewer colours, in base64."
    image, points = opened(picture)
    if is_sheet(points): reduced = in_shades(points, colours)
    elif colours < 64: reduced = painted(points, main_colours(points.reshape(-1, 3), colours))
    else:  # a thin line keeps its colour; the means keep the bands of intervals theirs
        few = len(image.getcolors(colours) or range(colours))
        reduced = image.quantize(few, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    reduced.save(kept := io.BytesIO(), "png", optimize=True)
    return base64.b64encode(kept.getvalue()).decode() + "\n"

steps = [  # how many colours, and of which pictures: the gentlest comes first
    (64, "curves"), (32, "curves"), (16, "curves"), (32, "sheets"), (24, "sheets"), (16, "sheets"), (12, "sheets")]

def lighten(notebook):
    "Pictures of a notebook, in its JSON, until it has room on a page."
    pictures = [o["data"] for c in notebook["cells"] for o in c.get("outputs", ()) if "image/png" in o.get("data", {})]
    pictures = [(data, "sheets" if is_sheet(opened("".join(data["image/png"]))[1]) else "curves") for data in pictures]
    for colours, which in steps:
        for data, kind in sorted(pictures, key=lambda pair: -len("".join(pair[0]["image/png"]))):
            if page_weight(notebook) <= page: return
            if which != kind: continue
            old = "".join(data["image/png"])
            data["image/png"] = min(old, with_colours(old, colours), key=len)

def executed(notebook, folder, name):
    "The notebook with its outputs; the parameters of an experiment say that its evidence is committed, if it is."
    cells = notebook.cells
    at = next((i for i, c in enumerate(cells) if "parameters" in c.metadata.get("tags", ())), None)
    with tempfile.TemporaryDirectory() as out:
        if at is not None:
            profile = "committed" if (root/"nbs/results"/name).is_dir() else "smoke"
            cells.insert(at + 1, nbformat.v4.new_code_cell(f"profile, out = {profile!r}, {out!r}"))
        NotebookClient(notebook, timeout=1800, kernel_name="python3", extra_arguments=[retina],
                       resources={"metadata": {"path": str(folder)}}).execute()
    if at is not None: del cells[at + 1]
    return notebook

def redraw(path):
    "Execute one notebook in its place. What was written into it meanwhile stays, with the outputs it had."
    drawn = executed(nbformat.read(path, 4), path.parent, path.stem)
    kept, made = json.loads(path.read_text(encoding="utf-8")), {cell.source: cell for cell in drawn.cells}
    for cell in kept["cells"]:
        new = made.get("".join(cell["source"]))
        if cell["cell_type"] != "code" or new is None: continue
        cell["outputs"] = json.loads(nbformat.v4.writes(nbformat.v4.new_notebook(cells=[new])))["cells"][0]["outputs"]
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data: data["image/png"] = light_png("".join(data["image/png"]))
    write(path, kept)

def sharpen(notebook):
    "Two pixels for each shown one, of pictures too that no figure of matplotlib told so."
    for output in (o for c in notebook["cells"] for o in c.get("outputs", ()) if "image/png" in o.get("data", {})):
        width, height = Image.open(io.BytesIO(base64.b64decode("".join(output["data"]["image/png"])))).size
        output["metadata"].setdefault("image/png", dict(height=height//2, width=width//2))

def write(path, kept):
    "A notebook, light enough for a page."
    sharpen(kept)
    lighten(kept)
    text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")
    subprocess.run(["nbdev_clean", "--fname", str(path)], check=True)

names = [name for name in sys.argv[1:] if name != "--lighter"]
for name in names:
    path = Path(name).resolve()
    if len(names) < len(sys.argv) - 1: write(path, json.loads(path.read_text(encoding="utf-8")))
    else: redraw(path)
    print(f"{name}: {path.stat().st_size//1000} KB")
