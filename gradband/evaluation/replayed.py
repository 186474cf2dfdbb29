"""The result of a replay: what a policy would have gained in past experiments."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core import figures
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.problems.past_experiments import Experiments

if TYPE_CHECKING:
    from matplotlib.axes import Axes


DONE, EQUAL = "what was done", "an equal split"


@dataclasses.dataclass(frozen=True)
class Played:
    """Successes [E] of each experiment, on average over its draws: the policy's and those of two others."""

    pulls: np.ndarray
    ours: np.ndarray
    done: np.ndarray
    equal: np.ndarray

    def base(self, over: str) -> np.ndarray:
        """Successes [E] of `DONE` or `EQUAL`."""
        return {DONE: self.done, EQUAL: self.equal}[over]

    def total(self, over: str) -> Mean:
        """Successes gained in all experiments."""
        gains = self.ours - self.base(over)
        return Mean(float(gains.sum()), len(gains) * Mean.of(gains).se)

    def per_thousand(self, over: str) -> Mean:
        """Successes gained per thousand pulls."""
        return _ratio(1000 * (self.ours - self.base(over)), self.pulls)

    def percent(self, over: str) -> Mean:
        """Successes gained, in percent of those of the other."""
        found = _ratio(self.ours, self.base(over))
        return Mean(100 * (found.mean - 1), 100 * found.se)

    def as_texts(self, name: str, over: str, yearly: Mean | None = None) -> list[str]:
        """A row of a table: the gain in successes, per thousand pulls, in percent and per year."""
        total, percent, each = self.total(over), self.percent(over), self.per_thousand(over)
        low, high = percent.interval
        row = [name, str(len(self.pulls)), f"{total.mean:+.0f} ± {total.se:.0f}"]
        row += [f"{each.mean:+.3f} ± {each.se:.3f}", f"{percent.mean:+.2f} ({low:.2f} … {high:.2f})"]
        return row if yearly is None else [*row, f"{yearly.mean:+.0f} ± {yearly.se:.0f}"]

    def only(self, those: np.ndarray) -> "Played":
        """Some of the experiments."""
        return Played(*(getattr(self, field.name)[those] for field in dataclasses.fields(self)))

    @classmethod
    def join(cls, parts: "list[Played]", places: list[np.ndarray]) -> "Played":
        """Parts of the experiments as one, each at its places."""
        order = np.argsort(np.concatenate(places))
        fields = (field.name for field in dataclasses.fields(cls))
        return cls(*(np.concatenate([getattr(part, name) for part in parts])[order] for name in fields))


def _ratio(above: np.ndarray, below: np.ndarray) -> Mean:
    """A ratio of sums over experiments, with the error of a cluster sample."""
    total = max(float(below.sum()), 1e-30)
    ratio = float(above.sum()) / total
    return Mean(ratio, len(above) * Mean.of(above - ratio * below).se / total)


