"Omniglot from every form it comes in, and refused in one sentence where it is not whole."
import io
import os
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from fewshot_nb.core import InputError
from fewshot_nb.data import omniglot as module
from fewshot_nb.data.omniglot import in_part, omniglot, shrink
from fewshot_nb.data.source import characters, resolve


def png(ink):
    buffer = io.BytesIO()
    Image.fromarray(~ink).convert("1").save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture
def small(monkeypatch, tmp_path, cache):
    "A little Omniglot: 2 alphabets of 2 characters with 3 drawings each, as a tree of files; and its pixels."
    for name, value in dict(CHARACTERS=4, DRAWERS=3, ALPHABETS=2).items(): monkeypatch.setattr(module, name, value)
    rng, tree, ink = np.random.default_rng(0), tmp_path/"data", []
    for half, alphabet in (("images_background", "Latin"), ("images_evaluation", "Greek")):
        for c in (1, 2):
            for d in range(3):
                ink.append(rng.random((105, 105)) < .1)
                path = tree/half/alphabet/f"character{c:02}"/f"{c:04}_{d:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(png(ink[-1]))
    return tree, np.stack(ink)


def archive(tree, to):
    to.mkdir()
    with tarfile.open(to/"omniglot.tar.xz", "w:xz") as t: t.add(tree, ".")
    return to


def zips(tree, to):
    to.mkdir()
    for half in ("images_background", "images_evaluation"):
        with zipfile.ZipFile(to/f"{half}.zip", "w") as z:
            for path in sorted((tree/half).rglob("*.png")): z.write(path, path.relative_to(tree))
    return to


@pytest.mark.parametrize("form", ["tree", "tar.xz", "zips", "omniglot-py"])
def test_every_form_gives_the_same_pixels(small, tmp_path, form):
    tree, ink = small
    if form == "tree": place = tree
    if form == "tar.xz": place = archive(tree, tmp_path/"tar")
    if form == "zips": place = zips(tree, tmp_path/"zips")
    if form == "omniglot-py":
        place = tmp_path/"torchvision"
        shutil.copytree(tree, place/"omniglot-py")
    bank = omniglot(105, data=place)
    assert bank.names == ["Latin/character01", "Latin/character02", "Greek/character01", "Greek/character02"]
    assert bank.groups.tolist() == [0, 0, 1, 1] and bank.group_names == ["Latin", "Greek"]
    assert torch.equal(bank.take(bank.by_class()).flatten(0, 1)[:, 0], torch.from_numpy(ink).float())
    assert torch.equal(omniglot(105, data=place).data, bank.data)  # from the cache


def test_missing_characters_are_counted(small):
    tree, _ = small
    next((tree/"images_evaluation").rglob("*_02.png")).unlink()
    with pytest.raises(InputError, match="3 characters with 3 drawings were found, 4 are expected"): omniglot(data=tree)


def test_a_truncated_archive_is_refused_even_after_a_good_one_was_cached(small, tmp_path):
    tree, _ = small
    place = archive(tree, tmp_path/"tar")
    omniglot(data=place)
    whole = (place/"omniglot.tar.xz").read_bytes()
    (place/"omniglot.tar.xz").write_bytes(whole[:len(whole)//2])
    with pytest.raises(InputError, match="damaged after|not complete"): omniglot(data=place)


def test_a_damaged_cache_is_made_anew(small, cache):
    tree, _ = small
    before = omniglot(28, data=tree)
    pixels = before.data.clone()
    del before
    for file in cache.glob("*.safetensors"): file.write_bytes(file.read_bytes()[:200])
    with pytest.warns(UserWarning, match="damaged and is made anew"): assert torch.equal(omniglot(28, data=tree).data, pixels)


def test_a_read_only_data_folder_is_fine(small):
    tree, _ = small
    for path in [tree, *tree.rglob("*")]: path.chmod(0o555 if path.is_dir() else 0o444)
    assert omniglot(data=tree).classes == 4


def test_no_data_and_no_network_gives_glyphs_with_a_notice(cache, monkeypatch):
    def refuse(*args, **kwargs): raise OSError("no network")
    monkeypatch.setattr(module.socket, "create_connection", refuse)
    with pytest.warns(UserWarning, match="embedded glyphs stand in"): assert resolve("auto") == "glyphs"
    with pytest.raises(InputError, match="neither at hand nor to be fetched"): resolve("omniglot")


def test_a_wrong_folder_never_falls_back_to_glyphs(cache, tmp_path, monkeypatch):
    (tmp_path/"empty").mkdir()
    monkeypatch.setenv("FEWSHOT_DATA", str(tmp_path/"empty"))
    with pytest.raises(InputError, match="No Omniglot in"): resolve("auto")


def test_real_omniglot(shared):
    "Claims D1 and D2 of the diversity paper: counts of classes, images and alphabets."
    data = shared/"data"
    whole, train, test = (omniglot(50, *s, data=data) for s in ((None, None), ("weak", "train"), ("weak", "test")))
    assert (whole.classes, whole.n, len(whole.group_names)) == (1623, 32460, 50)
    assert (train.classes, train.n, test.classes, test.n) == (1473, 29460, 150, 3000)
    assert not set(train.names) & set(test.names)
    assert abs(float((whole.data > 0).float().mean()) - .0805) < 5e-4  # the notes' mean ink
    assert (omniglot(28, "lake", "background", data).classes, omniglot(28, "lake", "evaluation", data).classes) == (964, 659)


def test_shrink_agrees_with_the_plain_recipe():
    "PIL bilinear to 50 px, min-max, invert, > 0.5: step by step for one image."
    ink = np.random.default_rng(1).random((105, 105)) < .3
    small = np.asarray(Image.fromarray(np.uint8(~ink)*255).resize((50, 50), Image.BILINEAR), float)
    plain = 1 - (small - small.min())/(small.max() - small.min()) > .5
    assert np.array_equal(shrink(ink[None], 50)[0] > 0, plain)
