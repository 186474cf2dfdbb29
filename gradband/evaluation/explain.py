"""What a policy does, beside what the optimal policy would do after the same histories."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import jax
import numpy as np

from gradband import problems
from gradband.core import figures, prng
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, shown
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.engine import blocks
from gradband.engine.blocks import Where
from gradband.engine.rollout import Operands, RolloutSpec
from gradband.evaluation import explanation_figure
from gradband.evaluation.evaluate import fresh_instances
from gradband.evaluation.histories import Maps, Strips, Window, make_grid, play_block, summarise
from gradband.evaluation.standing import Standing, locate
from gradband.exact.optimum import optimum
from gradband.policies import Policy, given
from gradband.policies.given import Given, WithParams
from gradband.policies.policy_file import Learned
from gradband.problems import GivenProblem, Problem, as_problem, priors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALONE = 0.01  # arms with a smaller share of the pulls count as left alone
GIVE = "give the problem to play it on (--problem)"
Progress = Callable[[str, float], None]


@dataclasses.dataclass(frozen=True)
class Explanation(Result):
    """What a policy did on fresh instances. Without an optimal policy beside it, `note` says why."""

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
        raise InputError("explain needs a problem without contexts: it shows decisions by counts alone")
    bound, params = given.bind(policy, problem, seed)
    fresh, instances = fresh_instances(problem, instances)
    on = blocks.workers(**where)
    size = blocks.block_size(problem.arms)
    key = prng.stream(prng.root(seed), "evaluation")
    grid = make_grid(fresh, key)

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
        job = blocks.BlockJob(play_block, (spec, grid), (operands, np.int32(instances)), instances, size)
        found = summarise(blocks.map_blocks(job, on, report), grid, instances, best is not None)
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

    If the prior has a file, it must be in `folder`, or beside the problem file that the policy was learned
    from.
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
