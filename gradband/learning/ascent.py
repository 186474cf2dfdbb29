"""Steps of gradient ascent: an optimiser, a scale, and projection onto bounds."""

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from gradband.core.arrays import on_device
from gradband.core.pytrees import flattened, map_by_path
from gradband.gradient.estimator import Estimate
from gradband.policies import Params, Policy

CONFIDENCE = 3.0  # standard errors added to the gradient's norm at θ₀ for c
PLAIN = optax.sgd(1.0)  # its steps are multiplied by α
SCALES = ("log", "linear")


@dataclasses.dataclass(frozen=True)
class Steps:
    """Steps of an optimiser, on the parameters or on the logarithms of positive ones."""

    policy: Policy
    optimizer: optax.GradientTransformation
    scale: str

    def to_scale(self, params: Params) -> Params:
        return map_by_path(lambda name, leaf: jnp.log10(leaf) if self._log(name) else leaf, params)

    def from_scale(self, scaled: Params) -> Params:
        return map_by_path(lambda name, leaf: 10**leaf if self._log(name) else leaf, scaled)

    def _log(self, name: str) -> bool:
        return self.scale == "log" and name in self.policy.log_scale

    @property
    def moved_by_logarithm(self) -> frozenset[str]:
        return self.policy.log_scale if self.scale == "log" else frozenset()

    def shifted(self, params: Params, offsets: dict[str, float]) -> Params:
        """The parameters moved by offsets on their scale, within the policy's bounds."""
        lower, upper = self.policy.bounds()

        def shift(name: str, leaf: Any) -> Any:
            if name not in offsets:
                return leaf
            value = np.asarray(leaf, np.float64)  # with NumPy nothing is compiled
            there = value * 10 ** offsets[name] if self._log(name) else value + offsets[name]
            return on_device(np.clip(there, lower[name], upper[name]), np.float32)

        return map_by_path(shift, params)

    def moved(self, params: Params, way: np.ndarray) -> Params:
        """The parameters moved by offsets [P] on their scale, in the order of leaves, within bounds."""
        lower, upper = self.policy.bounds()
        begin = 0

        def move(name: str, leaf: Any) -> np.ndarray:
            nonlocal begin
            value = np.asarray(leaf, np.float64)
            own = way[begin : begin + value.size].reshape(value.shape)
            begin += value.size
            there = value * 10**own if self._log(name) else value + own
            return np.clip(there, lower[name], upper[name]).astype(np.float32)

        return map_by_path(move, params)

    def mean(self, history: list[np.ndarray], like: Params) -> Params:
        """The mean of flat parameters [P], on the scale of the steps."""
        log = flattened(map_by_path(lambda name, leaf: np.full(np.shape(leaf), self._log(name)), like))
        seen = np.asarray(history, np.float64)
        scaled = np.where(log, np.log10(np.where(log, seen, 1.0)), seen).mean(0)
        flat, places = np.where(log, 10.0 ** np.where(log, scaled, 0.0), scaled), iter(range(scaled.size))
        leaves, tree = jax.tree.flatten(like)
        parts = ([flat[next(places)] for _ in range(leaf.size)] for leaf in leaves)
        found = [np.reshape(part, leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(tree, [on_device(leaf, np.float32) for leaf in found])

    def within(self, params: Params) -> Params:
        """The parameters projected onto the policy's bounds."""
        lower, upper = self.policy.bounds()
        return map_by_path(lambda name, leaf: jnp.clip(leaf, lower[name], upper[name]), params)

    def slopes(self, params: Params) -> Params:
        """dθ / ds for each parameter θ, where s is its value on the scale of the steps."""
        return map_by_path(self._slope, params)

    def _slope(self, name: str, x: Any) -> Any:
        return x * np.float32(math.log(10)) if self._log(name) else x * 0 + 1

    def norm(self, params: Params, flat: np.ndarray) -> float:
        """The norm of a gradient [P], converted to the scale of the steps."""
        return float(np.linalg.norm(flattened(self.slopes(params)) * flat))

    def first_state(self, params: Params) -> Any:
        return () if self.optimizer is PLAIN else self._first_state(params)

    def take(self, params: Params, state: Any, ascent: np.ndarray, alpha: np.float32) -> tuple[Params, Any]:
        """One step along the gradient [P] times α, projected onto the policy's bounds."""
        if self.optimizer is PLAIN:
            return self._plain_step(params, alpha * ascent), state
        return self._step(params, state, ascent, alpha)

    def _plain_step(self, params: Params, step: np.ndarray) -> Params:
        """With NumPy: for few parameters, calling compiled code would take longer than computing."""
        lower, upper = self.policy.bounds()
        begin = 0

        def move(name: str, leaf: Any) -> np.ndarray:
            nonlocal begin
            value = np.asarray(leaf)
            slope = self._slope(name, value)
            own = step[begin : begin + value.size].reshape(value.shape)
            begin += value.size
            moved = value * 10 ** (slope * own) if self._log(name) else value + own
            return np.clip(moved, lower[name], upper[name]).astype(np.float32)

        return map_by_path(move, params)

    @partial(jax.jit, static_argnums=0)
    def _first_state(self, params: Params) -> Any:
        return self.optimizer.init(self.to_scale(params))

    @partial(jax.jit, static_argnums=0)
    def _step(self, params: Params, state: Any, ascent: jax.Array, alpha: jax.Array) -> tuple[Params, Any]:
        scaled, (slopes, unravel) = self.to_scale(params), ravel_pytree(self.slopes(params))
        changes: Any
        changes, state = self.optimizer.update(unravel(-alpha * ascent * slopes), state, scaled)
        moved = self.from_scale(jax.tree.map(jnp.add, scaled, changes))
        return self.within(moved), state

    def bound_on_norm(self, params: Params, first: Estimate) -> float:
        """The constant c of the paper's step size: ‖ĝ(θ₀)‖ ≤ c with high probability."""
        return self.norm(params, first.mean) + CONFIDENCE * self.norm(params, np.nan_to_num(first.se))
