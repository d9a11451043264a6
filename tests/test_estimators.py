"""Methods are classifiers of scikit-learn: its own checks, cross-validation, clones; and the two ways from easyfsl."""
import threading
import warnings
from functools import partial

import numpy as np
import pytest
import torch

from fewshot_nb import inference
from fewshot_nb.core import InputError
from fewshot_nb.evaluation.calibration import Calibrated
from fewshot_nb.evaluation.evaluate import chosen_methods, evaluate, method_implementation
from fewshot_nb.inference.adapters import state_digest
from fewshot_nb.inference.base import gaussian_tasks
from fewshot_nb.data.features import feature_bank
from fewshot_nb.samplers import TaskSpec

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

METHODS = [inference.NearestPrototype(), inference.SimpleShot(centre="support"), inference.BDCSPN(centre="support")]
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
    narrow = make_pipeline(SelectKBest(), inference.NearestPrototype())
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
    class Old(inference.NearestPrototype):
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
    rows = evaluate(bank(), ["nearest-prototype", LogisticRegression(), first_support], TaskSpec(n_query=20), 20)
    own = rows[rows.method.isin(["LogisticRegression()", "first_support"])]
    assert len(own) == 40 and not own.transductive.any() and (own.accuracy.mean() > .7)
    assert set(own.note) == {"an estimator of scikit-learn, taken as inductive", "a function, taken as inductive"}
    one_shot = rows.pivot(index="task", columns="method", values="accuracy")
    assert (one_shot.first_support == one_shot["nearest-prototype"]).all()  # at one shot both take the nearest

def constant(support, labels, query, k=0): return np.full(len(query), k)

class Always:
    def __init__(self, k): self.k = k
    def __call__(self, support, labels, query): return np.full(len(query), self.k)

def closing(k): return lambda support, labels, query: np.full(len(query), k)

def own_method(k):
    class Mine(inference.NearestPrototype):
        name = "mine"
        def answer(self, support, labels, query, way): return torch.eye(way)[torch.full(query.shape[:2], k)]
    return Mine()

def a_pipeline(k): return make_pipeline(StandardScaler(), LogisticRegression(C=10.**(4 - 6*k), max_iter=50 - 14*k))

TWINS = [a_pipeline, closing, lambda k: partial(constant, k=k), Always, own_method,
         lambda k: inference.oversampling.Oversampled(own_method(k)), lambda k: Calibrated(own_method(k), 2.)]

@pytest.mark.parametrize("make", TWINS, ids="pipeline closure partial object class oversampled calibrated".split())
def test_a_folder_gives_no_rows_of_another_classifier(make, tmp_path):
    spec = TaskSpec(n_query=20, marginal="dirichlet(2)")
    def rows(m, out=None): return evaluate(bank(), {"mine": m}, spec, 12, out=out)
    first, other = rows(make(0), tmp_path), rows(make(3), tmp_path)
    assert other.accuracy.tolist() == rows(make(3)).accuracy.tolist() != first.accuracy.tolist()
    again = rows(make(0), tmp_path)  # made anew, and answered from the folder
    assert again.seconds.tolist() == first.seconds.tolist() and len(again) == 12

def test_digests_are_the_same_in_each_process():
    held = {"a": [1, 2., None, True, b"x"], "words": {"one", "two", "three"}, "x": np.arange(4.), "t": torch.ones(2)}
    assert state_digest(held) == "7ff6b8d6df112240864fda0457ac3c69"  # a set of words has another order in each process

@pytest.mark.parametrize("make", TWINS, ids="pipeline closure partial object class oversampled calibrated".split())
def test_digests_tell_what_is_made_anew_from_what_is_other(make):
    assert state_digest(make(0)) == state_digest(make(0)) != state_digest(make(3)) != None

def test_what_has_no_digest_is_computed_anew(tmp_path):
    from fewshot_nb.evaluation.evaluate import evaluate_shard
    def locked(lock): return lambda support, labels, query: (lock, first_support(support, labels, query))[1]
    m, spec = {"mine": locked(threading.Lock()), "nearest-prototype": "nearest-prototype"}, TaskSpec(n_query=20)
    with pytest.warns(UserWarning, match="What mine holds cannot be told from another"):
        first = evaluate(bank(), m, spec, 12, out=tmp_path)
    with pytest.warns(UserWarning, match="its rows are computed anew in each call"):
        again = evaluate(bank(), m, spec, 12, out=tmp_path)
    assert again.accuracy.tolist() == first.accuracy.tolist() and len(again) == 24
    same = (again.seconds == first.seconds).groupby(again.method, observed=True).mean()
    assert same["nearest-prototype"] == 1 > same.mine
    with pytest.raises(InputError, match="What mine holds has no digest"):
        evaluate_shard([bank()], "0/2", tmp_path/"shards", m, spec, 12)

