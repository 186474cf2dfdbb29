"""Functions that vector units lack, as JAX formulas that are exact to a few units in the last place.

Lanes trace them like everything else. Polynomials use `fma`, which rounds once.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend import core

# (2^x − 1) / x for x in [−½, ½]
EXP2 = [0.6931472028586718, 0.240226479131252, 0.05550332465425208, 0.009618437391026805]
EXP2 += [0.001339887621418393, 0.0001535335719874096]
# (log(1 + x) − x + x²/2) / x³ for 1 + x in [√½, √2]
LOG = [0.33333331715706915, -0.2500082112030404, 0.2000122603811666, -0.1662335393238478]
LOG += [0.14201775941235853, -0.13160232673853156, 0.12761469760674435, -0.07634230310939381]
# erf⁻¹(x) / x around w = 2.5 and √w = 3, where w = −log(1 − x²) (Giles, 2010)
ERF_INV = [1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.000218580870, -4.39150654e-06]
ERF_INV += [-3.5233877e-06, 3.43273939e-07, 2.81022636e-08]
ERF_INV_TAIL = [2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844]
ERF_INV_TAIL += [0.00134934322, 0.000100950558, -0.000200214257]
# tanh(x) / x as a ratio of polynomials in x² (Eigen)
TANH_TOP = [4.89352455891786e-3, 6.37261928875436e-4, 1.48572235717979e-5, 5.12229709037114e-8]
TANH_TOP += [-8.60467152213735e-11, 2.00018790482477e-13, -2.76076847742355e-16]
TANH_BOTTOM = [4.89352518554385e-3, 2.26843463243900e-3, 1.18534705686654e-4, 1.19825839466702e-6]
# Γ(z + 1) by Lanczos' sum with g = 7 (Godfrey)
LANCZOS = [676.5203681218851, -1259.1392167224028, 771.3234287776531, -176.6150291621406]
LANCZOS += [12.507343278686905, -0.13857109526572012, 9.98436957801957e-06, 1.5056327351493116e-07]
SINE = [(-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(8)]
STEPS = 200  # of a continued fraction

fma_p = core.Primitive("fma")
fma_p.def_abstract_eval(lambda a, b, c: a)


def fma(a: Any, b: Any, c: Any) -> Array:
    """a · b + c, rounded once."""
    return fma_p.bind(*(jnp.float32(x) for x in (a, b, c)))


def polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Horner's rule; the constant comes first."""
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total


def select(condition: Array, one: Any, other: Any) -> Array:
    return jax.lax.select(condition, jnp.float32(one), jnp.float32(other))


def whole(x: Array) -> Array:
    """The bits of a number."""
    return jax.lax.bitcast_convert_type(x, jnp.int32)


def from_bits(x: Array) -> Array:
    return jax.lax.bitcast_convert_type(x, jnp.float32)


def exp(x: Array) -> Array:
    """2^n 2^r with n whole and r in [−½, ½]; results below the smallest normal number are 0."""
    high = float(np.float32(math.log2(math.e)))
    magic = 1.5 * 2**23  # added to a number, it rounds the number into the last bits
    shifted = fma(x, high, magic)
    r = fma(x, math.log2(math.e) - high, fma(x, high, -(shifted - magic)))
    power = fma(polynomial(r, EXP2), r, 1)
    found = select(x < -87.3365, 0, from_bits(whole(power) + (whole(shifted) << 23)))
    return select(x > 88.7228, np.inf, found)


def log(x: Array) -> Array:
    """n log 2 + log m with n whole and m in [√½, √2)."""
    tiny = x < 2.0**-126
    word = whole(select(tiny, x * 2.0**23, x))
    power = (word - 0x3F3504F3) >> 23
    r = from_bits(word - (power << 23)) - 1
    n = power.astype(jnp.float32)
    n = select(tiny, n - 23, n)
    square, high = r * r, 0.693359375
    tail = fma(square, -0.5, fma(n, math.log(2) - high, r * square * polynomial(r, LOG)))
    found = select((x > 0) & (x < np.inf), fma(n, high, r + tail), select(x > 0, x, np.nan))
    return select(x == 0, -np.inf, found)


