"""Whether to adopt a learned policy: its gain by the length of a test and by the number of arms, advice."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np

from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.evaluation import compare_with_defaults as gains
from gradband.evaluation.compare_with_defaults import EQUAL_SPLIT, HELD_OUT, LEARNED, Situation
from gradband.evaluation.drawn_tests import Drawn
from gradband.evaluation.outcome import Outcome
from gradband.evaluation.past_tests import Past, Spread, arms_of
from gradband.evaluation.played_out import PlayedOut, examples
from gradband.policies import Policy, Split, given
from gradband.policies.given import WithParams
from gradband.problems import Problem, context_draws
from gradband.problems.context_rows import ContextRows
from gradband.problems.thinning import FEWEST

ADOPT, DONT_BOTHER, CANT_TELL = "Adopt", "Don't bother", "Can't tell"
SURE = 2.0  # standard errors from which a gain is clear
FACTORS = (0.25, 0.5, 1, 2, 4)  # lengths of a test, relative to the one that the policy was learned for
MOST_ROUNDS = 100_000  # of a length
SIZES = 4  # other numbers of arms, the most common ones
SPLIT, TS, NORMAL_TS, LIN_TS = "split", "ts", "ts-gaussian", "lin-ts"
MANY = 2000  # tests that show how means vary where there are features
PLATFORMS = {"growthbook": "GrowthBook", "statsig": "Statsig"}
TRUTHS = {
    HELD_OUT: "past tests that were held out",
    gains.AS_FITTED: "new tests, as the prior says",
    "a beta prior": "variants of a test have nothing in common (pooled prior)",
    "a hierarchical prior": "variants differ as much in all tests (hierarchical prior)",
    "a varying prior": "variants differ more in some tests (varying prior)",
    "a mixture prior": "there are a few kinds of tests (mixture prior)",
}
"""names of situations in plain words; the others are plain already"""
Progress = Callable[[str, float], None]


@dataclasses.dataclass(frozen=True)
class Advice:
    """Adopt, don't bother, or can't tell, with the reason."""

    word: str
    sentence: str
    cautions: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"advice": self.word, "words": self.sentence, "cautions": list(self.cautions)}


@dataclasses.dataclass(frozen=True)
class Decision:
    """What the people who decide about a learned policy need to know."""

    outcome: Outcome
    past: Past
    spread: Spread
    lengths: tuple[Situation, ...]
    """held-out tests of other lengths, the shortest first; `pulls` says how long"""
    sizes: dict[int, Situation]
    """held-out tests by their own number of arms, if it is another one"""
    plays_all_sizes: bool
    """whether the policy plays any number of arms without learning again"""
    examples: tuple[PlayedOut, ...]
    """a good, a typical and a bad run"""

    @property
    def held_out(self) -> Situation:
        return next(entry for entry in self.outcome.situations if entry.name == HELD_OUT)

    @property
    def advice(self) -> Advice:
        return advise(self.outcome.situations)

    @property
    def rivals(self) -> dict[str, str]:
        """The policies that it was compared with, and what they do in plain words."""
        names = [row.name for row in self.held_out.table.rows if row.name != LEARNED]
        return {name: in_plain_words(name) for name in names}

    @property
    def truths(self) -> dict[str, str]:
        """What may be true, in plain words."""
        return {entry.name: TRUTHS.get(entry.name, entry.name) for entry in self.outcome.situations}

    @property
    def today(self) -> dict[str, str]:
        """The policies that it was compared with at other lengths and numbers of arms, in plain words."""
        return {name: in_plain_words(name) for name in done_today(self.past)}

    @cached_property
    def scale(self) -> str:
        """What gains are told in: percent, or the unit of rewards where these may be losses."""
        return "%" if math.isfinite(self._least) else f"{self.past.unit} per thousand"

    def gain(self, entry: Situation, over: str) -> Mean:
        """The gain over a policy, in `scale`."""
        return entry.percent(over) if self.scale == "%" else entry.gain(over)

    @property
    def _least(self) -> float:
        """The least gain in percent, NaN if one is not known."""
        pairs = [(entry, row.name) for entry in self.outcome.situations for row in entry.table.rows]
        pairs += [(entry, name) for entry in (*self.lengths, *self.sizes.values()) for name in self.today]
        return float(np.min([entry.percent(name).mean for entry, name in pairs]))

    def ceiling(self) -> tuple[float, float] | None:
        """The gain over an equal split in percent if each test's best arm were known, and the share of it
        that the policy gets."""
        table = self.held_out.table
        split = float(table[EQUAL_SPLIT].rewards.mean())
        if split <= 0:
            return None
        best = float((table[LEARNED].rewards + table[LEARNED].regrets).mean())
        gained = float(table[LEARNED].rewards.mean()) - split
        return 100 * (best / split - 1), gained / max(best - split, 1e-30)

    @property
    def other_sizes(self) -> int:
        """How many past experiments have another number of arms than the problem."""
        return int((self.past.sizes != self.outcome.problem.arms).sum())

    def as_dict(self) -> dict[str, Any]:
        """What `gradband learn --report` adds to its result."""
        return {
            **self.advice.as_dict(),
            "spread": vars(self.spread),
            "lengths": [{"pulls": entry.pulls, **entry.as_dict()} for entry in self.lengths],
            "arms": [{"arms": arms, **entry.as_dict()} for arms, entry in self.sizes.items()],
            "other_numbers_of_arms": self.other_sizes,
            "examples": [example.as_dict() for example in self.examples],
        }


def advise(situations: Iterable[Situation]) -> Advice:
    """Whether a policy with these gains is worth adopting."""
    found = {entry.name: entry for entry in situations}
    held = found[HELD_OUT]
    if not held.conclusive:
        few = f"only {held.experiments} tests were held out, but at least {FEWEST} are needed to conclude"
        return Advice(CANT_TELL, f"{few} anything. Collect more past tests, and fit again.")
    rival = held.rival
    if held.gain(rival).mean < SURE * held.gain(rival).se:
        ahead = "" if rival == EQUAL_SPLIT else f" It is simpler, and {_instead(held, rival)}"
        return Advice(
            DONT_BOTHER,
            f"the gain over {in_plain_words(rival)}, {told(held, rival)}, is within the noise.{ahead}",
        )
    return Advice(
        ADOPT,
        f"on {held.experiments} past tests that were held out, the learned policy has "
        f"{told(held, EQUAL_SPLIT)} more {held.unit or 'successes'} than an equal split, and "
        f"{told(held, rival)} more than the best of the other policies, {in_plain_words(rival)}.",
        tuple(_cautions(found)),
    )


def _instead(held: Situation, rival: str) -> str:
    ours, theirs = held.reward(rival), held.reward(EQUAL_SPLIT)
    more, what = ours.mean - theirs.mean, held.unit or "successes"
    ahead = f"{100 * more / theirs.mean:.1f} %" if theirs.mean > 0 else f"{1000 * more / held.pulls:.3g}"
    per = "" if theirs.mean > 0 else " per thousand"
    return f"has {ahead} more {what}{per} than an equal split: use that."


def _cautions(found: dict[str, Situation]) -> Iterable[str]:
    """What may go wrong although the gain is clear."""
    for entry in found.values():
        gain = entry.gain(entry.rival)
        if entry.name != HELD_OUT and gain.mean < -SURE * gain.se:
            worse = told(entry, entry.rival)
            yield f"If the truth is {entry.name}, {in_plain_words(entry.rival)} is better (gain {worse})."
    if any(check.holds is False for check in found[HELD_OUT].check):
        yield "The check without a model disagrees with the promise: expect the gain to be off as well."


def told(entry: Situation, over: str) -> str:
    """The gain over a policy in percent, or per thousand pulls if that is not known, with a 95 % interval.

    It is negative if the other policy is better.
    """
    share, gain = entry.percent(over), entry.gain(over)
    known = math.isfinite(share.mean)
    value, form = (share, ".1f") if known else (gain, ".3g")
    low, high = (f"{end:{form}}" for end in value.interval)
    words = f"{value.mean:{form}}{' %' if known else ' per thousand'} ({low} to {high})"
    return words.replace("-", "−")


def in_plain_words(name: str) -> str:
    """What a policy of the comparison does, for readers who do not know its name.

    >>> in_plain_words("split:share=0.25"), in_plain_words("ts:a=2.085+b=129.5")
    ('an equal split for 25 %, then the winner', 'Thompson sampling with the pooled prior')
    """
    kind, _, settings = name.partition(":")
    if kind == SPLIT:
        share = float(settings.removeprefix("share=") or Split().share)
        return f"an equal split for {100 * share:.0f} %, then the winner"
    if kind == TS:
        return "Thompson sampling" + (" with the pooled prior" if settings else "")
    if kind == "platform-ts":
        rule = settings.removeprefix("rule=") or "growthbook"
        return f"Thompson sampling as {PLATFORMS.get(rule, rule)} runs it"
    known = {
        LEARNED: "the learned policy",
        NORMAL_TS: "Thompson sampling with normal beliefs",
        EQUAL_SPLIT: "an equal split throughout",
        "ucb1": "UCB1",
        "hierarchical-ts": "Thompson sampling with a hierarchical prior",
        LIN_TS: "Thompson sampling with features",
        "lin-greedy": "always what looks best by the features",
        "lin-bayes-ucb": "Bayes-UCB with features",
        "lin-ucb": "LinUCB",
    }
    return known.get(kind, name)


def decide(
    outcome: Outcome, past: Past, seed: int = 0, progress: Progress | None = None, **how: Any
) -> Decision:
    """Measures what a decision needs besides the gain.

    Args:
        outcome: The learned policy with its gains on a fitted problem.
        past: The past experiments.
        seed: Determines all draws.
        progress: Called with what is measured and the share that is done.
        how: `devices`, `memory` and the number of `instances`, as for `evaluate`.
    """
    problem, learned = outcome.problem, outcome.learned
    count = max(FEWEST, gains.affordable(problem, how.pop("instances", 10_000)) // len(FACTORS))
    today = done_today(past)
    drawn = Drawn.of_held_out(problem, past, problem.arms, past.held_out, count, seed)
    cells = [drawn.with_horizon(n) for n in _lengths(problem) if n != problem.horizon]
    for arms in _other_sizes(past, problem.arms):
        alike = past.held_out.only(np.flatnonzero(arms_of(past.held_out) == arms))
        cells.append(Drawn.of_held_out(problem, past, arms, alike, count, seed))
    cells = [cell for cell in cells if plays(learned, cell.fixed)]
    found = []
    for place, cell in enumerate(cells):
        if progress:
            progress("other lengths and numbers of arms", place / len(cells))
        found.append(cell.gain({LEARNED: learned, **today}, seed, **how))
    pairs = list(zip(cells, found, strict=True))
    held = next(entry for entry in outcome.situations if entry.name == HELD_OUT)
    lengths = [held, *(entry for cell, entry in pairs if cell.arms == problem.arms)]
    return Decision(
        outcome,
        past,
        _spread(problem, past, seed),
        tuple(sorted(lengths, key=lambda entry: entry.pulls)),
        {cell.arms: entry for cell, entry in pairs if cell.arms != problem.arms},
        plays(learned, problem.replace(prior=drawn.with_another_arm())),
        examples(learned, problem, drawn.tests, seed),
    )


def _spread(problem: Problem, past: Past, seed: int) -> Spread:
    if isinstance(past.held_out, ContextRows):
        source = context_draws.Source(problem.prior, past.held_out, seed)
        return Spread.of(source.of_prior(problem.prior, MANY))
    return Spread.of(problem.prior, seed)


def done_today(past: Past) -> dict[str, Policy]:
    """What the gain is compared with at other lengths and numbers of arms: splits and Thompson sampling."""
    if isinstance(past.held_out, ContextRows):
        found = gains.with_contexts(Problem(past.candidates[0], 1))
        return {name: found[name] for name in (EQUAL_SPLIT, SPLIT, LIN_TS)}
    found = gains.rivals(list(past.candidates))
    names = [EQUAL_SPLIT, SPLIT, *[name for name in found if name.partition(":")[0] in (TS, NORMAL_TS)][:1]]
    return {name: found[name] for name in names}


def plays(learned: WithParams, problem: Problem) -> bool:
    """Whether a learned policy can play a problem of another length or size."""
    try:
        given.bind(learned, problem)
    except InputError:
        return False
    return True


def _lengths(problem: Problem) -> list[int]:
    """Lengths of a test in whole batches, the problem's own included."""
    batch, least = problem.pulls_per_round, 2 * problem.arms
    found = {max(1, round(factor * problem.horizon / batch)) * batch for factor in FACTORS}
    return sorted(
        n for n in found | {problem.horizon} if n == problem.horizon or least <= n <= MOST_ROUNDS * batch
    )


def _other_sizes(past: Past, arms: int) -> list[int]:
    """The most common other numbers of arms with enough held-out experiments, ascending."""
    counts = np.bincount(arms_of(past.held_out))
    usual = [int(size) for size in np.argsort(-counts) if size != arms and counts[size] >= FEWEST]
    return sorted(usual[:SIZES])
