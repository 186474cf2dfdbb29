"""Counter-based random numbers that are cheap inside a scan over rounds.

Everything here is a pure function of a typed JAX key. A round's key is already the output of a hash,
so its two words *are* random bits: `uniform` and `normal` read them and hash nothing more.

`hash_words` is the hash behind `jax.random.fold_in` (threefry, 20 rounds), written without JAX's inner
loop: the same bits, in less time. What a round of a rollout draws comes from the same hash with 13 rounds,
the shorter variant of its authors (Salmon, Moraes, Dror and Shaw, 2011). Gamma and beta
variables are drawn exactly (Marsaglia and Tsang, 2000) with two hashes per try, where `jax.random` splits
keys at every step.
"""

import math
import operator
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from gradband.core import jax_setup as jax_setup
from gradband.core.errors import whole

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
FULL, SHORT = 20, 13  # rounds of the hash: for keys, and for the draws of a round
TOGETHER = 4  # gamma variables drawn at once: a larger group would wait for its slowest member
SHUFFLES = 8  # rounds of a permutation
BITS = 3  # version of the random bits that a seed stands for; policy files and checkpoints record it
STREAMS = ("prior", "round", "more of a round", "training", "evaluation", "init", "choice")


def root(seed: int) -> Array:
    """The key of a seed."""
    seed = whole("seed", seed, least=0)
    return _host_key(np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32))


def _host_key(words: np.ndarray) -> Array:
    """The key with these words; nothing is compiled."""
    data: Any = words
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def stream(key: Array, name: str) -> Array:
    """The key of a named stream, so that what one stream draws never shifts another.

    >>> stream(jax.random.key(0), "prior") != stream(jax.random.key(0), "round")
    Array(True, dtype=bool)
    """
    return fold_in(key, STREAMS.index(name))


_BY_OPERATORS = operator.add, operator.xor, operator.or_, operator.lshift, operator.rshift
# The same on JAX's arrays of one shape: traced in a fraction of the operators' time.
_BY_LAX = lax.add, lax.bitwise_xor, lax.bitwise_or, lax.shift_left, lax.shift_right_logical


def hash_words(
    key: tuple[Array, Array], counter: tuple[Array, Array], rounds: int = FULL
) -> tuple[Array, Array]:
    """Threefry-2x32 of a 64-bit counter under a 64-bit key, each given as two words of any shape.

    With the counter (0, t) it equals `jax.random.fold_in(key, t)` bit for bit.
    """
    (k0, k1), (c0, c1) = key, counter
    arrays = all(isinstance(x, Array) for x in (k0, k1, c0, c1))
    return (_traced_once if arrays else _threefry)(k0, k1, c0, c1, rounds)


