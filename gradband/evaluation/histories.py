"""Counts what a policy does after each history, beside the optimal policy: maps and strips."""

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core.statistics import Mean
from gradband.engine import blocks
from gradband.engine.observation import Round
from gradband.engine.rollout import Operands, RolloutSpec, play
from gradband.problems import Problem

if TYPE_CHECKING:
    pass


CELLS = 41  # at most, for the difference of means; odd, so that equal arms fall into the middle cell
SHARES = 15  # rows at most, for an arm's share of the pulls; odd for the same reason
COLUMNS = 100  # at most, for the rounds


@dataclasses.dataclass(frozen=True)
class Window:
    """Rounds `first` to `last`, counted from 1 (in batches: pulls), and what happens in them."""

    name: str
    first: int
    last: int
    leading: Mean  # probability of pulling an arm with the greatest empirical mean
    agreement: Mean | None  # probability that the policy gives to the optimal policy's choice

    def as_dict(self) -> dict[str, Any]:
        agreement = self.agreement and vars(self.agreement)
        return vars(self) | {"leading": vars(self.leading), "agreement": agreement}


@dataclasses.dataclass(frozen=True)
class Maps:
    """Mean probabilities of pulling an arm, given what is known about it, in W windows of rounds.

    With two arms, of pulling the second; with more, of pulling arm i, for all i together. Grid without any
    history are NaN. Histories beyond the outer `leads` count in the outer cells.
    """

    leads: np.ndarray  # edges [X + 1]: the arm's empirical mean minus the best other arm's
    rows: np.ndarray  # edges [Y + 1]: the arm's share of the pulls with two arms, its pulls with more
    histories: np.ndarray  # their number [W, Y, X]
    policy: np.ndarray  # [W, Y, X]
    optimal: np.ndarray | None  # [W, Y, X]


@dataclasses.dataclass(frozen=True)
class Strips:
    """Mean probabilities of pulling each arm, over the rounds.

    Column c has the rounds above rounds[c], up to rounds[c + 1], counted from 1 (in batches: pulls).
    """

    rounds: np.ndarray  # edges [C + 1]
    policy: np.ndarray  # [K, C]
    optimal: np.ndarray | None  # [K, C]


@dataclasses.dataclass(frozen=True)
class Grid:
    """What is counted in which cell. Rounds are counted from 0, and windows do not contain their ends."""

    arms: int
    rounds: int
    pulls_per_round: int
    windows: tuple[tuple[int, int], ...]
    columns: int  # of a strip
    cells: int  # in a row of a map
    reach: float  # the greatest difference of means that has its own cell
    unpulled: float  # the mean of an arm that has not been pulled
    rows: tuple[float, ...]  # edges of the maps' rows

    def means(self, pulls: Array, sums: Array) -> Array:
        """Empirical means [K, B]."""
        return jnp.where(pulls > 0, sums / jnp.maximum(pulls, 1), self.unpulled)

    def places(self, pulls: Array, means: Array) -> Array:
        """The cell of a map for each arm and history, from pulls and means [K, B]."""
        leader = jnp.arange(self.arms)[:, None] == means.argmax(0)[None]
        second = jnp.where(leader, -jnp.inf, means).max(0)
        leads = self.shown_arms(means - jnp.where(leader, second[None], means.max(0)[None]))
        column = jnp.clip(jnp.floor((leads / self.reach + 1) / 2 * self.cells), 0, self.cells - 1)
        known = self.shown_arms(pulls)
        if self.arms == 2:
            known = known / jnp.maximum(pulls.sum(0), 1)[None]
        row = jnp.searchsorted(jnp.asarray(self.rows[1:-1]), known, side="right", method="compare_all")
        return row * self.cells + column.astype(jnp.int32)

    def shown_arms(self, values: Array) -> Array:
        """The values [K, B] of the arms in the maps: of two only the second, since the first mirrors it."""
        return values[1:] if self.arms == 2 else values


