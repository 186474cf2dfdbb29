"""The shape that all policies share.

A policy is a frozen dataclass of settings, and pure functions for one instance at a time. What is
learned (`params`) and what is remembered (`state`) are passed in and out.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import LARGEST, InputError, number, number_of_arms, positive, shown
from gradband.core.pytrees import one_hot

Params = dict[str, Array]
"""A policy's parameters θ by name."""
State = Any
"""What a policy remembers of a history: any pytree of arrays."""
KEPT = "kept"  # name of what a gradient through a rollout keeps rather than computes again


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """A bandit policy p_θ(i | H). Subclasses give `begin`, `update`, and `log_probs` or `act`.

    `bind` fixes the number of arms K and the horizon n before anything else is called.
    """

    name: ClassVar[str]
    differentiable: ClassVar[bool] = True
    binary: ClassVar[bool] = False
    """Sees rewards in [0, 1] rounded to 0 or 1 at random, with the same mean."""
    unit: ClassVar[bool] = False
    """Is made for rewards in [0, 1] only."""
    batches: ClassVar[bool] = False
    """Can hear of a batch of pulls at once (`update_many`)."""
    opens: ClassVar[bool] = False
    """Pulls each arm once before anything else, where pulls are decided one by one."""
    latents: ClassVar[int] = 1
    """Values of a latent variable that is drawn before the first round."""
    log_scale: ClassVar[frozenset[str]] = frozenset()
    """Positive parameters that are learned by their logarithms."""

    arms: int = 0
    horizon: int = 0

    def bind(self, arms: int, horizon: int) -> Self:
        """This policy for K arms and n rounds."""
        bound = dataclasses.replace(self, arms=number_of_arms(arms), horizon=horizon)
        if self.opens and horizon < arms:
            raise InputError(
                f"{self.name} pulls each arm once first: with {arms} arms it needs a horizon of at least "
                f"{arms}, not {horizon}"
            )
        bound.check()
        return bound

    def check(self) -> None:
        """Refuses settings that can't be played."""

    def init(self, key: Array) -> Params:
        """Parameters to start from. Policies with random initial weights use the key."""
        return {}

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and types of the parameters, which must be a dictionary of arrays, not of dictionaries."""
        found = jax.eval_shape(self.init, jax.random.key(0))
        for name, leaf in found.items():
            if not isinstance(leaf, jax.ShapeDtypeStruct):
                raise InputError(
                    f"the parameters of {self.name} must be arrays by name, and {name} is a "
                    f"{type(leaf).__name__}: give each array in it a name of its own"
                )
        return found

    def prepare(self, progress: Callable[[float], None]) -> None:
        """Does what `init` would take long for, telling `progress` the share that is done."""

    def as_params(self, given: dict[str, Any]) -> Params:
        """These numbers or arrays as the policy's parameters, if they are its own and within bounds."""
        shapes = self.shapes()
        if not isinstance(given, dict) or set(given) != set(shapes):
            wanted = ", ".join(shapes) or "none"
            raise InputError(f"the parameters of {self.name} are: {wanted}; not {shown(list(given))}")
        lower, upper = self.bounds()
        for name, value in given.items():
            array, shape = np.asarray(value), shapes[name].shape
            if array.shape != shape or array.dtype.kind not in "fiu" or not fits(array):
                raise InputError(f"the parameter {name} must hold finite numbers of the shape {shape}")
            if (array < np.float32(lower[name])).any() or (array > np.float32(upper[name])).any():
                raise InputError(
                    f"{name} must lie in [{lower[name]:g}, {upper[name]:g}] for {self.name} with "
                    f"{self.arms} arms and {self.horizon} rounds, not {shown(array.tolist())}"
                )
        return {name: jnp.asarray(value, shapes[name].dtype) for name, value in given.items()}

    def folded(self, params: Params) -> Params:
        """The parameters as `begin`, `log_probs`, `act` and `update` get them, made once before round 1."""
        return params

    def compiled(self) -> Self:
        """The policy as compiled code knows it, without what only `init` uses."""
        return self

    def bounds(self) -> tuple[dict[str, float], dict[str, float]]:
        """Least and greatest values of each parameter; none by default."""
        shapes = self.shapes()
        return dict.fromkeys(shapes, -math.inf), dict.fromkeys(shapes, math.inf)

    def latent_log_probs(self, params: Params) -> Array:
        """Log-probabilities [latents] of the latent variable."""
        return jnp.zeros(1)

    def begin(self, params: Params, latent: Array) -> State:
        """The state before the first round."""
        raise NotImplementedError

    def log_probs(self, params: Params, state: State) -> Array:
        """log p_θ(i | H) of all arms [K]; −inf where an arm can't be pulled."""
        raise NotImplementedError

    def next_log_probs(self, params: Params, state: State, t: Array | int) -> Array:
        """log p of all arms [K] for a single pull in round t: arm t while t < K, if the policy `opens`."""
        log_probs = self.log_probs(params, state)
        return jnp.where(t < self.arms, certain(t, self.arms), log_probs) if self.opens else log_probs

    def act(self, key: Array, params: Params, state: State) -> Array:
        """The arm that a policy without a density pulls."""
        raise NotImplementedError

    def probabilities(self, params: Params, state: State) -> Array:
        """Probabilities [K] of a single pull, also of policies that can't be differentiated."""
        return jnp.exp(self.log_probs(params, state))

    def recommend(self, params: Params, state: State) -> Array:
        """The arm to stay with after the last round: here the one that it would most likely pull."""
        return jnp.argmax(self.log_probs(params, state))

    def update(self, params: Params, state: State, arm: Array, reward: Array) -> State:
        """The state after pulling an arm."""
        raise NotImplementedError

    def update_many(self, params: Params, state: State, pulls: Array, sums: Array) -> State:
        """The state after a batch: the pulls of each arm [K], and its sums of rewards of 0 and 1."""
        raise NotImplementedError

    def allocate(self, key: Array, params: Params, state: State, batch: int) -> Array:
        """How often a policy without a density pulls each arm [K] in a batch."""
        return prng.multinomial(key, jnp.asarray(batch, float), self.probabilities(params, state))

    def settings(self) -> dict[str, Any]:
        """Hyper-parameters, as a policy file keeps them."""
        given = dataclasses.asdict(self)
        return {name: given[name] for name in given if name not in ("arms", "horizon")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneParameter(Policy):
    """A policy with a single parameter θ > 0 in [`least`, `most`], started at `theta`.

    Where rewards are not in [0, 1], learning starts from the usual `theta` times a `power` of twice their
    standard deviation σ: for SoftElim, whose θ scales with the square of the rewards, from 4 σ².
    """

    log_scale: ClassVar[frozenset[str]] = frozenset({"theta"})
    power: ClassVar[int] = 0
    least: ClassVar[float] = 1e-15  # SoftElim's θ may be as small as a variance
    most: ClassVar[float] = math.inf
    theta: float = 1.0

    def check(self) -> None:
        lower, upper = (bound["theta"] for bound in self.bounds())
        number(f"theta of {self.name}", self.theta, lower, upper)

    def init(self, key: Array) -> Params:
        return {"theta": jnp.asarray(self.theta, float)}

    def in_units(self, scale: float) -> Self:
        """The policy for rewards with this standard deviation."""
        return dataclasses.replace(self, theta=self.theta * (2 * scale) ** self.power)

    def compiled(self) -> Self:
        return dataclasses.replace(self, theta=1.0)  # so that another θ is not compiled again

    def bounds(self) -> tuple[dict[str, float], dict[str, float]]:
        return {"theta": self.least}, {"theta": self.most}


def fits(array: np.ndarray) -> bool:
    """Whether float32 can hold all of it as finite numbers."""
    if array.dtype.kind in "iu":
        return True
    return bool((np.abs(array.astype(np.float64)) <= LARGEST).all())


class Counts(NamedTuple):
    """What most policies remember: pulls T [K] and sums of rewards [K]."""

    pulls: Array
    sums: Array

    @classmethod
    def zeros(cls, arms: int) -> "Counts":
        return cls(jnp.zeros(arms), jnp.zeros(arms))

    @property
    def means(self) -> Array:
        """Empirical means [K], 0 for arms not yet pulled."""
        return self.sums / jnp.maximum(self.pulls, 1)

    @property
    def rounds(self) -> Array:
        return self.pulls.sum()

    def add(self, arm: Array, reward: Array) -> "Counts":
        pulled = one_hot(arm, self.pulls.shape[0]).astype(self.pulls.dtype)
        return Counts(self.pulls + pulled, self.sums + pulled * reward)

    def add_many(self, pulls: Array, sums: Array) -> "Counts":
        return Counts(self.pulls + pulls, self.sums + sums)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counting(Policy):
    """A policy that remembers counts. Set `opens` to have it pull each arm once before anything else."""

    batches: ClassVar[bool] = True

    def begin(self, params: Params, latent: Array) -> Any:
        return Counts.zeros(self.arms)

    def update(self, params: Params, state: Any, arm: Array, reward: Array) -> Any:
        return state.add(arm, reward)

    def update_many(self, params: Params, state: Any, pulls: Array, sums: Array) -> Any:
        return state.add_many(pulls, sums)

    def probabilities(self, params: Params, state: Any) -> Array:
        return jnp.exp(self.next_log_probs(params, state, state.rounds))

    def estimates(self, params: Params, state: Any) -> Array:
        """What the arms' means are taken to be [K], the greatest of which is recommended."""
        return jnp.where(state.pulls > 0, state.means, -jnp.inf)

    def recommend(self, params: Params, state: Any) -> Array:
        return jnp.argmax(self.estimates(params, state))

    def after(self, counts: Counts) -> State:
        """The state after rewards of 0 and 1 with these counts."""
        return counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Believing(Counting):
    """A policy that believes an arm's mean to be Beta(a + ones, b + zeros).

    Rewards strictly between 0 and 1 are rounded at random to 0 or 1.
    """

    binary: ClassVar[bool] = True
    a: float = 1.0
    b: float = 1.0

    def check(self) -> None:
        super().check()
        positive(f"a of {self.name}", self.a)
        positive(f"b of {self.name}", self.b)

    def estimates(self, params: Params, state: Any) -> Array:
        return (self.a + state.sums) / (self.a + self.b + state.pulls)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index(Counting):
    """Pulls the arm with the greatest index, a random one of them if there are several."""

    differentiable: ClassVar[bool] = False

    def index(self, params: Params, state: Any) -> Array:
        """The arms' indices [K]; infinite for an arm that must be tried."""
        raise NotImplementedError

    def act(self, key: Array, params: Params, state: Any) -> Array:
        index = self.index(params, state)
        best = index == index.max()
        chosen = jnp.floor(prng.uniform(key) * best.sum())
        return jnp.argmax(jnp.cumsum(best) > chosen)

    def probabilities(self, params: Params, state: Any) -> Array:
        index = self.index(params, state)
        best = index == index.max()
        return best / best.sum()


def certain(arm: Array | int, arms: int) -> Array:
    """Log-probabilities [K] that pull one arm for sure."""
    return jnp.where(one_hot(arm, arms), 0.0, -jnp.inf)
