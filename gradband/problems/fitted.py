"""A problem from past experiments: a fitted prior, the usual numbers of arms and pulls, and warnings."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from gradband.core import files
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, shown, unknown
from gradband.core.feature_names import FeatureNames
from gradband.core.results import Result, TextTable
from gradband.problems import fitting, revenue
from gradband.problems import past_experiments as past
from gradband.problems.arrival_times import measure_delay
from gradband.problems.delay import Delay
from gradband.problems.design import Design, DesignSettings
from gradband.problems.likelihood import FEW, LIKELIHOODS, Fit, FittedPriors
from gradband.problems.past_experiments import USUAL, Columns, Experiments
from gradband.problems.priors import Prior
from gradband.problems.problem import Problem
from gradband.problems.thinning import FEWEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PRIORS = ("pooled", "hierarchical", "varying", "mixture")
PRIORS_OF_REVENUE = revenue.GAUSSIAN + revenue.ZERO_INFLATED
EXPERIMENTS_FILE = "experiments.safetensors"


class RowSettings(TypedDict, total=False):
    """What `fit` takes about the rows of a table: the fields of `Columns`, and how rows are read."""

    experiment: str
    arm: str
    pulls: str
    successes: str
    reward: str
    mean: str
    variance: str
    decided: str
    rewarded: str
    arms_matter: bool
    drop_bad: bool
    add_up: bool
    context: str | list[str]


class FitSettings(DesignSettings, RowSettings):
    """What `fit` takes about past experiments and about future tests."""


@dataclasses.dataclass(frozen=True)
class FittedProblem(Result):
    """Priors fitted to past experiments, and the design of future tests."""

    experiments: Experiments
    held_out: Experiments
    test: Design
    fits: tuple[Fit, ...]
    """the best first"""
    chosen: Fit
    notes: tuple[str, ...] = ()
    """remarks on the data, and warnings if there is little of it"""
    name: str = ""
    """of the problem"""
    seed: int = 0
    unit: str = ""
    """of the rewards, if they are not 0 and 1"""
    columns: tuple[str, ...] = ()
    """what features are called, in their order, if there are any; the first is always 1"""

    @property
    def problem(self) -> Problem:
        """The problem to learn on: the chosen prior, and the design of future tests."""
        assert self.test.horizon is not None
        return Problem(
            self.chosen.prior,
            self.test.horizon,
            name=self.name,
            pulls_per_round=self.test.pulls_per_round,
            afterwards=self.test.afterwards,
            guardrails=self.test.guardrails,
            delay=self.test.delay,
            features=self.names,
        )

    @property
    def names(self) -> FeatureNames | None:
        """What features are called, if there are any."""
        return FeatureNames(self.columns, getattr(self.experiments, "bases", ())) if self.columns else None

    @property
    def priors(self) -> FittedPriors:
        """All fitted priors with the likelihoods of held-out experiments, the best first."""
        return FittedPriors(self.fits)

    def records(self) -> list[dict[str, Any]]:
        """The table of the priors."""
        return self.priors.records()

    def tables(self) -> list[TextTable]:
        (table,) = self.priors.tables()
        count = f"{len(self.experiments)} experiments fitted, {len(self.held_out)} held out"
        title = f"{self.name}: {count}" if self.name else count
        return [dataclasses.replace(table, title=title, notes="\n".join([*self.notes, self.in_words()]))]

    def in_words(self) -> str:
        """Which prior was chosen, for which tests."""
        test = f"{self.test.arms} arms and {self.test.horizon} pulls"
        return f"Chosen: {self.chosen.name}, for {test}. {LIKELIHOODS}"

    def plot(self, ax: "Axes | None" = None, what: str = "gaps") -> "Axes":
        """Draws past experiments beside what each fitted prior says about them.

        Args:
            ax: Where to draw; new Axes by default.
            what: "gaps" for the difference between the best and the worst arm of an experiment, which shows
                whether a prior knows how much arms differ; or "rates" for the rates of all arms.
        """
        from gradband.problems.fit_figure import draw

        return draw(self, ax, what)

    @property
    def others(self) -> list[Prior]:
        """The fitted priors that were not chosen, the best first."""
        return [entry.prior for entry in self.fits if entry is not self.chosen]

    def __repr__(self) -> str:
        count = f"{len(self.experiments) + len(self.held_out)} experiments"
        numbers = ", ".join(f"{name} {value.mean:.4g}" for name, value in self.chosen.numbers.items())
        size = f"{self.test.arms} arms, {self.test.horizon} pulls"
        return f"FittedProblem({count}, {self.chosen.name}: {numbers}; {size})"

    def as_dict(self) -> dict[str, Any]:
        """The output of `gradband fit --json`."""
        return {
            "experiments": len(self.experiments) + len(self.held_out),
            "held_out": len(self.held_out),
            **self.test.as_dict(),
            "prior": self.chosen.prior.describe() | {"name": self.chosen.name},
            **self.priors.as_dict(),
            "notes": list(self.notes),
            **({"rewards": self.chosen.prior.rewards.describe(), "unit": self.unit} if self.unit else {}),
        }

    def save(self, folder: str | Path) -> dict[str, str]:
        """Writes the problem to `fitted.toml`, and the experiments on which gains are measured beside it.

        Returns the paths of both files. `gradband learn` takes the path of the problem, and so does every
        function that takes a problem.
        """
        folder = Path(folder)
        paths = {"problem": folder / "fitted.toml", "experiments": folder / EXPERIMENTS_FILE}
        past.save(paths["experiments"], {"fitted": self.experiments, "held-out": self.held_out})
        test, others = self.test, [prior.describe() for prior in self.others]
        written = {
            "name": self.name,
            "horizon": test.horizon,
            **({"pulls_per_round": test.pulls_per_round} if test.pulls_per_round > 1 else {}),
            **({"afterwards": test.afterwards} if test.afterwards else {}),
            **test.special(),
            **({"features": self.names.describe()} if self.names else {}),
            "prior": self.chosen.prior.describe(),
            **({"rewards": self.chosen.prior.rewards.describe()} if self.unit or self.columns else {}),
            "fit": {
                "chosen": self.chosen.name,
                "file": EXPERIMENTS_FILE,
                "others": others,
                **({"unit": self.unit} if self.unit else {}),
                **({"context": list(self.columns)} if self.columns else {}),
            },
        }
        files.write_text(paths["problem"], files.toml(written) + "\n")
        return {what: str(path) for what, path in paths.items()}


def fit(
    data: Any,
    *,
    prior: str = "",
    unit: str = "",
    held_out: float = 0.2,
    held_out_last: bool = False,
    seed: int = 0,
    name: str = "",
    progress: Callable[[float, str], None] | bool | None = None,
    **more: Unpack[FitSettings],
) -> FittedProblem:
    """Fits priors to past experiments, and makes a problem of the best one.

    A row is an arm of an experiment with its pulls and successes, or, if there is a column of rewards, a
    single pull. Rewards of any size, such as revenue, have one row per pull as well, or one per arm with
    pulls, mean and variance. A table may also have one row per experiment, with columns for each arm:
    `pulls_A`, `successes_A`, `pulls_B` and so on. Every source gives the same numbers, and the same errors
    with the numbers of invalid rows, counted from 1.

    Args:
        data: A data frame (pandas, Polars, PyArrow, DuckDB or another that narwhals knows), a structured
            array, a dictionary of columns, or the path of a CSV or Parquet file.
        prior: pooled, hierarchical, varying or mixture; for rewards of any size gaussian,
            hierarchical-gaussian, zero-inflated or varying-zero-inflated. By default the best on held-out
            experiments.
        unit: The unit of rewards of any size, such as "€", in which gains are told; "reward" by default.
        held_out: Share of the experiments to hold out.
        held_out_last: Hold out the last experiments, if in order of time, not random ones.
        seed: Determines which experiments are held out.
        name: The problem's name, by default the file's.
        progress: A function of the share that is done and a few words; False shows nothing.
        **more: Columns, rows and the design of future tests, as below.

    Columns, by default named as these arguments:

    - `experiment`, `arm`: The experiment and the arm.
    - `pulls`, `successes`: Counts of an arm.
    - `reward`: Outcomes, one row per pull. If rewards are not from 0 to 1, they are fitted as revenue.
    - `mean`, `variance`: Rewards of any size: mean and variance of an arm's rewards. If there is a column
      of successes, these are the pulls that had any reward, such as buyers.
    - `decided`, `rewarded`: Outcomes: the times of the decision and at which the reward was known, to
      measure how late rewards come. By default nothing is measured.
    - `context`: Several columns with features, a list of names. If an experiment has one row per arm, they
      are the arms'; otherwise rows are an arm's visitors of some kind, and features are theirs. A linear
      prior is fitted to counts (its logistic function) or means, and the problem has contexts.

    Rows, each False by default:

    - `arms_matter`: Arms are the same in every experiment, identified by name.
    - `drop_bad`: Drop invalid rows instead of raising an error.
    - `add_up`: Add up rows of the same experiment and arm, such as daily counts.

    The design of future tests, as in a `Problem`:

    - `arms`, `horizon`: By default as in most experiments, and as many pulls per arm as in the median one.
    - `pulls_per_round` (1), `afterwards` (0), `guardrails` (none), `delay` (none).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rates = rng.beta(30, 70, size=(50, 2)).ravel()
    >>> past = {"experiment": np.repeat(np.arange(50), 2), "arm": ["A", "B"] * 50}
    >>> past |= {"pulls": np.full(100, 400), "successes": rng.binomial(400, rates)}
    >>> found = fit(past, prior="pooled", horizon=500)
    >>> found.problem.arms, round(float(found.chosen.numbers["mean"].mean), 2)
    (2, 0.3)
    """
    for setting in more:
        if setting not in FitSettings.__annotations__:
            raise unknown("argument", setting, [*FitSettings.__annotations__])
    check_prior(prior, more.get("arms_matter", False))
    test = Design(**_only(DesignSettings, more))
    label = name or (Path(data).stem if isinstance(data, str | Path) else "")
    if more.get("context"):
        own = _fit_contexts(data, more, test, held_out, seed, held_out_last, prior)
        return dataclasses.replace(own, name=label, seed=seed, unit=_unit(own.experiments, unit))
    everything = _read(data, more, prior in PRIORS_OF_REVENUE)
    check_rewards(everything, prior, unit)
    if late := _measured(data, more, test):
        test = dataclasses.replace(test, delay=late[0])
        everything = dataclasses.replace(everything, notes=(*everything.notes, late[1]))
    parts = everything.split(held_out, seed, held_out_last)
    test = test.like(everything)
    with progress_bars.follow("fitting", progress, lambda update: update) as report:
        found = fit_problem(*parts, test, prior, everything.notes, report or (lambda share, what: None))
    return dataclasses.replace(found, name=label, seed=seed, unit=_unit(everything, unit))


def _unit(found: Experiments, unit: str) -> str:
    """The unit in which gains are told, if rewards are of any size."""
    return "" if found.variances is None else unit or "reward"


def _fit_contexts(
    data: Any, how: FitSettings, test: Design, held_out: float, seed: int, last: bool, prior: str
) -> FittedProblem:
    """Fits a linear prior to experiments with features, which some settings do not support."""
    from gradband.problems import fitted_contexts

    unused = ("arms_matter", "drop_bad", "add_up", "decided", "rewarded")
    given = [name for name in unused if how.get(name)] + (["prior"] if prior else [])
    if given:
        raise InputError(f"{given[0]} does not work with context: a linear prior is fitted to valid rows")
    return fitted_contexts.fit(
        data, Columns(**_only(Columns, how)), how["context"], test, held_out, seed, last
    )


def _only(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a class has annotations for."""
    return {name: value for name, value in given.items() if name in kind.__annotations__}


