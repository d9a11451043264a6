"""Make README.md and its picture from the front page, nbs/index.ipynb.

`python .ci/readme.py` writes both; `python .ci/readme.py --check` only says whether they are up to date
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

wanted = {root/"README.md": readme().encode(), root/"nbs/images/front.png": picture()}
stale = [p for p, content in wanted.items() if not p.is_file() or p.read_bytes() != content]
if "--check" in sys.argv:
    for p in stale: print(f"{p.relative_to(root)} is out of date: run python .ci/readme.py")
    sys.exit(bool(stale))
for p in stale:
    p.parent.mkdir(exist_ok=True)
    p.write_bytes(wanted[p])
    print(f"wrote {p.relative_to(root)}")
