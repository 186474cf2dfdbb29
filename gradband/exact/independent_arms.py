"""Bounds for independent arms: the geometric horizon, rounds of exact lookahead, prices, a first batch.

All are upper bounds on the reward of m = n + afterwards pulls. Afterwards only counts: an arm that is
pulled to the end without learning is one way to play on.
"""

import time
from typing import NamedTuple

import numpy as np

from gradband.core import resources
from gradband.solvers import logit_arm, lookahead, normal_arm, prices, product_form, stopping
from gradband.solvers.layout import code, states_up_to

COARSE, CELLS, FINE = 60, 256, 1024  # cells: to place the others, with lookahead, without it
PER_STATE = 1.2e-10  # seconds per state and charge of a pass
PER_VISIT, PER_CELL = 4e-8, 3e-10  # seconds per state that lookahead visits, and per cell of a last state
PER_PAIR = 3e-9  # seconds per state of two arms
LONGEST = 90  # rounds of lookahead for more than two arms
MOST_TWO = 1000  # for two arms
BATCH_CELLS, MULTIPLIERS = 128, 200  # of bounds after a batch
FEW_CELLS, NEAREST = 64, 0.005  # cells for beta rewards, and how near 0 and 1 a charge may be
PER_LEVEL = 0.1  # seconds per charge and 50 pulls
PATIENT = 8  # rounds per arm up to which prices may be better


class Upper(NamedTuple):
    """An upper bound on reward, and how it was found."""

    reward: float
    method: str


def bernoulli(a: np.ndarray, b: np.ndarray, rounds: int, afterwards: int, seconds: float) -> Upper:
    """The best bound for Bernoulli arms with Beta(a, b) means that so many seconds allow."""
    arms = Arms(a, b)
    if len(a) == 1:
        return Upper((rounds + afterwards) * float(a[0] / (a[0] + b[0])), "a single arm")
    began = time.perf_counter()
    priced = None
    if not afterwards and rounds <= PATIENT * len(a) and rounds**3 / 6 * 6e-9 * 100 < seconds / 4:
        most = int(np.clip(seconds / 4 / (rounds**3 / 6 * 6e-9 * len(arms.counts)), 100, 1000))
        priced = prices.best_prices(arms.shapes, arms.counts, rounds, most)
    left = max(seconds - (time.perf_counter() - began), seconds / 2)  # not less, though code be compiled
    ahead = arms.rounds_ahead(rounds, 0.6 * left)
    found = arms.bound(rounds, afterwards, ahead, 0.4 * left, None if priced is None else priced[0])
    if priced is not None and priced[1] < found.reward:
        return Upper(priced[1], "a price per round")
    return found