def test_two_methods_of_one_name_are_refused():
    C = chosen_methods
    for two in ([a_pipeline(0), a_pipeline(1)], [closing(0), closing(3)], ["alpha-tim", inference.AlphaTIM()]):
        with pytest.raises(InputError, match="Two different methods are both called .*: give a dict"): C(two, 5)
    assert list(C({"one": a_pipeline(0), "other": a_pipeline(1)}, 5)) == ["one", "other"]
    assert list(C([a_pipeline(0), a_pipeline(0)], 5)) == ["Pipeline"]
    assert list(C(["nearest-prototype", "nearest-prototype", inference.NearestPrototype()], 5)) == ["nearest-prototype"]

@pytest.mark.parametrize("around", [inference.oversampling.Oversampled, inference.uneven.PriorCorrected])
def test_a_method_around_another_tells_the_version_inside(around, monkeypatch):
    before = method_implementation(around(inference.NearestPrototype()))
    monkeypatch.setattr(inference.NearestPrototype, "version", 7)
    after = method_implementation(around(inference.NearestPrototype()))
    assert before.endswith(", nearest-prototype 1") and after.endswith(", nearest-prototype 7")
    assert method_implementation(Calibrated(inference.NearestPrototype(), 2.)) == "nearest-prototype calibrated 7"

@pytest.mark.parametrize("m", [KMeans(5), make_pipeline(StandardScaler(), KMeans(5)), Ridge()], ids=str)
def test_what_is_no_classifier_is_refused(m):
    with pytest.raises(InputError, match="does not answer with the classes"):
        evaluate(bank(), m, TaskSpec(n_query=20), 2)

def test_scores_are_of_labels_of_one_kind():
    X, y = clouds()
    m = inference.NearestPrototype().fit(X, y)
    share = (m.predict(X) == y).mean()
    for same in (y, y[:, None], y.tolist(), y.astype(object)): assert m.score(X, same) == share > .9
    for wrong in (None, y[:5], np.arange(60), np.stack([y, y], 1), [None]*60, [[1], [1, 2]]):
        with pytest.raises(InputError): m.score(X, wrong)
    numbers = inference.NearestPrototype().fit(X, torch.arange(60) % 3)
    assert numbers.score(X, torch.arange(60) % 3) == numbers.score(X, np.arange(60.) % 3) == share
    with pytest.raises(InputError, match="The labels are text, such as 'a', but those of the support are numbers"):
        numbers.score(X, y)

def test_what_fails_in_a_users_code_is_named_with_its_line(tmp_path, monkeypatch):
    "One sentence with the last line of their own; the error itself is its cause."
    from sklearn.base import BaseEstimator, ClassifierMixin
    X, y = clouds()
    task = torch.as_tensor(X)[None].float(), torch.arange(60)[None] % 3, torch.as_tensor(X)[None].float()
    (tmp_path/"mine_that_fails.py").write_text("def bad(s, y, q):\n    return 1/len(q[:0])\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as e: inference.method("mine_that_fails:bad")(*task)
    assert str(e.value) == ("bad failed on a task with ZeroDivisionError: division by zero (in bad, line 2 of "
                            "mine_that_fails.py): mend it, or leave it out.")
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    class Picky(ClassifierMixin, BaseEstimator):
        def fit(self, X, y): raise ValueError("too\nfew.")
        def predict(self, X): return X
    with pytest.raises(InputError, match=r"failed on a task with ValueError: too few \(in fit, line \d+ of test_est"):
        evaluate(bank(), Picky(), TaskSpec(n_query=20), 2)

def test_a_single_query_is_refused_by_pt_map():
    m = inference.PTMAP()
    support, labels, query, _ = gaussian_tasks(3, n_query=6, dim=8)
    query[1] = query[1, :1]
    for asked in (query, query[:, :1]):
        with pytest.raises(InputError, match="queries of a task .[16]. are all the same"): m(support, labels, asked)
    assert m(support, labels, query[:, :1].repeat(1, 2, 1) + torch.tensor([0, 1.])[:, None]).isfinite().all()

def test_epochs_have_tasks_of_their_own():
    from fewshot_nb.inference.adapters import TaskSampler
    class Set:
        def get_labels(self): return np.arange(200) % 8
    def sampler(**more): return TaskSampler(Set(), 5, 2, 6, 3, **more)
    s, twin, fixed = sampler(), sampler(), sampler(fixed=True)
    epochs = [list(s) for _ in range(3)]
    assert epochs == [list(twin) for _ in range(3)] and len({str(e) for e in epochs}) == 3
    assert list(fixed) == list(fixed) == epochs[0] and len(s) == len(epochs[0]) == 3

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
    theirs, ours = easy.PrototypicalNetworks(torch.nn.Identity()), EasyFewShotClassifier("nearest-prototype")
    for support, y, query, truth, classes in loader:
        answers = []
        for classifier in (theirs, ours):
            classifier.process_support_set(support, y)
            answers.append(classifier(query).argmax(-1))
        assert torch.equal(*answers) and len(set(classes)) == 5 and (answers[0] == truth).float().mean() > .7
    rows = evaluate(bank(), ["nearest-prototype", OneTaskMethod(theirs, "easyfsl")], TaskSpec(n_query=20), 10)
    both = rows.pivot(index="task", columns="method", values="accuracy")
    assert (both.easyfsl == both["nearest-prototype"]).all()
    assert "a classifier of easyfsl, taken as inductive" in set(rows.note)
