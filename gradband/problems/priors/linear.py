"""Arms with features, and expected rewards that are linear in them."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, number, number_of_arms, positive, unknown, whole
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, Visit, numbers, set_fields

FEATURES = ("normal", "uniform", "opposite")
SHAPES = ("normal", "uniform")


class Coefficients(NamedTuple):
    """An instance: θ [d], and the arms' features [K, d] if these stay the same."""

    theta: Array
    features: Array | None


@pytree("mean", "within", "scale", "table")
@dataclasses.dataclass(frozen=True, eq=False)
class Linear(Prior):
    """Expected rewards xᵢᵀθ, or their logistic function if rewards are 0 or 1.

    Coordinates of θ are independent, with the mean `mean` and the standard deviation `within`: normal, or
    uniform with `theta="uniform"`. Features of arms are drawn for each instance, and with `changing` for
    each round: `features="normal"` has the standard deviation `scale`, "uniform" is between −`scale` and
    `scale`, and "opposite" is normal for two arms, x and −x. A `table` [K, d] of features is the same for
    all instances.

    >>> Linear(arms=3, dims=2).sample(prng.root(0)).theta.shape
    (2,)
    """

    kind: ClassVar[str] = "linear"
    arms: int
    dims: int
    mean: float = 0.0
    within: float = 1.0
    theta: str = "normal"
    features: str = "normal"
    scale: float = 1.0
    changing: bool = False
    table: Any = ()
    rewards: laws.Reward = laws.Gaussian()

    def __post_init__(self) -> None:
        set_fields(self, arms=number_of_arms(self.arms), dims=whole("dims", self.dims))
        number("mean of the linear prior", self.mean)
        positive("within of the linear prior", self.within)
        positive("scale of the linear prior", self.scale)
        for what, given, known in (("features", self.features, FEATURES), ("theta", self.theta, SHAPES)):
            if given not in known:
                raise unknown(f"{what} of the linear prior", given, known)
        if self.features == "opposite" and self.arms != 2:
            raise InputError(f"features of opposite arms are for 2 arms, not {self.arms}")
        if not isinstance(self.changing, bool):
            raise InputError(f"changing of the linear prior must be true or false, not {self.changing!r}")
        if self.rewards.kind not in (laws.Gaussian.kind, laws.Bernoulli.kind):
            raise InputError(f"a linear prior has gaussian or bernoulli rewards, not {self.rewards.kind}")
        if self._fixed:
            table = numbers("table of the linear prior", self.table, axes=2)
            if table.shape != (self.arms, self.dims) or self.changing:
                raise InputError(
                    f"table of the linear prior must have the shape [{self.arms}, {self.dims}] and stay as "
                    f"it is, not the shape {list(table.shape)}"
                )
            set_fields(self, table=table)

    @property
    def _fixed(self) -> bool:
        return np.size(self.table) > 0

    def sample(self, key: Array) -> Coefficients:
        words = jax.random.bits(prng.fold_in(key, jnp.uint32(1)), (self.dims,))
        if self.theta == "normal":
            drawn = prng.normal_from(words)
        else:
            drawn = np.float32(np.sqrt(3)) * (2 * prng.open_unit(words) - 1)
        theta = self.mean + self.within * drawn
        if self.changing or self._fixed:
            return Coefficients(theta, None)
        return Coefficients(theta, self._drawn(prng.fold_in(key, jnp.uint32(2))))

    def _drawn(self, key: Array) -> Array:
        """Features [K, d]."""
        rows = 1 if self.features == "opposite" else self.arms
        u = prng.uniforms(key, rows * self.dims).reshape(rows, self.dims)
        if self.features == "uniform":
            return self.scale * (2 * u - 1)
        x = self.scale * prng.normal_of(u)
        return jnp.concatenate([x, -x]) if self.features == "opposite" else x

    def context(self, key: Array, instance: Coefficients, t: Array) -> Array:
        if self._fixed:
            return jnp.asarray(self.table, jnp.float32)
        return self._drawn(key) if instance.features is None else instance.features

    def means(self, instance: Visit) -> Array:
        """Expected rewards [K] in a round."""
        linear = (instance.features * instance.instance.theta[None]).sum(1)
        return jax.nn.sigmoid(linear) if self.rewards.unit else linear

    def describe(self) -> dict[str, Any]:
        found = super().describe()
        if not self._fixed:
            found.pop("table")
        return found