class Arms:
    """Bernoulli arms of several kinds, each with a Beta(a, b) belief."""

    def __init__(self, a: np.ndarray, b: np.ndarray) -> None:
        self.a, self.b = np.asarray(a, float), np.asarray(b, float)
        self.shapes, self.counts = stopping.kinds_of(self.a, self.b)
        self.workers = resources.cores()

    def rounds_ahead(self, rounds: int, seconds: float) -> int:
        """How many rounds can be looked ahead, given the time and the memory."""
        free = resources.free_memory() or 4 << 30
        if len(self.a) == 2:
            days = np.arange(min(rounds, MOST_TWO) + 1.0)
            work = days**4 / 24 * PER_PAIR + days**3 / 6 * CELLS * 2e-11
            memory = days**3 / 6 * lookahead.TWO_ARMS_BYTES
        else:
            states = lookahead.states(self.a, self.b, min(rounds, LONGEST))
            distinct = np.minimum(np.arange(len(states)) / 2 + len(self.counts), len(self.a))
            visits = np.cumsum(states * (distinct + 1)) * 2 * PER_VISIT
            work = visits + states * CELLS * PER_CELL
            memory = states * lookahead.BYTES
        return max(int(((work <= seconds) & (memory <= free / 2)).sum()) - 1, 0)

    def grid(self, rounds: int, cells: int) -> np.ndarray:
        """Charges where chords err least."""
        first = product_form.first_charges(self.shapes, COARSE)
        rough = self.advantages(rounds, 0, first, min(rounds, 400) + 1)[:, 0]
        return product_form.refine(first, product_form.slopes(first, rough, rounds), self.counts, cells)

    def advantages(self, rounds: int, kept: int, charges: np.ndarray, depth: int) -> np.ndarray:
        """J of each kind's states with up to `kept` pulls, [kinds, states, charges]."""
        given = [(float(a), float(b)) for a, b in self.shapes]
        return np.stack([stopping.advantages(g, rounds, depth, charges, kept, self.workers) for g in given])

    def bound(
        self, rounds: int, afterwards: int, ahead: int, seconds: float, priced: np.ndarray | None = None
    ) -> Upper:
        """The bound with so many exact rounds of lookahead, and prices [n] if there are any."""
        left = rounds + afterwards - ahead
        if ahead == rounds:
            charges, factors = self._certain(rounds, bool(afterwards))
        else:
            cells = FINE if not ahead else CELLS
            charges = self.grid(left, cells)
            states = seconds / PER_STATE / len(self.counts)
            depth = stopping.reach(left, ahead, states, cells)
            factors = product_form.slopes(charges, self.advantages(left, ahead, charges, depth), left)
        slack = stopping.SLACK * left * len(self.a)
        if not ahead:
            reward = product_form.value(charges, factors[:, 0], self.counts, left)
            return Upper(reward + slack, "geometric horizon")
        width = np.diff(charges)
        if len(self.a) == 2:
            both = np.repeat(np.arange(len(self.counts)), self.counts)
            reward = lookahead.solve_two(self.shapes[both], ahead, factors[both], left, width)
        else:
            second = self._priced(priced, ahead, factors.shape[1])
            reward = lookahead.solve(self.shapes, self.counts, ahead, factors, left, (width, *second))
        exact = ahead == rounds
        method = "dynamic programme" if exact else f"geometric horizon after {ahead} exact rounds"
        return Upper(reward + (0 if exact else slack), method)

    def _certain(self, ahead: int, matters: bool) -> tuple[np.ndarray, np.ndarray]:
        """Charges and e of states in the end, where an arm is worth its mean: J = m (p − λ)⁺."""
        if not matters:
            return np.array([0.0, 1.0]), np.zeros((len(self.counts), code(ahead + 1, 0), 1))
        means = self.means(ahead)
        charges = np.unique(np.append(means, [0.0, 1.0]))
        return charges, (means[..., None] <= charges[:-1]).astype(float)

    def means(self, most: int) -> np.ndarray:
        """Posterior means of each kind's states with up to so many pulls, [kinds, states]."""
        pulls, ones = states_up_to(most)
        return (self.shapes[:, :1] + ones) / (self.shapes.sum(1)[:, None] + pulls)

    def _priced(self, priced: np.ndarray | None, ahead: int, codes: int) -> tuple[float, np.ndarray]:
        """The second bound of the last states: a constant, and what arms add to it [kinds, states]."""
        if priced is None:
            return np.inf, np.zeros((len(self.counts), codes))
        given = [(float(a), float(b)) for a, b in self.shapes]
        return float(priced[ahead:].sum()), np.stack([prices.later(g, priced, ahead) for g in given])

    def after_a_batch(self, batch: int, left: int, seconds: float) -> Upper:
        """The bound if the first `batch` pulls are chosen before any reward is seen; `left` pulls follow.

        The batch earns its size times the best prior mean at most. After b_i pulls of arm i, the rest is
        worth at most m ∫ (1 − Π ē_i(b_i)) dλ with ē the mean of e over what these pulls may show, since
        arms are independent. For each λ, the product over all ways to divide the batch is bounded from
        below: Σ log ē_i(b_i) ≥ Σ min_b (log ē_i(b) + μ b) − μ batch for every μ ≥ 0.
        """
        first = batch * float((self.shapes[:, 0] / self.shapes.sum(1)).max())
        charges = self.grid(left, BATCH_CELLS)
        depth = stopping.reach(left, batch, seconds / PER_STATE / len(self.counts), BATCH_CELLS)
        found = self.advantages(left, batch, charges, depth)
        starts = [code(b, 0) for b in range(batch + 1)]
        logs = []
        for shape, mine in zip(self.shapes, found, strict=True):
            mean = np.add.reduceat(
                chances(float(shape[0]), float(shape[1]), batch)[:, None] * mine, starts, axis=0
            )  # [b, charges]
            logs.append(np.log(np.maximum(product_form.slopes(charges, mean, left), 1e-300)))
        multipliers = np.append(0.0, np.logspace(-6, 2, MULTIPLIERS))
        pulls = np.arange(batch + 1.0)[:, None]
        best = np.full(len(charges) - 1, -np.inf)
        for multiplier in multipliers:
            least = [(log + multiplier * pulls).min(0) for log in logs]
            best = np.maximum(best, self.counts @ np.array(least) - multiplier * batch)
        later = float(left * np.diff(charges) @ (1 - np.exp(best)))
        reward = first + later + stopping.SLACK * left * len(self.a)
        return Upper(reward, f"geometric horizon after a first batch of {batch}")


