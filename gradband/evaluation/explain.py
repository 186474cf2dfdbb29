"""What a policy does, beside what the optimal policy would do after the same histories."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband import problems
from gradband.core import figures, prng
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, shown
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.engine import blocks
from gradband.engine.blocks import Where
from gradband.engine.observation import Round
from gradband.engine.rollout import Operands, RolloutSpec, play
from gradband.evaluation import explanation_figure
from gradband.evaluation.evaluate import fresh_instances
from gradband.evaluation.standing import Standing, locate
from gradband.exact.optimum import optimum
from gradband.policies import Policy, given
from gradband.policies.given import Given, WithParams
from gradband.policies.policy_file import Learned
from gradband.problems import GivenProblem, Problem, as_problem, priors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELLS = 41  # at most, for the difference of means; odd, so that equal arms fall into the middle cell
SHARES = 15  # rows at most, for an arm's share of the pulls; odd for the same reason
COLUMNS = 100  # at most, for the rounds
ALONE = 0.01  # arms with a smaller share of the pulls count as left alone
GIVE = "give the problem to play it on (--problem)"
Progress = Callable[[str, float], None]


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

    With two arms, of pulling the second; with more, of pulling arm i, for all i together. Cells without any
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
class Explanation(Result):
    """What a policy did on fresh instances. If there is no optimal policy beside it, `note` says why."""

    policy: str
    problem: Problem
    instances: int
    windows: tuple[Window, ...]
    maps: Maps
    strips: Strips
    pulls: tuple[Mean, ...]
    """each arm's share of all pulls [K]"""
    note: str = ""
    standing: Standing | None = None
    """its regret, and how much of the way from Thompson sampling to the optimum it covers"""

    def __repr__(self) -> str:
        shares = ", ".join(f"{100 * window.leading.mean:.0f} % {window.name}" for window in self.windows)
        where = f"{self.problem.arms} arms, {self.problem.horizon} rounds, {self.instances} instances"
        return f"Explanation({self.policy}, {where}; pulls the best so far: {shares})"

    @property
    def left_alone(self) -> tuple[int, ...]:
        """The arms with less than 1 % of the pulls, counted from 1."""
        return tuple(i for i, share in enumerate(self.pulls, start=1) if share.mean < ALONE)

    def as_dict(self) -> dict[str, Any]:
        """The result as `gradband explain` writes it, without the arrays behind the figure."""
        return {
            "policy": self.policy,
            "instances": self.instances,
            "windows": [window.as_dict() for window in self.windows],
            "pulls": [vars(share) for share in self.pulls],
            "left_alone": self.left_alone,
            "note": self.note,
            "standing": self.standing and self.standing.as_dict(),
        }

    def records(self) -> list[dict[str, Any]]:
        """One row per window of rounds."""
        rows = []
        for window in self.windows:
            row = {"window": window.name, "first": window.first, "last": window.last}
            row |= {"leading": window.leading.mean, "leading_se": window.leading.se}
            agreement = window.agreement
            row |= {"agreement": agreement and agreement.mean, "agreement_se": agreement and agreement.se}
            rows.append(row)
        return rows

    def tables(self) -> list[TextTable]:
        rounds = "pulls" if self.problem.pulls_per_round > 1 else "rounds"
        columns = ["", rounds, "pulls the best so far", "± se"]
        columns += [] if self.maps.optimal is None else ["agrees with the optimal policy", "± se"]
        rows = []
        for window in self.windows:
            shares = [share for share in (window.leading, window.agreement) if share]
            cells = [text for s in shares for text in (f"{100 * s.mean:.1f} %", f"{100 * s.se:.1f}")]
            rows.append([window.name, figures.span(window.first, window.last), *cells])
        notes = f"Left alone, with less than 1 % of the pulls: {list_arms(self.left_alone)}."
        notes += f"\nThere is no optimal policy to show. {self.note}" if self.note else ""
        notes += f"\n{self.standing.in_words(self.policy)}" if self.standing else ""
        return [TextTable(f"{self.policy}, {self.instances} instances", columns, rows, notes)]

    def plot(self, ax: "Axes | None" = None) -> Any:
        """Draws the probability of pulling an arm, by what is known about it, early, midway and late.

        The optimal policy is beside it if it is known, and strips show each arm over the rounds.

        Args:
            ax: Where to draw only the policy's strip; by default a new figure has all maps and strips.

        Returns:
            These Axes, or a list of all Axes of the new figure.
        """
        if ax is not None:
            explanation_figure.draw_strip(ax, self)
            return ax
        figure = figures.new_figure(explanation_figure.figure_size(self))
        return explanation_figure.draw(figure, self, self.policy)


def list_arms(arms: Sequence[int]) -> str:
    """Arms in words, with consecutive ones as a range.

    >>> list_arms([1, 4, 5, 6]), list_arms([2]), list_arms([])
    ('arms 1, 4–6', 'arm 2', 'no arm')
    """
    # Within a run of consecutive arms, an arm's number less its place is constant.
    groups = itertools.groupby(enumerate(arms), lambda entry: entry[1] - entry[0])
    runs = [[arm for _, arm in group] for _, group in groups]
    words = ", ".join(figures.span(run[0], run[-1]) for run in runs)
    return f"arm{'s' if len(arms) > 1 else ''} {words}" if runs else "no arm"


