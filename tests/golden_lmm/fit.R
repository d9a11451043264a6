# Reference results for the cases of make.py: lme4 and lmerTest (Satterthwaite), pbkrtest (Kenward-Roger), tight optimiser.
suppressMessages({library(lme4); library(lmerTest); library(pbkrtest); library(jsonlite)})
num <- function(x) if (length(x) == 1) list(x) else x
tab <- function(x) { x <- as.data.frame(x); c(list(rows = num(rownames(x))), lapply(as.list(x), num)) }
control <- lmerControl(optimizer = "nloptwrap", boundary.tol = 1e-4,
                       optCtrl = list(xtol_abs = 1e-14, ftol_abs = 1e-14, xtol_rel = 0, ftol_rel = 0, maxeval = 1e5))
cases <- fromJSON("cases.json", simplifyVector = FALSE)
for (k in cases) {
  d <- read.csv(k$csv, stringsAsFactors = FALSE)
  for (v in names(d)) if (is.character(d[[v]])) {
    l <- unlist(k$levels[[v]]); d[[v]] <- factor(d[[v]], levels = if (is.null(l)) sort(unique(d[[v]]), method = "radix") else l)
  }
  m <- suppressMessages(lmer(as.formula(k$formula), data = d, control = control))
  mML <- suppressMessages(refitML(m))
  vc <- as.data.frame(VarCorr(m))
  factors <- unlist(k$factors)
  each <- function(f) { x <- lapply(factors, function(v) tab(f(v))); names(x) <- factors; x }
  an <- tryCatch(tab(anova(m)), error = function(e) NULL)
  kr <- tryCatch(tab(anova(m, ddf = "Kenward-Roger")), error = function(e) NULL)
  tight <- list(singular = isSingular(m), theta = as.list(getME(m, "theta")), fixed = tab(coef(summary(m))), vcov_beta = unname(as.matrix(vcov(m))),
    varcomp = list(group = num(vc$grp), var = num(vc$vcov)), sigma = sigma(m), nobs = nobs(m), npar = attr(logLik(m), "df"), reml_criterion = REMLcrit(m),
    logLik_REML = c(logLik(m)), AIC = AIC(m), BIC = BIC(m), logLik_ML_at_REML_estimate = c(logLik(m, REML = FALSE)), logLik_ML_refit = c(logLik(mML)),
    vcov_varpar = unname(m@vcov_varpar), ranova = tab(suppressMessages(ranova(m))), anova_III = an,
    lsmeans = each(function(v) lsmeansLT(m, which = v)), difflsmeans = each(function(v) difflsmeans(m, which = v)),
    kr = list(anova_III = kr, vcov = tryCatch(unname(as.matrix(vcovAdj(m))), error = function(e) NULL),
              fixed = tryCatch(tab(coef(summary(m, ddf = "Kenward-Roger"))), error = function(e) NULL)))
  ml <- suppressMessages(lmer(as.formula(k$formula), data = d, REML = FALSE, control = control))
  tight$ml <- list(logLik = c(logLik(ml)), AIC = AIC(ml), theta = as.list(getME(ml, "theta")), sigma = sigma(ml), fixed = tab(coef(summary(ml))),
                   anova_III = tryCatch(tab(anova(ml)), error = function(e) NULL), ranova = tab(suppressMessages(ranova(ml))))
  out <- c(k[c("name", "csv", "python_formula", "factors", "levels")], list(tight = tight))
  write(toJSON(out, digits = NA, auto_unbox = TRUE, na = "null", null = "null"), paste0(k$name, ".json"))
  cat(k$name, nobs(m), isSingular(m), unlist(tight$theta), "\n")
}
