"""The gain of a learned policy over the usual ones before it is deployed, also if the prior is wrong."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradband import problems
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.core.statistics import Mean, clustered
from gradband.evaluation.evaluate import Comparison, Row, WithParams, evaluate
from gradband.policies import UCB1, HierarchicalTS, Policy, Split, ThompsonSampling, Uniform, references
from gradband.policies.thompson import MOST_SAMPLES
from gradband.problems import Problem, past_experiments, priors, shrinkage, thinning
from gradband.problems.thinning import FEWEST, Check

LEARNED = "learned"
EQUAL_SPLIT = "uniform"
HELD_OUT = "held-out experiments"
AS_FITTED = "as fitted"
BUDGET = 20_000_000  # posterior samples that Thompson sampling may draw for each arm
SHIFTS = {"rates 50 % lower": 0.5, "rates 50 % higher": 1.5}


@dataclasses.dataclass(frozen=True)
class Situation:
    """A prior that may turn out to be the true one, and how policies do on it."""

    name: str
    pulls: int
    table: Comparison
    owner: np.ndarray | None = None
    """the experiment that each instance comes from, where they come from experiments"""
    check: tuple[Check, ...] = ()
    """what the same draws promise of the winner of a split, beside what came true"""

    @property
    def experiments(self) -> int | None:
        """How many experiments the instances come from."""
        return None if self.owner is None else len(np.unique(self.owner))

    @property
    def conclusive(self) -> bool:
        """Whether there are experiments enough to conclude from."""
        return self.experiments is None or self.experiments >= FEWEST

    def mean(self, values: np.ndarray) -> Mean:
        """The mean of the instances' values, with a standard error clustered by experiment."""
        return Mean.of(values) if self.owner is None else clustered(values, self.owner)

    def reward(self, name: str) -> Mean:
        """Successes per test of a policy."""
        return self.mean(self.table[name].rewards)

    def gain(self, over: str) -> Mean:
        """The learned policy's gain over another per thousand pulls, paired by instance."""
        return self.mean(1000 / self.pulls * (self.table[LEARNED].rewards - self.table[over].rewards))

    def percent(self, over: str) -> Mean:
        """The same in percent of the other policy's successes."""
        ours, theirs = self.table[LEARNED].rewards, self.table[over].rewards
        base = max(float(theirs.mean()), 1e-30)
        ratio = float(ours.mean()) / base
        return Mean(100 * (ratio - 1), self.mean(100 / base * (ours - ratio * theirs)).se)

    @property
    def rival(self) -> str:
        """The best of the other policies."""
        others = [row for row in self.table.rows if row.name != LEARNED]
        return max(others, key=lambda row: row.reward.mean).name

    def as_dict(self) -> dict[str, Any]:
        """Successes per test, and what the learned policy gains over each of the others."""
        rows = []
        for row in self.table.rows:
            other = row.name != LEARNED
            rows.append(
                {
                    "name": row.name,
                    "reward": vars(self.reward(row.name)),
                    "gain": vars(self.gain(row.name)) if other else None,
                    "percent": vars(self.percent(row.name)) if other else None,
                }
            )
        return {
            "situation": self.name,
            "instances": len(self.table.rows[0].rewards),
            "experiments": self.experiments,
            "conclusive": self.conclusive,
            "best_rival": self.rival,
            "policies": rows,
            "check": [check.as_dict() for check in self.check],
        }


def other_priors(fit: dict[str, Any], folder: Path) -> list[priors.Prior]:
    """The priors that were fitted and not chosen, without a kind that earlier versions had."""
    entries = [e for e in fit["others"] if not (isinstance(e, dict) and e.get("kind") == "resampled")]
    return [problems.parse({"horizon": 1, "prior": entry}, folder).prior for entry in entries]


