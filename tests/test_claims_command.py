"The command `fewshot_nb claims`: one screen, its choices, other programs, plain terminals, and an answer at once."
import csv
import io
import json
import os
import pty
import re
import subprocess
import sys

import pytest

from fewshot_nb.claims.overview import SHORT_NAMES, answer_of, leading_rows, telling_rows
from fewshot_nb.cli import claims as command
from fewshot_nb.cli.main import main
from fewshot_nb.core import InputError
from fewshot_nb.papers import EVIDENCE


@pytest.fixture(scope="module", autouse=True)
def ledger():
    "The committed ledger."
    return command.kept_ledger()[0]


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    "What the command prints, at 80 columns, in a folder without runs."
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    def said(*args):
        with pytest.raises(SystemExit) as e: main(["claims", *map(str, args)])
        out = capsys.readouterr()
        assert e.value.code == 0, out.err
        return out.out
    return said


@pytest.fixture
def refused(capsys):
    "The one sentence with which the command refuses."
    def refused(*args):
        with pytest.raises(SystemExit) as e: main(["claims", *map(str, args)])
        sentence = capsys.readouterr().err.strip()
        assert e.value.code == 1 and "\n" not in sentence
        return sentence
    return refused


def run(*args, **env):
    "The command in a process of its own: standard output as bytes."
    done = subprocess.run(
        [sys.executable, "-m", "fewshot_nb", "claims", *args], env={**os.environ, "COLUMNS": "80", **env},
        capture_output=True, check=True)
    return done.stdout


def test_one_screen_of_80_columns(said, ledger):
    lines = said().splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) <= 60
    totals = [line for line in lines if line.startswith(EVIDENCE) and len(line.split()) == 12]
    assert [line.split()[0] for line in totals] == list(EVIDENCE)
    claims = len({(r["paper"], r["id"]) for r in ledger})
    counted = sum(int(n) for line in totals for n in line.split()[1:] if n != ".")
    assert counted == claims and f"{claims} claims of five papers" in lines[0]
    assert sum(line[:2] in ("+ ", "x ", "? ") for line in lines) == 10


@pytest.mark.parametrize("args, whose", [
    (("--paper", "bongard"), "the paper on bongard"), (("--kind", "parity"), "five papers"),
    (("--paper", "omniglot", "--kind", "trained"), "the paper on omniglot"),
    (("--experiment", "beta"), "five papers"), (("--paper", "fewshot_nb"), "this library")])
def test_a_choice_says_of_how_many(said, ledger, args, whose):
    "'5 claims of five papers' stood above five that were chosen."
    chosen = len(json.loads(said(*args, "--format", "json")))
    head = " ".join(said(*args).split("\n\n")[0].split())
    if len(args) == 2 and args[0] == "--paper":
        assert head.startswith(f"{chosen} claims of {whose},")
        return
    paper = args[1] if args[0] == "--paper" else None
    every = len(json.loads(said(*(("--paper", paper) if paper else ()), "--format", "json")))
    assert chosen < every and head.startswith(f"{chosen} of the {every} claims of {whose},")


def test_our_own_claims_are_found_by_name_and_by_experiment(said, ledger):
    "I1 was said to be no claim, and S1 was another's alone."
    names = lambda *args: {f"{r['paper']}/{r['id']}" for r in json.loads(said(*args, "--format", "json"))}
    assert names("S1") == {"generation/S1", "fewshot_nb/S1"}
    assert names("i1") == names("fewshot_nb/I1") == {"fewshot_nb/I1"}
    assert names("H4") == {"generation/H4"} and names("--paper", "generation", "S1") == {"generation/S1"}
    about = names("--experiment", "intervals")
    assert about and {n.split("/")[0] for n in about} == {"fewshot_nb"}
    assert "claims of five papers and this library" in " ".join(said("--experiment", "intervals").split())

def test_one_paper_has_no_lines_below_its_kinds(said):
    "Each line stood twice, and one paper took turns with itself."
    one, every = said("--paper", "transductive"), said()
    counts = one.split("\n\n")[1].splitlines()[3:]  # below the heads
    assert counts and all(line.startswith(EVIDENCE) for line in counts)
    assert "papers in turn" in every and "papers in turn" not in one and "failure and a success in turn" in one

def test_one_set_of_words_for_what_became_of_claims(said):
    out = said()
    assert out.splitlines()[5].split() == [
        *["hold", "do", "not"]*2, "agree", "do", "not", "cided", "part", "rable", "ged", "tried"]
    assert "elsewhere" not in out and "not measured" not in out and "by the evidence that they ask for" in out

@pytest.mark.parametrize("args, words", [
    (("--paper", "omniglot"), "(published 10.7; counts within ± 20 %, chosen by us)"),
    (("--paper", "transductive"), "(asked: at least 18)"),
    (("--paper", "fewshot_nb"), "(expected at least 10)")])
