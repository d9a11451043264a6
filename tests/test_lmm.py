"""Mixed models against R: every number that lme4 1.1-31 and lmerTest 3.1-3 gave for every set.

The sets are found when the tests run: those in `shared/golden/lmm` (accuracy ~ experiment + (1|seed) + (1|repeat))
and those beside this file in `golden_lmm` (other formulas, made with `golden_lmm/fit.R`).
`FEWSHOT_LMM_REPORT=1 pytest tests/test_lmm.py -s` prints the largest deviation of each quantity."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fewshot_nb.core import InputError
from fewshot_nb.stats.contrasts import tost
from fewshot_nb.stats.mixed import _at, lmm

FORMULA = "accuracy ~ experiment + (1|seed) + (1|repeat)"
OWN = Path(__file__).parent/"golden_lmm"
SHARED = Path(os.environ.get("FEWSHOT_SHARED") or Path(__file__).resolve().parents[2]/"shared")/"golden"/"lmm"
SETS = [*sorted(SHARED.glob("*.json")), *sorted(p for p in OWN.glob("*.json") if p.stem != "cases")]
WORST = {}

def numbers(values):
    return np.array([np.nan if v is None else v for v in np.ravel(np.asarray(values, dtype=object))], float)

class Compare:
    "Deviations of one set, each quantity within the tolerance that the accuracy of R's own optimiser allows."
    def __init__(self, name, sigma2): self.name, self.sigma2, self.failed = name, sigma2, []

    def check(self, what, ours, theirs, absolute=0.0, relative=0.0):
        ours, theirs = numbers(ours), numbers(theirs)
        assert ours.shape == theirs.shape, f"{self.name}: {what} has {ours.shape} numbers, R has {theirs.shape}"
        assert (np.isnan(ours) == np.isnan(theirs)).all(), f"{self.name}: {what} is missing in other places than in R"
        gap = np.nan_to_num(np.abs(ours - theirs))
        size = np.nan_to_num(np.abs(theirs))
        used = float(np.max(gap/(absolute + relative*size), initial=0))
        shown = float(np.max(gap/np.where(size > 0, size, 1) if relative else gap, initial=0))
        kind = (f"relative, {relative:g}" if relative else f"absolute, {absolute:.3g}"
                if what != "variances" else "of sigma^2, 2e-06")
        if what == "variances": shown /= self.sigma2
        # a number near zero has no relative deviation
        if absolute and relative: shown, kind = used*relative, f"mixed, {relative:g}"
        WORST.setdefault((what, kind), {})[self.name] = (shown, used)
        if used > 1: self.failed.append(f"{what}: off by {shown:.2e} ({kind})")

    def p(self, what, ours, theirs, boundary=False):
        ours, theirs = numbers(ours), numbers(theirs)
        if boundary: return self.check(f"{what}, at the boundary", ours, theirs, absolute=1e-5)
        far = (theirs < 1e-10) & (theirs > 1e-300)
        self.check(what, ours[~(theirs < 1e-10)], theirs[~(theirs < 1e-10)], relative=1e-5)
        self.check(f"log {what} below 1e-10", np.log(ours[far]), np.log(theirs[far]), relative=1e-5)
        assert (ours[theirs <= 1e-300] < 1e-290).all(), f"{self.name}: {what}"

    def table(self, what, ours, theirs):
        self.check("estimates", ours.estimate, theirs["Estimate"], absolute=1e-12, relative=1e-6)
        self.check("standard errors", ours.std_error, theirs["Std. Error"], relative=2e-6)
        self.check("t", ours.t, theirs["t value"], absolute=1e-10, relative=2e-6)
        self.check("df", ours.df, theirs["df"], relative=1e-5)
        self.p("p of t", ours.p, theirs["Pr(>|t|)"])
        if "lower" in theirs:
            self.check("confidence limits", [ours.lower, ours.upper], [theirs["lower"], theirs["upper"]], absolute=1e-7)

    def f_table(self, ours, theirs):
        for a, b in dict(sum_sq="Sum Sq", mean_sq="Mean Sq", f="F value").items():
            self.check(b, ours[a], theirs[b], relative=2e-6)
        self.check("numerator df", ours["num_df"], theirs["NumDF"], relative=1e-12)
        self.check("denominator df", ours["den_df"], theirs["DenDF"], relative=1e-5)
        self.p("p of F", ours["p"], theirs["Pr(>F)"])

def r_name(group): return group.replace("repeat", "rep")

def read(path):
    r = json.loads(path.read_text())
    if path.parent == OWN:
        frame = pd.read_csv(OWN/r["csv"])
        for column, levels in r["levels"].items(): frame[column] = pd.Categorical(frame[column], levels)
        return r, frame, r["python_formula"]
    frame = pd.read_csv(path.with_suffix(".csv"))
    levels = r["experiment_levels"]
    if sorted(levels) != levels: frame["experiment"] = pd.Categorical(frame.experiment, levels)
    return r, frame, FORMULA

@pytest.mark.parametrize("path", SETS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_agrees_with_r(path):
    r, frame, formula = read(path)
    tight = r["tight"]
    fit = lmm(formula, frame)
    c = Compare(path.stem, tight["sigma"]**2)
    own = path.parent == OWN

    assert [r_name(g) for g in fit.varcomp.index] == tight["varcomp"]["group"]
    assert fit.singular == tight["singular"] and fit.nobs == tight["nobs"] and fit.npar == tight["npar"]
    c.check(
        "logLik, AIC, BIC", [fit.loglik, fit.aic, fit.bic, fit.criterion],
        [tight[k] for k in ("logLik_REML", "AIC", "BIC", "reml_criterion")], absolute=1e-8)
    # not a maximum: R's theta enters to first order
    c.check(
        "ML logLik at the REML estimates", [-_at(fit._sums, fit._point.phi, False).criterion / 2],
        [tight["logLik_ML_at_REML_estimate"]], absolute=1e-4)
    c.check("ML logLik of an ML fit", [fit.refit(reml=False).loglik], [tight["logLik_ML_refit"]], absolute=1e-8)
    c.check("variances", fit.varcomp, tight["varcomp"]["var"], absolute=2e-6*tight["sigma"]**2, relative=1e-6*own)
    c.check("sigma", [fit.sigma], [tight["sigma"]], relative=2e-6)
    theta = [tight["theta"][f"{r_name(g)}.(Intercept)"] for g in fit.theta.index]
    c.check("theta", fit.theta, theta, absolute=2e-6, relative=1e-6*own)
    se = np.array(numbers(tight["fixed"]["Std. Error"]))
    c.check(
        "covariance of beta / (SE SE)", np.asarray(fit.vcov) / np.outer(se, se),
        np.array(tight["vcov_beta"]) / np.outer(se, se), absolute=4e-6)

    unit = np.sqrt(np.abs(np.diag(numbers(tight["vcov_varpar"]).reshape(len(theta) + 1, -1))))
    scaled = [np.asarray(m)/np.outer(unit, unit) for m in (fit._varpar_cov(), tight["vcov_varpar"])]
    # R differentiates numerically, across theta = 0 too
    c.check("covariance of (theta, sigma)", *scaled, absolute=2e-4)

    names = [n.replace("factor(", "C(") for n in tight["fixed"]["rows"]]
    assert list(fit.coef.index) == names
    c.table("coef", fit.coef, tight["fixed"])
    ranova, theirs = fit.ranova(), tight["ranova"]
    assert [r_name(t) for t in ranova.index] == theirs["rows"]
    c.check("ranova npar, Df", [ranova.npar, ranova.Df], [theirs["npar"], theirs["Df"]], absolute=1e-12)
    c.check(
        "ranova logLik, AIC, LRT", [ranova.logLik, ranova.AIC, ranova.LRT],
        [theirs["logLik"], theirs["AIC"], theirs["LRT"]], absolute=1e-8)
    edge = np.array([lrt is not None and lrt < 1e-6 for lrt in theirs["LRT"]])
    inner = ~edge & (np.arange(len(edge)) > 0)
    c.p("p of ranova", ranova.p[edge], np.array(theirs["Pr(>Chisq)"], object)[edge], boundary=True)
    c.p("p of ranova", ranova.p[inner], np.array(theirs["Pr(>Chisq)"], object)[inner])
    if "anova_III" in tight and tight["anova_III"].get("rows"):
        assert [t.replace("C(", "factor(") for t in fit.anova().index] == tight["anova_III"]["rows"]
        c.f_table(fit.anova(), tight["anova_III"])
    for factor in (r["factors"] if own else ["experiment"]):
        means, diffs = (tight[k][factor] if own else tight[k] for k in ("lsmeans", "difflsmeans"))
        assert [str(level) for level in fit.lsmeans(factor).index] == means["levels"]
        c.table("lsmeans", fit.lsmeans(factor), means)
        assert list(fit.diffs(factor).index) == diffs["levels"]
        c.table("diffs", fit.diffs(factor), diffs)
    if rows := tight.get("run_contrasts", {}).get("rows"):
        pairs = [row.split(" - ") for row in rows]
        c.table("contrasts", fit.diffs("experiment", pairs), tight["run_contrasts"])
        c.f_table(fit.joint("experiment", pairs), tight["run_contrasts_joint"])
    assert not c.failed, f"{path.stem}: " + "; ".join(c.failed)

@pytest.mark.parametrize("path", [p for p in SETS if p.parent == OWN], ids=lambda p: p.stem)
def test_maximum_likelihood_agrees_with_r(path):
    r, frame, formula = read(path)
    fit, ml = lmm(formula, frame, reml=False), r["tight"]["ml"]
    c = Compare(path.stem, 1)
    c.check("ML logLik, AIC", [fit.loglik, fit.aic], [ml["logLik"], ml["AIC"]], absolute=1e-8)
    c.check(
        "ML theta", fit.theta, [ml["theta"][f"{r_name(g)}.(Intercept)"] for g in fit.theta.index],
        absolute=2e-6, relative=1e-6)
    c.check("ML sigma", [fit.sigma], [ml["sigma"]], relative=2e-6)
    c.table("coef", fit.coef, ml["fixed"])
    c.check(
        "ML ranova", fit.ranova().drop(columns="p"),
        np.transpose([numbers(ml["ranova"][k]) for k in ("npar", "logLik", "AIC", "LRT", "Df")]),
        absolute=1e-8)
    if (ml["anova_III"] or {}).get("rows"): c.f_table(fit.anova(), ml["anova_III"])
    assert not c.failed, f"{path.stem}: " + "; ".join(c.failed)

@pytest.mark.parametrize("path", [p for p in SETS if p.parent == OWN], ids=lambda p: p.stem)
def test_kenward_roger_agrees_with_pbkrtest(path):
    r, frame, formula = read(path)
    fit, kr = lmm(formula, frame), r["tight"]["kr"]
    c = Compare(path.stem, 1)
    adjusted = np.array(kr["vcov"], float)
    se = np.sqrt(np.diag(adjusted))
    c.check(
        "KR covariance / (SE SE)", fit.sigma**2 * fit._kenward_roger()[0] / np.outer(se, se),
        adjusted / np.outer(se, se), absolute=2e-6)
    coef = fit._table(np.eye(len(se)), fit.coef.index, ddf="kenward-roger")
    c.check("KR df", coef.df, kr["fixed"]["df"], relative=1e-5)
    c.check("KR t", coef.t, kr["fixed"]["t value"], relative=2e-6)
    if (kr["anova_III"] or {}).get("rows"):
        ours = fit.anova(ddf="kenward-roger")
        c.check("KR F", ours.f, kr["anova_III"]["F value"], relative=4e-6)
        c.check("KR Sum Sq", ours.sum_sq, kr["anova_III"]["Sum Sq"], relative=4e-6)
        c.check("KR denominator df", ours.den_df, kr["anova_III"]["DenDF"], relative=1e-5)
        c.p("p of KR F", ours.p, kr["anova_III"]["Pr(>F)"])
    with pytest.raises(InputError, match="need a REML fit"): fit.refit(reml=False)._kenward_roger()
    assert not c.failed, f"{path.stem}: " + "; ".join(c.failed)

def test_a_thousand_by_a_thousand_crossed_levels():
    "Truth, known here, lies within four standard errors: of 1,000 levels a variance has 4.5 % of itself."
    random, n = np.random.default_rng(0), 20_000
    frame = pd.DataFrame(dict(seed=random.integers(1000, size=n), test=random.integers(1000, size=n),
                              x=random.standard_normal(n)))
    effects = random.standard_normal(1000)[frame.seed] + .5*random.standard_normal(1000)[frame.test]
    frame["y"] = .3*frame.x + effects + random.standard_normal(n)
    fit = lmm("y ~ x + (1|seed) + (1|test)", frame.astype(dict(seed=str, test=str)))
    assert abs(fit.coef.estimate["x"] - .3) < 4*fit.coef.std_error["x"]
    assert np.allclose(fit.varcomp[["seed", "test", "Residual"]], [1, .25, 1], rtol=.2)

def test_there_are_sets_to_compare():
    assert len(list(OWN.glob("*.json"))) >= 8
    if SHARED.parent.parent.is_dir(): assert len(list(SHARED.glob("*.json"))) >= 7

@pytest.fixture(scope="module", autouse=True)
def report():
    yield
    if os.environ.get("FEWSHOT_LMM_REPORT"):
        print()
        for (what, kind), sets in WORST.items():
            name = max(sets, key=lambda s: sets[s][1])
            print(f"{what:32} {sets[name][0]:9.1e}  {kind:24} {name} ({sets[name][1]:.2g} of it)")
        table = pd.DataFrame({f"{what} ({kind})": {name: shown for name, (shown, _) in sets.items()}
                              for (what, kind), sets in WORST.items()}).T
        print(
            "\nworst difference of each quantity in each set\n"
            + table.map(lambda x: "" if np.isnan(x) else f"{x:.0e}").to_string()
        )


def test_combinations_that_look_alike_when_joined_stay_two_levels():
    r = np.random.default_rng(0)
    names = [("a:b", "c"), ("a", "b:c"), ("a", "d"), ("e", "d")]
    rows = [(g, h, launch, i + r.normal()) for i, (g, h) in enumerate(names) for launch in "xy" for _ in range(4)]
    frame = pd.DataFrame(rows, columns=["g", "h", "launch", "y"])
    alike = frame.assign(g=frame.g.replace({"a:b": "p"}), h=frame.h.replace({"b:c": "q"}))
    one, other = (lmm("y ~ launch + (1|g:h)", f) for f in (frame, alike))
    np.testing.assert_allclose(one.loglik, other.loglik, rtol=1e-9)


@pytest.mark.parametrize("error", [0., -.1])
def test_equivalence_needs_a_standard_error(error):
    with pytest.raises(InputError, match=f"A standard error of {error:g} is none: give numbers above 0"):
        tost([.1, .1], [.2, error], [9, 9], 1.)


def test_more_levels_than_memory_are_refused_in_one_sentence():
    "Below the most levels a fit ended in numpy's own 'Unable to allocate 730. MiB'."
    pytest.importorskip("resource")
    code = """if True:
        import resource
        import numpy as np, pandas as pd
        from fewshot_nb.core import InputError
        from fewshot_nb.stats.mixed import lmm
        resource.setrlimit(resource.RLIMIT_AS, (4*10**9,)*2)
        i = np.arange(20_000)
        frame = pd.DataFrame(dict(y=np.sin(i), launch=i//10_000, seed=i % 4900, test=i*7 % 4903))
        try: lmm("y ~ C(launch) + (1|seed) + (1|test)", frame)
        except InputError as e: print(e)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    levels = "9,803 levels of groupings ('test' 4,903, 'seed' 4,900)"
    assert done.stdout.startswith(f"{levels} need about 10 GB, more than the ")
    assert done.stdout.count(". ") == 0 and "GB of memory that are left: average over the finest one" in done.stdout
