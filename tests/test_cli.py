"The command line says one sentence and ends with exit code 1 where input is wrong, before any work."
import json, os, re, resource, shutil, subprocess, sys, tarfile, time, warnings
from pathlib import Path

import numpy as np, pytest
from PIL import Image

import fewshot_nb
import fewshot_nb.engine.notebook  # gives experiments their parameters
from fewshot_nb import core
from fewshot_nb.engine import experiment as experiments
from fewshot_nb.cli.main import main
from fewshot_nb.engine.results import Results, committed_rows

@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    "Call the command; its one sentence, which must be all it says on the error stream."
    monkeypatch.chdir(tmp_path)
    def refused(*args):
        with pytest.raises(SystemExit) as e: main([str(a) for a in args])
        said = capsys.readouterr().err.strip()
        assert (e.value.code == 1 and said.count("\n") == 0 and said.startswith("fewshot_nb: ")
                and said.endswith((".", "?", "`"))), said
        return said
    return refused

@pytest.fixture
def said(capsys):
    "Call the command; what it prints, and its notes."
    def said(*args):
        capsys.readouterr()
        with warnings.catch_warnings(record=True) as notes, pytest.raises(SystemExit) as e:
            warnings.simplefilter("always")
            main([str(a) for a in args])
        out = capsys.readouterr()
        assert e.value.code == 0, out.err
        return out.out, "\n".join(str(n.message) for n in notes)
    return said

# --- experiments and their parameters

@pytest.mark.parametrize(
    "args, words",
    [
        (["run", "exp_bta"], "Unknown experiment 'exp_bta': did you mean exp_beta"),
        (["run", "none.ipynb"], "There is no notebook 'none.ipynb'"),
        (
            ["run", "exp_beta", "--profile", "smok"],
            "Unknown profile 'smok': did you mean smoke or smoke_stn?"),
        (["run", "exp_beta", "-p", "betta=1"], "Unknown parameter of exp_beta 'betta'"),
        (["run", "exp_beta", "-p", "seed"], "write it as key=value"),
        (["run", "exp_beta", "-p", "seed=three"], "Parameter seed='three' is not of type int"),
        (["run", "exp_beta", "-p", "seed=-1"], "seed=-1 is negative"),
        (["run", "exp_beta", "-p", "jobs=1.5"], "is not of type int"),
        (["run", "exp_beta", "-p", "device=gpu"], "Unknown device 'gpu'"),
        (
            ["run", "exp_beta", "-p", "rows=[{beta: -1.0}]"],
            "The setting {'beta': -1.0} is not in the grid of exp_beta"),
        (["run", "exp_beta", "-p", "rows=some"], "rows='some' is not understood"),
        (["reproduce"], "Nothing to reproduce"),
        (["reproduce", "exp_bta"], "Unknown experiment"),
        (["reproduce", "exp_beta", "--profile", "lab"], "Unknown profile 'lab'"),
        (
            ["reproduce", "exp_beta", "--data", "glyphs", "-p", "seeds=1"],
            "Unknown parameter of exp_beta 'seeds': did you mean seed?"),
        (
            ["reproduce", "exp_beta", "--data", "glyphs", "--engine", "slrm"],
            "Unknown engine 'slrm': did you mean slurm?"),
        (["reproduce", "exp_beta", "--data", "glyphs", "--jobs", "0"], "--jobs 0 is too few"),
        (["results", "exp_beta", "--out", "nowhere"], "There are no rows of exp_beta under 'nowhere'"),
        (["logs", "exp_beta-0009", "--out", "nowhere"], "/nowhere': jobs are called like exp_beta-smoke-glyphs-0000"),
        (["claims", "--paper", "generations"], "Unknown paper 'generations': did you mean generation?"),
        (["data", "glyfs"], "Unknown data set 'glyfs': did you mean glyphs?"),
    ],
)
def test_wrong_names_and_values(refused, args, words): assert words in refused(*args)

