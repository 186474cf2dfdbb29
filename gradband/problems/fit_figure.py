"""The figure of a fit: past experiments beside what each prior says about them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core import figures
from gradband.core.errors import InputError, unknown
from gradband.problems import shrinkage
from gradband.problems.past_experiments import Experiments
from gradband.problems.posteriors import posterior_of
from gradband.problems.priors import Prior

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gradband.problems.fitted import FittedProblem

KINDS = {
    "gaps": ("observed {what} of the best arm − that of the worst", "experiments"),
    "rates": ("observed {what} of an arm", "arms"),
}
INSTANCES = 10_000  # drawn from each prior
BINS = 40
OUTSIDE = 0.005  # share of the values beyond the right end


def draw(fit: "FittedProblem", ax: "Axes | None", what: str) -> "Axes":
    """A histogram of past experiments with as many arms as future tests, and a curve for each prior."""
    if what not in KINDS:
        raise unknown("picture", what, KINDS)
    assert fit.test.arms is not None
    sized = [_of_size(part, fit.test.arms, fit.seed) for part in (fit.experiments, fit.held_out)]
    parts = [part for part in sized if len(part)]
    if not parts:
        raise InputError(f"no past experiment has {fit.test.arms} arms to draw beside the priors")
    observed = np.concatenate([_values(_rates(part), what) for part in parts])
    axes: Any = figures.axes_for(ax, (7, 3.8))
    low = 0.0 if what == "gaps" else float(observed.min())
    high = max(float(np.quantile(observed, 1 - OUTSIDE)), low + 1e-9)
    style: dict[str, Any] = {"bins": BINS, "range": (low, high), "density": True}
    few = {"bins": int(np.clip(2 * np.sqrt(len(observed)), 5, BINS))}
    label = f"{len(observed)} past {KINDS[what][1]}"
    axes.hist(observed, **style | few, color="0.5", alpha=0.4, label=label)
    for i, entry in enumerate(fit.fits):
        expected = _values(simulated(entry.prior, parts[0], fit.seed), what)
        name = f"{entry.name} (chosen)" if entry is fit.chosen else entry.name
        width = 2.0 if entry is fit.chosen else 1.1
        axes.hist(expected, **style, histtype="step", color=f"C{i}", linewidth=width, label=name)
    axes.set(xlabel=KINDS[what][0].format(what=_unit(fit)), ylabel="density")
    if not fit.unit:
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def simulated(prior: Prior, experiments: Experiments, seed: int) -> np.ndarray:
    """Rates [N, K] that would be observed of the prior's instances, with pulls as in these experiments."""
    rng = np.random.default_rng(seed)
    like = experiments.only(rng.integers(len(experiments), size=INSTANCES))
    pulls = like.pulls.reshape(INSTANCES, -1).astype(np.int64)
    if not shrinkage.shrinks(prior):  # a beta distribution for each arm
        numbers: Any = prior
        return rng.binomial(pulls, rng.beta(numbers.a, numbers.b, pulls.shape)) / pulls
    posterior = posterior_of(prior)
    unseen = like.mapped(like.starts, np.zeros_like)  # whose posterior is the prior
    edges = posterior.edges(unseen.only(np.arange(1)))
    drawn = posterior.means(np.broadcast_to(edges, (INSTANCES, edges.shape[1])), unseen, rng)
    return posterior.sampled(drawn, like, pulls, rng)[0]


def _of_size(found: Experiments, arms: int, seed: int) -> Experiments:
    """K arms at random of each experiment that has as many."""
    large = found.only(np.flatnonzero(found.sizes >= arms))
    return large if found.labels else shrinkage.sized(large, arms, np.random.default_rng(seed))


def _rates(found: Experiments) -> np.ndarray:
    return (found.successes / found.pulls).reshape(len(found), -1)


def _values(rates: np.ndarray, what: str) -> np.ndarray:
    return rates.ravel() if what == "rates" else np.ptp(rates, axis=1)


def _unit(fit: "FittedProblem") -> str:
    return f"mean ({fit.unit})" if fit.unit else "rate"
