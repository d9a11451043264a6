"""Four generators through one door: settings, trainings that are killed and resumed, samples, kept
models, and what is refused."""
import os, signal, subprocess, sys, time
from pathlib import Path

import pandas as pd, pytest, torch

from fewshot_nb import metrics
from fewshot_nb.studies import generators
from fewshot_nb.engine import results
from fewshot_nb.engine.experiment import find_experiment
from fewshot_nb.engine.results import committed_rows
from fewshot_nb.models.weights import own_folder
from fewshot_nb.core import InputError, threads, torch_rng
from fewshot_nb.data.bank import Bank
from fewshot_nb.studies.sweeps import sweep_setting
from fewshot_nb.studies.generators import GENERATORS, generator_settings, make_generator, train_one_shot_generator
from fewshot_nb.models.dagan import DAGAN, PairCritic
from fewshot_nb.models.vae_stn import VAESTN
from fewshot_nb.train.wgan import AdversarialTraining, train_adversarial
from fewshot_nb.train.vae import train_pairs

TINY = {  # as narrow as they come
    "vae-ns": dict(
        image_size=16, stem="patches", widths=[4], hidden=16, context_dim=6, latent_dim=3, sets=4,
        context=2, schedule="fall", annealing=False, augmentation="none"),
    "vae-stn": dict(
        image_size=16, latent_dim=3, state_dim=12, where_dim=4, patch=5, attention_steps=3,
        width=16, batch=4, schedule="fall", pairs="samples"),
    "da-gan-un": dict(image_size=16, latent_dim=3, width=2, critic_width=2, critic_dense=4, critic_inner=1,
                      batch=4, critic_steps=2, pairs="samples", lr=1e-3)}
TINY["da-gan-rn"] = TINY["da-gan-un"]

def tiny(model, **more): return dict(TINY[model], model=model, **more)

def bank(classes=6, size=16):
    images = (torch.rand(classes*20, size, size, generator=torch_rng(0))*255).byte()
    return Bank(images, torch.arange(classes).repeat_interleave(20), source="noise")

def test_published_sizes():
    with torch.device("meta"):
        size = {m: sum(p.numel() for p in make_generator(dict(model=m)).parameters()) for m in GENERATORS}
        assert sum(p.numel() for p in PairCritic().parameters()) == 7_074_087
    assert size == {"vae-ns": 7_479_623, "vae-stn": 4_924_647, "da-gan-un": 6_813_857, "da-gan-rn": 6_149_153}

@pytest.mark.parametrize("model", GENERATORS)
def test_trained_sampled_kept_and_read(model, tmp_path):
    net, shown = make_generator(tiny(model, steps=2)), torch.rand(3, 1, 16, 16, generator=torch_rng(1))
    before = [v.clone() for v in net.parameters()]
    state = train_one_shot_generator(net, bank(), tiny(model, steps=2))
    assert state.step == 2 and not all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
    assert not net.training
    net.train()  # sampling leaves the mode as it was
    a, b, other = (net.sample(shown, 4, torch_rng(seed)) for seed in (0, 0, 1))
    assert a.shape == (3, 4, 1, 16, 16) and 0 <= a.min() and a.max() <= 1 and net.training
    assert torch.equal(a, b) and not torch.equal(a, other)
    generators.save_generator(net, tmp_path/"m.safetensors", dict(note="a test"))
    kept, card = generators.read_generator(tmp_path/"m.safetensors", model)
    assert card["model"] == model and card["note"] == "a test" and not kept.training
    torch.testing.assert_close(kept.sample(shown, 4, torch_rng(0)), a, atol=.05, rtol=0)  # half precision
    wrong = "vae-ns" if model != "vae-ns" else "da-gan-un"
    with pytest.raises(
        InputError, match=f"holds {GENERATORS[model].title}, not {GENERATORS[wrong].title}: name"):
        generators.read_generator(tmp_path / "m.safetensors", wrong)

