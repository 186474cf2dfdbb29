"""GradBand: gradient ascent on the Bayes reward of a policy (Algorithm 1)."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import optax

from gradband.core import prng
from gradband.core.errors import unknown
from gradband.engine import processes
from gradband.gradient.baselines import Baseline
from gradband.gradient.estimator import Controls, Estimator
from gradband.learning import interruption, q_learning
from gradband.learning.ascent import PLAIN
from gradband.learning.checkpoint import Step, TrainingState
from gradband.learning.plan import Plan, Session, Wishes, make_plan
from gradband.learning.recipes import Recipe
from gradband.learning.stages import Stage
from gradband.policies import Params, Policy
from gradband.policies.given import Given, resolve, unpack
from gradband.policies.policy_file import Learned
from gradband.problems import Problem, as_problem

ZERO = "zero on the whole batch: there is nothing to learn, or the batch is too small"


def learn(
    policy: Given,
    problem: Problem | str | Path,
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
    devices: int | None = None,
    memory: int | str | None = None,
    engine: str | None = None,
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
    comparing all settings; of an optimiser of yours only a name can be compared, if you give both, and of a
    temperature, an entropy or a policy to imitate its name.

    `memory`, such as "2GB", is a limit for the whole process: fewer blocks of instances are computed at a
    time, with the same bits. Without it, what is free may be taken. The `engine` is lanes or xla; by
    default it is lanes on a CPU, and XLA for networks and whatever lanes do not support.

    DQN is learned by `q_learning.train`, to which only L, m, the seed, the memory and `progress` apply.

    >>> from gradband import policies, problems
    >>> problem = problems.named("two-point", horizon=20)
    >>> learned = learn(policies.SoftElim(), problem, iterations=5, instances=256)
    >>> learned.history["regret"].shape
    (5,)
    """
    problem = as_problem(problem)
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
    session = Session(seed, devices, memory, engine, progress, file, checkpoint_every, resume)
    if policy.trainer not in TRAINERS:
        raise unknown(f"trainer of {policy.name}", policy.trainer, TRAINERS)
    return TRAINERS[policy.trainer](policy, problem, wishes, session)


def learn_by_gradients(policy: Policy, problem: Problem, wishes: Wishes, session: Session) -> Learned:
    """Plans, trains and finishes: GradBand."""
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
    """Takes all steps, from where training is; tells of them, and keeps checkpoints."""
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
    """The parameters to keep, and what there is to say about them."""
    params, about = state.params, dict(plan.about)
    if plan.recipe.choose and not state.stopped:
        params, about["choice"] = plan.chooser.choose({"start": plan.start, "survey": begun}, state)
        if asked := processes.agreed(watch.asked, last=True):
            raise state.interrupted(asked)
    about["training"] = plan.about["training"] | {"seconds": round(time.perf_counter() - began, 3)}
    return Learned(plan.policy, params, state.curves(), about, state.stopped)


def _steps(plan: Plan, state: TrainingState) -> Iterator[Step]:
    """The iterations of all stages, from where training is."""
    lengths = [stage.iterations for stage in plan.stages]
    for place, stage in enumerate(plan.stages):
        if place < state.stage or state.stopped:
            continue
        state.enter(place)
        own = prng.fold_in(prng.stream(plan.key, "training"), place)
        before, total = sum(lengths[:place]), sum(lengths)
        for step in _ascend(plan, state, stage, own):
            yield dataclasses.replace(step, iteration=before + step.iteration, iterations=total)
    if not state.stopped and not any(state.history["norm"]):
        state.stopped = f"the gradient was {ZERO}"


def _ascend(plan: Plan, state: TrainingState, stage: Stage, key: jax.Array) -> Iterator[Step]:
    """The iterations of one stage, from where training is: Algorithm 1."""
    horizon, iterations, alpha = stage.policy.horizon, stage.iterations, 1.0
    steps = plan.steps(stage)
    if steps.optimizer is PLAIN:
        plain = Controls(critic=stage.critic)
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
        controls = stage.controls(i, plan.temperature, state.critic)
        job = stage.job(params=state.params, key=key, iteration=i, controls=controls)
        state.take(stage.compute(job), steps, alpha, horizon)
        seen = (float(state.history[name][-1]) for name in ("norm", "regret", "regret_se"))
        yield Step(i, iterations, horizon, state.params, *seen)


Trainer = Callable[[Policy, Problem, Wishes, Session], Learned]
TRAINERS: dict[str, Trainer] = {"gradband": learn_by_gradients, "q-learning": q_learning.learn}
"""how policies are learned, by what they name as their `trainer`"""
