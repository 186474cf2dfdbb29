"""Problems: a prior and a horizon. The paper's by name, others from a TOML file (docs/problems.md)."""

import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jax import Array

from gradband import files, priors, random, rewards
from gradband.errors import InputError, number_of_arms, shown, unknown, whole
from gradband.priors import Instance, Prior
from gradband.pytrees import pytree
from gradband.tables import read_table

LARGEST_FILE = 1 << 24  # bytes of a problem file
NOISES = ("shared", "independent")
OPTIONAL = ("batch", "afterwards")
KINDS = ("finite", "beta", "gaussian", "hierarchical", "mixture", "table")


@pytree("prior", dropped=("name",))
@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Instances from `prior`, each played for `horizon` rounds.

    With `noise="shared"` one draw a round serves all arms. A policy sees only the arm it pulls, so
    its reward and gradient have the same law as with `noise="independent"`, the paper's setting;
    differences between two runs on an instance are less noisy.

    With a `batch` of B, decisions are served in groups: a policy fixes its probabilities for the next B
    pulls, and sees their results together. The horizon counts pulls, and there are n / B rounds.

    `afterwards` is how many more pulls the arm gets that the policy recommends after the last round (by
    its `recommend`). They count in rewards, regrets, gradients and optima, and nothing is learned from
    them: the visitors who see the winner of a test once it has ended.

    >>> Problem(priors.Beta(arms=10), horizon=1000).arms
    10
    """

    prior: Prior
    horizon: int
    noise: str = "shared"
    name: str = ""
    batch: int = 1
    afterwards: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", whole("horizon", self.horizon))
        if not isinstance(self.prior, Prior):
            raise InputError(f"a problem's prior must be a Prior, not {shown(self.prior)}")
        if not isinstance(self.prior.rewards, rewards.Reward):
            raise InputError(f"a prior's rewards must be a Reward, not {shown(self.prior.rewards)}")
        if self.noise not in NOISES:
            raise unknown("noise", self.noise, NOISES)
        self.prior.check_horizon(self.horizon)
        object.__setattr__(self, "batch", whole("batch", self.batch))
        object.__setattr__(self, "afterwards", whole("afterwards", self.afterwards, least=0))
        if self.afterwards and not self.prior.knows_means:
            raise InputError("what comes afterwards is counted by means, which this prior does not know")
        if self.horizon % self.batch:
            raise InputError(
                f"the horizon counts pulls: {self.horizon} of them are not whole batches of {self.batch}"
            )
        priors.check_draws(self.prior, self.horizon)
        if self.batch > 1 and not isinstance(self.prior.rewards, rewards.Bernoulli):
            raise InputError(f"batches need bernoulli rewards, not {self.prior.rewards.kind} ones")

    @property
    def rounds(self) -> int:
        """How often the policy decides."""
        return self.horizon // self.batch

    @property
    def pulls(self) -> int:
        """All pulls that count: those of the horizon, and those afterwards."""
        return self.horizon + self.afterwards

    @property
    def arms(self) -> int:
        return self.prior.arms

    @property
    def unit(self) -> bool:
        """Whether all rewards lie in [0, 1]."""
        return self.prior.unit

    def one_by_one(self, what: str) -> None:
        """Refuses what needs every reward at once, if they come in batches."""
        if self.batch > 1:
            raise InputError(f"{what} needs to see every reward at once, not in batches of {self.batch}")

    def reward(self, key: Array, instance: Instance, arm: Array, t: Array) -> Array:
        """The reward Y[arm, t] of an instance; the key is the round's."""
        if self.noise == "independent":
            key = random.fold_in(key, arm)
        return self.prior.reward(key, instance, arm, t)

    def replace(self, **changes: Any) -> "Problem":
        """The same problem with another horizon, noise, prior or name."""
        return dataclasses.replace(self, **changes)

    def fresh(self) -> "Problem":
        """The problem on instances that were not trained on."""
        return self.replace(prior=self.prior.fresh())

    def describe(self) -> dict[str, Any]:
        """The problem as a problem file would say it."""
        return {
            "name": self.name,
            "horizon": self.horizon,
            "noise": self.noise,
            "prior": self.prior.describe(),
            "rewards": self.prior.rewards.describe(),
            **({"batch": self.batch} if self.batch > 1 else {}),
            **({"afterwards": self.afterwards} if self.afterwards else {}),
        }


