"""GradBand: gradient ascent on the Bayes reward of a policy (Algorithm 1)."""

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import optax

from gradband._version import __version__
from gradband.core import files, prng
from gradband.core.errors import InputError, unknown, whole
from gradband.core.pytrees import flattened
from gradband.engine import blocks, processes
from gradband.gradient.estimator import FEW, Estimator, as_estimator
from gradband.learning import interruption, q_learning, recipes, stages
from gradband.learning.ascent import PLAIN, SCALES, Steps
from gradband.learning.checkpoint import Step, TrainingState
from gradband.learning.choice import Chooser
from gradband.learning.recipes import Recipe
from gradband.learning.stages import Stage, Temperature
from gradband.learning.units import reward_scale
from gradband.policies import DQN, Params, Policy, as_policy, binding
from gradband.policies.base import OneParameter
from gradband.policies.policy_file import Learned
from gradband.problems import Problem, as_problem


def learn(
    policy: Policy | str,
    problem: Problem | str,
    *,
    recipe: Recipe | str | Path | None = None,
    iterations: int | None = None,
    instances: int | None = None,
    estimator: Estimator | str | None = None,
    optimizer: optax.GradientTransformation | None = None,
    optimizer_name: str = "",
    scale: str | None = None,
    temperature: Callable[[int, int], float] | None = None,
    curriculum: Sequence[int] | None = None,
    imitate: Policy | Learned | None = None,
    params: Params | None = None,
    seed: int = 0,
    devices: int | None = None,
    memory: int | str | None = None,
    progress: Callable[[Step], None] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
) -> Learned:
    """Learns θ by L = `iterations` steps, each on m = `instances` fresh instances.

    What is not given is in the `recipe`: its name, one of your own, a TOML file (docs/recipes.md), or the
    usual one of the policy (see `gradband.learning.recipes`). With few parameters L = 100, m = 1000, and
    the baseline is self. If no θ is given, ascent starts at the best of several values on common instances.
    Its steps are Adam's and fall; any Optax optimiser with any schedule can take their place (it is given
    −ĝ, since Optax descends).
    What is returned is the best of start, average and last, and of what lies near, on instances that
    neither training nor `evaluate` uses: `about["choice"]`. The recipe "algorithm-1" has Algorithm 1 as
    printed: from θ₀, with the paper's step size α = 1/(c √L), where c bounds the norm of ĝ at θ₀ with high
    probability, to the last iterate.

    A positive parameter such as SoftElim's θ moves on a logarithmic scale, whose unit is a factor
    of ten: near 0 its gradient is hundreds of times that at θ₀, and a step on the scale of the paper,
    `scale="linear"`, then leaps across the optimum. That scale goes with "algorithm-1".

    `temperature(i, L)` flattens the arms' probabilities while learning, as `annealed` does. With a
    `curriculum` the policy is learned at each of these horizons in turn, for L iterations each,
    before the problem's own. With a policy to `imitate` there is no curriculum unless given: the first
    iterations make the learner agree with it, and GradBand follows, each for as long as the recipe says,
    or for the given L and m. With a `checkpoint` file, `resume` goes on from it, to the same bits, after
    comparing all settings; of an optimiser of yours only its `optimizer_name` can be compared, and of a
    temperature, an entropy or a policy to imitate its name.

    `memory`, such as "2GB", is a limit for the whole process: fewer blocks of instances are computed at a
    time, with the same bits. Without it, what is free may be taken.

    DQN is learned by `q_learning.train`, to which only L, m, the seed, the memory and `progress` apply.

    >>> from gradband import policies, problems
    >>> problem = problems.named("two-point", horizon=20)
    >>> learned = learn(policies.SoftElim(), problem, iterations=5, instances=256)
    >>> learned.history["regret"].shape
    (5,)
    """
    policy, problem = as_policy(policy), as_problem(problem)
    whole("checkpoint_every", checkpoint_every)
    if scale is not None and scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if isinstance(policy, DQN):
        _refuse_for_dqn(
            recipe=recipe is not None,
            estimator=estimator is not None and as_estimator(estimator) != Estimator(),
            optimizer=optimizer is not None,
            scale=scale not in (None, "log"),
            temperature=temperature is not None,
            curriculum=bool(curriculum),
            imitate=imitate is not None,
            params=params is not None,
            resume=resume,
        )
    key = prng.root(seed)
    usual = recipes.choose(binding.check(policy, problem), recipe)
    if usual.name == recipes.GRADBAND.name and (scale == "linear" or optimizer is PLAIN):
        usual = recipes.ALGORITHM_1
    scale = scale or usual.scale
    survey = usual.survey and params is None and _is_usual(policy)
    policy = usual.begin(policy) if params is None else policy
    main = usual if imitate is None else usual.tuning or usual

    def size(of: Recipe) -> tuple[int, int]:
        """L and m, as given or as in the recipe."""
        length = whole("iterations", of.iterations if iterations is None else iterations)
        return length, whole("instances", of.instances_for(problem) if instances is None else instances)

    length, many = size(main)
    if isinstance(policy, DQN):
        return q_learning.train(
            policy, problem, iterations=length, instances=many, seed=seed, memory=memory, progress=progress
        )
    temperature = temperature or main.temperature
    how = main.estimate(problem) if estimator is None else as_estimator(estimator)
    if curriculum is None:
        curriculum = () if imitate is not None else main.horizons(policy, problem)
    how.check(binding.check(policy, problem), problem)
    if params is None:
        policy = _in_units(policy, problem, key)
    bound = [binding.check(policy, problem.replace(horizon=n)) for n in (*curriculum, problem.horizon)]
    on = blocks.workers(devices, memory)
    start = bound[0].init(prng.stream(key, "init")) if params is None else bound[0].as_params(params)
    todo = [
        stages.ascent(problem.replace(horizon=staged.horizon), staged, main, length, how, many, on)
        for staged in bound
    ]
    if imitate is not None:
        warm = usual.imitating or usual
        todo.insert(0, stages.agreement(problem, bound[-1], warm, imitate, *size(warm), on))
    about: dict[str, Any] = {
        "problem": problem.describe(),
        "training": {
            "recipe": usual.name,
            "iterations": length,
            "instances": many,
            "baseline": how.baseline,
            "rollouts": how.rollouts,
            "returns": how.returns,
            "curriculum": list(curriculum),
            "stages": [stage.iterations for stage in todo],
            "stage_instances": [stage.instances for stage in todo],
            "entropy": _name(main.entropy),
            "imitate": _policy_name(imitate),
            "temperature": _name(temperature),
            "optimizer": optimizer_name or _optimizer_name(optimizer, main),
            "scale": scale,
            "survey": survey,
        },
        "seed": seed,
        "versions": {"gradband": __version__, "jax": jax.__version__},
    }
    settings = _settings(about, policy, start)
    for stage in todo:
        first = stage.job(params=start, key=key, iteration=0, **stage.controls(1, temperature))
        first.workers(on)  # or an error
    state = TrainingState(start, checkpoint=Path(checkpoint) if checkpoint else None, settings=settings)
    if resume:
        state.restore()
    began = time.perf_counter()
    chooser = Chooser(problem, bound[-1], Steps(bound[-1].compiled(), PLAIN, scale), key, on, length * many)
    with interruption.watched(state.checkpoint is not None) as watch, contextlib.closing(state):
        begun = state.start_at(chooser.survey(start)) if survey else start
        for step in _train(state, todo, key, optimizer, scale, temperature):
            if progress:
                progress(step)
            over = bool(state.stopped) or step.iteration == step.iterations
            asked = processes.agreed(watch.asked, last=over)
            if (
                state.iteration % checkpoint_every == 0
                or state.iteration == todo[state.stage].iterations
                or asked
            ):
                state.save()
            if asked:
                raise state.interrupted(asked)
        params = state.params
        if usual.choose and not state.stopped:
            params, about["choice"] = chooser.choose({"start": start, "survey": begun}, state)
            if asked := processes.agreed(watch.asked, last=True):
                raise state.interrupted(asked)
    about["training"]["seconds"] = round(time.perf_counter() - began, 3)
    return Learned(bound[-1], params, state.curves(), about, state.stopped)


