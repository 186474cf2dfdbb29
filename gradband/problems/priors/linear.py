"""Arms with features, and expected rewards that are linear in them."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, number, number_of_arms, number_of_dims, positive, unknown
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, Visit, numbers, set_fields

FEATURES = ("normal", "uniform", "opposite")
SHAPES = ("normal", "uniform")


class Coefficients(NamedTuple):
    """An instance: θ [d], and the arms' features [K, d] if these stay the same."""

    theta: Array
    features: Array | None
    own: Array | None = None
    """what features do not say of the arms [K], if there is anything"""


@pytree("mean", "within", "scale", "table", "pool", "own")
@dataclasses.dataclass(frozen=True, eq=False)
class Linear(Prior):
    """Expected rewards xᵢᵀθ, or their logistic function if rewards are 0 or 1.

    Coordinates of θ are independent, with the mean `mean` and the standard deviation `within`, numbers or
    one for each [d]: normal, or uniform with `theta="uniform"`. Features of arms are drawn for each
    instance, and with `changing` for each round: `features="normal"` has the standard deviation `scale`,
    "uniform" is between −`scale` and `scale`, and "opposite" is normal for two arms, x and −x. With a
    `pool` [N, d], arms have features from its rows, each as likely. A `table` [K, d] of features is the
    same for all instances. With `own`, arms differ beyond their features: the linear function of each has a
    normal deviation of its own, with this standard deviation.

    >>> Linear(arms=3, dims=2).sample(prng.root(0)).theta.shape
    (2,)
    """

    kind: ClassVar[str] = "linear"
    arms: int
    dims: int = dataclasses.field()  # without the 0 of priors that have no contexts
    mean: Any = 0.0
    within: Any = 1.0
    theta: str = "normal"
    features: str = "normal"
    scale: float = 1.0
    changing: bool = False
    table: Any = ()
    pool: Any = ()
    rewards: laws.Reward = laws.Gaussian()
    own: float | None = None

    def __post_init__(self) -> None:
        set_fields(self, arms=number_of_arms(self.arms), dims=number_of_dims("dims", self.dims))
        check_coefficients(self)
        check_drawn(self, FEATURES)
        if self.own is not None:
            positive("own of the linear prior", self.own)
        if self.features == "opposite" and self.arms != 2:
            raise InputError(f"features of opposite arms are for 2 arms, not {self.arms}")

        if self._fixed:
            table = numbers("table of the linear prior", self.table, axes=2)
            if table.shape != (self.arms, self.dims) or self.changing or has_rows(self.pool):
                raise InputError(
                    f"table of the linear prior must have the shape [{self.arms}, {self.dims}] and stay as "
                    f"it is, with no pool, not the shape {list(table.shape)}"
                )
            set_fields(self, table=table)

    @property
    def _fixed(self) -> bool:
        return has_rows(self.table)

    def sample(self, key: Array) -> Coefficients:
        theta, own = draw_coefficients(self, key, (self.dims,)), None
        if self.own is not None:
            own = self.own * prng.normal_of(prng.uniforms(prng.fold_in(key, jnp.uint32(4)), self.arms))
        if self.changing or self._fixed:
            return Coefficients(theta, None, own)
        return Coefficients(theta, self._drawn(prng.fold_in(key, jnp.uint32(2))), own)

    def _drawn(self, key: Array) -> Array:
        """Features [K, d]."""
        x = draw_features(self, key, 1 if self.features == "opposite" else self.arms)
        return jnp.concatenate([x, -x]) if self.features == "opposite" else x

    def context(self, key: Array, instance: Coefficients, t: Array) -> Array:
        if self._fixed:
            return jnp.asarray(self.table, jnp.float32)
        return self._drawn(key) if instance.features is None else instance.features

    def means(self, instance: Visit) -> Array:
        """Expected rewards [K] in a round."""
        linear = (instance.features * instance.instance.theta[None]).sum(1)
        if instance.instance.own is not None:
            linear = linear + instance.instance.own
        return jax.nn.sigmoid(linear) if self.rewards.unit else linear

    def describe(self) -> dict[str, Any]:
        return {name: value for name, value in super().describe().items() if value not in ([], None)}


def check_coefficients(prior: Any) -> None:
    """Checks θ and the rewards of a linear prior; means and deviations of each coordinate become arrays."""
    label = f"the {prior.kind} prior"
    for name in ("changing", "intercept"):
        if not isinstance(given := getattr(prior, name, False), bool):
            raise InputError(f"{name} of {label} must be true or false, not {given!r}")
    checks: dict[str, Callable[[str, Any], float]]
    checks = {"mean": number, "within": positive, "between": partial(number, low=0.0)}
    for name, check in checks.items():
        if not hasattr(prior, name):
            continue
        given = getattr(prior, name)
        if isinstance(given, list | tuple | np.ndarray):
            array = numbers(f"{name} of {label}", given, axes=1)
            if len(array) != prior.dims:
                raise InputError(f"{name} of {label} must have {prior.dims} numbers, not {len(array)}")
            set_fields(prior, **{name: array})
        for entry in np.ravel(given).tolist():
            check(f"{name} of {label}", entry)
    if prior.theta not in SHAPES:
        raise unknown(f"theta of {label}", prior.theta, SHAPES)
    if prior.rewards.kind not in (laws.Gaussian.kind, laws.Bernoulli.kind):
        raise InputError(
            f"a {prior.kind} prior has gaussian or bernoulli rewards, not {prior.rewards.kind}"
        )


def check_drawn(prior: Any, known: tuple[str, ...]) -> None:
    """Checks how a linear prior draws features."""
    label = f"the {prior.kind} prior"
    positive(f"scale of {label}", prior.scale)
    if prior.features not in known:
        raise unknown(f"features of {label}", prior.features, known)
    if has_rows(prior.pool):
        pool = numbers(f"pool of {label}", prior.pool, axes=2)
        if pool.shape[1] != prior.dims or prior.features != "normal":
            raise InputError(
                f"pool of {label} must have rows of {prior.dims} numbers and replaces features, but there "
                f"are rows of {pool.shape[1]}, and features = {prior.features!r}"
            )
        set_fields(prior, pool=pool)


def has_rows(given: Any) -> bool:
    """Whether a table or a pool was given, valid or not."""
    return (len(given) if isinstance(given, list | tuple) else np.size(given)) > 0


def draw_coefficients(prior: Any, key: Array, shape: tuple[int, ...]) -> Array:
    """θ [..., d]."""
    words = jax.random.bits(prng.fold_in(key, jnp.uint32(1)), shape)
    if prior.theta == "normal":
        drawn = prng.normal_from(words)
    else:
        drawn = np.float32(np.sqrt(3)) * (2 * prng.open_unit(words) - 1)
    alike = (1,) * (len(shape) - 1)
    mean, within = (
        x if np.ndim(x) == 0 else jnp.asarray(x, jnp.float32).reshape(*alike, -1)
        for x in (prior.mean, prior.within)
    )
    return mean + within * drawn


def draw_features(prior: Any, key: Array, rows: int) -> Array:
    """Features [rows, d] of arms or of visitors."""
    if has_rows(prior.pool):
        pool = jnp.asarray(prior.pool, jnp.float32)
        return pool[(prng.uniforms(key, rows) * len(pool)).astype(jnp.int32)]
    u = prng.uniforms(key, rows * prior.dims).reshape(rows, prior.dims)
    return prior.scale * (2 * u - 1 if prior.features == "uniform" else prng.normal_of(u))
