"Omniglot from every form it comes in, and refused in one sentence where it is not whole."
import io
import os
import shutil
import tarfile
import warnings
import zipfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from fewshot_nb.core import DamagedFile, InputError, computed_once, content_digest, read_arrays, save_arrays
from fewshot_nb.data import omniglot as module, source
from fewshot_nb.data.bank import Bank
from fewshot_nb.data.omniglot import omniglot, shrink
from fewshot_nb.data.photographs import photograph_bank
from fewshot_nb.data.source import character_source

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
    with pytest.warns(UserWarning, match="damaged and is made anew"):
        assert torch.equal(omniglot(28, data=tree).data, pixels)

def test_a_read_only_data_folder_is_fine(small):
    tree, _ = small
    for path in [tree, *tree.rglob("*")]: path.chmod(0o555 if path.is_dir() else 0o444)
    assert omniglot(data=tree).classes == 4

def test_no_data_and_no_network_gives_glyphs_with_a_notice(cache, monkeypatch):
    def refuse(*args, **kwargs): raise OSError("no network")
    monkeypatch.setattr(module.socket, "create_connection", refuse)
    source._found.cache_clear()  # another test of this process may have asked
    with pytest.warns(UserWarning, match="embedded glyphs stand in"): assert character_source("auto") == "glyphs"
    with pytest.raises(InputError, match="neither at hand nor to be fetched"): character_source("omniglot")

def test_a_download_that_was_stopped_begins_anew(small, cache, tmp_path, monkeypatch):
    "What it leaves is not taken for Omniglot; afterwards the cache has whole archives."
    tree, _ = small
    whole, kept, fetched = zips(tree, tmp_path/"whole"), cache/"omniglot/omniglot-py", []
    monkeypatch.delenv("FEWSHOT_DATA", raising=False)
    for half in ("images_background", "images_evaluation"): (kept/half).mkdir(parents=True)
    monkeypatch.setattr(module.socket, "create_connection", lambda *a, **k: io.BytesIO())
    def download_url(url, root, md5):
        fetched.append(url.rpartition("/")[2])
        root.mkdir(parents=True, exist_ok=True)
        (root/fetched[-1]).write_bytes((whole/fetched[-1]).read_bytes()[:None if stopped is None else 100])
        if stopped: raise stopped
    monkeypatch.setattr("torchvision.datasets.utils.download_url", download_url)
    stopped = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt): omniglot(28)
    stopped = None
    for _ in range(2): assert omniglot(28).classes == 4
    assert fetched == ["images_background.zip", "images_background.zip", "images_evaluation.zip"]
    assert sorted(p.name for p in kept.glob("*.zip")) == fetched[1:]

def test_a_wrong_folder_never_falls_back_to_glyphs(cache, tmp_path, monkeypatch):
    (tmp_path/"empty").mkdir()
    monkeypatch.setenv("FEWSHOT_DATA", str(tmp_path/"empty"))
    with pytest.raises(InputError, match="No Omniglot in"): character_source("auto")

def test_real_omniglot(shared):
    "Claims D1 and D2 of the diversity paper: counts of classes, images and alphabets."
    data = shared/"data"
    whole, train, test = (omniglot(50, *s, data=data) for s in ((None, None), ("weak", "train"), ("weak", "test")))
    assert (whole.classes, whole.n, len(whole.group_names)) == (1623, 32460, 50)
    assert (train.classes, train.n, test.classes, test.n) == (1473, 29460, 150, 3000)
    assert not set(train.names) & set(test.names)
    assert abs(float((whole.data > 0).float().mean()) - .0805) < 5e-4  # the notes' mean ink
    assert (
        omniglot(28, "lake", "background", data).classes,
        omniglot(28, "lake", "evaluation", data).classes) == (964, 659)