def two_point(arms: int = 2) -> Prior:
    """Means (.6, .4) or (.4, .6), equally likely (Sections 5.1 and 5.2)."""
    if arms != 2:
        raise InputError(f"the problem two-point has 2 arms, not {arms}")
    return priors.Finite([[0.6, 0.4], [0.4, 0.6]])


def distractors(arms: int = 3) -> Prior:
    """Means (.6, .9, .7, .7, …) or (.2, .7, .9, .7, …), equally likely (Section 5.4)."""
    if arms < 3:
        raise InputError(f"the problem distractors has at least 3 arms, not {arms}")
    rest = [0.7] * (arms - 3)
    return priors.Finite([[0.6, 0.9, 0.7, *rest], [0.2, 0.7, 0.9, *rest]])


def uniform_2(arms: int = 2) -> Prior:
    """Bernoulli arms with means from Beta(1, 1) (Section 5.4)."""
    return priors.Beta(arms)


def bernoulli_10(arms: int = 10) -> Prior:
    """Bernoulli arms with means from Beta(1, 1) (Section 5.3)."""
    return priors.Beta(arms)


def beta_10(arms: int = 10) -> Prior:
    """Means from Beta(1, 1), rewards Beta(4μ, 4(1 − μ)) (Section 5.3)."""
    return priors.Beta(arms, rewards=rewards.Beta(4.0))


NAMED: dict[str, tuple[Callable[..., Prior], int]] = {
    "two-point": (two_point, 200),
    "uniform-2": (uniform_2, 200),
    "bernoulli-10": (bernoulli_10, 1000),
    "beta-10": (beta_10, 1000),
    "distractors": (distractors, 200),
}


def named(name: str, arms: int | None = None, horizon: int | None = None) -> Problem:
    """One of the paper's problems, with another number of arms or another horizon if given.

    >>> named("bernoulli-10").horizon
    1000
    """
    if name not in NAMED:
        raise unknown("problem", name, NAMED)
    make, usual = NAMED[name]
    prior = make() if arms is None else make(number_of_arms(arms))
    return Problem(prior, usual if horizon is None else horizon, name=name)


def load(source: str, arms: int | None = None, horizon: int | None = None) -> Problem:
    """A problem by its name or from a TOML file."""
    path = Path(source)
    if path.suffix != ".toml":
        if source not in NAMED:
            raise unknown("problem", source, [*NAMED, "FILE.toml"])
        return named(source, arms, horizon)
    try:
        given = tomllib.loads(files.read(path, LARGEST_FILE).decode("utf-8"))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    try:
        problem = parse(given, path.parent, arms)
        return problem if horizon is None else problem.replace(horizon=horizon)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def fit_of(source: str) -> tuple[dict[str, Any], Path] | None:
    """What `gradband fit` wrote of other priors into a problem file, and its folder, if it did.

    Where arms matter there are no others, and experiments can't be drawn again with any arm for another.
    """
    path = Path(source)
    if path.suffix != ".toml":
        return None
    fit = tomllib.loads(files.read(path, LARGEST_FILE).decode("utf-8")).get("fit")
    if fit is None or (isinstance(fit, dict) and fit.get("chosen") == "by arm"):
        return None
    if not isinstance(fit, dict) or not isinstance(fit.get("others"), list):
        raise InputError(f"{path}: fit must be as gradband fit wrote it")
    _beside(fit.get("file"), path.parent)
    return fit, path.parent


def as_problem(given: object) -> Problem:
    """A problem, or the one of this name or file; an error for anything else."""
    if isinstance(given, str | Path):
        return load(str(given))
    if isinstance(given, Problem):
        return given
    raise InputError(f"a problem must be a Problem, a name or a TOML file, not {shown(given)}")


