"""What the rounds of rollouts draw: uniform words, independent between rounds, rollouts and instances.

The words come from the rollout itself. Each statistic has a p-value, and a true generator fails one of them
with probability 1e-6, for fixed seeds once and for all.
"""

import jax
import numpy as np
import pytest
from scipy import stats

import gradband as gb
from gradband.core import prng
from gradband.engine.rollout import Operands, RolloutSpec, _Rollout

FALSE_ALARM = 1e-6
ROLLOUTS = 3


def drawn(instances, rounds, seed=0):
    """Words [2 words, 1 + R, rounds, instances] of the keys of rewards and of three rollouts' actions."""
    problem = jax.device_put(gb.problems.named("two-point"))
    policy = gb.policies.SoftElim().bind(2, 200)
    spec = RolloutSpec(policy, instances, ROLLOUTS)
    key = prng.fold_in(prng.root(seed), 1)

    @jax.jit
    def words(key):
        rollout = _Rollout(spec, Operands(problem, policy.init(key), key, np.int32(0)))
        return jax.lax.map(rollout.bits, jax.numpy.arange(rounds, dtype=np.uint32))

    return np.stack([np.moveaxis(np.asarray(each), 1, 0) for each in words(key)])


@pytest.fixture(scope="module")
def words():
    return drawn(2048, 256)


def p_of_counts(counts):
    return stats.chisquare(counts).pvalue


def p_of_pairs(one, other):
    """Whether two numbers from 0 to 15 that come together are independent and uniform."""
    return p_of_counts(np.bincount(np.ravel(one) * 16 + np.ravel(other), minlength=256))


KNOWN_ANSWERS = [  # of Random123
    (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
    (13, (2**32 - 1,) * 2, (2**32 - 1,) * 2, (0xFD36D048, 0x2D17272C)),
    (13, (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xBA3E4725, 0xF27D669E)),
    (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    (20, (2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
    (20, (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("rounds", "key", "counter", "answer"), KNOWN_ANSWERS)
def test_the_hash_has_the_answers_of_its_authors(rounds, key, counter, answer):
    pairs = (tuple(np.array([word], np.uint32) for word in pair) for pair in (key, counter))
    assert [int(word[0]) for word in prng.hash_words(*pairs, rounds)] == list(answer)


@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("row", range(1 + ROLLOUTS))
@pytest.mark.parametrize("word", range(2))
def test_bytes_are_uniform(words, word, row, byte):
    found = words[word, row] >> np.uint32(8 * byte) & np.uint32(255)
    assert p_of_counts(np.bincount(found.ravel(), minlength=256)) > FALSE_ALARM


@pytest.mark.parametrize("bits", [28, 9, 0])
def test_neighbours_are_independent(words, bits):
    """Rounds, instances, rewards and actions, and the words of a key: high, middle and low bits."""
    low = words >> np.uint32(bits) & np.uint32(15)
    pairs = {f"rounds {lag} apart": (low[:, :, lag:], low[:, :, :-lag]) for lag in (1, 2, 64)}
    pairs |= {f"instances {lag} apart": (low[..., lag:], low[..., :-lag]) for lag in (1, 2, 16, 512)}
    pairs |= {f"rows {a} and {b}": (low[:, a], low[:, b]) for a in range(4) for b in range(a)}
    pairs["words"] = low[0], low[1]
    pairs["a reward and the next action"] = low[:, 0, :-1], low[:, 1, 1:]
    for name, (one, other) in pairs.items():
        assert p_of_pairs(one, other) > FALSE_ALARM, name


def test_seeds_and_iterations_share_nothing(words):
    other = drawn(2048, 256, seed=1)
    assert p_of_pairs(words >> np.uint32(28), other >> np.uint32(28)) > FALSE_ALARM
    assert np.intersect1d(words[0, 0, :16], other[0, 0, :16]).size <= 5  # .25 are expected


def ranks(rows):
    """Ranks over GF(2) of matrices of 32 rows of 32 bits, [N, 32]."""
    rows, found = rows.copy(), np.zeros(len(rows), int)
    used = np.zeros(rows.shape, bool)
    for bit in range(32):
        has = (rows >> np.uint32(bit) & np.uint32(1)).astype(bool)
        open_ = has & ~used
        pivot = open_.argmax(1)
        exists = open_.any(1)
        lead = np.where(exists, rows[np.arange(len(rows)), pivot], 0).astype(np.uint32)
        is_pivot = np.zeros_like(used)
        is_pivot[np.arange(len(rows)), pivot] = exists
        rows = np.where(has & ~is_pivot, rows ^ lead[:, None], rows)
        used |= is_pivot
        found += exists
    return found


def p_of_ranks(words):
    found = ranks(words[: words.size // 32 * 32].reshape(-1, 32))
    full, less = 0.2887880951, 0.5775761902  # probabilities of ranks 32 and 31 of random matrices
    expected = np.array([full, less, 1 - full - less]) * len(found)
    seen = np.array([(found == 32).sum(), (found == 31).sum(), (found < 31).sum()])
    return stats.chisquare(seen, expected).pvalue


def p_of_spacings(words, days=2**32, birthdays=2048):
    """Marsaglia's birthday spacings: equal ones are Poisson with the mean m³ / 4n."""
    sets = words[: words.size // birthdays * birthdays].reshape(-1, birthdays).astype(np.int64)
    gaps = np.sort(np.diff(np.sort(sets, 1), axis=1), 1)
    equal, mean = (np.diff(gaps, axis=1) == 0).sum(), len(sets) * birthdays**3 / 4 / days
    return 2 * min(stats.poisson.cdf(equal, mean), stats.poisson.sf(equal - 1, mean))


def p_of_gaps(words):
    """How long it takes until a word is below a sixteenth again."""
    hits = np.flatnonzero(words < 2**28)
    gaps = np.minimum(np.diff(hits) - 1, 100)
    chance = 1 / 16 * (15 / 16) ** np.arange(101)
    chance[-1] = 1 - chance[:-1].sum()
    return stats.chisquare(np.bincount(gaps, minlength=101), chance * len(gaps)).pvalue


LONG = {"ranks": p_of_ranks, "spacings": p_of_spacings, "gaps": p_of_gaps}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("order", ["by round", "by instance"])
def test_longer_patterns(words, name, order):
    rows = words[0, :2] if order == "by round" else np.swapaxes(words[0, :2], 1, 2)
    assert LONG[name](rows.reshape(-1)) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LONG, "pairs", "bytes"])
@pytest.mark.parametrize("seed", range(4))
def test_patterns_at_length(name, seed):
    """134 million words of each seed, in both orders."""
    found = drawn(2**16, 256, seed + 10)
    for rows in (found, np.swapaxes(found, 2, 3)):
        flat = np.ascontiguousarray(rows).reshape(-1)
        if name == "pairs":
            p = min(
                p_of_pairs(flat[lag:] >> np.uint32(28), flat[:-lag] >> np.uint32(28))
                for lag in (1, 2, 3, 7)
            )
        elif name == "bytes":
            p = min(
                p_of_counts(np.bincount(flat >> np.uint32(s) & 255, minlength=256)) for s in (0, 8, 16, 24)
            )
        else:
            p = LONG[name](flat)
        assert p > FALSE_ALARM
