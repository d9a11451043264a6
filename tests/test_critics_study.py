"""The further critics: MAML's gradients against plain autograd, the standard classifier, and the one
path from critic to measures."""
import pytest
import torch
import torch.nn.functional as F

from fewshot_nb.core import InputError
from fewshot_nb.models.critics import CriticNet, read_critic, save_critic
from fewshot_nb.train.maml import MAML

def by_hand(weights, support, query, rate, steps, first_order):
    """The queries' loss of the critic of Table S1 after some steps on each task's support: a loop,
    each layer written out."""
    def logits(w, x, n):
        for i in range(0, 16, 4):
            x = F.conv2d(x, w[i], w[i + 1], padding=1)
            m, v = x[:n].mean((0, 2, 3)), x[:n].var((0, 2, 3), unbiased=False)
            x = ((x - m[:, None, None]) / (v[:, None, None] + 1e-5).sqrt()) * w[i + 2][:, None, None] + w[
                i + 3][:, None, None]
            x = F.max_pool2d(x.relu(), 2)
        return F.linear(F.linear(x.flatten(1), w[16], w[17]), w[18], w[19])
    losses, labels, n = [], torch.arange(support.shape[1]), support.shape[1]
    for s, q in zip(support, query):
        w = weights
        for _ in range(steps):
            slopes = torch.autograd.grad(F.cross_entropy(logits(w, s, n), labels), w, create_graph=not first_order)
            w = [a - rate*b for a, b in zip(w, slopes)]
        losses.append(F.cross_entropy(logits(w, torch.cat([s, q]), n)[n:], labels))
    return torch.stack(losses).mean()

@pytest.mark.parametrize("first_order", [False, True])
def test_maml_gradients_are_those_of_plain_autograd(first_order):
    "functional_call + grad + vmap through the critic, against a loop with create_graph, in double precision."
    torch.manual_seed(0)
    net = CriticNet(16, width=3, out=4).double()
    support, query = torch.rand(2, 3, 4, 1, 16, 16, dtype=torch.double)
    maml = MAML(net, lr=.1, steps=3, first_order=first_order).double()
    out = maml(support[:, :, None], query)
    F.cross_entropy(out.flatten(0, 1), torch.arange(4).repeat(3)).backward()
    weights = [p.detach().clone().requires_grad_() for p in net.parameters()]
    wanted = torch.autograd.grad(by_hand(weights, support, query, .1, 3, first_order), weights)
    assert len(wanted) == 20
    for (name, p), w in zip(maml.net.named_parameters(), wanted):
        assert torch.allclose(p.grad, w, rtol=1e-6, atol=1e-9*max(1, wanted[-1].abs().max().item())), name
    other = torch.autograd.grad(by_hand(weights, support, query, .1, 3, not first_order), weights)
    assert (other[16] - wanted[16]).norm() > 1e-3*wanted[16].norm()  # the two orders are not the same

def test_first_and_second_order_take_the_same_steps():
    torch.manual_seed(0)
    net, x = CriticNet(16, width=3, out=4), torch.rand(2, 4, 1, 1, 16, 16)
    first, second = (MAML(net, first_order=f).eval()(x, x[:, :, 0]) for f in (True, False))
    assert torch.allclose(first, second, rtol=1e-5, atol=1e-6)

def test_a_narrow_critic_survives_saving(tmp_path):
    net = CriticNet(16, width=4, out=20).eval()
    save_critic(net, tmp_path/"n.safetensors")
    again, card = read_critic(tmp_path/"n.safetensors")
    assert (again.width, again.out, card["width"]) == (4, 20, "4")
    x = torch.rand(3, 1, 16, 16)
    with torch.no_grad(): assert torch.allclose(again(x), net(x), atol=1e-2)

@pytest.fixture(scope="module")
def strange():
    "Characters as glyphs of a few alphabets, and tasks of them."
    from fewshot_nb.studies.critics import prototype_tasks
    from fewshot_nb.data.glyphs import glyphs
    bank = glyphs(20, alphabets=4, split="weak", part="test")
    prototypes = torch.arange(bank.classes) % 20
    return bank, prototypes, prototype_tasks(bank, prototypes, way=5, appearances=20)

