"""Methods are classifiers of scikit-learn: its own checks, cross-validation, clones; and the two ways from easyfsl."""
import warnings

import numpy as np
import pytest
import torch

from fewshot_nb import inference
from fewshot_nb.core import InputError
from fewshot_nb.evaluation.evaluate import evaluate
from fewshot_nb.data.features import feature_bank
from fewshot_nb.samplers import TaskSpec

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

METHODS = [inference.ProtoNet(), inference.SimpleShot(centre="support"), inference.BDCSPN(centre="support")]
DO_NOT_APPLY = {
    "check_dtype_object": "features are numbers; an array of Python objects is refused",
    "check_supervised_y_2d": "a column of labels is taken without a warning",
    "check_do_not_raise_errors_in_init_or_set_params": "a wrong parameter is refused at once, not at fit",
}
TRANSDUCTIVE = {  # the answer to a query depends on the queries beside it
    "check_methods_subset_invariance": "looks at all queries together",
    "check_methods_sample_order_invariance": "sums over queries in another order",
}

def clouds(n=60, seed=0):
    r, y = np.random.default_rng(seed), np.arange(n) % 3
    return 4*np.eye(3, 5)[y] + r.normal(size=(n, 5)), np.array(["a", "b", "c"])[y]

@pytest.mark.parametrize("m", METHODS, ids=lambda m: m.name)
def test_the_checks_of_scikit_learn(m):
    excused = DO_NOT_APPLY | (TRANSDUCTIVE if m.transductive else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(m, expected_failed_checks=excused, on_fail=None, on_skip=None)
    failed = {r["check_name"]: str(r["exception"])[:200] for r in found if r["status"] == "failed"}
    assert not failed and sum(r["status"] == "passed" for r in found) >= 40

@pytest.mark.parametrize("m", METHODS, ids=lambda m: m.name)
def test_cross_validation_and_clones(m):
    X, y = clouds()
    assert cross_val_score(m, X, y, cv=3).mean() > .9
    fitted = m.fit(X, y)
    twin = clone(fitted)
    assert fitted is m and twin == m and twin is not m and twin.get_params() == m.get_params()
    with pytest.raises(NotFittedError): twin.predict(X)
    assert m.score(X, y) == (m.predict(X) == y).mean() > .9

def test_grid_search_and_pipelines():
    X, y = clouds()
    found = GridSearchCV(inference.Baseline(), {"steps": [3, 40]}, cv=3, error_score="raise").fit(X, y)
    assert found.best_estimator_.steps in (3, 40) and found.score(X, y) > .9
    narrow = make_pipeline(SelectKBest(), inference.ProtoNet())
    found = GridSearchCV(narrow, {"selectkbest__k": [1, 5]}, cv=3, error_score="raise").fit(X, y)
    assert found.best_params_ == {"selectkbest__k": 5} and np.ptp(found.cv_results_["mean_test_score"]) > .1
    line = make_pipeline(StandardScaler(), Normalizer(), inference.SimpleShot(centre="support"))
    both = {"normalizer__norm": ["l1", "l2"], "simpleshot__centre": ["support", "none"]}
    assert GridSearchCV(line, both, cv=3).fit(X, y).score(X, y) > .9
    assert line.fit(X, y).score(X, y) > .9

@pytest.mark.parametrize("m", [*METHODS, inference.Baseline()], ids=lambda m: m.name)
def test_fields_are_frozen_and_private_notes_are_not(m):
    import copy
    import dataclasses
    import pickle
    for field in dataclasses.fields(m):
        with pytest.raises(dataclasses.FrozenInstanceError): setattr(m, field.name, 3)
        with pytest.raises(dataclasses.FrozenInstanceError): delattr(m, field.name)
    with pytest.raises(dataclasses.FrozenInstanceError): m.anything = 3
    m._note = 3
    assert m._note == 3 and not hasattr(clone(m), "_note") and m == copy.copy(m) == pickle.loads(pickle.dumps(m))

def test_parameters_are_set_and_checked():
    m = inference.Baseline()
    assert m.set_params(steps=3).get_params()["steps"] == 3
    with pytest.raises(InputError, match="steps=-1"): m.set_params(steps=-1)
    with pytest.raises(InputError, match="Unknown parameter 'stops': did you mean steps"): m.set_params(stops=3)
    assert m.steps == 3

def test_a_class_that_calls_its_answer_predict_still_works():
    class Old(inference.ProtoNet):
        name = "old"
        def predict(self, support, labels, query, way): return torch.full((len(query), query.shape[1], way), 1/way)
    X, y = clouds()
    assert (Old().fit(X, y).predict(X) == "a").all()

def bank():
    r, y = np.random.default_rng(0), np.repeat(np.arange(6), 30)
    return feature_bank(3*np.eye(6, 8)[y] + r.normal(size=(180, 8)), y, "toy")

def first_support(support, labels, query):
    return labels[((query[:, None] - support)**2).sum(-1).argmin(1)]

def test_estimators_and_functions_are_inductive_methods():
    rows = evaluate(bank(), ["protonet", LogisticRegression(), first_support], TaskSpec(n_query=20), 20)
    own = rows[rows.method.isin(["LogisticRegression()", "first_support"])]
    assert len(own) == 40 and not own.transductive.any() and (own.accuracy.mean() > .7)
    assert set(own.note) == {"an estimator of scikit-learn, taken as inductive", "a function, taken as inductive"}
    one_shot = rows.pivot(index="task", columns="method", values="accuracy")
    assert (one_shot.first_support == one_shot.protonet).all()  # at one shot both take the nearest

def test_what_answers_nonsense_is_refused():
    for wrong in (lambda s, y, q: None, lambda s, y, q: y, lambda s, y, q: np.full(len(q), 7)):
        with pytest.raises(InputError, match="answered .* mend it"):
            evaluate(bank(), {"mine": wrong}, TaskSpec(n_query=20), 2)

def test_a_script_of_easyfsl_changes_two_imports():
    easy = pytest.importorskip("easyfsl.methods")
    from fewshot_nb.inference.adapters import EasyFewShotClassifier, OneTaskMethod, TaskSampler
    class Set(torch.utils.data.Dataset):
        data = bank()
        def __len__(self): return self.data.n
        def __getitem__(self, i): return self.data.data[i], int(self.data.labels[i])
        def get_labels(self): return self.data.labels.tolist()
    sampler = TaskSampler(Set(), n_way=5, n_shot=2, n_query=4, n_tasks=5)
    loader = torch.utils.data.DataLoader(Set(), batch_sampler=sampler, collate_fn=sampler.episodic_collate_fn)
    theirs, ours = easy.PrototypicalNetworks(torch.nn.Identity()), EasyFewShotClassifier("protonet")
    for support, y, query, truth, classes in loader:
        answers = []
        for classifier in (theirs, ours):
            classifier.process_support_set(support, y)
            answers.append(classifier(query).argmax(-1))
        assert torch.equal(*answers) and len(set(classes)) == 5 and (answers[0] == truth).float().mean() > .7
    rows = evaluate(bank(), ["protonet", OneTaskMethod(theirs, "easyfsl")], TaskSpec(n_query=20), 10)
    both = rows.pivot(index="task", columns="method", values="accuracy")
    assert (both.easyfsl == both.protonet).all() and "a classifier of easyfsl, taken as inductive" in set(rows.note)
