"""A learned policy and its file."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from gradband import policies
from gradband.core import tensor_file
from gradband.core.errors import InputError, unknown, whole
from gradband.core.pytrees import by_path
from gradband.policies import Params, Policy


@dataclasses.dataclass(frozen=True)
class Learned:
    """A learned policy, how it was learned, and why it stopped early if it did."""

    policy: Policy
    params: Params
    history: dict[str, np.ndarray]
    """by iteration [L]: `horizon`, gradient `norm`, `regret` and `regret_se`; `params` is [L, P], and
    [L, 0] for networks"""
    about: dict[str, Any]
    """problem, settings, seed, versions; `choice` and `evaluation` if there was one"""
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
        """The parameters by their names; nested ones by their paths, as a file has them."""
        return by_path(self.params)

    def save(self, path: str | Path) -> None:
        """Writes the policy and its history to one safetensors file."""
        leaves = {f"params.{name}": np.asarray(leaf) for name, leaf in self.arrays.items()}
        curves = {f"history.{name}": curve for name, curve in self.history.items()}
        about = {
            "policy": self.policy.name,
            "settings": self.policy.settings(),
            "arms": self.policy.arms,
            "horizon": self.policy.horizon,
            "stopped": self.stopped,
            **self.about,
        }
        tensor_file.save(path, "policy", leaves | curves, about)


def load(path: str | Path, policy: Policy | None = None) -> Learned:
    """Reads a policy file; one of your own class needs an instance of it as `policy`."""
    arrays, about = tensor_file.load(path, "policy")
    try:
        name, arms, horizon = about.pop("policy"), about.pop("arms"), about.pop("horizon")
        settings, stopped = about.pop("settings"), about.pop("stopped")
        if policy is None:
            known = policies.POLICIES | policies.TABLES
            if name not in known:
                raise unknown("policy", name, known)
            policy = known[name](**settings)
        bound = policy.bind(arms, whole("horizon", horizon))
        params = bound.as_params(tensor_file.named(arrays, "params."))
        kinds = {f"params.{name}": shape.dtype.kind for name, shape in bound.shapes().items()}
        words = {"f": "floating-point", "i": "signed whole", "u": "unsigned whole"}
        for entry, array in arrays.items():
            wanted = kinds.get(entry, "f")
            if array.dtype.kind != wanted:
                raise InputError(f"{entry} must hold {words[wanted]} numbers")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is not a complete policy file: {error}") from None
    return Learned(bound, params, tensor_file.named(arrays, "history."), about, str(stopped))
