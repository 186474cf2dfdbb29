"""Visitors of several groups, each group a bandit of its own, on which a policy of counts plays."""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gradband.core.arrays import Array, flatten, map_leaves, namespace
from gradband.core.errors import shown
from gradband.policies.base import Bounds, Counting, Counts, InputError, Params, Policy, Seeing, Spec, State
from gradband.policies.forgetting import Faded
from gradband.policies.text import as_text, from_text

ALIKE = 3.0  # visitors of each group, as if they had come before: shares of groups begin equal
OF_ITS_POLICY = (
    "differentiable",
    "binary",
    "unit",
    "any_sums",
    "trained",
    "log_scale",
    "lead",
    "trainer",
)


class Groups(NamedTuple):
    """What is remembered of all groups."""

    own: State
    """of each group what its policy remembers, leaves [C, …]"""
    visits: Array
    """rewards of each group [C]"""


class Turn(NamedTuple):
    """What is remembered of all groups, and of the visitor's."""

    groups: Groups
    group: Array
    """the visitor's group, as booleans [C]"""
    own: State
    """what its policy remembers, with the rounds that are left to the group"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByGroup(Seeing):
    """A policy of counts in each of C groups of visitors, who share nothing but its parameters.

    The features of a visitor are a one among zeros [C], in the place of the group. Any `policy` of counts
    may play, given by name, with settings if need be, or as a policy. Of the rounds that are left, a group
    expects its share of the visitors so far; shares are equal at first.

    >>> ByGroup(policy="softelim:theta=0.5").policy.theta
    0.5
    """

    name: ClassVar[str] = "by-group"
    takes_visitor: ClassVar[bool] = True
    takes_prior: ClassVar[bool] = True
    policy: Policy | str = "pretrained"

    def __post_init__(self) -> None:
        fill = object.__setattr__  # the dataclass is frozen
        if isinstance(self.policy, str) and self.policy.partition(":")[0] != self.name:  # it could nest
            fill(self, "policy", from_text(self.policy))
        if not isinstance(self.core, Counting) or self.core.bounded:
            what = self.core.name if isinstance(self.core, Policy) else shown(self.core)
            hint = "pretrained, index, softelim or ts"
            raise InputError(f"the policy of {self.name} must be one of counts, such as {hint}, not {what}")
        for name in OF_ITS_POLICY:
            fill(self, name, getattr(self.core, name))

    def check(self) -> None:
        super().check()
        if self.dims:
            self.core.bind(self.arms, self.own.horizon)

    def check_play(self) -> None:
        super().check_play()
        self.own.check_play()

    def check_features(self, features: np.ndarray) -> None:
        x = features.ravel()
        if x.sum() != 1 or ((x != 0) & (x != 1)).any():
            raise InputError(
                f"a context of {self.name} must be a one among zeros, in the place of the visitor's group, "
                f"not {shown(x.tolist())}"
            )

    @property
    def core(self) -> Policy:
        policy: Any = self.policy
        return policy

    def with_core(self, core: Policy) -> "ByGroup":
        return dataclasses.replace(self, policy=core)

    @functools.cached_property
    def own(self) -> Any:
        """The policy of a group, for an equal share of the rounds."""
        share = -(-self.horizon // max(self.dims, 1))
        return dataclasses.replace(self.core, arms=self.arms, horizon=share)

    def settings(self) -> dict[str, Any]:
        return {"dims": self.dims, "policy": as_text(self.core)}

    def compiled(self) -> "ByGroup":
        return self.with_core(self.core.compiled())

    def init(self, key: Array) -> Params:
        return self.own.init(key)

    def stored(self) -> dict[str, np.ndarray] | None:
        return self.own.stored()

    def specs(self) -> dict[str, Spec] | None:
        return self.own.specs()

    def shapes(self) -> dict[str, Any]:
        return self.own.shapes()

    def bounds(self) -> Bounds:
        return self.own.bounds()

    def as_params(self, given: dict[str, Any]) -> Params:
        return self.own.as_params(given)

    def as_arrays(self, given: dict[str, Any]) -> dict[str, np.ndarray]:
        return self.own.as_arrays(given)

    def folded(self, params: Params) -> Params:
        return self.own.folded(params)

    def begin(self, params: Params, latent: Array) -> Groups:
        if not self.dims:
            raise InputError(f"{self.name} needs a problem with contexts")
        first = self.own.begin(params, latent)
        return Groups(_stacked([first] * self.dims), namespace(latent).zeros(self.dims))

    def see(self, params: Params, state: Groups, features: Array) -> Turn:
        group = features > 0.5
        xp, visits = namespace(state.visits), state.visits.sum()
        share = (xp.where(group, state.visits, 0).sum() + ALIKE) / (visits + self.dims * ALIKE)
        left = 1 + (self.horizon - visits - 1) * share

        def of_group(path: Any, leaf: Array) -> Array:
            return xp.where(group.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0).sum(0, dtype=leaf.dtype)

        own = map_leaves(of_group, state.own)
        return Turn(state, group, _with_left(own, left))

    def log_probs(self, params: Params, state: Turn) -> Array:
        return self.own.log_probs(params, state.own)

    def act(self, key: Array, params: Params, state: Turn) -> Array:
        return self.own.act(key, params, state.own)

    def probabilities(self, params: Params, state: Turn) -> Array:
        return self.own.probabilities(params, state.own)

    def recommend(self, params: Params, state: Turn) -> Array:
        return self.own.recommend(params, state.own)

    def update(self, params: Params, state: Turn, arm: Array, reward: Array) -> Groups:
        own = self.own.update(params, _with_left(state.own, None), arm, reward)
        visits = state.groups.visits
        return Groups(_put(state, own), visits + state.group.astype(visits.dtype))

    def correct(self, state: Turn, arm: int, heard: float, reward: float, p: float) -> Groups | None:
        own = self.own.correct(_with_left(state.own, None), arm, heard, reward, p)
        return None if own is None else state.groups._replace(own=_put(state, own))

    def after(self, other: "ByGroup", state: Groups) -> Groups:
        """The state after what another policy has observed in the same groups."""
        own = [self.own.after(other.own.counts(_of(state, group))) for group in range(self.dims)]
        return Groups(_stacked(own), state.visits)

    def check_state(self, state: Groups, rounds: int) -> None:
        visits = state.visits
        if (visits < 0).any() or (visits != np.floor(visits)).any() or visits.sum() > rounds:
            raise InputError("visits in memory must be whole numbers, and no more than the rounds")
        for group, count in enumerate(visits):
            self.own.check_state(_of(state, group), int(count))


def _stacked(states: list[State]) -> State:
    """The states of all groups as one, leaves [C, …]."""
    rest = iter(
        [list(leaves) for leaves in zip(*(flatten(state).values() for state in states), strict=True)]
    )

    def stack(path: Any, leaf: Array) -> Array:
        return namespace(leaf).stack(next(rest))

    return map_leaves(stack, states[0])


def _of(state: Groups, group: int) -> State:
    """What is remembered of a group."""
    return map_leaves(lambda path, leaf: leaf[group], state.own)


def _with_left(state: State, left: Array | None) -> State:
    """A policy's state with the rounds that are left."""

    def told(path: Any, node: Any) -> Any:
        return node._replace(left=left) if isinstance(node, Counts | Faded) else node

    return map_leaves(told, state, (), (Counts, Faded))


def _put(state: Turn, own: State) -> State:
    """What is remembered of all groups, with something new of the visitor's."""
    xp, group, new = namespace(state.group), state.group, iter(flatten(own).values())

    def put(path: Any, old: Array) -> Array:
        return xp.where(group.reshape(-1, *(1,) * (old.ndim - 1)), next(new)[None], old)

    return map_leaves(put, state.groups.own)