def _threefry(k0: Array, k1: Array, c0: Array, c1: Array, rounds: int) -> tuple[Array, Array]:
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = c0 + k0, c1 + k1
    alike = len({np.shape(x) for x in (x0, x1, *schedule)} - {()}) < 2
    by_lax = alike and isinstance(x0, Array) and isinstance(x1, Array)
    add, xor, either, left, right = _BY_LAX if by_lax else _BY_OPERATORS
    for i in range(rounds):
        distance = ROTATIONS[i // 4 % 2][i % 4]
        x0 = add(x0, x1)
        x1 = xor(x0, either(left(x1, np.uint32(distance)), right(x1, np.uint32(32 - distance))))
        if i % 4 == 3:
            j = i // 4 + 1
            x0 = add(x0, schedule[j % 3])
            x1 = add(add(x1, schedule[(j + 1) % 3]), np.uint32(j))
    return x0, x1


_traced_once = jax.jit(_threefry, static_argnums=4)  # once per shape, since every round needs it


def words(key: Array) -> tuple[Array, Array]:
    """The two 32-bit words of a typed key, or of an array of keys."""
    data = jax.random.key_data(key)
    return data[..., 0], data[..., 1]


def from_words(w0: Array, w1: Array) -> Array:
    """The typed key with these two words."""
    return jax.random.wrap_key_data(jnp.stack([w0, w1], axis=-1), impl="threefry2x32")


def fold_in(key: Array, data: Array | int) -> Array:
    """`jax.random.fold_in` with the fast hash: the same key, bit for bit.

    Outside of compiled code NumPy computes it, so that nothing is compiled.
    """
    if isinstance(data, int) and not isinstance(key, jax.core.Tracer):
        own: Any = np.asarray(jax.random.key_data(key)).reshape(2, 1)
        number: Any = np.array([[0], [data & 0xFFFFFFFF]], np.uint32)
        return _host_key(np.concatenate(hash_words(own, number)))
    counter = jnp.asarray(data, jnp.uint32)
    return from_words(*hash_words(words(key), (jnp.zeros_like(counter), counter)))


def unit(bits: Array) -> Array:
    """Words to uniforms on [0, 1): 23 bits, so that u · x < x for every x > 0."""
    return (bits >> np.uint32(9)).astype(jnp.float32) * np.float32(2.0**-23)


def fine_unit(bits: Array) -> Array:
    """Words to uniforms on [0, 1) that are fine near 0: P(u < p) is p for tiny p too.

    With the 23 bits of `unit`, p = 10⁻⁶ would be 7 % too large. Subtracting a 2⁻²⁴th keeps u below 1.
    """
    return (bits - (bits >> np.uint32(24))).astype(jnp.float32) * np.float32(2.0**-32)


def open_unit(bits: Array) -> Array:
    """Words to uniforms on (0, 1), symmetric about ½."""
    return unit(bits) + np.float32(2.0**-24)


def normal_from(bits: Array) -> Array:
    """Words to standard normals by the inverse distribution function."""
    return normal_of(open_unit(bits))


def normal_of(u: Array) -> Array:
    """Uniforms on (0, 1) to standard normals by the inverse distribution function."""
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(2 * u - 1)


def uniform(key: Array) -> Array:
    """One uniform on [0, 1) from a single-use key; consumes it."""
    return unit(words(key)[0])


def normal(key: Array) -> Array:
    """One standard normal from a single-use key; consumes it."""
    return normal_from(words(key)[0])


def draw(key: Array, p: Array) -> Array:
    """An index with the probabilities p [K], from a single-use key; consumes it."""
    edges = p.cumsum()
    return (uniform(key) * edges[-1] >= edges).sum()


def log_gamma(key: Array, shape: Array) -> Array:
    """Logarithms of Gamma(shape, 1) variables, one for each entry of `shape` [N] > 0.

    Squeeze method of Marsaglia and Tsang: with d = shape − 1/3 and c = 1/√(9d), the variable
    d (1 + c x)³ is accepted when log u < x²/2 + d − dv + d log v. At least 95 % of tries succeed;
    a shape below 1 is drawn at shape + 1 and scaled by u^(1/shape), in logarithms so that tiny
    shapes do not underflow. A few entries at a time are tried until all of them have succeeded.
    """
    count = shape.shape[0]
    element = jnp.arange(count, dtype=jnp.uint32)
    if count <= TOGETHER:
        return _log_gamma(words(key), element, shape)
    room = -count % TOGETHER
    rows = (jnp.pad(x, (0, room), constant_values=1).reshape(-1, TOGETHER) for x in (element, shape))
    return lax.map(lambda row: _log_gamma(words(key), *row), tuple(rows)).reshape(-1)[:count]


def _log_gamma(key: tuple[Array, Array], element: Array, shape: Array) -> Array:
    """The variables of these elements, each of which has a stream of its own."""
    k0, k1 = (jnp.broadcast_to(word, element.shape) for word in key)
    d = jnp.where(shape < 1, shape + 1, shape) - np.float32(1 / 3)
    c = 1 / jnp.sqrt(9 * d)

    def attempt(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, v, accepted = carry
        bits = hash_words((k0, k1), (element, jnp.broadcast_to(i, element.shape)))
        x = normal_from(bits[0])
        root = 1 + c * x
        cube = jnp.maximum(root, np.float32(1e-6)) ** 3
        fits = jnp.log(open_unit(bits[1])) < x * x / 2 + d * (1 - cube + jnp.log(cube))
        fits = fits & (root > 0)
        return i + 1, jnp.where(accepted, v, cube), accepted | fits

    start = jnp.uint32(1), jnp.ones_like(d), jnp.zeros(d.shape, bool)
    _, v, _ = lax.while_loop(lambda carry: ~carry[2].all(), attempt, start)
    u = open_unit(hash_words((k0, k1), (element, jnp.zeros_like(element)))[0])
    return jnp.log(d * v) + jnp.where(shape < 1, jnp.log(u) / shape, 0)


def beta(key: Array, a: Array, b: Array) -> Array:
    """Beta(a, b) variables for a, b [N] > 0: X / (X + Y) of two gammas."""
    logs = log_gamma(key, jnp.concatenate([a, b]))
    return jax.nn.sigmoid(logs[: a.shape[0]] - logs[a.shape[0] :])


def uniforms(key: Array, count: int) -> Array:
    """Uniforms [count] on (0, 1) from a key, apart from those that its own words give."""
    element = jnp.arange(count, dtype=jnp.uint32)
    k0, k1 = (jnp.broadcast_to(word, element.shape) for word in words(key))
    return open_unit(hash_words((k0, k1), (element, jnp.full_like(element, 1)))[0])


def binomial(u: Array, n: Array, p: Array) -> Array:
    """The u-quantiles of Bin(n, p) for u in (0, 1), whole n ≥ 0 and p in [0, 1], all [N].

    Probabilities are summed from six standard deviations below the mean, or from 0 if that is below ten.
    The first of them comes from Loader's saddle-point formula, the others from it by the odds. It takes
    the odds as float32 rounds them: otherwise the sum would be 1 to four or five digits only.
    """
    high = p > 0.5
    q = jnp.where(high, 1 - p, p)
    u = jnp.where(high, 1 - u, u)  # so that all grow with u
    mean = n * q
    least = jnp.floor(mean - 6 * jnp.sqrt(mean * (1 - q)))
    least = jnp.where(least > 10, least, 0.0)
    at_least = jnp.maximum(least, 1.0)
    rest = jnp.maximum(n - at_least, 1.0)
    odds = q / (1 - q)
    above = _above_mean(at_least, n, q)
    log_first = (
        _stirling_error(jnp.maximum(n, 1.0))
        - _stirling_error(at_least)
        - _stirling_error(rest)
        - _deviance(above, jnp.maximum(mean, 1e-30))
        - _deviance(-above, jnp.maximum(n - mean, 1e-30))
        + 0.5 * jnp.log(jnp.maximum(n, 1.0) / (2 * math.pi * at_least * rest))
        + _rounding_of(odds, q) * above
    )
    first = jnp.exp(jnp.where(least > 0, log_first, n * jnp.log1p(-q)))

    def pending(k: Array, term: Array, total: Array) -> Array:
        return (total < u) & (k < n) & ((k < mean) | (term > 1e-8))

    def onwards(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, term, total = carry
        go = pending(*carry)
        following = term * odds * (n - k) / (k + 1)
        return (
            jnp.where(go, k + 1, k),
            jnp.where(go, following, term),
            jnp.where(go, total + following, total),
        )

    k, _, _ = jax.lax.while_loop(lambda carry: pending(*carry).any(), onwards, (least, first, first))
    return jnp.where(high, n - k, k)


def _stirling_error(n: Array) -> Array:
    """log n! − log(√(2πn) (n/e)ⁿ), for n ≥ 10."""
    return (1 / 12 - (1 / 360 - 1 / 1260 / (n * n)) / (n * n)) / n


def _deviance(above: Array, mean: Array) -> Array:
    """x log(x / mean) + mean − x for x = mean + above, without cancellation near the mean."""
    v = above / (2 * mean + above)
    series = jnp.zeros_like(v)
    for j in range(10, 0, -1):
        series = v * v * (series + 1 / (2 * j + 1))
    d = above / mean
    far = mean * ((1 + d) * jnp.log1p(d) - d)
    return jnp.where(jnp.abs(v) < 0.5, above * v + 2 * (mean + above) * v * series, far)


def _halves(x: Array) -> tuple[Array, Array]:
    """Splits a number in [0, 1] in two; the first has 12 bits, so that their products are exact."""
    first = jnp.floor(x * 4096) / 4096
    return first, x - first


def _above_mean(k: Array, n: Array, q: Array) -> Array:
    """k − n q for whole k and n < 2²⁴, although n q has more digits than float32."""
    first, second = _halves(q)
    thousands = jnp.floor(n / 4096) * 4096
    return k - thousands * first - (n - thousands) * first - n * second


def _rounding_of(odds: Array, q: Array) -> Array:
    """The relative error of odds in float32 as q / (1 − q)."""
    (a, b), (first, second) = _halves(odds), _halves(q)
    return (odds - q - a * first - a * second - b * q) / jnp.maximum(q, 1e-30)


def multinomial(key: Array, count: Array, p: Array) -> Array:
    """Counts of K outcomes with probabilities p [K] in `count` draws.

    All parts are split in halves at once: ⌈log₂ K⌉ rounds of binomials.
    """
    outcomes = p.shape[0]
    depth = max(1, math.ceil(math.log2(outcomes)))
    weights = [jnp.concatenate([p, jnp.zeros(2**depth - outcomes, p.dtype)])]
    for _ in range(depth):
        weights.insert(0, weights[0].reshape(-1, 2).sum(1))
    u = uniforms(key, 2**depth)
    counts = jnp.asarray(count, p.dtype)[None]
    for level in range(depth):
        parts = weights[level + 1].reshape(-1, 2)
        share = parts[:, 0] / jnp.maximum(weights[level], 1e-30)
        left = binomial(u[2**level : 2 ** (level + 1)], counts, jnp.clip(share, 0.0, 1.0))
        # Rounding must not give anything to an impossible outcome.
        left = jnp.where(parts[:, 1] == 0, counts, jnp.where(parts[:, 0] == 0, 0.0, left))
        counts = jnp.stack([left, counts - left], axis=1).reshape(-1)
    return counts[:outcomes]


def permuted(key: Array, place: Array, count: int) -> Array:
    """The number at a place in a random order of 0, …, count − 1, which the key determines.

    The order is not stored: rounds of a x + c with odd a, and x ⊕ (x ≫ s), permute the numbers with as
    many bits as `count`. A result of `count` or more is permuted again.

    >>> sorted(int(permuted(root(0), jnp.uint32(i), 5)) for i in range(5))
    [0, 1, 2, 3, 4]
    """
    bits = max(1, (count - 1).bit_length())
    mask, half = np.uint32(2**bits - 1), np.uint32((bits + 1) // 2)
    element = jnp.arange(SHUFFLES, dtype=jnp.uint32)
    k0, k1 = (jnp.broadcast_to(word, element.shape) for word in words(key))
    factors, shifts = hash_words((k0, k1), (element, jnp.full_like(element, 2)))

    def shuffled(x: Array) -> Array:
        for i in range(SHUFFLES):
            x = (x * (factors[i] | np.uint32(1)) + shifts[i]) & mask
            x = x ^ (x >> half)
        return x

    first = shuffled(jnp.asarray(place, jnp.uint32))
    return jax.lax.while_loop(lambda x: x >= np.uint32(count), shuffled, first)


def digest(drawn: Array) -> str:
    """A checksum of draws, by four digits of each: these are the same on all machines.

    >>> digest(jnp.array([0.25, 1 / 3])) == digest(jnp.array([0.25, 0.33330001]))
    True
    """
    words = " ".join(f"{value:.4g}" for value in np.ravel(np.asarray(drawn, np.float64)))
    return f"{zlib.crc32(words.encode()):08x}"