def parse(given: dict[str, Any], folder: Path | None = None, arms: int | None = None) -> Problem:
    """A problem from what a problem file says; tables are read from inside `folder`."""
    if not isinstance(given, dict):
        raise InputError(f"a problem must be a dictionary, not {shown(given)}")
    _keys("", given, required=("horizon", "prior"), optional=("name", "noise", "rewards", *OPTIONAL, "fit"))
    prior = dict(_table("prior", given["prior"]))
    kind = prior.pop("kind", None)
    if kind == "resampled":
        raise InputError(
            "the prior kind 'resampled' is gone, since it made arms differ too much: run gradband fit again"
        )
    if kind not in KINDS:
        raise unknown("prior.kind", kind, KINDS)
    if arms is not None:
        if kind in ("finite", "table"):
            raise InputError(f"the number of arms of a {kind} prior is fixed by its entries")
        prior["arms"] = number_of_arms(arms)
    pays = {"rewards": _reward(given["rewards"])} if "rewards" in given else {}
    name = given.get("name", "")
    if not isinstance(name, str):
        raise InputError(f"name must be a string, not {shown(name)}")
    return Problem(
        _prior(kind, prior, pays, folder),
        given["horizon"],
        noise=given.get("noise", "shared"),
        name=name,
        **{key: given[key] for key in OPTIONAL if key in given},
    )


def _prior(kind: str, given: dict[str, Any], pays: dict[str, Any], folder: Path | None) -> Prior:
    if kind == "finite":
        _keys("prior.", given, required=("means",), optional=("weights",))
        return priors.Finite(given["means"], given.get("weights"), **pays)
    if kind == "beta":
        _keys("prior.", given, required=("arms",), optional=("a", "b"))
        return priors.Beta(**given, **pays)
    if kind == "gaussian":
        _keys("prior.", given, required=("arms",), optional=("mean", "sd"))
        return priors.Gaussian(**given, **pays)
    if kind == "hierarchical":
        _keys("prior.", given, required=("arms", "a", "b", "strength"), optional=("spread", "slope"))
        return priors.Hierarchical(**given, **pays)
    if kind == "mixture":
        _keys("prior.", given, required=("arms", "weights", "a", "b"))
        return priors.Mixture(**given, **pays)
    _keys("prior.", given, required=("file",), optional=("held_out", "checksum"))
    if pays:
        raise InputError("a table prior holds its own rewards: remove [rewards]")
    table = read_table(_beside(given["file"], folder))
    return _unchanged(priors.Table(table, given.get("held_out", 0.2), file=given["file"]), given)


def _unchanged(prior: priors.Table, given: dict[str, Any]) -> Prior:
    """The prior, if it has the checksum that is given, or none is."""
    if given.get("checksum", prior.checksum) != prior.checksum:
        raise InputError(
            f"{prior.file} has changed: its checksum is {prior.checksum}, not {shown(given['checksum'])}"
        )
    return prior


def _beside(file: Any, folder: Path | None) -> Path:
    """The path of a file that a problem file names, inside its folder."""
    if not isinstance(file, str) or not file or folder is None:
        raise InputError(f"prior.file must be the path of a file, not {shown(file)}")
    try:
        path = (folder / file).resolve()
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"prior.file can't be read, {shown(file)}: {error}") from None
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"prior.file must lie in the problem file's folder, which {file} does not")
    return path


def _reward(given: Any) -> rewards.Reward:
    entries = dict(_table("rewards", given))
    kind = entries.pop("kind", None)
    if not isinstance(kind, str) or kind not in rewards.REWARDS:
        raise unknown("rewards.kind", kind, rewards.REWARDS)
    law = rewards.REWARDS[kind]
    _keys("rewards.", entries, optional=tuple(f.name for f in dataclasses.fields(law)))
    return law(**entries)


def _table(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{key} must be a table, [{key}], not {shown(value)}")
    return value


def _keys(
    prefix: str,
    given: dict[str, Any],
    required: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
) -> None:
    for key in given:
        if key not in required + optional:
            raise unknown("key", f"{prefix}{key}", [prefix + name for name in required + optional])
    for key in required:
        if key not in given:
            raise InputError(f"the key '{prefix}{key}' is missing")
