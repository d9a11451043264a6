"""Make README.md, its picture and its badges from the front page, nbs/index.ipynb.

`python .ci/readme.py` writes them; `python .ci/readme.py --check` only says whether they are up to date
(exit code 1 if not).
"""

import base64
import json
import re
import sys
from pathlib import Path

root = Path(__file__).resolve().parents[1]
cells = json.loads((root/"nbs/index.ipynb").read_text(encoding="utf-8"))["cells"]

def outputs(kind):
    "Every output of a kind that the committed front page holds, in its order, with its place."
    return [(i, "".join(o["data"][kind])) for i, c in enumerate(cells)
            for o in c.get("outputs", []) if kind in o.get("data", {})]

def readme() -> str:
    "The front page's prose and tables, with links as seen from the top of the repository."
    tables = dict(outputs("text/markdown"))
    parts = ["".join(c["source"]) if c["cell_type"] == "markdown" else tables.get(i) for i, c in enumerate(cells)]
    text = re.sub(r"^:::.*\n+", "", "\n\n".join(filter(None, parts)) + "\n", flags=re.M).rstrip("\n")
    return (
        "<!-- Made from nbs/index.ipynb by .ci/readme.py: edit that. -->\n\n"
        + re.sub(r"\]\((?!https?:|#)", "](nbs/", re.sub(r"(!\[[^]]*\]\([^)]*\))\{[^}]*\}", r"\1", text))
        + "\n"
    )

def picture() -> bytes:
    "The figure that the front page drew."
    drawn = outputs("image/png")
    if not drawn: raise SystemExit("nbs/index.ipynb holds no drawn figure: execute it.")
    return base64.b64decode(drawn[0][1])

def badge(
    name: str,  # what it is about: "claims"
    says: str,  # what is true of it: "38 hold, 10 do not, 143 open"
) -> bytes:
    "A badge as SVG: a word on dark grey, then what is true on green."
    left, right = (round(6.3*len(text)) + 12 for text in (name, says))
    texts = "".join(f'<text x="{x + width/2}" y="14" textLength="{width - 12}">{text}</text>'
                    for text, x, width in ((name, 0, left), (says, left, right)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{name}: {says}"><clipPath id="c"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#c)"><rect width="{left}" height="20" fill="#4a4f55"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="#27794a"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">{texts}</g>'
        "</svg>\n").encode()

badges = re.findall(r"!\[(\w+): ([^]]*)\]\(images/(badge-\w+\.svg)\)", "".join(t for _, t in outputs("text/markdown")))
wanted = {root/"README.md": readme().encode(), root/"nbs/images/front.png": picture()}
wanted |= {root/"nbs/images"/file: badge(name, says) for name, says, file in badges}
stale = [p for p, content in wanted.items() if not p.is_file() or p.read_bytes() != content]
if "--check" in sys.argv:
    for p in stale: print(f"{p.relative_to(root)} is out of date: run python .ci/readme.py")
    sys.exit(bool(stale))
for p in stale:
    p.parent.mkdir(exist_ok=True)
    p.write_bytes(wanted[p])
    print(f"wrote {p.relative_to(root)}")