def rivals(fitted: list[priors.Prior]) -> dict[str, Policy]:
    """The usual policies, by names that `gradband compare` accepts.

    Thompson sampling comes with each kind of fitted prior that it can use, rounded as its name says; of two
    hierarchical ones with the first, which fits better.
    """
    found: list[tuple[str, Policy]] = [
        (EQUAL_SPLIT, Uniform()),
        ("split:share=0.25", Split(share=0.25)),
        ("split", Split()),
        ("ucb1", UCB1()),
        ("ts", ThompsonSampling()),
    ]
    level = next((prior for prior in fitted if isinstance(prior, priors.Hierarchical)), None)
    for prior in fitted:
        if prior is level and level is not None:
            numbers: dict[str, Any] = references.numbers_of(level)
            numbers = {name: rounded(value) for name, value in numbers.items()}
            found.append(named(HierarchicalTS(**numbers)))
        elif isinstance(prior, priors.Beta) and shrinkage.shrinks(prior):
            found.append(named(ThompsonSampling(a=rounded(prior.a[0]), b=rounded(prior.b[0]))))
    return dict(found)


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def named(policy: Policy) -> tuple[str, Policy]:
    """A policy with its name and settings, as the command line takes them."""
    usual = type(policy)().settings()
    given = {key: value for key, value in policy.settings().items() if value != usual[key]}
    settings = "+".join(f"{key}={value:.10g}" for key, value in given.items())
    return f"{policy.name}:{settings}", policy


@dataclasses.dataclass(frozen=True)
class Truth:
    """Instances of a prior that may turn out to be the true one."""

    means: np.ndarray
    owner: np.ndarray | None = None
    check: tuple[Check, ...] = ()


