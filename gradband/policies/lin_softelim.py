"""SoftElim where arms have features (Boutilier et al., Differentiable meta-learning, 2020)."""

import dataclasses
from typing import Annotated, ClassVar

import numpy as np

from gradband.policies.base import Array, Params, Spec, namespace, nn, one_of
from gradband.policies.beliefs import Seen, see
from gradband.policies.tuned import ANY, Tuned

LEAST = 1e-12  # variance relative to that of rewards; arms with the same features do not differ at all


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinSoftElim(Tuned):
    """p_i ∝ exp(−g_i² / c_i), with the gap g_i of the expected reward xᵢᵀm to the greatest.

    c_i = xᵢᵀ A Σ A xᵢ, where Σ is the covariance of θ: the uncertainty about the arm. A is learned: a
    number `a`, a number for each feature (`shape="diagonal"`), or a symmetric matrix, a (M + Mᵀ) / 2 with M
    = I at first (`shape="full"`). With `variance="difference"`, c_i is the uncertainty about the difference
    of the arm to the best one. One-hot features and a wide prior give SoftElim, with θ = 2 a²
    σ², once each arm was pulled.
    """

    name: ClassVar[str] = "lin-softelim"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"a": ANY}
    shape: Annotated[str, one_of("scalar", "diagonal", "full")] = "scalar"
    variance: Annotated[str, one_of("arm", "difference")] = "arm"
    a: float = 1.0

    def specs(self) -> dict[str, Spec]:
        if self.shape == "full":
            return {"a": Spec(), "matrix": Spec((self.coordinates, self.coordinates))}
        return {"a": Spec((self.coordinates,) if self.shape == "diagonal" else ())}

    def init(self, key: Array) -> Params:
        import jax.numpy as jnp

        matrix = {"matrix": jnp.eye(self.coordinates)} if self.shape == "full" else {}
        return {"a": self.a * jnp.ones(self.specs()["a"].shape)} | matrix

    def log_probs(self, params: Params, state: Seen) -> Array:
        xp, gap = namespace(state.mean), state.gap
        least = np.float32(LEAST) * self.noise(state)
        # No derivative of 0 / 0, where the best arm differs from itself.
        uncertainty = xp.where(gap > 0, xp.maximum(self.uncertainty(params, state), least), 1)
        exponent = -(gap**2) / uncertainty
        return nn(exponent).log_softmax(exponent)

    def uncertainty(self, params: Params, seen: Seen) -> Array:
        """c_i [K]."""
        a = params["a"]
        if self.shape == "scalar":
            return a**2 * (seen.variance if self.variance == "arm" else seen.apart)
        x = seen.features
        if self.shape == "full":
            matrix = params["matrix"] + params["matrix"].T
            turned = a / 2 * (x[..., None, :] * (matrix if x.ndim == 1 else matrix[None])).sum(-1)
        else:
            turned = x * (a if x.ndim == 1 else a[None])
        stretched = see(seen.belief, turned)._replace(mean=seen.mean)
        return stretched.variance if self.variance == "arm" else stretched.apart