def chances(a: float, b: float, most: int) -> np.ndarray:
    """P(s ones in N pulls) of an arm with a Beta(a, b) mean, for up to so many pulls, by code."""
    from scipy.special import betaln, gammaln  # take a while to import

    pulls, ones = states_up_to(most)
    choose = gammaln(pulls + 1) - gammaln(ones + 1) - gammaln(pulls - ones + 1)
    return np.exp(choose + betaln(a + ones, b + pulls - ones) - betaln(a, b))


def gaussian(arms: int, sd: float, noise: float, pulls: int, seconds: float) -> Upper:
    """The bound for arms with means N(0, sd²) and normal rewards with this noise."""
    if arms == 1:
        return Upper(0.0, "a single arm")
    depth = int(min(4 * pulls, max(100, 3e5 * seconds / 100)))
    points = normal_arm.POINTS if depth * 1e-3 < seconds else normal_arm.POINTS // 2
    distance, worth = normal_arm.advantages((noise / sd) ** 2, pulls, depth, points)
    charges, advantage = -distance[::-1], worth[::-1]
    factors = product_form.slopes(charges, advantage, pulls)[None]
    # Beyond the last charge the integral is at most the sum of what remains of J.
    reward = product_form.value(charges, factors, np.array([arms]), pulls) + arms * advantage[-1]
    return Upper(sd * (reward + stopping.SLACK * pulls * arms), "geometric horizon")


def beta_rewards(a: np.ndarray, b: np.ndarray, v: float, pulls: int, seconds: float) -> Upper:
    """The bound for arms with Beta(a, b) means and rewards from Beta(v μ, v (1 − μ))."""
    from scipy.special import betainc  # takes a while to import

    arms = Arms(a, b)
    if len(a) == 1:
        return Upper(pulls * float(a[0] / (a[0] + b[0])), "a single arm")

    def factors(charges: np.ndarray, depth: int) -> np.ndarray:
        inside, rows = charges[1:-1], []
        for up, down in arms.shapes.tolist():
            mean = up / (up + down)
            above = 1 - betainc(up + 1, down, inside), 1 - betainc(up, down, inside)
            known = pulls * (mean * above[0] - inside * above[1])
            worth = known - logit_arm.losses((up, down), v, pulls, depth, inside)
            rows.append(np.concatenate([[pulls * mean], np.maximum(worth, 0.0), [0.0]]))
        return product_form.slopes(charges, np.array(rows), pulls)

    first = product_form.first_charges(arms.shapes, 24)
    first = np.concatenate([[0.0], first[(first > NEAREST) & (first < 1 - NEAREST)], [1.0]])
    rough = factors(first, 4)
    charges = product_form.refine(first, rough, arms.counts, FEW_CELLS)
    charges = np.concatenate([[0.0], charges[(charges > NEAREST) & (charges < 1 - NEAREST)], [1.0]])
    each = seconds / (FEW_CELLS * len(arms.counts) * PER_LEVEL)
    depth = int(np.clip(50 * each ** (1 / 1.6), 8, 4 * pulls))
    reward = product_form.value(charges, factors(charges, depth), arms.counts, pulls)
    return Upper(reward + stopping.SLACK * pulls * len(a), "geometric horizon")


def best_of_normal(arms: int) -> float:
    """E max of so many standard normal variables.

    >>> round(best_of_normal(2), 9)  # 1 / √π
    0.564189584
    """
    from scipy.special import log_ndtr

    x, step = np.linspace(-40, 40, 40_001, retstep=True)
    density = arms * np.exp((arms - 1) * log_ndtr(x) - x**2 / 2) / np.sqrt(2 * np.pi)
    return float(step * x @ density)
