"""The plan for learning a policy: everything that is decided before the first iteration."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import optax

from gradband import __version__
from gradband.core import files, prng
from gradband.core.errors import InputError, unknown, whole
from gradband.core.pytrees import flattened
from gradband.engine import blocks
from gradband.gradient.baselines import Baseline
from gradband.gradient.estimator import FEW, Estimator, as_estimator
from gradband.gradient.objective import Objective
from gradband.learning import differences, recipes, stages
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
    """How the caller of `learn` wants a policy to be learned. The recipe decides what is None."""

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
    """The seed of learning, where to compute, its progress and its checkpoint."""

    seed: int = 0
    where: blocks.Where = dataclasses.field(default_factory=blocks.Where)
    progress: Callable[[Step], None] | None = None
    checkpoint: Path | None = None
    checkpoint_every: int = 10
    resume: bool = False

    def __post_init__(self) -> None:
        whole("checkpoint_every", self.checkpoint_every)
        blocks.check_where(self.where)


def refuse(policy: Policy, wishes: Wishes, session: Session, why: str, **more: bool) -> None:
    """Raises an error for arguments of `learn` that a trainer without gradients does not take.

    `more` are arguments that this trainer does not take either, and whether they were given.
    """
    given = more | {
        "recipe": wishes.recipe is not None,
        "estimator": wishes.estimator is not None,
        "optimizer": wishes.optimizer is not None,
        "scale": wishes.scale not in (None, "log"),
        "temperature": wishes.temperature is not None,
        "curriculum": bool(wishes.curriculum),
        "imitate": wishes.imitate is not None,
        "params": wishes.params is not None,
        "resume": session.resume,
    }
    for option, is_given in given.items():
        if is_given:
            raise InputError(f"{option} does not apply to {policy.name}, {why}")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What GradBand is going to do."""

    problem: Problem
    policy: Policy  # bound to the problem
    recipe: Recipe
    stages: tuple[Stage, ...]
    start: Params
    survey: bool  # whether ascent starts from the best of several values, not from `start`
    optimizer: optax.GradientTransformation | None
    scale: str
    temperature: Temperature | None
    key: jax.Array
    on: blocks.Workers
    aim: Objective
    settings: dict[str, Any]  # a checkpoint must have the same
    about: dict[str, Any]  # problem, training, seed and versions, as in a policy file
    differs: bool = False  # whether gradients are differences of regrets

    @property
    def chooser(self) -> Chooser:
        """Chooses where to start and what to keep."""
        steps = Steps(self.policy.compiled(), PLAIN, self.scale)
        trained_on = self.stages[-1].iterations * self.stages[-1].instances
        where = self.key, self.on
        return Chooser(self.problem, self.policy, steps, *where, trained_on, self.aim, self.differs)

    def steps(self, stage: Stage) -> Steps:
        """The steps of a stage."""
        chosen = self.optimizer or stage.recipe.optimizer_for(stage.iterations, stage.policy.horizon)
        return Steps(stage.policy.compiled(), chosen, self.scale)

    def require_memory(self) -> None:
        """Raises an error if a stage needs more memory than is available."""
        for stage in self.stages:
            tau = None if stage.aim.share is None else 0.0
            controls = stage.controls(1, self.temperature, stage.critic, tau)
            job = stage.job(params=self.start, key=self.key, iteration=0, controls=controls)
            job.workers(self.on)


