"""What all fitted priors share: maximum likelihood, standard errors, and the result."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sized
from typing import Any

import numpy as np
import scipy  # whose parts are imported when they are needed

from gradband.core.errors import InputError
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.problems import priors
from gradband.problems.past_experiments import Experiments

MOST_LOGARITHM = 16.0  # a + b up to nine million; likelihoods beyond that are rounding errors
LIKELIHOODS = "Log-likelihoods are means over held-out experiments."
FEW = 20  # experiments: with fewer, only simple priors are fitted
Functions = dict[str, Callable[[np.ndarray], np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Fit(Result):
    """A fitted prior, its numbers with standard errors, and log-likelihoods [H] of held-out experiments."""

    name: str
    prior: priors.Prior
    held_out: np.ndarray
    numbers: dict[str, Mean] = dataclasses.field(default_factory=dict)

    @property
    def score(self) -> Mean:
        """The mean log-likelihood of a held-out experiment; its error is infinite if there is only one."""
        return mean_of(self.held_out)

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {value.mean:.4g}" for name, value in self.numbers.items())
        return f"Fit({self.name}: {numbers}; log-likelihood {self.score})"

    def as_dict(self, best: "Fit | None" = None) -> dict[str, Any]:
        """Its score, how far it is below the best fit, paired by experiment, and its numbers."""
        below = mean_of((best or self).held_out - self.held_out)
        return {
            "name": self.name,
            "log_likelihood": self.score.mean,
            "below": below.mean,
            "below_se": below.se,
            "numbers": {name: vars(value) for name, value in self.numbers.items()},
        }

    def records(self) -> list[dict[str, Any]]:
        """One row per number of the prior."""
        return [
            {"prior": self.name, "what": name, "value": value.mean, "se": value.se}
            for name, value in self.numbers.items()
        ]

    def tables(self) -> list[TextTable]:
        rows = [[name, f"{value.mean:.4g}", f"{value.se:.2g}"] for name, value in self.numbers.items()]
        score = f"Log-likelihood of a held-out experiment: {self.score}."
        return [TextTable(f"{self.name} prior", ["", "value", "± se"], rows, score)]


@dataclasses.dataclass(frozen=True)
class FittedPriors(Result):
    """Priors that were fitted to the same experiments, the best on those held out first."""

    fits: tuple[Fit, ...]

    def __len__(self) -> int:
        return len(self.fits)

    def __iter__(self) -> Iterator[Fit]:
        return iter(self.fits)

    def __getitem__(self, which: int | str) -> Fit:
        """A fit by its place or its name."""
        if isinstance(which, int):
            return self.fits[which]
        for entry in self.fits:
            if entry.name == which:
                return entry
        raise KeyError(which)

    def __repr__(self) -> str:
        return f"FittedPriors({', '.join(f'{entry.name} {entry.score}' for entry in self.fits)})"

    def as_dict(self) -> dict[str, Any]:
        """All fits, ready for JSON."""
        return {"priors": [entry.as_dict(self.fits[0]) for entry in self.fits]}

    def records(self) -> list[dict[str, Any]]:
        """One row per prior; its numbers are columns, empty where a prior has no such number."""
        names = list(dict.fromkeys(name for entry in self.fits for name in entry.numbers))
        rows = []
        for entry in self.fits:
            row = {key: value for key, value in entry.as_dict(self.fits[0]).items() if key != "numbers"}
            found = {name: entry.numbers.get(name) for name in names}
            rows.append(row | {name: value and value.mean for name, value in found.items()})
        return rows

    def tables(self) -> list[TextTable]:
        rows = []
        for entry in self.fits:
            row = entry.as_dict(self.fits[0])
            numbers = ", ".join(f"{name} {value.mean:.4g}" for name, value in entry.numbers.items())
            below = f"{row['below']:.3f}" if row["below"] else ""
            se = f"{row['below_se']:.3f}" if row["below"] and math.isfinite(row["below_se"]) else ""
            rows.append([entry.name, numbers, f"{row['log_likelihood']:.3f}", below, se])
        columns = ["prior", "what it says", "log-likelihood", "below the best", "± se"]
        return [TextTable("Fitted priors", columns, rows, LIKELIHOODS, texts=2)]


def mean_of(values: np.ndarray) -> Mean:
    """A mean with its standard error, which is infinite for a single value."""
    return Mean.of(values) if values.size > 1 else Mean(float(values.mean()), math.inf)


gauss_hermite = functools.cache(np.polynomial.hermite.hermgauss)
"""nodes and weights of a quadrature, by their number"""


def log_sum(logs: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Logarithms of sums along axes that are not all −∞, in a fraction of the time of SciPy's function."""
    top = logs.max(axes, keepdims=True)
    return np.log(np.exp(logs - top).sum(axes)) + top.reshape(np.delete(logs.shape, axes))


def per_experiment(values: np.ndarray, found: Experiments) -> np.ndarray:
    """Sums over the arms of each experiment: [E, …] from [A, …]."""
    return np.add.reduceat(values, found.starts[:-1], axis=0)


def maximise(
    likelihood: Callable[[np.ndarray, Any], Any],
    start: np.ndarray,
    found: Sized,
    sloped: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of the likelihood and its covariance, the inverse of the curvature.

    A likelihood that is `sloped` also returns derivatives [E, P].
    """

    def loss(x: np.ndarray) -> Any:
        value = likelihood(np.clip(x, -MOST_LOGARITHM, MOST_LOGARITHM), found)
        return (-value[0].mean(), -value[1].mean(0)) if sloped else -float(value.mean())

    jac = True if sloped else "3-point"
    best = scipy.optimize.minimize(loss, start, method="BFGS", jac=jac, options={"gtol": 1e-6})
    if not math.isfinite(best.fun):
        raise InputError("no prior of this shape fits the experiments")
    x, step = np.clip(best.x, -MOST_LOGARITHM, MOST_LOGARITHM), 1e-3
    moves = step * np.eye(len(x))
    if sloped:
        curvature = np.array([loss(x + e)[1] - loss(x - e)[1] for e in moves]) / (2 * step)
        curvature = (curvature + curvature.T) / 2
    else:
        rises = [
            [loss(x + e + f) - loss(x + e - f) - loss(x - e + f) + loss(x - e - f) for f in moves]
            for e in moves
        ]
        curvature = np.array(rises) / (4 * step**2)
    return x, np.linalg.pinv(curvature) / len(found)


def delta_method(functions: Functions, x: np.ndarray, covariance: np.ndarray) -> dict[str, Mean]:
    """Functions of the parameters with their standard errors."""
    found = {}
    for name, function in functions.items():
        slope = scipy.optimize.approx_fprime(x, function)
        found[name] = Mean(float(function(x)), math.sqrt(max(float(slope @ covariance @ slope), 0.0)))
    return found
