"The critics: their size, the released and our own weights, what is refused, and how they are trained."
import json

import numpy as np
import pytest
import torch

from fewshot_nb.core import InputError
from fewshot_nb.data.omniglot import omniglot
from fewshot_nb.metrics import measure_agreement, diversity, human_features, human_point
from fewshot_nb.models.core import embed, parameter_count
from fewshot_nb.models.critics import CriticNet, read_critics, read_critic, released_folder, save_critic
from fewshot_nb.models.weights import own_folder
from fewshot_nb.models.critics import fresh_critic
from fewshot_nb.train.proto_net import few_shot_accuracy, train_proto_net

def test_table_s1():
    "Table S1 of Boutin et al. 2022: each row, their sum, and the 28 px net of the project's notes."
    net = CriticNet()
    assert [parameter_count(b) for b in net.blocks] == [768, 37_056, 37_056, 37_056]
    assert [parameter_count(net.first), parameter_count(net.last)] == [147_712, 32_896]
    assert parameter_count(net) == 292_544 and parameter_count(CriticNet(28)) == 161_472

@pytest.fixture(scope="module")
def released(shared):
    return read_critics("serre2022", weights=shared/"weights")

def test_released_weights_are_read_exactly(shared, released):
    "A plain net with the paper's order of layers and the released numbers gives the same features."
    from torch import nn
    x = (torch.rand(5, 1, 50, 50, generator=torch.Generator().manual_seed(0)) > .9).float()
    for net, file, head in [
        (released.proto_net, "proto_net_serre2022.pt", "metric_layer"),
        (released.simclr, "simclr_serre2022.pt", "projection.0")]:
        w = torch.load(shared / "weights" / file, map_location="cpu", weights_only=True)
        layers = []
        for i in range(4):
            conv, norm = nn.Conv2d(1 if i == 0 else 64, 64, 3, padding=1), nn.BatchNorm2d(64)
            conv.load_state_dict({k: w[f"embedding.{i}.0.{k}"] for k in ("weight", "bias")})
            norm.load_state_dict({k: w[f"embedding.{i}.1.{k}"] for k in norm.state_dict()})
            layers += [conv, norm, nn.ReLU(), nn.MaxPool2d(2)]
        with torch.no_grad():
            h = nn.Sequential(*layers).eval()(x).flatten(1).relu()
            features = h @ w["embedding.6.weight"].T + w["embedding.6.bias"]
            embedding = features @ w[f"{head}.weight"].T + w[f"{head}.bias"]
        assert torch.allclose(embed(net, x), features, atol=1e-4, rtol=1e-4)
        assert torch.allclose(embed(net, x, "embedding"), embedding, atol=1e-4, rtol=1e-4)
        assert (not net.training and parameter_count(net) == 292_544
                and not any(p.requires_grad for p in net.parameters()))

def test_auto_finds_the_released_pair(shared, monkeypatch, tmp_path):
    monkeypatch.delenv("FEWSHOT_WEIGHTS", raising=False)
    monkeypatch.setenv("FEWSHOT_DATA", str(shared/"data"))
    assert released_folder() == shared/"weights" and read_critics().name == "serre2022"
    monkeypatch.setenv("FEWSHOT_DATA", str(tmp_path/"data"))
    assert released_folder() is None
    assert read_critics(data=shared/"data").name == "serre2022"
    monkeypatch.setenv("FEWSHOT_WEIGHTS", str(tmp_path))
    with pytest.raises(InputError, match="does not hold proto_net_serre2022.pt and simclr_serre2022.pt"): read_critics()

