"""The correlated knowledge gradient (Ryzhov, Powell and Frazier, 2012)."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.policies.base import Array, InputError, Params, namespace
from gradband.policies.beliefs import Seen
from gradband.policies.envelope import expected_gain
from gradband.policies.linear_policy import LinearIndex

MOST_ARMS = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinKnowledgeGradient(LinearIndex):
    """The arm with the greatest m_i + (rounds left after this one) · (E max_j m′_j − max_j m_j).

    m are the arms' expected rewards, and m′ those after a reward of arm i: m′_j = m_j + Cov(j, i) z /
    √(Var(i) + σ²), with z standard normal. It is optimal with two rounds left, if features stay.
    """

    name: ClassVar[str] = "lin-kg"
    bounded: ClassVar[bool] = True

    def check(self) -> None:
        super().check()
        if self.link != "identity":
            raise InputError(f"{self.name} needs link=identity, not {self.link}")

    def check_play(self) -> None:
        super().check_play()
        if self.arms > MOST_ARMS:
            raise InputError(
                f"{self.name} compares all pairs of arms: at most {MOST_ARMS} arms can be played"
            )

    def index(self, params: Params, state: Seen) -> Array:
        xp = namespace(state.mean)
        if self.model == "linear":
            shared = (state.spread[:, None, :] * state.spread[None]).sum(2)
        else:
            shared = xp.where(np.eye(self.arms, dtype=bool), state.variance[:, None], 0)
        slopes = shared / xp.sqrt(state.variance + np.float32(self.sd**2))[:, None]
        left = xp.maximum(self.horizon - 1 - state.belief.rewards, 0)
        return state.mean + left * expected_gain(state.mean[None], slopes)
