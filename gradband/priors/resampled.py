"""Past experiments, drawn again: no shape is assumed."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband import random
from gradband import rewards as laws
from gradband.errors import InputError, number_of_arms
from gradband.priors.base import Prior, checksum, numbers
from gradband.pytrees import pytree

FLAT = 0.5  # pulls and successes that an arm has besides its own: Jeffreys' prior


@pytree("starts", "pulls", "successes", dropped=("file", "part"))
@dataclasses.dataclass(frozen=True, eq=False)
class Resampled(Prior):
    """One of past experiments, and for each arm a posterior draw of one of its arms, any of them.

    Experiment e has the arms `starts`[e] to `starts`[e + 1] − 1, with their `pulls` and `successes`. A
    mean is a draw of Beta(½ + successes, ½ + failures), so that what was measured badly stays uncertain.
    Which arm of the past an arm is drawn from is random: their order tells nothing.

    >>> past = Resampled(2, starts=[0, 2], pulls=[100, 100], successes=[3, 5])
    >>> past.sample(random.root(0)).shape
    (2,)
    """

    kind: ClassVar[str] = "resampled"
    arms: int
    starts: Any
    pulls: Any
    successes: Any
    file: str = ""
    part: str = ""
    rewards: laws.Reward = laws.Bernoulli()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", number_of_arms(self.arms))
        for name in ("starts", "pulls", "successes"):
            object.__setattr__(self, name, numbers(name, getattr(self, name), axes=1))
        starts, total = self.starts.astype(np.int32), len(self.pulls)
        if len(starts) < 2 or starts[0] != 0 or starts[-1] != total or (np.diff(starts) < 1).any():
            raise InputError(f"starts must rise from 0 to the number of arms, {total}")
        if (
            len(self.successes) != total
            or (self.successes < 0).any()
            or (self.successes > self.pulls).any()
        ):
            raise InputError("successes must be as many as pulls, and from 0 to the pulls")
        object.__setattr__(self, "starts", starts)

    @property
    def checksum(self) -> str:
        """What tells these experiments from others behind the same file name."""
        return checksum(self.starts, self.pulls, self.successes)

    def sample(self, key: Array) -> Array:
        starts = jnp.asarray(self.starts)
        experiments = starts.shape[0] - 1
        which = jnp.floor(random.uniform(random.fold_in(key, jnp.uint32(0))) * experiments).astype(int)
        first, count = starts[which], starts[which + 1] - starts[which]
        slots = jnp.arange(self.arms, dtype=jnp.uint32)
        first_word, second = (jnp.broadcast_to(word, slots.shape) for word in random.words(key))
        bits = random.hash_words((first_word, second), (slots + np.uint32(1), slots))
        arm = first + jnp.minimum(jnp.floor(random.unit(bits[0]) * count).astype(int), count - 1)
        wins = jnp.asarray(self.successes, jnp.float32)[arm]
        losses = jnp.asarray(self.pulls - self.successes, jnp.float32)[arm]
        return random.beta(random.fold_in(key, jnp.uint32(1)), FLAT + wins, FLAT + losses)

    def describe(self) -> dict[str, Any]:
        about = {"file": self.file, "part": self.part, "checksum": self.checksum}
        return {"kind": self.kind, "arms": self.arms, **about}
