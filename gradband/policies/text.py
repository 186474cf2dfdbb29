"""Policies as text: a name, and settings after a colon, as `exp3:theta=0.5+gradient=lemma`."""

import dataclasses
import re
from typing import Any

from gradband.core.errors import InputError, unknown
from gradband.policies.own import find_class
from gradband.policies.policy import Policy

INNER = "policy="
"""begins a setting that is a policy: the rest of the text belongs to it"""


def from_text(text: str) -> Policy:
    """The library's policy that `name` or `name:setting=value+…` stands for."""
    name, _, rest = text.partition(":")
    return with_settings(find_class({"policy": name}, None)(), rest)


def with_settings(policy: Policy, text: str) -> Policy:
    """The policy with settings as `theta=0.5+gradient=lemma`."""
    name, settings, usual = policy.name, dict[str, Any](), type(policy)().settings()
    before, inner, rest = text.partition(INNER)
    for entry in filter(None, [*re.split(r"[,+](?![0-9])", before), inner + rest]):
        key, _, value = entry.partition("=")
        if key not in usual:
            raise unknown(f"setting of {name}", key, usual)
        try:
            settings[key] = type(usual[key])(value)
        except ValueError:
            raise InputError(f"{key} of {name} must be a number, not {value!r}") from None
    return dataclasses.replace(policy, **settings)


def as_text(policy: Policy) -> str:
    """The policy's name, with the settings that are not the usual ones.

    >>> as_text(from_text("ts:a=2+b=0.5"))
    'ts:a=2.0+b=0.5'
    """
    usual = type(policy)().settings()
    given = [f"{key}={value}" for key, value in policy.settings().items() if value != usual[key]]
    return f"{policy.name}:{'+'.join(given)}" if given else policy.name
