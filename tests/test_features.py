"The real feature files, divided by the splits that ship with the package."
import numpy as np
import pandas as pd
import pytest
import torch

from fewshot_nb.core import InputError
from fewshot_nb.data.features import feature_bank, features, read_split
from fewshot_nb.studies.named_features import named_features

@pytest.mark.parametrize("name, classes, novel, dim", [("grocery", 81, 26, 1024), ("caltech101", 101, 30, 1024)])
def test_real_files(shared, name, classes, novel, dim):
    path = shared/f"data/features/{name}_mobilenet_v1.npz"
    f, raw = features(path, split=name), np.load(path)
    assert f.novel.classes == novel and f.novel.shape == (dim,) and features(path).novel.classes == classes
    parts = read_split(name)
    assert {parts[n] for n in f.novel.names} == {"novel"} and {parts[n] for n in f.validation.names} == {"validation"}
    base = np.isin(raw["labels"], [n for n, p in parts.items() if p == "base"])
    assert torch.allclose(f.base_mean, torch.from_numpy(raw["features"][base].mean(0)*raw["scale"]).float(), atol=1e-5)
    row = np.flatnonzero(raw["labels"] == f.novel.names[0])[0]
    assert torch.allclose(f.novel.take(torch.tensor(0)), torch.from_numpy(raw["features"][row]*raw["scale"]), atol=1e-6)
    again = named_features(name, data=shared/"data")
    assert torch.equal(again.novel.data, f.novel.data) and torch.equal(again.base_mean, f.base_mean)

def test_the_groups_of_grocery_are_the_coarse_classes(shared):
    import pandas as pd
    from importlib import resources
    coarse = pd.read_csv(shared/"data/grocery_classes.csv").set_index("fine_class").coarse_class
    split = pd.read_csv(resources.files("fewshot_nb")/"splits/grocery.csv").set_index("class")
    assert split.group.sort_index().equals(coarse.sort_index().rename("group").rename_axis("class"))

def test_label_order_does_not_matter():
    x, y = np.arange(12.).reshape(6, 2), np.array(["b", "a", "b", "c", "a", "c"])
    order = np.random.default_rng(0).permutation(6)
    a, b = feature_bank(x, y), feature_bank(x[order], y[order])
    assert a.names == b.names == ["a", "b", "c"] and torch.equal(b.labels, a.labels[order])

def test_infinite_rows_are_counted():
    x = np.ones((5, 2)); x[3, 1] = np.inf
    with pytest.raises(
        InputError,
        match="1 of 5 rows of features in features hold NaN or infinite values, the first is row 3"):
        feature_bank(x, range(5))

X, Y = np.random.default_rng(0).normal(size=(40, 4)), np.repeat(np.arange(4), 10)

@pytest.mark.parametrize("arrays, said", [
    (dict(features=X.astype(">f4"), labels=Y.astype(">i8")), None),
    (dict(features=X.astype(np.longdouble), labels=Y.astype(np.longdouble)), None),
    (dict(features=X, labels=Y, y=Y), None),
    (dict(features=X, embeddings=X + 1, labels=Y), "different features under two names, features and embeddings"),
    (dict(features=X, labels=Y, y=Y[::-1]), "different labels under two names, labels and y"),
    (dict(features=X, labels=Y, scale="wide"), "scale of f.npz must be one number"),
    (dict(features=X, labels=Y, scale=[1., 2]), "scale of f.npz must be one number"),
    (dict(features=X, labels=np.where(Y == 1, 1e300, Y)), "no whole numbers, such as 1e.300"),
    (dict(features=X, labels=np.where(Y == 1, np.inf, Y)), "no whole numbers, such as inf"),
    (dict(features=X, labels=Y + 1j), "labels of type complex128"),
    (dict(features=X + 1j, labels=Y), "must be numbers, but are complex"),
    (dict(features=X*1e300, labels=Y), "more than float32 carries"),
    (dict(features=X*1e-300, labels=Y), "smaller than 1.2e-38"),
    (dict(features=X, labels=np.datetime64("2020-01-01") + Y), None),
    (dict(features=X, labels=np.where(Y == 1, np.datetime64("NaT"), np.datetime64("2020-01-01"))),
     "10 rows without a label"),
    (dict(features=X, labels=np.where(Y == 1, np.nan, Y)), "10 rows without a label"),
    (dict(first=X, second=X, labels=Y), "several arrays that may be the features"),
    (dict(features=X, fine=Y, coarse=Y), "several arrays that may be the labels")])
