"Methods with a prior and for open sets beside numbers of their authors' code, where its licence lets us keep them."

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fewshot_nb.core import InputError
from fewshot_nb.inference.base import gaussian_tasks, l2, prototypes
from fewshot_nb.inference.open_set import OSLO
from fewshot_nb.inference.prior import PRIOR_METHODS
from fewshot_nb.inference.prior_transductive import VisionEMDirichlet, propagated

golden = pd.read_csv(Path(__file__).parent/"golden_prior"/"zlap_oslo.csv")
support, labels, query, truth = gaussian_tasks(2, way=4, shot=3, n_query=20, dim=12, spread=1.5, relu=False, seed=6)
prior = l2(prototypes(l2(support), labels, 4))

def kept(prefix): return golden.filter(like=prefix).to_numpy().reshape(2, 20, -1)

def test_zlap_scores_are_those_of_its_authors():
    ours = propagated(l2(query).double(), l2(query).double() @ prior.double().mT)
    assert np.abs(ours.numpy() - kept("zlap")).max() < 2e-6

def test_oslo_scores_are_those_of_its_authors():
    p, outsider = OSLO()(support, labels, query)
    assert np.abs(p.numpy() - kept("oslo")).max() < 2e-6
    assert np.abs(outsider[..., None].numpy() - kept("outsider")).max() < 5e-6

@pytest.mark.parametrize("name", sorted(PRIOR_METHODS))
def test_queries_and_classes_in_another_order(name):
    m, turn, back = PRIOR_METHODS[name](), torch.randperm(20), [2, 0, 3, 1]
    p = m(support, labels, query, prior)
    assert torch.allclose(m(support, labels, query[:, turn], prior), p[:, turn], atol=1e-4)
    renamed = torch.tensor(back).argsort()[labels]
    assert torch.allclose(m(support, renamed, query, prior[:, back]), p[..., back], atol=1e-4)

@pytest.mark.parametrize("name", sorted(PRIOR_METHODS))
def test_a_perfect_prior_helps(name):
    eye = torch.eye(4)  # features that are their class, and a prior that knows it
    s, q = (eye[y] + .01*x[..., :4] for y, x in ((labels, support), (truth, query)))
    p = PRIOR_METHODS[name]()(s, labels, q, eye.expand(2, 4, 4))
    assert (p.argmax(-1) == truth).all()

def test_who_answers_without_a_support():
    for name, cls in PRIOR_METHODS.items():
        if cls.zero_shot: assert cls()(None, None, query, prior).shape == (2, 20, 4)
        else:
            with pytest.raises(InputError, match="learns from a support, and none was given"):
                cls()(None, None, query, prior)

def test_vision_only_takes_means_for_text():
    assert torch.allclose(VisionEMDirichlet()(support, labels, query),
                          PRIOR_METHODS["em-dirichlet"]()(support, labels, query, prior), atol=1e-4)
