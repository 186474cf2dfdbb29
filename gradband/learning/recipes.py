"""Recipes: how GradBand learns a kind of policy by default."""

import dataclasses
import functools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import optax

from gradband.core.errors import unknown
from gradband.gradient import prices
from gradband.gradient.estimator import FEW, FOR_TAILS, Estimator
from gradband.gradient.objective import parse_objective
from gradband.learning.ascent import PLAIN
from gradband.policies import Policy, binding, references
from gradband.problems import Problem

Optimizer = Callable[[int, int], optax.GradientTransformation]  # for L iterations at horizon n


def annealed(iteration: int, iterations: int) -> float:
    """The paper's temperature 1 / (1 − exp(−5 i / L)), which decreases to 1 (Appendix F)."""
    return 1 / (1 - math.exp(-5 * iteration / iterations))


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Settings of `learn`. Those that depend on the horizon n or on L are functions."""

    name: str
    iterations: int = 100
    instances: int = 1000
    most: int | None = None
    """a limit on m n K, which may reduce m below `instances`"""
    estimator: Estimator = Estimator("self")
    objective: str = "mean"
    """mean regret, or cvar:0.1 for the mean regret on the worst tenth of the instances"""
    optimizer: Optimizer | None = None
    """an Optax optimiser for L iterations at horizon n; None for the paper's constant α = 1/(c √L)"""
    scale: str = "log"
    """of positive parameters: log, or linear as in the paper"""
    temperature: Callable[[int, int], float] | None = None
    entropy: Callable[[int, int, int], float] | None = None
    """weight of the entropy of a round's p in iteration i of L at horizon n"""
    curriculum: Callable[[int], tuple[int, ...]] = lambda horizon: ()
    settings: dict[str, float] = dataclasses.field(default_factory=dict)
    """of the policy, if it has them, such as the scale of its first weights"""
    survey: bool = False
    """whether ascent starts from the best of several values of θ, unless one is given"""
    choose: bool = False
    """whether the best of start, average and last is kept"""
    refine: bool = True
    """whether the result is refined by playing points around it, if there are few parameters"""
    certify: float | None = None
    """seconds for a bound on every policy's regret, if the optimum is unknown; None for a tenth of all"""
    imitating: "Recipe | None" = None
    """how to imitate a reference first: iterations, instances and optimiser"""
    tuning: "Recipe | None" = None
    """the recipe to use instead after imitation, at the problem's own horizon"""
    guided_from: int | None = None
    """the number of arms from which Gittins indices are imitated first, where they exist, unless another
    policy is given; None for never"""
    reach: float | None = None
    """by how much parameters are moved (decades, if positive) for gradients by differences of regrets, in
    place of the estimator's; for few parameters, each of which takes two rollouts. It is not used for the
    tail of regret, nor with a temperature or with an estimator that is given beside the recipe."""

    def instances_for(self, problem: Problem) -> int:
        """m for a problem: `instances`, or a power of two of at least 64 that keeps m n K within `most`."""
        if self.most is None:
            return self.instances
        within = self.most // (problem.rounds * problem.arms)
        return min(self.instances, max(64, 2 ** (within.bit_length() - 1)))

    def guide(self, problem: Problem) -> Policy | None:
        """The policy to imitate if none is given: Gittins indices, with the prior if they can use it."""
        if self.guided_from is None or problem.arms < self.guided_from:
            return None
        return references.gittins_for(problem)

    def aiming(self, objective: str) -> "Recipe":
        """The recipe with another objective."""
        return dataclasses.replace(self, objective=str(parse_objective(objective)))

    def begin(self, policy: Policy) -> Policy:
        """The policy with this recipe's settings."""
        own = policy.core
        known: dict[str, Any] = {n: self.settings[n] for n in self.settings if n in own.settings()}
        return policy.with_core(dataclasses.replace(own, **known)) if known else policy

    def estimate(self, problem: Problem, objective: str = "mean") -> Estimator:
        """The gradient estimator for a problem: prices of decisions in place of a critic, if they are
        known, and leave-one-out if means are unknown, or for a tail."""
        if parse_objective(objective).share is not None:
            own = self.estimator if self.estimator.baseline in FOR_TAILS else Estimator("leave-one-out")
            return dataclasses.replace(own, objective=objective)
        if not self.estimator.rule.features:
            return self.estimator
        if prices.are_known(problem):
            return Estimator("none", returns="priced")
        if not problem.prior.knows_means:
            return Estimator("leave-one-out")
        # The effect of a single reward cannot be observed within a batch, nor before it arrives.
        alone = problem.pulls_per_round == 1 and problem.delay is None
        return self.estimator if alone else Estimator("critic", returns="expected")

    def horizons(self, policy: Policy, problem: Problem) -> tuple[int, ...]:
        """The curriculum in whole batches, each with a round for every arm if the policy needs that."""
        found: dict[int, None] = {}
        for wanted in self.curriculum(problem.horizon):
            for least in (wanted, max(wanted, problem.arms), max(wanted, 2 * problem.arms)):
                horizon = -(-least // problem.pulls_per_round) * problem.pulls_per_round
                if horizon < problem.horizon and binding.can_play(policy, problem.replace(horizon=horizon)):
                    found[horizon] = None
                    break
        return tuple(found)

    def optimizer_for(self, iterations: int, horizon: int) -> optax.GradientTransformation:
        return PLAIN if self.optimizer is None else self.optimizer(iterations, horizon)


def sizes(
    iterations: int, horizon: int, rate: float, fall: float = 0.0, warm: float = 0.0
) -> optax.Schedule:
    """Step sizes that grow to `rate` in the first part `warm`, then decrease along a cosine to almost 0.

    They are smaller by (20/n)^`fall` at longer horizons, where a recurrent network is less stable.
    """
    rate, up = rate * min(1, 20 / horizon) ** fall, round(warm * iterations)
    return optax.warmup_cosine_decay_schedule(0 if up else rate, rate, up, iterations, 0.02 * rate)


@functools.lru_cache(maxsize=64)  # so that steps are compiled once
def clipped_adam(
    iterations: int, horizon: int, b2: float = 0.999, **steps: float
) -> optax.GradientTransformation:
    """Adam with these `sizes` of its steps, on gradients clipped at norm 1."""
    schedule = sizes(iterations, horizon, **steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule, b2=b2))


