"""Random numbers against JAX's own hash and SciPy's distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gradband.core import prng

pytestmark = pytest.mark.brief

# A Kolmogorov-Smirnov test fails a true law with this probability, for a fixed seed once and for all.
FALSE_ALARM = 1e-6
MANY = 100_000


def test_hash_is_fold_in():
    key = jax.random.key(12)
    for t in (0, 1, 77, 2**31 + 5, 2**32 - 1):
        ours = prng.hash_words(prng.words(key), (jnp.uint32(0), jnp.uint32(t)))
        theirs = jax.random.key_data(jax.random.fold_in(key, jnp.uint32(t)))
        assert [int(w) for w in ours] == [int(w) for w in theirs]
        assert prng.fold_in(key, jnp.uint32(t)) == jax.random.fold_in(key, jnp.uint32(t))


def test_words_make_the_key_they_came_from():
    keys = jax.random.split(jax.random.key(3), 5)
    assert (prng.from_words(*prng.words(keys)) == keys).all()


def test_streams_differ():
    keys = {prng.words(prng.stream(prng.root(0), name))[0].item() for name in prng.STREAMS}
    assert len(keys) == len(prng.STREAMS)


def test_unit_is_below_one_even_after_scaling():
    ends = jnp.array([0, 2**32 - 1], jnp.uint32)
    assert prng.unit(ends)[0] == 0
    totals = jnp.asarray(np.linspace(0.5, 3, 10001, dtype=np.float32))
    assert (prng.unit(ends)[1] * totals < totals).all()
    assert (prng.open_unit(ends)[1] * totals < totals).all()
    assert 0 < prng.open_unit(ends)[0] < prng.open_unit(ends)[1] < 1


@pytest.mark.parametrize(("draw", "law"), [(prng.uniform, stats.uniform), (prng.normal, stats.norm)])
def test_uniform_and_normal(draw, law):
    keys = jax.random.split(jax.random.key(0), MANY)
    sample = np.asarray(jax.jit(jax.vmap(draw))(keys))
    assert stats.kstest(sample, law.cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize("shape", [0.05, 0.4, 1.0, 1.7, 30.0, 900.0])
def test_gamma(shape):
    sample = jax.jit(prng.log_gamma)(jax.random.key(1), jnp.full(MANY, shape))
    assert stats.kstest(np.asarray(sample, float), stats.loggamma(shape).cdf).pvalue > FALSE_ALARM


def test_a_gamma_variable_does_not_depend_on_those_that_are_drawn_with_it():
    """However many are tried at once, and wherever a part of them ends."""
    shapes = jnp.asarray(np.random.default_rng(0).uniform(0.1, 50, 23), jnp.float32)
    draw = jax.jit(prng.log_gamma)
    whole = np.asarray(draw(jax.random.key(3), shapes))
    for count in (1, prng.TOGETHER, prng.TOGETHER + 1, 22):
        np.testing.assert_allclose(draw(jax.random.key(3), shapes[:count]), whole[:count], rtol=1e-6)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (0.3, 3.7), (2, 2), (60, 3), (400, 700)])
def test_beta(a, b):
    sample = jax.jit(prng.beta)(jax.random.key(2), jnp.full(MANY, float(a)), jnp.full(MANY, float(b)))
    assert stats.kstest(np.asarray(sample, float), stats.beta(a, b).cdf).pvalue > FALSE_ALARM


def test_beta_at_its_ends():
    key, zero, four = jax.random.key(0), jnp.zeros(1), jnp.full(1, 4.0)
    beta = jax.jit(prng.beta)
    assert beta(key, zero, four) == 0
    assert beta(key, four, zero) == 1
    tiny = beta(key, jnp.full(MANY, 0.004), jnp.full(MANY, 0.012))
    share = float((tiny > 0.5).mean())
    assert abs(share - 0.25) < 5 * (0.25 * 0.75 / MANY) ** 0.5


@pytest.mark.parametrize(("p", "tolerance"), [(1e-6, 2e-5), (1e-4, 1e-6), (0.015, 1e-6), (0.6, 1e-6)])
def test_rare_events_are_as_rare_as_they_should_be(p, tolerance):
    """The share of all 2³² words that are below p, found by bisection."""
    p, low, high = np.float32(p), 0, 2**32
    while high - low > 1:
        middle = (low + high) // 2
        below = bool(prng.fine_unit(jnp.uint32(middle)) < p)
        low, high = (middle, high) if below else (low, middle)
    assert high / 2**32 == pytest.approx(float(p), rel=tolerance)
    assert float(prng.fine_unit(jnp.uint32(2**32 - 1))) < 1
