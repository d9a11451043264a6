"The page of claims as it is committed: every claim once, one colour a verdict, folded, headlines that are counted."
import collections
import json
import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from fewshot_nb.claims import page
from fewshot_nb.claims.judge import VERDICT_COLOURS, Verdicts, claim_anchor
from fewshot_nb.claims.overview import SHORT_NAMES, conclusion_of, verdict_group
from fewshot_nb.papers import published_claims

ROOT = Path(__file__).parents[1]


def outputs(notebook):
    "The HTML that a notebook holds."
    cells = json.loads((ROOT/"nbs"/notebook).read_text(encoding="utf-8"))["cells"]
    found = [o["data"]["text/html"] for c in cells for o in c.get("outputs", ()) if "text/html" in o.get("data", {})]
    return "\n".join("".join(html) for html in found)


@pytest.fixture(scope="module")
def committed():
    # the page leaves out the ends of terms, as HTML allows; this parser wants them
    page = re.sub(r"<dt>(.*?)<dd>(.*?)(?=<dt>|</dl>)", r"<dt>\1</dt><dd>\2</dd>", outputs("claims.ipynb"), flags=re.S)
    return BeautifulSoup(page, "html.parser")


@pytest.fixture(scope="module")
def rows():
    return page.page_rows()


def test_every_claim_stands_once(committed):
    claims = published_claims()
    wanted = {claim_anchor(c.paper, c.id) for c in claims.itertuples()}
    there = [row["id"] for row in committed.select(".cl-row")]
    assert len(wanted) == len(claims) and sorted(there) == sorted(wanted), "execute nbs/claims.ipynb again"


def test_the_page_says_what_the_ledger_says(committed, rows):
    there = {row["id"]: row.select_one("summary em").text for row in committed.select(".cl-row")}
    ours = {claim_anchor(r["paper"], r["id"]): r["verdict"] for r in rows}
    assert there == ours, "execute nbs/claims.ipynb again"


def test_one_colour_a_verdict(committed):
    "Rows, chart and legend: the colours of `claims.judge`, and no other."
    groups = collections.defaultdict(set)
    for row in committed.select(".cl-row"):
        groups[verdict_group(row.select_one("summary em").text)].add(row.select_one("summary > i")["style"])
    for part in committed.select(".cl-part"):
        groups[part["title"].split(" ", 1)[1]].add(re.sub(r"^width:[^;]*;", "", part["style"]))
    for said in committed.select("figcaption span"):
        groups[said.text.strip()].add(said.select_one(".cl-box")["style"])
    colours = {verdict_group(v): c for v, c in VERDICT_COLOURS.items()}
    for verdict, styles in groups.items():
        assert len(styles) == 1 and colours[verdict] in styles.pop(), verdict


def test_everything_is_folded_and_opens_to_its_rule(committed, rows):
    assert not [d for d in committed.find_all("details") if d.has_attr("open")]
    judged = {claim_anchor(r["paper"], r["id"]) for r in rows if r["experiment"]}
    for row in committed.select(".cl-row"):
        facts = {dt.text for dt in row.find_all("dt")}
        assert row.find_parent(class_="cl-kind") and (row["id"] not in judged or "measured in" in facts), row["id"]
    ruled = {claim_anchor(r["paper"], r["id"]) for r in rows if r.get("rule")}
    assert all(committed.find(id=name).find("dt", string="rule") for name in ruled)


def test_headlines_are_counted(committed, rows):
    for paper in SHORT_NAMES:
        said = committed.find(id=paper).select_one(".cl-says").text
        counts = collections.Counter(conclusion_of(r) for r in rows if r["paper"] == paper)
        assert f"{counts['hold']} hold" in said and f"{counts['do not']} do not" in said
        assert f"{counts['open']} are open" in said

def test_a_tolerance_is_not_told_as_published(rows):
    "The page said that the paper has '10.7 ± 20%'."
    row = next(r for r in rows if r["id"] == "T20-1")
    assert "<dt>published<dd>10.7; counts within ± 20 %, chosen by us (README table)" in page.claim_row(row)
    row = next(r for r in rows if (r["paper"], r["id"]) == ("alpha_tim", "V2"))
    assert "<dt>asked<dd>at least 18 (sec 6.1)" in page.claim_row(row)


def test_the_chart_can_be_heard(committed):
    chart = committed.select_one('[role="img"]')
    assert all(name in chart["aria-label"] for name in SHORT_NAMES.values()) and "trained" in chart["aria-label"]


def test_links_to_experiments_lead_to_a_line_or_a_heading(committed):
    for link in committed.select(".cl-row a[href]"):
        place, _, anchor = link["href"].partition("#")
        assert (ROOT/"nbs"/place).is_file() and anchor, link["href"]


def test_nothing_comes_from_elsewhere(committed):
    assert not committed.select("script[src], link[href], img[src^=http]")
    assert not re.search(r"https?://|@import", page._STYLE + page._SCRIPT)


def test_experiment_pages_link_back():
    line = dict(paper="generation", id="N3", statement="", verdict="holds here")
    verdicts = Verdicts([line, dict(line, id="CUB/resnet18/alpha-TIM/1")])
    assert "href" not in verdicts._repr_html_()  # away from the site a link would lead nowhere
    verdicts.attrs["on_page"] = True
    links = BeautifulSoup(verdicts._repr_html_(), "html.parser").find_all("a")
    assert [(a["id"], a["href"]) for a in links] == [("generation-N3", "claims.ipynb#generation-N3")]


def test_what_a_paper_or_a_user_wrote_stays_text():
    row = dict(paper="generation", id="N3", statement="<script>alert(1)</script>", verdict="holds here",
               evidence="trained", experiment="", others=[])
    assert "<script>" not in page.claim_row(row)