def test_shrink_agrees_with_the_plain_recipe():
    "PIL bilinear to 50 px, min-max, invert, > 0.5: step by step for one image."
    ink = np.random.default_rng(1).random((105, 105)) < .3
    small = np.asarray(Image.fromarray(np.uint8(~ink)*255).resize((50, 50), Image.BILINEAR), float)
    plain = 1 - (small - small.min())/(small.max() - small.min()) > .5
    assert np.array_equal(shrink(ink[None], 50)[0] > 0, plain)

def test_trees_with_other_ink_never_share_a_cache(small, cache):
    tree, ink = small
    before = omniglot(105, data=tree).data.clone()
    path = next((tree/"images_background").rglob("*.png"))
    path.write_bytes(png(~ink[0]))
    assert not torch.equal(omniglot(105, data=tree).data, before)

def test_an_archive_that_kept_its_size_and_date_is_still_another(small, tmp_path, cache):
    tree, ink = small
    place = zips(tree, tmp_path/"zips")
    before = omniglot(105, data=place).data.clone()
    path = next((tree/"images_background").rglob("*.png"))
    path.write_bytes(png(ink[1]))
    other, mine = zips(tree, tmp_path/"other")/"images_background.zip", place/"images_background.zip"
    times = mine.stat().st_atime_ns, mine.stat().st_mtime_ns
    mine.write_bytes(other.read_bytes())
    os.utime(mine, ns=times)
    assert not torch.equal(omniglot(105, data=place).data, before)

def flipped(path, at, bit=1):
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1:])
    return whole

def test_a_flipped_byte_in_a_cached_bank_is_noticed(small, cache):
    tree, _ = small
    right = omniglot(28, data=tree).data.clone()
    rng, small_one = np.random.default_rng(0), next(cache.glob("omniglot-*-28px-*.safetensors"))
    bits = next(cache.glob("omniglot-*-bits-*.safetensors"))
    for file in [small_one, bits]*20:
        flipped(file, rng.integers(file.stat().st_size), 1 << rng.integers(8))
        if file == bits: small_one.unlink()  # the bits are looked at where the small ones are gone
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert torch.equal(omniglot(28, data=tree).data, right)
        assert [file.name in str(w.message) and "is damaged and is made anew" in str(w.message) for w in seen] == [True]

def test_a_flipped_byte_in_a_bank_file_is_refused(tmp_path):
    rng = np.random.default_rng(1)
    path = tmp_path/"b.safetensors"
    Bank(torch.randn(30, 8), [0, 1, 2]*10, names=["a", "b", "c"], source="mine").save(path)
    for at in rng.integers(path.stat().st_size, size=100):
        whole = flipped(path, at, 1 << rng.integers(8))
        with pytest.raises(InputError, match="write it anew with Bank.save"): Bank.load(path)
        path.write_bytes(whole)
    assert Bank.load(path).source == "mine"

def test_a_bank_without_a_checksum_is_still_read(tmp_path):
    "As version 0.1 wrote them."
    from safetensors.torch import save_file
    tensors = dict(data=torch.zeros(2, 3), labels=torch.tensor([0, 1]), groups=torch.tensor([0, 0]))
    save_file(tensors, tmp_path/"old.safetensors", dict(names='["a", "b"]', group_names='["0"]', source=""))
    assert Bank.load(tmp_path/"old.safetensors").names == ["a", "b"]

def test_a_flipped_byte_in_saved_arrays_or_computed_tensors_is_noticed(tmp_path, cache):
    rng, path = np.random.default_rng(2), tmp_path/"a.npz"
    arrays = dict(x=rng.normal(size=(20, 3)), y=np.array(["a", "b"]))
    save_arrays(path, **arrays)
    refused = 0
    for at in range(path.stat().st_size):
        whole = flipped(path, at, 1 << rng.integers(8))
        try: assert content_digest(read_arrays(path)) == content_digest(arrays)
        except DamagedFile: refused += 1
        path.write_bytes(whole)
    assert refused > .5*len(whole)  # the rest are a zip's dates and such: the arrays are what they were
    x = torch.randn(5, 4)
    for k in range(40):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert torch.equal(computed_once("twice", [x], lambda: dict(y=2*x))["y"], 2*x)
        assert len(seen) == (k > 0)
        file, = cache.glob("twice-*.safetensors")
        flipped(file, rng.integers(file.stat().st_size), 1 << rng.integers(8))