def test_what_nobody_published_is_not_told_as_published(said, args, words):
    "Tolerances, bounds and claims of our own were all told as '(published ...)'."
    out = " ".join(said(*args).split())
    assert words in out
    assert not re.search(r"\(published (at |> |< |\d+ to |falls|rises|[^;)]* ± )", out), out
    assert "(published" not in out or "fewshot_nb" not in args

@pytest.mark.parametrize("width", [40, 80, 132])
def test_lines_break_at_words(said, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    listed = said("--paper", "bongard", "--all").split("\n\n")[-1]
    assert max(map(len, listed.splitlines())) <= width
    monkeypatch.setenv("COLUMNS", "2000")
    assert listed.split() == said("--paper", "bongard", "--all").split("\n\n")[-1].split()  # no word is broken


@pytest.mark.parametrize("name, paper", [
    ("generation", "generation"), ("diversity", "generation"), ("transductive", "alpha_tim"),
    ("alpha-tim", "alpha_tim"), ("alpha_tim", "alpha_tim"), ("omniglot", "omniglot_eval"),
    ("protocols", "omniglot_eval"), ("bongard", "bongard"), ("stability", "stability"),
    ("Reproducibility", "stability")])
def test_names_that_a_person_would_try(said, name, paper):
    rows = json.loads(said("--paper", name, "--format", "json"))
    assert rows and {r["paper"] for r in rows} == {paper}


@pytest.mark.parametrize("args, words", [
    (["--paper", "generations"], "Unknown paper 'generations': did you mean generation"),
    (["--paper", "bogard"], "Unknown paper 'bogard': did you mean bongard?"),  # nor "ours", nor what else it is called
    (["--paper", "foo"], "choose one of generation, transductive, omniglot, bongard, stability, fewshot_nb."),
    (["--verdict", "reproducd"], "Unknown verdict 'reproducd': did you mean reproduced"),
    (["--kind", "train"], "Unknown kind 'train': did you mean trained"),
    (["--experiment", "bta"], "Unknown experiment 'exp_bta': did you mean exp_beta"),
    (["--format", "xml"], "Unknown format 'xml'"),
    (["T99"], "There is no claim 'T99' among these"),
    (["stability/T14"], "in points) was retired: the ranges were our own arithmetic on Table 6."),
    (["h2a"], "The claim 'h2a' (Human recognizability"),
    (["H2a"], "was retired: the star of Fig. 3a is one printed point, so it is one claim: H2, whose reason"),
    (["V10u"], "a limit from above is met by no drop at all; V10 has its size."),
    (["--out", "nowhere"], "There are no verdicts under")])
def test_what_is_not_there_is_refused_in_one_sentence(refused, args, words):
    assert words in refused(*args)


def test_choices(said, ledger):
    def of(*args): return json.loads(said(*args, "--format", "json"))
    assert {r["experiment"] for r in of("--experiment", "beta")} == {"exp_beta"}
    assert {r["evidence"] for r in of("--kind", "parity")} == {"parity"}
    assert {r["kind"] for r in of("--kind", "order")} == {"order"}
    assert {r["verdict"] for r in of("--verdict", "not tried")} == {"not tried"}
    every = {r["verdict"] for r in leading_rows(ledger)}
    assert {r["verdict"] for r in of("--verdict", "not judged")} == {v for v in every if v.startswith("not judged")}
    for gate in (v for v in every if v.startswith("not judged: ")):
        assert {r["verdict"] for r in of("--verdict", gate.partition(": ")[2])} == {gate}
    assert "No claim of" in said("--paper", "omniglot", "--verdict", "recomputation disagrees", "--kind", "parity")


def test_formats_are_clean(said, ledger):
    claims = {(r["paper"], r["id"]) for r in ledger}
    table = list(csv.DictReader(io.StringIO(said("--format", "csv"))))
    assert {(r["paper"], r["id"]) for r in table} == claims and len(table) == len(claims)
    assert {"verdict", "statement", "evidence", "others"} <= set(table[0])
    rows = json.loads(said("--format", "json"))
    assert sum(1 + len(r["others"]) for r in rows) == len(ledger)
    lines = said("--format", "markdown").splitlines()
    assert len(lines) == len(claims) + 2 and {line.replace("\\|", "").count("|") for line in lines} == {7}


def test_every_claim_is_told_once(said, ledger):
    out = said("--all")
    heads = [line for line in out.splitlines() if line[:2] in ("+ ", "x ", "? ")]
    assert len(heads) == len({(r["paper"], r["id"]) for r in ledger})


def test_failures_stand_as_high_as_successes(ledger):
    rows = leading_rows(ledger)
    told = telling_rows(rows)
    answers = [answer_of(r["verdict"]) for r in told]
    failing = {r["paper"] for r in rows if answer_of(r["verdict"]) == "do not"}
    assert len(told) == 10 and {r["paper"] for r in told[:5]} == set(SHORT_NAMES)
    assert answers[:5].count("do not") == len(failing)


def test_plain_when_piped_and_coloured_on_a_terminal():
    assert b"\x1b" not in run()
    assert b"\x1b" in on_a_terminal()
    assert b"\x1b" not in on_a_terminal(NO_COLOR="1")
    assert b"\x1b" not in on_a_terminal(TERM="dumb")


def on_a_terminal(**env):
    "What the command writes to a terminal."
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **env}
    process = subprocess.Popen([sys.executable, "-m", "fewshot_nb", "claims"], stdout=theirs, env=env)
    os.close(theirs)
    found = b""
    while True:
        try: more = os.read(ours, 65536)
        except OSError: break
        if not more: break
        found += more
    os.close(ours)
    assert process.wait() == 0
    return found


