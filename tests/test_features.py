"The real feature files, divided by the splits that ship with the package."
import numpy as np
import pytest
import torch

from fewshot_nb.core import InputError
from fewshot_nb.data.features import feature_bank, features, named_features, read_split


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
    with pytest.raises(InputError, match="1 of 5 rows of features in features hold NaN or infinite values, the first is row 3"): feature_bank(x, range(5))
