"""What a policy would have gained in past experiments, each with its own arms and pulls.

Twice, since each way has a weakness of its own:

with a model     The means of an experiment's arms are drawn from their posterior, given its counts and a
                 fitted prior, which shrinks observed rates. The policy plays as many pulls as there were.
without a model  An experiment's own pulls come again, drawn without replacement. That is a real test, but a
                 shorter one: it has as many pulls as the experiment's least shown arm, so that the policy
                 may show any arm as often as it likes.
"""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband import problems
from gradband.core import figures
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, positive, whole
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.evaluation import compare_with_defaults
from gradband.evaluation.outside_results import Urns, from_rates, play
from gradband.policies import Policy
from gradband.policies.given import Given, WithParams, resolve
from gradband.problems import frames, priors, shrinkage
from gradband.problems import past_experiments as past
from gradband.problems.past_experiments import Experiments

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DONE, EQUAL = "what was done", "an equal split"
MOST_ROUNDS = 200  # of a test; a longer one has larger batches
PLAYED = 16_000  # tests in all, at least two per experiment and at most MOST_DRAWS
MOST_DRAWS = 200
SHORTEST = timedelta(days=28)  # between the first date and the last, to say anything about a year


def rounds_of(totals: np.ndarray, pulls_per_round: int) -> np.ndarray:
    """Pulls [R, N] of each round, for tests with so many pulls in all [N], equal up to one.

    >>> rounds_of(np.array([250, 100]), 100).tolist()
    [[84, 100], [83, 0], [83, 0]]
    """
    rounds = np.clip(-(-totals // pulls_per_round), 1, MOST_ROUNDS)
    number = np.arange(rounds.max())[:, None]
    return np.where(number < rounds, totals // rounds + (number < totals % rounds), 0)


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


def replay(
    data: Any,
    policy: Given,
    problem: Any = None,
    *,
    fresh_only: bool = False,
    pulls_per_round: int | None = None,
    per_year: float | None = None,
    seed: int = 0,
    **how: Any,
) -> Replay:
    """What a policy would have gained in past experiments, over what was done and over an equal split.

    An index network, SoftElim and other policies that score each arm by itself play every experiment; a
    policy that was learned for one number of arms plays those with as many.

    Args:
        data: Past experiments, in any form that `fit` takes.
        policy: A policy with probabilities: a learned one, a name or a policy file.
        problem: A fit, or the `fitted.toml` of one, whose prior shrinks observed rates; by default the one
            that the policy was learned on.
        fresh_only: Leave out experiments that the prior was fitted to.
        pulls_per_round: Pulls that are decided before their results are seen; by default the problem's. A
            test has at most 200 rounds; longer ones have larger batches.
        per_year: Pulls per year, to say what the gain is per year.
        seed: Determines all draws.
        **how: `draws` of each experiment; `date`, a column with the days of the experiments, in place of
            `per_year`; `progress`, a function of the share that is done and a few words (False shows
            nothing); and what `fit` takes to read data: `experiment`, `arm`, `pulls`, `successes`,
            `reward`, `drop_bad` and `add_up`.
    """
    date, draws, progress = (how.pop(name, None) for name in ("date", "draws", "progress"))
    found = data if isinstance(data, Experiments) else _read(data, how)
    entry = resolve(policy)
    task, candidates, known = _fit_of(problem, entry)
    size = whole("pulls_per_round", task.pulls_per_round if pulls_per_round is None else pulls_per_round)
    if date is not None:
        per_year = _pulls_per_year(data, date, found)
    elif per_year is not None:
        positive("per_year", per_year)
    fitted = None if known is None else _are_among(found, known)
    if fresh_only:
        if fitted is None:
            raise InputError("fresh_only needs a fit, which says what the prior was fitted to")
        found, fitted = found.only(np.flatnonzero(~fitted)), np.zeros((~fitted).sum(), bool)
    playable = np.flatnonzero(can_play(entry, found.sizes))
    if len(playable) < 2:
        raise InputError(f"{len(playable)} experiments can be replayed: at least 2 are needed")
    left_out, found = len(found) - len(playable), found.only(playable)
    times = draws or int(np.clip(PLAYED // len(found), 2, MOST_DRAWS))
    prior = shrinkage.likeliest(candidates, found)
    with progress_bars.follow("replaying", progress, lambda update: update) as report:
        trial = Trial(entry, prior, size, whole("draws", times), seed, report or (lambda share, what: None))
        totals = np.add.reduceat(found.pulls, found.starts[:-1]).astype(np.int64)
        modelled = trial.by_arms(found, totals, real=False)
        least = np.minimum.reduceat(found.pulls, found.starts[:-1]).astype(np.int64)
        long = np.flatnonzero(least >= 2 * found.sizes)
        counted = not ((found.successes % 1).any() or (found.pulls % 1).any())
        real = promised = None
        if len(long) > 1 and counted:
            shorter, lengths = found.only(long), least[long]
            real, promised = (trial.by_arms(shorter, lengths, real=way) for way in (True, False))
    marks = None if fitted is None else fitted[playable]
    return Replay(found, modelled, real, promised, marks, left_out, per_year, _not_played(task))


@dataclasses.dataclass(frozen=True)
class Trial:
    """How a policy plays past experiments."""

    entry: Any
    prior: priors.Prior
    pulls_per_round: int
    draws: int
    seed: int = 0
    report: Callable[[float, str], None] = lambda share, what: None

    def by_arms(self, found: Experiments, lengths: np.ndarray, real: bool) -> Played:
        """Tests of these lengths [E] on experiments, those with as many arms together."""
        parts: list[Played] = []
        places: list[np.ndarray] = []
        for arms in np.unique(found.sizes):
            self.report(float((found.sizes < arms).mean()), f"{arms} arms")
            places.append(np.flatnonzero(found.sizes == arms))
            parts.append(self.alike(found.only(places[-1]), lengths[places[-1]], real))
        return Played.join(parts, places)

    def alike(self, found: Experiments, lengths: np.ndarray, real: bool) -> Played:
        """The same for experiments with as many arms: their own pulls if `real`, else posterior draws."""
        count, arms = len(found), int(found.sizes[0])
        many = found.only(np.tile(np.arange(count), self.draws))
        pulls = many.pulls.reshape(-1, arms)
        batches = rounds_of(np.tile(lengths, self.draws), self.pulls_per_round)
        ours, rates = self._play(many, batches, real)
        done = batches.sum(0) * (pulls * rates).sum(1) / pulls.sum(1)
        equal = batches.sum(0) * rates.mean(1)
        means = (x.reshape(self.draws, count).mean(0) for x in (ours, done, equal))
        return Played(lengths.astype(float), *means)

    def _play(self, many: Experiments, batches: np.ndarray, real: bool) -> tuple[np.ndarray, np.ndarray]:
        """Successes [N] of the policy, expected ones if they are modelled, and the arms' rates [N, K]."""
        arms = int(many.sizes[0])
        pulls, wins = (x.reshape(-1, arms).astype(np.int64) for x in (many.pulls, many.successes))
        if real:
            urns = Urns(pulls, wins, self.seed + 1)
            play(self.entry, batches, arms, urns, self.seed)
            return urns.total, wins / pulls
        components = shrinkage.Components.of(self.prior)
        rates = components.means(components.edges(many), many, np.random.default_rng([self.seed, arms]))
        shown = play(self.entry, batches, arms, from_rates(rates, self.seed + 2), self.seed)
        return (shown * rates).sum(1), rates


def can_play(entry: Any, sizes: np.ndarray) -> np.ndarray:
    """Which numbers of arms [E] a policy can play, or an error if it has no probabilities."""
    policy: Policy = entry.policy if isinstance(entry, WithParams) else entry
    if not policy.differentiable or not policy.batches or policy.bounded:
        raise InputError(
            f"{policy.name} cannot be replayed: that takes a policy with probabilities for any number of "
            "pulls, such as index, softelim or kl-softelim"
        )
    if policy.flexible or not policy.arms:
        return np.ones(len(sizes), bool)
    return sizes == policy.arms


def _not_played(task: problems.Problem) -> tuple[str, ...]:
    """What a problem has that past experiments cannot show."""
    found = []
    if task.delay is not None:
        found.append("Rewards are taken to come at once, although the problem has a delay.")
    if task.guardrails is not None:
        found.append("The problem's guardrails are not applied.")
    return tuple(found)


def _read(data: Any, how: dict[str, Any]) -> Experiments:
    names = [field.name for field in dataclasses.fields(past.Columns)]
    columns = past.Columns(**{name: how.pop(name) for name in names if name in how})
    drop, add_up = how.pop("drop_bad", False), how.pop("add_up", False)
    if how:
        raise InputError(f"replay does not take {', '.join(how)}")
    found = past.read(data, columns, drop=drop, add_up=add_up)
    if found.variances is not None:
        raise InputError("a replay needs rewards from 0 to 1, and these are of any size")
    return found


def _fit_of(problem: Any, entry: Any) -> tuple[problems.Problem, list[priors.Prior], Experiments | None]:
    """The problem of a fit, its priors, and the experiments that it was fitted to, if they are known."""
    about = entry.about if hasattr(entry, "about") else {}
    source: Any = problem if problem is not None else about.get("source")
    known: Experiments | None = None
    if hasattr(source, "experiments"):
        task, others, known = source.problem, list(source.others), source.experiments
    elif isinstance(source, str | Path) and Path(source).is_file():
        task, others, fit = problems.load(str(source)), [], problems.fit_of(str(source))
        if fit is not None:
            others = compare_with_defaults.other_priors(*fit, task.prior.rewards)
            known = past.load(fit[1] / fit[0]["file"], "fitted")
    elif problem is None and "problem" in about:
        task, others = problems.parse(about["problem"]), []
    else:
        raise InputError("replay needs the prior of a fit: give its fitted.toml (--problem)")
    usable = [prior for prior in (task.prior, *others) if shrinkage.shrinks(prior)]
    if not usable:
        raise InputError(
            f"a {task.prior.kind} prior has no posterior to draw past experiments from: give the "
            "fitted.toml of gradband fit (--problem)"
        )
    return task, usable, known


def _are_among(found: Experiments, known: Experiments) -> np.ndarray:
    """Which experiments [E] are among the known ones, by their counts."""

    def keys(given: Experiments) -> list[bytes]:
        pairs = np.stack([given.pulls, given.successes], axis=1)
        return [part.tobytes() for part in np.split(pairs, given.starts[1:-1])]

    there = set(keys(known))
    return np.array([key in there for key in keys(found)])


def _pulls_per_year(data: Any, date: str, found: Experiments) -> float:
    """Pulls per year, from the first day to the last in a column of dates."""
    import polars

    source = frames.find(data, (date,))
    if date not in source.columns:
        raise InputError(f"{source.name} has no column {date!r}: it has {', '.join(source.columns[:20])}")
    column = source.take([date])[date]
    if column.dtype == polars.String:
        column = column.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)
    if not column.dtype.is_temporal() or column.null_count():
        raise InputError(f"the column {date!r} must have a date in every row, as 2026-01-31")
    days: Any = column.cast(polars.Date)
    span = days.max() - days.min()
    if span < SHORTEST:
        raise InputError(
            f"the dates in {date!r} span {span.days} days: to say anything about a year, it takes "
            f"{SHORTEST.days}; give the pulls per year instead (--per-year)"
        )
    return float(found.pulls.sum()) * 365.25 / (span.days + 1)
