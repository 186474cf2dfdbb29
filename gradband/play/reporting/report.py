"""The report on a test: who leads, by how much, and whether you may stop."""

import dataclasses
import math
from collections.abc import Iterable
from os import PathLike
from typing import Any

import numpy as np

from gradband.core.errors import InputError, number
from gradband.core.files import finite, to_csv
from gradband.core.statistics import Mean
from gradband.play.reporting import advice as advising
from gradband.play.reporting import intervals, posterior
from gradband.play.reporting.allocation import Allocation
from gradband.play.reporting.journals import read_journal
from gradband.play.reporting.ledger import Event, Ledger
from gradband.play.reporting.notes import notes_on
from gradband.play.reporting.scores import ARM_SUMS
from gradband.play.reporting.value import Value, value_of


@dataclasses.dataclass(frozen=True)
class Arm:
    """What is known of an arm. Numbers that cannot be computed are None."""

    number: int
    label: str
    active: bool
    pulls: int  # that count
    share: float | None  # of the next decisions, as of the latest one
    naive: float | None  # the mean of its rewards
    estimate: Mean | None  # by AIPW
    interval: tuple[float, float] | None  # around it: for one look, at a time fixed in advance
    always_valid: tuple[float, float]  # for any number of looks
    best: float | None  # the posterior probability of being the best active arm
    loss: float | None  # what staying with it costs per decision, expected under the posterior

    @property
    def shown(self) -> float:
        """The best estimate of its mean that there is."""
        if self.estimate is not None:
            return self.estimate.mean
        return math.nan if self.naive is None else self.naive

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"estimate": None if self.estimate is None else vars(self.estimate)}


