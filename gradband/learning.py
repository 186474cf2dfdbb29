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
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from gradband import blocks, files, gradient, random, rollout
from gradband._version import __version__
from gradband.errors import InputError, number, shown, unknown, whole
from gradband.gradient import Estimate, Estimator, as_estimator
from gradband.learned import Learned
from gradband.policies import Params, Policy, as_policy
from gradband.policies.base import fits
from gradband.problems import Problem, as_problem
from gradband.pytrees import flattened
from gradband.steps import ADAM, PLAIN, SCALES, Steps

HISTORY = ("horizon", "norm", "regret", "regret_se")


@dataclasses.dataclass(frozen=True)
class Step:
    """What an iteration shows of itself: the gradient's norm and the regret at its parameters."""

    iteration: int
    iterations: int
    horizon: int
    params: Params
    norm: float
    regret: float
    regret_se: float


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
    stages = [problem.replace(horizon=n) for n in curriculum] + [problem]
    how = as_estimator(estimator)
    bound = [rollout.check(policy, stage) for stage in stages]
    how.check(bound[-1], problem)
    on = blocks.workers(devices)
    key = random.root(seed)
    start = _starting_params(bound[0], params, random.stream(key, "init"))
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
    run = _Run(start, checkpoint=Path(checkpoint) if checkpoint else None, settings=settings)
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
    run: "_Run",
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


def _starting_params(policy: Policy, params: Params | None, key: jax.Array) -> Params:
    """θ₀: given, or the policy's own; within the bounds."""
    return policy.init(key) if params is None else policy.as_params(params)


def _flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    if not isinstance(settings, dict):
        return {prefix: settings}
    return {k: v for name in settings for k, v in _flat(settings[name], f"{prefix}.{name}").items()}


class _Run:
    """What changes from iteration to iteration, and can be stored and restored."""

    def __init__(self, params: Params, checkpoint: Path | None, settings: dict[str, Any]) -> None:
        self.params = self.stage_start = params
        self.stage = self.iteration = 0
        self.state: Any = None
        self.stopped = ""
        self.history: dict[str, list[Any]] = {name: [] for name in (*HISTORY, "params")}
        self.checkpoint = checkpoint
        self.settings = files.finite(settings)
        self.restored: list[np.ndarray] | None = None

    def enter(self, stage: int) -> None:
        """Starts a stage, unless it is the one that was restored."""
        if self.restored is None:
            self.stage, self.iteration = stage, 0
            self.stage_start = self.params

    def begin(self, state: Any) -> None:
        """Takes the optimiser's first state, or the one that was restored."""
        self.state = state
        if self.restored is not None:
            if [np.shape(leaf) for leaf in jax.tree.leaves(state)] != [a.shape for a in self.restored]:
                raise InputError("the checkpoint was written with another optimiser")
            self.state = jax.tree.unflatten(jax.tree.structure(state), self.restored)
            self.restored = None

    def take(self, est: Estimate, steps: Steps, alpha: float, horizon: int) -> None:
        """One step of gradient ascent, unless the gradient is not a number."""
        self.iteration += 1
        flat = flattened(self.params)
        count = est.regrets.size
        spread = est.regrets.std(ddof=1) if count > 1 else math.nan
        seen = (horizon, est.norm, est.regrets.mean(), spread / math.sqrt(count), flat)
        for name, value in zip(self.history, seen, strict=True):
            self.history[name].append(value)
        if not math.isfinite(est.norm):
            self.stopped = f"the gradient was not finite in iteration {self.iteration}"
            return
        ascent = est.mean.astype(np.float32)
        params, state = steps.take(self.params, self.state, ascent, np.float32(alpha))
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
            self.stopped = f"the parameters were not finite after iteration {self.iteration}"
            return
        self.params, self.state = params, state

    def save(self) -> None:
        """Writes the checkpoint."""
        if self.checkpoint is None:
            return
        arrays = {
            "params": flattened(self.params),
            "stage_start": flattened(self.stage_start),
        }
        for i, leaf in enumerate(jax.tree.leaves(self.state)):
            arrays[f"optimizer.{i}"] = np.asarray(leaf)
        for name, values in self.history.items():
            arrays[f"history.{name}"] = np.asarray(values, np.float64)
        place = {"stage": self.stage, "iteration": self.iteration, "stopped": self.stopped}
        files.save(self.checkpoint, "checkpoint", arrays, {"settings": self.settings, **place})

    def restore(self) -> None:
        """Goes back to the checkpoint, if there is one."""
        if self.checkpoint is None:
            raise InputError("resuming needs a checkpoint file")
        if not self.checkpoint.exists():
            return
        arrays, about = files.load(self.checkpoint, "checkpoint")
        theirs, mine = _flat(about.get("settings")), _flat(self.settings)
        for name in mine:
            if not name.startswith(".versions") and theirs.get(name) != mine[name]:
                raise InputError(
                    f"{self.checkpoint} was written with other settings: {name[1:]} was "
                    f"{shown(theirs.get(name))}, now it is {shown(mine[name])}"
                )
        try:
            unravel = ravel_pytree(self.params)[1]
            self.params = unravel(jnp.asarray(arrays["params"]))
            self.stage_start = unravel(jnp.asarray(arrays["stage_start"]))
            self.stage, self.iteration = (whole(name, about[name], 0) for name in ("stage", "iteration"))
            self.stopped = str(about["stopped"])
            count = sum(name.startswith("optimizer.") for name in arrays)
            self.restored = [arrays[f"optimizer.{i}"] for i in range(count)]
            self.history = {name: list(arrays[f"history.{name}"]) for name in self.history}
            done = self.stage * self.settings["training"]["iterations"] + self.iteration
            if {len(values) for values in self.history.values()} != {done} or not fits(arrays["params"]):
                raise ValueError("its history does not fit its iteration")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.checkpoint} is not a complete checkpoint: {error}") from None
