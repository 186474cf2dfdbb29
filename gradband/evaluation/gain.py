"""What a policy gains over those in use, on held-out experiments and if the prior is wrong."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gradband import problems
from gradband.core import figures
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, shown
from gradband.core.results import Result, TextTable
from gradband.engine.blocks import Where, check_where
from gradband.evaluation.compare_with_defaults import (
    AS_FITTED,
    HELD_OUT,
    LEARNED,
    Known,
    Situation,
    affordable,
    in_words,
    measure_on,
    stored,
)
from gradband.evaluation.price import Price, price_of_guardrails
from gradband.evaluation.standing import Standing, known_bound, known_optimum
from gradband.policies import given
from gradband.policies.given import Given
from gradband.problems import Problem, past_experiments

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gradband.problems.fitted import FittedProblem


NOTES = (
    "Standard errors are those of experiments and draws: they do not know how uncertain the fitted prior "
    "is. The best of the others is picked on the same draws, so the gain over it is rather too small."
)


@dataclasses.dataclass(frozen=True)
class Gain(Result):
    """How a policy and the usual ones do in each situation: on held-out experiments, and on each prior.

    In tables the policy is called `learned`.
    """

    situations: tuple[Situation, ...]
    price: Price | None = None
    """what the problem's guardrails cost, if it has them, on its own prior"""
    standing: Standing | None = None
    """how much of the way from Thompson sampling to the optimum is covered, if the prior is as fitted"""

    @property
    def held_out(self) -> Situation:
        """The situation that counts: experiments that were held out."""
        return next(entry for entry in self.situations if entry.name == HELD_OUT)

    def in_words(self) -> str:
        """The gain in a few sentences, or the advice that it is not worth the effort."""
        words = [in_words(list(self.situations))]
        words += [] if self.standing is None else [f"As fitted: {self.standing.in_words(LEARNED)}"]
        words += [] if self.price is None else [self.price.in_words()]
        return " ".join(words)

    def __repr__(self) -> str:
        held = self.held_out
        gain, percent = held.gain(held.rival), held.percent(held.rival)
        over = f"{percent.mean:+.2f} ± {percent.se:.2f} % over {held.rival}"
        return f"Gain({gain.mean:+.3f} ± {gain.se:.3f} per thousand pulls, {over}, on {HELD_OUT})"

    def as_dict(self) -> dict[str, Any]:
        """All situations with their policies, checks and the gain in words, ready for JSON."""
        return {
            "words": self.in_words(),
            "situations": [entry.as_dict() for entry in self.situations],
            "price_of_guardrails": self.price and self.price.as_dict(),
            "standing": self.standing and self.standing.as_dict(),
        }

    def records(self) -> list[dict[str, Any]]:
        rows = []
        for entry in self.situations:
            for name in (row.name for row in entry.table.rows):
                means = {"successes": entry.reward(name)}
                if name != LEARNED:
                    means |= {"gain": entry.gain(name), "percent": entry.percent(name)}
                numbers: dict[str, Any] = dict.fromkeys(
                    ("successes", "successes_se", "gain", "gain_se", "percent", "percent_se")
                )
                for what, value in means.items():
                    numbers |= {what: value.mean, f"{what}_se": value.se}
                rows.append({"situation": entry.name, "policy": name, **numbers})
        return rows

    def tables(self) -> list[TextTable]:
        """Rewards on held-out experiments, the gain by what the truth is, and a check of both."""
        held, words = self.held_out, self.in_words()
        what = held.unit or "successes"
        first = TextTable(
            f"On {held.experiments} {HELD_OUT}: {what} per test, and the gain of the learned policy",
            ["policy", what, "± se", "per thousand pulls", "± se", "percent", "± se"],
            [[row.name, *_numbers(held, row.name)] for row in held.table.rows],
        )
        second = TextTable(
            "Gain over the best of the other policies, by what the truth is",
            ["truth", "best of the others", "per thousand pulls", "± se", "percent", "± se"],
            [[entry.name, entry.rival, *_numbers(entry, entry.rival)[2:]] for entry in self.situations],
            NOTES,
            texts=2,
        )
        third = TextTable(
            "A check without any model: gain of the winner of an equal split over the mean arm, per "
            "thousand pulls",
            ["explored", "draws of", "promised", "came true", "± se", "within 2 se"],
            [_check(entry, check) for entry in self.situations for check in entry.check],
            texts=2,
        )
        found = [first, second, *([third] if third.rows else [])]
        last = dataclasses.replace(found[-1], notes=f"{found[-1].notes}\n{words}".strip())
        return [*found[:-1], last]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the gain over each of the other policies on held-out experiments, with standard errors.

        Args:
            ax: Where to draw; new Axes by default.
        """
        held = self.held_out
        names = [row.name for row in held.table.rows if row.name != LEARNED]
        gains = [held.gain(name) for name in names]
        axes = figures.axes_for(ax, (7.5, figures.height_of_bars(len(names))))
        figures.points(axes, names, [gain.mean for gain in gains], [gain.se for gain in gains], color="C0")
        axes.axvline(0, color="0.5", linewidth=1, linestyle=":")
        axes.set(
            xlabel=f"{held.unit or 'successes'} gained per thousand pulls, ± se",
            title=f"Gain on {held.experiments} {HELD_OUT} over",
        )
        return axes


def gain(
    policy: Given,
    fit: "FittedProblem | str | Path",
    *,
    instances: int = 10_000,
    seed: int = 0,
    certify: float | None = None,
    progress: Callable[[str, float], None] | bool | None = None,
    **where: Unpack[Where],
) -> Gain:
    """What a policy gains over the usual ones before it is deployed, also if the prior is wrong.

    All play posterior draws of the experiments that `fit` held out, and draws of each fitted prior.

    Args:
        policy: A learned policy, a `Policy`, a name or a policy file.
        fit: What `gb.fit` returned, or the path of the `fitted.toml` that it saved.
        instances: Draws of the held-out experiments, or fewer if Thompson sampling would take too long.
            Each other situation has a fifth as many.
        seed: Determines all randomness.
        certify: Seconds for a bound on every policy's regret if the optimum cannot be computed; by default
            a tenth of the time that all this takes.
        progress: Called with a policy's name and the share of all work that is done; by default a bar in
            terminals and notebooks, with False nothing.
        **where: The `devices`, the `memory` and the `engine`: see `Where`.
    """
    check_where(where)
    problem, known = _parts(fit)
    entry = given.resolve(policy, problem)
    how: dict[str, Any] = {"instances": instances, "seed": seed, **where}
    with progress_bars.follow(
        "gain", progress, lambda update: lambda name, share: update(share, name)
    ) as told:
        began, price = time.perf_counter(), None
        found = tuple(measure_on(entry, problem, known, **how, progress=told))
        if problem.guardrails is not None:
            how["instances"] = affordable(problem, instances)
            price = price_of_guardrails(entry, problem, **how, progress=told or False)
        own = next(situation for situation in found if situation.name == AS_FITTED)
        best, _ = known_optimum(problem, lambda done: None)
        limit, words = known_bound(problem, best, certify, time.perf_counter() - began)
    return Gain(found, price, Standing.of(own.table, best, words, limit))


def _parts(fit: Any) -> tuple[Problem, Known]:
    """The problem, and what else is known of it."""
    if isinstance(fit, str | Path):
        found = problems.fit_of(str(fit))
        if found is None:
            hint = "gradband fit writes some, unless arms matter"
            raise InputError(f"{fit} has no experiments to measure a gain on: {hint}")
        problem = problems.load(str(fit))
        return problem, stored(*found, problem.prior.rewards)
    held_out = getattr(fit, "held_out", None)
    if not isinstance(held_out, past_experiments.Experiments):
        raise InputError(f"a gain needs what gb.fit returned, or its fitted.toml, not {shown(fit)}")
    if held_out.labels:
        raise InputError("there is no gain to measure where arms matter")
    return fit.problem, Known(fit.others, held_out, fit.unit)


def _numbers(situation: Situation, name: str) -> list[str]:
    """A policy's successes per test and the learned policy's gain over it, with standard errors."""
    reward = situation.reward(name)
    gains = () if name == LEARNED else (situation.gain(name), situation.percent(name))
    texts = [text for value in gains for text in (f"{value.mean:+.3f}", f"{value.se:.3f}")]
    return [f"{reward.mean:.1f}", f"{reward.se:.3f}", *(texts or [""] * 4)]


def _check(situation: Situation, check: Any) -> list[str]:
    holds = {True: "yes", False: "no", None: "too few"}[check.holds]
    came_true = f"{check.real.mean:.2f}", f"{check.real.se:.2f}"
    return [f"{100 * check.share:.0f} %", situation.name, f"{check.promised:.2f}", *came_true, holds]
