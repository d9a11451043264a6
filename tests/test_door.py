"""The command as a newcomer types it: any file of features, several files, every format, any width."""
import json, warnings

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fewshot_nb.cli.main import app, main
from fewshot_nb.core import InputError
from fewshot_nb.data.bank import numeric_tensor

WORDS = np.repeat([f"class {i}" for i in range(8)], 50)
MEANS = np.random.default_rng(1).normal(size=(8, 12))[np.arange(400)//50]

def numbers(spread=1.5, seed=0):
    return (MEANS + spread*np.random.default_rng(seed).normal(size=MEANS.shape)).astype("f4")

def said(*args, code=0):
    done = CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done

LINE = ["--methods", "nearest-prototype", "bd-cspn", "--shots", "1", "--tasks", "30", "--queries", "20"]

def csv_with(path, **more):
    import pandas as pd
    pd.DataFrame(numbers()).assign(label=WORDS, **more).to_csv(path, index=False)

def write_npy(path):
    np.save(path, numbers())
    path.with_name("f_labels.txt").write_text("\n".join(WORDS))

FILES = {
    "f.npz": lambda p: np.savez(p, my_embeddings=numbers(), species=WORDS), "f.csv": csv_with, "f.npy": write_npy,
    "g.npz": lambda p: np.savez(p, X=numbers(), y=WORDS),
    "f.pt": lambda p: torch.save((torch.tensor(numbers()), torch.arange(400)//50), p)}

@pytest.mark.parametrize("name", FILES)
def test_any_file_gives_the_same_tasks(name, tmp_path):
    FILES[name](tmp_path/name)
    done = said("evaluate", tmp_path/name, *LINE, "--format", "json", "--out", tmp_path/"out")
    found = {r["method"]: r["accuracy"] for r in json.loads(done.stdout) if r["marginal"] != "balanced"}
    from fewshot_nb import evaluate
    t = evaluate(numbers(), WORDS, methods=["nearest-prototype", "bd-cspn"], shots=1, n_tasks=30, n_query=20).numbers
    true = t[t.marginal != "balanced"].set_index("method").accuracy.to_dict()
    assert found == pytest.approx(true, abs=1e-6)

@pytest.mark.parametrize("more, words", [
    (dict(city="Ulm"), "columns that are neither features nor labels: city; left out"),
    (dict(a="b", c="d", e="f", g="h"), "neither features nor labels: a, c, e and 1 more; left out"),
    (dict(number=np.arange(400)), "f.csv counts its rows in number: left out"),
    (dict(number=np.arange(1, 401)), "f.csv counts its rows in number: left out")])
def test_columns_that_nobody_uses_are_named(tmp_path, more, words):
    from fewshot_nb.data.features import feature_arrays
    csv_with(tmp_path/"f.csv", **more)
    with pytest.warns(UserWarning) as noted: found = feature_arrays(tmp_path/"f.csv")
    assert len(noted) == 1 and words in str(noted[0].message) and "\n" not in str(noted[0].message)
    assert np.allclose(found["features"], numbers()) and found["labels"].tolist() == WORDS.tolist()

@pytest.mark.parametrize("kind", ["csv", "parquet", "labels beside it", "in memory"])
def test_columns_that_pass_for_features(tmp_path, kind):
    "The labels by their numbers and identifiers are refused, pandas' index is left out, whole numbers are named."
    import pandas as pd
    from fewshot_nb.data.features import features
    from fewshot_nb.evaluation.front import features_from
    shuffled = np.random.default_rng(0).permutation(400)
    def read(**more):
        t = pd.DataFrame(numbers()).rename(columns=str).assign(**more)
        if kind == "in memory": return features_from(t, WORDS).novel
        if kind == "parquet": t.assign(label=WORDS).to_parquet(tmp_path/"f.parquet")
        else: t.assign(**{} if kind[0] == "l" else dict(label=WORDS)).to_csv(tmp_path/"f.csv", index=False)
        (tmp_path/"y.txt").write_text("\n".join(WORDS))
        return features(tmp_path/f"f.{'parquet' if kind == 'parquet' else 'csv'}",
                        labels=tmp_path/"y.txt" if kind[0] == "l" else None).novel
    with pytest.raises(InputError, match="would take kind as a feature, but it is a function of the labels"):
        read(kind=np.arange(400)//50)
    with pytest.raises(InputError, match="would take image_id as a feature, but it has whole numbers and the name of"):
        read(image_id=shuffled)
    with pytest.warns(UserWarning, match="has an index of pandas in Unnamed: 0: left out") as noted:
        assert np.allclose(read(**{"Unnamed: 0": shuffled}).data, numbers())
    assert len(noted) == 1
    with pytest.warns(UserWarning, match=r"whole numbers in fold among .* table.drop\(columns=\['fold'\]\)") as noted:
        assert read(fold=shuffled % 5).shape == (13,)
    assert len(noted) == 1

def test_base_features_lose_the_index_of_pandas_too(tmp_path, recwarn):
    import pandas as pd
    from fewshot_nb.data.features import features
    np.savez(tmp_path/"f.npz", features=numbers(), labels=WORDS)
    pd.DataFrame(numbers(seed=1)).sample(frac=1, random_state=0).to_csv(tmp_path/"base.csv")
    mean = features(tmp_path/"f.npz", base=tmp_path/"base.csv").base_mean
    assert np.allclose(mean, numbers(seed=1).mean(0), atol=1e-5)

def test_words_among_numbers_and_two_candidates_are_refused(tmp_path, recwarn):
    import pandas as pd
    from fewshot_nb.data.features import feature_arrays
    csv_with(tmp_path/"f.csv", more=["1.5"]*399 + ["1,5"])
    with pytest.raises(InputError, match="column more of f.csv has words among its numbers, such as '1,5'"):
        feature_arrays(tmp_path/"f.csv")
    table = pd.DataFrame(numbers()).assign(species=WORDS, city="Ulm")
    table.to_csv(tmp_path/"g.csv", index=False)
    with pytest.raises(InputError, match=r"several arrays that may be the labels, species \(400,\), city"):
        feature_arrays(tmp_path/"g.csv")
    (tmp_path/"y.txt").write_text("\n".join(WORDS))
    with pytest.warns(UserWarning, match="neither features nor labels: species, city"):
        assert feature_arrays(tmp_path/"g.csv", tmp_path/"y.txt")["labels"].tolist() == WORDS.tolist()
    table.drop(columns="city").to_csv(tmp_path/"h.csv", index=False)
    assert feature_arrays(tmp_path/"h.csv")["labels"].tolist() == WORDS.tolist()
    pd.DataFrame(dict(emb=list(numbers()), species=WORDS)).to_parquet(tmp_path/"i.parquet")
    found = feature_arrays(tmp_path/"i.parquet")  # one column of vectors, whatever it is called
    assert np.allclose(found["features"], numbers()) and found["labels"].tolist() == WORDS.tolist()
    assert not [w for w in recwarn if "h.csv" in str(w.message) or "i.parquet" in str(w.message)]

@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits(tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)
    np.savez("f.npz", x=numbers(), y=WORDS)
    text = said("evaluate", "f.npz", *LINE, "--plot", "p.png", "--sort", "name").stdout
    lines = text.splitlines()
    assert max(map(len, lines[:-1])) <= width and "* the best" in text
    first = [s.split()[0] for s in lines if s.strip()]
    assert [s for s in first if s in ("bd-cspn", "nearest-prototype")] == ["bd-cspn", "nearest-prototype"]
    assert (tmp_path/"p.png").stat().st_size > 5000
    assert "accuracy: mean accuracy over tasks" in said("evaluate", "f.npz", *LINE, "--explain").stdout

@pytest.mark.parametrize("width", [80, 120])
def test_a_transcript_on_the_digits_of_scikit_learn(tmp_path, monkeypatch, width):
    "What a newcomer sees: one backbone, then two, in a terminal of 80 or 120 characters."
    from sklearn.datasets import load_digits
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)
    X, y = load_digits(return_X_y=True)
    np.savez("digits.npz", features=X.astype("f4"), labels=y)
    np.savez("half.npz", features=X[:, :32].astype("f4"), labels=y)
    ask = ["--methods", "simpleshot", "nearest-prototype", "--tasks", "100"]
    one, two = said("evaluate", "digits.npz", *ask).stdout, said("compare", "digits.npz", "half.npz", *ask).stdout
    for text in (one, two):
        assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= width
        assert all(f"5-way {shot}-shot, 75 queries, dirichlet(2), 100 tasks" in text for shot in (1, 5))
    assert "digits.npz: 1,797 samples of 64 numbers, 10 classes" in one and one.count("* the best") == 2
    assert "of 2 methods digits is ahead with 2, half is ahead with 0" in two and "for all comparisons shown" in two
    wide = "s / 1,000"  # the column that a narrow terminal loses first, and is told of
    assert ("no room for: " + wide in one) == (width == 80) and "± classes" in two

@pytest.mark.parametrize("format, sign", [("markdown", "| method |"), ("latex", r"\toprule"), ("csv", "data,content")])
def test_a_format_is_alone_on_the_output(tmp_path, format, sign):
    np.savez(tmp_path/"f.npz", x=numbers(), y=WORDS)
    done = said("evaluate", tmp_path/"f.npz", *LINE, "--format", format, "--out", tmp_path/"out")
    assert sign in done.stdout and "rows in" not in done.stdout and "rows in" in done.stderr

def test_several_files_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("worse.npz", features=numbers(3.), labels=WORDS, paths=np.arange(400))
    order = np.random.default_rng(0).permutation(400)
    np.savez("better.npz", features=numbers(1.)[order], labels=WORDS[order], paths=order)
    one, other = (said(command, "worse.npz", "better.npz", *LINE).stdout for command in ("evaluate", "compare"))
    assert one == other and "worse is ahead with 0, better is ahead with 2" in " ".join(one.split())

BAD = [
    (["evaluate", "two.npz"], "two.npz has several arrays that may be the features, a (400, 12), b (400, 12)"),
    (["evaluate", "tiny-tierd-rn12"], "did you mean tiny-tiered-rn12?"), (["evaluate", "nosuch"], "give a file (.npz"),
    (["evaluate", "bare.npy"], "bare.npy has no labels: give a file of them with --labels."),
    (["evaluate", "bare.npy", "--labels", "no.txt"], "no file"),
    (["evaluate", "."], "'.' is a folder, not a file of features: make one of its images with fewshot_nb embed."),
    (["evaluate", "f.npz", "--protocol", "omniglot"], "write fewshot_nb omniglot EMBEDDING"),
    (["evaluate", "f.npz", "--sort", "acuracy"], "did you mean accuracy"),
    (["evaluate", "f.npz", "--format", "tex"], "did you mean latex"),
    (["evaluate", "f.npz", "--plot", "p.gif"], "Unknown kind of picture '.gif'"),
    (["evaluate", "f.npz", "short.npz"], "400 rows in f and 399 rows in short"),
    (["evaluate", "f.npz", "g.npz", "--tune"], "--tune has a meaning only for one file"),
    (["evaluate", "f.npz", "--tasks", "0"], "--tasks 0 must be a whole number, 1 or more."),
    (["compare", "f.npz", "g.npz", "--queries", "0"], "--queries 0 must be a whole number, 1 or more."),
    (["evaluate", "f.npz", "--queries", "7"], "take --queries 10, or leave them out with --no-change."),
    (["evaluate", "f.npz", "--queries", "2000"], "samples left for --queries 2000 when shot=1 are taken from each"),
    (["compare", "f.npz"], "two files or more"), (["compare", "f.npz", "f.npz"], "given twice"),
    (["evaluate", "f.npz", "--out", "bare.npy"], "'bare.npy' is a file: name another"),
    (["evaluate", "blank.npz"], "blank.npz has 1 row without a label (blank): remove them"),
    (["embed", "images", "--model", "torchvision:resnet18", "--weights", "random", "--out", "f.npz/o.npz"],
     "Cannot write to the folder 'f.npz'"),
    (["embed", "images", "--model", "torchvision:resnet18", "--weights", "broken.pth", "--out", "o.npz"],
     "The weights 'broken.pth' cannot be read (Weights only load failed): save a plain state dict"),
    (["embed", "images", "--model", "tiny-tiered-rn12", "--out", "o.npz"],
     "1 of 1 images of 'images' cannot be read, the first is 'ant/1.png' (it is no image): mend or remove them"),
    (["embed", "f.npz", "--model", "tiny-tiered-rn12", "--out", "o.npz"], "'f.npz' is a file, not a folder")]

@pytest.mark.parametrize("args, words", BAD)
def test_bad_input_is_one_sentence(args, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("f.npz", x=numbers(), y=WORDS)
    np.savez("short.npz", x=numbers()[1:], y=WORDS[1:])
    np.savez("two.npz", a=numbers(), b=numbers(), y=WORDS)
    np.save("bare.npy", numbers())
    np.savez("blank.npz", x=numbers(), y=np.where(np.arange(400) == 7, "  ", WORDS))
    (tmp_path/"images/ant").mkdir(parents=True)
    (tmp_path/"images/ant/1.png").touch()
    (tmp_path/"broken.pth").write_text("nothing")
    with pytest.raises(InputError) as e: said(*args)
    assert words in str(e.value) and "\n" not in str(e.value) and not (tmp_path/"runs").exists()

@pytest.mark.parametrize("args, words", [
    (["evalute", "f.npz"], "Did you mean 'evaluate'?: see fewshot_nb --help."),
    (["evaluate"], "Missing argument 'features': see fewshot_nb evaluate --help."),
    (["evaluate", "f.npz", "--seed", "x"], "Invalid value for '--seed'"),
    (["evaluate", "f.npz", "--metods", "x"], "No such option: --metods"),
    (["doctor", "x"], "unexpected extra argument")])
def test_a_misspelt_command_is_told_in_one_line(args, words, capsys):
    with pytest.raises(SystemExit) as e: main(args)
    told = capsys.readouterr()
    assert e.value.code == 2 and words in told.err and told.err.count("\n") == 1 and not told.out

def test_the_doctor_names_what_mends(tmp_path, monkeypatch):
    import importlib.util
    monkeypatch.setenv("FEWSHOT_DATA", str(tmp_path/"nowhere"))
    assert "no folder" in said("doctor", code=1).stdout
    monkeypatch.setenv("FEWSHOT_DATA", str(tmp_path))
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "numba" else real(name, *a))
    text = said("doctor").stdout
    assert "numba is not installed" in text and "-m pip install numba" in text and "data omniglot" in text
    assert "unset FEWSHOT_DATA; fewshot_nb data omniglot" in " ".join(text.split())  # in that folder nothing is fetched
    assert "torch" in text and "cache" in text

def test_the_list_is_by_paper_and_loads_no_pandas():
    import subprocess
    import sys
    code = ("import sys; from fewshot_nb.cli.main import main\ntry: main(['list'])\nexcept SystemExit: pass\n"
            "heavy = {'torch', 'pandas'} & set(sys.modules); assert not heavy, heavy")
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert text.index("Boutin") < text.index("  exp_beta")
    assert "(hours, laptop, laptop_stn, longer)" in " ".join(text.split())

def test_a_forecast_reads_committed_rows_of_the_same_profile(tmp_path):
    "Smoke rows of one's own do not stand in for the committed laptop rows."
    from fewshot_nb.engine.experiment import find_experiment
    from fewshot_nb.engine.plan import dry_run
    e = find_experiment("exp_dirichlet")
    out = tmp_path/"results"
    before = dry_run(["exp_dirichlet"], "laptop", out)[0]
    results = e.results("smoke", "none", out)
    if results is None:
        from fewshot_nb.engine.results import Results
        results = Results(out/"exp_dirichlet"/"smoke-none", e.name, e.version, e.keys("smoke"))
    setting = e.grid("smoke", 0)[0]
    results.write([dict(setting, profile="smoke", data="none")], 99999.)
    assert dry_run(["exp_dirichlet"], "laptop", out)[0].expected_hours[0] == before.expected_hours[0] < 1
    assert "total: " in said("reproduce", "exp_dirichlet", "--dry-run", "--profile", "laptop", "--out", out).stdout

@pytest.fixture
def pictures(tmp_path):
    "Twelve images of two classes, and weights of a small network of torchvision."
    from PIL import Image
    from torchvision.models import squeezenet1_1, resnet18
    for i in range(12):
        file = tmp_path/"images"/("ant" if i < 6 else "bee")/f"{i:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 255, (40, 40, 3), np.uint8)).save(file)
    torch.manual_seed(0)
    torch.save(resnet18().state_dict(), tmp_path/"resnet18.pt")
    torch.save(squeezenet1_1().state_dict(), tmp_path/"other.pt")
    return tmp_path

def test_a_folder_becomes_features_and_a_stopped_run_goes_on(pictures, monkeypatch):
    from fewshot_nb.data import embedding
    monkeypatch.setattr(embedding, "PART", 5)
    line = ["embed", pictures/"images", "--model", "torchvision:resnet18", "--weights", pictures/"resnet18.pt",
            "--out", pictures/"f.npz", "--batch", "2"]
    embed, seen = embedding._embedded, []
    def stopped(backbone, transform, folder, paths, *more):
        if len(seen) == 5: raise KeyboardInterrupt
        seen.extend(paths)
        return embed(backbone, transform, folder, paths, *more)
    monkeypatch.setattr(embedding, "_embedded", stopped)
    assert CliRunner().invoke(app, list(map(str, line))).exit_code != 0 and not (pictures/"f.npz").exists()
    def counted(backbone, transform, folder, paths, *more):
        seen.extend(paths)
        return embed(backbone, transform, folder, paths, *more)
    monkeypatch.setattr(embedding, "_embedded", counted)
    said(*line)
    with np.load(pictures/"f.npz") as z: found = {k: z[k] for k in z.files}
    assert len(seen) == len(set(seen)) == 12 and found["features"].shape == (12, 512)
    assert found["labels"].tolist() == ["ant"]*6 + ["bee"]*6 and found["paths"][0] == "ant/00.png"
    assert not list(pictures.glob(".*parts")) and np.ptp(found["features"], axis=0).max() > 0

def test_broken_images_are_left_out_when_asked_and_parts_are_carried(pictures, monkeypatch):
    from fewshot_nb.data import embedding
    monkeypatch.setattr(embedding, "PART", 5)
    line = ["embed", pictures/"images", "--model", "torchvision:resnet18", "--weights", "random", "--out",
            pictures/"f.npz"]
    (pictures/"images"/"ant"/"03.png").write_bytes(b"no image")
    with pytest.raises(InputError, match="03.png.*--skip-broken"): said(*line)
    assert not (pictures/"f.npz").exists()
    (pictures/"split.csv").write_text("class,part\nant,base\n")
    with pytest.raises(InputError, match="'bee' is in no part"): said(*line, "--split", pictures/"split.csv")
    (pictures/"split.csv").write_text("class,part\nant,base\nbee,novel\n")
    with pytest.warns(UserWarning, match="1 of 12 images .* the first is 'ant/03.png' .*; they are left out"):
        said(*line, "--skip-broken", "--split", pictures/"split.csv")
    with np.load(pictures/"f.npz") as z: found = {k: z[k] for k in z.files}
    assert found["features"].shape == (11, 512) and "ant/03.png" not in found["paths"]
    assert found["split"].tolist() == ["base"]*5 + ["novel"]*6

@pytest.mark.parametrize("args, words", [
    (["--model", "torchvision:resnet19"], "did you mean resnet18"), (["--model", "resnet18"], "is not understood"),
    (["--model", "torchvision:resnet18", "--weights", "none.pt"], "There are no weights at 'none.pt'"),
    (["--model", "torchvision:resnet18", "--weights", "other.pt"], "The weights do not fit resnet18"),
    (["--model", "torchvision:resnet18", "--weights", "resnet18.pt", "--out", "f.csv"], "must end in .npz"),
    (["--model", "no_such_library:net"], "cannot be imported"),
    (["--model", "torchvison:resnet18"], "did you mean torchvision:resnet18"),
    (["--model", "json:backbone"], "has no attribute 'backbone'"),
    (["--model", "torchvision:resnet18", "--weights", "images/ant/00.png"], "cannot be read")])
def test_what_cannot_be_embedded(pictures, monkeypatch, args, words):
    monkeypatch.chdir(pictures)
    with pytest.raises(InputError) as e: said("embed", "images", *args)
    assert words in str(e.value) and "\n" not in str(e.value) and not (pictures/"f.npz").exists()

def test_an_untrained_backbone_is_the_same_each_time(pictures):
    line = ["embed", pictures/"images", "--model", "torchvision:resnet18", "--weights", "random", "--out"]
    for name in ("a.npz", "b.npz"): said(*line, pictures/name)
    a, b = (np.load(pictures/name)["features"] for name in ("a.npz", "b.npz"))
    assert np.array_equal(a, b) and np.ptp(a, axis=0).max() > 0

def test_backbones_of_timm(pictures, monkeypatch):
    timm = pytest.importorskip("timm")
    monkeypatch.chdir(pictures)
    torch.save(timm.create_model("resnet10t", num_classes=7).state_dict(), "mine.pt")  # a head of seven classes
    said("embed", "images", "--model", "timm:resnet10t", "--weights", "mine.pt", "--out", "f.npz")
    assert np.load("f.npz")["features"].shape == (12, 512)
    for name, file, words in [("resnet10tt", "mine.pt", "did you mean resnet10t"),
                              ("resnet14t", "mine.pt", "do not fit resnet14t"),
                              ("resnet10t", "resnet18.pt", "do not fit resnet10t")]:
        with pytest.raises(InputError, match=words):
            said("embed", "images", "--model", f"timm:{name}", "--weights", file)

def test_a_library_that_is_not_there_names_its_package(pictures, monkeypatch):
    import sys
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(InputError, match="open_clip is not installed: run .* -m pip install open_clip_torch"):
        said("embed", pictures/"images", "--model", "open_clip:RN50")

def test_weights_that_cannot_be_fetched(pictures, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(pictures/"empty"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", lambda *a, **k: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(InputError, match="resnet18-.*nor to be fetched .no network.: give a file with weights="):
        said("embed", pictures/"images", "--model", "torchvision:resnet18")

def test_calibration_on_the_command_line(tmp_path):
    part = np.where(np.arange(400)//50 < 3, "val", "test")
    np.savez(tmp_path/"f.npz", features=numbers(), labels=WORDS, split=part)
    done = said(
        "evaluate", tmp_path / "f.npz", "--methods", "simpleshot", "--shots", "5", "--way", "3",
        "--queries", "30", "--tasks", "100", "--calibrate", "--images", "--format", "json",
        "--no-change", "--out", tmp_path / "out")
    plain, warm = (next(r for r in json.loads(done.stdout) if r["method"] == m)
                   for m in ("simpleshot", "simpleshot calibrated"))
    assert warm["ece"] < plain["ece"] and warm["log_loss"] < plain["log_loss"] and plain["half_over_class"] > 0
    assert warm["accuracy"] == plain["accuracy"] and "temperature on validation classes, 5-shot" in done.stderr

def test_intervals_over_images_say_what_they_cannot(tmp_path):
    "Classes of which a task takes every image: the table stands, and the remark says why a width is missing."
    np.savez(tmp_path/"f.npz", x=numbers(), y=WORDS)
    line = ["evaluate", tmp_path/"f.npz", "--methods", "nearest-prototype", "--shots", "5", "--queries", "110",
            "--tasks", "60",
            "--images", "--out", tmp_path/"out"]
    text = said(*line).stdout
    text = " ".join(text.split())
    assert "± images unknown: some task uses every image of a class" in text and "± classes is rough: 60" in text

@pytest.mark.parametrize("width", [80, 120])
def test_what_is_printed_fits_the_terminal(width, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FEWSHOT_DATA", str(tmp_path))
    np.savez("f.npz", x=numbers(), y=WORDS)
    texts = [said("evaluate", "f.npz", *LINE, "--images", "--calibration", "--explain").stdout,
             said("list").stdout, said("list", "--evidence").stdout]
    texts[0] = "\n".join(texts[0].splitlines()[:-1])  # the last line is a path, which stays whole
    assert max(len(line) for text in texts for line in text.splitlines()) <= width

def test_a_table_that_may_not_be_written_to_is_taken_without_a_warning():
    "pandas hands out its columns as read-only arrays; torch would warn of what is no fault of the user."
    X = np.arange(12.).reshape(4, 3)
    X.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = numeric_tensor(X, "The features")
    x[0, 0] = 5.
    assert X[0, 0] == 0 and x[1, 1] == 4

def test_base_features_that_tasks_are_drawn_from_are_a_leak(tmp_path):
    "Told once where rows are shared; not for other classes, nor for a file with base features of its own."
    half = np.arange(400) < 200
    part = np.where(half, "base", "test")
    np.savez(tmp_path/"f.npz", x=numbers(), y=WORDS)
    np.savez(tmp_path/"base.npz", x=numbers()[half], y=WORDS[half])
    np.savez(tmp_path/"parts.npz", x=numbers(), y=WORDS, split=part)
    np.savez(tmp_path/"own.npz", x=numbers()[~half], y=WORDS[~half], base=numbers()[half])
    from fewshot_nb.data.features import features
    from fewshot_nb.evaluation.front import features_from
    for ask, told in [(lambda: features(tmp_path/"f.npz", base=tmp_path/"f.npz"), "400 of 400 rows of f.npz"),
                      (lambda: features(tmp_path/"f.npz", base=tmp_path/"base.npz"), "200 of 400 rows of f.npz"),
                      (lambda: features(tmp_path/"parts.npz", base=tmp_path/"base.npz"), None),
                      (lambda: features(tmp_path/"own.npz"), None),
                      (lambda: features_from(numbers(), WORDS, base=numbers()), "400 of 400 rows of features"),
                      (lambda: features_from(numbers(), WORDS, base=numbers(seed=1)), None),
                      (lambda: features_from(numbers(), WORDS, base=numbers().mean(0)), None)]:
        with warnings.catch_warnings(record=True) as said_so:
            warnings.simplefilter("always")
            ask()
        leaks = [str(w.message) for w in said_so if "leak" in str(w.message)]
        assert [s[:len(told or "")] for s in leaks] == ([told] if told else []), leaks
        assert all("give base features of other classes" in s and "\n" not in s for s in leaks)

def test_a_base_file_gives_one_mean_on_all_three_ways_in(tmp_path):
    "Of a file with a split its base rows count, and labels are not asked for."
    from fewshot_nb import evaluate
    other = numbers(seed=1)
    np.savez(tmp_path/"f.npz", x=numbers(), y=WORDS)
    np.savez(tmp_path/"parts.npz", x=other, y=WORDS, split=np.where(np.arange(400) < 200, "base", "novel"))
    np.savez(tmp_path/"bare.npz", x=other, scale=.5)
    ask = dict(methods="simpleshot", shots=1, n_tasks=30, n_query=20, change=False)
    def accuracy(*args, **more): return float(evaluate(*args, **ask, **more).numbers.accuracy.iloc[0])
    for name, rows in (("parts.npz", other[:200]), ("bare.npz", other*.5)):
        base = tmp_path/name
        done = said("evaluate", tmp_path/"f.npz", "--base", base, "--shots", "1", "--tasks", "30", "--queries", "20",
                    "--methods", "simpleshot", "--no-change", "--format", "json", "--out", tmp_path/f"out-{name}")
        true = accuracy(numbers(), WORDS, base=rows)
        assert true != accuracy(numbers(), WORDS)
        assert accuracy(numbers(), WORDS, base=base) == accuracy(tmp_path/"f.npz", base=base) == true
        assert json.loads(done.stdout)[0]["accuracy"] == pytest.approx(true)

def test_rows_without_a_base_mean_are_called_so(tmp_path):
    from fewshot_nb import evaluate
    ask = dict(methods="nearest-prototype", shots=1, n_tasks=10, n_query=20, change=False, out=tmp_path/"rows")
    evaluate(numbers(), WORDS, **ask)
    with pytest.warns(UserWarning, match="called 'features' are without a base mean: computed anew"):
        evaluate(numbers(), WORDS, base=np.zeros(12), **ask)

def test_an_instance_with_the_default_centre_is_taken_as_its_name_is():
    from fewshot_nb import evaluate, inference
    ask = dict(shots=1, n_tasks=10, n_query=20, change=False)
    def accuracy(m): return evaluate(numbers(), WORDS, methods=m, **ask).numbers.accuracy.tolist()
    with pytest.raises(InputError, match=r"give an instance, SimpleShot\(\)"): accuracy(inference.METHODS["simpleshot"])
    assert accuracy([inference.SimpleShot()]) == accuracy("simpleshot")
    assert accuracy([inference.SimpleShot.published(1)]) == accuracy("simpleshot")
    with pytest.raises(InputError, match="simpleshot was given centre='base', but there are no base features"):
        accuracy([inference.SimpleShot(centre="base")])
    assert accuracy([inference.SimpleShot(centre="support")]) == accuracy("simpleshot")  # the remedy works

def test_the_centre_that_was_asked_for_goes_with_copies():
    import copy, pickle
    from sklearn.base import clone
    from fewshot_nb.inference import SimpleShot
    for m, given in (SimpleShot(), False), (SimpleShot("base"), True), (SimpleShot(centre="base"), True):
        for same in copy.copy(m), copy.deepcopy(m), pickle.loads(pickle.dumps(m)):
            assert same == m and same._centre_given is given and set(vars(same)) == {"centre", "engine"}
    assert SimpleShot() == SimpleShot("base") and hash(SimpleShot()) == hash(SimpleShot("base"))
    assert clone(SimpleShot()) == SimpleShot()

def test_calibrating_takes_a_pair_and_refuses_features_without_labels():
    import fewshot_nb as fs
    spec = fs.TaskSpec(n_query=20)
    pair = fs.calibrated("simpleshot", (numbers(), WORDS), spec, n_tasks=20)
    assert pair.temperature > 0 and pair.method.centre == "support"
    with pytest.raises(InputError, match=r"ndarray is neither .* give features with their labels as a pair, \(X, y\)"):
        fs.calibrated("simpleshot", numbers(), spec)
    with pytest.raises(InputError, match=r"give features and labels as one pair, \(X, y\)"):
        fs.calibrated("simpleshot", numbers(), WORDS)

def test_log_loss_says_its_floor(tmp_path):
    np.savez(tmp_path/"f.npz", x=30*numbers(3.), y=WORDS)  # nearest prototypes are sure, and often wrong
    done = said("evaluate", tmp_path/"f.npz", *LINE, "--calibration", "--explain", "--out", tmp_path/"out")
    assert "below 1.2e-7 it counts as 1.2e-7, which is 15.9 nats" in " ".join(done.stdout.split())
