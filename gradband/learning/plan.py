"""The plan of a learning run: everything that is decided before its first iteration."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import optax

from gradband._version import __version__
from gradband.core import files, prng
from gradband.core.errors import InputError, unknown, whole
from gradband.core.pytrees import flattened
from gradband.engine import blocks
from gradband.gradient.baselines import Baseline
from gradband.gradient.estimator import FEW, Estimator, as_estimator
from gradband.learning import recipes, stages
from gradband.learning.ascent import PLAIN, SCALES, Steps
from gradband.learning.checkpoint import Step
from gradband.learning.choice import Chooser
from gradband.learning.recipes import Recipe
from gradband.learning.stages import Stage, Temperature
from gradband.learning.units import reward_scale
from gradband.policies import Params, Policy, binding
from gradband.policies.base import OneParameter
from gradband.policies.given import WithParams
from gradband.problems import Problem


@dataclasses.dataclass(frozen=True)
class Wishes:
    """How the caller of `learn` wants a policy to be learned; what is None is left to the recipe."""

    recipe: Recipe | str | Path | None = None
    iterations: int | None = None
    instances: int | None = None
    estimator: Estimator | Baseline | str | None = None
    optimizer: optax.GradientTransformation | tuple[str, optax.GradientTransformation] | None = None
    scale: str | None = None
    temperature: Temperature | None = None
    curriculum: Sequence[int] | None = None
    imitate: Policy | WithParams | None = None
    params: Params | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)

    def optimiser(self) -> tuple[str, optax.GradientTransformation | None]:
        """The name of the optimiser, if it has one, and the optimiser."""
        given: Any = self.optimizer
        alone = given is None or isinstance(given, optax.GradientTransformation)
        return ("", given) if alone else given

    def size(self, recipe: Recipe, problem: Problem) -> tuple[int, int]:
        """L and m, as given or as in the recipe."""
        length = recipe.iterations if self.iterations is None else self.iterations
        many = recipe.instances_for(problem) if self.instances is None else self.instances
        return whole("iterations", length), whole("instances", many)


@dataclasses.dataclass(frozen=True)
class Session:
    """Where and under which seed a policy is learned, and who is told and what is kept on the way."""

    seed: int = 0
    devices: int | None = None
    memory: int | str | None = None
    engine: str | None = None
    progress: Callable[[Step], None] | None = None
    checkpoint: Path | None = None
    checkpoint_every: int = 10
    resume: bool = False

    def __post_init__(self) -> None:
        whole("checkpoint_every", self.checkpoint_every)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What GradBand is going to do."""

    problem: Problem
    policy: Policy
    """bound to the problem"""
    recipe: Recipe
    stages: tuple[Stage, ...]
    start: Params
    survey: bool
    """whether ascent starts from the best of several values, not from `start`"""
    optimizer: optax.GradientTransformation | None
    scale: str
    temperature: Temperature | None
    key: jax.Array
    on: blocks.Workers
    settings: dict[str, Any]
    """what a checkpoint must agree on before it is continued"""
    about: dict[str, Any]
    """problem, training, seed and versions, as a policy file has them"""

    @property
    def chooser(self) -> Chooser:
        """Chooses where to start and what to keep, on instances that go with those of the last stage."""
        steps = Steps(self.policy.compiled(), PLAIN, self.scale)
        trained_on = self.stages[-1].iterations * self.stages[-1].instances
        return Chooser(self.problem, self.policy, steps, self.key, self.on, trained_on)

    def steps(self, stage: Stage) -> Steps:
        """How parameters move in a stage."""
        usual = stage.recipe.optimizer_for
        chosen = self.optimizer or usual(stage.iterations, stage.policy.horizon)
        return Steps(stage.policy.compiled(), chosen, self.scale)

    def require_memory(self) -> None:
        """Raises an error if a stage needs more memory than there is."""
        for stage in self.stages:
            controls = stage.controls(1, self.temperature, stage.critic)
            job = stage.job(params=self.start, key=self.key, iteration=0, controls=controls)
            job.workers(self.on)


