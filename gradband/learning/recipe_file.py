"""Recipes from TOML files (docs/recipes.md), which change fields of another recipe."""

import dataclasses
import functools
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import optax

from gradband.core import files
from gradband.core.errors import InputError, flag, number, positive, shown, unknown, whole
from gradband.gradient.estimator import Estimator
from gradband.gradient.objective import parse_objective
from gradband.learning import recipes
from gradband.learning.ascent import SCALES
from gradband.learning.recipes import Recipe
from gradband.policies import Policy

LARGEST_FILE = 1 << 20  # bytes of a recipe file
OPTIMIZERS = ("adabelief", "adagrad", "adam", "adamw", "lamb", "lion", "nadam", "rmsprop", "sgd", "yogi")
STAGES = {  # the keys that apply to a part of learning
    "imitating": ("iterations", "instances", "most", "optimizer"),
    "tuning": ("iterations", "instances", "most", "estimator", "optimizer", "temperature", "entropy"),
}
KEYS = ("base", *(field.name for field in dataclasses.fields(Recipe)))


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An Optax optimiser by name, with its step sizes, for a recipe."""

    name: str = "adam"
    learning_rate: float = 1e-3
    decay: float = 1.0  # factor on the learning rate after each iteration
    cosine: bool = False  # whether steps decrease along a cosine to almost nothing
    warm: float = 0.0  # with `cosine`: share of the iterations in which steps grow to the learning rate
    fall: float = 0.0  # with `cosine`: steps are smaller by (20/n)^fall at horizons n above 20
    clip: float | None = None  # norm at which gradients are clipped

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise unknown("optimizer", self.name, ["paper", *OPTIMIZERS])
        number("optimizer.learning_rate", self.learning_rate, 0, 1e6)
        number("optimizer.decay", self.decay, 1e-6, 1)
        number("optimizer.warm", self.warm, 0, 1)
        number("optimizer.fall", self.fall, 0, 10)
        if self.clip is not None:
            number("optimizer.clip", self.clip, 1e-30)
        if flag("optimizer.cosine", self.cosine) and self.decay != 1:
            raise InputError("an optimizer has decay or cosine, not both")
        if not self.cosine and (self.warm or self.fall):
            raise InputError("optimizer.warm and optimizer.fall need cosine = true")

    @property
    def words(self) -> str:
        """All fields on one line, by which a checkpoint is compared."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self))

    def __call__(self, iterations: int, horizon: int) -> optax.GradientTransformation:
        return _made(self, iterations, horizon)


@functools.lru_cache(maxsize=64)  # so that steps are compiled once
def _made(how: Optimizer, iterations: int, horizon: int) -> optax.GradientTransformation:
    schedule: Any = how.learning_rate
    if how.cosine:
        schedule = recipes.sizes(iterations, horizon, how.learning_rate, how.fall, how.warm)
    elif how.decay != 1:
        schedule = optax.exponential_decay(how.learning_rate, 1, how.decay)
    found = getattr(optax, how.name)(schedule)
    return found if how.clip is None else optax.chain(optax.clip_by_global_norm(how.clip), found)


def load_recipe(path: str | Path, policy: Policy) -> Recipe:
    """The recipe in a file. What it does not set comes from its `base`, or the policy's usual recipe."""
    try:
        given = tomllib.loads(files.read(path, LARGEST_FILE).decode("utf-8"))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    try:
        return parse_recipe(given, policy, Path(path).stem)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def parse_recipe(given: dict[str, Any], policy: Policy, name: str = "mine") -> Recipe:
    """A recipe for a policy from the content of a recipe file.

    >>> from gradband.policies import SoftElim
    >>> parse_recipe({"iterations": 7, "estimator": {"baseline": "none"}}, SoftElim()).estimator
    Estimator(baseline='none', rollouts=1, returns='realised', objective='mean')
    """
    _table("", given, KEYS)
    base = given.get("base")
    if base is not None and (not isinstance(base, str) or base not in recipes.RECIPES):
        raise unknown("base", base, recipes.RECIPES)
    usual = recipes.choose(policy, base)
    changes = _changes("", {k: v for k, v in given.items() if k not in ("base", *STAGES)}, usual, policy)
    for stage in STAGES.keys() & given.keys():
        found = _table(stage, given[stage], STAGES[stage])
        own = getattr(usual, stage) or dataclasses.replace(usual, imitating=None, tuning=None)
        changes[stage] = dataclasses.replace(own, **_changes(f"{stage}.", found, own, policy))
    return dataclasses.replace(usual, **{"name": name, **changes})


