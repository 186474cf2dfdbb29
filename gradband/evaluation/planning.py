"""What a test of some size would bring, before it runs, and how long it should run.

One policy plays every size of test: an index network, which takes any number of arms and pulls. Nothing is
learned per size.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core import figures, prng
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, number, whole
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.evaluation.compare_with_defaults import EQUAL_SPLIT
from gradband.evaluation.endings import Endings, play_to_the_end, split_to_the_end
from gradband.exact import power
from gradband.learning.learn import learn
from gradband.policies import IndexNetwork, SoftElim, policy_file, references
from gradband.policies.given import Given, resolve, unpack
from gradband.policies.policy_file import Learned
from gradband.policies.thompson import MOST_SAMPLES
from gradband.problems import Problem, as_problem, priors, rewards, shrinkage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = {EQUAL_SPLIT: 1.0, "split:share=0.25": 0.25, "split": 0.5}
THOMPSON, GAUSSIAN_THOMPSON = "ts", "ts-gaussian"  # for rewards in [0, 1], and of any size
BUDGET = 16_000_000  # posterior samples that Thompson sampling may draw per size of test
FEWEST = 100  # tests that it plays at least
LEVEL = 0.05  # of the test of a difference
TOLERANCE = 0.01  # how far a recommended arm may be below the best, as a share of its mean
QUICK = 50  # pulls up to which a policy's power is enumerated
POLICY_FILE = "plan-policy.safetensors"
ROUNDS, ITERATIONS, INSTANCES = 25, 300, 512  # of the quick learning of an index network


@dataclasses.dataclass(frozen=True)
class Errors:
    """How often the z-test at the end declares a difference between two arms."""

    traffic: str
    """who shares the pulls out"""
    power: Mean
    """where there is one, as the prior says"""
    type_1: Mean
    """where there is none"""
    exact: bool
    """enumerated, and not simulated"""

    def as_texts(self) -> list[str]:
        def percent(value: Mean) -> str:
            return f"{100 * value.mean:.2f}" + (f" ± {100 * value.se:.2f}" if value.se else "")

        return [self.traffic, percent(self.power), percent(self.type_1), "yes" if self.exact else "no"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "traffic": self.traffic,
            "power": vars(self.power),
            "type_1_error": vars(self.type_1),
            "exact": self.exact,
        }


@dataclasses.dataclass(frozen=True, repr=False)
class Cell:
    """A size of test, and how policies do in it."""

    arms: int
    horizon: int
    pulls_per_round: int
    ours: Endings
    rivals: dict[str, Endings]
    """ends of the same tests, or of the first of them"""
    errors: tuple[Errors, ...] = ()
    """of the test of a difference, for two arms"""

    @property
    def instances(self) -> int:
        return len(self.ours.arm)

    def _pair(self, over: str) -> tuple[np.ndarray, np.ndarray]:
        theirs = self.rivals[over].rewards
        return self.ours.rewards[: len(theirs)], theirs

    def gain(self, over: str) -> Mean:
        """Successes per thousand pulls more than another policy, paired by test."""
        ours, theirs = self._pair(over)
        return Mean.of(1000 / self.horizon * (ours - theirs))

    def percent(self, over: str) -> Mean:
        """The gain in percent of the other policy's successes."""
        return _percent(*self._pair(over))

    @cached_property
    def rival(self) -> str:
        """The best of the other policies."""
        return min(self.rivals, key=lambda name: self.gain(name).mean)

    @property
    def ends_on_best(self) -> Mean:
        """The chance that the recommended arm is the best one."""
        return Mean.of((self.ours.recommended == self.ours.best).astype(float))

    @property
    def inferior(self) -> Mean:
        """The share of pulls of arms that are not the best."""
        return Mean.of(self.ours.inferior)

    @property
    def loss(self) -> Mean:
        """How far the recommended arm's mean is below the best arm's, in percent of it."""
        below = _percent(self.ours.recommended, self.ours.best)
        return Mean(-below.mean, below.se)

    def reward_with(self, audience: int) -> Mean:
        """Successes per thousand people, of whom those after the test see the recommended arm."""
        total = self.ours.rewards + (audience - self.horizon) * self.ours.recommended
        return Mean.of(1000 / audience * total)

    def __str__(self) -> str:
        batches = f" by {self.pulls_per_round}" if self.pulls_per_round > 1 else ""
        return f"{self.arms} arms, {self.horizon}{batches}"

    def as_texts(self) -> list[str]:
        """The cell as a row of a table of text."""
        gains = self.gain(EQUAL_SPLIT), self.gain(self.rival)
        return [
            str(self),
            *(f"{gain.mean:+.3f} ± {gain.se:.3f}" for gain in gains),
            self.rival,
            f"{100 * self.ends_on_best.mean:.0f} %",
            f"{100 * self.inferior.mean:.0f} %",
            f"{self.loss.mean:.1f} ± {self.loss.se:.1f} %",
        ]

    def as_record(self) -> dict[str, Any]:
        """The cell as a row of a table."""
        row: dict[str, Any] = {
            "arms": self.arms,
            "horizon": self.horizon,
            "pulls_per_round": self.pulls_per_round,
            "instances": self.instances,
            "best_rival": self.rival,
        }
        numbers = {
            "gain_over_equal_split": self.gain(EQUAL_SPLIT),
            "percent_over_equal_split": self.percent(EQUAL_SPLIT),
            "gain_over_best_rival": self.gain(self.rival),
            "percent_over_best_rival": self.percent(self.rival),
            "ends_on_best_arm": self.ends_on_best,
            "pulls_of_inferior_arms": self.inferior,
            "percent_below_best_arm": self.loss,
        }
        for errors in self.errors:
            who = "equal_split" if errors.traffic == EQUAL_SPLIT else "policy"
            numbers |= {f"power_of_{who}": errors.power, f"type_1_error_of_{who}": errors.type_1}
        for name, value in numbers.items():
            row |= {name: value.mean, f"{name}_se": value.se}
        return row

    def as_dict(self) -> dict[str, Any]:
        return self.as_record() | {"errors": [errors.as_dict() for errors in self.errors]}


