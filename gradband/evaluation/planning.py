"""Predicts what a test of some size would bring, and how long it should run.

One policy plays tests of every size: an index network, which takes any number of arms and pulls. Nothing is
learned for a single size.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core import prng
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, whole
from gradband.core.statistics import Mean
from gradband.evaluation.compare_with_defaults import EQUAL_SPLIT
from gradband.evaluation.endings import Endings, play_to_the_end, split_to_the_end
from gradband.evaluation.planned import Cell, Errors, Plan, name_of
from gradband.exact import power
from gradband.learning.learn import learn
from gradband.policies import IndexNetwork, SoftElim, policy_file, references
from gradband.policies.given import Given, resolve, unpack
from gradband.policies.policy_file import Learned
from gradband.policies.thompson import MOST_SAMPLES
from gradband.problems import Problem, as_problem, priors, rewards, shrinkage

if TYPE_CHECKING:
    pass

SHARES = {EQUAL_SPLIT: 1.0, "split:share=0.25": 0.25, "split": 0.5}
THOMPSON, GAUSSIAN_THOMPSON = "ts", "ts-gaussian"  # for rewards in [0, 1], and of any size
BUDGET = 16_000_000  # posterior samples that Thompson sampling may draw per size of test
FEWEST = 100  # tests that it plays at least
LEVEL = 0.05  # of the test of a difference
QUICK = 50  # pulls up to which a policy's power is enumerated
POLICY_FILE = "plan-policy.safetensors"
ROUNDS, ITERATIONS, INSTANCES = 25, 300, 512  # of the quick learning of an index network


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
    """Predicts what tests of several sizes would bring: gains, ends on the best arm, power, lengths.

    Args:
        problem: A fitted problem, a `Problem`, a name or a TOML file.
        horizons: Pulls of a test; by default the problem's.
        pulls_per_round: Pulls decided before their results are observed; by default the problem's.
        arms: Numbers of arms; by default the problem's.
        policy: A policy for any number of arms, a learned one, a name or a file. By default an index
            network (SoftElim if rewards are not in [0, 1]) is learned for a medium size, and stored beside
            the problem's file, if there is one.
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
    raise InputError(f"this {prior.kind} prior has {prior.arms} arms, and cannot have {arms}")


def _check(entry: Any, size: Problem) -> None:
    """Raises an error for a policy that was learned for another number of arms."""
    policy, params = unpack(entry, size)
    if params is None:
        return
    if not policy.flexible and policy.arms not in (0, size.arms):
        raise InputError(
            f"{policy.name} was learned for {policy.arms} arms, but the plan has {size.arms}: "
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
        equal, name = self.equal[size.horizon], name_of(self.policy)
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
