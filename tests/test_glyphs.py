"The embedded glyphs: the same images every time and for every choice of alphabets, none twice, and caches that heal."
import warnings

import numpy as np
import pytest
from scipy import ndimage

from fewshot_nb.core import InputError
from fewshot_nb.data import glyphs as module
from fewshot_nb.data.glyphs import (
    _codes, _unpack, draw_glyphs, glyph_alphabets, glyph_likeness, glyphs, ink, raster,
    skeletons, strokes, thin)

FEW = ["Greek", "Tifinagh", "Ogham"]

@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWSHOT_CACHE", str(tmp_path))
    return tmp_path

@pytest.fixture(scope="module")
def few(tmp_path_factory):
    "Three alphabets at 50 px, and the folder of the cache that they were drawn into."
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("FEWSHOT_CACHE", str(folder))
        return glyphs(50, FEW), folder

def test_the_form_is_omniglots(few):
    bank, table = few[0], glyph_alphabets()
    assert bank.shape == (1, 50, 50) and (bank.counts == 20).all() and bank.source == "glyphs"
    assert bank.classes == table[table.alphabet.isin(FEW)].characters.sum()
    assert bank.by_class().flatten().tolist() == list(range(bank.n))
    assert bank.names[0] == "Greek/character01" and sorted(bank.group_names) == sorted(FEW)
    for group, name in enumerate(bank.group_names):
        assert {n.split("/")[0] for n, g in zip(bank.names, bank.groups.tolist()) if g == group} == {name}

def test_the_table_counts_and_divides():
    table = glyph_alphabets()
    assert len(table) == 50 and table.alphabet.is_unique and 1500 <= table.characters.sum() <= 1800
    assert table.lake.value_counts().to_dict() == {"background": 30, "evaluation": 20}
    assert (table.vinyals == "test").sum() == 12 and set(table[table.vinyals == "test"].lake) == {"evaluation"}
    codes = [_codes(s) for s in table.codes]
    assert [len(c) for c in codes] == table.characters.tolist()
    every = [c for cs in codes for c in cs]
    assert len(set(every)) == len(every)
    assert table.characters.min() >= 20  # 20-way tasks within any alphabet

def test_drawn_again_it_is_the_same(few, cache):
    again = glyphs(50, FEW)
    assert (again.data == few[0].data).all() and again.names == few[0].names

def test_a_subset_equals_the_same_alphabet_among_others(few, cache):
    alone = glyphs(50, "Tifinagh")
    among = few[0].select([n.startswith("Tifinagh/") for n in few[0].names])
    assert (alone.data == among.data).all()

def test_drawers_seeds_and_numbers_matter():
    lines = skeletons([0x3b1, 0x3b2])
    same = draw_glyphs(lines, 4)
    assert (same == draw_glyphs(lines, 4)).all()
    assert (same != draw_glyphs(lines, 5)).any() and (same != draw_glyphs(lines, 4, seed=1)).any()
    assert (same != draw_glyphs(lines, 4, [1, 2], np.zeros(3, int))).any()
    assert (draw_glyphs(lines, 4, chunk=1) == same).all()

def test_ink_is_near_omniglots(few):
    drawn = _unpack(module._drawn(["Ogham", "Greek"], glyph_alphabets()).data[:, 0, 0].numpy())
    assert .06 < drawn.mean() < .1  # Omniglot 0.0805
    assert drawn.any((1, 2)).all() and not drawn[:, 0].any() and not drawn[:, :, -1].any()

@pytest.mark.parametrize("alphabets", [["Greek", "Cyrillic"], ["Armenian_small"], ["Syllabics_2"]])
def test_no_twins(alphabets):
    codes = sum((_codes(s) for s in glyph_alphabets().set_index("alphabet").codes[alphabets]), [])
    near = glyph_likeness(codes)
    assert np.allclose(np.diag(near), 1, atol=1e-5)
    assert (near - 2*np.eye(len(codes))).max() <= .92
    assert glyph_likeness([ord("A"), 0x410]).min() > .97  # Latin and Cyrillic A: twins are seen as such

