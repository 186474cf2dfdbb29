"""Forgetting: counts that fade, at a rate that is learned, for rewards whose means move."""

import dataclasses
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from gradband.core.arrays import Array, add_at, namespace, real
from gradband.policies.base import Bounds, Counting, Counts, InputError, Params, Policy, Spec, in_range

START = 0.01  # of the rate
LEAST, MOST = 1e-9, 0.5  # of the rate; the least forgets nothing in a million pulls
FEWEST = 1e-6  # pulls that a mean is divided by


class Faded(NamedTuple):
    """What is left of pulls T [K] and sums of rewards [K], and how many pulls there were."""

    pulls: Array
    sums: Array
    seen: Array
    left: Array | None = None
    """rounds left, this one included, if the horizon does not tell"""

    @property
    def means(self) -> Array:
        """Empirical means [K] of what is left, 0 for arms not yet pulled."""
        return self.sums / namespace(self.pulls).maximum(self.pulls, FEWEST)

    @property
    def rounds(self) -> Array:
        return self.seen

    def rounds_left(self, horizon: int) -> Array:
        """How many rounds are left, this one included; 0 or less beyond the horizon."""
        return horizon - self.seen if self.left is None else self.left


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forgetting(Counting):
    """A policy of counts that forgets: with each pull, all counts shrink by a factor γ = 1 − λ.

    The rate λ is the parameter `forgetting`. It is learned on a logarithmic scale with the policy's other
    parameters; at its least value nothing is forgotten. To make a policy forget, put this class before it,
    as in `class Mine(Forgetting, SoftElim)`, and name it as `still`.
    """

    forgets: ClassVar[bool] = True
    still: ClassVar[type[Policy]]
    """the policy that forgets nothing"""
    forgetting: Annotated[float, in_range(LEAST, MOST)] = START

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "still" in vars(cls):
            cls.log_scale = cls.still.log_scale | {"forgetting"}

    @property
    def as_still(self) -> Policy:
        """This policy, forgetting nothing."""
        names = (field.name for field in dataclasses.fields(self.still))
        return self.still(**{name: getattr(self, name) for name in names})

    def init(self, key: Array) -> Params:
        return self.as_still.init(key) | {"forgetting": real(self.forgetting)}

    def specs(self) -> dict[str, Spec] | None:
        others = self.as_still.specs() if type(self).init is Forgetting.init else None
        return None if others is None else others | {"forgetting": Spec()}

    def bounds(self) -> Bounds:
        lower, upper = self.as_still.bounds()
        return lower | {"forgetting": LEAST}, upper | {"forgetting": MOST}

    def compiled(self) -> Self:
        return dataclasses.replace(super().compiled(), forgetting=START)

    def begin(self, params: Params, latent: Array) -> Faded:
        xp = namespace(latent)
        return Faded(xp.zeros(self.arms), xp.zeros(self.arms), xp.zeros(()))

    def update(self, params: Params, state: Faded, arm: Array, reward: Array) -> Faded:
        kept = 1 - params["forgetting"]
        return Faded(
            add_at(kept * state.pulls, arm, 1), add_at(kept * state.sums, arm, reward), state.seen + 1
        )

    def update_many(self, params: Params, state: Faded, pulls: Array, sums: Array) -> Faded:
        """After a batch, in which nothing is forgotten of the batch itself."""
        xp, count = namespace(state.pulls, pulls), pulls.sum()
        kept = xp.exp(count * xp.log1p(-params["forgetting"]))
        return Faded(kept * state.pulls + pulls, kept * state.sums + sums, state.seen + count)

    def missed(self, state: Faded, rounds: int) -> Faded:
        return state._replace(seen=np.asarray(state.seen + rounds))

    def after(self, counts: Counts) -> Faded:
        """The state if nothing of these counts is forgotten so far."""
        return Faded(counts.pulls, counts.sums, np.asarray(counts.rounds))

    def check_state(self, state: Any, rounds: int) -> None:
        pulls, sums, seen = state.pulls, state.sums, state.seen
        if (pulls < 0).any() or seen < 0 or seen > rounds or pulls.sum() > seen + 1e-6 * (1 + rounds):
            raise InputError("pulls in memory must not be negative, nor more than the rounds")
        if (self.unit or self.binary) and ((sums < -1e-9) | (sums > pulls + 1e-9 * (1 + pulls))).any():
            raise InputError("sums in memory must be between 0 and the pulls")
