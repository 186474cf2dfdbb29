"""Whether to stop: advice that stays valid however often you look, and its reason."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from gradband.play.reporting import intervals, words

if TYPE_CHECKING:
    from gradband.play.reporting.ledger import Ledger
    from gradband.play.reporting.report import Arm

STOP, GO_ON, CANT_TELL = "stop", "go on", "can't tell"
MISMATCH = 0.01  # a p-value below which a report's numbers are not to be trusted
FEWEST = 30  # pulls of each arm, where the sequence holds for many only


@dataclasses.dataclass(frozen=True)
class Advice:
    """One of `STOP`, `GO_ON` and `CANT_TELL`, the arm to stay with, and a sentence."""

    advice: str
    sentence: str
    winner: str | None = None


def advise(ledger: "Ledger", arms: "list[Arm]", confidence: float, tolerance: float) -> Advice:
    """What to do, from a ledger whose sums are complete and its arms' rows."""
    active = [arm for arm in arms if arm.active]
    reason = _no_answer(ledger, active)
    if reason:
        return Advice(CANT_TELL, f"Can't tell: {reason}")
    unit, error = ledger.unit, words.percent(1 - confidence)
    places = [arm.number for arm in active]
    for arm in active:
        others = [place for place in places if place != arm.number]
        if (_evidence(ledger, arm.number, others, confidence) >= 0).all():
            than = f"than {active[0].label if active[0] is not arm else active[1].label}"
            who = than if len(active) == 2 else f"than all {len(others)} others"
            return Advice(
                STOP,
                f"Stop: {arm.label} wins. Its mean reward, {words.rate(arm.shown, unit)}, is higher {who}: "
                f"this is wrong with a probability of at most {error}, however often you looked.",
                arm.label,
            )
    best = max(active, key=lambda arm: (-1.0 if arm.best is None else arm.best, arm.shown))
    if tolerance > 0 and _regret(ledger, best.number, places, confidence) <= tolerance:
        return Advice(
            STOP,
            f"Stop: {best.label} will do. No arm is better by more than {words.rate(tolerance, unit)}: "
            f"this is wrong with a probability of at most {error}, however often you looked.",
            best.label,
        )
    if best.best is None:
        return Advice(GO_ON, "Go on: there are too few rewards of some arms to compare them.")
    bars = _evidence(ledger, best.number, [p for p in places if p != best.number], confidence)
    rivals = [arm.label for arm in active if arm is not best]
    rivals = [label for label, above in zip(rivals, bars, strict=True) if above < 0]
    safe = best.best > confidence
    doubt = (
        f"its lead over {words.listed(rivals)} is not safe yet for someone who looks often"
        if safe
        else f"{words.listed(rivals)} may still be better"
    )
    return Advice(
        GO_ON,
        f"Go on: {best.label} leads and is best with a probability of {words.percent(best.best)}, but "
        f"{doubt}. Staying with {best.label} now is expected to cost {words.loss(best.loss, unit)} per "
        "decision.",
    )


def _no_answer(ledger: "Ledger", active: "list[Arm]") -> str:
    """Why nothing can be said, or an empty string."""
    if len(active) < 2:
        return "there is only one arm left, and nothing to compare it with."
    if not ledger.counted:
        if ledger.open:
            waiting = words.count(ledger.open, "decision waits", "decisions wait")
            return f"no decision counts so far ({waiting} for rewards)."
        return "there are no decisions so far."
    if ledger.totals.drawn.p_value < MISMATCH:
        return (
            "arms were not chosen as often as their logged probabilities say "
            f"({words.p_value(ledger.totals.drawn.p_value)}). Find out why: no number here can be trusted."
        )
    if ledger.wait is None and ledger.totals.rewarded.p_value < MISMATCH:
        return (
            "rewards come for some arms more often than for others "
            f"({words.p_value(ledger.totals.rewarded.p_value)}). Are zeros not reported, or rewards lost? "
            "If only successes are reported, set a wait."
        )
    if ledger.contexts:
        return (
            "arms were chosen by contexts, and which is best depends on them. The gain over an equal split "
            "says what that choice is worth."
        )
    return ""


def _evidence(ledger: "Ledger", arm: int, others: list[int], confidence: float) -> np.ndarray:
    """How far the evidence that an arm is better than each other is above the bar; below 0: not enough."""
    totals, miss = ledger.totals, 1 - confidence
    if ledger.unit:
        bar = math.log((ledger.arms - 1) / miss)  # only comparisons with the best arm can be wrong
        if ledger.pairs:
            return totals.leads[arm, others] - bar
        n, s = totals.pulls, totals.sums
        return intervals.evidence_of_lead(n[arm], s[arm], n[others], s[others]) - bar
    low, high = _unions(ledger, confidence)
    enough = totals.pulls[[arm, *others]].min() >= FEWEST
    return np.where(enough & (low[arm] > high[others]), 0.0, -1.0)


def _unions(ledger: "Ledger", confidence: float) -> intervals.Interval:
    """Confidence sequences that hold for all arms at once."""
    totals, level = ledger.totals, 1 - (1 - confidence) / ledger.arms
    if ledger.unit:
        return intervals.sequence(totals.pulls, totals.sums, level)
    return intervals.normal_sequence(totals.pulls, totals.sums, totals.squares, level)


def _regret(ledger: "Ledger", arm: int, active: list[int], confidence: float) -> float:
    """An upper bound on what staying with an arm costs."""
    low, high = _unions(ledger, confidence)
    return max(float(high[other] - low[arm]) for other in active if other != arm)