def test_truncated_and_strange_weights(shared, tmp_path):
    "One sentence for a released file that is cut short, is another's, or is no weights at all."
    whole = (shared/"weights/proto_net_serre2022.pt").read_bytes()
    for n in (0, 100, len(whole)//2, len(whole) - 100):
        (tmp_path/"cut.pt").write_bytes(whole[:n])
        with pytest.raises(InputError, match="cannot be read as PyTorch weights") as e: read_critic(tmp_path/"cut.pt")
        assert "\n" not in str(e.value)
    tensors = torch.load(shared/"weights/proto_net_serre2022.pt", map_location="cpu", weights_only=True)
    tensors["embedding.6.weight"] = tensors["embedding.6.weight"][:, :64]
    torch.save(tensors, tmp_path/"other.pt")
    with pytest.raises(InputError, match=r"first.weight: \(256, 64\) there, \(256, 576\) expected"):
        read_critic(tmp_path / "other.pt")

def test_code_in_a_weights_file_is_not_run(tmp_path):
    class Harm:
        def __reduce__(self): return (open, (str(tmp_path/"harm"), "w"))
    torch.save(dict(a=Harm()), tmp_path/"harmful.pt")
    with pytest.raises(InputError, match="cannot be read"): read_critic(tmp_path/"harmful.pt")
    assert not (tmp_path/"harm").exists()

@pytest.mark.parametrize("kind", ["proto_net", "simclr"])
def test_own_pair_in_the_package(kind):
    "Small, half precision, with a card that says what it is."
    path = own_folder()/f"{kind}.safetensors"
    assert path.stat().st_size < 600_000
    net, card = read_critic(path)
    assert parameter_count(net) == 292_544 and net.image_size == 50
    for key in ("data", "split", "seed", "steps", "settings", "cpu_seconds", "licence", "results"):
        assert card[key], key
    assert card["licence"] == "Apache-2.0" and card["split"].startswith("weak")
    prose = path.with_suffix(".md").read_text()
    for key in ("cpu_seconds", "steps", "licence"): assert card[key] in prose
    assert json.loads(card["settings"])
    assert "interim" not in prose + str(card)

def test_own_pair_on_unseen_characters(shared):
    "The shipped pair on the 150 real test characters; its cards tell what comes out."
    test, pair = omniglot(50, "weak", "test", data=shared/"data"), read_critics("own")
    f = human_features(test, pair)
    accuracy, se = few_shot_accuracy(pair.proto_net, test, embeddings=pair.proto_net.head(f["proto_net"]).flatten(0, 1))
    assert accuracy > .948 and se < .002  # random support: the released ProtoNet gets 94.9 %
    between = measure_agreement(diversity(f["proto_net"]), diversity(f["simclr"]), draws=0)
    assert between.spearman > .75 and between.r2 > .65
    people = {s: human_point(test, pair, s, f)["recognizability"] for s in ("simclr", "proto_net")}
    assert people["simclr"] > .965 and people["proto_net"] > .975
    told = {k: json.loads(read_critic(own_folder()/f"{k}.safetensors")[1]["results"]) for k in ("proto_net", "simclr")}
    assert abs(told["proto_net"]["one_shot_20_way"] - accuracy) < .001
    for t in told.values(): assert abs(t["spearman"] - between.spearman) < .002 and abs(t["r2"] - between.r2) < .002

@pytest.mark.parametrize("half", [False, True])
def test_relu_between_survives_saving(tmp_path, half):
    save_critic(CriticNet(28, relu_between=half), tmp_path/"n.safetensors", dict(data="none"))
    net, card = read_critic(tmp_path/"n.safetensors")
    assert net.relu_between is half and net.image_size == 28 and card["data"] == "none"

def test_training_improves_one_shot_accuracy(shared):
    "Forty small ProtoNet steps on real characters help on characters never seen."
    train = omniglot(28, "weak", "train", data=shared/"data")
    test = omniglot(28, "weak", "test", data=shared/"data").select(range(40))
    net, state = train_proto_net(None, train, steps=40, way=20, n_query=40)
    (before, _), (after, se) = (
        few_shot_accuracy(fresh_critic(train), test, n_tasks=200),
        few_shot_accuracy(net, test, n_tasks=200))
    assert after > before + .1 and se < .02

def test_simclr_sees_no_labels(shared):
    "Training on the same images under other labels ends with the same weights."
    from fewshot_nb.data.bank import Bank
    from fewshot_nb.train.simclr import train_simclr
    train = omniglot(28, "weak", "train", data=shared/"data").select(range(5))
    mixed = Bank(train.data, torch.from_numpy(np.random.default_rng(0).permutation(train.labels.numpy())))
    a, b = (train_simclr(None, bank, steps=2, batch=20)[0] for bank in (train, mixed))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))

def test_homographies_agree_with_torchvision():
    "The batched matrices do what torchvision's one-image functions do (crops: but at the border)."
    import torchvision.transforms.v2.functional as TF
    from torchvision.transforms.v2 import InterpolationMode
    from fewshot_nb.train.simclr import (
        affine_matrix, corner_moves, crop_boxes, crop_matrix, DISTORTIONS, perspective_matrix, warp)

    g, r, mode = torch.Generator().manual_seed(1), np.random.default_rng(0), InterpolationMode.BILINEAR
    for size in (28, 50):
        x = torch.rand(8, 1, size, size, generator=g)
        angle, zoom, shear = (
            torch.tensor(r.uniform(*b, 8), dtype=torch.float32) for b in ((-30, 30), (0.5, 1.5), (-20, 20)))
        shift = torch.tensor(r.integers(-5, 6, (8, 2)), dtype=torch.float32)
        affine = warp(x, affine_matrix(angle, shift, zoom, shear, size))
        moves, corners = (
            corner_moves(8, size, DISTORTIONS["strong"], g),
            torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]]) * (size - 1))
        perspective = warp(x, perspective_matrix(moves, size))
        boxes = crop_boxes(8, size, DISTORTIONS["light"], g)
        crop = warp(x, crop_matrix(boxes, size))
        for i in range(8):
            theirs = TF.affine(
                x[i], angle[i].item(), shift[i].int().tolist(), zoom[i].item(), [shear[i].item(), 0.0], mode)
            assert torch.allclose(affine[i], theirs, atol=1e-4)
            theirs = TF.perspective(x[i], corners.tolist(), (corners + moves[i]).int().tolist(), mode)
            assert torch.allclose(perspective[i], theirs, atol=1e-4)
            left, top, w, h = boxes[i].int().tolist()
            edge = int(size/min(w, h)/2) + 1
            theirs = TF.resized_crop(x[i], top, left, h, w, [size, size], mode, antialias=True)
            assert torch.allclose(crop[i][:, edge:-edge, edge:-edge], theirs[:, edge:-edge, edge:-edge], atol=1e-4)