@pytest.mark.parametrize("args, words", [
    (["-p", "seed=x"], "Parameter seed='x' is not of type int"),
    (["-p", "jobs=1.5"], "Parameter jobs='1.5' is not of type int"),
    (["-p", "seed=1", "--seed", "2"], "seed is given twice, as '1' and as '2'"),
    (["-p", "profile=lab"], "Unknown profile 'lab'"), (["-p", "data=/nowhere"], "does not exist"),
    (["-p", "rows=[3]"], "All missing rows are computed"),
    (["-p", "seed=9223372036854775808"], "is too large"), (["-p", "seed=4294967296"], "take one below 2**32"),
    (["-p", "seed=[1"], "is not of type int"),
    (["-p", "=1"], "write it as key=value"), (["--module", "no such"], "is no name of a module"),
    (["--module", "nosuch.part"], "There is no module 'nosuch.part'")])
def test_options_that_are_parameters_too(refused, args, words):
    given = args if any("data=" in a for a in args) else [*args, "--data", "glyphs"]
    assert words in refused("reproduce", "exp_beta", "--dry-run", *given)

def test_a_parameter_means_what_the_option_means(said, tmp_path):
    one = said("reproduce", "exp_beta", "--dry-run", "-p", "seed=1", "-p", "jobs=2", "-p", f"out={tmp_path}/o",
               "-p", "profile=smoke", "-p", "data=glyphs")
    assert one == said("reproduce", "exp_beta", "--dry-run", "--seed", "1", "--jobs", "2", "--out", f"{tmp_path}/o",
                       "--profile", "smoke", "--data", "glyphs") and "seed=1" in one[0]

@pytest.mark.parametrize("name", ["runpy.run_path", "os.system", "fewshot_nb.__main__.main", "fewshot_nb.core.os"])
def test_front_matter_imports_nothing_from_outside(refused, tmp_path, name):
    front = f"---\ntitle: x\nversion: 1\nsweep: [x]\nbank: {name}\nprofiles: {{smoke: {{x: 1}}}}\n---"
    cells = [
        dict(cell_type="raw", source=front, metadata={}),
        dict(cell_type="code", metadata=dict(tags=["parameters"]), outputs=[], execution_count=None,
             source='profile: str = "smoke"\ndata: str = "auto"\nrows: str = "all"\nseed: int = 0\nout: str = ""'),
    ]
    (tmp_path/"exp_mine.ipynb").write_text(json.dumps(dict(cells=cells)))
    (tmp_path/"data").mkdir()
    (tmp_path/"data/__main__.py").write_text(f"open({str(tmp_path/'ran')!r}, 'w')")
    said = refused("reproduce", tmp_path/"exp_mine.ipynb", "--dry-run", "--data", tmp_path/"data")
    assert "in the front matter of exp_mine.ipynb" in said and not (tmp_path/"ran").exists()

def test_a_note_that_is_no_note(refused, tmp_path):
    results, _ = rows_of_beta(tmp_path)
    (results.folder/"belongs_to.json").write_text("[1, 2]")
    for command in (["results", "exp_beta"], ["reproduce", "exp_beta", "--data", "glyphs", "--dry-run"]):
        assert "does not say whose rows these are" in refused(*command, "--out", tmp_path)

def test_logs_hold_no_escape_sequences(said, tmp_path):
    error = dict(output_type="error", ename="E", evalue="\x1b[2J\x1b]0;owned\x07bad", traceback=[])
    cells = [dict(cell_type="code", source="", metadata={}, outputs=[error], execution_count=1)]
    (tmp_path/"exp_x/jobs").mkdir(parents=True)
    (tmp_path/"exp_x/jobs/exp_x-smoke-glyphs-0000.ipynb").write_text(json.dumps(dict(cells=cells)))
    (tmp_path/"exp_x/jobs/exp_x-smoke-glyphs-0001.ipynb").write_text("{")
    out, _ = said("logs", "exp_x", "--out", tmp_path)
    assert "E: bad" in out and "is no notebook" in out and "\x1b" not in out and "\x07" not in out

