"Tables for fit.R, simulated with fixed seeds: python make.py && Rscript fit.R (lme4, lmerTest, pbkrtest, jsonlite)."
import json

import numpy as np

from fewshot_nb.core import rng
from fewshot_nb.stats.mixed import crossed_design

def table(name, d, fixed=0.0, noise=0.02, keep=None, **sd):
    "Fill `d` with an accuracy that has random intercepts of the standard deviations `sd`, and keep some of the rows."
    random = rng(4, "golden", name)
    y = 0.6 + fixed + noise*random.standard_normal(len(d))
    for column, s in sd.items():
        codes = d.groupby(column, sort=False).ngroup().to_numpy()
        y = y + s*random.standard_normal(codes.max() + 1)[codes]
    d = d.assign(accuracy=np.round(y, 7))
    if keep is not None:
        d = d[random.random(len(d)) < keep(d)].sample(frac=1, random_state=1)
    d.to_csv(f"{name}.csv", index=False)

def own(d, *columns):
    "Seeds with names of their own in each of `columns`."
    return d.assign(seed=d[list(columns)].agg("".join, axis=1) + d.seed)

CASES = []
def case(name, formula, factors=(), csv=None, r=None, levels=None):
    CASES.append(
        dict(
            name=name, csv=f"{csv or name}.csv", python_formula=formula, formula=r or formula,
            factors=list(factors), levels=levels or {})
    )

runs = crossed_design(launch=6, seed=5, rep=4)
table("plain", crossed_design(seed=12, rep=3), seed=0.02, keep=lambda d: 0.8)
case("no_factor", "accuracy ~ (1|seed)", csv="plain")
case("no_factor_two", "accuracy ~ 1 + (1|rep) + (1|seed)", csv="plain")
# the pattern of missing runs of the paper: whole launches lose more than half of theirs
share = dict(zip(("l1", "l2", "l3", "l4", "l5", "l6"), (1.0, 0.95, 0.36, 0.36, 0.4, 1.0)))
table(
    "three", own(crossed_design(launch=6, config=4, seed=4, rep=3), "launch"), config=0.03,
    seed=0.015, rep=0.01, keep=lambda d: d.launch.map(share))
case("three", "accuracy ~ launch + (1|seed) + (1|config) + (1|rep)", ["launch"])
case(
    "level_order", "accuracy ~ launch + (1|config) + (1|seed)", ["launch"], csv="three",
    levels={"launch": ["l4", "l1", "l6", "l2", "l5", "l3"]})
two = crossed_design(model=3, optimizer=2, seed=5, rep=3)
lr = np.round(rng(4, "lr").uniform(-3, -1, len(two)), 3)
table(
    "two", own(two.assign(log_lr=lr, layers=rng(4, "layers").integers(2, 5, len(two))), "model"),
    fixed=0.02 * (two.model == "m2") - 0.01 * lr, seed=0.02, rep=0.004, keep=lambda d: 0.75)
case("two", "accuracy ~ model + optimizer + (1|seed) + (1|rep)", ["model", "optimizer"])
case("interaction", "accuracy ~ model*optimizer + log_lr + (1|seed)", ["model", "optimizer"], csv="two")
case("slopes", "accuracy ~ model*log_lr + (1|seed) + (1|rep)", ["model"], csv="two")
case("covariate", "accuracy ~ log_lr + (1|seed) + (1|rep)", csv="two")
case("no_intercept", "accuracy ~ 0 + model + (1|seed)", ["model"], csv="two")
case("integer_factor", "accuracy ~ C(layers) + (1|seed)", csv="two", r="accuracy ~ factor(layers) + (1|seed)")
case("nested", "accuracy ~ optimizer + (1|model/seed)", ["optimizer"], csv="two")
table("loud", own(runs, "launch"), noise=0.0005, seed=0.05, rep=0.02, keep=lambda d: 0.7)
case("loud", "accuracy ~ launch + (1|seed) + (1|rep)", ["launch"])
table(
    "silent",
    runs.assign(seed=rng(4, "silent").permutation(runs.seed), rep=rng(4, "rep").permutation(runs.rep)),
    keep=lambda d: 0.8)
case("silent", "accuracy ~ launch + (1|seed) + (1|rep)", ["launch"])
table("faint", own(crossed_design(launch=4, seed=3, rep=8), "launch"), seed=0.004, rep=0.006, keep=lambda d: 0.6)
case("faint", "accuracy ~ launch + (1|rep) + (1|seed)", ["launch"])
table("tiny", crossed_design(launch=2, seed=3, rep=2), seed=0.03, keep=lambda d: 0.85)
case("tiny", "accuracy ~ launch + (1|seed)", ["launch"])
json.dump(CASES, open("cases.json", "w"), indent=1)
