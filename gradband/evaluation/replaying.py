"""What a policy would have gained in past experiments, each with its own arms and pulls.

In two ways, since each has its own weakness:

with a model     The means of an experiment's arms are drawn from their posterior, given its counts and a
                 fitted prior, which shrinks observed rates. The policy plays as many pulls as there were.
without a model  The experiment's own pulls are replayed, drawn without replacement. That is a real test,
                 but a shorter one: it has as many pulls as the experiment's least pulled arm, so that the
                 policy may pull any arm as often as it likes.
"""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband import problems
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, positive, whole
from gradband.evaluation import compare_with_defaults
from gradband.evaluation.outside_results import Urns, from_rates, play
from gradband.evaluation.replayed import Played, Replay
from gradband.policies import Policy
from gradband.policies.given import Given, WithParams, resolve
from gradband.problems import frames, priors, shrinkage
from gradband.problems import past_experiments as past
from gradband.problems.past_experiments import Experiments

if TYPE_CHECKING:
    pass

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
    policy that was learned for one number of arms plays those with that number.

    Args:
        data: Past experiments, in any form that `fit` takes.
        policy: A policy with probabilities: a learned one, a name or a policy file.
        problem: A fit, or the `fitted.toml` of one, whose prior shrinks observed rates; by default the one
            that the policy was learned on.
        fresh_only: Leave out experiments that the prior was fitted to.
        pulls_per_round: Pulls decided before their results are observed; by default the problem's. A test
            has at most 200 rounds; longer ones have larger batches.
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
            f"{policy.name} cannot be replayed: a replay needs a policy with probabilities for any number "
            "of pulls, such as index, softelim or kl-softelim"
        )
    if policy.flexible or not policy.arms:
        return np.ones(len(sizes), bool)
    return sizes == policy.arms


def _not_played(task: problems.Problem) -> tuple[str, ...]:
    """What a problem has that past experiments cannot show."""
    found = []
    if task.delay is not None:
        found.append("Rewards are assumed to arrive at once, although the problem has a delay.")
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
        raise InputError("a replay needs rewards from 0 to 1, but these are of any size")
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
            known = compare_with_defaults.load_part(*fit, "fitted")
    elif problem is None and "problem" in about:
        task, others = problems.parse(about["problem"]), []
    else:
        raise InputError("replay needs the prior of a fit: give its fitted.toml (--problem)")
    if task.prior.contextual:
        raise InputError("a replay knows no features: gain measures a policy on held-out experiments")
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
            f"the dates in {date!r} span {span.days} days, but {SHORTEST.days} are needed to say anything "
            "about a year: give the pulls per year instead (--per-year)"
        )
    return float(found.pulls.sum()) * 365.25 / (span.days + 1)