def make_grid(problem: Problem, key: Array) -> Grid:
    n, arms, pulls = problem.rounds, problem.arms, problem.pulls_per_round
    width = max(1, n // 10)
    first = min(-(-arms // pulls), n - width)  # when each arm can have been pulled once
    starts = (first, max(first, (n - width) // 2), n - width)
    windows = tuple((start, start + width) for start in starts)
    few = (first + width) * pulls  # so few pulls have few means and shares: finer cells would be empty
    rows: Any = np.linspace(0, 1, min(SHARES, few | 1) + 1)
    if arms > 2:
        steps = [round(2 ** (half / 2)) for half in range(60)]  # 0, 1, 2, 3, 4, 6, 8, 11, 16, 23, …
        rows = [edge for edge in sorted({0, *steps}) if edge < problem.horizon] + [problem.horizon]
    columns, cells, edges = min(COLUMNS, n), min(CELLS, 2 * few - 1), tuple(map(float, rows))
    return Grid(arms, n, pulls, windows, columns, cells, *_reach(problem, key, few / arms), edges)


def _reach(problem: Problem, key: Array, pulls: float) -> tuple[float, float]:
    """The largest difference of means to show if each arm has this many pulls, and the mean without any.

    The difference is three standard deviations, from rewards of a thousand instances in two rounds:
    E (Y_i − Y'_i)² is twice the variance of the noise, and E (Y_i − Y'_j)² adds that between the arms. For
    rewards in [0, 1] it is 1, unless 0.5 is enough.
    """
    one, two = (np.asarray(rewards) for rewards in _two_rounds(problem, key))
    noise = float(np.mean((one - two) ** 2))
    between = max(0.0, float(np.mean((one - np.roll(two, 1, axis=1)) ** 2)) - noise)
    reach = 3 * np.sqrt(noise / pulls + between)
    if problem.unit and reach > 0.5:
        return 1.0, 0.5
    return float(f"{max(reach, 1e-6):.2g}"), float(one.mean()) if problem.unit else 0.0


@jax.jit
def _two_rounds(problem: Problem, key: Array) -> tuple[Array, Array]:
    """Rewards [m, K] of all arms in the first two rounds of at most a thousand instances."""
    count = min(1000, problem.prior.size or 1000)

    def drawn(t: int, index: Array, key: Array) -> Array:
        instance, noise = problem.prior.nth(index, key), jax.random.fold_in(key, t)
        pulls = [problem.reward(noise, instance, jnp.int32(i), index * 0 + t) for i in range(problem.arms)]
        return jnp.stack(pulls)

    numbered, keys = jnp.arange(count), jax.random.split(key, count)
    first, second = (jax.vmap(partial(drawn, min(t, problem.horizon - 1)))(numbered, keys) for t in (0, 1))
    return first, second


class _Seen(NamedTuple):
    """What is known after some rounds of a block."""

    pulls: Array  # whose rewards were observed [K, B]
    sums: Array  # of those rewards [K, B]
    maps: Array  # [W, Y X, 3]: histories, and sums of the policy's and of the optimal probabilities
    strips: Array  # sums of both [C, 2, K]
    leading: Array  # [W, B]
    agreement: Array  # [W, B]
    shares: Array  # all pulls [K, B]


@partial(jax.jit, static_argnums=(0, 1))
def play_block(
    spec: RolloutSpec, grid: Grid, given: Operands, instances: Array, block: Array
) -> tuple[Array, ...]:
    """Maps, strips and the rest for a block. Only the first `instances` of all blocks count."""
    real = ((block * spec.size + jnp.arange(spec.size)) < instances).astype(float)

    def start(score: Array) -> _Seen:
        counts, sums = jnp.zeros((grid.arms, spec.size)), jnp.zeros((len(grid.windows), spec.size))
        maps = jnp.zeros((len(grid.windows), grid.cells * (len(grid.rows) - 1), 3))
        strips = jnp.zeros((grid.columns, 2, grid.arms))
        return _Seen(counts, counts, maps, strips, sums, sums, counts)

    seen, *_ = play(spec, given._replace(block=block), partial(_observe, grid, real), start)
    return seen.maps, seen.strips, seen.leading, seen.agreement, seen.shares


def _observe(grid: Grid, real: Array, seen: _Seen, round: Round) -> _Seen:
    """Adds a round; `real` [B] is 1 for the instances that count."""
    pulls, sums, maps, strips, leading, agreement, shares = seen
    t, inside = round.t.astype(jnp.int32), jnp.asarray(grid.windows)
    if round.pulls is not None and round.sums is not None:
        pulled, earned = round.pulls[:, 0], round.sums[:, 0]
    else:
        pulled = jnp.where(jnp.arange(grid.arms)[:, None] == round.arm, 1.0, 0.0)
        earned = pulled * round.reward
    heard = (pulled, earned) if round.heard is None else (round.heard[0][:, 0], round.heard[1][:, 0])
    ours = pulled / grid.pulls_per_round if round.log_probs is None else jnp.exp(round.log_probs[:, 0])
    optimal = jnp.zeros_like(ours) if round.reference is None else round.reference[:, 0]
    both = jnp.stack([ours, optimal])
    now = ((inside[:, 0] <= t) & (t < inside[:, 1]))[:, None]
    means = grid.means(pulls, sums)
    ahead = jnp.where(means == means.max(0)[None], ours, 0).sum(0)
    agreed = (ours * optimal).sum(0)

    def counted(maps: Array) -> Array:
        weights = grid.shown_arms(jnp.broadcast_to(real, ours.shape))
        entries = [weights, weights * grid.shown_arms(ours), weights * grid.shown_arms(optimal)]
        added = jnp.stack(entries, -1).reshape(-1, 3)
        cells = grid.places(pulls, means).reshape(-1)
        total = jnp.zeros(maps.shape[1:]).at[cells].add(added)
        return maps + jnp.where(now[:, :, None], total[None], 0)

    return _Seen(
        pulls + heard[0],
        sums + heard[1],
        jax.lax.cond(now.any(), counted, lambda maps: maps, maps),
        strips.at[t * grid.columns // grid.rounds].add((both * real[None, None]).sum(-1)),
        leading + jnp.where(now, ahead[None], 0),
        agreement + jnp.where(now, agreed[None], 0),
        shares + pulled,
    )


def summarise(
    pieces: list[Any], grid: Grid, instances: int, compared: bool
) -> tuple[tuple[Window, ...], Maps, Strips, tuple[Mean, ...]]:
    """Windows, maps, strips and shares of the pulls from those of the blocks."""
    *sums, leading, agreement, pulls = zip(*pieces, strict=True)
    cells, strips = (np.stack(piece).sum(0, dtype=np.float64) for piece in sums)
    histories, ours, optimal = np.moveaxis(cells, -1, 0).reshape(3, len(grid.windows), -1, grid.cells)
    with np.errstate(invalid="ignore"):
        ours, optimal = ours / histories, optimal / histories
    leads = np.linspace(-grid.reach, grid.reach, grid.cells + 1)
    maps = Maps(leads, np.array(grid.rows), histories, ours, optimal if compared else None)
    edges = -(-np.arange(grid.columns + 1) * grid.rounds // grid.columns)
    columns = np.moveaxis(strips, 0, -1) / (instances * np.diff(edges))
    batch, windows = grid.pulls_per_round, []
    each = [blocks.join(piece, instances) for piece in (leading, agreement)]
    names = ("early", "mid", "late")
    for name, (first, end), ahead, agreed in zip(names, grid.windows, *each, strict=True):
        agrees = Mean.of(agreed / (end - first)) if compared else None
        windows.append(Window(name, first * batch + 1, end * batch, Mean.of(ahead / (end - first)), agrees))
    shares = tuple(Mean.of(share) for share in blocks.join(pulls, instances) / (grid.rounds * batch))
    return tuple(windows), maps, Strips(edges * batch, columns[0], columns[1] if compared else None), shares
