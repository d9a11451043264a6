"""Make README.md from nbs/index.ipynb, and the picture it shows from the committed figure of nbs/exp_beta.ipynb.

`python .ci/readme.py` writes both; `python .ci/readme.py --check` only says whether they are up to date
(exit code 1 if not).
"""

import base64
import json
import sys
from pathlib import Path

root = Path(__file__).resolve().parents[1]

def cells(name): return json.loads((root/"nbs"/name).read_text(encoding="utf-8"))["cells"]

def readme() -> str:
    "The markdown cells of the front page, with paths as seen from the top of the repository."
    text = "\n\n".join("".join(c["source"]) for c in cells("index.ipynb") if c["cell_type"] == "markdown")
    return (
        "<!-- Made from nbs/index.ipynb by .ci/readme.py: edit that. -->\n\n"
        + text.replace("](images/", "](nbs/images/")
        + "\n"
    )

def picture() -> bytes:
    "The first PNG that the committed notebook drew after its heading `Fig. 4b`."
    seen = False
    for cell in cells("exp_beta.ipynb"):
        seen = seen or cell["cell_type"] == "markdown" and "Fig. 4b" in "".join(cell["source"])
        for output in cell.get("outputs", []) if seen else []:
            if png := output.get("data", {}).get("image/png"): return base64.b64decode("".join(png))
    raise SystemExit("nbs/exp_beta.ipynb holds no drawn figure after 'Fig. 4b': execute it with profile='committed'.")

wanted = {root/"README.md": readme().encode(), root/"nbs/images/exp_beta.png": picture()}
stale = [p for p, content in wanted.items() if not p.is_file() or p.read_bytes() != content]
if "--check" in sys.argv:
    for p in stale: print(f"{p.relative_to(root)} is out of date: run python .ci/readme.py")
    sys.exit(bool(stale))
for p in stale:
    p.parent.mkdir(exist_ok=True)
    p.write_bytes(wanted[p])
    print(f"wrote {p.relative_to(root)}")
