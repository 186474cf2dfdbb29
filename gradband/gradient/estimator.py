"""The reward gradient and its standard error (Theorem 2, eq. 3).

Few parameters are differentiated in forward mode, which stores nothing but what a critic needs and gives
each instance its own gradient. Some hundred parameters on which states do not depend have their scores
summed along the rollouts; all others are differentiated in reverse mode.
"""

import dataclasses
from typing import Any, NamedTuple, Unpack

import jax
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, number, shown, unknown, whole
from gradband.core.pytrees import brief
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean, mean_and_spread
from gradband.engine import blocks, diagnosis
from gradband.engine.blocks import Where
from gradband.gradient import prices
from gradband.gradient.baselines import Baseline, Nothing, as_baseline, rollouts_for
from gradband.gradient.critic import Critic
from gradband.gradient.objective import Objective, parse_objective
from gradband.gradient.surrogate import Operands, SurrogateSpec, differentiate
from gradband.policies import LSTM, Params, Policy, binding
from gradband.policies.base import Counting
from gradband.policies.given import Given, unpack
from gradband.policies.linear_policy import LinearPolicy
from gradband.problems import GivenProblem, Problem, as_problem

FEW = 8  # parameters that are searched, drawn and shown one by one
FORWARD = 16  # parameters up to which forward mode is used
TRACED = 512  # parameters up to which their scores may be summed along rollouts
MOST_TRACED = 2**24  # numbers of all instances' gradients
RETURNS = ("realised", "expected", "priced")
FOR_TAILS = ("none", "self", "leave-one-out")  # baselines of the gradient of a tail
SHOWN = 10  # parameters in a table of an estimate


