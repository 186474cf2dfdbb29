"""Checks the promise of a linear prior without any model, as `thinning` does without features.

If features are those of arms, a sample of each arm's pulls explores, and the others show how good the arm
is that was best. If they are visitors', the best arm is chosen for each kind of visitors that every arm was
shown to, so that the choice may depend on the visitor. Features that are never the same allow no check.
"""

from typing import NamedTuple

import numpy as np
import scipy  # whose parts are imported when they are needed

from gradband.core.statistics import Mean
from gradband.problems import posteriors, priors
from gradband.problems.context_posterior import Posterior
from gradband.problems.context_rows import ContextRows
from gradband.problems.thinning import SHARES, TIMES, Check, gains


class Groups(NamedTuple):
    """Arms of an experiment that were shown to visitors of the same kind."""

    rows: np.ndarray
    """of the experiments' table [G, K]"""
    owner: np.ndarray
    """the experiment of each group [G], ascending"""

    @classmethod
    def of(cls, found: ContextRows, arms: int, rng: np.random.Generator) -> "Groups":
        """Groups of K arms, the same ones at random in all groups of an experiment."""
        rows, owner = [], []
        for e in range(len(found)):
            mine = np.arange(found.starts[e], found.starts[e + 1])
            names = np.unique(found.arm[mine])
            if len(names) < arms:
                continue
            chosen = rng.permutation(names)[:arms]
            if not found.by_arm:
                kinds = np.zeros(len(mine), int)
            else:
                _, kinds = np.unique(found.features[mine], axis=0, return_inverse=True)
            for kind in range(kinds.max() + 1):
                alike = mine[kinds.ravel() == kind]
                place = [alike[found.arm[alike] == name] for name in chosen]
                if all(len(each) == 1 and found.pulls[each[0]] >= 2 for each in place):
                    rows.append(np.concatenate(place))
                    owner.append(e)
        return cls(np.array(rows, int).reshape(-1, arms), np.array(owner, int))


def check(
    prior: priors.Prior, found: ContextRows, arms: int, given: bool = True, seed: int = 0
) -> tuple[Check, ...]:
    """A prior's promise beside what came true, for each share explored; nothing if no arms can be compared.

    The promise comes from posterior draws `given` the results, or from draws of the prior itself.
    """
    rng = np.random.default_rng(seed)
    groups = Groups.of(found, arms, rng)
    if not len(groups.rows):
        return ()
    posterior, drawn = Posterior.of(prior, found), np.zeros((TIMES, *groups.rows.shape))
    for e in np.unique(groups.owner):
        mine = np.arange(found.starts[e], found.starts[e + 1])
        _, arm = np.unique(found.arm[mine], return_inverse=True)
        size = arm.max() + 1
        theta = posterior.draw(e, TIMES, 0, rng) if given else posterior.levels.draw(TIMES, size, rng)
        f = (theta[:, arm] * found.features[mine]).sum(2)
        drawn[:, groups.owner == e] = f[:, groups.rows[groups.owner == e] - mine[0]]
    if found.variances is None:
        drawn = scipy.special.expit(drawn)
    return tuple(_compared(found, groups, drawn, share, seed) for share in SHARES)


def _compared(found: ContextRows, groups: Groups, drawn: np.ndarray, share: float, seed: int) -> Check:
    """Real gains if a share of the pulls explores, and those of draws [TIMES, G, K] of the rows' means."""
    rng = np.random.default_rng([seed, round(1000 * share)])
    size = groups.rows.shape[1]
    rows = found.with_arms(np.arange(len(groups.rows) + 1) * size, groups.rows.ravel())
    pulls, law = rows.pulls.astype(np.int64).reshape(groups.rows.shape), posteriors.of_rewards(found)
    explored = np.clip(np.round(share * pulls).astype(np.int64), 1, pulls - 1)
    real, promised = np.zeros(len(pulls)), np.zeros(len(pulls))
    for means in drawn:
        real += gains(*law.thinned(rows, explored, rng), rng)
        promised += gains(*law.sampled(means, rows, explored, rng), rng)
    kept, place = np.unique(groups.owner, return_inverse=True)
    weight = pulls.sum(1)
    real, promised = (
        1000 / TIMES * np.bincount(place, weight * each) / np.bincount(place, weight)
        for each in (real, promised)
    )
    return Check(share, len(kept), Mean.of(real), float(promised.mean()), Mean.of(promised - real))
