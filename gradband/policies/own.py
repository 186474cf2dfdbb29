"""The user's own policies: classes outside the library.

A policy file names its class, but never makes the program import anything: the user who loads the file
provides the class, or the Python file that defines it.
"""

import contextlib
import functools
import importlib.util
import itertools
import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from gradband.core.errors import InputError, shown, unknown
from gradband.policies.base import Policy

Trust = type[Policy] | str | PathLike[str] | Sequence["type[Policy] | str | PathLike[str]"]
"""a class of policies, a Python file with such classes, or several of these"""
LOADED = "gradband_own_"  # begins the names of modules that come from files
_numbers = itertools.count()


def describe_class(policy: Policy) -> dict[str, str]:
    """Entries of a policy file for a class from outside the library: `module:Class` and its file."""
    kind = type(policy)
    if _find_in_library(kind.name) is kind:
        return {}
    file = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    module = file.stem if kind.__module__.startswith(LOADED) else kind.__module__
    return {"class": f"{module}:{kind.__qualname__}", "file": file.name}


def find_class(about: dict[str, Any], trust: Trust | None) -> type[Policy]:
    """The class of a policy file: one of the library, or one that the user trusts."""
    name, given = about["policy"], about.get("class")
    if given is None:
        known = _find_in_library(name)
        if known is not None:
            return known
        if trust is None:
            raise unknown("policy", name, library_policies())
    if not isinstance(given, str) or ":" not in given:
        raise InputError(f"a policy file's class must be like module:Class, not {shown(given)}")
    wanted = given.partition(":")[2]
    if trust is None:
        raise InputError(
            f"this policy has the class {shown(given)}, which is not gradband's: if you trust its code, "
            f"use --trust {about.get('file') or 'its file'}, or trust={wanted} in Python"
        )
    for entry in [trust] if isinstance(trust, type | str | PathLike) else trust:
        found = entry if isinstance(entry, type) else getattr(load_module(entry), wanted, None)
        if isinstance(found, type) and issubclass(found, Policy) and found.__qualname__ == wanted:
            return found
    raise InputError(f"this policy has the class {shown(given)}, which is not among those that you trust")


def _find_in_library(name: Any) -> type[Policy] | None:
    """The library's policy with this name. Most have a file of that name, so that no other is imported."""
    if not isinstance(name, str):
        return None
    file = name.replace("-", "_")
    if file.isidentifier():
        with contextlib.suppress(ImportError):
            for kind in vars(importlib.import_module(f"gradband.policies.{file}")).values():
                if isinstance(kind, type) and issubclass(kind, Policy) and vars(kind).get("name") == name:
                    return kind
    return library_policies().get(name)


def library_policies() -> dict[str, type[Policy]]:
    """The library's policies by name, also those that are not listed."""
    from gradband.policies import library

    return library.POLICIES | library.TABLES


def load_module(path: str | PathLike[str]) -> ModuleType:
    """The module in a Python file that the user named. It runs once."""
    file = Path(path)
    if file.suffix != ".py" or not file.is_file():
        raise InputError(f"{file} is not a Python file")
    return _module(file.resolve())


@functools.cache
def _module(file: Path) -> ModuleType:
    name = f"{LOADED}{next(_numbers)}_{file.stem}"
    spec: Any = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"{file.name} can't be run: {type(error).__name__}: {error}") from error
    return module


def load_class(text: str) -> type[Policy]:
    """The class that `file.py:Class` names."""
    path, _, name = text.rpartition(":")
    found = getattr(load_module(path), name, None)
    if not isinstance(found, type) or not issubclass(found, Policy):
        raise InputError(f"{path} has no policy {shown(name)}")
    if not isinstance(getattr(found, "name", None), str):
        raise InputError(f'{name} in {path} needs a name: name: ClassVar[str] = "…"')
    return found
