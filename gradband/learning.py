"""GradBand: gradient ascent on the Bayes reward of a policy (Algorithm 1)."""

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from gradband import (
    blocks,
    files,
    gradient,
    imitation,
    interruption,
    processes,
    q_learning,
    random,
    recipes,
    rollout,
)
from gradband._version import __version__
from gradband.critic import Critic
from gradband.errors import InputError, number, unknown, whole
from gradband.gradient import Estimate, Estimator, as_estimator
from gradband.learned import Learned
from gradband.policies import DQN, Params, Policy, as_policy
from gradband.problems import Problem, as_problem
from gradband.pytrees import flattened
from gradband.recipes import Recipe
from gradband.run import HISTORY, Run, Step
from gradband.steps import PLAIN, SCALES, Steps


def learn(
    policy: Policy | str,
    problem: Problem | str,
    *,
    recipe: Recipe | str | None = None,
    iterations: int | None = None,
    batch: int | None = None,
    estimator: Estimator | str | None = None,
    optimizer: optax.GradientTransformation | None = None,
    optimizer_name: str = "",
    scale: str = "log",
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
    """Learns θ by L = `iterations` steps on m = `batch` fresh instances each.

    What is not given is in the `recipe`: its name, one of your own, or the usual one of the policy (see
    `gradband.recipes`). For policies with few parameters that is Algorithm 1 with L = 100, m = 1000, the
    baseline self, and the paper's step size α = 1/(c √L), where c bounds the norm of ĝ at θ₀ with high
    probability. Any Optax optimiser with any schedule can take its place (it is given −ĝ, since Optax
    descends).

    A positive parameter such as SoftElim's θ moves on a logarithmic scale, whose unit is a factor
    of ten: near 0 its gradient is hundreds of times that at θ₀, and a step of Algorithm 1 as
    printed, `scale="linear"`, then leaps across the optimum.

    `temperature(i, L)` flattens the arms' probabilities while learning, as `annealed` does. With a
    `curriculum` the policy is learned at each of these horizons in turn, for L iterations each,
    before the problem's own. With a policy to `imitate` there is no curriculum unless given: the first
    iterations make the learner agree with it, and GradBand follows, each for as long as the recipe says,
    or for the given L and m. With a `checkpoint` file, `resume` goes on from it, to the same bits, after
    comparing all settings; of an optimiser of yours only its `optimizer_name` can be compared, and of a
    temperature, an entropy or a policy to imitate its name.

    `memory`, such as "2GB", is a limit for the whole process: fewer blocks of a batch are computed at a
    time, with the same bits. Without it, what is free may be taken.

    DQN is learned by `q_learning.train`, to which only L, m, the seed, the memory and `progress` apply.

    >>> from gradband import policies, problems
    >>> problem = problems.named("two-point", horizon=20)
    >>> learned = learn(policies.SoftElim(), problem, iterations=5, batch=256)
    >>> learned.history["regret"].shape
    (5,)
    """
    policy, problem = as_policy(policy), as_problem(problem)
    whole("checkpoint_every", checkpoint_every)
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if isinstance(policy, DQN):
        given = {
            "recipe": recipe is not None,
            "estimator": estimator is not None and as_estimator(estimator) != Estimator(),
            "optimizer": optimizer is not None,
            "scale": scale != "log",
            "temperature": temperature is not None,
            "curriculum": bool(curriculum),
            "imitate": imitate is not None,
            "params": params is not None,
            "resume": resume,
        }
        for option in given:
            if given[option]:
                raise InputError(f"{option} does not apply to dqn, which is learned by Q-learning")
    usual = recipes.choose(rollout.check(policy, problem), recipe)
    if params is None:
        policy = usual.begin(policy)
    plan = usual if imitate is None else usual.tuning or usual

    def size(of: Recipe) -> tuple[int, int]:
        """L and m, as given or as in the recipe."""
        length = whole("iterations", of.iterations if iterations is None else iterations)
        return length, whole("batch", of.batch_for(problem) if batch is None else batch)

    length, many = size(plan)
    if isinstance(policy, DQN):
        return q_learning.train(
            policy, problem, iterations=length, batch=many, seed=seed, memory=memory, progress=progress
        )
    temperature = temperature or plan.temperature
    how = plan.estimate(problem) if estimator is None else as_estimator(estimator)
    if curriculum is None:
        curriculum = () if imitate is not None else plan.curriculum(problem.horizon)
    horizons = [*curriculum, problem.horizon]
    bound = [rollout.check(policy, problem.replace(horizon=n)) for n in horizons]
    how.check(bound[-1], problem)
    on = blocks.workers(devices, memory)
    key = random.root(seed)
    start = bound[0].init(random.stream(key, "init")) if params is None else bound[0].as_params(params)
    stages = [
        _gradband(problem.replace(horizon=staged.horizon), staged, plan, length, how, many, on)
        for staged in bound
    ]
    if imitate is not None:
        warm = usual.imitating or usual
        stages.insert(0, _imitation(problem, bound[-1], warm, imitate, *size(warm), on))
    lengths = [stage.iterations for stage in stages]
    about: dict[str, Any] = {
        "problem": problem.describe(),
        "training": {
            "recipe": usual.name,
            "iterations": length,
            "batch": many,
            "baseline": how.baseline,
            "runs": how.runs,
            "returns": how.returns,
            "curriculum": list(curriculum),
            "stages": lengths,
            "batches": [stage.batch for stage in stages],
            "entropy": getattr(plan.entropy, "__name__", "?") if plan.entropy else "none",
            "imitate": "none"
            if imitate is None
            else imitate.name
            if isinstance(imitate, Policy)
            else imitate.policy.name,
            "temperature": "none" if temperature is None else getattr(temperature, "__name__", "?"),
            "optimizer": optimizer_name or ("usual" if optimizer is None else "given"),
            "scale": scale,
        },
        "seed": seed,
        "versions": {"gradband": __version__, "jax": jax.__version__},
    }
    # What a checkpoint must agree on before it is continued.
    settings = about | {
        "policy": policy.name,
        "policy_settings": policy.settings(),
        "start": flattened(start) if flattened(start).size <= gradient.FEW else _digest(start),
    }
    try:
        json.dumps(files.finite(settings))
    except TypeError as error:
        raise InputError(f"the settings of {policy.name} can't be kept in a file: {error}") from None
    for stage in stages:
        controls = _controls(stage, 1, temperature)
        stage.work(params=start, key=key, batch=0, **controls).workers(on)  # or an error
    run = Run(start, checkpoint=Path(checkpoint) if checkpoint else None, settings=settings)
    if resume:
        run.restore()
    began = time.perf_counter()
    with interruption.watched(run.checkpoint is not None) as watch, contextlib.closing(run):
        for place, stage in enumerate(stages):
            if place < run.stage or run.stopped:
                continue
            run.enter(place)
            chosen = optimizer or stage.recipe.optimizer_for(stage.iterations, stage.policy.horizon)
            steps = Steps(stage.policy.compiled(), chosen, scale)
            own = jax.random.fold_in(random.stream(key, "training"), place)
            before, total = sum(lengths[:place]), sum(lengths)
            for step in _ascend(run, stage, own, steps, temperature):
                if progress:
                    progress(dataclasses.replace(step, iteration=before + step.iteration, iterations=total))
                last = step.iteration == stage.iterations
                over = bool(run.stopped) or (last and stage is stages[-1])
                asked = processes.agreed(watch.asked, last=over)
                if step.iteration % checkpoint_every == 0 or last or asked:
                    run.save()
                if asked:
                    keeper = run.checkpoint if processes.first() else "the first process"
                    raise interruption.Interrupted(
                        f"interrupted after iteration {before + step.iteration} of {total}, which "
                        f"{keeper} keeps: resume goes on from there",
                        asked,
                    )
    about["training"]["seconds"] = round(time.perf_counter() - began, 3)
    history = {name: np.asarray(run.history[name], np.float32) for name in HISTORY}
    parameters = flattened(start).size
    kept = np.asarray(run.history["params"], np.float32)
    history["params"] = kept.reshape(
        len(run.history["regret"]), parameters if parameters <= gradient.FEW else 0
    )
    return Learned(bound[-1], run.params, history, about, run.stopped)


def _digest(params: Params) -> str:
    """What tells the weights of a network from others."""
    return hashlib.sha256(flattened(params).tobytes()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Stage:
    """What is ascended: an estimate of a gradient, for a policy at one horizon."""

    policy: Policy
    recipe: Recipe
    iterations: int
    batch: int
    work: Callable[..., blocks.Work]
    compute: Callable[[blocks.Work], Estimate]
    critic: Critic | None = None


def _gradband(
    problem: Problem,
    policy: Policy,
    recipe: Recipe,
    iterations: int,
    how: Estimator,
    batch: int,
    on: blocks.Workers,
) -> Stage:
    """Ascent on the Bayes reward."""
    task = jax.device_put(problem)  # once: a reward table may be large
    blank = Critic.blank(how.baseline, problem.rounds)
    work = partial(gradient.work, policy, task, instances=batch, how=how, learned=blank)
    return Stage(policy, recipe, iterations, batch, work, partial(gradient.compute, on=on), blank)


def _imitation(
    problem: Problem,
    policy: Policy,
    recipe: Recipe,
    imitate: Policy | Learned,
    iterations: int,
    batch: int,
    on: blocks.Workers,
) -> Stage:
    """Ascent on the agreement with a reference."""
    problem.one_by_one("imitation")
    reference = rollout.check(imitate if isinstance(imitate, Policy) else imitate.policy, problem)
    given = reference.init(jax.random.key(0)) if isinstance(imitate, Policy) else imitate.params
    pair = reference, reference.as_params(given)
    task = jax.device_put(problem)
    instances = batch

    def work(params: Params, key: Any, batch: int, **others: Any) -> blocks.Work:
        return imitation.work(policy, task, params, key, batch, instances, pair)

    return Stage(policy, recipe, iterations, batch, work, partial(imitation.compute, on=on))


def _controls(
    stage: Stage, i: int, temperature: Callable[[int, int], float] | None
) -> dict[str, float | None]:
    """Temperature and weight of the entropy in a stage's iteration i."""
    entropy, length = stage.recipe.entropy, stage.iterations
    tau = None if temperature is None else number("temperature", temperature(i, length), 1e-6)
    beta = None if entropy is None else number("entropy", entropy(i, length, stage.policy.horizon), 0)
    return {"temperature": tau, "entropy": beta}


def _ascend(
    run: Run,
    stage: Stage,
    key: jax.Array,
    steps: Steps,
    temperature: Callable[[int, int], float] | None,
) -> Iterator[Step]:
    """The iterations of one stage, from where the run is: Algorithm 1."""
    horizon, iterations, alpha = stage.policy.horizon, stage.iterations, 1.0
    if steps.optimizer is PLAIN:
        first = stage.compute(stage.work(params=run.stage_start, key=key, batch=0, learned=stage.critic))
        c = steps.bound_on_norm(run.stage_start, first)
        if first.fault or not 0 < c < math.inf:
            zero = "zero on the whole batch: there is nothing to learn, or the batch is too small"
            run.stopped = first.fault or f"the gradient at the start was {zero if c == 0 else 'not finite'}"
            return
        alpha = 1 / (c * math.sqrt(iterations))
    run.begin(steps.first_state(run.params), stage.critic)
    while run.iteration < iterations and not run.stopped:
        i = run.iteration + 1
        controls = _controls(stage, i, temperature)
        work = stage.work(params=run.params, key=key, batch=i, learned=run.critic, **controls)
        run.take(stage.compute(work), steps, alpha, horizon)
        seen = (float(run.history[name][-1]) for name in ("norm", "regret", "regret_se"))
        yield Step(i, iterations, horizon, run.params, *seen)