@pytest.mark.parametrize("model", GENERATORS)
@pytest.mark.parametrize("prototypes, words", [
    (torch.zeros(1, 1, 28, 28), "draws images of 16 px, but the prototypes are (28, 28): resize them"),
    (torch.zeros(1, 16, 16), "(1, 16, 16) was given"),
    (torch.full((1, 1, 16, 16), 255.), "from 255 to 255: divide bytes by 255"),
    (torch.full((1, 1, 16, 16), -.1), "from -0.1 to -0.1"),
    (torch.full((1, 1, 16, 16), float("nan")), "from nan to nan"),
    (torch.rand(1, 1, 16, 16) > .5, "but the prototypes are torch.bool"),
    (torch.rand(1, 1, 16, 16).double(), "take prototypes.to(torch.float32)"),
    (torch.rand(0, 1, 16, 16), "no prototype to draw from"),
    (torch.rand(1, 1, 16, 16).numpy(), "but ndarray was given")])
def test_prototypes_of_wrong_size_or_range(model, prototypes, words):
    net = make_generator(tiny(model, steps=1))
    with pytest.raises(InputError) as e: net.sample(prototypes)
    assert words in str(e.value) and "\n" not in str(e.value)
    for n in (0, -1, 2.5):
        with pytest.raises(InputError, match=f"n={n} must be a whole number, 1 or more"):
            net.sample(torch.rand(1, 1, 16, 16), n)

@pytest.mark.parametrize("setting, words", [
    (dict(model="vae-nn"), "Unknown model 'vae-nn': did you mean vae-ns"),
    (dict(model="vae-stn", context=5), "Unknown setting of VAE-STN 'context'"),
    (dict(model="da-gan-rn", lr=float("nan")), "lr=nan was given: take lr=0.0001"),
    (dict(samples=1), "samples=1 was given: take samples=20"),
    (dict(samples=2.5), "samples=2.5 was given: take samples=20"),
    (dict(samples="many"), "samples=many was given: take samples=20"),
    (dict(samples=None), "samples=None was given: take samples=20"),
    (dict(steps=5, epochs=5), "either steps or epochs"),
    (dict(precision="half"), "Unknown precision 'half'"), (dict(schedule="rise"), "Unknown schedule 'rise'"),
    (dict(stem="patch"), "Unknown stem 'patch': did you mean patches"),
    (dict(annealing="yes"), "annealing must be True or False, but annealing='yes' was given: take annealing=True"),
    (dict(widths=[0]), "widths=(0,) was given: take widths=None"), (dict(widths="a"), "widths=('a',) was given"),
    (dict(widths=[]), "widths=() was given"), (dict(widths=[2.5]), "widths=(2.5,) was given")])
def test_settings_that_are_refused(setting, words):
    with pytest.raises(InputError) as e: generator_settings(setting)
    assert words in str(e.value)

WHOLE, ABOVE, SHARE = "a whole number of 1 or more", "a number above 0", "a share from 0 on, below 1"

@pytest.mark.parametrize("model, names, wrong, must", [
    ("vae-ns", "steps epochs image_size hidden context_dim latent_dim context", (0, -1, 2.5, "a", True), WHOLE),
    ("vae-stn", "state_dim where_dim patch attention_steps width batch latent_dim", (0, 2.5, float("inf")), WHOLE),
    ("da-gan-un", "width critic_width critic_dense critic_steps batch latent_dim", (0, 2.5, None), WHOLE),
    ("vae-ns", "sets", (0, 1, 2.5, "a"), "a whole number of 2 or more, for its batch norms"),
    ("da-gan-rn", "seed critic_inner", (-1, .5, "a"), "a whole number of 0 or more"),
    ("vae-ns", "beta context_weight lr weight_decay", (-1, float("nan"), "a"), "a number of 0 or more"),
    ("da-gan-un", "penalty", (-1, None), "a number of 0 or more"),
    ("vae-ns", "clamp", (0, -1, "a"), ABOVE), ("vae-stn", "clip", (0, -1, "a"), ABOVE),
    ("da-gan-rn", "dropout beta1", (-.1, 1, 2, "a"), SHARE)])