def _read(data: Any, how: RowSettings, any_size: bool) -> Experiments:
    """Past experiments, as the settings say."""
    choices = (how.get("arms_matter", False), how.get("drop_bad", False), how.get("add_up", False))
    return past.read(data, Columns(**_only(Columns, how)), *choices, any_size, with_context=True)


def _measured(data: Any, how: RowSettings, test: Design) -> tuple[Delay, str] | None:
    """The delay between two columns of times, and a sentence about it, if these are given."""
    decided, rewarded = how.get("decided", ""), how.get("rewarded", "")
    if not (decided or rewarded):
        return None
    if not (decided and rewarded) or test.delay is not None:
        both = "decided and rewarded (--decided, --rewarded)"
        raise InputError(f"{both} must be given together, and without a delay: they measure it")
    return measure_delay(data, how.get("experiment", USUAL.experiment), decided, rewarded)


def fit_problem(
    fitted: Experiments,
    held_out: Experiments,
    test: Design,
    prior: str = "",
    notes: tuple[str, ...] = (),
    progress: Callable[[float, str], None] = lambda share, name: None,
) -> FittedProblem:
    """Fits all priors, and chooses the one of this name, or the best on experiments held out."""
    assert test.arms is not None
    if fitted.variances is None:
        found = fitting.fit(fitted, held_out, test.arms, progress=progress)
    else:
        found = revenue.fit(fitted, held_out, test.arms, prior, progress)
    chosen = next((entry for entry in found if entry.name == (prior or found[0].name)), None)
    count = len(fitted) + len(held_out)
    if chosen is None:
        raise InputError(f"{count} experiments are too few to fit a {prior} prior")
    notes = (*notes, *warnings(count, len(held_out)))
    return FittedProblem(fitted, held_out, test, tuple(found), chosen, notes)