def make_plan(policy: Policy, problem: Problem, wishes: Wishes, session: Session) -> Plan:
    """The plan for learning a policy by GradBand, with all wishes checked."""
    key = prng.root(session.seed)
    usual = _choose_recipe(policy, problem, wishes)
    survey = usual.survey and wishes.params is None and _is_usual(policy)
    if wishes.params is None:
        policy = usual.begin(policy)
    main = usual if wishes.imitate is None else usual.tuning or usual
    size = wishes.size(main, problem)
    how = main.estimate(problem) if wishes.estimator is None else as_estimator(wishes.estimator)
    curriculum = wishes.curriculum
    if curriculum is None:
        curriculum = () if wishes.imitate is not None else main.horizons(policy, problem)
    how.check(binding.check(policy, problem), problem)
    if wishes.params is None:
        policy = _in_units(policy, problem, key)
    bound = [binding.check(policy, problem.replace(horizon=n)) for n in (*curriculum, problem.horizon)]
    on = blocks.workers(session.devices, session.memory, session.engine)
    given, first = wishes.params, bound[0]
    start = first.init(prng.stream(key, "init")) if given is None else first.as_params(given)
    todo = [stages.ascent(problem, staged, main, how, size, on) for staged in bound]
    if wishes.imitate is not None:
        warm = usual.imitating or usual
        warm_size = wishes.size(warm, problem)
        todo.insert(0, stages.agreement(problem, bound[-1], warm, wishes.imitate, warm_size, on))
    optimizer_name, optimizer = wishes.optimiser()
    temperature, scale = wishes.temperature or main.temperature, wishes.scale or usual.scale
    training = {
        "recipe": usual.name,
        "iterations": size[0],
        "instances": size[1],
        **_describe_estimator(how),
        "curriculum": list(curriculum),
        "stages": [stage.iterations for stage in todo],
        "stage_instances": [stage.instances for stage in todo],
        "entropy": _name(main.entropy),
        "imitate": _policy_name(wishes.imitate),
        "temperature": _name(temperature),
        "optimizer": optimizer_name or _optimizer_name(optimizer, main),
        "scale": scale,
        "survey": survey,
        "bits": prng.BITS,
    }
    about = describe_run(problem, training, session.seed)
    settings = _settings(about, policy, start)
    ascent = optimizer, scale, temperature
    return Plan(problem, bound[-1], usual, tuple(todo), start, survey, *ascent, key, on, settings, about)


def describe_run(problem: Problem, training: dict[str, Any], seed: int) -> dict[str, Any]:
    """What a policy file says of how its policy was learned."""
    versions = {"gradband": __version__, "jax": jax.__version__, "bits": prng.BITS}
    return {"problem": problem.describe(), "training": training, "seed": seed, "versions": versions}


def _choose_recipe(policy: Policy, problem: Problem, wishes: Wishes) -> Recipe:
    """The recipe as named, or the usual one: Algorithm 1 for whoever asks for its scale or its steps."""
    usual = recipes.choose(binding.check(policy, problem), wishes.recipe)
    plain = wishes.scale == "linear" or wishes.optimiser()[1] is PLAIN
    return recipes.ALGORITHM_1 if plain and usual.name == recipes.GRADBAND.name else usual


def _is_usual(policy: Policy) -> bool:
    """Whether θ is the usual one, which nobody chose."""
    return isinstance(policy, OneParameter) and policy.theta == type(policy).theta


def _in_units(policy: Policy, problem: Problem, key: jax.Array) -> Policy:
    """The policy, whose usual θ is in the unit of the problem's rewards."""
    if isinstance(policy, OneParameter) and _is_usual(policy) and policy.power:
        return policy.in_units(reward_scale(problem, key))
    return policy


def _describe_estimator(how: Estimator) -> dict[str, Any]:
    return {"baseline": how.rule.name, "rollouts": how.rollouts, "returns": how.returns}


def _policy_name(imitate: Policy | WithParams | None) -> str:
    if imitate is None:
        return "none"
    return imitate.name if isinstance(imitate, Policy) else imitate.policy.name


def _optimizer_name(given: optax.GradientTransformation | None, recipe: Recipe) -> str:
    """What a checkpoint says of the optimiser: a recipe file's is written out."""
    return "given" if given is not None else getattr(recipe.optimizer, "words", "usual")


def _name(function: Any) -> str:
    """What a file says of a function of the user's."""
    return "none" if function is None else getattr(function, "__name__", "?")


def _settings(about: dict[str, Any], policy: Policy, start: Params) -> dict[str, Any]:
    """What a checkpoint must agree on before it is continued."""
    flat = flattened(start)
    settings = about | {
        "policy": policy.name,
        "policy_settings": policy.settings(),
        "start": flat if flat.size <= FEW else hashlib.sha256(flat.tobytes()).hexdigest(),
    }
    try:
        json.dumps(files.finite(settings))
    except TypeError as error:
        raise InputError(f"the settings of {policy.name} can't be kept in a file: {error}") from None
    return settings
