"""What policies with linear beliefs share."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import numpy as np

from gradband.core.arrays import Array, namespace, nn
from gradband.core.errors import number, number_of_dims, positive
from gradband.policies import beliefs
from gradband.policies.base import Count, Greatest, InputError, Params, Positive, Seeing, Share, one_of
from gradband.policies.beliefs import Belief, Seen
from gradband.policies.hinges import with_hinges


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearPolicy(Seeing):
    """A policy that believes in rewards xᵀθ + noise, where x are the features of an arm or of a visitor.

    Coordinates of θ are N(mean, within²) and independent at first, with one number for all coordinates or a
    tuple with one for each [d]; the noise has the standard deviation `sd`. With `link="logistic"` rewards
    are 1 with the probability 1 / (1 + exp(−xᵀθ)), and 0 otherwise.
    With `model="linear"` all arms share θ and have features of their own, [K, d]; with `model="by-arm"`
    each arm has a θ of its own, and features may be those of the visitor, [d].

    With `hinges`, rewards may be curved: so many random features are added (`with_hinges`), whose
    coefficients are N(0, `bend`²). With `exclusive`, which needs a visitor's features, the rewards of all
    arms add up to 1, as where one class is right: a reward then tells of the other arms too, with this
    weight from 0 to 1 (`observe_all`).
    """

    takes_prior: ClassVar[bool] = True
    takes_arms: ClassVar[bool] = True
    model: Annotated[str, one_of("linear", "by-arm")] = "linear"
    link: Annotated[str, one_of("identity", "logistic")] = "identity"
    mean: float | tuple[float, ...] = 0.0
    within: float | tuple[float, ...] = 0.5
    sd: Positive = 0.5
    hinges: Count = 0
    bend: Positive = 1.0
    exclusive: Share = 0.0

    def __post_init__(self) -> None:
        fill = object.__setattr__  # the dataclass is frozen
        # With one θ for all arms, arms can be added and retired: the belief is not about single arms.
        fill(self, "flexible", self.model == "linear")
        fill(self, "takes_visitor", self.model == "by-arm")
        if self.exclusive and self.model == "by-arm":
            fill(self, "takes_arms", False)
        if self.link == "logistic" or self.exclusive:
            fill(self, "unit", True)

    def check(self) -> None:
        super().check()
        self._check_coordinates("mean", number)
        self._check_coordinates("within", positive)
        number_of_dims(f"hinges of {self.name}", self.hinges, least=0)
        if self.exclusive and self.model == "linear":
            raise InputError(
                f"exclusive of {self.name} needs a belief for each arm: use model=by-arm, not model=linear"
            )

    def correct(self, state: Any, arm: int, heard: float, reward: float, p: float) -> Any:
        """The belief with another reward of a pulled arm, in the state with that arm's features."""
        if self.link == "logistic" or self.exclusive or type(self).update is not LinearPolicy.update:
            return None
        return beliefs.correct(state, np.int64(arm), reward - heard, self.sd**2)

    def is_by_arm(self, leaf: Any) -> bool:
        return self.model == "by-arm" and super().is_by_arm(leaf)

    @property
    def coordinates(self) -> int:
        """How many coordinates θ has: one for each feature and each hinge."""
        return self.dims + self.hinges

    @property
    def numbers(self) -> int:
        """How many numbers its belief's covariance has."""
        return self.coordinates**2 * (self.arms if self.model == "by-arm" else 1)

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
        mean, sds = xp.asarray(self.mean) * same, xp.asarray(self.within) * same
        if self.hinges:
            more = xp.ones(self.hinges)
            mean, sds = xp.concatenate([mean, 0 * more]), xp.concatenate([sds, self.bend * more])
        return Belief.before(mean, sds, arms)

    def see(self, params: Params, state: Belief, features: Array) -> Seen:
        return beliefs.see(state, with_hinges(features, self.hinges))

    def update(self, params: Params, state: Seen, arm: Array, reward: Array) -> Belief:
        noise, logistic = np.float32(self.sd**2), self.link == "logistic"
        if not self.exclusive:
            return beliefs.observe(state, arm, reward, noise, logistic)
        weight = self.told_of_others(params)
        return beliefs.observe_all(state, arm, reward, noise, logistic, weight)

    def told_of_others(self, params: Params) -> Array | float:
        """The weight that a reward has for the other arms, if rewards are exclusive."""
        return np.float32(self.exclusive)

    def noise(self, seen: Seen) -> Array | float:
        """The variances of rewards [K], or of all, on the scale of the linear functions."""
        if self.link == "identity":
            return np.float32(self.sd**2)
        p = nn(seen.mean).sigmoid(seen.mean)
        return 1 / namespace(p).maximum(p * (1 - p), np.float32(1e-7))

    def short(self, seen: Seen) -> Array:
        """How far expected rewards are below the greatest [K], in units of 2 sd, which is usually 1.

        With a logistic link they are the rewards at the mean of the belief.
        """
        if self.link == "identity":
            return seen.gap / (2 * self.sd)
        p = nn(seen.mean).sigmoid(seen.mean)
        return p.max() - p

    def recommend(self, params: Params, state: Seen) -> Array:
        return state.mean.argmax()

    def check_state(self, state: Any, rounds: int) -> None:
        if state.rewards != np.floor(state.rewards) or not 0 <= state.rewards <= rounds:
            raise InputError("rewards in memory must be a whole number, and no more than the rounds")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearIndex(Greatest, LinearPolicy):
    """A policy with linear beliefs that pulls the arm with the greatest index."""