def _refuse_for_dqn(**given: bool) -> None:
    for option in given:
        if given[option]:
            raise InputError(f"{option} does not apply to dqn, which is learned by Q-learning")


def _is_usual(policy: Policy) -> bool:
    """Whether θ is the usual one, which nobody chose."""
    return isinstance(policy, OneParameter) and policy.theta == type(policy).theta


def _in_units(policy: Policy, problem: Problem, key: jax.Array) -> Policy:
    """The policy, whose usual θ is in the unit of the problem's rewards."""
    if isinstance(policy, OneParameter) and _is_usual(policy) and policy.power:
        return policy.in_units(reward_scale(problem, key))
    return policy


def _policy_name(imitate: Policy | Learned | None) -> str:
    if imitate is None:
        return "none"
    return imitate.name if isinstance(imitate, Policy) else imitate.policy.name


def _optimizer_name(given: optax.GradientTransformation | None, recipe: Recipe) -> str:
    """What a checkpoint says of the optimiser: a recipe file's is written out."""
    return "given" if given is not None else getattr(recipe.optimizer, "words", "usual")


def _name(function: Any) -> str:
    """What is known of a function of yours in a file."""
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


def _train(
    state: TrainingState,
    todo: list[Stage],
    key: jax.Array,
    optimizer: optax.GradientTransformation | None,
    scale: str,
    temperature: Temperature | None,
) -> Iterator[Step]:
    """The iterations of all stages, from where training is."""
    lengths = [stage.iterations for stage in todo]
    for place, stage in enumerate(todo):
        if place < state.stage or state.stopped:
            continue
        state.enter(place)
        chosen = optimizer or stage.recipe.optimizer_for(stage.iterations, stage.policy.horizon)
        steps = Steps(stage.policy.compiled(), chosen, scale)
        own = jax.random.fold_in(prng.stream(key, "training"), place)
        before, total = sum(lengths[:place]), sum(lengths)
        for step in _ascend(state, stage, own, steps, temperature):
            yield dataclasses.replace(step, iteration=before + step.iteration, iterations=total)
    if not state.stopped and not any(state.history["norm"]):
        state.stopped = f"the gradient was {ZERO}"


