"""A learned policy and its file."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from gradband.core import files, tensor_file
from gradband.core.errors import InputError, shown, whole
from gradband.policies import Params, Policy
from gradband.policies.own import Trust, describe_class, find_class

KINDS = {"f": "floating-point", "i": "signed whole", "u": "unsigned whole"}


@dataclasses.dataclass(frozen=True)
class Learned:
    """A learned policy, how it was learned, and why learning stopped early, if it did."""

    policy: Policy
    params: Params
    history: dict[str, np.ndarray]
    """by iteration [L]: `horizon`, gradient `norm`, `regret` and `regret_se`; `params` is [L, P], and
    [L, 0] for networks"""
    about: dict[str, Any]
    """problem, settings, seed, versions; `choice` and `evaluation` if there are any"""
    stopped: str = ""

    def __repr__(self) -> str:
        words = [self.policy.name, f"{self.policy.arms} arms", f"{self.policy.horizon} rounds"]
        if all(np.shape(leaf) == () for leaf in self.arrays.values()):
            words += [f"{name}={float(leaf):.4g}" for name, leaf in self.arrays.items()]
        else:
            words.append(f"{sum(map(np.size, self.arrays.values()))} parameters")
        words += [f"{len(self.history['regret'])} iterations"] if "regret" in self.history else []
        return f"Learned({', '.join(words)})"

    @property
    def arrays(self) -> dict[str, Any]:
        """The parameters by name, or by path if nested, as in a file."""
        from gradband.core.pytrees import by_path

        return by_path(self.params)

    def save(self, path: str | Path) -> None:
        """Writes the policy and its history to one safetensors file."""
        leaves = {f"params.{name}": np.asarray(leaf) for name, leaf in self.arrays.items()}
        curves = {f"history.{name}": curve for name, curve in self.history.items()}
        about = {
            "policy": self.policy.name,
            **describe_class(self.policy),
            "settings": self.policy.settings(),
            "arms": self.policy.arms,
            "horizon": self.policy.horizon,
            "stopped": self.stopped,
            **self.about,
        }
        tensor_file.save(path, "policy", leaves | curves, about)


def load(path: str | Path, trust: Trust | None = None) -> Learned:
    """Reads a policy file.

    Args:
        path: The file.
        trust: For a class of your own: the class, or the Python file that defines it.
    """
    policy, given, history, about = read(path, trust)
    try:
        params = policy.as_params(given)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return Learned(policy, params, history, about, str(about.pop("stopped")))


def read(
    path: str | Path, trust: Trust | None = None
) -> tuple[Policy, dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Any]]:
    """The bound policy in a file, its parameters, its history, and its other entries."""
    return parse(files.read(path), path, trust)


def parse(
    data: bytes, path: str | Path, trust: Trust | None = None
) -> tuple[Policy, dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Any]]:
    """What `read` returns, from the bytes of a file; errors name the path."""
    arrays, about = tensor_file.parse(data, "policy", path)
    try:
        kind = find_class(about, trust)
        for key in ("policy", "class", "file"):
            about.pop(key, None)
        arms, horizon = about.pop("arms"), whole("horizon", about.pop("horizon"))
        policy = kind(**_settings(kind, about.pop("settings"))).bind(arms, horizon)
        specs = policy.specs() or {}
        kinds = {f"params.{name}": np.dtype(spec.dtype).kind for name, spec in specs.items()}
        for entry, array in arrays.items():
            wanted = kinds.get(entry, array.dtype.kind if entry.startswith("params.") else "f")
            if array.dtype.kind != wanted or wanted not in KINDS:
                raise InputError(f"{entry} must hold {KINDS.get(wanted, 'other')} numbers")
        about["stopped"]  # is required
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path} is not a complete policy file: {error}") from None
    return policy, tensor_file.named(arrays, "params."), tensor_file.named(arrays, "history."), about


def _settings(kind: type[Policy], given: dict[str, Any]) -> dict[str, Any]:
    """A file's settings, or an error if their types differ from those of the defaults."""
    found = dict(given)
    for field in dataclasses.fields(kind):
        if field.name not in given:
            continue
        value, wanted = given[field.name], type(field.default)
        if wanted is tuple and isinstance(value, list):
            found[field.name] = tuple(value)
        elif wanted in (bool, int, float, str) and (
            isinstance(value, bool) != (wanted is bool)
            or not (isinstance(value, wanted) or (wanted is float and isinstance(value, int)))
        ):
            raise InputError(f"{field.name} of {kind.name} cannot be {shown(value)}")
    return found