@functools.lru_cache(maxsize=64)
def falling_adam(iterations: int, horizon: int, rate: float = 0.1) -> optax.GradientTransformation:
    """Adam with steps that decrease from `rate` along a cosine, for any scale of the rewards.

    Its steps are relative to the gradients of the last hundred iterations, so a rare large gradient moves
    no further than others.
    """
    return optax.adam(sizes(iterations, horizon, rate), b2=0.99, eps=1e-20)


def fading_entropy(iteration: int, iterations: int, horizon: int) -> float:
    """Decreases from 1 / n to almost 0. Early on it prevents a policy from settling on one arm."""
    return (1 - (iteration - 1) / iterations) ** 2 / horizon


def fading(optimizer: Callable[..., optax.GradientTransformation]) -> Optimizer:
    """An optimiser whose steps start at .001 and shrink by .999 each time (Appendix F)."""
    made = optimizer(optax.exponential_decay(1e-3, 1, 0.999))
    return lambda iterations, horizon: made


def rising(horizon: int) -> tuple[int, ...]:
    """A tenth of the horizon, and three tenths."""
    return tuple(sorted({max(1, round(horizon * share)) for share in (0.1, 0.3)} - {horizon}))


GRADBAND = Recipe("gradband", optimizer=falling_adam, survey=True, choose=True)
ALGORITHM_1 = Recipe("algorithm-1")
PAPER = Recipe(
    "paper",
    iterations=1000,
    instances=500,
    optimizer=fading(optax.adam),
    temperature=annealed,
    curriculum=lambda horizon: (20,) if horizon > 20 else (),
    settings={"forget": 0.0, "head": 1.0, "bias_scale": 1.0},
)
LUCK = Estimator("luck", returns="expected")
IMITATING = Recipe(
    "imitating", iterations=4000, instances=128, optimizer=partial(clipped_adam, rate=0.01, b2=0.99)
)
TUNING = Recipe(
    "tuning",
    iterations=200,
    instances=512,
    estimator=LUCK,
    optimizer=partial(clipped_adam, rate=0.0003, warm=0.1),
)
MOST = 1_300_000  # m n K of an index network, which takes minutes on two cores
NETWORK = Recipe(
    "network",
    iterations=400,
    instances=512,
    estimator=LUCK,
    optimizer=partial(clipped_adam, rate=0.005, fall=0.4, warm=0.1),
    entropy=fading_entropy,
    curriculum=rising,
    choose=True,
    imitating=IMITATING,
    tuning=TUNING,
)
# Prices have little noise, so more steps go further than larger batches.
PRICED = dataclasses.replace(
    NETWORK,
    name="priced",
    iterations=2000,
    instances=256,
    optimizer=partial(clipped_adam, rate=0.01, fall=0.4, warm=0.1),
)
INDEX = Recipe(
    "index",
    iterations=600,
    instances=512,
    most=MOST,
    estimator=LUCK,
    optimizer=partial(clipped_adam, rate=0.003, warm=0.05),
    choose=True,
    imitating=dataclasses.replace(IMITATING, iterations=600, most=MOST),
    tuning=dataclasses.replace(
        TUNING,
        iterations=150,
        instances=256,
        most=MOST,
        optimizer=partial(clipped_adam, rate=0.005, fall=1.0, warm=0.1),
    ),
)
PRETRAINED = dataclasses.replace(
    INDEX, iterations=100, optimizer=partial(clipped_adam, rate=0.0003, warm=0.1)
)
RECIPES = {
    "gradband": GRADBAND,
    "algorithm-1": ALGORITHM_1,
    "network": NETWORK,
    "priced": PRICED,
    "index": INDEX,
    "paper": PAPER,
    "paper-yogi": dataclasses.replace(PAPER, name="paper-yogi", optimizer=fading(optax.yogi)),
}
USUAL = {
    "kl-softelim": dataclasses.replace(GRADBAND, iterations=40),  # each costs ten of SoftElim's
    "beta-softelim": dataclasses.replace(GRADBAND, iterations=40),
    # By gradient alone it ends at twice the regret of Gittins indices where one of 20 arms is better.
    "lstm": dataclasses.replace(NETWORK, guided_from=16),
    "index": INDEX,
    "lstm-gaussian": NETWORK,
    "index-gaussian": INDEX,
    "index-by-arm": INDEX,
    # Rollouts on the same contexts and noise are so alike that nothing has less variance for its price.
    "belief-index": dataclasses.replace(INDEX, estimator=Estimator("leave-one-out", returns="expected")),
    "pretrained-linear": dataclasses.replace(
        GRADBAND,
        iterations=120,
        instances=4096,
        most=8_200_000,
        estimator=Estimator("leave-one-out", returns="expected"),
        optimizer=partial(falling_adam, rate=0.015),
        survey=False,
        reach=0.04,
        refine=False,
    ),
    # Its start is near the best of many problems. A survey of three parameters would take as long as
    # ascent, and points around its end, in a flat valley, ten times that.
    "directed-softelim": dataclasses.replace(
        GRADBAND, iterations=60, optimizer=partial(falling_adam, rate=0.03), survey=False, refine=False
    ),
    "lin-softelim": GRADBAND,  # also with a matrix, whose parameters are many
    "co-softelim": GRADBAND,
    "pretrained": PRETRAINED,
    "pretrained-beta": PRETRAINED,
    "discounted-softelim": dataclasses.replace(GRADBAND, iterations=60),
    "discounted-kl-softelim": dataclasses.replace(GRADBAND, iterations=20),
    "discounted-index": dataclasses.replace(INDEX, survey=True),
    "dqn": Recipe("dqn", iterations=600, instances=512),
}


