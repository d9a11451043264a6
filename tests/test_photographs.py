"Folders of photographs at the door: what is wrong is told in one sentence before any work; real sets and networks."
import io, struct, tarfile, warnings, zipfile, zlib
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from fewshot_nb.cli.main import app
from fewshot_nb.core import InputError
from fewshot_nb.data import at_hand, embedding
from fewshot_nb.data.at_hand import images_at_hand
from fewshot_nb.data.image_sets import decoded, image_place, images_that_stand_in, looked_through, places_of_classes
from fewshot_nb.data.photographs import Bank, photograph_bank  # a `Bank` with `from_folder`

PARTS = "base", "val", "novel"

def jpeg(seed=0, size=(32, 40), mode="RGB"):
    pixels = np.random.default_rng(seed).integers(0, 255, (*size, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, "jpeg")
    return buffer.getvalue()

@pytest.fixture
def own(tmp_path, cache):
    "A folder of one's own that can make tasks: 5 classes of 20 images in each of three parts, no two the same."
    seeds = iter(range(1, 301))
    for part in PARTS:
        for c in range(5):
            folder = tmp_path/"own"/part/f"{part}{c}"
            folder.mkdir(parents=True)
            for k in range(20): (folder/f"{k:02}.jpg").write_bytes(jpeg(next(seeds)))
    return tmp_path/"own"

def zipped(folder, *more):
    "The folder as an archive beside it, with more files, `(path inside, bytes)`."
    archive = folder.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as z:
        for file in sorted(folder.rglob("*.*")): z.write(file, file.relative_to(folder))
        for path, content in more: z.writestr(path, content)
    return archive

def spoil(folder):
    "One file that is no image and one that breaks off in the middle."
    (folder/"base/base1/07.jpg").write_bytes(b"no image")
    whole = jpeg()
    (folder/"novel/novel3/05.jpg").write_bytes(whole[:len(whole)*2//3])

def only_heic(folder):
    "A class whose images are of a phone's kind."
    for file in (folder/"novel/novel2").glob("*.jpg"): file.rename(file.with_suffix(".heic"))

def flat(folder, *lines):
    "The same classes without folders of parts, and a list in the folder where there are lines."
    for part in ("base", "val", "novel"):
        for c in (folder/part).iterdir(): c.rename(folder/c.name)
        (folder/part).rmdir()
    if lines: (folder/"split.csv").write_text("\n".join(["class,part", *lines]))

def by_name(*without):
    "The lines of a class list: each class in the part of which it has its name."
    return [f"{p}{c},{p}" for p in ("base", "val", "novel") for c in range(5) if f"{p}{c}" not in without]

def opened(images, out, name="exp_base_training", **more):
    "Open an experiment on photographs, whose worker must not be reached."
    from fewshot_nb.engine.experiment import open_experiment
    def worker(setting): raise AssertionError("a setting was run")
    return open_experiment(name, worker, images=str(images), data="auto", out=out, jobs=1, **more)

WRONG = {
    "broken": (spoil, "2 of 300 images of '.*own' cannot be read, the first is 'base/base1/07.jpg' .it is no image.: "
                      "mend or remove them.$"),
    "small": (lambda f: (f/"val/val2/03.jpg").write_bytes(jpeg(size=(27, 60))),
              "1 of 300 images of '.*own' are smaller than 28 x 28 pixels, the first is 'val/val2/03.jpg' with a side "
              "of 27: enlarge them beforehand, or remove them.$"),
    "loose": (lambda f: (f/"3.jpg").write_bytes(jpeg()), "The image '3.jpg' lies in no folder of a class"),
    "overlap": (lambda f: (f/"novel/novel1").rename(f/"novel/base1"), "'base1' lies in two parts, base and novel"),
    "few": (lambda f: (f/"novel/novel1/03.jpg").unlink(), "The novel part .* 'novel1', with 19 images"),
    "no parts": (lambda f: [(f/p).rename(f/f"my_{p}") for p in ("base", "val", "novel")], "own' has no base classes"),
    "flat": (flat, "own' has no base classes: .* or lay a class list split.csv with the columns class and part"),
    "list": (lambda f: flat(f, *by_name(), "owl,novel"), "1 of its 16 classes have no image, the first is 'owl'"),
    "heic": (only_heic, "1 of 15 class folders of '.*own' have no image that can be read, the first is "
                        "'novel/novel2', which holds '00.heic': convert its files to .jpg or .png, or remove it.$")}

@pytest.mark.parametrize("what", WRONG)
def test_a_folder_or_archive_is_refused_before_a_setting_is_run(what, own, tmp_path):
    change, words = WRONG[what]
    change(own)
    for place in (own, zipped(own)):
        with pytest.raises(InputError, match=words.replace("own'", f"{place.name}'")) as e:
            opened(place, tmp_path/"out")
        assert "\n" not in str(e.value) and "=True" not in str(e.value) and not (tmp_path/"out").exists()

def test_a_path_that_leaves_an_archive_is_refused_before_a_setting_is_run(own, tmp_path):
    evil = zipped(own, ("../../00.jpg", jpeg()))
    with pytest.raises(InputError, match="^'own.zip' holds the path '../../00.jpg', which leaves its folder"):
        opened(evil, tmp_path/"out")
    assert not (tmp_path/"out").exists()

def test_the_command_says_it_in_one_sentence(own, tmp_path, monkeypatch, capsys):
    from fewshot_nb.cli.main import main
    monkeypatch.chdir(tmp_path)
    spoil(own)
    with pytest.raises(SystemExit):
        main(["run", "exp_base_training", "-p", "images=own", "-p", f"out={tmp_path/'out'}", "-p", "jobs=1"])
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("fewshot_nb: 2 of 300 images of ") and told.endswith("no image): mend or remove them.")

def test_images_are_decoded_once_until_a_file_changes(own, monkeypatch):
    assert images_at_hand(str(own)) == str(own)
    archive = zipped(own)
    assert images_at_hand(str(archive)) == str(archive)
    from fewshot_nb.data import image_sets
    seen, read = [], image_sets._read_image
    monkeypatch.setattr(image_sets, "_read_image", lambda file, *more: seen.append(file[0]) or read(file, *more))
    assert len(looked_through(own)) == 300 and not seen
    images_at_hand(str(own)), images_at_hand(str(archive))
    assert not seen
    spoil(own)
    with pytest.raises(InputError, match="2 of 300"): images_at_hand(str(own))
    assert len(seen) == 300

def test_the_least_side_is_what_the_smallest_profile_reads(own):
    from fewshot_nb.engine.experiment import find_experiment
    sides = set()
    for name in ("exp_base_training", "exp_learners", "exp_protonet_search"):
        e = find_experiment(name)
        for profile in e.profiles:
            for s in e.grid(profile, 0): sides |= {s[k] for k in ("image_size", "crop", "side", "seen") if s.get(k)}
    assert min(sides) == at_hand._LEAST
    assert {k for k in at_hand._SIDES} == {"image_size", "crop", "side", "seen"}
    (own/"val/val2/03.jpg").write_bytes(jpeg(size=(20, 60)))
    with images_that_stand_in(): images_at_hand(str(own))  # a rehearsal judges no pixel
    with pytest.raises(InputError, match="choose a smaller size or profile"): Bank.from_folder(own, "val", 28)

def test_glyphs_never_stand_in_for_a_folder_of_ones_own(own, tmp_path, monkeypatch):
    from fewshot_nb.engine.experiment import find_experiment, open_experiment
    from fewshot_nb.engine.plan import plan_jobs
    monkeypatch.delenv("FEWSHOT_DATA", raising=False)  # nothing else is at hand
    def worker(setting, data, images): return dict(read=images_at_hand(images, data))
    exp = open_experiment("exp_base_training", worker, images=str(own), data="auto", out=tmp_path/"out", jobs=1)
    assert set(exp.table.read) == set(exp.table.images) == {str(own)}
    assert exp.source == "photographs" and set(exp.table.data) == {"photographs"}
    assert plan_jobs(find_experiment("exp_base_training"), "smoke", tmp_path/"out", images=str(own)).missing == []

def grid(name, profile, **asked):
    "The settings of an experiment, or those of them that are asked for."
    from fewshot_nb.engine.experiment import find_experiment
    return [s for s in find_experiment(name).grid(profile) if all(s[k] == v for k, v in asked.items())]

def test_settings_say_what_they_need_of_base_classes(own):
    for file in list((own/"base/base1").iterdir())[5:]: file.unlink()
    def asked(name, settings):
        from fewshot_nb.engine.experiment import find_experiment
        return find_experiment(name).label_values("auto", dict(images=str(own)), settings)["images"]
    for name, bears in (("exp_base_training", grid("exp_base_training", "smoke")), ("exp_learners", ()),
                        ("exp_learners", grid("exp_learners", "smoke", learner="simpleshot")),
                        ("exp_learners", grid("exp_learners", "smoke", learner="nearest-mean"))):
        assert asked(name, bears) == str(own)
    words = "^The base part of .*own has 5 classes, the smallest, 'base1', with 5 images, but its tasks need "
    needed = dict(exp_learners="5 classes of 16 images .1 shot and 15 queries.: give it more, or leave small classes",
                  exp_protonet_search="16 classes of 20 images .5 shots and 15 queries.")
    for name, needs in needed.items():
        with pytest.raises(InputError, match=words + needs): asked(name, grid(name, "smoke"))
    published = [dict(learner="protonet", shot=1, way=0)]  # 30 ways, as in its paper
    with pytest.raises(InputError, match=words + "30 classes of 16"): asked("exp_learners", published)
    with pytest.raises(InputError, match="^The validation part .* need 5 classes of 35 images .20 shots and 15"):
        asked("exp_learners", grid("exp_learners", "paper"))

@pytest.mark.parametrize("name, profile, words", [
    ("exp_learners", "smoke", "The base part of .*own has 5 classes, the smallest, 'base1', with 5 images"),
    ("exp_base_training", "gpu", "285 of 285 images of '.*own' are smaller than 64 x 64 pixels")])
def test_what_a_profile_needs_is_refused_before_a_setting_is_run(name, profile, words, own, tmp_path):
    from fewshot_nb.engine.experiment import find_experiment
    from fewshot_nb.engine.plan import plan_jobs
    for file in list((own/"base/base1").iterdir())[5:]: file.unlink()
    for ask in (lambda: opened(own, tmp_path/"out", name, profile=profile),
                lambda: plan_jobs(find_experiment(name), profile, tmp_path/"out", images=str(own))):
        with pytest.raises(InputError, match=f"^{words}"): ask()
    assert not (tmp_path/"out").exists()
    with pytest.raises(InputError, match="There is no row of"): opened(own, tmp_path/"out", name, rows="none")

def test_settings_say_at_which_size_images_are_read(own):
    small = [grid(name, "smoke", **asked) for name, asked in (
        ("exp_base_training", {}), ("exp_learners", dict(learner="versa")))]
    for settings in small: assert images_at_hand(str(own), settings=settings) == str(own)
    words = ("^300 of 300 images of '.*own' are smaller than {0} x {0} pixels, the first is 'base/base0/00.jpg' with a "
             "side of 32: enlarge them beforehand, choose a smaller profile, or remove them.$")
    for name, profile, side in ("exp_base_training", "hour", 40), ("exp_base_training", "paper", 92), (
            "exp_learners", "gpu", 64), ("exp_protonet_search", "gpu", 84):
        settings = [dict(s, learner="simpleshot", shot=1) for s in grid(name, profile)]  # no tasks of base classes
        with pytest.raises(InputError, match=words.format(side)):
            images_at_hand(str(own), settings=settings)
        with images_that_stand_in(): images_at_hand(str(own), settings=settings)

def said_of(read):
    "The warnings of a call."
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        read()
    return [str(w.message) for w in told]

def test_files_that_are_not_read_are_told_once(own, tmp_path, quick):
    for name in ("base/base1/photo.heic", "base/base1/p.avif", "val/val2/notes.txt", "val/val2/.DS_Store",
                 "novel/novel1/Thumbs.db", "licence.txt", "val/read.me", "docs/more.txt"):
        (own/name).parent.mkdir(exist_ok=True)
        (own/name).touch()
    (own/"base/base0/q.jfif").write_bytes(jpeg())  # a JPEG, and read as one
    words = "3 of 304 files in class folders of '{}' are not read, the first is 'base/base1/p.avif': if they are imag"
    for place in (own, zipped(own)):
        once, again = (said_of(lambda: images_at_hand(str(place))) for _ in range(2))
        assert len(once) == 1 and once[0].startswith(words.format(place)) and not again
        told = said_of(lambda: Bank.from_folder(place, "base", 16))
        assert [t for t in told if t.startswith(words.format(place))] == told and len(told) == 1
        assert Bank.from_folder(place, "base", 16).n == 101
    told = said_of(lambda: embed(own, tmp_path/"f.npz"))
    assert [t for t in told if t.startswith(words.format(own))] == told and len(told) == 1 and len(quick) == 301

def test_a_class_folder_without_images_is_refused_or_left_out(own, tmp_path, quick):
    only_heic(own)
    words = "^1 of 15 class folders of .* have no image that can be read, the first is 'novel/novel2', which holds"
    with pytest.raises(InputError, match=words + ".* or leave it out with skip_broken=True .--skip-broken.[.]$"):
        embed(own, tmp_path/"f.npz")
    with pytest.raises(InputError, match=words + ".* or remove it .or, in Python, .* with skip_broken=True..$"):
        Bank.from_folder(own, size=16)
    with pytest.warns(UserWarning, match=words + ".*; they are left out.$"):
        assert Bank.from_folder(own, "novel", 16, skip_broken=True).classes == 4
    with pytest.warns(UserWarning, match=words): embed(own, tmp_path/"f.npz", "--skip-broken")
    for file in (own/"novel/novel2").iterdir(): file.unlink()
    with pytest.raises(InputError, match="the first is 'novel/novel2', which is empty"): images_at_hand(str(own))
    (own/"novel/novel2").rmdir()
    (tmp_path/"all/cat").mkdir(parents=True)
    (tmp_path/"all/cat/1.heic").touch()
    for read in (lambda: embed(tmp_path/"all", tmp_path/"g.npz"), lambda: Bank.from_folder(tmp_path/"all")):
        with pytest.raises(InputError, match="^1 of 1 class folders .* 'cat', which holds '1.heic'"): read()

def test_a_list_in_the_folder_tells_the_parts_everywhere(own, tmp_path, quick):
    flat(own, *by_name())
    (own/"extra").mkdir()
    (own/"extra/1.jpg").write_bytes(jpeg())
    (own/"extra/2.heic").touch()  # of no class on the list
    for place in (own, zipped(own)):
        told = said_of(lambda: images_at_hand(str(place), settings=grid("exp_base_training", "smoke")))
        assert len(told) == 1 and "1 of the classes of" in told[0] and "'extra'; they are left out" in told[0]
        for part in ("base", "validation", "novel"):
            bank = at_hand.bank_at_hand(str(place), part, 16)
            assert bank.names == [f"{part[:3] if part == 'validation' else part}{c}" for c in range(5)]
            with pytest.warns(UserWarning, match="'extra'; they are left out"):
                assert Bank.from_folder(place, part, 16).fingerprint == bank.fingerprint
    (own/"extra/1.jpg").unlink(), (own/"extra/2.heic").unlink(), (own/"extra").rmdir()
    embed(own, tmp_path/"f.npz")
    assert Counter(np.load(tmp_path/"f.npz")["split"].tolist()) == dict(base=100, validation=100, novel=100)
    (own/"novel1/03.jpg").unlink()
    with pytest.raises(InputError, match="The novel part .* 'novel1', with 19 images"): images_at_hand(str(own))

@pytest.mark.parametrize("device", ["gpux", "cuda:99", "cuda:x"])
def test_a_device_that_is_not_there_is_told_before_images_are_read(device, own, shared):
    for read in (lambda: Bank.from_folder(own, size=16, device=device),
                 lambda: photograph_bank("tiny_tiered", "novel", 16, shared/"data", device)):
        with pytest.raises(InputError, match="device"): read()
    assert Bank.from_folder(own, "base", 16, device="auto").n == 100

def test_a_list_that_is_no_path_is_refused(own, tmp_path):
    for read in (lambda: Bank.from_folder(own, split=dict(base0="base")),
                 lambda: embedding.embed_folder(own, "torchvision:resnet18", tmp_path/"f.npz", split=["base0"])):
        with pytest.raises(InputError, match="^split=.* is no path: write the list to a CSV file"): read()

def test_what_was_told_of_a_set_is_told_in_each_run_once(own, capfd):
    (own/"base/base0/00.jpg").write_bytes(jpeg(mode="L"))
    (own/"novel/novel0/copy.jpg").write_bytes((own/"base/base1/03.jpg").read_bytes())
    read = lambda: Bank.from_folder(own, "novel", 16)
    told = said_of(read)
    assert told[0].startswith("1 of 301 images of own were converted") and len(told) == 2
    assert told[1].startswith("2 of 301 images of own are equal to one of another part, the first are "
                              "'base/base1/03.jpg' and 'novel/novel0/copy.jpg': this is a leak")
    assert said_of(read) == []
    from fewshot_nb.engine.pool import finished_pieces
    def reading(setting):  # in processes of its own, which find the set in the cache
        from fewshot_nb.data.photographs import Bank
        return dict(n=Bank.from_folder(str(own), "novel", 16).n)
    capfd.readouterr()
    pieces = [[dict(k=k)] for k in range(4)]
    rows = [r for _, (found,), *_ in finished_pieces(pieces, reading, 2) for r in found]
    assert [r["n"] for r in rows] == [101]*4, rows
    heard = capfd.readouterr().err
    assert heard.count("were converted") == heard.count("this is a leak") == 1, heard

def test_photographs_are_turned_as_their_camera_notes(own):
    "The same picture stored upright and lying, in a folder, an archive and an embedding."
    upright = np.zeros((40, 40, 3), np.uint8)
    upright[:20] = 200  # light above
    turns = {3: 2, 6: 1, 8: 3}  # what a camera notes -> quarter turns to the left that the stored picture has
    for note, turn in turns.items():
        exif = Image.Exif()
        exif[0x0112] = note
        Image.fromarray(np.rot90(upright, turn)).save(own/f"base/base0/{note}.png", exif=exif)
    for place in (own, zipped(own)):
        bank = Bank.from_folder(place, "base", 16)
        for i in range(20, 23): assert (bank.data[i, :, 2] == 200).all() and (bank.data[i, :, 13] == 0).all()
    for note in turns: assert np.array_equal(np.asarray(embedding._image(own/f"base/base0/{note}.png")), upright)

def test_pictures_without_a_note_are_read_as_ever(shared):
    "No image of the sets at hand has one, so their banks keep their fingerprints."
    with tarfile.open(shared/"data/grocery_96px.tar") as tar:
        for member in [m for m in tar if m.isfile()][::50]:
            content = tar.extractfile(member).read()
            with Image.open(io.BytesIO(content)) as image:
                assert image.getexif().get(0x0112) is None
                plain = np.asarray(image.convert("RGB").resize((84, 84), Image.Resampling.BILINEAR))
            found, = decoded([("a/1.jpg", content)], 84)
            assert np.array_equal(found.square, plain.transpose(2, 0, 1))

def test_a_class_may_be_a_link_to_a_folder(own, tmp_path, quick):
    (own/"novel/novel4").rename(tmp_path/"elsewhere")
    (own/"novel/novel4").symlink_to(tmp_path/"elsewhere")
    (own/"novel/novel3/back").symlink_to(own)  # never ends, so it is not followed
    assert said_of(lambda: images_at_hand(str(own))) == []
    assert Bank.from_folder(own, "novel", 16).names == [f"novel{c}" for c in range(5)]
    embed(own, tmp_path/"f.npz")
    assert Counter(np.load(tmp_path/"f.npz")["labels"].tolist()) == {f"{p}{c}": 20 for p in PARTS for c in range(5)}

@pytest.mark.parametrize("kind", ["jpeg", "progressive", "png", "webp", "gif", "cmyk", "tiff"])
def test_a_coarse_decode_finds_the_damage_that_a_whole_one_finds(kind):
    image, buffer = Image.effect_noise((90, 70), 60).convert("CMYK" if kind == "cmyk" else "RGB"), io.BytesIO()
    image.save(buffer, "jpeg" if kind in ("progressive", "cmyk") else kind, progressive=kind == "progressive")
    whole = buffer.getvalue()
    cut = [(str(k), whole[:k]) for k in range(0, len(whole), max(1, len(whole)//80))]
    places = [*range(200), *range(200, len(whole), 97)]  # what it says of itself stands first
    flipped = [(f"flipped {k}", whole[:k] + bytes([whole[k] ^ 255]) + whole[k + 1:]) for k in places]
    coarse, fine = ([bool(r.why) for r in decoded([*cut, *flipped, ("whole", whole)], size)] for size in (0, 16))
    assert coarse == fine and all(coarse[:len(cut) - 1]) and not coarse[-1]

# ---- embedding

class Means(torch.nn.Module):
    "The mean colour."
    def forward(self, x): return x.mean((2, 3))

def embed(folder, out, *more, code=0):
    line = ["embed", folder, "--model", "torchvision:resnet18", "--weights", "random", "--out", out, "--device", "cpu"]
    done = CliRunner().invoke(app, list(map(str, (*line, *more))), catch_exceptions=False)
    assert done.exit_code == code, done.output

@pytest.fixture
def quick(monkeypatch):
    "A backbone that costs nothing, and the paths that it has seen."
    from torchvision import transforms as t
    shown = t.Compose([t.Resize(8), t.CenterCrop(8), t.ToTensor()])
    monkeypatch.setattr(embedding, "backbone_from", lambda model, weights: (Means(), shown))
    seen, real = [], embedding._embedded
    def counted(backbone, transform, folder, paths, *more):
        seen.extend(paths)
        return real(backbone, transform, folder, paths, *more)
    monkeypatch.setattr(embedding, "_embedded", counted)
    return seen

def test_broken_images_are_counted_before_the_network_works(own, tmp_path, quick):
    spoil(own)
    words = "^2 of 300 images of .* cannot be read, the first is 'base/base1/07.jpg' .it is no image.: mend or remove"
    with pytest.raises(InputError, match=words): embed(own, tmp_path/"f.npz")
    (own/"base/base1/07.jpg").write_bytes(jpeg())  # now only the one that breaks off in the middle
    words = ("^1 of 300 images of .* the first is 'novel/novel3/05.jpg' .image file is truncated .*skip_broken=True "
             ".--skip-broken.[.]$")
    with pytest.raises(InputError, match=words): embed(own, tmp_path/"f.npz")
    assert not quick and not (tmp_path/"f.npz").exists()
    with pytest.warns(UserWarning, match="^1 of 300 .*; they are left out.$"):
        embed(own, tmp_path/"f.npz", "--skip-broken")
    found = np.load(tmp_path/"f.npz")
    assert len(quick) == 299 and found["features"].shape == (299, 3) and "novel/novel3/05.jpg" not in found["paths"]
    assert Counter(found["split"].tolist()) == dict(base=100, validation=100, novel=99)

def test_with_nothing_left_there_is_nothing_to_embed(tmp_path, quick):
    (tmp_path/"all/ant").mkdir(parents=True)
    (tmp_path/"all/ant/1.jpg").write_bytes(jpeg()[:200])
    with pytest.raises(InputError, match="1 of 1 images .*there is nothing to embed"):
        embed(tmp_path/"all", tmp_path/"f.npz", "--skip-broken")

def test_conversions_are_told_once_and_alike(own, tmp_path, quick, monkeypatch):
    monkeypatch.setattr(embedding, "PART", 64)  # in several parts, and still once
    (own/"base/base0/00.jpg").write_bytes(jpeg(mode="L"))
    (own/"val/val0/00.jpg").write_bytes(jpeg(mode="CMYK"))
    Image.fromarray(np.full((50, 50), 300, np.uint16)).save(own/"val/val0/deep.png")
    frames = [Image.new("RGB", (50, 50), colour) for colour in ("red", "blue")]
    frames[0].save(own/"novel/novel0/two.gif", save_all=True, append_images=frames[1:])
    said = []
    for read in (lambda: embed(own, tmp_path/"f.npz"), lambda: Bank.from_folder(own, size=16)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            read()
        said.append([str(w.message) for w in told if "converted" in str(w.message)])
    assert [len(s) for s in said] == [1, 1]
    for (sentence,) in said:
        assert sentence.startswith("4 of 302 images of ") and "were converted to 8-bit colour" in sentence
        assert all(kind in sentence for kind in ("1 grey", "1 CMYK", "1 16-bit", "1 animated"))
    assert len(quick) == 302

@pytest.mark.parametrize("above", ["", "{part}/"])
def test_a_class_list_is_understood_alike(above, own, tmp_path, quick):
    other = dict(base="base", val="novel", novel="val")  # the list has the last word
    lines = [f"{above.format(part=p)}{p}{c},{other[p]}" for p in other for c in range(5)]
    (tmp_path/"split.csv").write_text("\n".join(["class,part", *lines]))
    embed(own, tmp_path/"f.npz", "--split", tmp_path/"split.csv")
    found = np.load(tmp_path/"f.npz")
    for part in ("base", "validation", "novel"):
        bank = Bank.from_folder(own, part, 16, split=tmp_path/"split.csv")
        labels, counts = np.unique(found["labels"][found["split"] == part], return_counts=True)
        assert labels.tolist() == bank.names and counts.tolist() == bank.counts.tolist() == [20]*5
    assert {line.split(",")[0] for line in lines} == set(found["labels"].tolist())

def test_weights_that_are_not_there_are_not_called_damaged(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ["embed", str(own), "--model", "nosuch.safetensors", "--out", "f.npz"]
    with pytest.raises(InputError, match="^There is no file of weights at 'nosuch.safetensors': check the path.$"):
        CliRunner().invoke(app, line, catch_exceptions=False)
    (tmp_path/"nosuch.safetensors").write_text("nothing")
    with pytest.raises(InputError, match="is not a whole safetensors file .*: copy or train it anew.$"):
        CliRunner().invoke(app, line, catch_exceptions=False)

# ---- archives, copies and lists

def deep_png(seed=0, side=40):
    "A PNG of 16-bit colours, which Pillow does not write."
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    pixels = np.random.default_rng(seed).integers(0, 65535, (side, side*3), np.uint16).astype(">u2")
    header = struct.pack(">IIBBBBB", side, side, 16, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(chunk, (b"IHDR", b"IDAT", b"IEND"), (header, zlib.compress(rows), b"")))

def test_colours_of_16_bits_are_told(own, tmp_path, quick):
    (own/"base/base0/deep.png").write_bytes(deep_png())
    for read in (lambda: Bank.from_folder(own, size=16), lambda: Bank.from_folder(zipped(own), size=16),
                 lambda: embed(own, tmp_path/"f.npz")):
        told = [t for t in said_of(read) if "converted" in t]
        assert len(told) == 1 and told[0].startswith("1 of 301 images of ") and "8-bit colour (1 16-bit)" in told[0]

def test_an_archive_is_known_by_its_content(own, tmp_path):
    same = Bank.from_folder(own, "novel", 16).fingerprint
    content, packed = zipped(own).read_bytes(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar: tar.add(own, "own")
    for name, whole in (("OWN.ZIP", content), ("own.tar", content), ("own.zip", packed.getvalue())):
        (tmp_path/name).write_bytes(whole)
        assert Bank.from_folder(tmp_path/name, "novel", 16).fingerprint == same
        assert images_at_hand(str(tmp_path/name)) == str(tmp_path/name)

def spoilt_zip(content, at, value):
    "A zip in which the fields of each file, at some byte of its two heads, are set to a value."
    content = bytearray(content)
    for head, more in ((b"PK\3\4", 0), (b"PK\1\2", 2)):
        k = -1
        while (k := content.find(head, k + 1)) >= 0: content[k + at + more] = value
    return bytes(content)

def test_a_sound_archive_is_not_called_damaged(own, tmp_path, quick):
    content, files = zipped(own).read_bytes(), dict(text=b"no archive at all "*100)
    files |= dict(locked=spoilt_zip(content, 6, 1), deflate64=spoilt_zip(content, 8, 9))
    words = dict(locked="is encrypted: unpack it with its password", deflate64="compression method is not supported.: "
                 "unpack it and give the folder, or pack it anew", text="is neither a zip nor a tar archive")
    for name, whole in files.items():
        (tmp_path/f"{name}.zip").write_bytes(whole)
        for read in (lambda: Bank.from_folder(tmp_path/f"{name}.zip", "base", 16),
                     lambda: images_at_hand(str(tmp_path/f"{name}.zip")),
                     lambda: embed(tmp_path/f"{name}.zip", tmp_path/"f.npz")):
            with pytest.raises(InputError, match=words[name]) as e: read()
            assert "fetch them" not in str(e.value) and f"{name}.zip" in str(e.value)
    assert not quick

def test_an_archive_is_embedded_as_its_folder(own, tmp_path, quick, cache):
    spoil(own)
    archives = [zipped(own), tmp_path/"own.tar"]
    with tarfile.open(archives[1], "w") as tar: tar.add(own, "own")
    with pytest.warns(UserWarning, match="^2 of 300"): embed(own, tmp_path/"f.npz", "--skip-broken")
    with np.load(tmp_path/"f.npz") as found: plain = dict(found)
    for k, archive in enumerate(archives):
        with pytest.raises(InputError, match=f"^2 of 300 images of '{archive}' .*skip-broken"):
            embed(archive, tmp_path/f"{k}.npz")
        with pytest.warns(UserWarning, match="^2 of 300"): embed(archive, tmp_path/f"{k}.npz", "--skip-broken")
        with np.load(tmp_path/f"{k}.npz") as found:
            for name in ("features", "labels", "paths", "split"): assert np.array_equal(found[name], plain[name]), name
            assert str(found["source"]) == str(archive)
        assert not [f for f in cache.glob("*unpacked*") if f.is_dir()]

def test_copies_are_told_wherever_images_are_read(own, tmp_path, quick):
    whole = (own/"novel/novel0/03.jpg").read_bytes()
    for k in range(3): (own/f"novel/novel0/copy{k}.jpg").write_bytes(whole)
    (own/"novel/novel1/base.jpg").write_bytes((own/"base/base1/03.jpg").read_bytes())
    for what, read in (("own", lambda: Bank.from_folder(own, size=16)),
                       (repr(str(own)), lambda: embed(own, tmp_path/"f.npz"))):
        leak, copies = said_of(read)
        assert leak.startswith(f"2 of 304 images of {what} are equal to one of another part, the first are 'base/base1")
        assert copies == (f"4 of 304 images of {what} are copies of others of their class, the first are "
                          "'novel/novel0/03.jpg' and 'novel/novel0/copy0.jpg': support and query can be the same "
                          "picture; remove one of each.")

def test_a_file_twice_in_an_archive_is_a_copy(own):
    archive = own.with_suffix(".tar")
    with tarfile.open(archive, "w") as tar: tar.add(own, "own")
    with tarfile.open(archive, "a") as tar: tar.add(own/"novel/novel0/03.jpg", "own/novel/novel0/03.jpg")
    told, = said_of(lambda: Bank.from_folder(archive, size=16))
    assert told.startswith("2 of 301 images of own are copies of others of their class")

def test_a_set_without_its_list_says_where_that_comes_from(tmp_path, cache):
    for name in ("tiered_imagenet/n0000000{}", "CUB_200_2011/images/00{}.Bird"):
        for k in range(1, 5):
            (folder := tmp_path/name.format(k)).mkdir(parents=True)
            (folder/f"{folder.name}_1.jpg").write_bytes(jpeg(k))
    words = dict(tiered_imagenet="put tiered_imagenet_classes.csv with .*few-shot-ssl-public.*folders train, val and",
                 cub="put cub_classes.csv with the columns class and split into .*Chen et al. 2019")
    for name, told in words.items():
        with pytest.raises(InputError, match=told): photograph_bank(name, "base", 16, tmp_path)
    assert not list(cache.glob("*.safetensors"))  # before an image is decoded
    parts = "train", "val", "train", "test"
    lines = [f"{p},00{k}.Bird" for k, p in enumerate(parts, 1)]
    (tmp_path/"cub_classes.csv").write_text("\n".join(["split,class", *lines]))
    birds = photograph_bank("cub", None, 16, tmp_path)
    assert birds.group_names == ["0"] and birds.classes == 4

def test_the_rule_for_birds_gives_the_list(shared):
    lines = [line.split(",") for line in (shared/"splits/cub_classes.csv").read_text().split()[1:]]
    assert len(lines) == 200
    for part, name in lines: assert part == ("train", "val", "train", "test")[(int(name[:3]) - 1) % 4]

def test_a_path_that_leads_nowhere_is_called_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for images, words in (("./nofolder", "^There is no './nofolder': check the path.$"),
                          ("tiny_tierd", "did you mean tiny_tiered"),
                          ("nofolder", "^There is no folder or archive 'nofolder', and no set .*: check the path")):
        with pytest.raises(InputError, match=words): images_at_hand(images)

def test_a_line_without_a_part_is_named(own):
    flat(own, *by_name("novel3"), "novel3")
    words = "^The split file 'split.csv' gives no part to 1 of its 15 classes, the first is 'novel3': write base"
    for read in (lambda: Bank.from_folder(own, size=16), lambda: images_at_hand(str(own))):
        with pytest.raises(InputError, match=words): read()

# ---- the real archive, and the published networks

def test_the_parts_of_tiny_tiered_share_no_class_and_no_super_class(shared):
    "The names in the archive beside its list; no image is decoded."
    from fewshot_nb.data.photographs import _list_of, find_photographs
    place = find_photographs("tiny_tiered", shared/"data")
    with tarfile.open(place) as tar: paths = [m.name for m in tar if m.isfile() and m.name.endswith(".JPEG")]
    places = [image_place(p, wordnet=True) for p in paths]
    in_archive = {c: p.part for c, p in places_of_classes(places).items()}  # refuses a class in two parts
    part_of, group_of = _list_of("tiny_tiered", place)
    assert in_archive == part_of and set(group_of) == set(part_of)
    assert Counter(part_of.values()) == dict(base=61, validation=17, novel=45)
    groups = {part: {group_of[c] for c in part_of if part_of[c] == part} for part in ("base", "validation", "novel")}
    assert {part: len(g) for part, g in groups.items()} == dict(base=17, validation=6, novel=8)
    assert len(set.union(*groups.values())) == 17 + 6 + 8
    assert min(Counter(p.name for p in places).values()) >= 5 + 15

@pytest.mark.parametrize("name, dim", [("wrn28-10", 640), ("resnet12", 640), ("resnet18-3x3", 512)])
def test_a_published_network_says_its_numbers(name, dim):
    from fewshot_nb.models.residual import photograph_backbone
    net = photograph_backbone(name, (3, 32, 32)).eval()
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode(): z = net(x)
    assert z.shape == (2, dim) and z.dtype == torch.float32 and z.isfinite().all()
    assert (z[0] - z[1]).abs().max() > 1e-4  # not the same for every image
