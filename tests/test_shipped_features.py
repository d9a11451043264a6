"The features that come with the package: they are what the shipped network says, and other code finds its accuracy."
import re
import tarfile

import numpy as np
import pytest
import torch

from fewshot_nb.core import InputError, read_arrays
from fewshot_nb.data.features import SHIPPED_FEATURES, features, shipped_features
from fewshot_nb.data.photographs import Bank  # with `from_folder`
from fewshot_nb.engine.results import committed_rows
from fewshot_nb.models.core import embed
from fewshot_nb.models.residual import read_backbone
from fewshot_nb.models.weights import own_folder, read_weights

ARCHIVES = {"tiny-tiered-rn12": "tiny_tiered_64px.tar", "caltech101-own-rn12": "caltech101_96px.tar"}

def weights_of(name): return own_folder()/f"{name.replace('-', '_')}.safetensors"

@pytest.fixture(scope="module", params=ARCHIVES)
def name(request): return request.param

@pytest.fixture(scope="module")
def found(name): return read_arrays(shipped_features(name))

def test_they_are_what_the_network_says(shared, name, found, tmp_path):
    "Two classes or three are read from the archive and embedded anew."
    net, side, _ = read_backbone(name)
    classes = sorted(set(found["labels"]))[::25]
    with tarfile.open(shared/"data"/ARCHIVES[name]) as tar:
        members = [m for m in tar.getmembers() if m.isfile() and "/train/" not in m.name]
        for m in members:  # file by file: early Pythons 3.10 and 3.11 know no filter of `extractall`
            if m.name.split("/")[-2] not in classes: continue
            (tmp_path/m.name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path/m.name).write_bytes(tar.extractfile(m).read())
    folders = {p.parent for p in tmp_path.rglob("*.*") if p.is_file()}
    assert {folder.name for folder in folders} == set(classes) and len(classes) > 1
    for folder in folders:
        bank = Bank.from_folder(folder.parent, size=side)
        rows = bank.labels == bank.names.index(folder.name)
        ours = embed(net, bank.data[rows].float()/255 if bank.data.dtype == torch.uint8 else bank.data[rows])
        theirs = torch.tensor(found["features"][found["labels"] == folder.name]).float()
        assert (ours - theirs).abs().max() <= 2e-2*theirs.abs().max()  # half precision, and another processor

def nearest_class_mean(found, shot):
    "Shares of right answers, a task each: on centred, normalised features, written again without the library."
    r, novel = np.random.default_rng(0), found["split"] == "novel"
    x = found["features"][novel].astype(np.float64) - found["base"].mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    of_class = [np.flatnonzero(found["labels"][novel] == c) for c in np.unique(found["labels"][novel])]
    right = []
    for _ in range(600):
        way = r.choice(len(of_class), 5, replace=False)
        drawn = np.stack([r.choice(of_class[c], shot + 15, replace=False) for c in way])
        means = x[drawn[:, :shot]].mean(1)
        queries = x[drawn[:, shot:]].reshape(-1, x.shape[1])
        distance = ((queries[:, None] - means)**2).sum(-1)
        right.append((distance.argmin(1) == np.repeat(np.arange(5), 15)).mean())
    return np.array(right)

def check_accuracies(found, told):
    "Numpy finds what is told of both numbers of shots, within four standard errors."
    for shot, word in ((1, "one"), (5, "five")):
        right = nearest_class_mean(found, shot)
        error = np.hypot(np.std(right)/len(right)**.5, float(told[f"novel_{word}_shot_se"]))
        assert abs(np.mean(right) - float(told[f"novel_{word}_shot"])) < 4*error

def test_numpy_finds_the_accuracy_of_the_card(name, found):
    _, card = read_weights(weights_of(name))
    check_accuracies(found, card)

def test_numpy_finds_the_accuracy_of_the_row_whose_weights_do_not_ship():
    rows = committed_rows("exp_base_training").query("backbone == 'resnet18' and images == 'caltech101'")
    check_accuracies(read_arrays(shipped_features("caltech101-own-rn18")), rows.squeeze())
    narrow, wide = (features(f"caltech101-own-{net}") for net in ("rn12", "rn18"))
    assert narrow.novel.names == wide.novel.names and (narrow.novel.labels == wide.novel.labels).all()

def test_files_that_cards_name_are_in_the_package():
    named = [(card, file) for card in sorted(own_folder().glob("*.md"))
             for file in re.findall(r"`((?:features|banks)/[^`]+)`", card.read_text(encoding="utf-8"))]
    for file in map(weights_of, ARCHIVES): assert (file.with_suffix(".md"), f"banks/{file.stem}.npz") in named
    assert not [f"{card.name}: {file}" for card, file in named if not (own_folder().parent/file).is_file()]
    for file in map(shipped_features, SHIPPED_FEATURES):  # each has a card, beside its weights or beside itself
        assert (own_folder()/file.name).with_suffix(".md").is_file() or file.with_suffix(".md").is_file(), file

def test_they_are_named_by_a_word(name, found):
    "Base classes are not among them, and a word that is none is a file that is not there."
    data = features(name)
    assert (data.novel.n, data.validation.n) == tuple((found["split"] == p).sum() for p in ("novel", "validation"))
    assert not set(data.novel.names) & set(data.validation.names)
    with pytest.raises(InputError, match="did you mean tiny-tiered-rn12"): shipped_features("tiny-tiered-rn18")