def test_numbers_out_of_their_range_are_refused(model, names, wrong, must):
    for name in names.split():
        for value in wrong:
            with pytest.raises(InputError) as e: generator_settings({"model": model, name: value})
            assert f"{name} must be {must}, but {name}={value!r} was given: take {name}=" in str(e.value)

@pytest.mark.parametrize("name", ["exp_beta", "exp_context", "exp_attention", "exp_latent", "exp_models"])
def test_all_profiles_and_committed_rows_are_settings(name):
    about, known = find_experiment(name), {f for k in GENERATORS.values() for f in k.__dataclass_fields__}
    for profile in about.profiles:
        for s in about.grid(profile, 0): generator_settings(sweep_setting(s))
    for row in committed_rows(name).to_dict("records"):
        assert generators.generator_flops({k: v for k, v in row.items() if k in known | {"model", "preset"}}) > 0

def test_a_spread_of_one_drawing():
    with pytest.raises(InputError, match="needs 2 or more samples of each class"):
        metrics.diversity(torch.rand(3, 1, 8))

def test_committed_rows_are_settings_still():
    rows = results.committed_rows("exp_beta")
    rows = rows[rows.profile == "laptop"].to_dict("records")
    assert rows and len({generators.generator_flops(r) for r in rows}) == 1  # beta costs nothing
    assert generator_settings({}) == generators.VAENSSettings()

def test_a_training_that_breaks_down_keeps_its_last_good_checkpoint(tmp_path):
    class Breaks(VAESTN):
        seen = 0
        def loss(self, *args):
            self.seen += 1
            return {k: v*(float("nan") if self.seen > 5 else 1.) for k, v in super().loss(*args).items()}
    torch.manual_seed(0)
    model = Breaks(16, 3, 12, 4, 5, 3, width=16)
    with pytest.raises(InputError) as e:
        train_pairs(
            model, bank(), steps=20, pairs="samples", batch=4, lr=2e-3, schedule="constant",
            checkpoint=tmp_path / "run.pt", every=2)
    assert "broke down by step 6 (" in str(e.value) and "at learning rate 0.002: take a smaller one" in str(e.value)
    assert f"the checkpoint of step 4 is kept in {str(tmp_path / 'run.pt')!r}." in str(
        e.value) and "\n" not in str(e.value)
    assert torch.load(tmp_path/"run.pt", weights_only=True)["step"] == 4

def test_a_checkpoint_of_another_model_or_setting(tmp_path):
    file = tmp_path/"run.pt"
    train_one_shot_generator(
        make_generator(tiny("da-gan-un", steps=1)), bank(), tiny("da-gan-un", steps=1), checkpoint=file)
    for other in (tiny("da-gan-rn", steps=1), tiny("vae-stn", steps=1), tiny("da-gan-un", steps=1) | dict(lr=2e-3)):
        with pytest.raises(InputError, match="belongs to another training"):
            train_one_shot_generator(make_generator(other), bank(), other, checkpoint=file)

KILLED = """
import sys
sys.path.insert(0, {tests!r})
import test_generators
test_generators.short_training({folder!r})
"""

def short_training(folder):
    "An adversarial training with all that must be resumed: two nets, two optimizers, dropout, batch norm."
    with threads(1), torch.random.fork_rng():
        torch.manual_seed(0)
        model, critic, fit = DAGAN(16, 3, width=2), PairCritic(16, 2, 4, 1), bank()
        how = AdversarialTraining(critic_steps=2)
        _, state = train_adversarial(
            model, fit, steps=30, lr=1e-3, batch=4, seed=5, critic=critic, how=how,
            prototypes=fit.by_class()[:, 0], checkpoint=folder and f"{folder}/run.pt", every=3,
            log=10)
        kept = dict(model=model.state_dict(), critic=critic.state_dict(), history=state.history)
        if folder: torch.save(kept, f"{folder}/done.pt")
        return kept

