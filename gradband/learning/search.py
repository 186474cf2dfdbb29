"""Search for the parameter of a policy without a density, on common instances.

Thompson sampling draws from its posteriors, so there is no log p(i | H) to differentiate. But the
difference of two regrets on the same instances has little noise. For a single parameter, a grid and
parabolas through three points find the best value in a dozen evaluations.
"""

import time
from typing import Any

import jax
import numpy as np

from gradband.core import prng
from gradband.core.errors import InputError, whole
from gradband.core.pytrees import flattened
from gradband.core.statistics import Mean
from gradband.engine import blocks, diagnosis
from gradband.learning.ascent import PLAIN, Steps
from gradband.learning.checkpoint import HISTORY, Step
from gradband.learning.choice import SEARCHED, Judge, refine, survey
from gradband.learning.plan import Session, Wishes, describe_run, refuse
from gradband.policies import Params, Policy, binding
from gradband.policies.policy_file import Learned
from gradband.problems import Problem

INSTANCES = 4000
POINTS = 16  # values that are usually played


class Recorder(Judge):
    """A judge that reports each value when it is first played."""

    def begin(self, session: Session, horizon: int) -> None:
        self.session, self.horizon = session, horizon
        self.history: dict[str, list[Any]] = {name: [] for name in (*HISTORY, "params")}

    def _losses(self, params: Params) -> np.ndarray:
        known = len(self._known)
        losses = super()._losses(params)
        if len(self._known) > known:
            found = Mean.of(losses)
            entries = (self.horizon, 0.0, found.mean, found.se, flattened(params))
            for name, value in zip((*HISTORY, "params"), entries, strict=True):
                self.history[name].append(value)
            if self.session.progress:
                done = len(self._known)
                step = Step(done, max(done, POINTS), self.horizon, params, 0.0, found.mean, found.se)
                self.session.progress(step)
        return losses


def learn(policy: Policy, problem: Problem, wishes: Wishes, session: Session) -> Learned:
    """Finds the one positive parameter of a policy for `gradband.learn`, on m common instances."""
    why, steps_given = "whose parameter is found by a search", wishes.iterations is not None
    refuse(policy, wishes, session, why, iterations=steps_given)
    bound, key = binding.check(policy, problem), prng.root(session.seed)
    steps = Steps(bound.compiled(), PLAIN, "log")
    start = bound.init(prng.stream(key, "init"))
    if set(start) not in ({name} for name in SEARCHED) or not set(start) <= bound.log_scale:
        raise InputError(f"a search finds one positive parameter, theta or forgetting, not {list(start)}")
    count = whole("instances", INSTANCES if wishes.instances is None else wishes.instances, least=2)
    on = blocks.workers(**session.where)
    judge = Recorder(bound, jax.device_put(problem), prng.stream(key, "training"), count, on)
    judge.begin(session, problem.horizon)
    began = time.perf_counter()
    found = refine(judge, steps, survey(judge, steps, start))
    stopped = ""
    if not np.isfinite(judge.regret(found)):
        nothing = np.array([np.nan])
        stopped = diagnosis.fault(bound, problem, found, judge.key, nothing)
    curves = {name: np.asarray(values, np.float32) for name, values in judge.history.items()}
    training = {"iterations": len(curves["regret"]), "instances": count, "search": True}
    about = describe_run(problem, training, session.seed)
    about["training"]["seconds"] = round(time.perf_counter() - began, 3)
    return Learned(bound, found, curves, about, stopped)
