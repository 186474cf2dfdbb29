"""The ways to give a policy: a name with or without settings, a policy, a learned one, or a file."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from gradband import policies
from gradband.core import prng
from gradband.core.errors import InputError, unknown
from gradband.policies import Params, Policy, as_policy, binding, references
from gradband.policies.linear_policy import LinearPolicy
from gradband.policies.own import Trust, load_class
from gradband.policies.policy_file import load
from gradband.policies.text import INNER, with_settings
from gradband.problems import Problem


@runtime_checkable
class WithParams(Protocol):
    """A policy with parameters, such as `learn` returns."""

    @property
    def policy(self) -> Policy: ...
    @property
    def params(self) -> Params: ...


Found = Policy | WithParams
Given = str | Path | Found


def resolve(given: Given, problem: Problem | None = None, trust: Trust | None = None) -> Found:
    """The policy that is given, or the one with this name or in this file; with parameters if learned.

    A name can have settings after a colon, as `exp3:theta=0.5+gradient=lemma`. `ts:prior` and
    `gittins:prior` take the prior of `problem`, and so do `pretrained` and `lin-ts` by their names alone.
    The file of a class of your own needs `trust`.

    >>> resolve("softelim:theta=0.5")
    SoftElim(arms=0, horizon=0, theta=0.5)
    """
    if isinstance(given, Path):
        return load(given, trust)
    if isinstance(given, str):
        known = given.partition(":")[0] in policies.POLICIES
        is_file = not known and (given.endswith(".safetensors") or Path(given).is_file())
        return load(given, trust) if is_file else parse_policy(given, problem)
    return given if isinstance(given, WithParams) else as_policy(given)


def unpack(
    given: Given, problem: Problem | None = None, params: Params | None = None
) -> tuple[Policy, Params | None]:
    """The policy that is given, and its parameters: `params`, its learned ones, or None."""
    entry = resolve(given, problem)
    if isinstance(entry, WithParams):
        return entry.policy, entry.params if params is None else params
    return entry, params


def parse_policy(text: str, problem: Problem | None = None) -> Policy:
    """The policy that `name`, `name:setting=value+…` or `name:prior` stands for.

    A policy that `takes_prior` has the problem's prior by its name alone; with linear beliefs also where
    other settings are given.
    """
    name, _, rest = text.partition(":")
    if name not in policies.POLICIES:
        raise unknown("policy", name, policies.POLICIES)
    if rest == references.PRIOR:
        if problem is None:
            raise InputError(f"{text} needs a problem whose prior it can take")
        return references.with_prior(name, problem)
    policy = policies.named(name)
    if isinstance(policy, policies.ByGroup) and problem is not None:
        return _by_group(policy, rest, problem)
    if problem is not None and (not rest or isinstance(policy, LinearPolicy)):
        policy = references.by_name(policy, problem)
    return with_settings(policy, rest)


def _by_group(policy: policies.ByGroup, text: str, problem: Problem) -> Policy:
    """The policy with these settings; in a group plays what its `policy` stands for there."""
    before, _, inner = text.partition(INNER)
    own = parse_policy(inner or policy.core.name, references.in_group(problem))
    return with_settings(policy.with_core(own), before)


def from_command_line(text: str, problem: Problem | None = None, trust: Trust | None = None) -> Found:
    """Like `resolve`, but also takes a policy of your own: `my_policies.py:Tempered`, with settings after
    another colon. Only for text that the user typed, since it runs the file.
    """
    own = re.fullmatch(r"(.+\.py:[^:]*)(?::(.*))?", text)
    if own is None:
        return resolve(text, problem, trust)
    return with_settings(load_class(own[1])(), own[2] or "")


def bind(
    given: Given, problem: Problem, seed: int = 0, progress: Callable[[float], None] | None = None
) -> tuple[Policy, Params]:
    """The policy bound to the problem, and its parameters: the learned or the initial ones.

    The `seed` is for random initial weights; `progress` is called during long preparations.
    """
    entry, params = unpack(given, problem)
    policy = binding.check(entry, problem)
    if params is not None:
        return policy, policy.as_params(params)
    policy.prepare(progress or (lambda done: None))
    return policy, policy.init(prng.stream(prng.root(seed), "init"))
