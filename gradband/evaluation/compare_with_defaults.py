"""The gain of a learned policy over the usual ones before it is deployed, also if the prior is wrong."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradband import problems
from gradband.core.statistics import Mean, Parts, clustered
from gradband.evaluation.evaluate import Comparison, Row, WithParams, evaluate
from gradband.evaluation.rivals import EQUAL_SPLIT, rivals, with_contexts
from gradband.evaluation.truths import AS_FITTED as AS_FITTED
from gradband.evaluation.truths import HELD_OUT, joined, truths
from gradband.policies import Policy
from gradband.policies.thompson import MOST_SAMPLES
from gradband.problems import Problem, context_rows, past_experiments, priors
from gradband.problems import rewards as laws
from gradband.problems.thinning import FEWEST, Check

LEARNED = "learned"
BUDGET = 20_000_000  # posterior samples per arm that Thompson sampling may draw
BELIEFS = 300_000_000  # numbers of beliefs by arm that policies may change


@dataclasses.dataclass(frozen=True)
class Situation:
    """A prior that may be the true one, and how policies do on it."""

    name: str
    pulls: int
    table: Comparison
    owner: np.ndarray | None = None  # the experiment of each instance, if they come from experiments
    check: tuple[Check, ...] = ()  # what the same draws promise for the winner of a split, and what is true
    unit: str = ""  # of rewards, if they are not 0 and 1
    twins: Comparison | None = None  # how policies do on draws of the fitted prior, each played twice

    @property
    def experiments(self) -> int | None:
        """How many experiments the instances come from."""
        return None if self.owner is None else len(np.unique(self.owner))

    @property
    def conclusive(self) -> bool:
        """Whether there are enough experiments for a conclusion."""
        return self.experiments is None or self.experiments >= FEWEST

    def mean(self, of: Callable[[Comparison], np.ndarray]) -> Mean:
        """The mean of a number per instance, with a standard error clustered by experiment.

        It is at least what draws of the fitted prior say, as far as these are known: what happens in few
        tests may happen in none of the experiments, and then their spread does not show it.
        """
        values = of(self.table)
        found = Mean.of(values) if self.owner is None else clustered(values, self.owner)
        if self.twins is None:
            return found
        count = len(values) // 2 if self.owner is None else len(np.unique(self.owner))
        own = Parts.of_twins(of(self.twins)).se(count, len(values))
        return Mean(found.mean, max(found.se, own))

    def reward(self, name: str) -> Mean:
        """Successes per test of a policy, or its rewards in their unit."""
        return self.mean(lambda table: table[name].rewards)

    def gain(self, over: str) -> Mean:
        """The learned policy's gain over another policy per thousand pulls, paired by instance."""
        return self.mean(lambda table: 1000 / self.pulls * (table[LEARNED].rewards - table[over].rewards))

    def percent(self, over: str) -> Mean:
        """The gain in percent of the other policy's successes; NaN if it earns nothing, or loses."""
        ours, theirs = self.table[LEARNED].rewards, self.table[over].rewards
        if theirs.mean() <= 0 and self.unit:
            return Mean(math.nan, math.nan)
        base = max(float(theirs.mean()), 1e-30)
        ratio = float(ours.mean()) / base
        off = self.mean(lambda table: 100 / base * (table[LEARNED].rewards - ratio * table[over].rewards))
        return Mean(100 * (ratio - 1), off.se)

    @property
    def rival(self) -> str:
        """The best of the other policies."""
        others = [row for row in self.table.rows if row.name != LEARNED]
        return max(others, key=lambda row: row.reward.mean).name

    def as_dict(self) -> dict[str, Any]:
        """Successes per test, and the learned policy's gain over each of the others."""
        rows: list[dict[str, Any]] = []
        for name in (row.name for row in self.table.rows):
            row = {"name": name, "reward": vars(self.reward(name)), "gain": None, "percent": None}
            if name != LEARNED:
                row |= {"gain": vars(self.gain(name)), "percent": vars(self.percent(name))}
            rows.append(row)
        return {
            "situation": self.name,
            "instances": len(self.table.rows[0].rewards),
            "experiments": self.experiments,
            "conclusive": self.conclusive,
            "best_rival": self.rival,
            **({"unit": self.unit} if self.unit else {}),
            "policies": rows,
            "check": [check.as_dict() for check in self.check],
        }


def other_priors(
    fit: dict[str, Any], folder: Path, rewards: laws.Reward | None = None
) -> list[priors.Prior]:
    """The fitted priors that were not chosen, without a kind that only earlier versions had.

    All have the `rewards` of the chosen one, by default those of 0 and 1.
    """
    entries = [e for e in fit["others"] if not (isinstance(e, dict) and e.get("kind") == "resampled")]
    law = (rewards or laws.Bernoulli()).describe()
    return [
        problems.parse({"horizon": 1, "prior": entry, "rewards": law}, folder).prior for entry in entries
    ]


class Known(NamedTuple):
    """What is known besides the problem itself."""

    others: list[priors.Prior]
    """fitted priors that were not chosen"""
    held_out: past_experiments.Experiments
    unit: str = ""
    """of rewards, if they are not 0 and 1"""


def stored(fit: dict[str, Any], folder: Path, rewards: laws.Reward | None = None) -> Known:
    """What `gradband fit` wrote besides the problem, whose `rewards` are given."""
    held_out = load_part(fit, folder, "held-out")
    return Known(other_priors(fit, folder, rewards), held_out, str(fit.get("unit", "")))


