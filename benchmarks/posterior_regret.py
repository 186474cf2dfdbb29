"""Regret of `pretrained` on two uniform arms over many rounds, with little noise.

    python benchmarks/posterior_regret.py --rounds 10000 --instances 20000

Over many rounds regret has a heavy tail: one game in a thousand settles on the wrong arm. Given all rewards
of a game, the expected regret is n E[max μ] − Σ_i N_i E[μ_i] under the posterior, with the same mean over
games: every game then counts the chance that it has settled on the wrong arm. Both means are printed.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

import gradband as gb
from gradband.core.statistics import Mean

GAMES, NODES = 2000, 64  # games at a time; draws of the first arm's mean, one in each 64th of its posterior


def player(policy):
    """Plays a game: the arms' means [2], their pulls [2] and their successes [2]."""
    params = policy.init(None)

    def game(key):
        own, key = jax.random.split(key)
        means = jax.random.uniform(own, (2,))

        def play(counts, key):
            choice, reward = jax.random.split(key)
            arm = jax.random.categorical(choice, policy.log_probs(params, counts))
            success = (jax.random.uniform(reward) < means[arm]).astype(jnp.float32)
            return policy.update(params, counts, arm, success), None

        start = jax.tree.map(jnp.asarray, policy.begin(params, None))
        counts, _ = jax.lax.scan(play, start, jax.random.split(key, policy.horizon))
        return means, counts.pulls, counts.sums

    return jax.jit(jax.vmap(game))


def regrets(means, pulls, successes, rng):
    """Regrets of games [games] with their means [games, 2], and their expectations given the rewards."""
    rounds = pulls.sum(1)
    seen = rounds * means.max(1) - (pulls * means).sum(1)
    ones, zeros = 1 + successes, 1 + pulls - successes
    (a, c), (b, d) = ones.T[..., None], zeros.T[..., None]
    first = special.betaincinv(a, b, (np.arange(NODES) + rng.random((len(means), NODES))) / NODES)
    best = first * special.betainc(c, d, first) + c / (c + d) * special.betaincc(c + 1, d, first)
    return seen, rounds * best.mean(1) - (pulls * ones / (ones + zeros)).sum(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--instances", type=int, default=20_000, help=f"in steps of {GAMES}")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    play, rng = player(gb.policies.pretrained().bind(2, given.rounds)), np.random.default_rng(given.seed)
    keys = jax.random.split(jax.random.key(given.seed), -(-given.instances // GAMES))
    found = []
    for key in keys:
        means, pulls, successes = (np.asarray(x, float) for x in play(jax.random.split(key, GAMES)))
        found.append(regrets(means, pulls, successes, rng))
        seen, expected = map(Mean.of, np.concatenate(found, axis=1))
        print(f"{GAMES * len(found)} games: regret {seen}, given the rewards {expected}", flush=True)


if __name__ == "__main__":
    main()
