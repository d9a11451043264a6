"""Each of the nine solvers of Bongard problems can learn: one batch of problems by heart, by SGD as in training"""

import pytest, torch
from torch.nn import functional as F

from fewshot_nb.core import rng
from fewshot_nb.data.bongard.basic import basic_problems
from fewshot_nb.models.bongard_solvers import SOLVERS, bongard_solver
from fewshot_nb.train.bongard_solvers import solver_episode, train_moco
from fewshot_nb.train.program_synthesis import train_synthesis
from fewshot_nb.models.program_synthesis import synthesis_network

NARROW = 1/16  # alpha 16

@pytest.fixture(scope="module")
def bank(): return basic_problems(8, 3).bank(32)

def pretrained(name, bank):
    "A solver with a few steps of its pre-training, where it has one."
    net = bongard_solver(name, NARROW, 0)
    if name == "Meta-Baseline-MoCo":
        backbone, _ = train_moco(net.net, bank, steps=3, batch=8, queue=64)
        assert backbone is net.net
    if name == "Meta-Baseline-PS":
        written, _ = train_synthesis(synthesis_network(NARROW, seed=0), bank, steps=3, batch=8)
        net.net.load_state_dict(written.net.state_dict())
    return net.train()

@pytest.mark.parametrize("name", list(SOLVERS))
def test_a_solver_learns_one_batch_by_heart(name, bank):
    "Sixteen queries of eight problems: all of them right by chance once in 65,536 times."
    support, query, labels = solver_episode(bank, 8, rng(0, "by heart"))
    net = pretrained(name, bank)
    lr = .005 if name == "WReN-Bongard" else .02  # sums of 42 relations: at .02 it stays at 50 %, at .005 it learns
    optimizer = torch.optim.SGD(net.parameters(), lr, momentum=.9, weight_decay=5e-4)
    for _ in range(60):
        logits = net(support, query)
        right = (logits.argmax(-1) == labels).float().mean()
        if right > .95: return
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
    raise AssertionError(f"{name} sorts {100*right:.0f} % of one batch after 60 steps")