def _changes(prefix: str, given: dict[str, Any], usual: Recipe, policy: Policy) -> dict[str, Any]:
    """The fields that a table sets, checked."""
    changes = {key: _READERS[key](f"{prefix}{key}", given[key]) for key in given if key in _READERS}
    if "estimator" in given:
        changes["estimator"] = _estimator(f"{prefix}estimator", given["estimator"], usual.estimator)
    if "settings" in given:
        found = _table("settings", given["settings"], policy.settings())
        own = {name: number(f"settings.{name}", entry) for name, entry in found.items()}
        changes["settings"] = usual.settings | own
    return changes


def _estimator(key: str, value: Any, usual: Estimator) -> Estimator:
    """The usual estimator with changes. A new baseline has its own number of rollouts."""
    table = {"baseline": value} if isinstance(value, str) else value
    given = _table(key, table, ("baseline", "rollouts", "returns"))
    for name in ("baseline", "returns"):
        _string(f"{key}.{name}", given.get(name, ""))
    own = "baseline" in given or "rollouts" in given
    return Estimator(
        given.get("baseline", usual.baseline),
        given.get("rollouts") if own else usual.rollouts,
        given.get("returns", usual.returns),
    )


def _optimizer(key: str, value: Any) -> Optimizer | None:
    table = {"name": value} if isinstance(value, str) else value
    given = _table(key, table, [field.name for field in dataclasses.fields(Optimizer)])
    if given.get("name") == "paper":
        if len(given) > 1:
            raise InputError("the optimizer 'paper' has no settings: name another one")
        return None
    return Optimizer(**given)


def _curriculum(key: str, value: Any) -> Callable[[int], tuple[int, ...]]:
    if value == "rising":
        return recipes.rising
    if not isinstance(value, list):
        raise InputError(f'{key} must be a list of horizons, or "rising", not {shown(value)}')
    horizons = tuple(whole(key, entry) for entry in value)
    return lambda horizon: horizons


def _one_of(choices: dict[str, Any]) -> Callable[[str, Any], Any]:
    def read(key: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise unknown(key, value, choices)
        return choices[value]

    return read


def _string(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{key} must be a string, not {shown(value)}")
    return value


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "name": _string,
    "iterations": whole,
    "instances": whole,
    "most": whole,
    "optimizer": _optimizer,
    "objective": lambda key, value: str(parse_objective(value)),
    "scale": _one_of({scale: scale for scale in SCALES}),
    "temperature": _one_of({"none": None, "annealed": recipes.annealed}),
    "entropy": _one_of({"none": None, "fading": recipes.fading_entropy}),
    "curriculum": _curriculum,
    "survey": flag,
    "reach": positive,
    "choose": flag,
    "refine": flag,
    "guided_from": whole,
    "certify": positive,
}


def _table(key: str, value: Any, allowed: Iterable[str]) -> dict[str, Any]:
    """A table with no other than the allowed keys."""
    if not isinstance(value, dict):
        raise InputError(f"{key} must be a table, [{key}], not {shown(value)}")
    known = [f"{key}.{name}" if key else name for name in allowed]
    for name in value:
        if (full := f"{key}.{name}" if key else name) not in known:
            raise unknown("key", full, known)
    return value