def test_one_path_from_critic_to_measures(strange):
    "Diversity and recognizability of `critics_study` are those of `metrics`, for a net and for MAML's features."
    from fewshot_nb.studies.critics import class_accuracy, class_measures, prototype_tasks, task_logits
    from fewshot_nb.metrics import diversity, recognizability
    from fewshot_nb.models.core import embed
    from fewshot_nb.models.critics import fresh_critic
    from fewshot_nb.train.maml import critic_from_maml
    bank, prototypes, tasks = strange
    net = fresh_critic(bank, width=4)
    m = class_measures(net, net, bank, tasks)
    table, classes = bank.by_class(), torch.arange(bank.classes)
    assert torch.allclose(m["diversity_std"], diversity(embed(net, bank)[table]), rtol=1e-4)
    z = embed(net, bank, "embedding")[table]
    exact = recognizability(z, z[classes, prototypes], way=5, count=torch.arange(20) != prototypes[:, None])
    many = prototype_tasks(bank, prototypes, way=5, appearances=400)
    assert abs(exact.mean - class_accuracy(task_logits(net, bank, many), many).mean().item()) < .03
    maml = MAML(fresh_critic(bank, width=4, out=5)).eval()
    inner = critic_from_maml(maml, bank, 100)
    other = class_measures(maml, inner, bank, tasks)
    assert other["logits"].shape == m["logits"].shape and other["diversity_std"].isfinite().all()
    alone = class_measures(maml, inner, bank, tasks[:1])["logits"]
    assert torch.allclose(alone, other["logits"][:1], rtol=1e-3, atol=1e-4)  # a task does not depend on its batch

def test_tasks_never_ask_for_their_support(strange):
    bank, prototypes, tasks = strange
    assert (bank.labels[tasks.query] == tasks.classes.gather(1, tasks.query_labels)).all()
    assert not (tasks.query[:, :, None] == tasks.support[:, None]).any()
    assert (tasks.query.sort(1).values.diff(dim=1) > 0).all()  # no drawing twice in a task

def test_silhouettes_and_distances_of_classes():
    import numpy as np
    from fewshot_nb.studies.critics import class_silhouette
    from fewshot_nb.studies.humans import class_distances
    from fewshot_nb.metrics import distance_to_humans
    g = torch.Generator().manual_seed(0)
    assert class_silhouette(torch.randn(4, 6, 3, generator=g) + 40*torch.eye(4, 3)[:, None]) > .5
    with pytest.raises(InputError, match="2 or more classes"): class_silhouette(torch.zeros(1, 3, 2))
    rng = np.random.default_rng(0)
    one, two = (dict(diversity=rng.random(1), recognizability=100*rng.random(1)) for _ in range(2))
    mine = class_distances(dict(a=one), two)["a"][0]
    point = lambda p: [p["diversity"][0], p["recognizability"][0]]
    # one class: the paper's distance of models
    assert mine == pytest.approx(distance_to_humans([point(one)], point(two))[0])

def test_a_standard_classifier_learns_and_holds_out(strange):
    from fewshot_nb.train.classifier import hold_out, train_classifier
    from fewshot_nb.models.critics import fresh_critic
    bank = strange[0]
    train, held = hold_out(bank)
    assert len(held) == 2*bank.classes and not set(train.tolist()) & set(held.tolist())
    net, state = train_classifier(fresh_critic(bank, width=8, out=bank.classes), bank, steps=30, batch=32, look=15)
    assert state.history[-1]["loss"] < state.history[0]["loss"] and [h["step"] for h in state.watch.history] == [15, 30]

def test_seeds_that_agree_by_luck_do_not_close_an_interval_below_that_over_characters():
    import numpy as np, pandas as pd
    from fewshot_nb.studies.critics import agreement_over_seeds, critic_agreement, critic_measures
    draws = np.random.default_rng(0)
    truth = draws.normal(size=150)
    one, other = (dict(accuracy=truth + draws.normal(size=150)) for _ in range(2))
    equal = {("a", s): one for s in range(3)} | {("b", s): other for s in range(3)}
    alone, found = critic_agreement(one, other, "accuracy"), agreement_over_seeds(equal, "a", "b", "accuracy")
    assert found == pytest.approx((alone.spearman, alone.spearman_low, alone.spearman_high, 3))
    apart = {(c, s): dict(accuracy=truth + (.2 + s)*draws.normal(size=150)) for c in "ab" for s in range(3)}
    wide = agreement_over_seeds(apart, "a", "b", "accuracy")
    assert wide.high - wide.low > .5 > found.high - found.low  # seeds that differ widen it
    rows = pd.DataFrame(dict(critic="proto_net", seed=range(3), steps=8000, accuracy=[97.6, 97.6, 97.7], accuracy_se=.3,
                             training_accuracy=[.94, .95, .95]))
    measures = critic_measures(rows, {})
    assert measures["H12"].value.high - measures["H12"].value.value == pytest.approx(1.96*.3)
    assert (measures["H12"].unit, measures["H12t"].unit) == ("seeds or classes", "seeds")
    assert measures["H12"].gate == measures["H12t"].gate == ""  # the paper tests in tasks of 20 (S1), as the rows do
    few = critic_measures(rows[:1], {})
    assert few["H12"].unit == "classes" and few["H12t"].gate.startswith("one seed: 1 of the 3")