def log1p(x: Array) -> Array:
    """log u + (x − (u − 1)) / u, where u is 1 + x as rounded."""
    u = 1 + x
    return select((u > 0) & (u < np.inf), jnp.log(u) + (x - (u - 1)) / u, jnp.log(u))


def expm1(x: Array) -> Array:
    """(u − 1) x / log u, where u is e^x as rounded."""
    u = jnp.exp(x)
    found = select((u > 0) & (u < np.inf), (u - 1) * x / jnp.log(u), u - 1)
    return select(u == 1, x, found)


def logistic(x: Array) -> Array:
    return 1 / (1 + jnp.exp(-x))


def tanh(x: Array) -> Array:
    x = jax.lax.clamp(jnp.float32(-7.905311), x, jnp.float32(7.905311))
    square = x * x
    return x * polynomial(square, TANH_TOP) / polynomial(square, TANH_BOTTOM)


def erf_inv(x: Array) -> Array:
    w = -jnp.log(fma(-x, x, 1))  # 1 − x², rounded once
    factor = select(w < 5, polynomial(w - 2.5, ERF_INV), polynomial(jnp.sqrt(w) - 3, ERF_INV_TAIL))
    return select(abs(x) == 1, x * np.inf, x * factor)


def lgamma(x: Array) -> Array:
    """log |Γ(x)|; below ½ by reflection, log(π / |sin πx|) − log Γ(1 − x)."""
    z = select(x < 0.5, -x, x - 1)
    total = jnp.float32(1)
    for k, c in enumerate(LANCZOS):
        total = total + c / (z + (k + 1))
    log_t = math.log(7.5) + jnp.log1p(z / 7.5)
    found = (z + 0.5 - (z + 7.5) / log_t) * log_t + (math.log(2 * math.pi) / 2 + jnp.log(total))
    part = x - jnp.floor(x)
    part = select(part > 0.5, 1 - part, part)  # |sin πx| is that of a part ≤ ½
    reflected = math.log(math.pi) - jnp.log(part * polynomial(part * part, SINE)) - found
    return select(abs(x) == np.inf, np.inf, select(x < 0.5, reflected, found))


def power(x: Array, y: Array) -> Array:
    """x^y for x ≥ 0; its error grows with y log x."""
    return select(y == 0, 1, jnp.exp(y * jnp.log(x)))


def incomplete_beta(a: Array, b: Array, x: Array) -> Array:
    """I_x(a, b), regularised, by its continued fraction on the side where that converges quickly."""
    far = x > (a + 1) / (a + b + 2)
    p, q, y = jnp.where(far, b, a), jnp.where(far, a, b), jnp.where(far, 1 - x, x)
    scale = jax.lax.lgamma(p + q) - jax.lax.lgamma(p) - jax.lax.lgamma(q)

    def safe(value: Array) -> Array:
        return jnp.where(abs(value) < 1e-30, 1e-30, value)

    def step(carry: Any) -> Any:
        m, c, d, h, _ = carry
        even = m * (q - m) * y / ((p + 2 * m - 1) * (p + 2 * m))
        d, c = 1 / safe(1 + even * d), safe(1 + even / c)
        h = h * d * c
        odd = -(p + m) * (p + q + m) * y / ((p + 2 * m) * (p + 2 * m + 1))
        d, c = 1 / safe(1 + odd * d), safe(1 + odd / c)
        return m + 1, c, d, h * d * c, abs(d * c - 1)

    def going(carry: Any) -> Array:
        return ((carry[4] > 2.0**-23) & (carry[0] < STEPS)).any()

    one, first = jnp.ones_like(x), 1 / safe(1 - (p + q) * y / (p + 1))
    fraction = jax.lax.while_loop(going, step, (one, one, first, first, one))[3]
    inside = jnp.exp(p * jnp.log(y) + q * jnp.log1p(-y) + scale) / p * fraction
    found = jnp.where(far, 1 - inside, inside)
    return jnp.where(x == 1, 1, jnp.where(x == 0, 0, found))