@dataclasses.dataclass(frozen=True)
class Length:
    """How long a test with so many arms should run."""

    arms: int
    pulls_per_round: int
    horizon: int | None
    """the recommended number of pulls; None if every test of the plan is too short"""
    reason: str

    def __str__(self) -> str:
        run = f"run {self.horizon} pulls" if self.horizon else "run longer"
        return f"{self.arms} arms, {self.pulls_per_round} per round: {run}; {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {}


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(Result):
    """Sizes of tests, and what a policy would gain in each."""

    cells: tuple[Cell, ...]
    policy: Any
    """the policy that plays all of them"""
    afterwards: int = 0
    """people after the longest test"""
    what: str = "successes"
    """what is gained"""

    def how_long(self, tolerance: float = TOLERANCE) -> tuple[Length, ...]:
        """How long tests should run, for each number of arms and of pulls per round.

        With people `afterwards`, all who see an arm are as many as the longest test has pulls, and those
        afterwards. A shorter test leaves more of them to the arm that it recommends; the length with the
        most successes among all people is recommended. Without, it is the shortest test whose recommended
        arm is on average at most `tolerance` below the best arm, as a share of the best arm's mean.

        Args:
            tolerance: That share; 0.01 is 1 %.
        """
        number("tolerance", tolerance, 0, 1)
        groups: dict[tuple[int, int], list[Cell]] = {}
        for cell in sorted(self.cells, key=lambda cell: cell.horizon):
            groups.setdefault((cell.arms, cell.pulls_per_round), []).append(cell)
        decide = self._by_audience if self.afterwards else _by_loss
        return tuple(Length(*size, *decide(cells, tolerance)) for size, cells in sorted(groups.items()))

    def _by_audience(self, cells: list[Cell], tolerance: float) -> tuple[int, str]:
        audience = cells[-1].horizon + self.afterwards
        best = max(cells, key=lambda cell: cell.reward_with(audience).mean)
        value = best.reward_with(audience)
        return best.horizon, (
            f"{value.mean:.3f} ± {value.se:.3f} {self.what} per thousand of all {audience} people, the "
            "most of these lengths"
        )

    def records(self) -> list[dict[str, Any]]:
        """A row for each size of test; those of more than two arms have no power."""
        rows = [cell.as_record() for cell in self.cells]
        names = dict.fromkeys(name for row in rows for name in row)
        return [{name: row.get(name) for name in names} for row in rows]

    def tables(self, tolerance: float = TOLERANCE) -> list[TextTable]:
        """A row for each size, the errors of the z-test for two arms, and how long tests should run."""
        lengths = [f"{length}." for length in self.how_long(tolerance)]
        sizes = TextTable(
            f"Gain per thousand pulls, and how a test ends; {self.cells[0].instances} tests each",
            ["test", "over equal split", "over best rival", "rival", "best arm", "inferior", "below best"],
            [cell.as_texts() for cell in self.cells],
        )
        errors = TextTable(
            "Two arms: a two-sided z-test at 5 % in the end, in percent",
            ["test", "shared out by", "power", "type I error", "exact"],
            [[str(cell), *found.as_texts()] for cell in self.cells for found in cell.errors],
            texts=2,
        )
        found = [sizes, *([errors] if errors.rows else [])]
        return [*found[:-1], dataclasses.replace(found[-1], notes="\n".join(lengths))]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the gain over an equal split in each size of test, with standard errors.

        Args:
            ax: Where to draw; new Axes by default.
        """
        gains = [cell.gain(EQUAL_SPLIT) for cell in self.cells]
        axes = figures.axes_for(ax, (7.5, figures.height_of_bars(len(gains))))
        names = [str(cell) for cell in self.cells]
        figures.points(axes, names, [gain.mean for gain in gains], [gain.se for gain in gains], color="C0")
        axes.axvline(0, color="0.5", linewidth=1, linestyle=":")
        axes.set(xlabel=f"{self.what} gained per thousand pulls, ± se", title="Gain over an equal split")
        return axes

    def as_dict(self) -> dict[str, Any]:
        """The output of `gradband plan --json`."""
        return {
            "policy": _name_of(self.policy),
            "afterwards": self.afterwards,
            "cells": [cell.as_dict() for cell in self.cells],
            "how_long": [length.as_dict() for length in self.how_long()],
        }

    def __repr__(self) -> str:
        return f"Plan({_name_of(self.policy)}, {len(self.cells)} sizes of tests)"


def _by_loss(cells: list[Cell], tolerance: float) -> tuple[int | None, str]:
    for cell in cells:
        if cell.loss.mean <= 100 * tolerance:
            return cell.horizon, (
                f"the recommended arm is {cell.loss.mean:.2f} ± {cell.loss.se:.2f} % below the best: the "
                f"shortest of these lengths with at most {100 * tolerance:g} %"
            )
    loss = cells[-1].loss
    return None, (
        f"after {cells[-1].horizon} pulls the recommended arm is still {loss.mean:.2f} ± {loss.se:.2f} % "
        f"below the best: {100 * tolerance:g} % takes more"
    )


def plan(
    problem: Problem | str | Path,
    *,
    horizons: Iterable[int] | None = None,
    pulls_per_round: Iterable[int] | None = None,
    arms: Iterable[int] | None = None,
    policy: Given | None = None,
    afterwards: int = 0,
    instances: int = 2000,
    seed: int = 0,
    **how: Any,
) -> Plan:
    """What tests of several sizes would bring: gains, the chance to end on the best arm, power, lengths.

    Args:
        problem: A fitted problem, a `Problem`, a name or a TOML file.
        horizons: Pulls of a test; by default the problem's.
        pulls_per_round: Pulls that are decided before their results are seen; by default the problem's.
        arms: Numbers of arms; by default the problem's.
        policy: A policy for any number of arms, a learned one, a name or a file. By default an index
            network, or SoftElim if rewards are not in [0, 1], is learned for a middle size, and kept in a
            file beside the problem's, if it has one.
        afterwards: People who see the recommended arm after the longest test.
        instances: Tests of each size that are simulated.
        seed: Determines the tests and all draws.
        **how: `progress`, a function of the share that is done and a few words (False shows nothing), and
            the `devices`, the `memory` and the `engine` of `evaluate`.
    """
    base, progress = as_problem(problem), how.pop("progress", None)
    base.prior.stays("a plan")
    whole("instances", instances, least=2)
    whole("afterwards", afterwards, least=0)
    if not base.prior.knows_means:
        raise InputError(f"a plan needs known means, which a {base.prior.kind} prior does not have")
    sizes = [
        base.replace(prior=with_arms(base.prior, k), horizon=n, pulls_per_round=b, afterwards=0)
        for k, n, b in itertools.product(
            _numbers("arms", arms, base.arms, least=2),
            _numbers("horizons", horizons, base.horizon),
            _numbers("pulls_per_round", pulls_per_round, base.pulls_per_round),
        )
    ]
    with progress_bars.follow("planning", progress, lambda update: update) as report:
        if report:
            report(0.0, "learning an index network" if policy is None else "compiling")
        played = _usual_policy(problem, sizes, seed) if policy is None else resolve(policy, sizes[0])
        for size in sizes:
            _check(played, size)
        cells, simulation = [], Simulation(played, instances, seed, how)
        for place, size in enumerate(sizes):
            if report:
                report((1 + place) / (1 + len(sizes)), f"{size.arms} arms, {size.horizon} pulls")
            cells.append(simulation.cell(size))
    return Plan(tuple(cells), played, afterwards, "successes" if base.unit else "reward")


def _numbers(what: str, given: Iterable[int] | None, usual: int, least: int = 1) -> list[int]:
    """Whole numbers in order, each once."""
    entries = [usual] if given is None else list(given)
    if not entries:
        raise InputError(f"{what} must have at least one number")
    return sorted({whole(what, entry, least) for entry in entries})


def with_arms(prior: priors.Prior, arms: int) -> priors.Prior:
    """The prior for another number of arms, if its arms are exchangeable."""
    if arms == prior.arms:
        return prior
    if isinstance(prior, priors.Beta) and shrinkage.shrinks(prior):
        return priors.Beta(arms, float(prior.a[0]), float(prior.b[0]), rewards=prior.rewards)
    kinds = priors.Hierarchical | priors.Mixture | priors.Gaussian
    if isinstance(prior, kinds | priors.HierarchicalGaussian | priors.ZeroInflated):
        return dataclasses.replace(prior, arms=arms)
    raise InputError(f"this {prior.kind} prior is for {prior.arms} arms, and cannot be taken for {arms}")


def _check(entry: Any, size: Problem) -> None:
    """Raises an error for a policy that was learned for another number of arms."""
    policy, params = unpack(entry, size)
    if params is None:
        return
    if not policy.flexible and policy.arms not in (0, size.arms):
        raise InputError(
            f"{policy.name} was learned for {policy.arms} arms, and the plan has {size.arms}: "
            "an index network plays any number"
        )
    policy.bind(size.arms, size.horizon).as_params(params)


def _usual_policy(problem: Problem | str | Path, sizes: Sequence[Problem], seed: int) -> Learned:
    """An index network for these sizes, from the file beside the problem's if it is there and fits."""
    middle = middle_size(sizes)
    about = {"prior": middle.prior.describe(), "horizon": middle.horizon, "seed": seed}
    file = None
    if isinstance(problem, str | Path) and Path(problem).suffix == ".toml":
        file = Path(problem).parent / POLICY_FILE
    if file is not None and file.exists():
        known = policy_file.load(file)
        if known.about.get("plan") == about:
            return known
    # An index network needs rewards in [0, 1].
    quick: dict[str, Any] = {"iterations": ITERATIONS, "instances": INSTANCES} if middle.unit else {}
    usual = IndexNetwork() if middle.unit else SoftElim()
    learned = learn(usual, middle, **quick, seed=seed, progress=None)
    learned.about["plan"] = about
    if file is not None and os.access(file.parent, os.W_OK):
        learned.save(file)
    return learned