def load_part(fit: dict[str, Any], folder: Path, part: str) -> past_experiments.Experiments:
    """The experiments of a part, with their features if they have any."""
    if "context" in fit:
        return context_rows.load(folder / fit["file"], part, fit["context"])
    return past_experiments.load(folder / fit["file"], part)


def measure(
    learned: WithParams,
    problem: Problem,
    fit: dict[str, Any],
    folder: Path,
    instances: int = 10_000,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
    **how: Any,
) -> list[Situation]:
    """How a policy learned on a fitted problem does on held-out experiments, on its prior and on others.

    `fit` is the table that `gradband fit` adds to a problem file, which is in `folder`. Policies play
    `instances` posterior draws of the held-out experiments, or as many as take no longer than learning, and
    a fifth as many of each prior. `how` has the `devices` and the `memory` of `evaluate`.
    """
    known = stored(fit, folder, problem.prior.rewards)
    return measure_on(learned, problem, known, instances, seed, progress, **how)


def measure_on(
    learned: Policy | WithParams,
    problem: Problem,
    known: Known,
    instances: int = 10_000,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
    **how: Any,
) -> list[Situation]:
    """The same with the priors that were not chosen and the experiments held out."""
    others, held_out, unit = known
    possible = truths(problem, others, held_out, affordable(problem, instances), seed)
    usual = with_contexts(problem) if problem.prior.contextual else rivals([problem.prior, *others])
    policies: dict[str, Policy | WithParams] = {LEARNED: learned, **usual}

    def report(policy: str, share: float) -> None:
        if progress:
            progress(policy, (list(policies).index(policy) + share) / len(policies))

    # All situations are played together, so that each policy is compiled once.
    together = problem.replace(prior=joined(possible.values(), problem.prior.rewards))
    count = sum(map(len, possible.values()))
    table = evaluate(policies, together, instances=count, seed=seed, progress=report, **how)
    found, first = [], 0
    for name, truth in possible.items():
        rows = slice(first, first + len(truth))
        parts = [Row(row.name, row.regrets[rows], row.rewards[rows], row.seconds) for row in table.rows]
        ranked = Comparison(tuple(sorted(parts, key=lambda row: row.regret.mean)))
        found.append(Situation(name, problem.pulls, ranked, truth.owner, truth.check, unit))
        first = rows.stop
    if not possible[AS_FITTED].twins:
        return found
    twins = next(entry.table for entry in found if entry.name == AS_FITTED)
    theirs = HELD_OUT, AS_FITTED
    return [dataclasses.replace(e, twins=twins) if e.name in theirs else e for e in found]


def affordable(problem: Problem, instances: int) -> int:
    """How many of the instances can be played in time, judged by the slowest policy, Thompson sampling."""
    if problem.prior.contextual:
        numbers = problem.horizon * problem.arms * problem.prior.dims**2
        return max(2, min(instances, max(1000, BELIEFS // numbers)))
    samples = problem.rounds * min(problem.pulls_per_round, MOST_SAMPLES)
    return max(2, min(instances, max(1000, BUDGET // (2 * samples))))


def in_words(found: list[Situation]) -> str:
    """The gain in a few sentences, or the advice that it is not worth the effort."""
    held = next(situation for situation in found if situation.name == HELD_OUT)
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
    if not held.conclusive:
        return (
            f"Only {held.experiments} experiments were held out: too few to conclude anything about real "
            f"ones. It takes at least {FEWEST}."
        )
    reward, rival = held.reward(LEARNED), held.rival
    ahead = held.gain(rival)
    words = (
        f"On {HELD_OUT} the learned policy has {reward.mean:.1f} ± {reward.se:.1f} "
        f"{held.unit or 'successes'} per test of {held.pulls} pulls: {_more(held, rival)} than the best of "
        f"the others ({rival})"
    )
    if rival != EQUAL_SPLIT and any(row.name == EQUAL_SPLIT for row in held.table.rows):
        words += f", and {_more(held, EQUAL_SPLIT)} than an equal split throughout"
    if ahead.mean < 2 * ahead.se:
        return f"{words}. That is no clear gain: don't bother, use {rival}."
    return f"{words}."


def _more(situation: Situation, over: str) -> str:
    share, gain = situation.percent(over), situation.gain(over)
    word = "more" if gain.mean >= 0 else "less" if situation.unit else "fewer"
    unit = f" {situation.unit}" if situation.unit else ""
    told = f"{abs(gain.mean):.3f} ± {gain.se:.3f}{unit} per thousand pulls"
    if math.isnan(share.mean):
        return f"{told} {word}"
    return f"{abs(share.mean):.2f} ± {share.se:.2f} % {word} ({told})"


def _check_in_words(held: Situation) -> list[str]:
    """Whether the check without a model confirms the promise."""
    off = [check for check in held.check if check.holds is False]
    if off:
        worst = max(off, key=lambda check: abs(check.z))
        return [
            f"The promise is off: where {100 * worst.share:.0f} % of the pulls explore, the winner should "
            f"gain {worst.promised:.2f} per thousand pulls over the mean arm, but {worst.real.mean:.2f} ± "
            f"{worst.real.se:.2f} came true. Expect the gain to be off as well."
        ]
    if any(check.holds for check in held.check):
        return ["The promise agrees with what came true on these experiments, without any model."]
    return []