def truths(
    problem: Problem,
    others: list[priors.Prior],
    held_out: past_experiments.Experiments,
    instances: int,
    seed: int,
) -> dict[str, Truth]:
    """Priors that may turn out to be the true one, the experiments held out first.

    What matters most has all `instances`; the others make do with a fifth of them.
    """
    usable = [prior for prior in (problem.prior, *others) if shrinkage.shrinks(prior)]
    if not usable:
        raise InputError("none of the fitted priors has a posterior to draw experiments from")
    best = shrinkage.likeliest(usable, held_out)
    means, owner = shrinkage.draw(best, held_out, problem.arms, instances, seed)
    found = {HELD_OUT: Truth(means, owner, thinning.check(best, held_out, problem.arms, seed=seed))}
    few = max(2, instances // 5)
    key = prng.stream(prng.root(seed), "prior")
    checked = thinning.check(problem.prior, held_out, problem.arms, given=False, seed=seed)
    possible = {f"a {prior.label} prior": prior for prior in others}
    possible |= {name: priors.Scaled(problem.prior, factor) for name, factor in SHIFTS.items()}
    for name, prior in ({AS_FITTED: problem.prior} | possible).items():
        drawn = priors.Drawn.of(prior, few, key).instances
        found[name] = Truth(drawn, check=checked if name == AS_FITTED else ())
    return found


def measure(
    learned: WithParams,
    problem: Problem,
    fit: dict[str, Any],
    folder: Path,
    instances: int = 10_000,
    seed: int = 0,
    devices: int | None = None,
    memory: int | str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> list[Situation]:
    """How a policy learned on a fitted problem does on experiments held out, there, and on other priors.

    `fit` is the table that `gradband fit` adds to a problem file, which lies in `folder`. Experiments held
    out are played on `instances` posterior draws of them, or on as many as take no longer than learning
    does; other priors on a fifth as many.
    """
    others = other_priors(fit, folder)
    held_out = past_experiments.load(folder / fit["file"], "held-out")
    possible = truths(problem, others, held_out, affordable(problem, instances), seed)
    policies: dict[str, Policy | WithParams] = {LEARNED: learned, **rivals([problem.prior, *others])}

    def tell(policy: str, share: float) -> None:
        if progress:
            progress(policy, (list(policies).index(policy) + share) / len(policies))

    # All situations are played at once, so that each policy is compiled once.
    means = np.concatenate([truth.means for truth in possible.values()])
    drawn = priors.Drawn.of(problem.prior, 2, prng.root(seed))
    together = problem.replace(prior=dataclasses.replace(drawn, instances=means))
    how: dict[str, Any] = {"seed": seed, "devices": devices, "memory": memory, "progress": tell}
    table = evaluate(policies, together, instances=len(means), **how)
    found, first = [], 0
    for name, truth in possible.items():
        rows = slice(first, first + len(truth.means))
        found.append(Situation(name, problem.pulls, only(table, rows), truth.owner, truth.check))
        first = rows.stop
    return found


def affordable(problem: Problem, instances: int) -> int:
    """How many of the instances can be played soon, judged by Thompson sampling, the slowest policy."""
    samples = problem.rounds * min(problem.pulls_per_round, MOST_SAMPLES)
    return max(2, min(instances, max(1000, BUDGET // (2 * samples))))


def only(table: Comparison, rows: slice) -> Comparison:
    """A comparison on some of its instances."""
    parts = [Row(row.name, row.regrets[rows], row.rewards[rows], row.seconds) for row in table.rows]
    return Comparison(tuple(sorted(parts, key=lambda row: row.regret.mean)))


def in_words(found: list[Situation]) -> str:
    """The gain in a few sentences, or the advice that it is not worth the effort."""
    held = next(situation for situation in found if situation.name == HELD_OUT)
    if not held.conclusive:
        words = [
            f"Only {held.experiments} experiments were held out: too few to conclude anything about real "
            f"ones. It takes at least {FEWEST}."
        ]
    else:
        words = [_on_held_out(held)]
    others = [situation for situation in found if situation is not held]
    if others:
        worst = min(others, key=lambda situation: situation.gain(situation.rival).mean)
        words.append(
            f"If the prior is wrong: at worst ({worst.name}) it has {_more(worst, worst.rival)} than the "
            f"best of the others there ({worst.rival})."
        )
    return " ".join([*words, *_check_in_words(held)])


def _on_held_out(held: Situation) -> str:
    reward, rival = held.reward(LEARNED), held.rival
    ahead = held.gain(rival)
    words = (
        f"On {HELD_OUT} the learned policy has {reward.mean:.1f} ± {reward.se:.1f} successes per test of "
        f"{held.pulls} pulls: {_more(held, rival)} than the best of the others ({rival})"
    )
    known = {row.name for row in held.table.rows}
    if EQUAL_SPLIT in known and rival != EQUAL_SPLIT:
        words += f", and {_more(held, EQUAL_SPLIT)} than an equal split throughout"
    if ahead.mean < 2 * ahead.se:
        return f"{words}. That is within the noise, or less than nothing: don't bother, use {rival}."
    return f"{words}."


def _more(situation: Situation, over: str) -> str:
    share, gain = situation.percent(over), situation.gain(over)
    word = "more" if gain.mean >= 0 else "fewer"
    return (
        f"{abs(share.mean):.2f} ± {share.se:.2f} % {word} "
        f"({abs(gain.mean):.3f} ± {gain.se:.3f} per thousand pulls)"
    )


def _check_in_words(held: Situation) -> list[str]:
    """What the check without a model says of the promise."""
    off = [check for check in held.check if check.holds is False]
    if off:
        worst = max(off, key=lambda check: abs(check.z))
        return [
            f"The promise is off: where {100 * worst.share:.0f} % of the pulls explore, the winner should "
            f"gain {worst.promised:.2f} per thousand pulls over the mean arm, but {worst.real.mean:.2f} ± "
            f"{worst.real.se:.2f} came true. Expect the gain to be off likewise."
        ]
    if any(check.holds for check in held.check):
        return ["The promise agrees with what came true on these experiments, without any model."]
    return []