@dataclasses.dataclass(frozen=True, repr=False)
class Replay(Result):
    """What a policy would have gained in past experiments."""

    experiments: Experiments
    modelled: Played
    """with posterior draws, on as many pulls as there were"""
    real: Played | None
    """without a model, on as many pulls as the least shown arm has, where that is possible"""
    promised: Played | None
    """posterior draws of these shorter tests, to compare with"""
    fitted: np.ndarray | None
    """which of the experiments [E] the prior was fitted to; None if that is unknown"""
    left_out: int = 0
    """experiments with another number of arms than the policy can play"""
    per_year: float | None = None
    """pulls per year"""
    notes: tuple[str, ...] = ()
    """what the replay does not play"""

    @property
    def check(self) -> Mean | None:
        """Promised less real gain over an equal split, per thousand pulls of the shorter tests."""
        if self.real is None or self.promised is None:
            return None
        gains = (self.promised.ours - self.promised.equal) - (self.real.ours - self.real.equal)
        return _ratio(1000 * gains, self.real.pulls)

    def yearly(self, over: str) -> Mean | None:
        """Successes gained per year."""
        if self.per_year is None:
            return None
        gain, scale = self.modelled.per_thousand(over), self.per_year / 1000
        return Mean(scale * gain.mean, scale * gain.se)

    def by_arms(self) -> dict[int, Played]:
        """The experiments of each number of arms, if there are at least two."""
        sizes = self.experiments.sizes
        counts = {int(arms): sizes == arms for arms in np.unique(sizes)}
        return {arms: self.modelled.only(those) for arms, those in counts.items() if those.sum() > 1}

    def records(self) -> list[dict[str, Any]]:
        """A row for each experiment."""
        found, names = self.modelled, self.experiments.names
        return [
            {
                "experiment": names[place] if names else str(place),
                "arms": int(self.experiments.sizes[place]),
                "pulls": int(found.pulls[place]),
                "policy": float(found.ours[place]),
                "done": float(found.done[place]),
                "equal_split": float(found.equal[place]),
                "gain_over_done": float(found.ours[place] - found.done[place]),
                "gain_over_equal_split": float(found.ours[place] - found.equal[place]),
                "fitted": None if self.fitted is None else bool(self.fitted[place]),
            }
            for place in range(len(self.experiments))
        ]

    def as_dict(self) -> dict[str, Any]:
        """The output of `gradband replay --json`."""
        check = self.check
        return {
            "experiments": len(self.experiments),
            "left_out": self.left_out,
            "fitted": None if self.fitted is None else int(self.fitted.sum()),
            "pulls": float(self.modelled.pulls.sum()),
            "per_year": self.per_year,
            "modelled": {over: self._summary(self.modelled, over) for over in (DONE, EQUAL)},
            "without_model": None
            if self.real is None
            else {over: self._summary(self.real, over) for over in (DONE, EQUAL)}
            | {"experiments": len(self.real.pulls), "promised_less_real": check and vars(check)},
            "tests": self.records(),
        }

    def _summary(self, found: Played, over: str) -> dict[str, Any]:
        yearly = self.yearly(over) if found is self.modelled else None
        named = {
            "successes": found.total(over),
            "per_thousand_pulls": found.per_thousand(over),
            "percent": found.percent(over),
            "per_year": yearly,
        }
        return {name: value and with_interval(value) for name, value in named.items()}

    def in_words(self) -> str:
        """The result in a few sentences, with what it cannot say."""
        found, words = self.modelled, []
        percent, total = found.percent(DONE), found.total(DONE)
        low, high = percent.interval
        told = f"{total.mean:+.0f} ± {total.se:.0f} successes in {len(self.experiments)} experiments"
        yearly = self.yearly(DONE)
        if yearly is not None:
            first, last = yearly.interval
            told += f", {yearly.mean:+.0f} per year (95 %: {first:.0f} to {last:.0f})"
        words.append(
            f"Over what was done, the policy would have gained {percent.mean:+.2f} % "
            f"(95 %: {low:.2f} to {high:.2f}): {told}."
        )
        if self.left_out:
            words.append(f"{self.left_out} others are left out: it cannot play their number of arms.")
        if self.fitted is None:
            words.append("Whether the prior was fitted to these experiments is unknown.")
        elif self.fitted.any():
            words.append(
                f"The prior was fitted to {int(self.fitted.sum())} of these experiments, which are not "
                "fresh: the gain in new ones may be smaller."
            )
        return " ".join([*words, *self._check_in_words(), *self.notes])

    def tables(self) -> list[TextTable]:
        """Gains in all experiments, and by their number of arms."""
        columns = ["gain over", "tests", "successes", "per 1000 pulls", "percent (95 %)"]
        yearly = [] if self.per_year is None else ["per year"]
        rows = [self.modelled.as_texts(over, over, self.yearly(over)) for over in (DONE, EQUAL)]
        if self.real is not None:
            shorter = self.real.as_texts("equal split, no model, shorter", EQUAL)
            rows.append(shorter + [""] * len(yearly))
        parts = [part.as_texts(f"{arms} arms", DONE) for arms, part in self.by_arms().items()]
        title = f"{len(self.experiments)} past experiments: what the policy would have gained"
        return [
            TextTable(title, columns + yearly, rows),
            TextTable(
                "Over what was done, by number of arms", ["arms", *columns[1:]], parts, self.in_words()
            ),
        ]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the gain over what was done in percent, by number of arms, with standard errors.

        Args:
            ax: Where to draw; new Axes by default.
        """
        parts = {"all": self.modelled} | {f"{arms} arms": part for arms, part in self.by_arms().items()}
        gains = [part.percent(DONE) for part in parts.values()]
        axes = figures.axes_for(ax, (7.5, figures.height_of_bars(len(gains))))
        figures.points(axes, [*parts], [g.mean for g in gains], [g.se for g in gains], color="C0")
        axes.axvline(0, color="0.5", linewidth=1, linestyle=":")
        axes.set(xlabel="successes gained over what was done, percent ± se", title="Past experiments")
        return axes

    def _check_in_words(self) -> list[str]:
        check = self.check
        if check is None or self.real is None or self.promised is None:
            return ["No experiment has enough pulls of every arm for a replay without a model."]
        real, promised = self.real.per_thousand(EQUAL), self.promised.per_thousand(EQUAL)
        agrees = "agrees" if abs(check.mean) <= 2 * check.se else "does not agree"
        return [
            f"Without a model, on {len(self.real.pulls)} shorter tests, it gains {real.mean:+.3f} ± "
            f"{real.se:.3f} per thousand pulls over an equal split; the model says {promised.mean:+.3f}, "
            f"which {agrees}."
        ]

    def __repr__(self) -> str:
        percent = self.modelled.percent(DONE)
        return f"Replay({len(self.experiments)} experiments: {percent.mean:+.2f} ± {percent.se:.2f} %)"


def with_interval(value: Mean) -> dict[str, Any]:
    return vars(value) | {"interval": list(value.interval)}