def test_arrays_that_people_have(tmp_path, arrays, said):
    np.savez(tmp_path/"f.npz", **arrays)
    if said is None: assert features(tmp_path/"f.npz").novel.classes == 4
    else:
        with pytest.raises(InputError, match=said): features(tmp_path/"f.npz")

@pytest.mark.parametrize("tensors, said", [
    (dict(features=torch.tensor(X).bfloat16(), labels=torch.tensor(Y).bfloat16()), None),
    (dict(features=torch.tensor(X, requires_grad=True), labels=torch.tensor(Y*1., requires_grad=True)), None),
    (dict(features=torch.tensor(X).to_sparse(), labels=torch.tensor(Y)), None),
    (dict(features=X.tolist(), labels=["a", "b", "c", "d"]*10), None),
    (dict(features=torch.tensor(X), labels=torch.tensor(Y), scale=torch.tensor(2., requires_grad=True)), None),
    (dict(features=torch.tensor(X), labels=[None]*40), "40 rows without a label"),
    (dict(features=torch.tensor(X), labels=None), "labels of shape"),
    (dict(features=torch.tensor(X), labels=torch.tensor(Y), split=3), "1 entries in split"),
    (dict(features=torch.tensor(X, dtype=torch.complex64), labels=torch.tensor(Y)), "must be real numbers")])
@pytest.mark.filterwarnings("ignore:Validating sparse")
def test_tensors_that_people_have(tmp_path, tensors, said):
    torch.save(tensors, tmp_path/"f.pt")
    if said is None: assert features(tmp_path/"f.pt").novel.classes == 4
    else:
        with pytest.raises(InputError, match=said): features(tmp_path/"f.pt")

@pytest.mark.parametrize("word", ["NA", "None", "null", "nan", "N/A"])
def test_a_class_may_be_called_as_pandas_calls_what_is_missing(tmp_path, word):
    words = [word, "DE", "FR"]*4
    pd.DataFrame(dict(label=words, a=X[:12, 0], b=[np.nan, *X[1:12, 1]])).to_csv(tmp_path/"f.csv", index=False)
    with pytest.raises(InputError, match="1 of 12 rows of features"): features(tmp_path/"f.csv")  # no number is a gap
    pd.DataFrame(dict(label=words, a=X[:12, 0], b=X[:12, 1])).to_csv(tmp_path/"f.csv", index=False)
    assert sorted(features(tmp_path/"f.csv").novel.names) == sorted(words[:3])
    np.save(tmp_path/"g.npy", X[:12])
    for name in ("labels", "who"):  # a table of one column may have any name
        pd.DataFrame({name: words}).to_csv(tmp_path/"g_labels.csv", index=False)
        assert sorted(features(tmp_path/"g.npy").novel.names) == sorted(words[:3])
    pd.DataFrame(dict(label=["", "DE", "FR"]*4, a=X[:12, 0], b=X[:12, 1])).to_csv(tmp_path/"f.csv", index=False)
    with pytest.raises(InputError, match="4 rows without a label"): features(tmp_path/"f.csv")

def test_a_fingerprint_is_of_features_labels_and_base_mean(tmp_path):
    changed = [
        dict(), dict(features=X + 1e-6), dict(labels=np.roll(Y, 1)), dict(base_features=X),
        dict(base_features=X + 1)]
    found = []
    for arrays in changed:
        np.savez(tmp_path/"f.npz", **{**dict(features=X, labels=Y), **arrays})
        found.append(features(tmp_path/"f.npz").fingerprint)
    assert len(set(found)) == 5
    np.savez(tmp_path/"g.npz", features=X, labels=Y)
    assert features(tmp_path/"g.npz").fingerprint == found[0]  # the name of the file does not matter
