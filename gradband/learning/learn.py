"""GradBand: gradient ascent on the Bayes reward of a policy (Algorithm 1)."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Unpack

import jax
import optax

from gradband.core import prng
from gradband.core import progress as progress_bars
from gradband.core.errors import unknown
from gradband.engine import processes
from gradband.engine.blocks import Where
from gradband.gradient.baselines import Baseline
from gradband.gradient.estimator import Controls, Estimator
from gradband.learning import auto, interruption, q_learning, search
from gradband.learning.ascent import PLAIN
from gradband.learning.checkpoint import Step, TrainingState
from gradband.learning.plan import Plan, Session, Wishes, make_plan
from gradband.learning.recipes import Recipe
from gradband.learning.stages import Stage
from gradband.policies import Params, Policy
from gradband.policies.given import Given, resolve, unpack
from gradband.policies.policy_file import Learned
from gradband.problems import GivenProblem, Problem, as_problem

ZERO = "zero on the whole batch: there is nothing to learn, or the batch is too small"


def learn(
    policy: Given,
    problem: GivenProblem,
    *,
    recipe: Recipe | str | Path | None = None,
    iterations: int | None = None,
    instances: int | None = None,
    estimator: Estimator | Baseline | str | None = None,
    optimizer: optax.GradientTransformation | tuple[str, optax.GradientTransformation] | None = None,
    scale: str | None = None,
    temperature: Callable[[int, int], float] | None = None,
    curriculum: Sequence[int] | None = None,
    imitate: Given | None = None,
    params: Params | None = None,
    seed: int = 0,
    progress: Callable[[Step], None] | bool | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    **where: Unpack[Where],
) -> Learned:
    """Learns θ in L = `iterations` steps, each on m = `instances` fresh instances.

    Arguments that are not given come from the `recipe`. The usual one for few parameters has L = 100,
    m = 1000 and the baseline self. Ascent starts at the best of several θ on common instances, unless one
    is given, with decreasing steps by Adam. The result is the best of start, average, last and nearby
    parameters on instances that neither training nor `evaluate` uses: `about["choice"]`. The recipe
    "algorithm-1" is Algorithm 1 as printed: from θ₀ to the last iterate, with the paper's step size
    α = 1/(c √L), where c bounds the norm of ĝ at θ₀ with high probability.

    Args:
        policy: A `Policy`, a learned one to continue from, a name or a policy file. DQN is learned by
            `q_learning.train`, which takes only L, m, the seed, the memory and `progress`. "auto", or
            "auto:10min", learns the policies that suit the problem within a budget, compares them with the
            usual policies, and returns the best: `about["auto"]` says what was tried, and why.
        problem: A `Problem`, a fit, a name or a TOML file.
        recipe: A name, a `Recipe`, or a TOML file (docs/recipes.md); by default the policy's usual one
            (see `gradband.learning.recipes`).
        iterations: L.
        instances: m.
        estimator: The gradient estimator, or just its baseline. `Estimator("self", objective="cvar:0.1")`
            learns for the worst tenth of the instances, as does a recipe with that objective.
        optimizer: Any Optax optimiser with any schedule; it is given −ĝ, since Optax descends. Or a pair
            of a name, by which a checkpoint recognises it, and the optimiser.
        scale: "log" moves positive parameters such as SoftElim's θ on a logarithmic scale with base 10:
            near 0 their gradient is hundreds of times that at θ₀, and a step on the paper's scale,
            "linear", leaps across the optimum. "linear" implies the recipe "algorithm-1".
        temperature: A function of i and L that flattens the arms' probabilities, such as `annealed`.
        curriculum: Horizons at which to learn first, in turn, for L iterations each.
        imitate: A policy to agree with first, before GradBand; then there is no curriculum unless given.
        params: Parameters to start from.
        seed: Determines all randomness.
        progress: Called after each iteration; by default a bar in terminals and notebooks, with False
            nothing.
        checkpoint: A file to keep the state of training in.
        checkpoint_every: Iterations between checkpoints.
        resume: Whether to resume from the checkpoint, to the same bits. All settings must be the same; an
            optimiser, a temperature, an entropy and a policy to imitate are compared by name only.
        **where: The `devices`, the `memory` and the `engine`: see `Where`.

    >>> from gradband import policies, problems
    >>> problem = problems.named("two-point", horizon=20)
    >>> learned = learn(policies.SoftElim(), problem, iterations=5, instances=256)
    >>> learned.history["regret"].shape
    (5,)
    """
    problem, budget = as_problem(problem), auto.parse_auto(policy)
    if budget is None:
        policy, params = unpack(policy, problem, params)
    imitate = None if imitate is None else resolve(imitate, problem)
    wishes = Wishes(
        recipe=recipe,
        iterations=iterations,
        instances=instances,
        estimator=estimator,
        optimizer=optimizer,
        scale=scale,
        temperature=temperature,
        curriculum=curriculum,
        imitate=imitate,
        params=params,
    )
    file = Path(checkpoint) if checkpoint else None
    if isinstance(policy, Policy) and policy.trainer not in TRAINERS:
        raise unknown(f"trainer of {policy.name}", policy.trainer, TRAINERS)
    wanted = progress if callable(progress) or processes.first() else False
    with progress_bars.follow("learning", wanted, show_steps) as report:
        session = Session(seed, where, report, file, checkpoint_every, resume)
        if budget is not None:
            return auto.learn(problem, budget, wishes, session, learn_by_gradients)
        assert isinstance(policy, Policy)
        return TRAINERS[policy.trainer](policy, problem, wishes, session)


def show_steps(update: progress_bars.Update) -> Callable[[Step], None]:
    """Shows steps on a bar."""
    return lambda step: update(step.share, str(step))


def learn_by_gradients(policy: Policy, problem: Problem, wishes: Wishes, session: Session) -> Learned:
    """GradBand: plans, trains and finishes."""
    plan = make_plan(policy, problem, wishes, session)
    plan.require_memory()
    state = TrainingState(plan.start, checkpoint=session.checkpoint, settings=plan.settings)
    if session.resume:
        state.restore()
    began = time.perf_counter()
    with interruption.watched(state.checkpoint is not None) as watch, contextlib.closing(state):
        begun = state.start_at(plan.chooser.survey(plan.start)) if plan.survey else plan.start
        _train(plan, state, session, watch)
        return _finish(plan, state, begun, watch, began)


def _train(plan: Plan, state: TrainingState, session: Session, watch: interruption.Watch) -> None:
    """Takes all remaining steps, reports them, and writes checkpoints."""
    for step in _steps(plan, state):
        if session.progress:
            session.progress(step)
        over = bool(state.stopped) or step.iteration == step.iterations
        asked = processes.agreed(watch.asked, last=over)
        ended = state.iteration == plan.stages[state.stage].iterations
        if state.iteration % session.checkpoint_every == 0 or ended or asked:
            state.save()
        if asked:
            raise state.interrupted(asked)


def _finish(
    plan: Plan, state: TrainingState, begun: Params, watch: interruption.Watch, began: float
) -> Learned:
    """Chooses the parameters to keep, and describes how they were learned."""
    params, about = state.params, dict(plan.about)
    if plan.recipe.choose and not state.stopped:
        begins, refine = {"start": plan.start, "survey": begun}, plan.recipe.refine
        params, about["choice"] = plan.chooser.choose(begins, state, refine)
        if asked := processes.agreed(watch.asked, last=True):
            raise state.interrupted(asked)
    about["training"] = plan.about["training"] | {"seconds": round(time.perf_counter() - began, 3)}
    return Learned(plan.policy, params, state.curves(), about, state.stopped)


def _steps(plan: Plan, state: TrainingState) -> Iterator[Step]:
    """The remaining iterations of all stages."""
    lengths = [stage.iterations for stage in plan.stages]
    for place, stage in enumerate(plan.stages):
        if place < state.stage or state.stopped:
            continue
        state.enter(place)
        own = prng.fold_in(prng.stream(plan.key, "training"), place)
        before, total = sum(lengths[:place]), sum(lengths)
        for iteration in _ascend(plan, state, stage, own):
            norm, regret, se = (float(state.history[name][-1]) for name in ("norm", "regret", "regret_se"))
            yield Step(before + iteration, total, stage.policy.horizon, state.params, norm, regret, se)
    if not state.stopped and not any(state.history["norm"]):
        state.stopped = f"the gradient was {ZERO}"


def _ascend(plan: Plan, state: TrainingState, stage: Stage, key: jax.Array) -> Iterator[int]:
    """The remaining iterations of one stage, Algorithm 1, by their numbers."""
    horizon, iterations, alpha = stage.policy.horizon, stage.iterations, 1.0
    steps, tail = plan.steps(stage), stage.aim.share is not None
    if tail and state.threshold is None:
        nothing = Controls(threshold=0.0)
        first = stage.compute(stage.job(params=state.stage_start, key=key, iteration=0, controls=nothing))
        state.move_threshold(stage.quantile(first))
    if steps.optimizer is PLAIN:
        plain = Controls(critic=stage.critic, threshold=state.threshold)
        first = stage.compute(stage.job(params=state.stage_start, key=key, iteration=0, controls=plain))
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
        controls = stage.controls(i, plan.temperature, state.critic, state.threshold)
        found = stage.compute(stage.job(params=state.params, key=key, iteration=i, controls=controls))
        if tail and not found.fault:
            state.move_threshold(stage.quantile(found))
        state.take(found, steps, alpha, horizon)
        yield i


Trainer = Callable[[Policy, Problem, Wishes, Session], Learned]
TRAINERS: dict[str, Trainer] = {
    "gradband": learn_by_gradients,
    "q-learning": q_learning.learn,
    "search": search.learn,
}
"""how policies are learned, by their `trainer`"""