def test_letters_that_a_terminal_lacks_are_spelled_out():
    out = run("--all", PYTHONIOENCODING="cp1252").decode("cp1252")
    assert ">= " in out and "?" not in [line[2:3] for line in out.splitlines()]


def test_a_reader_may_leave_early():
    pipe = subprocess.run(
        f"{sys.executable} -m fewshot_nb claims --all | head -1", shell=True, capture_output=True, text=True)
    assert "claims of five papers" in pipe.stdout and pipe.stderr == ""


def test_it_answers_at_once():
    "It reads what was judged: it loads neither the judge nor a library that only judging or drawing needs."
    code = ("import atexit, sys\n"
            "waits = {'torch', 'scipy', 'matplotlib', 'sklearn', 'statsmodels', 'fewshot_nb.claims.judge'}\n"
            "atexit.register(lambda: print('loaded:', sorted(waits & set(sys.modules)), file=sys.stderr))\n"
            "from fewshot_nb.cli.main import main; main(['claims'])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "loaded: []" and done.stdout == run().decode()


def test_a_change_of_the_evidence_is_seen(monkeypatch, tmp_path):
    "The kept ledger is of the claims, measures and rules that it was judged by, or it is judged anew."
    before = command.ledger_fingerprint()
    more = tmp_path/"claims.csv"
    more.write_text("another claim")
    sources = command._sources()
    monkeypatch.setattr(command, "_sources", lambda: [*sources, ("papers/more.csv", more)])
    assert command.ledger_fingerprint() != before
    assert command._read_ledger(command.cache_dir()/f"ledger-{before}.json", command.ledger_fingerprint()) is None


def test_the_committed_ledger_is_of_this_content():
    "It answers at once wherever the package is; whoever changes claims, measures or rules keeps it anew."
    kept = command.experiments_folder()/"results/ledger.json"
    assert command._read_ledger(kept, command.ledger_fingerprint()), "run `fewshot_nb claims --anew`"


def test_own_runs_change_no_count(said, tmp_path):
    from dataclasses import replace
    from fewshot_nb.engine.experiment import open_experiment
    before = said()
    mine = tmp_path/"runs/results/exp_beta/smoke-omniglot"
    mine.mkdir(parents=True)
    page = replace(open_experiment("exp_beta", None, profile="committed"), asked="smoke", profile="smoke", folder=mine)
    page.judge("generation", {"H1": 1.2863}, critics="own")
    assert said().startswith(before.rstrip("\n"))
    rows = json.loads(said("--out", "runs/results", "--format", "json"))
    assert [(r["id"], r["profile"]) for r in rows] == [("H1", "smoke")]


def test_damaged_verdicts_of_own_runs_are_refused_in_one_sentence(refused, tmp_path):
    mine = tmp_path/"exp_beta/smoke-omniglot"
    mine.mkdir(parents=True)
    (mine/"claims.parquet").write_bytes(b"PAR1 cut short")
    assert "cannot be read: remove the file" in refused("--out", tmp_path)


def test_the_ledger_needs_no_cache(said, ledger, monkeypatch, tmp_path):
    "Where the committed ledger did not fit, a cache that cannot be written stopped the command."
    (tmp_path/"file").touch()
    monkeypatch.setenv("FEWSHOT_CACHE", str(tmp_path/"file"/"cache"))
    monkeypatch.setattr(command, "_read_ledger", lambda path, fingerprint: None)
    monkeypatch.setattr(command, "_judged_now", lambda fingerprint: dict(
        fingerprint=fingerprint, colours={}, columns=list(ledger[0]), rows=[list(row.values()) for row in ledger]))
    assert f"{len({(r['paper'], r['id']) for r in ledger})} claims" in said()

def test_a_list_of_evidence_refuses_damaged_verdicts_in_the_words_of_the_claims(tmp_path):
    from fewshot_nb.cli.main import _columns_of
    (tmp_path/"claims.parquet").write_bytes(b"PAR1 cut short")
    with pytest.raises(InputError, match="claims.parquet' cannot be read: remove the file"):
        _columns_of(tmp_path/"claims.parquet", ["verdict"])
