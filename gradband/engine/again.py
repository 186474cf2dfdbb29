"""What was done elsewhere, and a policy that does it again, so that a rollout shows what came of it."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

from jax import Array

from gradband.policies import Params, Policy


class Done(NamedTuple):
    """What was done in a round, or in all of them [n, …]."""

    arm: Array
    """the arms that were pulled [R, B]"""
    log_probs: Array
    """log p of all arms [K, R, B]"""
    after: tuple[Array, Array] | None = None
    """log p of all arms [K, R, B] in the next round, had the reward been 0 or 1, where that is asked for"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Again(Policy):
    """Does again what was done: its state in a round is what was done there."""

    name: ClassVar[str] = "again"
    listed: ClassVar[bool] = False

    def begin(self, params: Params, latent: Array) -> Any:
        return ()

    def update(self, params: Params, state: Any, arm: Array, reward: Array) -> Any:
        return ()