def explain(
    policy: Given,
    problem: GivenProblem | None = None,
    *,
    instances: int = 4000,
    optimal: bool = True,
    seed: int = 0,
    certify: float | None = None,
    progress: Progress | bool | None = None,
    **where: Unpack[Where],
) -> Explanation:
    """What a policy does early, midway and late, beside the optimal policy if there is one.

    The optimal policy observes the same arms and rewards, so both are shown after the same histories.

    Args:
        policy: A learned policy, a `Policy`, a name or a policy file.
        problem: The problem to play, by default the one that the policy was learned on.
        instances: Fresh instances to play it on.
        optimal: Whether to compute the optimal policy, if that is possible.
        seed: Determines the instances and all draws.
        certify: Seconds for a bound on every policy's regret if there is no optimal policy to show; by
            default a tenth of the time that it takes to measure the policy's regret.
        progress: Called with the current stage and the fraction of it that is done; by default a bar in
            terminals and notebooks, with False nothing.
        **where: The `devices`, the `memory` and the `engine`: see `Where`.

    >>> best = optimum(problems.named("two-point", horizon=20)).policy
    >>> [window.agreement.mean for window in explain(best, instances=100).windows]
    [1.0, 1.0, 1.0]
    """
    if problem is None:
        policy = given.resolve(policy)
        problem = problem_of(policy)
    problem = as_problem(problem)
    if problem.arms < 2:
        raise InputError("with one arm there is nothing to explain")
    if problem.prior.contextual:
        why = "what it shows depends on counts alone, and here on contexts as well"
        raise InputError(f"explain needs a problem without contexts: {why}")
    bound, params = given.bind(policy, problem, seed)
    fresh, instances = fresh_instances(problem, instances)
    on = blocks.workers(**where)
    size = blocks.block_size(problem.arms)
    key = prng.stream(prng.root(seed), "evaluation")
    plan = _plan(fresh, key)

    def report(done: float) -> None:
        if told:
            told("playing", min(1.0, done * size / instances))

    with progress_bars.follow(
        "explaining", progress, lambda update: lambda name, share: update(share, name)
    ) as told:
        best, regret, note = _optimal_policy(problem, told) if optimal else (None, None, "")
        spec = RolloutSpec(bound.compiled(), size, reference=best.policy.compiled() if best else None)
        theirs = best.params if best else None
        operands = Operands(jax.device_put(fresh), params, key, np.int32(0), reference=theirs)
        job = blocks.BlockJob(_play, (spec, plan), (operands, np.int32(instances)), instances, size)
        found = _summarise(blocks.map_blocks(job, on, report), plan, instances, best is not None)
        standing = None
        if optimal:
            how = {"instances": instances, "seed": seed, "progress": told or False, **where}
            standing = locate(policy, bound.name, problem, regret, certify, **how)
    return Explanation(bound.name, problem, instances, *found, note, standing)


def problem_of(
    learned: Policy | WithParams,
    arms: int | None = None,
    horizon: int | None = None,
    folder: Path | None = None,
) -> Problem:
    """The problem that a policy was learned on, from its policy file.

    The file of a prior that has one must be in `folder`, or beside the problem file that the policy was
    learned from.
    """
    about = learned.about.get("problem") if isinstance(learned, Learned) else None
    prior = about.get("prior") if isinstance(about, dict) else None
    if not isinstance(about, dict) or not isinstance(prior, dict) or prior.get("kind") is None:
        raise InputError(f"the policy file does not say which problem it was learned on: {GIVE}")
    kind, file = prior["kind"], prior.get("file")
    if not isinstance(kind, str) or kind not in priors.KINDS:
        raise InputError(f"a policy file cannot contain a prior of kind {shown(kind)}: {GIVE}")
    if isinstance(file, str):
        places = [place for place in (folder, _source(learned)) if place and (place / file).is_file()]
        if not places:
            raise InputError(f"the {kind} prior is in the file {shown(file)}, not in the policy: {GIVE}")
        folder = places[0]
    if kind == "table":  # which holds its own rewards
        about = {key: about[key] for key in about if key != "rewards"}
    try:
        problem = problems.parse(about, folder, arms)
    except InputError as error:
        raise InputError(f"the policy's problem cannot be restored ({error}): {GIVE}") from None
    return problem if horizon is None else problem.replace(horizon=horizon)


def _source(learned: Policy | WithParams) -> Path | None:
    """The folder of the problem file that a policy was learned from, if that is known."""
    source = learned.about.get("source") if isinstance(learned, Learned) else None
    return Path(source).parent if isinstance(source, str) and source.endswith(".toml") else None


def _optimal_policy(
    problem: Problem, progress: Progress | None
) -> tuple[Learned | None, float | None, str]:
    """The optimal policy and its regret, or None and the reason why there is none."""
    try:
        solved = optimum(problem, progress=partial(progress, "optimal policy") if progress else False)
    except InputError as error:
        return None, None, f"{str(error)[0].upper()}{str(error)[1:]}."
    return solved.policy, solved.regret if solved.loss is not None else None, ""


