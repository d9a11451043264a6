"""What Quarto runs after it has rendered the site (`post-render` in _quarto.yml): pages ask nobody else for a script.

For a notebook with a table Quarto adds two scripts from another host, for widgets; these pages have none. Ends of
terms and of items, indentation, and anchors of lines of code, which HTML does not need, go too: the page of claims has
thousands of them. Links that nbdev made from names lead to the published site; here they lead to the page beside,
wherever the site lies, if it is there (a renderer that does not read `output-file` calls pages otherwise). In the
sidebar a chapter stands under its folder, whose name it need not repeat.
A picture is a link to itself: on a phone it opens at full size, where its text can be read. Printed sentences wrap,
printed tables do not; no line ends within an option, or within a word of the links at the foot; a page of results is
headed by its question, not by its file, and its prose links a claim in brackets, (V14), to the claim's verdict below.
A docstring of two lines is slanted as a whole.
The search box finds a name in every way that the site writes it, and shows no formula twice.
nbdev copies this file without its suffix.
"""

import html
import json
import os
import re
from collections import defaultdict
from pathlib import Path

PICTURE = re.compile(r'<img src="([^":]+)"[^>]*class="[^"]*figure-img[^>]*>')
PRINTED = re.compile(r'(<div class="cell-output cell-output-stdout)(">\s*<pre><code>)((?:(?!</code>).)*)', re.S)
TEXT = re.compile(r"(<math\b.*?</math>)|(?<=>)[^<]*\([^<]*(?=<)", re.S)  # formulas stay as they are
JUDGED = re.compile(r'<a (?=[^>]*href="[./]*claims\.html#)[^>]*id="([a-z_]+)-(\w+)"')
SUMMARY = re.compile(r"(</pre></div>\s*<p><em>)((?:(?!</?em>|</?p>).)*)</em>(\s(?:(?!</?em>|</?p>).)*)</p>", re.S)
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
KEPT = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.S)  # where a space counts

def lighter(
    page: str,  # HTML
    home: str = "",  # the address of the published site, as nbdev writes it into links
    up: str = "",  # the way from the page to the site's folder: "../" for each folder
    made: Path = Path("."),  # the site's folder
) -> str:
    "The same page without scripts from elsewhere, ends of terms and indentation; its links stay inside the site."
    if home:
        def beside(link): return f'<a href="{up}{link[1]}' if (made/link[1]).is_file() else link[0]
        page = re.sub(rf'<a href="{re.escape(home.rstrip("/"))}/([^"#?]*)', beside, page)
        page = re.sub(rf'(content="{re.escape(home.rstrip("/"))}/)[^"]*?(images/)', r"\1\2", page)
    page = SUMMARY.sub(r"\1\2\3</em></p>", page)  # nbdev slants the first line of a docstring alone
    page = re.sub(r'(<span class="menu-text">)[a-z]+\.(?=[a-z_.]+</span>)', r"\1", page)
    page = re.sub(r'<script src="https://cdnjs\.[^>]*></script>\s*', "", page)
    page = re.sub(r"<script[^>]*>define\('jquery'.*?</script>\s*", "", page, flags=re.S)
    page = re.sub(r'<a href="#cb[\d-]+" aria-hidden="true" tabindex="-1"></a>', "", page)  # lines have no numbers
    page = PICTURE.sub(r'<a class="full" href="\1">\g<0></a>', page)
    def said(part): return part[1] + ("" if "  " in part[3].strip() else " said") + part[2] + part[3]
    page = PRINTED.sub(said, page)  # columns have two blanks between them somewhere
    page = re.sub(r"(?<![\w.])__main__\.|:builtin_function_or_method(?=<)", "", page)  # tell a reader nothing
    def parted(name): return name[1] + re.sub(r"(?<=\w)[._](?=\w)", r"\g<0><wbr>", name[2])
    page = re.sub(r'(<span class="nav-page-text">)([^<]*)', parted, page)  # a line may end between words only
    page = re.sub(r'(<h1 class="title">)exp_\w+: (\w)', lambda m: m[1] + m[2].upper(), page)
    judged = {claim: paper for paper, claim in JUDGED.findall(page)}
    def linked(claim): return f'<a href="#{judged[claim[0]]}-{claim[0]}">{claim[0]}</a>' if claim[0] in judged else claim[0]
    def bracketed(words): return re.sub(r"[A-Z]\w*", linked, words[0])
    parts = KEPT.split(page)  # text, kept, its tag, text ...
    def whole(code): return OPTION.sub(r'<span class="option">\g<0></span>', code[0])
    for i in range(0, len(parts), 3):
        if judged: parts[i] = TEXT.sub(lambda m: m[0] if m[1] else re.sub(r"\([^()]*\)", bracketed, m[0]), parts[i])
        parts[i] = re.sub("<code>[^<]*</code>|<td[^>]*>fewshot_nb [^<]*</td>", whole, parts[i])
        parts[i] = re.sub(r"</d[td]>|</li>", "", re.sub(r"\s*\n\s*", "\n", parts[i]))
        if parts[i + 2:] and parts[i + 2] == "script": parts[i + 1] = re.sub(r"\n\s+", "\n", parts[i + 1])
    del parts[2::3]
    return "".join(parts)

