"""Recipes: how GradBand is run on a kind of policy, unless the user says otherwise."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import optax

from gradband import gradient
from gradband.errors import unknown
from gradband.gradient import Estimator
from gradband.policies import Policy
from gradband.problems import Problem
from gradband.steps import PLAIN

RATE = 0.005  # Adam's first step size
Optimizer = Callable[[int], optax.GradientTransformation]  # for L iterations


def annealed(iteration: int, iterations: int) -> float:
    """The paper's temperature 1 / (1 − exp(−5 i / L)), from flat to none (Appendix F)."""
    return 1 / (1 - math.exp(-5 * iteration / iterations))


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Settings of `learn`. What depends on the horizon n or on L is given as a function of it."""

    name: str
    iterations: int = 100
    batch: int = 1000
    estimator: Estimator = Estimator("self")
    optimizer: Optimizer | None = None
    """an Optax optimiser for L iterations; None for the paper's step size α = 1/(c √L)"""
    tuner: Optimizer | None = None
    """the optimiser after imitation, if another one"""
    temperature: Callable[[int, int], float] | None = None
    curriculum: Callable[[int], tuple[int, ...]] = lambda horizon: ()
    settings: dict[str, float] = dataclasses.field(default_factory=dict)
    """of the policy's first weights, where it has them"""
    imitating: "Recipe | None" = None
    """the recipe in place of this one for a warm start by imitation"""

    def begin(self, policy: Policy) -> Policy:
        """The policy with this recipe's first weights."""
        known: dict[str, Any] = {n: self.settings[n] for n in self.settings if n in policy.settings()}
        return dataclasses.replace(policy, **known)

    def estimate(self, problem: Problem) -> Estimator:
        """How to estimate gradients on a problem: by leave-one-out where means are unknown."""
        if problem.prior.knows_means or self.estimator.baseline != "critic":
            return self.estimator
        return Estimator("leave-one-out")

    def optimizer_for(self, iterations: int, tuned: bool = False) -> optax.GradientTransformation:
        """The optimiser for L iterations, from scratch or after imitation."""
        make = self.tuner if tuned and self.tuner else self.optimizer
        return PLAIN if make is None else make(iterations)


def clipped_adam(iterations: int, rate: float = RATE, b2: float = 0.999) -> optax.GradientTransformation:
    """Adam, its steps falling from `rate` to almost nothing along a cosine; gradients clipped at norm 1."""
    steps = optax.cosine_decay_schedule(rate, iterations, 0.02)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(steps, b2=b2))


def fading(
    optimizer: Callable[..., optax.GradientTransformation],
) -> Optimizer:
    """An optimiser whose steps are .001 at first, and .999 times as long after each (Appendix F)."""
    return lambda iterations: optimizer(optax.exponential_decay(1e-3, 1, 0.999))


def rising(horizon: int) -> tuple[int, ...]:
    """A tenth of the horizon, and three tenths."""
    return tuple(sorted({max(1, round(horizon * share)) for share in (0.1, 0.3)} - {horizon}))


GRADBAND = Recipe("gradband")
PAPER = Recipe(
    "paper",
    iterations=1000,
    batch=500,
    optimizer=fading(optax.adam),
    temperature=annealed,
    curriculum=lambda horizon: (20,) if horizon > 20 else (),
    settings={"forget": 0.0, "head": 1.0},
)
WARM = Recipe(
    "network, imitating",
    iterations=2400,
    batch=128,
    estimator=Estimator("critic", returns="expected"),
    optimizer=partial(clipped_adam, rate=0.01, b2=0.99),
    tuner=partial(clipped_adam, rate=0.0001),
)
NETWORK = Recipe(
    "network",
    iterations=600,
    batch=512,
    estimator=Estimator("critic", returns="expected"),
    optimizer=clipped_adam,
    curriculum=rising,
    imitating=WARM,
)
INDEX = Recipe(
    "index",
    iterations=300,
    batch=256,
    estimator=Estimator("critic", returns="expected"),
    optimizer=partial(clipped_adam, rate=0.003),
    imitating=dataclasses.replace(
        WARM, name="index, imitating", iterations=300, tuner=partial(clipped_adam, rate=0.001)
    ),
)
RECIPES = {
    "gradband": GRADBAND,
    "network": NETWORK,
    "index": INDEX,
    "paper": PAPER,
    "paper-yogi": dataclasses.replace(PAPER, name="paper-yogi", optimizer=fading(optax.yogi)),
}
USUAL = {"lstm": "network", "index": "index"}


def choose(policy: Policy, given: Recipe | str | None, imitating: bool = False) -> Recipe:
    """The recipe of this name, or the usual one of a bound policy; and what it does for imitation.

    >>> from gradband.policies import LSTM, SoftElim
    >>> names = [choose(policy.bind(2, 200), None).name for policy in (SoftElim(), LSTM())]
    >>> *names, choose(LSTM(), "paper").batch
    ('gradband', 'network', 500)
    """
    if isinstance(given, Recipe):
        found = given
    elif given is None:
        many = sum(math.prod(leaf.shape) for leaf in policy.shapes().values()) > gradient.FEW
        found = RECIPES[USUAL.get(policy.name, "network" if many else "gradband")]
    elif given in RECIPES:
        found = RECIPES[given]
    else:
        raise unknown("recipe", given, RECIPES)
    return found.imitating or found if imitating else found
