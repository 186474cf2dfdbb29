"""Power and type I error of a test of two arms, exactly.

The test declares a difference if the two-proportion z-statistic with a pooled variance is beyond the normal
quantile of a two-sided `level`. Under a prior that is a mixture of beta distributions, which both arms
share, counts have closed probabilities, so nothing is sampled:

power         the probability that a difference is declared, where both means come from the prior
type I error  the same if both arms have one mean, which an arm of the prior has

With an equal split any number of pulls is feasible. A policy chooses how often each arm is pulled. The
probability of counts (T₀, s₀, s₁) after n pulls is then W(T₀, s₀, s₁) E μ₀^s₀ (1 − μ₀)^(T₀ − s₀) μ₁^s₁ …,
where W sums over all histories with these counts the product of the policy's probabilities. W does not
depend on the means, so one pass through n⁴/24 states serves both errors.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import scipy  # whose parts are imported when they are needed

from gradband.core.errors import InputError, number, whole
from gradband.exact import counts
from gradband.policies import Counting, binding
from gradband.policies.given import Given, unpack
from gradband.problems import Problem, rewards, shrinkage
from gradband.problems.shrinkage import Components

LONGEST = 100  # pulls of a test by a policy: four million states
NEGLIGIBLE = 1e-14  # of a count's probability
FAR = 9.0  # standard deviations, beyond which a count is as improbable
RARE = 1e-9  # of the beta distributions that are left out, all together
AT_ONCE = 1 << 20  # numbers computed at a time


@dataclasses.dataclass(frozen=True)
class Errors:
    """The probabilities that a test declares a difference if there is one, and if there is none."""

    power: float
    type_1: float


def z_score(pulls0: Any, wins0: Any, pulls1: Any, wins1: Any) -> np.ndarray:
    """The two-proportion z-statistic with a pooled variance; 0 if it is undefined.

    >>> float(z_score(100, 20, 100, 10).round(4))
    1.9803
    """
    pulls0, wins0, pulls1, wins1 = (np.asarray(x, float) for x in (pulls0, wins0, pulls1, wins1))
    total = pulls0 + pulls1
    pooled = (wins0 + wins1) / np.maximum(total, 1)
    variance = pooled * (1 - pooled) * total / np.maximum(pulls0 * pulls1, 1)
    rise = wins0 / np.maximum(pulls0, 1) - wins1 / np.maximum(pulls1, 1)
    defined = (pulls0 > 0) & (pulls1 > 0) & (variance > 0)
    return np.where(defined, rise / np.sqrt(np.where(defined, variance, 1)), 0.0)


def of_equal_split(problem: Problem, level: float = 0.05) -> Errors:
    """Power and type I error of a test that gives half of its pulls to each of two arms.

    Args:
        problem: Two arms with rewards of 0 and 1, whose prior is a mixture of beta distributions.
        level: The two-sided significance level of the z-test.

    >>> from gradband import Problem, priors
    >>> found = of_equal_split(Problem(priors.Beta(arms=2), horizon=1000))
    >>> round(found.power, 3), round(found.type_1, 3)
    (0.903, 0.05)
    """
    components, limit = _components(problem), limit_of(level)
    first = (problem.horizon + 1) // 2
    second = problem.horizon - first
    if not second:
        return Errors(0.0, 0.0)
    return Errors(
        _power_of_split(components, first, second, limit),
        _type_1_of_split(components, first, second, limit),
    )


def of_policy(policy: Given, problem: Problem, level: float = 0.05) -> Errors:
    """Power and type I error if a policy pulls two arms one by one, and the z-test has its counts.

    Args:
        policy: A policy whose state is counts, a learned one, a name or a policy file.
        problem: As for `of_equal_split`, with at most a hundred pulls, one per round.
        level: The two-sided significance level of the z-test.
    """
    components, limit = _components(problem), limit_of(level)
    problem.one_by_one("an exact power")
    problem.unguarded("an exact power")
    if problem.horizon > LONGEST:
        raise InputError(
            f"an exact power of a policy goes through n⁴/24 states: at most {LONGEST} pulls are feasible, "
            f"not {problem.horizon}"
        )
    weights = _paths(policy, problem)
    power = type_1 = 0.0
    for pulls0, rectangle in enumerate(weights):
        pulls1 = problem.horizon - pulls0
        wins0, wins1 = np.arange(pulls0 + 1.0)[:, None], np.arange(pulls1 + 1.0)[None]
        declared = rectangle * (np.abs(z_score(pulls0, wins0, pulls1, wins1)) > limit)
        power += float((declared * _likelihood(components, pulls0, pulls1)).sum())
        type_1 += float((declared * _likelihood_if_equal(components, pulls0, pulls1)).sum())
    return Errors(power, type_1)


def feasible(policy: Given, problem: Problem) -> bool:
    """Whether `of_policy` can compute the errors of a policy."""
    bound = binding.check(unpack(policy, problem)[0], problem)
    determined = isinstance(bound, Counting) and type(bound).update is Counting.update
    small = problem.horizon <= LONGEST and problem.pulls_per_round == 1 and problem.arms == 2
    plain = problem.guardrails is None and problem.delay is None
    return determined and small and plain and shrinkage.shrinks(problem.prior)


def limit_of(level: float) -> float:
    return -float(scipy.special.ndtri(number("level", level, 1e-9, 1) / 2))


def _components(problem: Problem) -> Components:
    """The beta distributions of the prior, without those that are negligible."""
    whole("arms of a test of a difference", problem.arms, 2, 2)
    if not isinstance(problem.prior.rewards, rewards.Bernoulli):
        raise InputError(f"the power of a test needs bernoulli rewards, not {problem.prior.rewards.kind}")
    found = Components.of(problem.prior)
    order = np.argsort(found.log_weights)
    kept = np.sort(order[np.cumsum(np.exp(found.log_weights[order])) > RARE])
    return Components(found.log_weights[kept], found.a[kept], found.b[kept])


def _most_wins(components: Components, pulls: int) -> int:
    """Wins that an arm with these pulls exceeds with a negligible probability only."""
    mean = pulls * float(scipy.special.betainccinv(components.a, components.b, NEGLIGIBLE).max())
    return min(pulls, math.ceil(mean + FAR * math.sqrt(mean) + FAR**2))


def _beta_binomial(components: Components, pulls: int, most: int) -> np.ndarray:
    """Probabilities [G, most + 1] of an arm's wins, each from that of one win fewer."""
    a, b, wins = components.a[:, None], components.b[:, None], np.arange(float(most))
    ratios = np.log(a + wins) - np.log(b + pulls - 1 - wins) + np.log((pulls - wins) / (wins + 1))
    first = scipy.special.betaln(a, b + pulls) - scipy.special.betaln(a, b)
    return np.exp(np.cumsum(np.concatenate([first, ratios], axis=1), axis=1))