def home_of(
    folder: Path,  # where Quarto runs: nbdev.yml lies there
) -> str:
    "The address of the published site; empty where none is written."
    there = folder/"nbdev.yml"
    found = there.is_file() and re.search(r'^ *site-url: *"?([^"\s]+)', there.read_text(encoding="utf-8"), re.M)
    return found.group(1) if found else ""

NAME = re.compile(r"[^\W\d_]\w*(?:-\w+)*")

def name_key(
    name: str,  # alpha-TIM, alpha_tim, AlphaTIM
) -> str:
    "What all spellings of a name have in common; empty where too little is left for a name."
    key = re.sub("[-_]", "", name.lower().replace("α", "alpha"))
    return key if len(key) > 3 and name[-1] != "_" else ""

def every_spelling(
    entries: list,  # of Quarto's search index: dicts with title, section, text
) -> list:
    "The same entries; where one holds a name that others write otherwise, its text ends with the other spellings."
    words = [set(NAME.findall(f"{e['title']} {e['section']} {e['text']}")) for e in entries]
    ways = defaultdict(set)
    for word in set().union(*words): ways[name_key(word)].add(word.lower())
    ways = {key: names for key, names in ways.items() if key and len(names) > 1}
    for names in ways.values(): names |= {re.sub("[-_]", " ", name) for name in names}
    found = []
    for e, here in zip(entries, words):
        text = f"{e['title']} {e['section']} {e['text']}".lower()
        missing = sorted({n for key in map(name_key, here) for n in ways.get(key, ()) if n not in text})
        found.append({**e, "text": f"{e['text']}\nalso: {', '.join(missing)}"} if missing else e)
    return found

def without_tex(
    text: str,  # of an entry: a formula stands there as it is read, then as it is written in TeX
    page: str,  # the page's HTML
) -> str:
    "The text without the second."
    for tex in sorted(set(re.findall(r"<annotation[^>]*>(.*?)</annotation>", page, re.S)), key=len, reverse=True):
        if len(tex) > 1: text = text.replace(html.unescape(tex), "")
    return text

made, home = Path(os.environ.get("QUARTO_PROJECT_OUTPUT_DIR", "_docs")), home_of(Path("."))
for name in os.environ.get("QUARTO_PROJECT_OUTPUT_FILES", "").split("\n"):
    path = Path(name.strip())
    if not path.is_file(): path = made/path  # seen from the project, or from its output
    if path.suffix != ".html": continue
    up = "../"*(len(path.resolve().relative_to(made.resolve()).parts) - 1)
    path.write_text(lighter(path.read_text(encoding="utf-8"), home, up, made), encoding="utf-8")
if (made/"search.json").is_file():
    entries = json.loads((made/"search.json").read_text(encoding="utf-8"))
    pages = {name: (made/name).read_text(encoding="utf-8") for name in {e["href"].split("#")[0] for e in entries}
             if (made/name).is_file()}
    entries = [{**e, "text": without_tex(e["text"], pages.get(e["href"].split("#")[0], ""))} for e in entries]
    (made/"search.json").write_text(json.dumps(every_spelling(entries), ensure_ascii=False), encoding="utf-8")