def test_a_killed_adversarial_training_resumes_bit_for_bit(tmp_path):
    code = KILLED.format(tests=os.path.dirname(__file__), folder=str(tmp_path))
    start = lambda: subprocess.Popen(
        [sys.executable, "-c", code], env=dict(os.environ, FEWSHOT_QUIET="1"), stderr=subprocess.PIPE)
    process = start()
    try:
        while process.poll() is None and not (tmp_path/"run.pt").exists(): time.sleep(.005)
        assert process.poll() is None, process.stderr.read().decode()
    finally: process.send_signal(signal.SIGKILL); process.wait(); process.stderr.close()
    assert 0 < torch.load(tmp_path/"run.pt", weights_only=True)["step"] < 30 and not (tmp_path/"done.pt").exists()
    process = start()
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error.decode()
    whole, done = short_training(None), torch.load(tmp_path/"done.pt", weights_only=True)
    assert done["history"] == whole["history"]
    for net in ("model", "critic"):
        for k, v in whole[net].items(): assert torch.equal(v, done[net][k]), k

@pytest.mark.parametrize("model", generators.GENERATORS)
def test_the_models_that_the_package_ships(model):
    net, card = generators.shipped_generator(model)
    shown = torch.zeros(2, 1, 28, 28)
    shown[0, 0, 4:24, 13:15] = shown[1, 0, 13:15, 4:24] = 1.  # an upright and a lying stroke
    drawn = net.sample(shown, 8, torch_rng(0))
    assert card["source"] == "omniglot" and drawn.shape == (2, 8, 1, 28, 28) and drawn.isfinite().all()
    own, other = ((drawn.mean(1)[i, 0]*(shown[i, 0] - shown[1 - i, 0])).sum() for i in (0, 1))
    assert own > 0 and other > 0  # each looks more like what it was shown than like the other

def test_the_card_of_vae_ns_claims_no_more_tuning_than_is_kept():
    "It said that all settings were chosen on held-out characters; what is kept is a pilot of one of them."
    card = (own_folder()/"vae_ns.md").read_text(encoding="utf-8")
    pilot = pd.read_csv(Path(__file__).parents[1]/"nbs/results/exp_beta/tuning.csv")
    runs, varied = pilot.groupby("context_weight").step.max(), pilot.nunique()
    assert len(runs) == 2 and set(runs) == {4000} and (varied[["beta", "seed", "context", "sets", "lr"]] == 1).all()
    tuned = next(line for line in card.splitlines() if line.startswith("| tuned |"))
    assert "two runs of 4,000 steps" in tuned and "rows were not kept" in tuned

@pytest.mark.parametrize("model", GENERATORS)
def test_a_card_says_what_the_weights_and_their_row_say(model):
    net, header = generators.shipped_generator(model)
    card = (own_folder()/f"{model.replace('-', '_')}.md").read_text(encoding="utf-8")
    rows = pd.concat([committed_rows("exp_models"), committed_rows("exp_beta")])
    row = rows[rows.sheet == header["sheet"]].iloc[0]
    for name in ("diversity", "recognizability"): assert float(header[name]) == pytest.approx(row[name], abs=1e-6)
    assert f"diversity {row.diversity:.3f} (people" in card and f"recognizability {row.recognizability:.1f} % (" in card
    assert f"| {sum(p.numel() for p in net.parameters()):,} (the paper's" in card
    assert f"{row.steps:,.0f}, {row.images:,.0f} images in all" in card
    assert f'shipped_generator("{model}")' in card and all(f"\n| {k} |" in card for k in ("curve", "cost", "goal"))

def test_a_learning_curve_that_was_cut_short_is_refused_in_one_sentence(tmp_path):
    "It was a JSONDecodeError, hours into a grid."
    from fewshot_nb.studies.generation import LearningCurve
    path = tmp_path/"vae.curve.json"
    for content in ('{"100": {"di', "", "[1, 2]"):
        path.write_text(content)
        with pytest.raises(InputError, match="vae.curve.json' cannot be read: remove it and the checkpoint beside it"):
            LearningCurve(path)
    path.write_text('{"100": {"diversity": 0.5}}')
    assert LearningCurve(path).points == {"100": {"diversity": .5}}
