"""The Bayes optimum of a problem, and the policy that reaches it, where they can be computed."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradband import __version__
from gradband.core import progress as progress_bars
from gradband.core import resources
from gradband.core.errors import InputError
from gradband.core.results import Result, TextTable
from gradband.exact import contexts
from gradband.exact.quadrature import best_mean, check_prior
from gradband.policies import Policy
from gradband.policies.optimal import OptimalChoices, OptimalGraph, OptimalGrid, OptimalThresholds
from gradband.policies.policy_file import Learned
from gradband.problems import GivenProblem, Problem, as_problem, priors
from gradband.solvers import layout, many_arms, posterior, store, two_arms
from gradband.solvers.graph import Graph

LEAST_LOG = -1e4  # stands for log 0: float32 can hold it and add it up
PATIENCE = 100  # seconds that `known_regret` takes at most
PRECISION = 0.01  # relative error of a regret that is good enough to compare with
Progress = Callable[[float], None]


@dataclasses.dataclass(frozen=True)
class Optimum(Result):
    """The best expected reward of n rounds lies in [reward, reward + error]; an `error` of 0 is exact.

    `regret` is that of `reward`. `policy` can be played, evaluated and saved like a learned one; `loss` is
    how far its reward is below `reward`, or None if that is not known. With contexts there is no policy.
    """

    reward: float
    regret: float
    error: float
    loss: float | None
    method: str
    seconds: float
    policy: Learned | None

    def playable(self) -> Learned:
        """The policy, or an error if there is none."""
        if self.policy is None:
            raise InputError("with contexts only the optimum's value is known: there is no policy to play")
        return self.policy

    def __repr__(self) -> str:
        error = f", error {self.error:.2g}" if self.error else ""
        return f"Optimum(regret {self.regret:.6g}, reward {self.reward:.6g}{error}, by {self.method})"

    def as_dict(self) -> dict[str, Any]:
        """What `gradband optimum` writes."""
        return vars(self) | {"policy": None if self.policy is None else self.policy.policy.name}

    def records(self) -> list[dict[str, Any]]:
        """A single row."""
        return [self.as_dict()]

    def tables(self) -> list[TextTable]:
        notes = [f"Method: {self.method}, {self.seconds:.2f} s.", "Exact, up to rounding."]
        if self.error:
            notes[1] = (
                f"The optimal reward is at most {self.error:.2g} higher, and the regret as much lower."
            )
        if self.loss is None and self.policy is not None:
            notes.append("The policy's own reward is not known; gradband compare measures it.")
        elif self.loss is not None and self.loss > 1e-9:
            notes.append(f"The policy's reward is {self.loss:.2g} lower.")
        rows = [["reward", f"{self.reward:.6f}"], ["regret", f"{self.regret:.6f}"]]
        return [TextTable("", ["", "Bayes optimum"], rows, "\n".join(notes))]


def optimum(problem: GivenProblem, *, progress: Progress | bool | None = None) -> Optimum:
    """The Bayes-optimal reward, regret and policy of a problem, or an error that says why there is none.

    Rewards must be Bernoulli, and the prior finite or beta: two arms for more than a thousand rounds, more
    arms for short horizons. With contexts, see `gradband.exact.contexts`.

    Args:
        problem: A `Problem`, a fit, a name or a TOML file.
        progress: Called with the share that is done; by default a bar in terminals and notebooks, with
            False nothing.

    >>> best = optimum("two-point")
    >>> round(best.regret, 4), best.method
    (2.4805, 'lattice of posteriors')
    """
    problem = as_problem(problem)
    if problem.prior.contextual:
        return _in_contexts(problem)
    prior = check_kind(problem)
    check_size(problem)
    began = time.perf_counter()
    solve: Callable[..., _Solved] = (
        _finite if isinstance(prior, priors.Finite) else _two_arms if prior.arms == 2 else _many_arms
    )
    n, afterwards = problem.horizon, problem.afterwards
    with progress_bars.follow(
        "optimum", progress, lambda update: lambda done: update(done, "solving")
    ) as told:
        found = solve(prior, n, told or (lambda done: None), afterwards)
    regret = problem.pulls * best_mean(prior) - found.reward
    policy: Policy = dataclasses.replace(found.policy, rounds=n, afterwards=bool(afterwards))
    policy = policy.bind(problem.arms, n)
    numbers: dict[str, Any] = {"reward": found.reward, "regret": regret}
    numbers |= {"error": found.error, "loss": found.loss, "method": found.method}
    versions = {"gradband": __version__}
    about = {"problem": problem.describe(), "optimum": numbers, "versions": versions}
    learned = Learned(policy, policy.as_params(found.tables), {}, about)
    seconds = time.perf_counter() - began
    store.keep("optimum", _key(problem), np.array([regret, found.error]))
    return Optimum(**numbers, seconds=seconds, policy=learned)


def _in_contexts(problem: Problem) -> Optimum:
    began = time.perf_counter()
    found = contexts.optimum(problem, lambda alone: optimum(alone, progress=False).reward)
    seconds = time.perf_counter() - began
    return Optimum(found.reward, found.regret, found.error, None, found.method, seconds, None)


def known_regret(problem: Problem, progress: Progress | None = None) -> float:
    """The optimum's regret, stored in the cache folder; an error if it takes minutes or is imprecise."""
    contextual = problem.prior.contextual
    if not contextual:
        check_kind(problem)
    kept = store.find("optimum", _key(problem))
    if kept is None and contextual:
        best = _in_contexts(problem)
        kept = np.array([best.regret, best.error])
        store.keep("optimum", _key(problem), kept)
    elif kept is None:
        check_size(problem)
        if _work(problem) > PATIENCE:
            minutes = f"the optimum of {problem.horizon} rounds takes minutes"
            raise InputError(f"{minutes}: run gradband optimum once, which stores it")
        best = optimum(problem, progress=progress or False)
        kept = np.array([best.regret, best.error])
    regret, error = kept
    if error > PRECISION * regret:
        raise InputError(f"the optimal regret is only known to lie in [{regret - error:.4g}, {regret:.4g}]")
    return float(regret)


