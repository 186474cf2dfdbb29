"""The library's policies by name."""

import importlib

from gradband import policies
from gradband.core.errors import InputError, shown, unknown
from gradband.policies.base import Policy

_KNOWN: dict[str, type[Policy]] = {
    entry.name: entry
    for name, home in policies._modules_by_name().items()
    if home != __name__
    and isinstance(entry := getattr(importlib.import_module(home), name), type)
    and issubclass(entry, Policy)
    and hasattr(entry, "name")
}
POLICIES: dict[str, type[Policy]] = {name: policy for name, policy in _KNOWN.items() if policy.listed}
"""The policies by name."""

TABLES: dict[str, type[Policy]] = {name: policy for name, policy in _KNOWN.items() if not policy.listed}
"""Policies that `gradband.exact.optimum` makes; their files can be read."""

TRAINED = [name for name, policy in POLICIES.items() if policy.init is not Policy.init and policy.trained]
"""Names of policies whose parameters are learned."""


def named(name: str) -> Policy:
    """The policy with this name and its default settings.

    >>> named("softelim").theta
    1.0
    """
    if name not in POLICIES:
        raise unknown("policy", name, POLICIES)
    return POLICIES[name]()


def as_policy(given: object) -> Policy:
    """A policy, or the one with this name; an error for anything else."""
    if isinstance(given, str):
        return named(given)
    if isinstance(given, Policy):
        return given
    what = f"a class: write {given.__name__}()" if isinstance(given, type) else shown(given)
    raise InputError(f"a policy must be an instance of Policy or a name, not {what}")