def make_plan(policy: Policy, problem: Problem, wishes: Wishes, session: Session) -> Plan:
    """The plan for learning a policy by GradBand, with all wishes checked."""
    key = prng.root(session.seed)
    usual = _choose_recipe(policy, problem, wishes)
    given, imitate = wishes.params, wishes.imitate
    if imitate is None and given is None and wishes.curriculum is None:
        imitate = usual.guide(problem)
    survey = usual.survey and given is None and _is_usual(policy)
    if given is None:
        policy = usual.begin(policy)
    main = usual if imitate is None else usual.tuning or usual
    size = wishes.size(main, problem)
    how = _estimator(main, usual.objective, problem, wishes)
    curriculum = wishes.curriculum
    if curriculum is None:
        curriculum = main.horizons(policy, problem) if imitate is None else ()
    how.check(binding.check(policy, problem), problem)
    own = policy.core
    if given is None and isinstance(own, OneParameter) and _is_usual(policy) and own.power:
        policy = policy.with_core(own.in_units(reward_scale(problem, key)))
    bound = [binding.check(policy, problem.replace(horizon=n)) for n in (*curriculum, problem.horizon)]
    on = blocks.workers(**session.where)
    start = bound[0].init(prng.stream(key, "init")) if given is None else bound[0].as_params(given)
    temperature, scale = wishes.temperature or main.temperature, wishes.scale or usual.scale
    given_how = (wishes.estimator, temperature, how.aim.share)
    if differs := main.reach is not None and given_how == (None, None, None):
        todo = [differences.ascent(problem, staged, main, size, on, scale) for staged in bound]
    else:
        todo = [stages.ascent(problem, staged, main, how, size, on) for staged in bound]
    if imitate is not None:
        warm = usual.imitating or usual
        warm_size = wishes.size(warm, problem)
        todo.insert(0, stages.agreement(problem, bound[-1], warm, imitate, warm_size, on))
    reference = imitate.policy if isinstance(imitate, WithParams) else imitate
    optimizer_name, optimizer = wishes.optimiser()
    usual_name = "given" if optimizer is not None else getattr(main.optimizer, "words", "usual")
    training = {
        "recipe": usual.name,
        "iterations": size[0],
        "instances": size[1],
        "baseline": how.rule.name,
        "rollouts": how.rollouts,
        "returns": how.returns,
        "curriculum": list(curriculum),
        "stages": [stage.iterations for stage in todo],
        "stage_instances": [stage.instances for stage in todo],
        "entropy": _name(main.entropy),
        "imitate": "none" if reference is None else reference.name,
        "temperature": _name(temperature),
        "optimizer": optimizer_name or usual_name,
        "scale": scale,
        "survey": survey,
        "bits": prng.BITS,
    } | ({} if how.aim.share is None else {"objective": str(how.aim)})
    training |= {} if usual.certify is None else {"certify": usual.certify}
    training |= {"reach": main.reach} if differs else {}
    about = describe_run(problem, training, session.seed)
    settings = _settings(about, policy, start)
    ascent = optimizer, scale, temperature
    before = problem, bound[-1], usual, tuple(todo), start, survey
    return Plan(*before, *ascent, key, on, how.aim, settings, about, differs)


def _estimator(recipe: Recipe, objective: str, problem: Problem, wishes: Wishes) -> Estimator:
    """The estimator as given, or the recipe's; the objective is the given estimator's if it has one."""
    if wishes.estimator is None:
        return recipe.estimate(problem, objective)
    given = as_estimator(wishes.estimator)
    return given if given.aim.share is not None else dataclasses.replace(given, objective=objective)


def describe_run(problem: Problem, training: dict[str, Any], seed: int) -> dict[str, Any]:
    """How a policy was learned, as its file describes it."""
    versions = {"gradband": __version__, "jax": jax.__version__, "bits": prng.BITS}
    return {"problem": problem.describe(), "training": training, "seed": seed, "versions": versions}


def _choose_recipe(policy: Policy, problem: Problem, wishes: Wishes) -> Recipe:
    """The recipe as given, or the usual one: Algorithm 1 if its scale or its steps are requested."""
    bound = binding.check(policy, problem)
    if wishes.recipe is None and wishes.estimator is None:
        usual = recipes.usual_for(bound, problem)
    else:
        usual = recipes.choose(bound, wishes.recipe)
    plain = wishes.scale == "linear" or wishes.optimiser()[1] is PLAIN
    return recipes.ALGORITHM_1 if plain and usual.name == recipes.GRADBAND.name else usual


def _is_usual(policy: Policy) -> bool:
    """Whether its lead, such as θ, and the rate of forgetting have their defaults, if it has them."""
    policy = policy.core
    kind = type(policy)
    names = [n for n in (policy.lead, "forgetting") if n in policy.log_scale and hasattr(kind, n)]
    return bool(names) and all(getattr(policy, name) == getattr(kind, name) for name in names)


def _name(function: Any) -> str:
    """The name by which a checkpoint compares a function."""
    return "none" if function is None else getattr(function, "__name__", "?")


def _settings(about: dict[str, Any], policy: Policy, start: Params) -> dict[str, Any]:
    """The settings that a checkpoint must share."""
    flat = flattened(start)
    settings = about | {
        "policy": policy.name,
        "policy_settings": policy.settings(),
        "start": flat if flat.size <= FEW else hashlib.sha256(flat.tobytes()).hexdigest(),
    }
    try:
        json.dumps(files.finite(settings))
    except TypeError as error:
        raise InputError(f"the settings of {policy.name} cannot be kept in a file: {error}") from None
    return settings
