"""A policy with its parameters, played in NumPy, or in JAX if its formulas need it."""

import dataclasses
import json
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from gradband.core.arrays import PLAIN, flatten, nested
from gradband.core.errors import InputError, shown
from gradband.core.feature_names import FeatureNames
from gradband.policies import Policy, Seeing
from gradband.policies.own import Trust, describe_class
from gradband.policies.policy_file import read

State = Any
FORMULAS = (
    "begin",
    "latent_log_probs",
    "recommend",
    "see",
    "see_pulled",
    "update_late",
    "update_many_late",
)


class Playable:
    """A policy bound to K arms and n rounds, with its parameters. Any number of players can share it."""

    def __init__(self, policy: Policy, params: dict[str, Any], about: Any = None) -> None:
        """`about` describes how the policy was learned, as its file does."""
        policy.check_play()
        problem = about.get("problem") if isinstance(about, dict) else None
        self.guardrails = problem.get("guardrails") if isinstance(problem, dict) else None
        self.dims = policy.dims if isinstance(policy, Seeing) else 0
        self.features = _names(problem, self.dims)
        self.any_sums = policy.any_sums or _learned_on_other_rewards(policy, about or {})
        arrays = policy.as_arrays(params)
        self.fingerprint = _fingerprint(policy, arrays)
        self.params = policy.folded(nested({name: a[()] for name, a in arrays.items()}))
        self._given = policy
        self.policy = self._working(policy, arrays) if describe_class(policy.core) else policy
        self._sized = {policy.arms: self.policy}

    def begin(self, u: float) -> State:
        """The state before the first round; u in [0, 1) decides the latent, if there is one."""
        latent = 0
        if self.policy.latents > 1:
            edges = np.exp(self.policy.latent_log_probs(self.params)).cumsum()
            latent = min(int((u >= edges).sum()), self.policy.latents - 1)
        return self.policy.begin(self.params, np.int32(latent))

    def sized(self, arms: int) -> Policy:
        """The policy for another number of arms."""
        if arms not in self._sized:
            other = dataclasses.replace(self._given, arms=arms)
            through_jax = type(self.policy) is InJax
            self._sized[arms] = cast(Policy, InJax(other)) if through_jax else other
        return self._sized[arms]

    def _working(self, policy: Policy, arrays: dict[str, np.ndarray]) -> Any:
        """A user's own policy, unchanged if it works with NumPy, otherwise wrapped in JAX."""
        problem: Exception | None = None
        try:
            if self._tried(policy):
                return policy
        except Exception as error:  # code written for JAX may raise anything on NumPy's arrays
            problem = error
        try:
            through: Any = InJax(policy)
            self.params = policy.folded(policy.as_params(arrays))
            if self._tried(through):
                return through
        except ImportError:
            raise InputError(
                f"{policy.name} needs JAX, which is not installed: install gradband[learn], or write its "
                "formulas with gradband.policies.namespace"
            ) from problem
        except NotImplementedError:
            raise InputError(
                f"{policy.name} has no probabilities: a player needs log_probs or probabilities"
            ) from None
        except Exception as error:
            raise InputError(f"{policy.name} cannot be played: {type(error).__name__}: {error}") from error
        raise InputError(f"{policy.name} cannot be played: its state is not a tree of arrays")

    def _tried(self, policy: Any) -> bool:
        """Whether the first round gives NumPy's arrays."""
        state = policy.begin(self.params, np.int32(0))
        seen = policy.see(self.params, state, self._features()) if self.dims else state
        p = policy.probabilities(self.params, seen)
        after = policy.update_late(self.params, seen, np.int64(0), 1.0, float(p[0]) or 1.0)
        found = [*flatten(state).values(), *flatten(after).values()]
        return isinstance(p, np.ndarray) and all(isinstance(leaf, PLAIN) for leaf in found)

    def _features(self) -> np.ndarray:
        """Features of a first round: the same of all arms, or those of a visitor."""
        policy: Any = self._given
        first = np.eye(1, self.dims)
        return np.repeat(first, policy.arms, axis=0) if policy.takes_arms else first[0]


class InJax:
    """A policy whose formulas call JAX, wrapped so that it takes and returns NumPy's arrays."""

    def __init__(self, policy: Policy) -> None:
        import jax

        self._policy, self._jax = policy, jax
        self._compiled: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in FORMULAS else getattr(self._policy, name)

    def _call(self, name: str, *given: Any) -> Any:
        jax = self._jax
        if name not in self._compiled:
            self._compiled[name] = jax.jit(getattr(self._policy, name))
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            found = self._compiled[name](*jax.tree.map(jax.numpy.asarray, given))
        return jax.tree.map(np.asarray, found)

    def probabilities(self, params: Any, state: State) -> np.ndarray:
        p = np.asarray(self._call("probabilities", params, state), np.float64)
        return p / p.sum() if abs(p.sum() - 1) < 1e-4 else p


def as_playable(given: Any, trust: Trust | None = None) -> Playable:
    """A policy file, a learned policy, a bound policy, or what another player plays, as a `Playable`."""
    if isinstance(given, Playable):
        return given
    if isinstance(given, str | PathLike):
        policy, params, _, about = read(Path(given), trust)
        try:
            return Playable(policy, params, about)
        except InputError as error:
            raise InputError(f"{given}: {error}") from None
    if isinstance(given, Policy):
        return Playable(given, _first_params(given))
    bound, learned = getattr(given, "policy", None), getattr(given, "arrays", None)
    if not isinstance(bound, Policy) or not isinstance(learned, dict):
        raise InputError(f"a player needs a policy file, a learned or a bound policy, not {shown(given)}")
    return Playable(bound, learned, getattr(given, "about", None))


def _names(problem: Any, dims: int) -> FeatureNames | None:
    """What the features are called, if the problem that the policy was learned on says so."""
    given = problem.get("features") if isinstance(problem, dict) else None
    names = None if given is None or not dims else FeatureNames.read(given)
    if names is not None and len(names.columns) != dims:
        raise InputError(f"{len(names.columns)} features have names, but the policy takes {dims}")
    return names


def _learned_on_other_rewards(policy: Policy, about: dict[str, Any]) -> bool:
    """Whether a policy was learned on rewards other than 0 and 1, so that a batch may have any sums."""
    law: Any = about
    for key in ("problem", "rewards", "kind"):
        law = law.get(key) if isinstance(law, dict) else None
    return not (policy.unit or policy.binary) and law not in (None, "bernoulli")


def _first_params(policy: Policy) -> dict[str, Any]:
    """The parameters that a bound policy starts with; JAX is needed unless they are stored, or none."""
    if not policy.arms:
        raise InputError(f"{policy.name} must be bound first: {policy.name}.bind(arms, horizon)")
    if (stored := policy.stored()) is not None:
        return stored
    import jax

    from gradband.core.pytrees import by_path

    return by_path(policy.init(jax.random.key(0)))


def _fingerprint(policy: Policy, arrays: dict[str, np.ndarray]) -> str:
    """Sixteen digits that identify the policy and its parameters."""
    import hashlib  # here: it takes longer to import than most modules of a player

    settings = policy.settings() | {"arms": policy.arms, "horizon": policy.horizon}
    digest = hashlib.sha256(json.dumps([policy.name, settings], sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
