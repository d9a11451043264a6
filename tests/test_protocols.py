"""The Omniglot protocols on real data: splits, Lake's runs pixel by pixel, published figures that
need no training, the command, bad input."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from fewshot_nb.evaluation import omniglot as protocols
from fewshot_nb.engine.results import committed_rows
from fewshot_nb.studies import omniglot as study
from fewshot_nb.studies.omniglot_claims import gap_points
from fewshot_nb.core import InputError, threads
from fewshot_nb.data.omniglot import SPLITS, alphabets, in_part, omniglot
from fewshot_nb.data.lake_runs import bank_of_lake_images, read_lake_images, run_table
from fewshot_nb.models import siamese as nets
from fewshot_nb.models.core import embed, fresh
from fewshot_nb.samplers import draw_tasks, lake_image_tasks, lake_tasks

@pytest.fixture(scope="module")
def data(shared): return shared/"data"

@pytest.fixture(scope="module")
def bank(data): return omniglot(105, data=data)

COUNTS = dict(
    lake=dict(background=(30, 964), evaluation=(20, 659)),
    vinyals=dict(trainval=(38, 1204), test=(12, 419), train=(33, 1032), val=(5, 172)),
    koch=dict(background=(40, 1290), evaluation=(10, 333)),
    weak=dict(train=(50, 1473), test=(50, 150)))

@pytest.mark.parametrize("split", SPLITS)
def test_class_counts_and_disjoint_parts(bank, split):
    names = np.array(bank.names)
    parts = {p: set(names[in_part(bank.names, split, p)]) for p in SPLITS[split]}
    assert {p: (len({n.split("/")[0] for n in c}), len(c)) for p, c in parts.items()} == COUNTS[split]
    train, test = parts[protocols.TRAIN_PART[split]], parts[protocols.TEST_PART[split]]
    assert not train & test and len(train | test) == 1623

def test_gurmukhi_is_on_one_side_only():
    table = alphabets().set_index("alphabet")
    assert table.loc["Gurmukhi", ["vinyals", "vinyals_part"]].tolist() == ["trainval", "train"]
    assert set(table.index[table.vinyals == "test"]) <= set(table.index[table.lake == "evaluation"])
    seen = set(run_table().alphabet) & set(table.index[table.vinyals == "trainval"])
    assert seen == {"Atlantean", "Ge_ez", "Glagolitic", "Gurmukhi"}

def test_runs_are_omniglot_pixel_by_pixel(bank, data):
    "The 800 images of the authors' zip are those that the table names, in the same order and with the same labels."
    runs, tasks = read_lake_images(data), lake_tasks(bank)
    assert np.array_equal(bank.data[tasks.support][:, :, 0].numpy() > 0, runs.training)
    assert np.array_equal(bank.data[tasks.query][:, :, 0].numpy() > 0, runs.test)
    assert np.array_equal(tasks.query_labels.numpy(), runs.labels)
    own, own_tasks = bank_of_lake_images(runs), lake_image_tasks(runs)
    assert torch.equal(own.take(own_tasks.query[3]), bank.take(tasks.query[3]))

def test_distances_on_the_runs(data):
    """The modified Hausdorff distance at 105 px errs in 38.8 % of the trials, as Lake's demo says; pixels at 50 px
    in 81.5 %, as we measured before."""
    z, part, head = study.fixed_embedding("pixels", "lake", data)
    assert 100*protocols.problem_errors(z, [lake_tasks(part)], head).mean() == pytest.approx(81.5)
    assert 100*study.hausdorff_on_runs(data).mean() == pytest.approx(38.75)

def test_a_bank_without_the_run_alphabets(bank, data):
    with pytest.raises(InputError, match="need alphabets that are not in this bank"):
        lake_tasks(bank.select(in_part(bank.names, "lake", "background")))
    with pytest.raises(InputError, match="omniglot_all_runs.zip"): read_lake_images(data/"none")

def test_within_alphabet_problems(bank):
    part = bank.select(in_part(bank.names, "lake", "evaluation"))
    tasks = draw_tasks(part, protocols.problem_spec("within-alphabet", 20, 5), 2000)
    groups = part.groups[tasks.classes]
    assert (groups == groups[:, :1]).all() and len(groups.unique()) == 20  # alphabets uniformly, whatever their size
    assert np.bincount(np.unique(groups[:, 0], return_inverse=True)[1]).min() > 60
    assert all((tasks.query_labels == k).sum(1).eq(1).all() for k in range(20))
    back = bank.select(in_part(bank.names, "lake", "background"))
    with pytest.raises(InputError, match=r"Blackfoot.* \(14\)"):
        draw_tasks(back, protocols.problem_spec("within-alphabet", 20, 1), 1)
    assert (
        len(
            draw_tasks(back, protocols.problem_spec("within-alphabet", 20, 1, skip_small=True), 1024)
            .classes[:, 0]
            .unique()
        )
        > 26
    )

def test_a_better_embedding_is_better_everywhere(data):
    "HOG beats pixels under every protocol, and within-alphabet problems are harder for both."
    rows = {}
    for m in ("pixels", "hog"):
        z, part, head = study.fixed_embedding(m, "lake", data)
        rows[m] = study.error_columns(protocols.evaluate_embedding(z, part, head=head, n_problems=80))
    for p in protocols.OMNIGLOT_PROTOCOLS:
        for w, s in protocols.OMNIGLOT_PROBLEMS: assert rows["hog"][f"{p} {w}-{s}"] < rows["pixels"][f"{p} {w}-{s}"]
    for w, s in ((20, 1), (20, 5)):
        assert rows["hog"][f"within-alphabet {w}-{s}"] > rows["hog"][f"unstructured {w}-{s}"]

def test_the_gap_grows_on_every_scale_but_points():
    "A ratio of errors could have grown by scale alone; the odds grow with each look at each learner, too."
    rows = committed_rows("exp_omniglot_protocols")
    gap = gap_points(rows[rows.place.str.startswith("lake ")]).sort_values("steps")
    for _, looks in gap.query("steps > 0").groupby("method"):
        assert looks.times.is_monotonic_increasing and looks.odds.is_monotonic_increasing
    ends = gap.set_index(["method", "steps"]).odds[[("siamese shared", 400), ("siamese shared", 10_000)]]
    assert ends.round(1).tolist() == [2.1, 2.9]

def test_the_command_takes_a_function_and_a_file(data, tmp_path):
    "A function of one's own and the features that it gives, saved to a file, err alike."
    (tmp_path/"mine.py").write_text("def half(x): return x[:, 0, ::4, ::4].flatten(1)\n")
    z = omniglot(28, data=data)
    np.savez(tmp_path/"mine.npz", features=z.take(torch.arange(z.n))[:, 0, ::4, ::4].flatten(1).numpy())
    env = dict(os.environ, FEWSHOT_DATA=str(data),
               PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), os.getcwd()]))
    line = [sys.executable, "-m", "fewshot_nb", "omniglot", "mine:half", "--tasks", "60", "--out", str(tmp_path/"out")]
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = done.stdout, command(data, tmp_path/"mine.npz", "--tasks", 60, "--out", tmp_path/"out")
    assert all("vinyals lake-runs unseen" in " ".join(said.split()) for said in told)
    assert told[0].split("\n", 1)[1] == told[1].split("\n", 1)[1]

def command(data, *args):
    "Run `fewshot_nb omniglot` in this process; its output, or the one sentence that refuses."
    from typer.testing import CliRunner
    from fewshot_nb.cli.main import app
    done = CliRunner().invoke(app, ["omniglot", *map(str, args), "--data", str(data)])
    return done.stdout if done.exception is None else str(done.exception)

@pytest.mark.parametrize("args, sentence", [
    (["siamese", "--split", "lak"], "Unknown split 'lak': did you mean lake"),
    (["siamese", "--split", "lake", "--way", "40"], "way=40 classes within one alphabet are too many for Angelic (20)"),
    (["siamese", "--split", "lake", "--shots", "30"], "lower shot"),
    (["siamese", "--image-size", "28"], "look at images of 24 pixels"),
    (["siamese", "--head", "neares"], "did you mean nearest"),
    (["none.safetensors"], "There are no weights at")])
def test_the_command_refuses_in_one_sentence(args, sentence, data, tmp_path):
    said = command(data, *args, "--out", tmp_path)
    assert sentence in said and "\n" not in said.strip()
    assert not list(tmp_path.iterdir())

def test_the_command_takes_weights_by_name_and_by_file(data, tmp_path):
    "Our net by its name and as a file err alike; splits that hold classes of its training are told."
    file = protocols.Path(nets.__file__).parents[1]/"weights"/f"{nets.SHIPPED_SIAMESE['siamese']}.safetensors"
    said = [
        command(data, what, "--tasks", 50, "--shots", 1, "--split", "weak", "--out", tmp_path)
        for what in ("siamese", file)
    ]
    assert said[0] == said[1] and "20-way 1-shot" in said[0] and "5-shot" not in said[0]
    assert "trained on 90 of the 150 test classes of the split weak" in said[0]

@pytest.mark.parametrize(
    "what, message",
    [
        ("nothing.npz", "There is no file"), ("nothing", "is not understood"),
        ("fewshot_nb.evaluation.omniglot:none", "cannot be imported"),
        ("json:decoder", "is no function")],
)
def test_bad_embeddings(what, message, data):
    with pytest.raises(InputError, match=message) as e: protocols.embedding_of(what, data)
    assert "\n" not in str(e.value)

def test_weights_of_another_architecture(data):
    from fewshot_nb.models.weights import own_folder

    with pytest.raises(InputError, match="another architecture"):
        protocols.embedding_of(str(own_folder() / "proto_net.safetensors"), data)
    with pytest.raises(InputError, match="bank of size=24"): nets.EmbeddingNet()(torch.zeros(1, 1, 28, 28))

@pytest.mark.parametrize("name", nets.SHIPPED_SIAMESE)
def test_own_weights_and_their_cards(name, data):
    "The shipped nets do on real characters what their cards say."
    path = protocols.Path(nets.__file__).parents[1]/"weights"/f"{nets.SHIPPED_SIAMESE[name]}.safetensors"
    if not path.is_file(): pytest.skip(f"{path.name} is still being trained")
    net, card = nets.shipped_siamese(name)
    assert path.stat().st_size < 300_000 and card["split"] == "lake background" and path.with_suffix(".md").is_file()
    part = protocols.judged_bank(getattr(net, "net", net).image_size, ["lake"], data)
    table = protocols.evaluate_embedding(
        embed(net, part, batch=200), part, head=card["head"], n_problems=1000, settings=((20, 1),))
    for k, v in study.error_columns(table).items():
        if not k.endswith(("half", "alphabet")): assert v == pytest.approx(json.loads(card["errors"])[k], abs=.01)

def test_training_helps_on_new_alphabets(data):
    "A few steps on background alphabets lower the error on evaluation alphabets."
    from fewshot_nb.train.siamese import train_siamese
    part = omniglot(24, "lake", "evaluation", data=data)
    part = part.select(part.groups < part.groups.min() + 3)
    with threads(1):  # two threads that wait for each other on a busy machine take many times as long
        model, _ = train_siamese(None, omniglot(24, "lake", "background", data=data), steps=60, batch=12, shared=True)
        before, after = (
            protocols.problem_errors(
                embed(m, part, batch=200),
                [draw_tasks(part, protocols.problem_spec("unstructured", 5, 1), 500)]).mean()
            for m in (fresh(nets.Siamese, 0), model)
        )
    assert after < before - .05

def test_the_page_runs_where_omniglot_is_not(tmp_path):
    "Glyphs have no runs of Lake's, and the page ended in an IndexError at their empty table."
    from fewshot_nb.engine import notebook  # noqa: F401 gives an experiment `run`
    from fewshot_nb.engine.experiment import find_experiment
    given = dict(profile="smoke", data="glyphs", device="cpu", jobs=1, out=str(tmp_path/"results"))
    find_experiment("exp_omniglot_protocols").run(str(tmp_path/"page.ipynb"), given, progress=False)
    page = json.loads((tmp_path/"page.ipynb").read_text(encoding="utf-8"))
    said = json.dumps([c.get("outputs") for c in page["cells"]])
    assert "there are none of glyphs" in said and "not judged: glyphs" in said

def test_the_independent_arm_is_missed_by_smaller_errors():
    "'not reproduced' stood there without a reason."
    from fewshot_nb.claims.report import ledger
    rows = ledger("omniglot_eval", all=True)
    missed = rows[(rows.verdict == "not reproduced") & (rows.learner == "siamese independent")].set_index("id")
    assert set(missed.index) == {"T20-1", "T5-5"} and (missed.why == "below the published range: smaller errors").all()
    shared = rows[rows.learner == "siamese shared"]
    assert (shared.provenance == "rows of profile hours and laptop, judged as paper").all() and len(shared) == 11