def _key(problem: Problem) -> dict[str, Any]:
    """What a problem's optimum depends on."""
    about = {"prior": problem.prior.describe(), "horizon": problem.horizon}
    about |= {"afterwards": problem.afterwards} if problem.afterwards else {}
    about |= {"rewards": problem.prior.rewards.describe()} if problem.prior.contextual else {}
    return {"holds": "regret, error", "version": __version__, **about}


def _work(problem: Problem) -> float:
    """Seconds that the optimum takes, roughly."""
    prior, n = problem.prior, problem.horizon
    if isinstance(prior, priors.Finite):
        return posterior.grid_steps(len(prior.weights), prior.arms, n, posterior.COARSE) / 1e7
    return n**4 / 24 / 5e8 if prior.arms == 2 else 20  # for more arms, the number of states is limited


def check_kind(problem: Problem) -> priors.Finite | priors.Beta:
    """The prior, or an error for a kind of problem whose optimum cannot be computed."""
    problem.unguarded("the optimum")
    hint = ": list instances of it as a finite prior, or compare with other policies"
    return check_prior(problem, "the optimum", hint)


def check_size(problem: Problem) -> None:
    """Raises an error for a problem that is too large, with a feasible size."""
    prior: Any = problem.prior
    n, arms = problem.horizon, problem.arms
    what = f"the optimum of {arms} arms over {n} rounds"
    if isinstance(prior, priors.Finite):
        count = len(prior.weights)
        what += f" and {count} instances"
        if count > posterior.MOST_INSTANCES:
            raise InputError(
                f"{what} has too many posteriors: {posterior.MOST_INSTANCES} instances are feasible"
            )
        longest = posterior.longest(count, arms, n)
        if n > longest:
            feasible = f"{longest} rounds are feasible" if longest else "use fewer instances or arms"
            raise InputError(f"{what} takes too long: {feasible}")
        needed = 2 * posterior.memory(count, n, posterior.COARSE)
        resources.require(needed, what, "use a shorter horizon or fewer instances")
    elif arms == 2:
        free = resources.free_memory()
        most = layout.LONGEST if problem.afterwards else two_arms.LONGEST
        fitting = (h for h in range(50, most + 1, 50) if resources.fits(two_arms.memory(h), free))
        longest = max(fitting, default=50)
        if n > most:
            raise InputError(f"{what} is too long for its table: a horizon of {longest} is feasible")
        resources.require(two_arms.memory(n), what, f"a horizon of {longest} is feasible")
    elif arms > 2:
        states = np.cumsum(many_arms.nodes(prior.a, prior.b, min(n, many_arms.LONGEST)))
        work = states * arms * max(1, arms / 10)
        longest = int((work <= many_arms.NODES).sum())
        if n > longest:
            feasible = f"with {arms} arms a horizon of {longest} is feasible"
            raise InputError(f"{what} has too many states: {feasible}")
        resources.require(many_arms.BYTES * int(states[-1]) * arms, what, "use a shorter horizon")


