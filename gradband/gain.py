"""What a learned policy gains over the usual ones, before anyone deploys it, and if the prior is wrong."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradband import data, evaluation, priors, problems, random
from gradband.errors import InputError
from gradband.evaluation import Comparison, Mean, WithParams
from gradband.policies import UCB1, HierarchicalTS, Policy, Split, ThompsonSampling
from gradband.problems import Problem

LEARNED = "learned"
FLAT = "ts, flat"
FITTED = "ts, fitted"
SPLIT = "split, winner"
HELD_OUT = "held-out experiments"
AS_FITTED = "as fitted"
PRECISE = (AS_FITTED, HELD_OUT)  # on all instances; the others make do with a quarter of them
SHIFTS = {"rates 50 % lower": 0.5, "rates 50 % higher": 1.5}


@dataclasses.dataclass(frozen=True)
class Situation:
    """A prior that may turn out to be the true one, and how policies do on it."""

    name: str
    pulls: int
    table: Comparison

    def gain(self, over: str) -> Mean:
        """What the learned policy has more than another in a thousand pulls, paired by instance."""
        difference = self.table[LEARNED].rewards - self.table[over].rewards
        return Mean.of(1000 / self.pulls * difference)

    @property
    def rival(self) -> str:
        """The best of the other policies."""
        others = [row for row in self.table.rows if row.name != LEARNED]
        return max(others, key=lambda row: row.reward.mean).name


def other_priors(fit: dict[str, Any], folder: Path) -> list[priors.Prior]:
    """The priors that were fitted and not chosen."""
    return [problems.parse({"horizon": 1, "prior": entry}, folder).prior for entry in fit["others"]]


def truths(
    problem: Problem, others: list[priors.Prior], fit: dict[str, Any], folder: Path
) -> dict[str, priors.Prior]:
    """Priors that may turn out to be the true one."""
    held_out = data.load(folder / fit["file"], "held-out")
    return {
        AS_FITTED: problem.prior,
        HELD_OUT: priors.Resampled(problem.arms, **held_out),
        **{f"a {prior.kind} prior": prior for prior in others},
        **{name: priors.Scaled(problem.prior, factor) for name, factor in SHIFTS.items()},
    }


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
    """How a policy learned on a fitted problem does there, on experiments held out, and on other priors.

    `fit` is the table that `gradband fit` adds to a problem file, which lies in `folder`. Priors that may
    be the true one instead are measured on a quarter of the `instances`.
    """
    others = other_priors(fit, folder)
    possible = truths(problem, others, fit, folder)
    policies: dict[str, Policy | WithParams] = {
        LEARNED: learned,
        FLAT: ThompsonSampling(),
        FITTED: informed([problem.prior, *others]),
        "ucb1": UCB1(),
        SPLIT: Split(),
    }
    found = []
    for place, (name, prior) in enumerate(possible.items()):

        def tell(policy: str, share: float, place: int = place, name: str = name) -> None:
            if progress:
                progress(f"{name}: {policy}", (place + share) / len(possible))

        count = instances if name in PRECISE else max(2, instances // 4)
        how: dict[str, Any] = {"instances": count, "seed": seed, "progress": tell}
        how |= {"devices": devices, "memory": memory}
        # As many are drawn for all, so that what plays on them is compiled once.
        drawn = priors.Drawn.of(prior, instances, random.stream(random.root(seed), "prior"))
        table = evaluation.evaluate(policies, problem.replace(prior=drawn), **how)
        found.append(Situation(name, problem.horizon, table))
    return found


def informed(fitted: list[priors.Prior]) -> Policy:
    """Thompson sampling with the best fitted prior that it can use."""
    for prior in fitted:
        if isinstance(prior, priors.Hierarchical):
            return HierarchicalTS(a=prior.a, b=prior.b, strength=prior.strength)
        if isinstance(prior, priors.Beta) and len({*prior.a.tolist()}) == 1:
            return ThompsonSampling(a=float(prior.a[0]), b=float(prior.b[0]))
    raise InputError("none of the fitted priors is one that Thompson sampling could use")


def in_words(found: list[Situation]) -> str:
    """The gain in a few sentences, or the advice not to bother."""
    held = next(situation for situation in found if situation.name == HELD_OUT)
    reward, rival = held.table[LEARNED].reward, held.rival
    ahead, flat = held.gain(rival), held.gain(FLAT)
    words = [
        f"On {HELD_OUT} the learned policy has {reward.mean:.1f} ± {reward.se:.1f} successes a test of "
        f"{held.pulls} pulls: {_more(flat)} a thousand pulls than Thompson sampling with a flat prior, and "
        f"{_more(ahead)} than the best of the others ({rival})."
    ]
    if ahead.mean < 2 * ahead.se:
        words.append(f"That is within the noise, or less than nothing: don't bother, {rival} is as good.")
    worst = min(found, key=lambda situation: situation.gain(situation.rival).mean)
    least = worst.gain(worst.rival)
    words.append(
        f"If the prior is wrong: at worst ({worst.name}) it has {_more(least)} than the best of the others "
        f"there ({worst.rival})."
    )
    return " ".join(words)


def _more(gain: Mean) -> str:
    return f"{abs(gain.mean):.3f} ± {gain.se:.3f} {'more' if gain.mean >= 0 else 'fewer'}"
