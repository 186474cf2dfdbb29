"""Where the optimal regret lies if it cannot be computed: between a bound and the best usual policy."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from gradband.core.errors import InputError
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.evaluation.evaluate import evaluate
from gradband.exact.lower_bound import Bound, bound
from gradband.policies import Gittins, Policy, Pretrained, binding, references
from gradband.problems import Problem

SECONDS = 30  # for a bound, by default


@dataclasses.dataclass(frozen=True)
class Interval(Result):
    """The optimal regret lies between a bound and the regret of a policy, which is measured."""

    bound: Bound
    policy: str
    regret: Mean
    reason: str
    """why the optimum itself is not known"""

    def in_words(self) -> str:
        proved = "estimated" if self.bound.se else "proved"
        low = f"{self.bound.regret:.4g}" + (f" ± {self.bound.se:.2g}" if self.bound.se else "")
        return (
            f"The optimal regret lies between {low} ({proved}: {self.bound.method}) and "
            f"{self.regret.mean:.4g} ± {self.regret.se:.2g} ({self.policy})."
        )

    def as_dict(self) -> dict[str, Any]:
        """What `gradband optimum` writes; numbers of the optimum itself are not known."""
        unknown = dict.fromkeys(("reward", "regret", "error", "loss", "policy"))
        upper = {"policy": self.policy, "regret": self.regret.mean, "se": self.regret.se}
        found = {"method": self.bound.method, "seconds": self.bound.seconds, "reason": self.reason}
        return {**unknown, **found, "bound": self.bound.as_dict(), "best_policy": upper}

    def records(self) -> list[dict[str, Any]]:
        """A single row."""
        return [{"least": self.bound.regret, "least_se": self.bound.se, **self.as_dict()["best_policy"]}]

    def tables(self) -> list[TextTable]:
        rows = [
            [
                f"no policy has less ({self.bound.method})",
                f"{self.bound.regret:.4f}",
                f"{self.bound.se:.4f}",
            ],
            [self.policy, f"{self.regret.mean:.4f}", f"{self.regret.se:.4f}"],
        ]
        notes = f"{self.in_words()}\n{self.reason[0].upper()}{self.reason[1:]}."
        return [TextTable("", ["", "Bayes regret", "± se"], rows, notes)]


def enclose(
    problem: Problem,
    reason: str,
    *,
    seconds: float | None = None,
    instances: int = 10_000,
    progress: Callable[[str, float], None] | None = None,
) -> Interval:
    """The interval of a problem whose optimum cannot be computed for this `reason`.

    The bound takes `seconds`, and the best of the usual policies is measured on so many instances.
    """
    found = bound(problem, seconds=SECONDS if seconds is None else seconds)
    entries: dict[str, Policy] = references.fair(problem)
    with contextlib.suppress(InputError):  # needs rewards in [0, 1]
        entries[Pretrained.name] = references.with_prior(Pretrained.name, problem)
    if problem.pulls_per_round == 1 and problem.delay is None:
        with contextlib.suppress(InputError):  # whose table may take a minute, once
            index = references.with_prior(Gittins.name, problem)
            entries |= {} if index in entries.values() else {"gittins:prior": index}
    playable = {name: policy for name, policy in entries.items() if _plays(policy, problem)}
    if not playable:
        raise InputError(f"{reason}; and no usual policy can play this problem")
    table = evaluate(playable, problem, instances=instances, progress=progress or False)
    best = table.rows[0]
    return Interval(found, best.name, best.regret, reason)


def _plays(policy: Policy, problem: Problem) -> bool:
    try:
        binding.check(policy, problem)
    except InputError:
        return False
    return True
