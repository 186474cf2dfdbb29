"""The interface of all policies.

A policy is a frozen dataclass of settings, with pure functions for one instance at a time. What it learns
(`params`) and what it remembers (`state`) are passed in and out. Formulas are written once, over the
namespace of their arrays: JAX when a policy is learned, NumPy when it is played.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from gradband.core.arrays import Array, map_leaves, map_nodes, namespace, on_device, one_hot, real
from gradband.core.errors import LARGEST, InputError, number, number_of_arms, shown
from gradband.policies.counts import Counts
from gradband.policies.settings import check_settings

Params = dict[str, Array]
"""A policy's parameters θ by name."""
State = Any
"""What a policy remembers of a history: any pytree of arrays."""
Bounds = tuple[dict[str, float], dict[str, float]]
"""Least and greatest values of the parameters by name."""
KEPT = "kept"  # name of values that a gradient through a rollout stores instead of computing again


class Spec(NamedTuple):
    """Shape and type of a parameter; `float` stands for the precision in use."""

    shape: tuple[int, ...] = ()
    dtype: Any = float

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """A bandit policy p_θ(i | H). Subclasses define `begin`, `update`, and `log_probs` or `act`.

    `bind` fixes the number of arms K and the horizon n before anything else is called.
    """

    name: ClassVar[str]
    differentiable: ClassVar[bool] = True
    binary: ClassVar[bool] = False
    """Observes rewards in [0, 1] rounded to 0 or 1 at random, with the same mean."""
    unit: ClassVar[bool] = False
    """Needs rewards in [0, 1]."""
    batches: ClassVar[bool] = False
    """Can observe a batch of pulls at once (`update_many`)."""
    any_sums: ClassVar[bool] = False
    """Takes rewards of any size: a player accepts any sums of a batch, not only counts of ones."""
    opens: ClassVar[bool] = False
    """Pulls each arm once before anything else, unless pulls come in batches."""
    flexible: ClassVar[bool] = False
    """Arms can be added and retired while it is played: no parameter has one entry per arm."""
    bounded: ClassVar[bool] = False
    """Cannot be played beyond its horizon."""
    trained: ClassVar[bool] = True
    """Learns its parameters, if it has any; Gittins indices are computed."""
    listed: ClassVar[bool] = True
    """Can be used by its name; otherwise only from a file."""
    takes_prior: ClassVar[bool] = False
    """Given by name alone, it gets the prior of its problem, or a beta prior like it."""
    latents: ClassVar[int] = 1
    """Number of values of a latent variable that is drawn before the first round."""
    log_scale: ClassVar[frozenset[str]] = frozenset()
    """Positive parameters that are learned on a logarithmic scale."""
    lead: ClassVar[str] = "theta"
    """The one of them whose decades are surveyed first."""
    trainer: ClassVar[str] = "gradband"
    """How it is learned: the name of an entry of `gradband.learning.learn.TRAINERS`."""

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
        """Raises an error for invalid settings."""
        check_settings(self, self.name)

    def init(self, key: Array) -> Params:
        """Initial parameters. Policies with random weights use the key."""
        return {}

    def stored(self) -> dict[str, np.ndarray] | None:
        """The initial parameters, if they are known without JAX."""
        return {} if self.specs() == {} else None

    def specs(self) -> dict[str, Spec] | None:
        """Shapes and types of the parameters, if they are known without JAX."""
        return {} if type(self).init is Policy.init else None

    def shapes(self) -> dict[str, Any]:
        """Shapes and types of the parameters by name, or by path if nested, as `layer/w`."""
        known = self.specs()
        if known is not None:
            return known
        import jax

        from gradband.core.pytrees import by_path

        return by_path(jax.eval_shape(self.init, jax.random.key(0)))

    @property
    def core(self) -> "Policy":
        """The policy whose parameters are learned: itself, or one that plays inside it."""
        return self

    def with_core(self, core: Any) -> Any:
        """The same with another such policy."""
        return core

    def prepare(self, progress: Callable[[float], None]) -> None:
        """Does the slow part of `init` in advance, and reports the share done to `progress`."""

    def as_params(self, given: dict[str, Any]) -> Params:
        """These numbers or arrays as the policy's parameters, or an error if they are not.

        They are given by name, or as `init` returns them; nested parameters also by their paths.
        """
        import jax

        shapes = self.shapes()
        tree: Any = None
        if self.specs() is None:
            tree = jax.tree.structure(jax.eval_shape(self.init, jax.random.key(0)))
            if not isinstance(given, dict) or set(given) != set(shapes):
                with contextlib.suppress(TypeError, ValueError):  # other trees fail the check below
                    given = dict(zip(shapes, tree.flatten_up_to(given), strict=True))
        self._check_params(given, shapes, self.bounds())
        found = {name: on_device(given[name], shape.dtype) for name, shape in shapes.items()}
        return found if tree is None else jax.tree.unflatten(tree, found.values())

    def as_arrays(self, given: dict[str, Any]) -> dict[str, np.ndarray]:
        """The same by name for NumPy, in double precision and without JAX."""
        found = {name: np.asarray(value) for name, value in given.items()}
        specs = self.specs()
        if specs is None:  # a class of the user's own: any shapes
            specs = {name: Spec(array.shape, array.dtype) for name, array in found.items()}
        free = type(self).bounds is Policy.bounds
        self._check_params(found, specs, unbounded(specs) if free else self.bounds())
        kinds = {name: np.dtype(spec.dtype).kind for name, spec in specs.items()}
        return {name: a.astype(np.float64) if kinds[name] == "f" else a for name, a in found.items()}

    def _check_params(self, given: Any, shapes: dict[str, Any], bounds: Bounds) -> None:
        """Raises an error for other names or shapes, and for values out of bounds."""
        if not isinstance(given, dict) or set(given) != set(shapes):
            wanted = ", ".join(shapes) or "none"
            had = list(given) if isinstance(given, dict) else given
            raise InputError(f"the parameters of {self.name} must be: {wanted}; not {shown(had)}")
        for name, value in given.items():
            array, shape = np.asarray(value), shapes[name].shape
            low, high = (bound[name] for bound in bounds)
            if array.shape != shape or array.dtype.kind not in "fiu" or not fits(array):
                raise InputError(f"the parameter {name} must hold finite numbers of shape {shape}")
            if (array < np.float32(low)).any() or (array > np.float32(high)).any():
                raise InputError(
                    f"{name} must lie in [{low:g}, {high:g}] for {self.name} with {self.arms} arms and "
                    f"{self.horizon} rounds, not {shown(array.tolist())}"
                )

    def folded(self, params: Params) -> Params:
        """The parameters as `begin`, `log_probs`, `act` and `update` take them, computed once."""
        return params

    def compiled(self) -> Self:
        """The policy without settings that only `init` uses, so that other values share compiled code."""
        return self

    def bounds(self) -> Bounds:
        """Least and greatest values of each parameter, by name or path; unbounded by default."""
        return unbounded(self.shapes())

    def latent_log_probs(self, params: Params) -> Array:
        """Log-probabilities [latents] of the latent variable."""
        return np.zeros(1)

    def begin(self, params: Params, latent: Array) -> State:
        """The state before the first round."""
        raise NotImplementedError

    def see(self, params: Params, state: State, features: Array) -> State:
        """The state with a round's features [K, d] or [d]; ignored by default.

        `log_probs`, `act` and `update` get what it returns in place of the state.
        """
        return state

    def log_probs(self, params: Params, state: State) -> Array:
        """log p_θ(i | H) of all arms [K]; −inf for an arm that cannot be pulled."""
        raise NotImplementedError

    def next_log_probs(self, params: Params, state: State, t: Array | int) -> Array:
        """log p of all arms [K] for a single pull in round t: arm t while t < K, if the policy `opens`."""
        log_probs = self.log_probs(params, state)
        if not self.opens:
            return log_probs
        return namespace(log_probs, t).where(t < self.arms, certain(t, self.arms), log_probs)

    def act(self, key: Array, params: Params, state: State) -> Array:
        """The arm to pull, for a policy without `log_probs`."""
        raise NotImplementedError

    def probabilities(self, params: Params, state: State) -> Array:
        """Probabilities [K] of a pull in a batch: without the first pulls of a policy that `opens`."""
        log_probs = self.log_probs(params, state)
        return namespace(log_probs).exp(log_probs)

    def next_probabilities(self, params: Params, state: State) -> Array:
        """Probabilities [K] of the next single pull."""
        return self.probabilities(params, state)

    def recommend(self, params: Params, state: State) -> Array:
        """The arm to use after the last round; by default the one with the highest probability."""
        return self.log_probs(params, state).argmax()

    def update(self, params: Params, state: State, arm: Array, reward: Array) -> State:
        """The state after pulling an arm."""
        raise NotImplementedError

    def update_many(self, params: Params, state: State, pulls: Array, sums: Array) -> State:
        """The state after a batch: the pulls [K] of each arm, and its sums [K] of rewards."""
        raise NotImplementedError

    def update_late(self, params: Params, state: State, arm: Array, reward: Array, p: Array) -> State:
        """The state after a late reward, of an arm that was pulled with probability p."""
        return self.update(params, state, arm, reward)

    def update_many_late(self, params: Params, state: State, pulls: Array, sums: Array, p: Array) -> State:
        """The state after the late rewards of a batch that was decided with probabilities p [K]."""
        return self.update_many(params, state, pulls, sums)

    def correct(self, state: State, arm: int, heard: float, reward: float, p: float) -> State | None:
        """The state if an arm's reward had been `reward` instead of `heard`, which was assumed.

        None if the state cannot be corrected, for example because it has more than sums. The arm was pulled
        with probability p.
        """
        return None

    def correct_many(self, state: State, heard: Array, sums: Array, p: Array) -> State | None:
        """The same for a batch, with the sums of rewards [K] that were assumed, and the right ones."""
        return None

    def decided(self, state: State) -> State:
        """The state after a decision, before its reward."""
        return state

    def missed(self, state: State, rounds: int) -> State:
        """The state after this many rewards of retired arms."""
        return map_nodes(Counts, lambda counts: counts.miss(rounds), state)

    def is_by_arm(self, leaf: Any) -> bool:
        """Whether an array of the state has one entry per arm."""
        return np.shape(leaf)[:1] == (self.arms,)

    def add_arm(self, state: State) -> State:
        """The state with a new arm."""

        def longer(path: Any, leaf: np.ndarray) -> np.ndarray:
            return np.concatenate([leaf, np.zeros_like(leaf[:1])]) if self.is_by_arm(leaf) else leaf

        return map_leaves(longer, state)

    def retire_arm(self, state: State, arm: int) -> State:
        """The state without an arm; later arms move up."""

        def shorter(path: Any, leaf: np.ndarray) -> np.ndarray:
            return np.delete(leaf, arm, axis=0) if self.is_by_arm(leaf) else leaf

        kept = map_nodes(Counts, lambda counts: counts.miss(counts.pulls[arm]), state)
        return map_leaves(shorter, kept)

    def check_play(self) -> None:
        """Raises an error for settings that NumPy cannot play."""

    def check_state(self, state: State, rounds: int) -> None:
        """Raises an error for a state that cannot result from this many rounds."""

    def allocate(self, key: Array, params: Params, state: State, batch: int) -> Array:
        """Pulls of each arm [K] in a batch, for a policy without `log_probs`."""
        from gradband.core import prng

        return prng.multinomial(key, real(batch), self.probabilities(params, state))

    def settings(self) -> dict[str, Any]:
        """The settings by name, as in a policy file."""
        given = dataclasses.asdict(self)
        return {name: given[name] for name in given if name not in ("arms", "horizon")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneParameter(Policy):
    """A policy with one parameter θ > 0 in [`least`, `most`], which starts at `theta`.

    If rewards are not in [0, 1], learning starts from `theta` · (2 σ)^`power`, σ being their standard
    deviation: from 4 σ² for SoftElim, whose θ scales with the square of rewards.
    """

    log_scale: ClassVar[frozenset[str]] = frozenset({"theta"})
    power: ClassVar[int] = 0
    least: ClassVar[float] = 1e-15  # SoftElim's θ may be as small as a variance
    most: ClassVar[float] = math.inf
    theta: float = 1.0

    def check(self) -> None:
        super().check()
        lower, upper = (bound["theta"] for bound in self.bounds())
        number(f"theta of {self.name}", self.theta, lower, upper)

    def init(self, key: Array) -> Params:
        return {"theta": real(self.theta)}

    def specs(self) -> dict[str, Spec] | None:
        return {"theta": Spec()} if type(self).init is OneParameter.init else None

    def in_units(self, scale: float) -> Self:
        """The policy for rewards with this standard deviation."""
        return dataclasses.replace(self, theta=self.theta * (2 * scale) ** self.power)

    def compiled(self) -> Self:
        return dataclasses.replace(self, theta=1.0)

    def bounds(self) -> Bounds:
        return {"theta": self.least}, {"theta": self.most}


def unbounded(names: Iterable[str]) -> Bounds:
    return dict.fromkeys(names, -math.inf), dict.fromkeys(names, math.inf)


def fits(array: np.ndarray) -> bool:
    """Whether float32 can hold all of it as finite numbers."""
    return array.dtype.kind in "iu" or bool((np.abs(array.astype(np.float64)) <= LARGEST).all())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greatest(Policy):
    """Pulls the arm with the greatest index; ties are broken at random."""

    differentiable: ClassVar[bool] = False

    def index(self, params: Params, state: Any) -> Array:
        """The arms' indices [K]; infinite for an arm that must be pulled first."""
        raise NotImplementedError

    def act(self, key: Array, params: Params, state: Any) -> Array:
        from gradband.core import prng

        index = self.index(params, state)
        best = index == index.max()
        chosen = namespace(index).floor(prng.uniform(key) * best.sum())
        return (best.cumsum() > chosen).argmax()

    def probabilities(self, params: Params, state: Any) -> Array:
        index = self.index(params, state)
        best = index == index.max()
        return best / best.sum()


def certain(arm: Array | int, arms: int) -> Array:
    """Log-probabilities [K] that pull one arm with certainty."""
    return namespace(arm).where(one_hot(arm, arms), 0.0, -math.inf)