def _in_parts(components: Components, wins: int) -> Iterator[tuple[np.ndarray, Components]]:
    """The components a few at a time, with their weights, so that a table of their wins stays small."""
    step = max(1, AT_ONCE // (wins + 1))
    for start in range(0, len(components.a), step):
        part = slice(start, start + step)
        weights = np.exp(components.log_weights[part])
        yield weights, Components(components.log_weights[part], components.a[part], components.b[part])


def _power_of_split(components: Components, first: int, second: int, limit: float) -> float:
    """Σ_g w_g Σ_s₀ P_g(s₀) [P_g(s₁ < low(s₀)) + P_g(s₁ > high(s₀))]."""
    most = _most_wins(components, first)
    wins, last = np.arange(most + 1), min(most, second)
    low = _count_of(lambda s1: z_score(first, wins, second, s1) > limit, last, len(wins))
    above_all = _count_of(lambda s1: z_score(first, wins, second, last - s1) < -limit, last, len(wins))
    high = last + 1 - above_all
    total = 0.0
    for weights, part in _in_parts(components, most):
        p0, p1 = _beta_binomial(part, first, most), _beta_binomial(part, second, last)
        none = np.zeros((len(p1), 1))
        below = np.concatenate([none, np.cumsum(p1, axis=1)], axis=1)
        above = np.concatenate([np.cumsum(p1[:, ::-1], axis=1)[:, ::-1], none], axis=1)
        total += float(weights @ (p0 * (below[:, low] + above[:, high])).sum(1))
    return total


def _count_of(holds: Any, most: int, size: int) -> np.ndarray:
    """How many of 0, 1, …, `most` satisfy a condition [size] that holds for the first ones only."""
    low, high = np.zeros(size, np.int64), np.full(size, most + 1)
    while (low < high).any():
        middle = (low + high) // 2
        true = holds(np.minimum(middle, most)) & (middle <= most)
        open_ = low < high
        low, high = np.where(open_ & true, middle + 1, low), np.where(open_ & ~true, middle, high)
    return low


def _type_1_of_split(components: Components, first: int, second: int, limit: float) -> float:
    """Given all wins t, those of the first arm are hypergeometric, whatever the mean of both."""
    total = first + second
    most = _most_wins(components, total)
    p = np.zeros(most + 1)
    for weights, part in _in_parts(components, most):
        p += weights @ _beta_binomial(part, total, most)
    t = np.flatnonzero(p > NEGLIGIBLE)
    pooled = t / total
    reach = limit * np.sqrt(pooled * (1 - pooled) * total / (first * second))
    # A difference is declared if |s₀/N₀ − (t − s₀)/N₁| > reach.
    scale = first * second / total
    high, low = np.floor((t / second + reach) * scale), np.ceil((t / second - reach) * scale)
    declared = _tail(t, high + 1, first, second) + _tail(t, t - (low - 1), second, first)
    return float(p[t] @ np.where(reach > 0, declared, 0.0))


def _tail(t: np.ndarray, start: np.ndarray, first: int, second: int) -> np.ndarray:
    """P(s₀ ≥ start) of the wins of N₀ = `first` pulls among all t wins of both arms' pulls."""
    choose, rest, both = _log_choose(first), _log_choose(second), _log_choose(first + second)
    width = int(FAR * math.sqrt(float(t.max(initial=1))) / 2 + FAR**2)
    found = np.empty(len(t))
    step = max(1, AT_ONCE // width)
    for begin in range(0, len(t), step):
        part = slice(begin, begin + step)
        total = t[part, None]
        wins = start[part, None].astype(np.int64) + np.arange(width)
        there = (wins >= 0) & (wins <= np.minimum(first, total)) & (total - wins <= second)
        one, other = np.where(there, wins, 0), np.where(there, total - wins, 0)
        found[part] = np.where(there, np.exp(choose[one] + rest[other] - both[total]), 0).sum(1)
    return found


def _log_choose(pulls: int) -> np.ndarray:
    """log C(pulls, wins) for all numbers of wins."""
    wins = np.arange(pulls + 1.0)
    return (
        scipy.special.gammaln(pulls + 1)
        - scipy.special.gammaln(wins + 1)
        - scipy.special.gammaln(pulls - wins + 1)
    )


def _paths(policy: Given, problem: Problem) -> list[np.ndarray]:
    """W by T₀: rectangles [T₀ + 1, T₁ + 1] over (s₀, s₁) after the last pull."""
    found, params = unpack(policy, problem)
    bound = binding.check(found, problem)
    if not isinstance(bound, Counting):
        raise InputError(f"{bound.name} has no exact power: its state must be the arms' counts")
    with jax.enable_x64(True):
        start = bound.init(jax.random.key(0)) if params is None else bound.as_params(params)
        layer = counts.probabilities(bound, start, problem.horizon)
        weights = [np.ones((1, 1))]
        for t in range(problem.horizon):
            ends = np.cumsum([weight.size for weight in weights])
            chances = np.split(layer(t)[0], ends[:-1])
            after = [np.zeros((k + 1, t + 2 - k)) for k in range(t + 2)]
            for k, (weight, p) in enumerate(zip(weights, chances, strict=True)):
                one = weight * p.reshape(weight.shape)
                other = weight - one
                after[k + 1][1:] += one
                after[k + 1][:-1] += one
                after[k][:, 1:] += other
                after[k][:, :-1] += other
            weights = after
    return weights


def _likelihood(components: Components, pulls0: int, pulls1: int) -> np.ndarray:
    """E μ₀^s₀ (1 − μ₀)^(T₀ − s₀) μ₁^s₁ (1 − μ₁)^(T₁ − s₁) by (s₀, s₁)."""
    first, second = (_by_component(components, pulls) for pulls in (pulls0, pulls1))
    return (np.exp(components.log_weights)[:, None] * first).T @ second


def _likelihood_if_equal(components: Components, pulls0: int, pulls1: int) -> np.ndarray:
    """E μ^(s₀ + s₁) (1 − μ)^(n − s₀ − s₁) by (s₀, s₁)."""
    by_wins = np.exp(components.log_weights) @ _by_component(components, pulls0 + pulls1)
    return by_wins[np.add.outer(np.arange(pulls0 + 1), np.arange(pulls1 + 1))]


def _by_component(components: Components, pulls: int) -> np.ndarray:
    """E_g μ^s (1 − μ)^(T − s) [G, T + 1] of each component and number of wins s."""
    a, b, wins = components.a[:, None], components.b[:, None], np.arange(pulls + 1.0)
    return np.exp(scipy.special.betaln(a + wins, b + pulls - wins) - scipy.special.betaln(a, b))
