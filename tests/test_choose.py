"""Arms are drawn from their probabilities, few of them and many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import Z

from gradband.engine.rollout import FEW_ARMS, _choose

COUNT = 400_000


@jax.jit
def choose(words, log_probs):
    """An arm for each word, a cache's share of them at a time."""
    return jax.lax.map(lambda word: _choose(word, log_probs), words, batch_size=2**14)


def drawn(p):
    """How often each arm is drawn, for bits that are evenly spread, and the sum that comes with them."""
    with np.errstate(divide="ignore"):
        log_probs = jnp.log(jnp.asarray(p, jnp.float32))
    bits = jax.random.bits(jax.random.key(0), (COUNT,), jnp.uint32)
    arms, totals = choose(bits, log_probs)
    return np.bincount(np.asarray(arms), minlength=len(p)), np.asarray(totals)


@pytest.mark.parametrize("arms", [2, FEW_ARMS, FEW_ARMS + 1, 23, 200, 1000])
def test_arms_come_as_often_as_their_probabilities_say(arms):
    p = np.random.default_rng(arms).exponential(size=arms) ** 2
    p[arms // 2] = 0 if arms > 2 else p[arms // 2]
    p /= p.sum()
    counts, totals = drawn(p)
    assert counts.shape == (arms,)
    assert np.abs(totals - 1).max() < 1e-5
    assert not counts[p == 0].any()
    possible = p > 0
    excess = (counts[possible] - COUNT * p[possible]) ** 2 / (COUNT * p[possible])
    few = COUNT * p[possible] > 10
    # χ² with so many degrees of freedom is nearly normal.
    degrees = few.sum() - 1
    assert abs(excess[few].sum() - degrees) < Z * np.sqrt(2 * degrees) + Z


@pytest.mark.parametrize("arms", [FEW_ARMS, 50, 999])
def test_a_certain_arm_is_always_drawn(arms):
    for place in (0, arms // 3, arms - 1):
        counts, _ = drawn(np.eye(arms)[place])
        assert counts[place] == COUNT


@pytest.mark.brief
@pytest.mark.parametrize("arms", [2, FEW_ARMS, 50])
def test_the_largest_word_draws_the_last_arm_that_is_possible(arms):
    """Also where rounding leaves a sum below 1."""
    p = np.full(arms, 0.9995 / (arms - 1))
    p[-1] = 0
    arm, total = choose(jnp.full(1, 2**32 - 1, jnp.uint32), jnp.log(jnp.asarray(p, jnp.float32)))
    assert (arm.tolist(), total[0] < 1) == ([arms - 2], True)


def test_the_first_of_a_group_has_no_more_than_its_share():
    """With all words that there are, an arm of probability 10⁻²⁰ is never drawn, wherever it stands."""
    p = np.random.default_rng(3).exponential(size=64)
    p[::8] = 1e-20  # groups have eight arms
    p /= p.sum()
    log_probs = jnp.log(jnp.asarray(p, jnp.float32))
    words = jnp.arange(2**23, dtype=jnp.uint32) << 9
    arms, _ = choose(words, log_probs)
    counts = np.bincount(np.asarray(arms), minlength=64)
    assert counts.shape == (64,)
    assert not counts[::8].any()
    np.testing.assert_allclose(counts / 2**23, p, atol=2e-6)


def test_rare_arms_at_the_ends_of_groups_are_drawn_and_impossible_ones_are_not():
    """All but a few arms have no probability, in an order that leaves whole groups without any."""
    p = np.zeros(400)
    p[[0, 19, 20, 399]] = 0.5, 1e-5, 0.49998, 1e-5
    counts, _ = drawn(p)
    assert set(np.flatnonzero(counts)) == {0, 19, 20, 399}
