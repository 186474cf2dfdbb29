"""Chooses among parameters by their regret on common instances.

The difference of two regrets on the same instances has far less noise than either regret, and for a policy
with one or a few parameters a rollout costs a fraction of a gradient. So playing a few values of θ on the
same instances shows where ascent should start and which of its results to keep. The instances come from a
random stream that neither training nor evaluation uses.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from gradband.core import prng
from gradband.core.pytrees import flattened
from gradband.core.statistics import Mean
from gradband.engine import blocks, measure
from gradband.gradient.estimator import FEW
from gradband.gradient.objective import Objective
from gradband.learning.ascent import Steps
from gradband.learning.checkpoint import TrainingState
from gradband.learning.valley import Valley
from gradband.policies import Params, Policy
from gradband.problems import Problem

BELOW, ABOVE = 3.0, 1.0  # decades of θ that are surveyed around its start
STRIDE = 0.5  # decades between the points of θ alone
DEEP, WIDE = 7.0, 3.0  # decades of θ below its start, and of the others above theirs, if there are several
UP, DOWN = (0.5, 0.75), (1.0, 2.0)  # decades of one of several parameters, and of the others
RATES = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)  # decades of forgetting around 1 / (4 √n)
FIRST_RATES = (-0.5,)  # those of the first points of several parameters
NEVER = -20.0  # decades of forgetting down to its least
SEARCHED = ("theta", "forgetting")  # parameters of a search without gradients
KEPT = 12  # points of a survey of several parameters that are played on more instances
CALLS = 60  # points that a search for several parameters plays
REACH = 0.3  # decades from a point to its neighbours
FURTHEST = 1.5  # how far from the point the vertex of a parabola may be, in units of the reach
ROUNDS = 6  # of points around the minimum of a quadratic
RISE = 5.0  # standard errors by which regrets should rise to each side of a minimum
LEAST, MOST = 1000, 20_000  # limits for the instances of a choice, a part of those in training
MOST_IF_CLOSE = 200_000  # if what was learned may be better by less than a percent
CLEAR = 2.0  # standard errors by which a network must be better than where learning started
MEAN = Objective()
SHARE, SHARE_OF_SEVERAL = 20, 2  # several parameters have costlier gradients and flatter valleys


class Judge:
    """Plays a bound policy with any parameters on the same m instances, and remembers the regrets."""

    def __init__(
        self,
        policy: Policy,
        problem: Problem,
        key: jax.Array,
        instances: int,
        on: blocks.Workers,
        aim: Objective = MEAN,
    ) -> None:
        self.policy, self.problem, self.key = policy, problem, key
        self.instances, self.on, self.aim = instances, on, aim
        self._known: dict[bytes, np.ndarray] = {}

    def hasty(self) -> "Judge":
        """A judge on the first quarter of the instances."""
        return Judge(self.policy, self.problem, self.key, self.instances // 4, self.on, self.aim)

    def regret(self, params: Params) -> float:
        """The mean regret, or that of its tail if this is the objective; infinity if it is not finite."""
        mean = Mean.of(self._losses(params)).mean
        return mean if np.isfinite(mean) else float("inf")

    def noise(self, params: Params) -> float:
        """The standard error of the same."""
        return Mean.of(self._losses(params)).se

    def is_clearly_better(self, params: Params, other: Params) -> bool:
        """Whether the mean regret is lower by more than chance, paired by instance."""
        if not np.isfinite(self.regret(other)):
            return True
        apart = Mean.of(self._losses(other) - self._losses(params))
        return apart.mean > CLEAR * apart.se

    def _losses(self, params: Params) -> np.ndarray:
        name = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params))
        if name not in self._known:
            job = measure.regret_job(self.policy, self.problem, params, self.key, self.instances)
            pieces = [regret for regret, _ in blocks.map_blocks(job, self.on)]
            self._known[name] = self.aim.losses(blocks.join(pieces, self.instances))
        return self._known[name]


def survey(judge: Judge, steps: Steps, start: Params) -> Params:
    """Where to start: the best of several values of θ, the policy's `lead`, around the usual start.

    The best θ of two problems may be decades apart. Between a distant start and the optimum there may be a
    plateau where gradients are only noise. With more parameters, points in all their decades are played on
    few instances, the better ones on more, and a search starts from the best. A rate of forgetting is
    played at none and around 1 / (4 √n), the scale of Garivier and Moulines (2011).
    """
    names, lead = sorted(steps.moved_by_logarithm), steps.policy.lead
    fades = "forgetting" in names
    if lead not in names:
        return _best_rate(judge, steps, start) if fades else start
    if len(names) == 1:
        return _best_theta(judge, steps, start)
    others = [name for name in names if name not in (lead, "forgetting")]
    offsets = [
        {**other, lead: float(theta)}
        for theta in np.arange(-DEEP, ABOVE + 1)
        for other in (_moves(others) if others else ({},))
    ]
    hasty, points = judge.hasty(), [steps.shifted(start, offset) for offset in offsets]
    if fades:
        first = [at for point in points for at in _rates(judge, steps, point, FIRST_RATES)]
        better = sorted(first, key=hasty.regret)[:KEPT]
        points = better + [at for point in better for at in _rates(judge, steps, point, RATES)]
    points = sorted(points, key=hasty.regret)
    best = min([start, *points[:KEPT]], key=judge.regret)
    return search(judge, steps, best)


def _rates(judge: Judge, steps: Steps, params: Params, decades: tuple[float, ...]) -> list[Params]:
    """The parameters with no forgetting, and with rates these decades from 1 / (4 √n)."""
    usual = 1 / (4 * math.sqrt(judge.policy.horizon))
    centre = math.log10(usual / float(params["forgetting"]))
    offsets = (NEVER, *(centre + decade for decade in decades))
    return [steps.shifted(params, {"forgetting": offset}) for offset in offsets]


def _best_rate(judge: Judge, steps: Steps, start: Params) -> Params:
    return min([start, *_rates(judge, steps, start, RATES)], key=judge.regret)


def _moves(names: list[str]) -> Iterator[dict[str, float]]:
    """Decades by which parameters are moved: all together, or one up and the others down."""
    for decades in np.arange(-1, WIDE + 1):
        yield dict.fromkeys(names, float(decades))
    for name, up, down in itertools.product(names, UP, DOWN):
        yield dict.fromkeys(names, -down) | {name: up}


def _best_theta(judge: Judge, steps: Steps, start: Params) -> Params:
    """The best of a grid, extended while the best is at an end."""

    def at(offset: float) -> Params:
        return steps.shifted(start, {steps.policy.lead: offset})

    def regret(offset: float) -> float:
        return judge.regret(at(offset))

    # The start comes first, so that it wins a tie.
    best = min([0.0, *np.arange(-BELOW, ABOVE + STRIDE / 2, STRIDE).tolist()], key=regret)
    outwards = -STRIDE if best == -BELOW else STRIDE if best == ABOVE else 0.0
    while regret(best + outwards) < regret(best):
        best += outwards
    return at(best)


def search(judge: Judge, steps: Steps, params: Params) -> Params:
    """Better values of several parameters, or the same, by the method of Nelder and Mead.

    It follows a narrow valley over decades. Its first simplex points along θ and along all others together,
    the direction of KL-SoftElim's valley.
    """
    from scipy.optimize import minimize  # slow to import

    names, at = sorted(steps.moved_by_logarithm), partial(_moved, steps, params)
    alone = np.array([name == steps.policy.lead for name in names])
    simplex = REACH * np.vstack([np.zeros(len(names)), alone, ~alone, np.eye(len(names))[~alone][1:] / 3])
    how = {"maxfev": CALLS, "initial_simplex": simplex, "xatol": 0.02, "fatol": 0}
    end = minimize(lambda x: judge.regret(at(x)), simplex[0], method="Nelder-Mead", options=how)
    return min([params, at(end.x)], key=judge.regret)


def refine(judge: Judge, steps: Steps, params: Params) -> Params:
    """Nearby parameters with the least expected regret, by quadratics fitted to noisy regrets.

    A single parameter is found by parabolas through three points. For several, a quadratic is fitted to all
    points so far, with more weight in the valley, and more points are played around its minimum, along the
    axes of the valley.
    """
    names = sorted(steps.moved_by_logarithm)
    if len(names) < 2:
        for reach in (REACH, REACH / 2) if names else ():
            params = min([params, *_around(judge, steps, params, names[0], reach)], key=judge.regret)
        return params

    at = partial(_moved, steps, params)
    valley, centres = Valley.around(len(names), REACH), [params]
    points = np.zeros((0, len(names)))
    for _ in range(ROUNDS):
        points = np.vstack([points, valley.points()])
        regrets = np.array([judge.regret(at(point)) for point in points])  # known ones are not played again
        before, rise = valley.centre, RISE * judge.noise(at(valley.centre))
        valley = valley.fitted(points, regrets, rise)
        # A valley goes on for decades: the same way again, for as long as it goes down.
        way = valley.centre - before
        while judge.regret(at(valley.centre + way)) < judge.regret(at(valley.centre)):
            valley = dataclasses.replace(valley, centre=valley.centre + way)
        centres.append(at(valley.centre))
    return min(centres, key=judge.regret)


def _moved(steps: Steps, params: Params, offsets: np.ndarray) -> Params:
    """All parameters with a logarithmic scale, in the order of their names, moved by offsets [P]."""
    names = sorted(steps.moved_by_logarithm)
    return steps.shifted(params, dict(zip(names, offsets.tolist(), strict=True)))


def _around(judge: Judge, steps: Steps, centre: Params, name: str, reach: float) -> list[Params]:
    """The neighbours of a parameter, and the minimum of the parabola through them."""
    sides = [steps.shifted(centre, {name: side}) for side in (-reach, reach)]
    low, high = (judge.regret(side) - judge.regret(centre) for side in sides)
    if not 0 < low + high < np.inf:
        return sides
    vertex = float(np.clip((low - high) / (low + high) / 2, -FURTHEST, FURTHEST))
    return [*sides, steps.shifted(centre, {name: vertex * reach})]


@dataclasses.dataclass(frozen=True)
class Chooser:
    """Chooses parameters of a bound policy on fewer instances than training has."""

    problem: Problem
    policy: Policy
    steps: Steps
    key: jax.Array
    on: blocks.Workers
    trained_on: int
    aim: Objective = MEAN
    close: bool = False
    """whether learning improves a good start a little: more instances choose, and the least regret wins"""

    def judge(self, place: int, share: int = 1) -> Judge:
        """A judge on this set of instances, or on the first 1/`share` of it."""
        several = 1 < sum(leaf.size for leaf in self.policy.shapes().values()) <= FEW
        part = self.trained_on // (SHARE_OF_SEVERAL if several else SHARE)
        count = min(MOST, max(LEAST, part)) // share
        if self.close:
            count = min(MOST_IF_CLOSE, max(LEAST, self.trained_on))
        key = prng.fold_in(prng.stream(self.key, "choice"), place)
        return Judge(self.policy, jax.device_put(self.problem), key, count, self.on, self.aim)

    def survey(self, start: Params) -> Params:
        return survey(self.judge(1, share=5), self.steps, start)

    def choose(
        self, begun: dict[str, Params], state: TrainingState, refined: bool = True
    ) -> tuple[Params, dict[str, Any]]:
        """The best of where learning started, where it ended and what is nearby, and how it was chosen."""
        judge, few = self.judge(2), flattened(state.params).size <= FEW
        entries = begun | {"stage": state.stage_start, "last": state.params}
        if few or self.close:
            count = state.iteration // 2
            entries["average"] = self.steps.mean(state.history["params"][-count:], state.params)
        found = {name: judge.regret(params) for name, params in entries.items()}
        chosen = min(found, key=lambda name: found[name])
        params = entries[chosen]
        if not few and not self.close and chosen not in begun:
            # A network may begin well, and few instances do not tell a little worse from a little better.
            first = min(begun, key=lambda name: found[name])
            if not judge.is_clearly_better(params, begun[first]):
                chosen, params = first, begun[first]
        if few and refined:
            several = len(self.steps.moved_by_logarithm) > 1
            better = refine(self.judge(2, share=2) if several else judge, self.steps, params)
            # The best of very many is partly luck, so it is compared again on other instances.
            last = self.judge(3) if several else judge
            if better is not params and last.regret(better) < last.regret(params):
                chosen, params = f"near {chosen}", better
                found[chosen] = judge.regret(better)
        return params, {"chosen": chosen, "instances": judge.instances, "regrets": found}
