"""GradBand: gradient ascent on the Bayes reward of a policy (Algorithm 1)."""

import dataclasses
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

from gradband import blocks, files, gradient, q_learning, random, rollout
from gradband._version import __version__
from gradband.errors import InputError, number, unknown, whole
from gradband.gradient import Estimate, Estimator, as_estimator
from gradband.learned import Learned
from gradband.policies import DQN, Params, Policy, as_policy
from gradband.problems import Problem, as_problem
from gradband.pytrees import flattened
from gradband.run import HISTORY, Run, Step
from gradband.steps import ADAM, PLAIN, SCALES, Steps


def annealed(iteration: int, iterations: int) -> float:
    """The paper's temperature 1 / (1 − exp(−5 i / L)), from flat to none (Appendix F)."""
    return 1 / (1 - math.exp(-5 * iteration / iterations))


def learn(
    policy: Policy | str,
    problem: Problem | str,
    *,
    iterations: int = 100,
    batch: int = 1000,
    estimator: Estimator | str = "self",
    optimizer: optax.GradientTransformation | None = None,
    optimizer_name: str = "",
    scale: str = "log",
    temperature: Callable[[int, int], float] | None = None,
    curriculum: Sequence[int] = (),
    params: Params | None = None,
    seed: int = 0,
    devices: int | None = None,
    progress: Callable[[Step], None] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
) -> Learned:
    """Learns θ by L = `iterations` steps on m = `batch` fresh instances each.

    Without an `optimizer` the step size is the paper's α = 1/(c √L), where c bounds the norm of ĝ
    at θ₀ with high probability; policies with many parameters get Adam at .001. Any Optax optimiser
    with any schedule can take its place (it is given −ĝ, since Optax descends).

    A positive parameter such as SoftElim's θ moves on a logarithmic scale, whose unit is a factor
    of ten: near 0 its gradient is hundreds of times that at θ₀, and a step of Algorithm 1 as
    printed, `scale="linear"`, then leaps across the optimum.

    `temperature(i, L)` flattens the arms' probabilities while learning, as `annealed` does. With a
    `curriculum` the policy is learned at each of these horizons in turn, for L iterations each,
    before the problem's own. With a `checkpoint` file, `resume` goes on from it, to the same bits, after
    comparing all settings; of an optimiser of yours only its `optimizer_name` can be compared.

    DQN is learned by `q_learning.train`, to which only L, m, the seed and `progress` apply.

    >>> from gradband import policies, problems
    >>> problem = problems.named("two-point", horizon=20)
    >>> learned = learn(policies.SoftElim(), problem, iterations=5, batch=256)
    >>> learned.history["regret"].shape
    (5,)
    """
    policy, problem = as_policy(policy), as_problem(problem)
    whole("iterations", iterations)
    whole("batch", batch)
    whole("checkpoint_every", checkpoint_every)
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if isinstance(policy, DQN):
        given = {
            "estimator": as_estimator(estimator) != Estimator(),
            "optimizer": optimizer is not None,
            "scale": scale != "log",
            "temperature": temperature is not None,
            "curriculum": len(curriculum) > 0,
            "params": params is not None,
            "resume": resume,
        }
        for option in given:
            if given[option]:
                raise InputError(f"{option} does not apply to dqn, which is learned by Q-learning")
        return q_learning.train(
            policy, problem, iterations=iterations, batch=batch, seed=seed, progress=progress
        )
    stages = [problem.replace(horizon=n) for n in curriculum] + [problem]
    how = as_estimator(estimator)
    bound = [rollout.check(policy, stage) for stage in stages]
    how.check(bound[-1], problem)
    on = blocks.workers(devices)
    key = random.root(seed)
    start = bound[0].init(random.stream(key, "init")) if params is None else bound[0].as_params(params)
    about: dict[str, Any] = {
        "problem": problem.describe(),
        "training": {
            "iterations": iterations,
            "batch": batch,
            "baseline": how.baseline,
            "runs": how.runs,
            "returns": how.returns,
            "curriculum": list(curriculum),
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
        "start": flattened(start),
    }
    try:
        json.dumps(files.finite(settings))
    except TypeError as error:
        raise InputError(f"the settings of {policy.name} can't be kept in a file: {error}") from None
    run = Run(start, checkpoint=Path(checkpoint) if checkpoint else None, settings=settings)
    if resume:
        run.restore()
    usual = PLAIN if flattened(start).size <= gradient.FEW else ADAM
    began = time.perf_counter()
    for number_, (stage, staged) in enumerate(zip(stages, bound, strict=True)):
        if number_ < run.stage or run.stopped:
            continue
        run.enter(number_)
        estimate = partial(
            gradient.compute,
            staged,
            jax.device_put(stage),  # once: a reward table may be large
            key=jax.random.fold_in(random.stream(key, "training"), number_),
            instances=batch,
            how=how,
            on=on,
        )
        steps = Steps(staged.compiled(), optimizer or usual, scale)
        for step in _ascend(run, estimate, steps, iterations, stage.horizon, temperature):
            if progress:
                where, total = iterations * number_ + step.iteration, iterations * len(stages)
                progress(dataclasses.replace(step, iteration=where, iterations=total))
            if step.iteration % checkpoint_every == 0 or step.iteration == iterations:
                run.save()
    about["training"]["seconds"] = round(time.perf_counter() - began, 3)
    history = {name: np.asarray(run.history[name], np.float32) for name in HISTORY}
    history["params"] = np.asarray(run.history["params"], np.float32).reshape(-1, flattened(start).size)
    return Learned(bound[-1], run.params, history, about, run.stopped)


def _ascend(
    run: Run,
    estimate: Callable[..., Estimate],
    steps: Steps,
    iterations: int,
    horizon: int,
    temperature: Callable[[int, int], float] | None,
) -> Iterator[Step]:
    """The iterations of one stage, from where the run is: Algorithm 1."""
    alpha = 1.0
    if steps.optimizer is PLAIN:
        c = steps.bound_on_norm(run.stage_start, estimate(params=run.stage_start, batch=0))
        if not 0 < c < math.inf:
            zero = "zero on the whole batch: there is nothing to learn, or the batch is too small"
            run.stopped = f"the gradient at the start was {zero if c == 0 else 'not finite'}"
            return
        alpha = 1 / (c * math.sqrt(iterations))
    run.begin(steps.first_state(run.params))
    while run.iteration < iterations and not run.stopped:
        i = run.iteration + 1
        tau = None if temperature is None else number("temperature", temperature(i, iterations), 1e-6)
        run.take(estimate(params=run.params, batch=i, temperature=tau), steps, alpha, horizon)
        seen = (float(run.history[name][-1]) for name in ("norm", "regret", "regret_se"))
        yield Step(i, iterations, horizon, run.params, *seen)