ZERO = "zero on the whole batch: there is nothing to learn, or the batch is too small"


def _ascend(
    state: TrainingState, stage: Stage, key: jax.Array, steps: Steps, temperature: Temperature | None
) -> Iterator[Step]:
    """The iterations of one stage, from where training is: Algorithm 1."""
    horizon, iterations, alpha = stage.policy.horizon, stage.iterations, 1.0
    if steps.optimizer is PLAIN:
        first = stage.compute(
            stage.job(params=state.stage_start, key=key, iteration=0, learned=stage.critic)
        )
        c = steps.bound_on_norm(state.stage_start, first)
        if first.fault or not 0 < c < math.inf:
            state.stopped = (
                first.fault or f"the gradient at the start was {ZERO if c == 0 else 'not finite'}"
            )
            return
        alpha = 1 / (c * math.sqrt(iterations))
    state.begin(steps.first_state(state.params), stage.critic)
    while state.iteration < iterations and not state.stopped:
        i = state.iteration + 1
        controls = stage.controls(i, temperature)
        job = stage.job(params=state.params, key=key, iteration=i, learned=state.critic, **controls)
        state.take(stage.compute(job), steps, alpha, horizon)
        seen = (float(state.history[name][-1]) for name in ("norm", "regret", "regret_se"))
        yield Step(i, iterations, horizon, state.params, *seen)