class _Solved(NamedTuple):
    reward: float
    method: str
    policy: Any
    tables: dict[str, np.ndarray]
    error: float = 0.0
    loss: float | None = 0.0


def _two_arms(prior: priors.Beta, n: int, progress: Progress, afterwards: int) -> _Solved:
    reward, table = two_arms.solve(prior.a, prior.b, n, resources.cores(), progress, afterwards)
    method = "two-armed dynamic programme"
    if afterwards:
        return _Solved(reward, method, OptimalChoices(), {"choices": table})
    return _Solved(reward, method, OptimalThresholds(), {"thresholds": table})


def _many_arms(prior: priors.Beta, n: int, progress: Progress, afterwards: int) -> _Solved:
    if prior.arms == 1:
        value = (n + afterwards) * best_mean(prior)
        graph = Graph(value, np.zeros(1, np.int16), np.zeros((1, 1, 2), np.int32))
        return _of_graph(graph, "a single arm", np.zeros(1), exchangeable=False)
    graph = many_arms.solve(prior.a, prior.b, n, progress, afterwards)
    kinds, method = many_arms.kinds(prior.a, prior.b), "dynamic programme over multisets of arms"
    return _of_graph(graph, method, kinds, exchangeable=True)


def _finite(prior: priors.Finite, n: int, progress: Progress, afterwards: int) -> _Solved:
    found = posterior.solve(prior.instances, prior.weights, n, progress, afterwards)
    grid, instances = found.bounds.grid, found.bounds.instances
    if found.graph is not None:
        solved = _of_graph(found.graph, found.method, instances.kind_of, exchangeable=False)
        return solved._replace(reward=found.value)
    policy = OptimalGrid(
        instances=len(instances.weights), resolution=grid.resolution, points=len(grid.points)
    )
    log_likelihood = instances.log_likelihood[:, :, instances.kind_of]
    tables = {
        "action": instances.arm_of[found.bounds.action].astype(np.int16),
        "log_likelihood": np.maximum(log_likelihood, LEAST_LOG),
        "log_weights": instances.log_weights,
        "ranks": grid.ranks.astype(np.int32),
    }
    return _Solved(found.value, found.method, policy, tables, found.error, found.loss)


def _of_graph(graph: Graph, method: str, kinds: np.ndarray, exchangeable: bool) -> _Solved:
    nodes, positions = graph.child.shape[:2]
    policy = OptimalGraph(nodes=nodes, positions=positions, exchangeable=exchangeable)
    tables = {"action": graph.action, "child": graph.child, "kinds": kinds.astype(np.int32)}
    return _Solved(graph.value, method, policy, tables)
