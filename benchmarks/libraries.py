"""UCB1 on Bernoulli arms as other libraries play it, each in an environment of its own.

    python libraries.py river --games 20

Each game asks the library for an arm, draws its reward, and reports it. There is one process, since no
library uses more.
"""

import argparse
import importlib
import json
import random
import time
from collections.abc import Callable
from typing import Any

PACKAGES = {
    "river": ("river==0.26.1",),
    "smpybandits": (
        "SMPyBandits==0.9.7",
        "numpy==1.26.4",
        "scipy==1.13.1",
        "matplotlib==3.11.2",
        "setuptools<81",
    ),
    "mabwiser": ("mabwiser==2.7.4",),
}
"""what pip installs for each of them"""
Player = tuple[Callable[[], int], Callable[[int, int], Any]]


def river(arms: int, seed: int) -> Player:
    policy = importlib.import_module("river.bandit").UCB(delta=1, seed=seed)
    names = range(arms)
    return lambda: policy.pull(names), policy.update


def smpybandits(arms: int, seed: int) -> Player:
    policy = importlib.import_module("SMPyBandits.Policies").UCB(arms)
    policy.startGame()
    return policy.choice, lambda arm, reward: policy.getReward(arm, float(reward))


def mabwiser(arms: int, seed: int) -> Player:
    module = importlib.import_module("mabwiser.mab")
    policy = module.MAB(list(range(arms)), module.LearningPolicy.UCB1(alpha=1), seed=seed)
    untried = list(range(arms))

    def choose() -> int:
        return untried.pop() if untried else policy.predict()

    def hear(arm: int, reward: int) -> None:
        policy.partial_fit([arm], [reward])

    return choose, hear


PLAYERS = {"river": river, "smpybandits": smpybandits, "mabwiser": mabwiser}


def play(library: str, arms: int, horizon: int, seed: int) -> float:
    """The regret of one game."""
    draw = random.Random(seed)
    means = [draw.random() for _ in range(arms)]
    best = max(means)
    choose, hear = PLAYERS[library](arms, seed)
    lost = 0.0
    for _ in range(horizon):
        arm = choose()
        hear(arm, int(draw.random() < means[arm]))
        lost += best - means[arm]
    return lost


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=PLAYERS)
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--horizon", type=int, default=1000)
    parser.add_argument("--games", type=int, default=20)
    given = parser.parse_args()
    play(given.library, given.arms, 2 * given.arms, 0)  # imports
    began = time.perf_counter()
    regrets = [play(given.library, given.arms, given.horizon, seed) for seed in range(given.games)]
    print(json.dumps({"seconds": time.perf_counter() - began, "regrets": regrets}))