@dataclasses.dataclass(frozen=True)
class Estimate(Result):
    """A gradient estimate from m instances. Its arrays are flat, in the order of `params`' leaves."""

    mean: np.ndarray
    """the gradient ĝ [P]"""
    se: np.ndarray
    """its standard error [P]"""
    spread: np.ndarray
    """the standard deviation of a single instance's estimate, ĝ with m = 1 [P]"""
    per_instance: np.ndarray | None
    """gradients [P, m] of the instances, unless in reverse mode"""
    regrets: np.ndarray
    """regrets [m] of the instances, averaged over rollouts"""
    moments: np.ndarray | None = None
    """what a critic is fitted to [n, F, F + 1]"""
    fault: str = ""
    """what went wrong, if a regret is not a number"""
    by_rollout: np.ndarray | None = None
    """regrets [R, m] of the rollouts, if the objective is a tail"""

    def __repr__(self) -> str:
        numbers = (f"{name}={brief(getattr(self, name))}" for name in ("mean", "se", "spread"))
        return f"Estimate({', '.join(numbers)}, {self.regrets.size} instances)"

    def as_dict(self) -> dict[str, Any]:
        """The gradient by parameter, and the regret, ready for JSON."""
        regret = Mean.of(self.regrets)
        return {"instances": self.regrets.size, "regret": vars(regret), "gradient": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """One row per parameter, in the order of `params`' leaves."""
        numbers = zip(self.mean.tolist(), self.se.tolist(), self.spread.tolist(), strict=True)
        return [
            {"parameter": i, "gradient": mean, "se": se, "spread": spread}
            for i, (mean, se, spread) in enumerate(numbers)
        ]

    def tables(self) -> list[TextTable]:
        shown = self.records()[:SHOWN]
        rows = [
            [str(row["parameter"]), *(f"{row[what]:.4g}" for what in ("gradient", "se", "spread"))]
            for row in shown
        ]
        rest = len(self.mean) - len(shown)
        notes = f"Regret {Mean.of(self.regrets)}." + (f" {rest} more parameters." if rest else "")
        columns = ["parameter", "gradient", "± se", "spread (m = 1)"]
        return [TextTable(f"Gradient from {self.regrets.size} instances", columns, rows, notes)]

    @property
    def norm(self) -> float:
        return float(np.sqrt(np.sum(self.mean**2)))  # not by BLAS, whose idle threads keep cores busy


@dataclasses.dataclass(frozen=True)
class Estimator:
    """How to estimate: baseline, rollouts per instance, kind of returns, and objective.

    >>> Estimator("self").rollouts
    2
    """

    baseline: str | Baseline = "self"
    """the name of a baseline, or one of your own (`gradband.gradient.baselines`)"""
    rollouts: int | None = None
    """per instance; None for the baseline's default"""
    returns: str = "realised"
    """realised rewards, expected ones, or priced: what decisions cost compared with the optimal ones, or
    with a bound for more than two arms (`gradband.gradient.prices`). Priced returns take no baseline."""
    objective: str = "mean"
    """mean, the Bayes reward, or cvar:0.1, minus the mean regret on the worst tenth of the instances"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rollouts", rollouts_for(self.baseline, self.rollouts))
        if self.returns not in RETURNS:
            raise unknown("returns", self.returns, RETURNS)
        if self.returns == "priced" and not isinstance(self.rule, Nothing):
            raise InputError(f"priced returns need the baseline none, not {self.rule.name}")
        if self.returns == "priced" and self.aim.share is not None:
            raise InputError(f"priced returns need the objective mean, not {self.objective}")
        if self.aim.share is not None and self.baseline not in FOR_TAILS:
            raise InputError(
                f"the objective {self.objective} takes a baseline that compares whole rollouts on the same "
                f"instance ({', '.join(FOR_TAILS)}), not {self.rule.name}"
            )

    @property
    def aim(self) -> Objective:
        """The objective itself."""
        return parse_objective(self.objective)

    @property
    def rule(self) -> Baseline:
        """The baseline itself."""
        return as_baseline(self.baseline)

    def critic(self, rounds: int) -> Critic | None:
        """A critic that has seen nothing, if the baseline has one."""
        return Critic.blank(self.rule.features, rounds)

    def check(self, policy: Policy, problem: Problem) -> None:
        """Raises an error for a policy or problem that has no such gradient."""
        if not policy.differentiable:
            raise InputError(
                f"{policy.name} has no density p(i | H) to differentiate: it can be compared, not learned"
            )
        if not jax.tree.leaves(jax.eval_shape(policy.init, prng.root(0))):
            raise InputError(f"{policy.name} has no parameters to learn")
        if self.rule.looks_ahead:
            problem.one_by_one(f"the baseline {self.rule.name}")
        if self.returns == "priced":
            prices.check_priced(problem)
        if problem.prior.knows_means:
            return
        if self.rule.needs_means:
            raise InputError(
                f"the baseline {self.rule.name} needs to know the best arm, but the means of this problem "
                "are unknown: use self"
            )
        if self.returns == "expected":
            raise InputError("expected returns need the arms' means, which are unknown in this problem")


def as_estimator(given: Estimator | Baseline | str) -> Estimator:
    """An estimator, or the usual one with this baseline."""
    if isinstance(given, str | Baseline):
        return Estimator(given)
    if isinstance(given, Estimator):
        return given
    raise InputError(
        f"an estimator must be an Estimator, a Baseline or the name of one, not {shown(given)}"
    )


def estimate(
    policy: Given,
    problem: GivenProblem,
    params: Params | None = None,
    *,
    instances: int = 1000,
    estimator: Estimator | Baseline | str = "self",
    seed: int = 0,
    threshold: float | None = None,
    **where: Unpack[Where],
) -> Estimate:
    """Estimates ∇r(n; θ) on fresh instances, or the gradient of minus the CVaR of regret.

    Args:
        policy: A `Policy`, a learned one, a name or a policy file.
        problem: A `Problem`, a fit, a name or a TOML file.
        params: Parameters to estimate at; by default the policy's own.
        instances: Fresh instances to play.
        estimator: The gradient estimator, or just its baseline.
        seed: Determines the instances and all draws.
        threshold: With an estimator whose objective is cvar:α, the regret τ beyond which the tail begins;
            by default the quantile 1 − α of the regrets on as many other instances.
        **where: The `devices`, the `memory` and the `engine`: see `Where`.

    >>> from gradband import policies, problems
    >>> g = estimate(policies.SoftElim(), problems.named("two-point", horizon=20), instances=256)
    >>> g.mean.shape, g.per_instance.shape
    ((1,), (1, 256))
    """
    problem = as_problem(problem)
    policy, params = unpack(policy, problem, params)
    bound = binding.check(policy, problem)
    how = as_estimator(estimator)
    how.check(bound, problem)
    whole("instances", instances, least=2)
    key = prng.root(seed)
    params = bound.init(prng.stream(key, "init")) if params is None else bound.as_params(params)
    on = blocks.workers(**where)
    task = jax.device_put(problem)

    if threshold is not None and how.aim.share is None:
        raise InputError("threshold is for the objective cvar, but the objective of this estimator is mean")

    def run(iteration: int, learned: Critic | None = None, tau: float | None = None) -> Estimate:
        controls = Controls(critic=learned, threshold=tau)
        return compute(gradient_job(bound, task, params, key, iteration, instances, how, controls), on)

    blank = how.critic(problem.rounds)
    if how.aim.share is not None:
        if threshold is None:
            threshold = how.aim.threshold(seen_by_rollout(run(1, tau=0.0)))
        found = run(0, tau=number("threshold", threshold))
    elif blank is None:
        found = run(0)
    else:
        first = run(1, blank)  # by instances of its own
        assert first.moments is not None
        found = run(0, blank.after(first.moments))
        found = dataclasses.replace(found, fault=first.fault or found.fault)
    if found.fault:
        raise InputError(found.fault)
    return found


class Controls(NamedTuple):
    """What may change from iteration to iteration."""

    temperature: float | None = None
    entropy: float | None = None
    """β: the gradient of β Σ_t H(p_t) along the rollouts is added"""
    critic: Critic | None = None
    threshold: float | None = None
    """τ, if the objective is a tail"""

    def operands(self) -> dict[str, Any]:
        """As `surrogate.Operands` has them."""
        single = {"temperature": self.temperature, "entropy": self.entropy, "threshold": self.threshold}
        given = {name: None if value is None else np.float32(value) for name, value in single.items()}
        return given | {"weights": None if self.critic is None else self.critic.weights}


PLAIN = Controls()


def gradient_job(
    policy: Policy,
    problem: Problem,
    params: Params,
    key: Array,
    iteration: int,
    instances: int,
    how: Estimator,
    controls: Controls = PLAIN,
) -> blocks.BlockJob:
    """The gradient of a bound policy, for checked input, on the instances of this iteration."""
    count, rollouts = sum(leaf.size for leaf in jax.tree.leaves(params)), how.rollouts or 1
    traced = FORWARD < count <= TRACED and count * instances <= MOST_TRACED
    traced = traced and _can_be_traced(policy, problem, how, controls)
    few = count <= FORWARD or traced
    light = few and controls.critic is None  # nothing is kept of a round
    kept = blocks.kept_block_size(rollouts, problem.rounds, instances)
    size = blocks.block_size(problem.arms) if light else kept
    judge, table = prices.find_prices(problem) if how.returns == "priced" else (None, None)
    many = np.uint32(iteration), np.int32(instances)
    operands = Operands(problem, params, key, *many, prices=table, **controls.operands())
    spec = SurrogateSpec(
        policy.compiled(), how.rule, rollouts, how.returns, size, few, judge, how.aim.share, traced
    )
    known = _compiled(spec, operands)
    return blocks.BlockJob(differentiate, (spec,), (operands,), instances, size, light, {}, known)


def _can_be_traced(policy: Policy, problem: Problem, how: Estimator, controls: Controls) -> bool:
    """Whether the gradient is Σ_s a_s ∇z_s with scores that each round has by itself."""
    kind, own = type(policy), ("begin", "see", "update", "told_of_others", "folded")
    still = any(
        all(getattr(kind, n, None) is getattr(base, n, None) for n in own)
        for base in (Counting, LinearPolicy)
    )
    plain = how.returns != "priced" and how.aim.share is None and policy.latents == 1
    alone = problem.pulls_at_once == 1 and problem.delay is None and problem.guardrails is None
    return still and plain and alone and controls.critic is None and controls.entropy is None


def _compiled(spec: SurrogateSpec, given: Operands) -> blocks.Compiled | None:
    """What computes blocks in place of XLA, if anything does."""
    if not isinstance(spec.policy, LSTM):
        return None
    from gradband.gradient import through_time  # LLVM is slow to import

    return through_time.compiled_for(spec, given)


def repeat(job: blocks.BlockJob, params: Params, key: Array, iteration: int, controls: Controls) -> Any:
    """The same gradient at other parameters, on the instances of another iteration.

    What is known about the job is kept if the same controls are set.
    """
    old, given = job.operands[0], controls.operands()
    new = old._replace(params=params, key=key, iteration=np.uint32(iteration), **given)
    alike = all((value is None) == (getattr(old, name) is None) for name, value in given.items())
    return job._replace(operands=(new,), known=job.known if alike else {})


def compute(job: blocks.BlockJob, on: blocks.Workers) -> Estimate:
    """The estimate from the blocks of a `gradient_job`."""
    spec, given = job.settings[0], job.operands[0]
    instances, results = job.instances, blocks.map_blocks(job, on)
    taught = None
    if given.weights is not None:
        taught = np.array([moments for _, _, moments in results], np.float64).sum(0)
    regret, by_rollout = blocks.join([regret for _, regret, _ in results], instances), None
    if spec.tail is not None:
        regret, by_rollout = regret.mean(0), regret
    played = spec.policy, given.problem, given.params, given.key
    fault = diagnosis.fault(*played, regret, spec.rollouts, given.temperature, given.iteration)
    if not spec.few:
        found = from_blocks([result[:2] for result in results], instances, spec.size)
        return dataclasses.replace(
            found, moments=taught, fault=fault, regrets=regret, by_rollout=by_rollout
        )
    each = blocks.join([gradients for gradients, _, _ in results], instances)
    mean, spread = mean_and_spread(each)
    return Estimate(mean, spread / np.sqrt(instances), spread, each, regret, taught, fault, by_rollout)


def seen_by_rollout(found: Estimate) -> np.ndarray:
    """The regrets [R, m] of all rollouts, from the estimate of a tail."""
    assert found.by_rollout is not None
    return found.by_rollout


def from_blocks(results: list[tuple[np.ndarray, np.ndarray]], instances: int, size: int) -> Estimate:
    """The estimate from the blocks' summed gradients [P] and regrets [B]. Blocks are the sample."""
    regret = blocks.join([regret for _, regret in results], instances)
    sums = np.array([gradient for gradient, _ in results], np.float64)
    filled = np.minimum(instances - size * np.arange(len(sums)), size)
    mean = sums.sum(0) / instances
    residual = sums - filled[:, None] * mean
    count = len(residual)
    variance = (residual**2).sum(0) / instances * count / (count - 1) if count > 1 else np.nan * mean
    return Estimate(mean, np.sqrt(variance / instances), np.sqrt(variance), None, regret)
