"""`auto`: learns the policies that suit a problem within a budget, and keeps the best policy of all.

The budget decides how many iterations each candidate gets, by the costs below and not by a clock. So the
seed and the budget determine the result on every machine; a slower one takes longer.
"""

import dataclasses
import math
import re
import time
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np

from gradband.core import prng
from gradband.core.errors import InputError, shown
from gradband.core.statistics import Mean
from gradband.engine import blocks, diagnosis, measure
from gradband.learning import interruption, recipes
from gradband.learning.checkpoint import Step
from gradband.learning.plan import Session, Wishes, describe_run, refuse
from gradband.learning.units import reward_scale
from gradband.policies import (
    TRAINED,
    UCB1,
    BayesUCB,
    DirectedSoftElim,
    Gittins,
    HierarchicalTS,
    LinSoftElim,
    Policy,
    Pretrained,
    PretrainedBeta,
    binding,
    named,
    references,
)
from gradband.policies.policy_file import Learned
from gradband.problems import Problem
from gradband.problems.symmetry import arms_are_alike

AUTO = "auto"
USUAL_BUDGET = 120.0
LEAST_BUDGET, MOST_BUDGET = 5.0, 24 * 3600.0
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
PLACE = 4  # of the instances to compare on, among those of the stream for choices
FEWEST, MOST = 4000, 40_000  # instances to compare on: the fewest with hierarchical Thompson sampling
PULLS = 4e8  # pulls times arms of a policy in the comparison
# Rough seconds on two cores: for compiling, and for each pull and arm of a whole run by the usual recipe.
COSTS = {
    "beta-softelim": (6.0, 1.5e-3),
    "kl-softelim": (6.0, 1.5e-3),
    "softelim": (3.0, 3e-4),
    "lin-softelim": (4.0, 1e-3),
    "directed-softelim": (4.0, 1e-3),
    "discounted-kl-softelim": (8.0, 3e-3),
    "discounted-softelim": (6.0, 2e-3),
}
NETWORK = (
    12.0,
    2.2e-7,
)  # of networks: for compiling, and for each pull and arm of an iteration's instances
GUIDED = 0.75  # cost of an iteration of imitation and one after it, which have fewer instances
SHORTEST = 60  # iterations below which a network is left out
Trainer = Callable[[Policy, Problem, Wishes, Session], Learned]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A policy to learn, in how many iterations, from which reference, and about how long that takes."""

    name: str
    seconds: float
    iterations: int | None = None
    """None for those of the usual recipe"""
    imitate: Policy | None = None


def parse_auto(given: object) -> float | None:
    """The budget in seconds of `auto`, `auto:2min` or `auto:budget=90s`; None for any other policy.

    >>> parse_auto("auto"), parse_auto("auto:10min"), parse_auto("softelim")
    (120.0, 600.0, None)
    """
    if not isinstance(given, str) or given.partition(":")[0] != AUTO:
        return None
    text = given.partition(":")[2].removeprefix("budget=")
    if not text:
        return USUAL_BUDGET
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", text)
    seconds = float(found[1]) * UNITS[found[2]] if found else math.nan
    if not LEAST_BUDGET <= seconds <= MOST_BUDGET:
        raise InputError(f"auto takes a time from 5s to 24h, as in auto:2min, not {shown(text)}")
    return seconds


def candidates(problem: Problem, budget: float) -> tuple[list[Candidate], dict[str, str]]:
    """What to learn on a problem within a budget, best ideas first, and what is left out and why."""
    few, network = _names(problem)
    found, left_out, spent = list[Candidate](), dict[str, str](), 0.0
    size = problem.rounds * problem.arms
    for name in few:
        compiling, unit = COSTS[name]
        seconds = compiling + unit * size
        if found and spent + seconds > budget:
            left_out[name] = f"would take about {seconds:.0f} s more"
        elif binding.can_play(references.by_name(named(name), problem), problem):
            found.append(Candidate(name, seconds))
            spent += seconds
    for name in network:
        if not binding.can_play(named(name), problem):
            continue
        reference = _teacher(name, problem)
        usual = recipes.choose(binding.check(named(name), problem), None)
        share = (budget - spent - NETWORK[0]) / len(network)
        each = NETWORK[1] * usual.instances_for(problem) * size * (GUIDED if reference else 1)
        length = min(usual.iterations, int(share / each))
        if length < SHORTEST:
            needs = NETWORK[0] + SHORTEST * each
            left_out[name] = f"would take at least {needs:.0f} s, and {max(share, 0):.0f} s are left"
        else:
            own = length if length < usual.iterations else None
            found.append(Candidate(name, NETWORK[0] + length * each, own, reference))
    return found, left_out


def _names(problem: Problem) -> tuple[list[str], list[str]]:
    """Policies of few parameters to learn on a problem, and networks."""
    if problem.prior.contextual:
        return [DirectedSoftElim.name, LinSoftElim.name], []
    if not problem.unit:
        return ["discounted-softelim", "softelim"] if problem.prior.moves else ["softelim"], []
    if problem.prior.moves:
        return ["discounted-kl-softelim", "beta-softelim", "discounted-softelim"], ["discounted-index"]
    few = ["beta-softelim", "kl-softelim", "softelim"]
    return few, ["index"] if arms_are_alike(problem) else ["index-by-arm"]


def _teacher(name: str, problem: Problem) -> Policy | None:
    """Gittins indices with the prior, if there are any: imitating them first is faster than learning."""
    return references.gittins_for(problem) if name == "index" else None


def usual_policies(problem: Problem, key: jax.Array) -> dict[str, Policy]:
    """Usual policies, which a learned one must not lose to; all can be played with NumPy."""
    found = dict(references.fair(problem))
    if problem.prior.contextual:
        pass  # policies without contexts are no rivals
    elif problem.unit:
        # Bayes-UCB, which is slow, and the pretrained policy take the place of Gittins indices where there
        # are none; these know only zeros and ones.
        indices = any(isinstance(policy, Gittins) for policy in found.values())
        found |= {"ucb1": UCB1()} | ({} if indices else {"bayes-ucb": BayesUCB()})
        near = None if problem.prior.moves else references.with_prior(Pretrained.name, problem)
        if near is not None and (isinstance(near, PretrainedBeta) or not indices):
            found[Pretrained.name] = near
    else:
        scale = float(f"{2 * reward_scale(problem, key):.4g}")
        found |= {f"ucb1:scale={scale:g}": UCB1(scale=scale)}
    return {name: policy for name, policy in found.items() if _is_played(policy, problem)}


def _is_played(policy: Policy, problem: Problem) -> bool:
    try:
        binding.check(policy, problem).check_play()
    except InputError:
        return False
    return True


def learn(problem: Problem, budget: float, wishes: Wishes, session: Session, train: Trainer) -> Learned:
    """Learns all candidates by `train`, compares them with the usual policies, and returns the best."""
    given = dataclasses.replace(session, resume=False)
    sizes = {"iterations": wishes.iterations is not None, "instances": wishes.instances is not None}
    refuse(_Named(), wishes, given, "which decides how to learn by its budget", **sizes)
    todo, left_out = candidates(problem, budget)
    key, began = prng.root(session.seed), time.perf_counter()
    usual = usual_policies(problem, key)
    if not todo and not usual:
        raise InputError("auto knows no policy that can play this problem")
    total, done = sum(each.seconds for each in todo), 0.0
    found, seconds = dict[str, Learned](), dict[str, float]()
    for each in todo:
        before = time.perf_counter()
        own = dataclasses.replace(session, **_own(session, each.name, done / total, each.seconds / total))
        asked = Wishes(iterations=each.iterations, imitate=each.imitate)
        found[each.name] = train(references.by_name(named(each.name), problem), problem, asked, own)
        seconds[each.name] = time.perf_counter() - before
        done += each.seconds
    entries = {f"{name}, learned": (entry.policy, entry.params) for name, entry in found.items()}
    for name, policy in usual.items():
        bound = binding.check(policy, problem)
        entries[name] = bound, bound.init(prng.stream(key, "init"))
    with interruption.at_once("interrupted while comparing; all candidates are learned: resume compares"):
        regrets = _compare(entries, problem, key, session, seconds)
    about = _report(regrets, seconds) | {"budget": budget, "left_out": left_out}
    chosen = about["chosen"].removesuffix(", learned")
    if chosen in found:
        # Even if its learning stopped early: its regret was measured.
        best = found[chosen]
        return dataclasses.replace(best, about=best.about | {"auto": about}, stopped="")
    training = {"recipe": AUTO, "iterations": 0, "instances": 0}
    run = describe_run(problem, training | {"seconds": round(time.perf_counter() - began, 3)}, session.seed)
    none = {name: np.zeros(0, np.float32) for name in ("horizon", "norm", "regret", "regret_se")}
    return Learned(*entries[chosen], none | {"params": np.zeros((0, 0), np.float32)}, run | {"auto": about})


class _Named(Policy):
    """Stands for `auto` in errors."""

    name: ClassVar[str] = AUTO


def _own(session: Session, name: str, before: float, share: float) -> dict[str, Any]:
    """A candidate's part of the progress, and its own checkpoint."""
    file, told = session.checkpoint, session.progress

    def report(step: Step) -> None:
        done = before + share * step.iteration / step.iterations
        assert told is not None
        told(dataclasses.replace(step, name=name, done=done))

    own = None if file is None else file.with_name(f"{file.stem}-{name}{file.suffix}")
    return {"checkpoint": own, "progress": report if told else None}


