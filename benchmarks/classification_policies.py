"""Policies whose exploration and beliefs `classification.py` learns, by numbers for any K and d."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gradband.core.arrays import pick
from gradband.policies import CoSoftElim, LinGreedy, LinTS, LinUCB, Spec, beliefs, namespace
from gradband.policies.beliefs import Belief

HINGES = 64
MAIN = "two beliefs"
RANGES = {  # on a logarithmic scale
    "a": (0.003, 3.0),
    "wide": (0.01, 3.0),
    "start": (0.05, 1.0),
    "width": (0.05, 3.0),
    "bend": (0.3, 10.0),
    "wider": (0.5, 16.0),
    "share": (0.003, 1.0),
}
POWERS = {"more": (-1.0, 1.0), "by_arms": (-1.0, 1.0), "by_dims": (-0.5, 1.0), "lift": (-2.0, 1.0)}
LINEAR = ("start", "width", "by_arms", "by_dims")
LOGISTIC = ("lift", "width", "by_arms", "by_dims")
CURVED = (*LOGISTIC, "bend")


class Rows:
    """What policies learn besides exploring: θ is 0 at first, but for the intercept.

    That is `start`, or `lift` with logistic beliefs. Standard deviations are `width` (K / 2)^`by_arms` (d /
    10)^−`by_dims`, and those of the coefficients of hinges `bend` (K / 2)^`by_arms`. What a reward says of
    other arms has the weight `share`.
    """

    def specs(self):
        return dict.fromkeys((*RANGES, *POWERS), Spec())

    def init(self, key):
        return dict.fromkeys(self.specs(), jnp.asarray(0.0))

    def begin(self, params, latent):
        first = params["start"] if self.link == "identity" else params["lift"]
        mean = (np.arange(self.coordinates) == 0) * first
        scale = (self.arms / 2) ** params["by_arms"]
        width = params["width"] * (self.dims / 10) ** -params["by_dims"] * jnp.ones(self.dims)
        sds = scale * jnp.concatenate([width, params["bend"] * jnp.ones(self.hinges)])
        return Belief.before(mean, sds, self.arms)

    def told_of_others(self, params):
        return params["share"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsSoftElim(Rows, CoSoftElim):
    """Explores by a (K / 2)^`more`."""

    name = "rows-softelim"

    def folded(self, params):
        return params | {"a": params["a"] * (self.arms / 2) ** params["more"]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsUCB(Rows, LinUCB):
    """The index has `wide` (K / 2)^`more` standard deviations."""

    name = "rows-ucb"
    sd: float = 0.5
    model: str = "by-arm"

    def index(self, params, state):
        width = params["wide"] * (self.arms / 2) ** params["more"]
        return state.mean + width * namespace(state.mean).sqrt(state.variance)


class Two(NamedTuple):
    """A belief with hinges, one without, what is seen of them, or what they come to."""

    curved: Any
    straight: Any
    odds: Any
    """the logarithm of the ratio of their evidence"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsTwo(RowsUCB):
    """Two beliefs that both learn from all rewards, weighed by how well they foresaw those of pulled arms.

    Of the one without hinges, standard deviations are `wider` (K / 2)^`by_arms` at first.
    """

    name = "rows-two"

    def begin(self, params, latent):
        curved = super().begin(params, latent)
        sds = params["wider"] * (self.arms / 2) ** params["by_arms"] * jnp.ones(self.dims)
        straight = Belief.before(curved.mean[0, : self.dims], sds, self.arms)
        return Two(curved, straight, jnp.zeros(()))

    def see(self, params, state, features):
        straight = beliefs.see(state.straight, features)
        return Two(super().see(params, state.curved, features), straight, state.odds)

    def index(self, params, state):
        share = jax.nn.sigmoid(state.odds)
        curved, straight = (
            jax.nn.sigmoid(super(RowsTwo, self).index(params, seen))
            for seen in (state.curved, state.straight)
        )
        return share * curved + (1 - share) * straight

    def update(self, params, state, arm, reward):
        foreseen = []
        for seen in (state.curved, state.straight):
            p = jax.nn.sigmoid(seen.mean / jnp.sqrt(1 + np.pi / 8 * seen.variance))
            p = jnp.clip(pick(p, arm), 1e-4, 1 - 1e-4)
            foreseen.append(jnp.log(jnp.where(reward > 0, p, 1 - p)))
        after = (super(RowsTwo, self).update(params, seen, arm, reward) for seen in state[:2])
        return Two(*after, state.odds + foreseen[0] - foreseen[1])

    def recommend(self, params, state):
        return self.index(params, state).argmax()


LOGIT = {"link": "logistic"}
BENT = {"link": "logistic", "hinges": HINGES}
SHARED = {"link": "logistic", "exclusive": 1.0}
ALL = {**BENT, "exclusive": 1.0}
FAMILIES = {
    "co-softelim": (RowsSoftElim(), ("a", "more", *LINEAR), {}),
    "ucb": (RowsUCB(), ("wide", "more", *LINEAR), {}),
    "logistic ucb": (RowsUCB(**LOGIT), ("wide", "more", *LOGISTIC), {}),
    "logistic, exclusive ucb": (RowsUCB(**SHARED), ("wide", "more", "share", *LOGISTIC), {}),
    "hinges, ucb": (RowsUCB(**BENT), ("wide", "more", *CURVED), {}),
    "hinges, exclusive ucb": (RowsUCB(**ALL), ("wide", "more", "share", *CURVED), {}),
    "two beliefs": (RowsTwo(**ALL), ("wider",), {}),
}
"""policies, the numbers that are searched, and those that are fixed; others are 0"""
AFTER = {"two beliefs": "hinges, exclusive ucb"}
"""whose other numbers are those that another has learned"""
ABLATED = {
    "the same, greedy": (MAIN, {"wide": 0.0}),
    "the same, not exclusive": (MAIN, {"share": 0.0}),
}
"""policies with what another has learned, but for these numbers"""
USUAL = {"greedy": LinGreedy(model="by-arm"), "lin-ts": LinTS(model="by-arm")}
"""policies that learn nothing in advance"""
