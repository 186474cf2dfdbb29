"""Where policies stand between Thompson sampling and the optimum."""

import dataclasses
from typing import Any

from gradband.core.statistics import Mean
from gradband.evaluation.evaluate import Comparison
from gradband.policies import UCB1, Policy, SoftElim, Uniform, references
from gradband.problems import Problem

START = "ts"  # the policy at which the way to the optimum begins


@dataclasses.dataclass(frozen=True)
class Standing:
    """Regrets of policies, and how much of the way from Thompson sampling to the optimum each covers."""

    table: Comparison
    optimum: float | None
    shares: dict[str, Mean]  # empty if the optimum or Thompson sampling's regret is unknown

    @classmethod
    def of(cls, table: Comparison, optimum: float | None) -> "Standing":
        names = [row.name for row in table.rows]
        if optimum is None or START not in names or table[START].regret.mean <= optimum:
            return cls(table, optimum, {})
        return cls(table, optimum, {name: table.share(name, START, optimum) for name in names})

    def without(self, name: str) -> "Standing":
        """The other policies, with the same shares."""
        return dataclasses.replace(self, table=self.table.without(name))

    @property
    def instances(self) -> int:
        """The number of instances that the policies were measured on."""
        return len(self.table.rows[0].regrets)

    def as_dict(self) -> dict[str, Any]:
        """The result as `gradband compare` writes it."""
        rows = []
        for row in self.table.rows:
            share, regret = self.shares.get(row.name), row.regret
            covered = {"share": share and share.mean, "share_se": share and share.se}
            own = {"name": row.name, "regret": regret.mean, "se": regret.se}
            rows.append({**own, **covered, "seconds": row.seconds})
        return {"instances": self.instances, "optimum": self.optimum, "policies": rows}


def usual_policies(problem: Problem) -> dict[str, Policy]:
    """The policies to compare by default."""
    return {"softelim": SoftElim(), **references.fair(problem), "ucb1": UCB1(), "uniform": Uniform()}
