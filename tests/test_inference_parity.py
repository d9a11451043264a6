"Every method against the predictions that its authors' code made on the same 40 tasks (shared/golden/transductive)."
import numpy as np
import pytest
import torch

from fewshot_nb.inference.inductive import Baseline, BaselinePP, ProtoNet, SimpleShot


@pytest.fixture(scope="session")
def golden(shared):
    "The 40 five-shot tasks, the authors' predictions, and their weights after training."
    folder = shared/"golden/transductive"
    tasks, preds, weights = (dict(np.load(folder/f"{name}_5shot.npz")) for name in ("tasks", "preds", "weights"))
    batch = (torch.from_numpy(tasks["x_s"]), torch.from_numpy(tasks["y_s"]).long(), torch.from_numpy(tasks["x_q"]), torch.from_numpy(tasks["train_mean"]))
    return batch, preds, weights


def differ(method, name, golden):
    "How many of the 3,000 queries `method` predicts unlike the authors' code."
    batch, preds, _ = golden
    return int((method(*batch).argmax(-1).numpy() != preds[f"pred_{name}"]).sum())


@pytest.mark.parametrize("method, name, allowed", [
    (SimpleShot(), "SimpleShot", 0),
    (ProtoNet(), "ProtoNet", 0),
    (Baseline(), "Baseline", 3),
    (BaselinePP(), "Baseline_pp", 0),
])
def test_inductive_predictions(golden, method, name, allowed):
    assert differ(method, name, golden) <= allowed


def test_baseline_without_the_floor_is_another_method(golden):
    "The published loss has 1e-12 inside its logarithm; without it the head learns from misclassified support and predicts otherwise."
    assert differ(Baseline(floor=0), "Baseline", golden) > 30