@dataclasses.dataclass(frozen=True)
class _Plan:
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


def _plan(problem: Problem, key: Array) -> _Plan:
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
    return _Plan(arms, n, pulls, windows, columns, cells, *_reach(problem, key, few / arms), edges)


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
def _play(
    spec: RolloutSpec, plan: _Plan, given: Operands, instances: Array, block: Array
) -> tuple[Array, ...]:
    """Maps, strips and the rest for a block. Only the first `instances` of all blocks count."""
    real = ((block * spec.size + jnp.arange(spec.size)) < instances).astype(float)

    def start(score: Array) -> _Seen:
        counts, sums = jnp.zeros((plan.arms, spec.size)), jnp.zeros((len(plan.windows), spec.size))
        maps = jnp.zeros((len(plan.windows), plan.cells * (len(plan.rows) - 1), 3))
        strips = jnp.zeros((plan.columns, 2, plan.arms))
        return _Seen(counts, counts, maps, strips, sums, sums, counts)

    seen, *_ = play(spec, given._replace(block=block), partial(_observe, plan, real), start)
    return seen.maps, seen.strips, seen.leading, seen.agreement, seen.shares


def _observe(plan: _Plan, real: Array, seen: _Seen, round: Round) -> _Seen:
    """Adds a round; `real` [B] is 1 for the instances that count."""
    pulls, sums, maps, strips, leading, agreement, shares = seen
    t, inside = round.t.astype(jnp.int32), jnp.asarray(plan.windows)
    if round.pulls is not None and round.sums is not None:
        pulled, earned = round.pulls[:, 0], round.sums[:, 0]
    else:
        pulled = jnp.where(jnp.arange(plan.arms)[:, None] == round.arm, 1.0, 0.0)
        earned = pulled * round.reward
    heard = (pulled, earned) if round.heard is None else (round.heard[0][:, 0], round.heard[1][:, 0])
    ours = pulled / plan.pulls_per_round if round.log_probs is None else jnp.exp(round.log_probs[:, 0])
    optimal = jnp.zeros_like(ours) if round.reference is None else round.reference[:, 0]
    both = jnp.stack([ours, optimal])
    now = ((inside[:, 0] <= t) & (t < inside[:, 1]))[:, None]
    means = plan.means(pulls, sums)
    ahead = jnp.where(means == means.max(0)[None], ours, 0).sum(0)
    agreed = (ours * optimal).sum(0)

    def counted(maps: Array) -> Array:
        weights = plan.shown_arms(jnp.broadcast_to(real, ours.shape))
        entries = [weights, weights * plan.shown_arms(ours), weights * plan.shown_arms(optimal)]
        added = jnp.stack(entries, -1).reshape(-1, 3)
        cells = plan.places(pulls, means).reshape(-1)
        total = jnp.zeros(maps.shape[1:]).at[cells].add(added)
        return maps + jnp.where(now[:, :, None], total[None], 0)

    return _Seen(
        pulls + heard[0],
        sums + heard[1],
        jax.lax.cond(now.any(), counted, lambda maps: maps, maps),
        strips.at[t * plan.columns // plan.rounds].add((both * real[None, None]).sum(-1)),
        leading + jnp.where(now, ahead[None], 0),
        agreement + jnp.where(now, agreed[None], 0),
        shares + pulled,
    )


def _summarise(
    pieces: list[Any], plan: _Plan, instances: int, compared: bool
) -> tuple[tuple[Window, ...], Maps, Strips, tuple[Mean, ...]]:
    """Windows, maps, strips and shares of the pulls from those of the blocks."""
    *sums, leading, agreement, pulls = zip(*pieces, strict=True)
    cells, strips = (np.stack(piece).sum(0, dtype=np.float64) for piece in sums)
    histories, ours, optimal = np.moveaxis(cells, -1, 0).reshape(3, len(plan.windows), -1, plan.cells)
    with np.errstate(invalid="ignore"):
        ours, optimal = ours / histories, optimal / histories
    leads = np.linspace(-plan.reach, plan.reach, plan.cells + 1)
    maps = Maps(leads, np.array(plan.rows), histories, ours, optimal if compared else None)
    edges = -(-np.arange(plan.columns + 1) * plan.rounds // plan.columns)
    columns = np.moveaxis(strips, 0, -1) / (instances * np.diff(edges))
    batch, windows = plan.pulls_per_round, []
    each = [blocks.join(piece, instances) for piece in (leading, agreement)]
    names = ("early", "mid", "late")
    for name, (first, end), ahead, agreed in zip(names, plan.windows, *each, strict=True):
        agrees = Mean.of(agreed / (end - first)) if compared else None
        windows.append(Window(name, first * batch + 1, end * batch, Mean.of(ahead / (end - first)), agrees))
    shares = tuple(Mean.of(share) for share in blocks.join(pulls, instances) / (plan.rounds * batch))
    return tuple(windows), maps, Strips(edges * batch, columns[0], columns[1] if compared else None), shares
