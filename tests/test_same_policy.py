"""What is evaluated is what is played: policies without contexts, one by one, in batches, and with delays.

A player in NumPy plays as many tests as a few seconds allow; the evaluation plays many. With |z| < 4 and
some 70 comparisons at fixed seeds, a true statement would be refused once in 200 choices of seeds.
"""

import zlib

import numpy as np
import pytest
from every_policy import BY_GROUP, CONTEXTUAL, learned

import gradband as gb
from gradband.play.playable import as_playable
from gradband.play.player import Player

pytestmark = pytest.mark.brief
MOST = 4.0
ARMS, TESTS = 10, 200
PRIOR = gb.priors.Beta(ARMS)
HORIZONS = {1: 40, 4: 40, 7: 42, 25: 25, 200: 400}  # by how many pulls are decided at a time
SLOW = {"ts": 60, "hierarchical-ts": 30, "bayes-ucb": 100}  # tests that these play


def played(playable, means, batch, rng, late):
    """The expected reward of one test, whose results come after each batch."""
    player, gained = Player(playable, seed=int(rng.integers(2**31))), 0.0
    for _ in range(player.policy.horizon // batch):
        if batch == 1 or late:
            waiting = [player.select() for _ in range(batch)]
            gained += sum(means[arm] for arm in waiting)
            for arm in waiting:
                player.update(arm, float(rng.random() < means[arm]))
        else:
            decided = player.select_many(batch)
            gained += np.dot(decided, means)
            player.update_many(decided, rng.binomial(decided, means))
    return gained


def compared(name, batch, late=False):
    """z of the player's mean reward against that of the evaluation."""
    problem = gb.Problem(PRIOR, HORIZONS[batch], pulls_per_round=batch)
    given = learned(name, ARMS, problem.horizon)
    rng = np.random.default_rng(zlib.crc32(f"{name} {batch}".encode()))
    playable = as_playable(given)
    rewards = []
    for _ in range(SLOW.get(name, TESTS)):
        means = rng.random(ARMS)
        # Less what any arm pays there on average, which tests differ by most.
        rewards.append(played(playable, means, batch, rng, late) - problem.horizon * means.mean())
    row = gb.evaluate(given, problem, instances=4000, seed=11).rows[0]
    wanted = row.reward.mean - problem.horizon / 2
    se = np.hypot(np.std(rewards, ddof=1) / np.sqrt(len(rewards)), row.reward.se)
    return (np.mean(rewards) - wanted) / se


ONE_BY_ONE = [name for name in gb.policies.POLICIES if name not in ("dqn", BY_GROUP, *CONTEXTUAL)]
IN_BATCHES = [name for name in ONE_BY_ONE if gb.policies.POLICIES[name].batches]
QUICK = ("softelim", "exp3", "index", "ts", "split")
CASES = [(name, batch) for batch in (4, 7, 25, 200) for name in IN_BATCHES]


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_one_by_one(name):
    assert abs(compared(name, 1)) < MOST


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        case if case[0] in QUICK and case[1] == 4 else pytest.param(*case, marks=pytest.mark.slow)
        for case in CASES
    ],
)
def test_in_batches(name, batch):
    """Smaller than K, prime, the whole horizon, and large."""
    assert abs(compared(name, batch)) < MOST


@pytest.mark.parametrize(
    "name",
    ["exp3", *(pytest.param(n, marks=pytest.mark.slow) for n in ("kl-softelim", "ts", "ucb1", "index"))],
)
def test_single_decisions_whose_rewards_come_late_are_a_batch(name):
    assert abs(compared(name, 7, late=True)) < MOST
