"""VAE-NS, its training and its worker: published sizes, exact divergences, one-shot sampling, killed
and resumed trainings."""
import os, signal, subprocess, sys, time

import pytest, torch
from torch import distributions as D

from fewshot_nb.core import InputError, threads, torch_rng
from fewshot_nb.data.bank import Bank
from fewshot_nb.models.vae_ns import VAENS, vae_ns_parameters, gaussian_kl
from fewshot_nb.train.vae import train_generator

TINY = dict(image_size=16, stem="patches", widths=(4,), hidden=16, context_dim=6, latent_dim=3)

def bank(classes=6, size=16):
    images = (torch.rand(classes*20, size, size, generator=torch_rng(0))*255).byte()
    return Bank(images, torch.arange(classes).repeat_interleave(20), source="noise")

def test_published_parameter_counts():
    assert vae_ns_parameters(VAENS()) == dict(
        encoder=1_958_400, statistic=1_445_122, inference=408_610, latent_decoder=342_818,
        observation_decoder=3_324_673, total=7_479_623)  # claim A3

@pytest.mark.parametrize("size", [18, 28, 50, 64])
def test_convolutional_stem_gives_back_its_size(size):
    model = VAENS(size, widths=(4, 4, 8, 8), hidden=8, context_dim=5, latent_dim=2)
    assert model.loss(torch.rand(2, 3, 1, size, size))["loss"].isfinite()
    assert model.sample(torch.rand(2, 1, size, size), 3).shape == (2, 3, 1, size, size)

def test_divergence_is_torch_distributions():
    a, b, c, d = torch.randn(4, 5, 7, dtype=torch.float64, generator=torch_rng(1))
    p, q = D.Normal(c, (d/2).exp()), D.Normal(a, (b/2).exp())
    torch.testing.assert_close(gaussian_kl(a, b, c, d), D.kl_divergence(q, p).sum(-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        gaussian_kl(a, b), D.kl_divergence(q, D.Normal(torch.zeros(()).double(), 1.0)).sum(-1),
        rtol=1e-12, atol=1e-12)

@pytest.mark.parametrize("annealing, on_context", [(0., False), (.5, False), (1., True)])
def test_loss_is_equation_7_by_torch_distributions(annealing, on_context):
    torch.manual_seed(0)
    model = VAENS(**TINY, beta=2.5, context_weight=.7, beta_on_context=on_context).double()
    x = torch.rand(4, 3, 1, 16, 16, dtype=torch.float64).round()
    got = model.loss(x, annealing, torch_rng(3))
    g, normal = torch_rng(3), lambda mean, log_var: D.Normal(mean, (log_var/2).exp())
    draw = lambda q: q.loc + q.scale*torch.randn(q.loc.shape, generator=g, dtype=torch.float64)
    h = model.embed(x)
    q_c = normal(*model.statistic(h)); c = draw(q_c)
    q_z = normal(*model.inference(h, c)); z = draw(q_z)
    p_z = normal(*(v[:, None].expand(-1, 3, -1) for v in model.prior(c)))
    log_p = D.Bernoulli(logits=model.decoder(z, c)).log_prob(x).sum((0, 1, 2, 3, 4))
    kl_z = D.kl_divergence(q_z, p_z).sum()
    kl_c = D.kl_divergence(q_c, D.Normal(torch.zeros_like(q_c.loc), 1.)).sum()
    weight_c = .7*(2.5 if on_context else 1)
    expected = (-(1 + annealing)*log_p + (2.5*kl_z + weight_c*kl_c)/(1 + annealing))/12
    torch.testing.assert_close(got["loss"], expected, rtol=1e-10, atol=0)

def test_samples_are_probabilities_of_the_asked_shape_and_repeatable():
    model = VAENS(**TINY)
    model.loss(torch.rand(4, 3, 1, 16, 16))  # moves the running statistics
    prototypes = torch.rand(5, 1, 16, 16)
    a, b, other = (model.sample(prototypes, 4, torch_rng(seed)) for seed in (0, 0, 1))
    assert a.shape == (5, 4, 1, 16, 16) and 0 <= a.min() and a.max() <= 1 and model.training
    assert torch.equal(a, b) and not torch.equal(a, other)
    torch.testing.assert_close(a, model.sample(prototypes, 4, torch_rng(0), block=4), atol=1e-6, rtol=0)
    prototypes[1:] = 0.  # a concept's samples do not depend on its neighbours
    torch.testing.assert_close(model.sample(prototypes, 4, torch_rng(0))[0], a[0], atol=1e-6, rtol=0)

@pytest.mark.parametrize("wrong", [dict(beta=-1), dict(context_weight=-.1), dict(beta=float("nan"))])
def test_negative_weights_are_refused_in_one_sentence(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}=.* was given: take"): VAENS(**wrong)

def test_beta_makes_latents_say_less():
    "The price of z rises with beta, so after training z says less."
    said = []
    for beta in (.1, 10.):
        torch.manual_seed(0)
        _, state = train_generator(
            VAENS(**TINY, beta=beta), bank(), steps=200, batch=8, lr=3e-3, schedule="fall", log=50)
        said.append(state.history[-1]["kl_z"])
    assert said[1] < said[0]/2, said

KILLED = """
import sys
sys.path.insert(0, {tests!r})
import test_generator
test_generator.short_training({folder!r})
"""

def short_training(folder):
    "A training with everything that must be resumed: batch norm, plateau, annealing, turned sets."
    with threads(1), torch.random.fork_rng():
        torch.manual_seed(0)
        model = VAENS(**TINY)
        _, state = train_generator(
            model, bank(), steps=240, batch=4, context=3, schedule="plateau", annealing=True,
            augmentation="turns", seed=5, checkpoint=folder and f"{folder}/run.pt", every=10, log=20)
        if folder: torch.save(dict(weights=model.state_dict(), history=state.history), f"{folder}/done.pt")
        return model.state_dict(), state.history

def test_a_killed_training_resumes_bit_for_bit(tmp_path):
    code = KILLED.format(tests=os.path.dirname(__file__), folder=str(tmp_path))
    start = lambda: subprocess.Popen(
        [sys.executable, "-c", code], env=dict(os.environ, FEWSHOT_QUIET="1"), stderr=subprocess.PIPE)
    steps = lambda: torch.load(tmp_path/"run.pt", weights_only=True)["step"] if (tmp_path/"run.pt").exists() else 0
    for _ in range(2):  # two kills, each a little after a new checkpoint was seen
        before, process = steps(), start()
        try:
            while process.poll() is None and steps() == before: time.sleep(.005)
            assert process.poll() is None, process.stderr.read().decode()
        finally: process.send_signal(signal.SIGKILL); process.wait(); process.stderr.close()
        assert before < steps() < 240 and not (tmp_path/"done.pt").exists()
    process = start()
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error.decode()
    weights, history = short_training(None)
    done = torch.load(tmp_path/"done.pt", weights_only=True)
    assert done["history"] == history
    for k, v in weights.items(): assert torch.equal(v, done["weights"][k]), k
