"""A problem: a prior and a horizon."""

import dataclasses
from typing import Any

from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, shown, unknown, whole
from gradband.core.feature_names import FeatureNames
from gradband.core.pytrees import pytree
from gradband.problems import priors, rewards
from gradband.problems.delay import Delay, read_delay
from gradband.problems.guardrails import Guardrails
from gradband.problems.priors import Instance, Prior
from gradband.problems.priors.base import set_fields

NOISES = ("shared", "independent")


@pytree("prior", dropped=("name", "features"))
@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Instances from `prior`, each played for `horizon` rounds.

    With `noise="shared"` one draw per round serves all arms. A policy observes only the arm it pulls, so
    its reward and gradient have the same distribution as with `noise="independent"`, the paper's setting,
    but differences between two rollouts on an instance are less noisy.

    With B `pulls_per_round`, decisions come in batches: a policy fixes its probabilities for the next B
    pulls and observes their results together. The horizon counts pulls, so there are n / B rounds. With
    contexts each pull has its own, and a decision of its own: the policy knows the rewards of earlier
    rounds alone.

    `afterwards` is the number of further pulls of the arm that the policy recommends after the last round,
    such as the visitors who see the winner of a test. They count in rewards, regrets, gradients and optima;
    the policy learns nothing from them. If means move, they stay afterwards as they were at the end.

    If the prior's means move, regret is measured against the best arm of each round; within a batch they
    are those of its first pull.

    With `guardrails` (a `Guardrails`, or a dictionary as in a problem file) the probabilities of every
    round stay within them, as those of a player with the same settings.

    With `features` (`FeatureNames`, or a dictionary as in a problem file) it is known what the features of
    contexts are called: policy files have these names, and players take values by them.

    With a `delay` (a `Delay`, or a dictionary such as {"kind": "geometric", "mean": 500}) rewards count
    when arms are pulled, but the policy observes them later.

    >>> Problem(priors.Beta(arms=10), horizon=1000).arms
    10
    """

    prior: Prior
    horizon: int
    noise: str = "shared"
    name: str = ""
    pulls_per_round: int = 1
    afterwards: int = 0
    guardrails: Guardrails | None = None
    delay: Delay | None = None
    features: FeatureNames | None = None

    def __post_init__(self) -> None:
        set_fields(self, horizon=whole("horizon", self.horizon))
        if not isinstance(self.prior, Prior):
            raise InputError(f"a problem's prior must be a Prior, not {shown(self.prior)}")
        if not isinstance(self.prior.rewards, rewards.Reward):
            raise InputError(f"a prior's rewards must be a Reward, not {shown(self.prior.rewards)}")
        if self.prior.parts != self.prior.rewards.parts:
            given, kind = self.prior.kind, self.prior.rewards.kind
            raise InputError(f"a {given} prior does not describe arms as {kind} rewards need them")
        if self.noise not in NOISES:
            raise unknown("noise", self.noise, NOISES)
        self.prior.check_horizon(self.horizon)
        set_fields(self, prior=self.prior.lasting(self.horizon))
        set_fields(self, pulls_per_round=whole("pulls_per_round", self.pulls_per_round))
        set_fields(self, afterwards=whole("afterwards", self.afterwards, least=0))
        if self.afterwards and not self.prior.knows_means:
            raise InputError("afterwards needs known means, which this prior lacks")
        if self.prior.contextual:
            if self.afterwards:
                raise InputError(
                    "afterwards does not work with contexts: which arm is best depends on them"
                )
            if self.delay is not None:
                raise InputError(
                    "a delay does not work with contexts, which would be kept until rewards come: use "
                    "pulls_per_round, whose rewards are known when their round ends"
                )
        names = self.prior.feature_names if self.features is None else self.features
        set_fields(self, features=_names(names, self.prior.dims))
        if self.horizon % self.pulls_per_round:
            raise InputError(
                f"the horizon counts pulls, but {self.horizon} is not a multiple of "
                f"pulls_per_round = {self.pulls_per_round}"
            )
        priors.check_draws(self.prior, self.horizon)
        if self.guardrails is not None:
            set_fields(self, guardrails=Guardrails.read(self.guardrails))
            self.guardrails.check(self.arms)
        if self.delay is not None:
            set_fields(self, delay=read_delay(self.delay))
            if not (self.prior.knows_means and isinstance(self.prior.rewards, rewards.Bernoulli)):
                raise InputError("a delay needs bernoulli rewards with known means")
        if self.pulls_at_once > 1 and not (self.prior.knows_means and self.prior.rewards.batches()):
            kinds = ", ".join(kind for kind, law in rewards.REWARDS.items() if law.batches())
            given = f"{self.prior.rewards.kind} rewards"
            raise InputError(f"batches need rewards whose sums can be drawn ({kinds}), not {given}")

    @property
    def rounds(self) -> int:
        """The number of decisions."""
        return self.horizon // self.pulls_at_once

    @property
    def pulls_at_once(self) -> int:
        """The pulls of a decision: those of a round, but a single one with contexts."""
        return 1 if self.prior.contextual else self.pulls_per_round

    @property
    def pulls(self) -> int:
        """All pulls: those of the horizon and those afterwards."""
        return self.horizon + self.afterwards

    @property
    def arms(self) -> int:
        return self.prior.arms

    @property
    def unit(self) -> bool:
        """Whether all rewards lie in [0, 1]."""
        return self.prior.unit

    def one_by_one(self, what: str) -> None:
        """Raises an error if rewards come late or in batches, which `what` does not support."""
        if self.pulls_per_round > 1:
            raise InputError(f"{what} needs rewards one by one, not in batches of {self.pulls_per_round}")
        if self.delay is not None:
            raise InputError(f"{what} needs each reward before the next decision, not with a delay")

    def unguarded(self, what: str) -> None:
        """Raises an error if there are guardrails, which `what` does not support."""
        if self.guardrails is not None:
            raise InputError(f"{what} does not support guardrails: remove them from the problem")

    def reward(self, key: Array, instance: Instance, arm: Array, t: Array) -> Array:
        """The reward Y[arm, t] of an instance; the key is the round's."""
        if self.noise == "independent":
            key = prng.fold_in(key, arm)
        return self.prior.reward(key, instance, arm, t)

    def replace(self, **changes: Any) -> "Problem":
        """The same problem with another horizon, noise, prior or name."""
        return dataclasses.replace(self, **changes)

    def fresh(self) -> "Problem":
        """The problem on instances that were not trained on."""
        return self.replace(prior=self.prior.fresh())

    def describe(self) -> dict[str, Any]:
        """The problem as the contents of a problem file."""
        return {
            "name": self.name,
            "horizon": self.horizon,
            "noise": self.noise,
            "prior": self.prior.describe(),
            "rewards": self.prior.rewards.describe(),
            **({"pulls_per_round": self.pulls_per_round} if self.pulls_per_round > 1 else {}),
            **({"afterwards": self.afterwards} if self.afterwards else {}),
            **({"guardrails": self.guardrails.describe()} if self.guardrails is not None else {}),
            **({"delay": self.delay.describe()} if self.delay is not None else {}),
            **({"features": self.features.describe()} if self.features is not None else {}),
        }


def _names(given: Any, dims: int) -> FeatureNames | None:
    """What the features of contexts are called, or an error if there are others."""
    if given is None:
        return None
    found = FeatureNames.read(given)
    if len(found.columns) != dims:
        raise InputError(f"{len(found.columns)} features have names, but contexts have {dims}")
    return found