def middle_size(sizes: Sequence[Problem]) -> Problem:
    """A problem between the smallest and the largest of these, in a few large batches."""
    arms = sorted(size.arms for size in sizes)[len(sizes) // 2]
    lengths = [size.horizon for size in sizes]
    horizon = math.sqrt(min(lengths) * max(lengths))
    rounds = min(ROUNDS, int(horizon))
    batch = max(1, round(horizon / rounds))
    return sizes[0].replace(
        prior=with_arms(sizes[0].prior, arms), horizon=rounds * batch, pulls_per_round=batch
    )


@dataclasses.dataclass(frozen=True)
class Simulation:
    """How a policy and its rivals play tests of any size."""

    policy: Any
    instances: int
    seed: int
    how: dict[str, Any]
    """`devices`, `memory` and `engine`"""
    drawn: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)
    """means of the tests by their number of arms"""
    equal: dict[int, Errors] = dataclasses.field(default_factory=dict)
    """errors of an equal split by its pulls"""

    def cell(self, size: Problem) -> Cell:
        """Tests of a size."""
        if size.arms not in self.drawn:
            key = prng.stream(prng.root(self.seed), "prior")
            self.drawn[size.arms] = priors.Drawn.of(size.prior, self.instances, key).instances
        means = self.drawn[size.arms]
        ours = self.play(self.policy, size, means)
        bernoulli = isinstance(size.prior.rewards, rewards.Bernoulli)
        plain = bernoulli and size.guardrails is None and size.delay is None
        rivals = {}
        for name, share in SHARES.items():
            rng = np.random.default_rng([self.seed, round(100 * share)])
            at_once = split_to_the_end(size, means, share, rng) if plain else None
            rivals[name] = at_once or self.play(name, size, means)
        samples = size.rounds * min(size.pulls_per_round, MOST_SAMPLES) * size.arms
        few = min(self.instances, max(FEWEST, BUDGET // samples))
        name = THOMPSON if size.unit else GAUSSIAN_THOMPSON
        known = name if size.unit else references.with_prior(name, size)
        rivals[name] = self.play(known, size, means[:few])
        tested = bernoulli and size.arms == 2 and shrinkage.shrinks(size.prior)
        errors = self.errors(size, ours) if tested else ()
        return Cell(size.arms, size.horizon, size.pulls_per_round, ours, rivals, errors)

    def play(self, entry: Any, size: Problem, means: np.ndarray) -> Endings:
        return play_to_the_end(entry, size, means, self.seed, **self.how)

    def errors(self, size: Problem, ours: Endings) -> tuple[Errors, ...]:
        """Power and type I error of the z-test, if pulls are shared out equally and as the policy does."""
        if size.horizon not in self.equal:
            self.equal[size.horizon] = _exact(EQUAL_SPLIT, power.of_equal_split(size, LEVEL))
        equal, name = self.equal[size.horizon], _name_of(self.policy)
        if size.horizon <= QUICK and power.feasible(self.policy, size):
            return equal, _exact(name, power.of_policy(self.policy, size, LEVEL))
        without = self.play(self.policy, size, np.repeat(ours.means[:, :1], 2, axis=1))
        limit = power.limit_of(LEVEL)

        def declared(ends: Endings) -> Mean:
            first, second = zip(ends.pulls.T, ends.sums.T, strict=True)
            return Mean.of((np.abs(power.z_score(*first, *second)) > limit).astype(float))

        return equal, Errors(name, declared(ours), declared(without), exact=False)


def _exact(traffic: str, found: power.Errors) -> Errors:
    return Errors(traffic, Mean(found.power, 0.0), Mean(found.type_1, 0.0), exact=True)


def _name_of(policy: Any) -> str:
    return policy.policy.name if isinstance(policy, Learned) else str(policy.name)


def _percent(ours: np.ndarray, theirs: np.ndarray) -> Mean:
    """How much more one sum is than another, in percent, with the error of a ratio."""
    base = max(float(theirs.mean()), 1e-30)
    ratio = float(ours.mean()) / base
    return Mean(100 * (ratio - 1), Mean.of(100 / base * (ours - ratio * theirs)).se)
