"""What Quarto runs after it has rendered the site (`post-render` in _quarto.yml): pages ask nobody else for a script.

For a notebook with a table Quarto adds two scripts from another host, for widgets; these pages have none. Ends of
terms and indentation, which HTML does not need, go too: the page of claims has thousands of them.
nbdev copies this file without its suffix.
"""

import os
import re
from pathlib import Path

KEPT = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.S)  # where a space counts

def lighter(
    page: str,  # HTML
) -> str:
    "The same page without scripts from elsewhere, ends of terms and indentation."
    page = re.sub(r'<script src="https://cdnjs\.[^>]*></script>\s*', "", page)
    page = re.sub(r"<script[^>]*>define\('jquery'.*?</script>\s*", "", page, flags=re.S)
    parts = KEPT.split(page)  # text, kept, its tag, text ...
    for i in range(0, len(parts), 3): parts[i] = re.sub(r"</d[td]>", "", re.sub(r"\s*\n\s*", "\n", parts[i]))
    del parts[2::3]
    return "".join(parts)

made = Path(os.environ.get("QUARTO_PROJECT_OUTPUT_DIR", "_docs"))
for name in os.environ.get("QUARTO_PROJECT_OUTPUT_FILES", "").split("\n"):
    path = Path(name.strip())
    if not path.is_file(): path = made/path  # seen from the project, or from its output
    if path.suffix == ".html": path.write_text(lighter(path.read_text(encoding="utf-8")), encoding="utf-8")