def _compare(
    entries: dict[str, Any], problem: Problem, key: jax.Array, session: Session, seconds: dict[str, float]
) -> dict[str, np.ndarray]:
    """Regrets of all policies on the same fresh instances, which neither learning nor evaluation uses."""
    on, task = blocks.workers(**session.where), jax.device_put(problem)
    slow = any(isinstance(policy, HierarchicalTS) for policy, _ in entries.values())
    count = FEWEST if slow else int(np.clip(PULLS / (problem.rounds * problem.arms), FEWEST, MOST))
    count = min(count, problem.prior.size or count)
    drawn, found = prng.fold_in(prng.stream(key, "choice"), PLACE), dict[str, np.ndarray]()
    for name, (policy, params) in entries.items():
        began = time.perf_counter()
        pieces = blocks.map_blocks(measure.regret_job(policy, task, params, drawn, count), on)
        regrets = blocks.join([regret for regret, _ in pieces], count)
        if fault := diagnosis.fault(policy, task, params, drawn, regrets):
            raise InputError(fault)
        found[name] = regrets
        seconds.setdefault(name.removesuffix(", learned"), time.perf_counter() - began)
    return found


def _report(regrets: dict[str, np.ndarray], seconds: dict[str, float]) -> dict[str, Any]:
    """What was tried, what is chosen, and why."""
    means = {name: Mean.of(values) for name, values in regrets.items()}
    order = sorted(means, key=lambda name: means[name].mean)
    tried = []
    for name in order:
        short = name.removesuffix(", learned")
        own = {"name": name, "regret": means[name].mean, "se": means[name].se, "seconds": seconds[short]}
        tried.append(own | {"learned": name != short})
    best = order[0]
    rival = next((name for name in order if _is_learned(name) != _is_learned(best)), "")
    why = f"{best} has the least regret of {len(order)} policies, {means[best]}"
    if rival:
        above = Mean.of(regrets[rival] - regrets[best])
        what = "the best usual policy" if _is_learned(best) else "the best learned one"
        why += f"; {what}, {rival}, has {above} more (paired)"
    if not _is_learned(best):
        why += ". So nothing learned is kept: this is a usual policy"
    return {"chosen": best, "why": f"{why}.", "instances": len(regrets[best]), "tried": tried}


def _is_learned(name: str) -> bool:
    return name.endswith(", learned") and name.removesuffix(", learned") in TRAINED