def test_a_cache_that_can_only_be_read_is_read(cache, monkeypatch, tmp_path):
    "A warm cache on a read-only disk was refused whole, with all that it held."
    from fewshot_nb import core
    x, file = torch.randn(5, 4), tmp_path/"some.txt"
    file.write_text("some text")
    os.utime(file, (0, 0))
    def double(): return computed_once("twice", [x], lambda: dict(y=2*x))["y"]
    double()
    def refused(folder, what, remedy): raise InputError(f"Cannot write to the folder {str(folder)!r}: {remedy}.")
    monkeypatch.setattr(core, "writable", refused)  # root may write anywhere
    monkeypatch.setattr(core, "locked", None)
    assert torch.equal(double(), 2*x) and len(core.files_digest(file)) == 32
    with pytest.raises(InputError, match="Cannot write .*FEWSHOT_CACHE"):
        computed_once("thrice", [x], lambda: dict(y=3*x))
    monkeypatch.setenv("FEWSHOT_CACHE", str(tmp_path/"empty"))
    with pytest.raises(InputError, match="set FEWSHOT_CACHE"): core.cache_dir()

def test_who_waits_for_a_lock_says_for_what(tmp_path, monkeypatch, capsys):
    "A second process stood still for minutes without a word."
    import threading
    from fewshot_nb.core import locked
    monkeypatch.delenv("FEWSHOT_QUIET", raising=False)
    held = threading.Event()
    def hold():
        with locked(tmp_path/"bank.safetensors"):
            held.set()
            threading.Event().wait(2.5)
    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    with locked(tmp_path/"bank.safetensors"): pass
    other.join()
    assert capsys.readouterr().err == "waiting for another process that makes bank.safetensors ...\n"

@pytest.mark.parametrize("name, content, said", [
    ("omniglot.tar.xz", b"just text", "damaged after 0 images"),
    ("images_background.zip", b"just text", "damaged after 0 images")])
def test_text_called_an_archive(tmp_path, cache, name, content, said):
    (tmp_path/name).write_bytes(content)
    (tmp_path/"images_evaluation.zip").write_bytes(content)
    with pytest.raises(InputError, match=said): omniglot(data=tmp_path)

def zip_of(path, **files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, content in files.items(): z.writestr(name, content)

def bomb(side):
    "A small PNG that says it has side x side pixels."
    buffer = io.BytesIO()
    Image.new("1", (8, 8)).save(buffer, "png")
    whole = bytearray(buffer.getvalue())
    whole[16:24] = side.to_bytes(4, "big")*2
    whole[29:33] = zlib.crc32(bytes(whole[12:29])).to_bytes(4, "big")
    return bytes(whole)

@pytest.mark.parametrize("files, said", [
    ({"flat.png": b""}, "every drawing lies in"), ({"../../a/b/c.png": b""}, "leaves its folder"),
    ({"/a/b/c/d.png": b""}, "leaves its folder"),
    ({"images_background/a/b/c.png": bytes(65*2**20)}, "far too many for one image"),
    ({"images_background/a/b/c.png": b"no png"}, "damaged after 0 images"),
    ({"images_background/a/b/c.png": bomb(30_000)}, "30000 x 30000|exceeds limit"),
    ({"images_background/a/b/c.png": bomb(12_000)}, "12000 x 12000")])
def test_hostile_archives_are_refused_in_one_sentence(tmp_path, cache, files, said):
    for half in ("background", "evaluation"): zip_of(tmp_path/f"images_{half}.zip", **files)
    with pytest.raises(InputError, match=said): omniglot(data=tmp_path)
    zip_of(tmp_path/"mini_imagenet.zip", **{n.replace("images_background/a", "n01532829"): c for n, c in files.items()})
    with pytest.raises(InputError): photograph_bank("mini_imagenet", data=tmp_path)
    assert not list(cache.glob("*.safetensors"))