def test_a_terminal_in_cp1252_and_ctrl_c(tmp_path, monkeypatch, capsys):
    import subprocess, sys

    code = "from fewshot_nb.cli import main as m; m._spell_out_what_a_terminal_lacks(); "
    code += "print('5 \\u2193 \\u00b1 \\u2603')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=dict(os.environ, PYTHONIOENCODING="cp1252"))
    assert done.stdout.decode("cp1252").strip() == "5 v \u00b1 ?", done.stderr
    from fewshot_nb.engine import experiment
    def stopped(): raise KeyboardInterrupt
    monkeypatch.setattr(experiment, "experiment_names", stopped)
    from fewshot_nb.engine import determinism
    monkeypatch.setattr(determinism, "run_twice", lambda *a, **k: stopped())
    for line, words in ((["reproduce", "--all"], "what was finished is kept, and the same command goes on from there."),
                        (["check-determinism", "exp_beta"], "nothing is kept, and the same command begins anew."),
                        (["list"], "nothing is kept, and the same command begins anew.")):
        with pytest.raises(SystemExit) as e: main(line)
        assert e.value.code == 130 and capsys.readouterr().err.endswith(f"fewshot_nb: stopped: {words}\n")

def test_ctrl_c_while_the_command_is_imported(monkeypatch, capsys):
    "The console's entry is light: what takes time to import is imported where Ctrl-C ends it in one line."
    from configparser import ConfigParser
    from importlib import import_module
    config = ConfigParser(delimiters=["="])
    config.read(Path(__file__).parents[1]/"settings.ini", encoding="utf-8")
    module, _, name = config["DEFAULT"]["console_scripts"].partition("=")[2].partition(":")
    entry = getattr(import_module(module), name)
    class Stopped:
        def find_spec(self, *_): raise KeyboardInterrupt
    monkeypatch.delitem(sys.modules, "fewshot_nb.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Stopped(), *sys.meta_path])
    with pytest.raises(SystemExit) as e: entry()
    assert e.value.code == 130 and capsys.readouterr().err == "\nfewshot_nb: stopped before anything was done.\n"

@pytest.mark.parametrize("line", [["--version"], ["list", "--evidence"], ["results", "exp_beta", "--committed"]])
def test_output_that_cannot_be_written(line):
    "A full disk is one sentence; a reader that leaves early is none. Python's own end finds nothing left to say."
    command = [sys.executable, "-m", "fewshot_nb", *line]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == ("fewshot_nb: standard output cannot be written (No space left on "
                                                    "device): free its disk, or send it elsewhere.\n"), done.stderr
    left, end = os.pipe()
    os.close(left)
    done = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, text=True)
    os.close(end)
    assert done.returncode == 1 and done.stderr == "", done.stderr

def test_other_errors_of_files_are_not_taken_for_output(monkeypatch):
    def lost(): raise OSError(5, "Input/output error")
    monkeypatch.setattr(experiments, "experiment_names", lost)
    with pytest.raises(OSError, match="Input/output error"): main(["list"])

def test_cuda_asked_for_and_absent(refused, monkeypatch):
    import torch
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "no CUDA GPU" in refused("run", "exp_beta", "-p", "device=cuda")
    assert "no CUDA GPU" in refused("reproduce", "exp_beta", "--data", "glyphs", "-p", "device=cuda")
    assert "--gpus 2 was asked for, but this machine has 0" in refused(
        "reproduce", "exp_beta", "--data", "glyphs", "--gpus", "2")