def test_thinning_keeps_pieces_and_holes_and_leaves_one_pixel():
    whole = ink(raster([ord(c) for c in "ABgim%Ж8"]))
    lines, eight = thin(whole), np.ones((3, 3))
    for w, l in zip(whole, lines):
        assert ndimage.label(w, eight)[1] == ndimage.label(l, eight)[1]
        assert ndimage.label(~w)[1] == ndimage.label(~l)[1]
        assert not ndimage.binary_opening(l, np.ones((2, 2))).any()
    assert (lines <= whole).all() and (thin(lines) == lines).all()

def test_strokes_go_on_straight_where_lines_cross():
    pad = np.zeros((3, 60, 60), bool)
    pad[0, 30, 10:50] = pad[0, 10:50, 30] = True  # a plus: two strokes
    pad[1, 10, 10:50] = pad[1, 10:50, 30] = True  # a T: two strokes
    pad[2, 20:40, 20] = True  # a line: one
    at, stroke = strokes(thin(pad))
    picture = at//3600
    assert [stroke[picture == i].max() + 1 for i in range(3)] == [2, 2, 1]
    assert (np.bincount(picture) == thin(pad).sum((1, 2))).all()

def test_a_damaged_cache_is_drawn_again(few, cache):
    first = glyphs(28, "Ogham")
    files = sorted(cache.glob("glyphs-*.safetensors"))
    assert len(files) == 2
    for damage in (lambda b: b[:len(b)//2], lambda b: b"\xff"*64 + b[64:], lambda b: b""):
        for f in files: f.write_bytes(damage(f.read_bytes()))
        with pytest.warns(UserWarning, match="damaged and is made anew"): again = glyphs(28, "Ogham")
        assert (again.data == first.data).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        glyphs(28, "Ogham")

def test_another_version_has_another_cache(cache, monkeypatch):
    glyphs(28, "Ogham")
    before = set(cache.glob("glyphs-*.safetensors"))
    monkeypatch.setattr(module, "_VERSION", module._VERSION + 1)
    glyphs(28, "Ogham")
    assert len(set(cache.glob("glyphs-*.safetensors")) - before) == 2

def test_sizes_and_splits(cache):
    assert glyphs(105, "Ogham").shape == (1, 105, 105)
    assert set(glyphs(50, "Ogham").data.unique().tolist()) == {0, 255}
    assert len(glyphs(28, "Ogham").data.unique()) > 2 and len(glyphs(28, "Ogham", binary=True).data.unique()) == 2
    assert glyphs(28, "Ogham", "weak", "test").names == [f"Ogham/character0{i}" for i in (1, 2, 3)]
    assert {n.split("/")[0] for n in glyphs(28, FEW, "lake", "evaluation").names} == {"Tifinagh", "Ogham"}
    assert {n.split("/")[0] for n in glyphs(28, FEW, "vinyals", "trainval").names} == {"Greek"}

@pytest.mark.parametrize("arguments, said", [
    (dict(alphabets="Grek"), "did you mean Greek"),
    (dict(alphabets=["Greek", "Klingon"]), "Unknown alphabet of glyphs 'Klingon'"),
    (dict(alphabets=0), "ask for 1 to 50"), (dict(alphabets=-3), "ask for 1 to 50"),
    (dict(alphabets=51), "ask for 1 to 50"), (dict(alphabets=[]), "leaves nothing"),
    (dict(alphabets=1.5), "give a number, a name or a list of names"),
    (dict(size=0), "choose a whole number from 8 to 105"),
    (dict(size=-5), "choose a whole number from 8 to 105"),
    (dict(size=28.5), "choose a whole number from 8 to 105"),
    (dict(split="weak", part="tset"), "did you mean test"),
    (dict(split="lakes", part="test"), "Unknown split 'lakes'"),
    (dict(part="test"), "needs a split")])
def test_wrong_input_is_refused_before_any_work(arguments, said, cache):
    with pytest.raises(InputError, match=said): glyphs(**arguments)
    assert not list(cache.iterdir())

def test_a_missing_font_is_named(monkeypatch):
    with pytest.raises(InputError, match="drawn with the font NoSuchFont"): raster([65], "NoSuchFont")
