"""States of all rounds as nodes of a graph, and the best choice in each by backward induction."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Graph:
    """Nodes are numbered round by round from 0. In each, arms have positions 0 … P − 1.

    `action` [nodes] is the position to pull, and `child` [nodes, P, 2] the node after pulling a position
    and observing 0 or 1.
    """

    value: float
    action: np.ndarray
    child: np.ndarray


def induce(
    layers: list[tuple[np.ndarray, np.ndarray]], ending: np.ndarray | None = None, afterwards: int = 0
) -> Graph:
    """The optimal graph of rounds, given each round's chances of a one [S, P] and children [S, P, 2].

    Children are numbered within the next round. `ending` has the chances [S, P] after the last round, where
    a position is chosen for the pulls `afterwards`, if there are any: these nodes come last.
    """
    value = np.zeros(layers[-1][1].max() + 1)
    below = sum(len(chance) for chance, _ in layers)
    actions, children = [], []
    if afterwards:
        assert ending is not None
        value = afterwards * ending.max(1)
        actions.append(ending.argmax(1).astype(np.int16))
        children.append(np.zeros((*ending.shape, 2), np.int32))
    for i, (chance, child) in reversed(list(enumerate(layers))):
        q = chance * (1 + value[child[..., 1]]) + (1 - chance) * value[child[..., 0]]
        actions.append(q.argmax(1).astype(np.int16))
        has_next = afterwards or i + 1 < len(layers)
        children.append(child + np.int32(below) if has_next else np.zeros_like(child))
        below -= len(chance)
        value = q.max(1)
    return Graph(float(value[0]), np.concatenate(actions[::-1]), np.concatenate(children[::-1]))