@dataclasses.dataclass(frozen=True)
class Report:
    """The report on a test, as of `now`."""

    arms: list[Arm]
    advice: str  # "stop", "go on" or "can't tell"
    sentence: str  # the advice, with its reason
    winner: str | None  # the arm to stay with, if the advice is to stop
    confidence: float
    now: float | None  # seconds since 1970
    decisions: int
    counted: int
    waiting: int  # decisions that don't count yet
    defaults: int  # decisions that count with the default reward
    late: int  # rewards that came too late and are ignored
    wait: float | None
    rewards: str  # "0 or 1", "in [0, 1]" or "any"
    allocation: Allocation  # of all decisions
    feedback: Allocation | None  # of those whose rewards came, if they count only then
    value: Value | None
    series: dict[str, Any]
    notes: list[str]

    @property
    def unit(self) -> bool:
        """Whether all rewards are in [0, 1]."""
        return self.rewards != "any"

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it: numbers that cannot be computed are null."""
        found = vars(self) | {"arms": [arm.as_dict() for arm in self.arms]}
        for name in ("allocation", "feedback", "value"):
            found[name] = None if found[name] is None else found[name].as_dict()
        plain: dict[str, Any] = finite(found)
        return plain

    def to_csv(self) -> str:
        """One row per arm."""
        return to_csv([_flat(arm) for arm in self.arms])

    def to_html(self) -> str:
        """A page that needs nothing else."""
        from gradband.play.reporting.page import page

        return page(self)

    def __str__(self) -> str:
        from gradband.play.reporting.table import as_text

        return as_text(self)


def _flat(arm: Arm) -> dict[str, Any]:
    low, high = arm.interval or (None, None)
    return finite(
        {
            "arm": arm.number,
            "label": arm.label,
            "active": int(arm.active),
            "pulls": arm.pulls,
            "share": arm.share,
            "naive_mean": arm.naive,
            "estimate": None if arm.estimate is None else arm.estimate.mean,
            "standard_error": None if arm.estimate is None else arm.estimate.se,
            "low": low,
            "high": high,
            "always_valid_low": arm.always_valid[0],
            "always_valid_high": arm.always_valid[1],
            "p_best": arm.best,
            "expected_loss": arm.loss,
        }
    )


def report(
    test: "str | PathLike[str] | Iterable[Event] | Ledger",
    arms: int | None = None,
    *,
    labels: list[str] | None = None,
    wait: float | None = None,
    default: float = 0.0,
    now: float | None = None,
    confidence: float = 0.95,
    tolerance: float = 0.0,
) -> Report:
    """Reports who leads a test, by how much, and whether you may stop.

    Args:
        test: The journal of a player; or its events in order, as its `record` got them; or a ledger.
        arms: The initial number of arms, if `test` has events without probabilities of all arms (`ps`).
        labels: Names of the arms, if `test` has events. A journal knows them.
        wait: If `test` has events: seconds after which a decision counts, with the reward that it has by
            then or the default. Without it a decision counts when its reward comes. A journal knows it.
        default: The reward of a decision without one, with `wait`.
        now: The time of the report in seconds since 1970, which decides who has waited for `wait`. By
            default the time of the last event.
        confidence: Of all intervals and of the advice.
        tolerance: A difference in reward per decision that does not matter to you: the advice is to stop
            as soon as no arm can be better by more.
    """
    if isinstance(test, Ledger):
        ledger = test
    elif isinstance(test, str | PathLike):
        ledger = read_journal(test)
    else:
        events = list(test)
        ledger = Ledger(_arms(events) if arms is None else arms, labels, wait, default)
        for event in events:
            ledger.observe(event)
    return ledger.report(now, confidence, tolerance)


def _arms(events: list[Event]) -> int:
    """The initial number of arms, from the first event that lists them all."""
    for event in events:
        listed = event.get("ps", event.get("arms")) if isinstance(event, dict) else None
        if isinstance(listed, list):
            return len(listed)
    raise InputError("arms must be given: no event has the probabilities of all arms (ps)")


def make_report(ledger: Ledger, confidence: float, tolerance: float) -> Report:
    """The report on a ledger whose sums are complete."""
    if not 0.5 <= number("confidence", confidence, 0, 1) < 1:
        raise InputError(f"confidence must be at least 0.5 and below 1, not {confidence:g}")
    number("tolerance", tolerance, 0)
    arms = _rows(ledger, confidence)
    advice = advising.advise(ledger, arms, confidence, tolerance)
    return Report(
        arms=arms,
        advice=advice.advice,
        sentence=advice.sentence,
        winner=advice.winner,
        confidence=confidence,
        now=ledger.now,
        decisions=ledger.decisions,
        counted=ledger.counted,
        waiting=ledger.open,
        defaults=ledger.defaults,
        late=ledger.late,
        wait=ledger.wait,
        rewards="0 or 1" if ledger.binary else "in [0, 1]" if ledger.unit else "any",
        allocation=ledger.totals.drawn,
        feedback=ledger.totals.rewarded if ledger.wait is None else None,
        value=value_of(ledger.totals.value),
        series=_series(ledger),
        notes=notes_on(ledger),
    )


def _rows(ledger: Ledger, confidence: float) -> list[Arm]:
    totals = ledger.totals
    n, s, q = totals.pulls, totals.sums, totals.squares
    estimates, errors = intervals.aipw_estimate(totals.scores)
    score = ledger.binary and not ledger.contexts
    around = intervals.score_interval if score else intervals.wald_interval
    lows, highs = around(totals.scores, confidence)
    if ledger.contexts:
        always = np.zeros(len(n)) + intervals.NOTHING[ledger.unit]
    elif ledger.unit:
        always = intervals.sequence(n, s, confidence)
    else:
        always = intervals.normal_sequence(n, s, q, confidence)
    best, loss = _posterior(ledger)
    shares = _shares_now(ledger)
    rows = []
    for arm, label in enumerate(ledger.labels):
        known = not math.isnan(estimates[arm]) and n[arm] >= (1 if score else 2)
        known = known and (not ledger.contexts or had_chances(totals.scores[:, arm]))
        rows.append(
            Arm(
                arm,
                label,
                bool(ledger.active[arm]),
                int(n[arm]),
                None if shares is None else float(shares[arm]),
                float(s[arm] / n[arm]) if n[arm] else None,
                Mean(float(estimates[arm]), float(errors[arm])) if known else None,
                (float(lows[arm]), float(highs[arm])) if known else None,
                (float(always[0][arm]), float(always[1][arm])),
                best.get(arm),
                loss.get(arm),
            )
        )
    return rows


def had_chances(sums: np.ndarray) -> bool:
    """Whether an arm could be pulled in all decisions, from its `ARM_SUMS` with equal weights."""
    found = dict(zip(ARM_SUMS, sums.tolist(), strict=True))
    return found["chances"] == found["h"]


def _posterior(ledger: Ledger) -> tuple[dict[int, float], dict[int, float]]:
    """P(best) and the expected loss of the active arms, where they can be computed."""
    totals, active = ledger.totals, np.flatnonzero(ledger.active)
    n, s, q = totals.pulls[active], totals.sums[active], totals.squares[active]
    if not ledger.counted or ledger.contexts:
        return {}, {}
    if ledger.unit:
        of = posterior.beta_posterior(n, s)
    elif np.all(n >= 2) and np.all(q * n > s**2 * (1 + 1e-12)):
        of = posterior.normal_posterior(n, s, q)
    else:
        return {}, {}
    best, loss = posterior.best_and_loss(of)
    places = active.tolist()
    return dict(zip(places, best.tolist(), strict=True)), dict(zip(places, loss.tolist(), strict=True))


def _shares_now(ledger: Ledger) -> np.ndarray | None:
    """Probabilities of the latest decision; of many if they depend on contexts, or shares of pulls."""
    shares = np.zeros(ledger.arms)
    if ledger.latest is not None and not ledger.contexts:
        shares[: len(ledger.latest)] = ledger.latest
    else:
        bins = ledger.totals.shares
        if not bins.count:
            return None
        shares = bins.sums[max(bins.filled - 10, 0) : bins.filled, 0].sum(0)
    shares = np.where(ledger.active, shares, 0)
    return shares / shares.sum() if shares.sum() > 0 else None


def _series(ledger: Ledger) -> dict[str, Any]:
    """Shares of all decisions and rates of those that count, in bins over time."""
    drawn, counted = ledger.totals.shares, ledger.totals.rates
    shares = drawn.sums[: drawn.filled, 0]
    pulls, sums = counted.sums[: counted.filled, 0], counted.sums[: counted.filled, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = np.where(pulls > 0, sums / pulls, np.nan)
        so_far = np.where(pulls.cumsum(0) > 0, sums.cumsum(0) / pulls.cumsum(0), np.nan)
        together = shares / shares.sum(1, keepdims=True)
    return {
        "shares": {
            "decisions_per_bin": drawn.width,
            "times": drawn.times[: drawn.filled].tolist(),
            "shares": together.tolist(),
        },
        "rates": {
            "decisions_per_bin": counted.width,
            "times": counted.times[: counted.filled].tolist(),
            "pulls": pulls.tolist(),
            "rates": rates.tolist(),
            "so_far": so_far.tolist(),
        },
    }