def check_prior(name: str, arms_matter: bool) -> None:
    """Raises an error for names of priors that are not fitted."""
    if name and arms_matter:
        raise InputError("no prior (--prior) can be chosen if arms matter: each arm has its own")
    if name and name not in PRIORS + PRIORS_OF_REVENUE:
        raise unknown("prior", name, PRIORS + PRIORS_OF_REVENUE)


def check_rewards(found: Experiments, prior: str, unit: str) -> None:
    """Raises an error for what does not apply to rewards of 0 and 1, or only to them."""
    binary = found.variances is None
    if prior and (prior in PRIORS) != binary:
        kinds = ", ".join(PRIORS if binary else PRIORS_OF_REVENUE)
        size = "from 0 to 1" if binary else "of any size"
        raise InputError(f"a {prior} prior is not for rewards {size}: use {kinds}")
    if unit and binary:
        raise InputError(f"a unit such as {shown(unit)} is for rewards of any size: successes have none")
    if found.labels and not binary:
        raise InputError("arms_matter (--arms-matter) needs rewards from 0 to 1")


def warnings(experiments: int, held_out: int) -> list[str]:
    """Warnings if there are few experiments."""
    found = []
    if experiments < FEW:
        found.append(
            f"Warning: {experiments} experiments say little about the next one. Only simple priors were "
            f"fitted, and only roughly; at least {FEW} experiments are needed for more."
        )
    if held_out < FEWEST:
        found.append(
            f"Warning: with {held_out} held out, it is unclear which prior is better and how much a policy "
            f"gains: at least {FEWEST} are needed."
        )
    return found