WHERE_PRICED = {"lstm": PRICED}  # in place of the usual recipe where prices of decisions are known


def usual_for(policy: Policy, problem: Problem) -> Recipe:
    """The usual recipe of a bound policy for a problem."""
    usual = choose(policy, None)
    priced = usual.estimate(problem, usual.objective).returns == "priced"
    return WHERE_PRICED.get(policy.core.name, usual) if priced else usual


def choose(policy: Policy, given: Recipe | str | Path | None) -> Recipe:
    """The recipe with this name or from this file, or the usual one for a bound policy.

    >>> from gradband.policies import LSTM, SoftElim
    >>> names = [choose(policy.bind(2, 200), None).name for policy in (SoftElim(), LSTM())]
    >>> *names, choose(LSTM(), "paper").instances
    ('gradband', 'network', 500)
    """
    if isinstance(given, Recipe):
        return given
    if given is None:
        many = sum(math.prod(leaf.shape) for leaf in policy.shapes().values()) > FEW
        return USUAL.get(policy.core.name, NETWORK if many else GRADBAND)
    if isinstance(given, str) and given in RECIPES:
        return RECIPES[given]
    if str(given).endswith(".toml"):
        from gradband.learning.recipe_file import load_recipe  # it imports this module

        return load_recipe(given, policy)
    raise unknown("recipe", given, [*RECIPES, "FILE.toml"])
