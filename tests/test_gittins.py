"""Gittins indices against bisection and published values; the policy and its stored table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

from gradband import problems
from gradband.core.errors import InputError
from gradband.evaluation.evaluate import evaluate
from gradband.exact import by_counts, gittins_index
from gradband.policies import Counts, Gittins
from gradband.policies import gittins as policy_file
from gradband.solvers.gittins import SCALE, finite_horizon
from gradband.solvers.layout import place, size

pytestmark = pytest.mark.brief


def worth_pulling(a, b, pulls, ones, left, known):
    """Reward of m rounds that open with the unknown arm and may retire to the known one, minus m λ."""
    value = np.zeros(left + 1)
    for depth in range(left - 1, -1, -1):
        p = (a + ones + np.arange(depth + 1)) / (a + b + pulls + depth)
        pulled = p + p * value[1:] + (1 - p) * value[:-1]
        value = np.maximum(pulled, (left - depth) * known) if depth else pulled
    return value[0] - left * known


def bisected(a, b, pulls, ones, left):
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if worth_pulling(a, b, pulls, ones, left, middle) > 0 else (low, middle)
    return low


def states(horizon):
    return [(t, pulls, ones) for t in range(horizon) for pulls in range(t + 1) for ones in range(pulls + 1)]


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 0.5), (0.05, 3)])
def test_every_index_of_six_rounds_is_the_bisected_one(a, b):
    table, error = finite_horizon(a, b, 6)
    truth = [bisected(a, b, pulls, ones, 6 - t) for t, pulls, ones in states(6)]
    found = [table[place(*state)] / SCALE for state in states(6)]
    np.testing.assert_allclose(found, truth, rtol=0, atol=error)
    assert error < 1e-4


def test_indices_of_long_horizons_are_the_bisected_ones():
    """Single precision and the states that are left out show only here."""
    n = 150
    table, error = finite_horizon(1, 1, n)
    assert error < 1e-4
    rng = np.random.default_rng(0)
    chosen = [(0, 0, 0), (1, 1, 0), (n - 1, n - 1, n - 1), (n - 2, n - 2, 0)]
    for t in rng.integers(1, n, 60):
        pulls = rng.integers(t + 1)
        chosen.append((t, pulls, rng.integers(pulls + 1)))
    truth = [bisected(1, 1, pulls, ones, n - t) for t, pulls, ones in chosen]
    found = [table[place(*state)] / SCALE for state in chosen]
    np.testing.assert_allclose(found, truth, rtol=0, atol=error)


def test_in_the_last_round_the_index_is_the_posterior_mean_and_more_rounds_raise_it():
    n = 40
    table, error = finite_horizon(1, 2, n)
    for pulls, ones in ((0, 0), (5, 2), (12, 12), (30, 1)):
        indices = table[[place(n - left, pulls, ones) for left in range(1, n - pulls + 1)]].astype(int)
        assert indices[0] / SCALE == pytest.approx((1 + ones) / (3 + pulls), abs=error)
        assert (np.diff(indices) >= 0).all()
        assert indices[-1] > indices[0]


def test_every_state_has_a_place_of_its_own():
    for n in (1, 2, 7, 30):
        places = [place(*state) for state in states(n)]
        assert sorted(places) == list(range(size(n)))
    t = np.int32(1599)  # the last that 32-bit numbers hold
    assert place(t, t, t) == size(1600) - 1


def test_workers_do_not_change_a_bit():
    one, two = (finite_horizon(1, 1, 60, workers=workers) for workers in (1, 2))
    np.testing.assert_array_equal(one[0], two[0])
    assert one[1] == two[1]


# By β: how many digits are published, and the indices of these Beta(a, b)
BELIEFS = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (1, 3), (3, 3)]
PUBLISHED = {
    0.5: (5, [0.55902, 0.70597, 0.77723, 0.37582, 0.53587, 0.28022, 0.52577]),
    0.9: (4, [0.7029, 0.8001, 0.8452, 0.5001, 0.6346, 0.3796, 0.6010]),
    0.95: (5, [0.76143, 0.83814, 0.87357, 0.56011, 0.68104, 0.43341, 0.63917]),
    0.99: (4, [0.8699, 0.9102, None, 0.7005, 0.7844, None, None]),
}


@pytest.mark.parametrize("discount", PUBLISHED)
def test_discounted_indices_are_the_published_ones(discount):
    digits, indices = PUBLISHED[discount]
    for (a, b), index in zip(BELIEFS, indices, strict=True):
        if index is not None:
            assert round(gittins_index(a, b, discount), digits) == index


def test_bad_numbers_are_refused():
    for a, b, discount, match in (
        (0, 1, 0.9, "a of a beta prior must be above 0, not 0"),
        (1, -2, 0.9, "b of a beta prior must be above 0, not -2"),
        (float("nan"), 1, 0.9, "a of a beta prior must be a finite number"),
        (1, 1, 0, "discount must be between 0 and 1, not 0"),
        (1, 1, 1, "discount must be between 0 and 1, not 1"),
        (1, 1, "0.9", "discount must be a finite number"),
        (1, 1, 0.9999, r"discount must be at most 0?\.999, not 0\.9999"),
    ):
        with pytest.raises(InputError, match=match):
            gittins_index(a, b, discount)
    for a, b, horizon, match in (
        (1, 0, 5, "b of a beta prior must be above 0"),
        (1, 1, 0, "horizon must be a whole number of at least 1, not 0"),
        (1, 1, 2.5, "horizon must be a whole number"),
    ):
        with pytest.raises(InputError, match=match):
            finite_horizon(a, b, horizon)
    with pytest.raises(InputError, match="a of gittins must be above 0, not 0"):
        Gittins(a=0).bind(2, 20)
    assert Gittins().bind(2, 1400).horizon == 1400
    with pytest.raises(InputError, match="1401 rounds would take 918.6 MB: the longest horizon is 1400"):
        Gittins().bind(2, 1401)


# The stored table.


@pytest.fixture
def stored(monkeypatch, tmp_path):
    """Makes a table of ten rounds as a new process would, and says how often it was computed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    computed = []

    def counted(*arguments):
        computed.append(arguments)
        return finite_horizon(*arguments)

    monkeypatch.setattr("gradband.solvers.gittins.finite_horizon", counted)

    def make(a=1.0):
        policy_file._last.clear()
        before = len(computed)
        table = np.asarray(Gittins(a=a).bind(2, 10).init(None)["table"])
        return table, len(computed) - before

    yield make, tmp_path / "gradband" / "tables"
    policy_file._last.clear()