def test_no_slurm_on_the_path(refused, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no sbatch on the path" in refused("reproduce", "exp_beta", "--data", "glyphs", "--engine", "slurm")

def test_a_cluster_without_gpus(refused, monkeypatch, tmp_path):
    pytest.importorskip("submitit")
    for tool, answer in dict(sbatch="", sinfo="(null)").items():
        (tmp_path/tool).write_text(f"#!/bin/sh\necho '{answer}'\n"); (tmp_path/tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "--gpus 1 was asked for, but this cluster's nodes have none" in refused(
        "reproduce", "exp_beta", "--data", "glyphs", "--engine", "slurm", "--gpus", "1")

def test_unknown_and_cyclic_dependencies(refused, monkeypatch, tmp_path):
    for name, needs in dict(exp_a="exp_b", exp_b="exp_a", exp_c="exp_d").items():
        front = f"---\ntitle: {name}\nversion: 1\nneeds: [{needs}]\nprofiles: {{smoke: {{x: 1}}}}\n---"
        (tmp_path / f"{name}.ipynb").write_text(
            json.dumps(dict(cells=[dict(cell_type="raw", source=front, metadata={})])))
    monkeypatch.setattr(experiments, "experiments_folder", lambda: tmp_path)
    assert "need each other in a circle (exp_a -> exp_b -> exp_a)" in refused("reproduce", "exp_a")
    assert "Unknown experiment 'exp_d'" in refused("reproduce", "exp_c")

# --- data

def test_data_folders_that_hold_no_omniglot(refused, tmp_path):
    (tmp_path/"empty").mkdir()
    for command in ("run", "reproduce"):
        assert "No Omniglot in" in refused(command, "exp_beta", "--data", tmp_path/"empty")
        for name in ("exp_beta", "exp_alpha_entropy"):  # the second reads no data
            assert "does not exist" in refused(command, name, "--data", tmp_path/"nowhere")

def test_a_named_folder_without_omniglot_says_why_nothing_is_fetched(refused, tmp_path, monkeypatch):
    (tmp_path/"empty").mkdir()
    monkeypatch.setenv("FEWSHOT_DATA", str(tmp_path/"empty"))
    words = "FEWSHOT_DATA names this folder, so nothing is fetched: put Omniglot there, or unset FEWSHOT_DATA"
    assert words in refused("data", "omniglot")
    assert "FEWSHOT_DATA" not in refused("data", "omniglot", "--data", tmp_path/"empty")

@pytest.fixture
def tree(tmp_path, cache):
    "Two characters of Omniglot."
    for half in ("images_background", "images_evaluation"):
        folder = tmp_path/"data"/half/"Latin"/"character01"
        folder.mkdir(parents=True)
        for d in range(20):
            Image.fromarray(np.random.default_rng(d).random((105, 105)) > 0.1).save(
                folder / f"0001_{d:02}.png")
    return tmp_path/"data"

def test_omniglot_with_characters_missing(refused, tree):
    assert "2 characters with 20 drawings were found, 1623 are expected" in refused("data", "omniglot", "--data", tree)

def test_a_truncated_archive(refused, tree, tmp_path):
    (tmp_path/"tar").mkdir()
    path = tmp_path/"tar/omniglot.tar.xz"
    with tarfile.open(path, "w:xz") as t: t.add(tree, ".")
    path.write_bytes(path.read_bytes()[:-400])
    sentence = refused("data", "omniglot", "--data", path.parent)
    assert "damaged" in sentence or "not complete" in sentence

def test_a_truncated_cache_is_made_anew(said, tree, cache, monkeypatch, tmp_path):
    from fewshot_nb.data import omniglot
    for name, value in dict(CHARACTERS=2, ALPHABETS=1).items(): monkeypatch.setattr(omniglot, name, value)
    monkeypatch.chdir(tmp_path)
    sheets = []
    for again in (False, True):
        if again:
            for file in cache.glob("*.safetensors"): file.write_bytes(file.read_bytes()[:300])
        out, notes = said("data", "omniglot", "--size", "28", "--data", tree)
        assert again == ("made anew" in notes)
        assert out.startswith("omniglot: 40 drawings of 2 characters in 1 alphabet, 28 x 28 pixels, ready in ")
        sheets.append((tmp_path/"runs/omniglot.png").read_bytes())
    assert sheets[0] == sheets[1]

@pytest.mark.parametrize("command", [["run", "exp_beta"], ["reproduce", "exp_beta", "--dry-run"]])
def test_a_wrong_profile_is_all_that_is_said(command, monkeypatch, tmp_path):
    "Before it stood that there is no Omniglot here, of a run that never was."
    for name in ("FEWSHOT_DATA", "FEWSHOT_SHARED"): monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FEWSHOT_CACHE", str(tmp_path))
    run = [sys.executable, "-m", "fewshot_nb", *command, "--profile", "lapto"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "did you mean laptop" in done.stderr

def test_beta_negative_and_more_ways_than_classes(refused, tmp_path):
    from fewshot_nb.studies.generation import generation_row
    with pytest.raises(core.InputError, match="beta=-1"): generation_row(dict(beta=-1), data="glyphs")
    np.savez(
        tmp_path / "f.npz", features=np.random.default_rng(0).normal(size=(60, 8)).astype("f4"),
        labels=np.repeat(range(3), 20))
    assert "way=5" in refused("evaluate", tmp_path/"f.npz", "--tasks", "10")

# --- the folder of results

def rows_of_beta(out, n=1):
    "Rows as exp_beta's smoke profile writes them."
    e = experiments.find_experiment("exp_beta")
    labels = e.label_values("glyphs", dict(critics="auto"))
    settings = [dict(profile="smoke", data="glyphs", **labels, **s) for s in e.grid("smoke")]
    results = Results(e.folder("smoke", out, "glyphs"), e.name, e.version, list(settings[0]))
    return results, [results.write([dict(s, diversity=1.5)], seconds=40., setting=s) for s in settings[:n]]

@pytest.mark.parametrize("given, words", [
    ((), "nothing about the paper"), (("--profile", "committed"), "nothing was computed"),
    (("--profile", "hours"), "judged in the claims")])
def test_a_run_ends_with_what_it_shows(given, words, said, tmp_path, monkeypatch):
    "The README promises that sentence of a run without options, too."
    def run(self, to, values):
        (tmp_path/"mine.ipynb").write_text(json.dumps(dict(cells=[])))
        return tmp_path/"mine.ipynb"
    monkeypatch.setattr(experiments.Experiment, "run", run)
    told = said("run", "exp_beta", *given)[0]
    assert words in told and "run mine" not in told  # the experiment is named, not the file

def test_results_that_cannot_be_written(refused, tmp_path, monkeypatch):
    (tmp_path/"file").write_text("")
    for command in ("run", "reproduce"):
        where = ["-p", f"out={tmp_path}/file/out"] if command == "run" else ["--out", tmp_path/"file/out"]
        assert "'file' is a file: name another" in refused(command, "exp_beta", "--data", "glyphs", *where)
    def forbidden(*args, **kwargs): raise PermissionError(13, "Permission denied")  # as for one who is not root
    monkeypatch.setattr(core.tempfile, "TemporaryFile", forbidden)
    assert "Permission denied" in refused("reproduce", "exp_beta", "--data", "glyphs", "--out", tmp_path/"out")

def test_results_that_cannot_be_read(refused, tmp_path, monkeypatch):
    "A folder that is not there, and one that may not be looked into; to be read, it need not be written."
    assert "under 'nowhere': run it first, name the folder" in refused("results", "exp_beta", "--out", "nowhere")
    rows_of_beta(tmp_path/"out")
    def forbidden(*args, **kwargs): raise PermissionError(13, "Permission denied")
    for locked in (tmp_path/"out", tmp_path/"out/exp_beta"):
        with monkeypatch.context() as m:
            m.setattr(os, "access", lambda folder, _: str(folder) != str(locked))
            words = refused("results", "exp_beta", "--out", tmp_path/"out")
        assert f"Cannot read the folder {str(locked)!r}" in words and "ask its owner" in words and "--out" in words
    monkeypatch.setattr(core.tempfile, "TemporaryFile", forbidden)
    with pytest.raises(SystemExit) as e: main(["results", "exp_beta", "--out", str(tmp_path/"out")])
    assert e.value.code == 0

def test_a_full_disk(refused, tmp_path):
    rows_of_beta(tmp_path/"out")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try: sentence = refused("results", "exp_beta", "--out", tmp_path/"out", "--to", tmp_path/"all.csv")
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "Cannot write" in sentence and "make room" in sentence and not list(tmp_path.glob("*all.csv*"))

def test_a_folder_of_another_grid(refused, tmp_path):
    folder = experiments.find_experiment("exp_beta").folder("smoke", tmp_path, "glyphs")
    Results(folder, "exp_beta", 1, ["profile", "data", "beta", "seed"])
    assert "belongs to another grid" in refused("reproduce", "exp_beta", "--data", "glyphs", "--out", tmp_path)
    shutil.rmtree(folder)
    Results(folder, "exp_other", 1, ["profile", "data", *experiments.find_experiment("exp_beta").grid("smoke")[0]])
    assert "belongs to another experiment" in refused("reproduce", "exp_beta", "--data", "glyphs", "--out", tmp_path)

def test_parts_cut_short_or_foreign_are_named_and_set_aside(said, tmp_path, monkeypatch):
    results, paths = rows_of_beta(tmp_path, 2)
    paths[0].write_bytes(paths[0].read_bytes()[:-100])
    shutil.copy(Results(tmp_path/"b", "exp_other", 1, ["x"]).write([dict(x=1)]), results.folder/"stranger.parquet")
    out, notes = said("results", "exp_beta", "--out", tmp_path, "--to", tmp_path/"all.csv")
    assert "1 row: " in out and paths[0].name in notes and "stranger.parquet" in notes and "not merged" in notes
    assert {p.name for p in results.folder.glob("*.aside")} == {paths[0].name + ".aside", "stranger.parquet.aside"}

# --- what goes well

def test_rows_that_ship_in_lines_that_fit(said, refused, tmp_path, monkeypatch):
    "In a fresh folder `results` said to run it first, and printed lines of 900 characters."
    assert "read the rows that come with the package with --committed" in refused("results", "exp_keff")
    monkeypatch.setenv("COLUMNS", "90")
    *lines, last = said("results", "exp_keff", "--committed")[0].splitlines()
    assert max(map(len, lines)) <= 90 and "accuracy" in lines[0].split()
    assert last == f"{len(lines) - 1} rows, {len(lines[0].split())} of 29 columns: --to FILE.csv writes all"
    said("results", "exp_keff", "--committed", "--to", tmp_path/"all.csv")
    assert len((tmp_path/"all.csv").read_text().splitlines()) == len(lines)

def test_a_run_tells_first_how_long_it_takes(said, tmp_path, monkeypatch):
    "`reproduce --dry-run` knew that exp_beta takes a quarter of an hour; `run` did not say so."
    def run(self, to, values):
        (tmp_path/"mine.ipynb").write_text(json.dumps(dict(cells=[])))
        return tmp_path/"mine.ipynb"
    monkeypatch.setattr(experiments.Experiment, "run", run)
    first = said("run", "exp_beta", "--profile", "laptop", "--data", "glyphs")[0].splitlines()[0]
    assert first.startswith("about ") and "on one core, measured on" in first
    assert not said("run", "exp_beta", "--data", "glyphs")[0].startswith("about")

def test_dry_run_tells_jobs_and_hours(said, tmp_path):
    rows_of_beta(tmp_path)
    out, _ = said("reproduce", "exp_beta", "--data", "glyphs", "--out", tmp_path, "--dry-run", "--profile", "smoke")
    assert "exp_beta-smoke-glyphs-0001: beta=5.0 seed=0" in out and "0000" not in out
    *_, head, of_beta, measured, total = out.splitlines()
    assert total == "total: 1 job, 40 s" and of_beta.split()[:5] == ["exp_beta", "2", "1", "1", "0.011"]  # 40 s
    assert re.fullmatch(r"measured on .+, \d+ cores?: exp_beta \(smoke\)", measured)  # a machine stands once, below
    assert "measured" not in head and max(len(head), len(of_beta)) < 80
    out, _ = said(
        "reproduce", "exp_beta", "--data", "glyphs", "--out", tmp_path, "--dry-run", "--profile",
        "paper", "--jobs", "4")
    assert out.count("exp_beta-paper-glyphs-") == 60
    line, = [line for line in out.splitlines() if line.split()[:1] == ["exp_beta"]]
    hours, petaflop = (float(v.replace(",", "")) for v in line.split()[4:])
    from fewshot_nb.studies.generators import generator_flops as work
    e = experiments.find_experiment("exp_beta")
    committed = committed_rows("exp_beta").to_dict("records")  # no row of this profile: all rows say what work costs
    seconds = 40 + sum(row["seconds"] for row in committed)
    done = work(e.grid("smoke")[0]) + sum(map(work, committed))
    assert hours == pytest.approx(seconds/3600/4*sum(map(work, e.grid("paper")))/done, rel=1e-3)
    assert petaflop == pytest.approx(sum(map(work, e.grid("paper")))/1e15, rel=1e-2) and f"{petaflop:,.0f}" in line

def test_the_list_and_the_ledger(said, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # nothing wraps
    out, _ = said("list")
    names, lines = experiments.experiment_names(), out.splitlines()
    assert [sum(line.startswith(f"  {name} ") for line in lines) for name in names] == [1]*len(names)
    papers = [line for line in lines[:-1] if not line.startswith("  ")]
    assert len(lines) == len(names) + len(papers) + 1 < 45 and lines[-1].endswith("fewshot_nb list --evidence")
    one, = [line.split(maxsplit=1)[1] for line in lines if line.startswith("  exp_dirichlet ")]
    assert one == "random class proportions (laptop)"
    out, _ = said("list", "--evidence")
    assert all(name in out for name in names) and "Fig. 4b" in out and "evidence: " in out
    assert not re.search(r"\b1 (rows|cores)\b", out) and ", 1 core, " in out
    out, _ = said("claims", "--paper", "generation", "--all")
    assert "generation/A3t" in out and "reproduced" in out

def test_methods_are_listed_and_named_before_shipped_features(said, monkeypatch, tmp_path):
    from fewshot_nb.inference import METHODS
    monkeypatch.setenv("COLUMNS", "200")
    out, _ = said("list", "--methods")
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  ")] == \
        sorted(METHODS, key=lambda name: METHODS[name].transductive)
    how = "--tasks", 20, "--shots", 1, "--no-change", "--out", tmp_path
    out, _ = said("evaluate", *how, "--methods", "simpleshot", "nearest-prototype", "tiny-tiered-rn12")
    assert "simpleshot" in out and "45 classes" in out  # the last word is no method
    out, _ = said("claims", "--paper", "generation", "--format", "json")
    assert {"id", "verdict", "why"} <= set(json.loads(out)[0])

def test_help_and_version(said):
    began = time.perf_counter()
    out, _ = said("--help")
    print(f"help, in process: {time.perf_counter() - began:.2f} s")
    assert "reproduce" in out and "Traceback" not in out and said()[0] == out  # and without any word
    assert not re.search(r"\.\.\.$", out.partition("Commands:")[2], re.M)  # no summary of a command is cut
    assert said("--version")[0].strip() == f"fewshot_nb {fewshot_nb.__version__}"

def test_a_missing_value_points_to_the_help_of_its_command(capsys):
    for command, option in (("evaluate", "--shots"), ("embed", "--out")):
        with pytest.raises(SystemExit) as e: main([command, "ok.npz", option])
        assert e.value.code == 2
        assert capsys.readouterr().err.strip().endswith(f"requires an argument: see fewshot_nb {command} --help.")

@pytest.fixture
def two_folders(tmp_path, monkeypatch):
    "Two folders of images, and a module with two backbones that cost nothing."
    import sys
    for k, folder in enumerate(("imgs", "the other")):
        for name in ("ant", "bee"):
            (tmp_path/folder/name).mkdir(parents=True)
            for i in range(2): Image.new("RGB", (9, 9), (40*i, 90*k, 7)).save(tmp_path/folder/name/f"{i}.png")
    net = "import torch\ndef {}(): return torch.nn.AvgPool2d({})\n"
    (tmp_path/"two_nets_of_a_test.py").write_text(net.format("wide", 112) + net.format("fine", 56))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("two_nets_of_a_test", None)

def test_embed_writes_over_nothing_but_the_same_embedding(two_folders, said, refused, monkeypatch):
    "It once replaced any file of the name, and the name has a default."
    def line(net, folder="imgs", *more): return ["embed", folder, "--model", f"two_nets_of_a_test:{net}", *more]
    out, _ = said(*line("wide"))
    assert out.strip() == "features.npz: look at it with fewshot_nb evaluate features.npz"
    first = np.load("features.npz")["features"]
    said(*line("wide"))  # the same command again
    assert np.array_equal(np.load("features.npz")["features"], first)
    made = (two_folders/"features.npz").read_bytes()
    np.savez("precious.npz", features=np.ones((3, 2)), labels=[0, 1, 2])
    (two_folders/"notes.npz").write_text("mine")
    (two_folders/"folder.npz").mkdir()
    theirs = (two_folders/"precious.npz").read_bytes()
    monkeypatch.setattr("fewshot_nb.data.embedding.backbone_from", lambda *_: pytest.fail("this is work"))
    for command, words in (
            (line("fine"), "'features.npz' is there already and is of two_nets_of_a_test:wide and the images in"),
            (line("wide", "the other"), "not of two_nets_of_a_test:wide and the images in"),
            (line("wide", "imgs", "--weights", "random"), "not of two_nets_of_a_test:wide with weights random and"),
            (line("wide", "imgs", "--out", "precious.npz"), "'precious.npz' is there already and does not say"),
            (line("wide", "imgs", "--out", "notes.npz"), "'notes.npz' is there already and does not say"),
            (line("wide", "imgs", "--out", "folder.npz"), "'folder.npz' is there already and does not say")):
        sentence = refused(*command)
        assert words in sentence and sentence.endswith("name another file with out= (--out), or remove it.")
    assert (two_folders/"features.npz").read_bytes() == made and (two_folders/"precious.npz").read_bytes() == theirs

def test_embed_quotes_a_path_with_spaces(two_folders, said):
    import shlex
    out, _ = said("embed", "the other", "--model", "two_nets_of_a_test:wide", "--out", "em b.npz")
    assert shlex.split(out.partition("look at it with ")[2]) == ["fewshot_nb", "evaluate", "em b.npz"]

@pytest.mark.parametrize("name", experiments.experiment_names())
def test_every_experiment_keeps_the_contract(name):
    """One cell of parameters with the names that all share, one cell `table`, which alone computes
    rows; a batch of an engine ends there."""
    e = experiments.find_experiment(name)
    cells = json.loads(e.path.read_text())["cells"]
    tagged = {tag: [c for c in cells if tag in c["metadata"].get("tags", [])] for tag in ("parameters", "table")}
    assert [len(c) for c in tagged.values()] == [1, 1] and any(
        call in "".join(tagged["table"][0]["source"]) for call in ("open_experiment(", ".rows("))
    assert list(e.parameters())[:2] == ["profile", "data"] and {
        "device", "seed", "jobs", "out", "rows"} <= set(e.parameters())
    assert {"smoke", "laptop", "gpu", "paper"} <= set(e.profiles) and e.grid("paper") and e.regenerates

def test_a_kernel_that_does_not_start(refused, monkeypatch):
    import papermill
    def slow(*args, **kwargs): raise RuntimeError("Kernel didn't respond in 300 seconds")
    monkeypatch.setattr(papermill, "execute_notebook", slow)
    assert (
        "exp_dirichlet failed: its kernel did not start (Kernel didn't respond in 300 seconds): try"
        in refused("run", "exp_dirichlet")
    )
