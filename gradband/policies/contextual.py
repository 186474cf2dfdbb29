"""What policies share that believe in linear rewards."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gradband.core.arrays import Array, namespace
from gradband.core.errors import InputError, number, positive, unknown, whole
from gradband.policies import beliefs
from gradband.policies.base import Params, Policy
from gradband.policies.beliefs import Belief, Seen

MODELS = ("linear", "by-arm")
LINKS = ("identity", "logistic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contextual(Policy):
    """A policy that believes in rewards xᵀθ + noise, where x are the features of an arm or of a visitor.

    Coordinates of θ are N(mean, within²) and independent at first, with one number for all coordinates or a
    tuple with one for each [d]; the noise has the standard deviation `sd`. With `link="logistic"` rewards
    are 1 with the probability 1 / (1 + exp(−xᵀθ)), and 0 otherwise.
    With `model="linear"` all arms share θ and have features of their own, [K, d]; with `model="by-arm"`
    each arm has a θ of its own, and features may be those of the visitor, [d].
    """

    takes_prior: ClassVar[bool] = True
    dims: int = 0
    """d, set by the problem that it plays"""
    model: str = "linear"
    link: str = "identity"
    mean: float | tuple[float, ...] = 0.0
    within: float | tuple[float, ...] = 0.5
    sd: float = 0.5

    def check(self) -> None:
        super().check()
        whole(f"dims of {self.name}", self.dims, least=0)
        self._check_coordinates("mean", number)
        self._check_coordinates("within", positive)
        positive(f"sd of {self.name}", self.sd)
        for what, given, known in (("model", self.model, MODELS), ("link", self.link, LINKS)):
            if given not in known:
                raise unknown(f"{what} of {self.name}", given, known)

    def _check_coordinates(self, what: str, allow: Callable[[str, Any], float]) -> None:
        """Checks a number for all coordinates of θ, or one for each."""
        given = getattr(self, what)
        for entry in given if isinstance(given, tuple) else (given,):
            allow(f"{what} of {self.name}", entry)
        if isinstance(given, tuple) and len(given) != self.dims and (self.dims or not given):
            wanted = f"a number, or {self.dims or 'one'} of them, one for each feature"
            raise InputError(f"{what} of {self.name} must be {wanted}, not {len(given)}")

    def begin(self, params: Params, latent: Array) -> Belief:
        if not self.dims:
            raise InputError(f"{self.name} needs a problem with contexts")
        xp = namespace(latent)
        same, arms = xp.ones(self.dims), self.arms if self.model == "by-arm" else 0
        return Belief.before(xp.asarray(self.mean) * same, xp.asarray(self.within) * same, arms)

    def see(self, params: Params, state: Belief, features: Array) -> Seen:
        return beliefs.see(state, features)

    def update(self, params: Params, state: Seen, arm: Array, reward: Array) -> Belief:
        return beliefs.observe(state, arm, reward, np.float32(self.sd**2), self.link == "logistic")

    def check_state(self, state: Any, rounds: int) -> None:
        if state.rewards != np.floor(state.rewards) or not 0 <= state.rewards <= rounds:
            raise InputError("rewards in memory must be a whole number, and no more than the rounds")