def test_table_is_computed_once_and_then_read(stored):
    make, folder = stored
    first, computed = make()
    assert computed == 1
    assert len(list(folder.iterdir())) == 1
    again, computed = make()
    assert computed == 0
    np.testing.assert_array_equal(again, first)
    other, computed = make(a=2.0)
    assert computed == 1
    assert (other != first).any()


@pytest.mark.parametrize("damage", ["cut", "garbage", "flipped", "foreign"])
def test_damaged_table_is_noticed_and_made_again(stored, damage):
    make, folder = stored
    truth, _ = make()
    (file,) = folder.iterdir()
    content = file.read_bytes()
    if damage == "foreign":
        make(a=2.0)
        (other,) = set(folder.iterdir()) - {file}
        other.replace(file)
    else:
        flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        file.write_bytes({"cut": content[:-50], "garbage": b"garbage" * 9, "flipped": flipped}[damage])
    with pytest.warns(UserWarning, match="damaged and is computed again"):
        table, computed = make()
    assert computed == 1
    np.testing.assert_array_equal(table, truth)
    assert make()[1] == 0


def test_folder_that_can_not_be_written_is_no_obstacle(stored, tmp_path):
    make, _ = stored
    (tmp_path / "gradband").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="could not be stored"):
        assert make()[1] == 1


# The policy.


def test_ties_are_broken_at_random():
    policy = Gittins().bind(4, 12)
    params = policy.init(None)
    state = Counts(jnp.array([2.0, 3.0, 2.0, 2.0]), jnp.array([2.0, 1.0, 2.0, 2.0]))
    keys = jax.random.split(jax.random.key(0), 20_000)
    arms = np.asarray(jax.jit(jax.vmap(lambda key: policy.act(key, params, state)))(keys))
    frequency = np.bincount(arms, minlength=4) / len(arms)
    assert frequency[1] == 0
    assert_z(frequency[[0, 2, 3]], np.sqrt(2 / 9 / len(arms)), 1 / 3)
    np.testing.assert_allclose(policy.probabilities(params, state), [1 / 3, 0, 1 / 3, 1 / 3], rtol=1e-6)


@pytest.mark.parametrize("name", ["two-point", "uniform-2"])
def test_simulated_regret_is_the_exact_one(name):
    problem = problems.named(name, horizon=40)
    row = evaluate(Gittins(), problem, instances=100_000, seed=3).rows[0]
    assert_z(row.regret.mean, row.regret.se, by_counts(Gittins(), problem).regret)
