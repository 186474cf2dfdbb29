"""A learned policy and its file."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import numpy as np

from gradband.core import figures, files, tensor_file
from gradband.core.errors import InputError, shown, unknown, whole
from gradband.core.results import Result, TextTable
from gradband.policies.base import Params, Policy
from gradband.policies.own import Trust, describe_class, find_class

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED_PARAMETERS = 3  # up to this many are shown one by one
DRAWN = ("regret", "params")  # what `Learned.plot` draws
KINDS = {"f": "floating-point", "i": "signed whole", "u": "unsigned whole"}


@dataclasses.dataclass(frozen=True)
class Learned(Result):
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

    def as_dict(self) -> dict[str, Any]:
        """The policy, its parameters (of networks their shapes) and how it was learned, ready for JSON."""
        few = size_of(self.params) <= NAMED_PARAMETERS
        shown = {
            name: np.asarray(leaf).tolist() if few else {"shape": list(np.shape(leaf))}
            for name, leaf in self.arrays.items()
        }
        own = {"policy": self.policy.name, "settings": self.policy.settings(), "params": shown}
        size = {"arms": self.policy.arms, "horizon": self.policy.horizon}
        return {**own, **size, "stopped": self.stopped or None, **self.about}

    def records(self) -> list[dict[str, Any]]:
        """One row per iteration."""
        curves = {name: curve for name, curve in self.history.items() if np.ndim(curve) == 1}
        values, names = self.history.get("params"), named_parameters(self.params)
        if values is not None and values.shape[1] == len(names):
            curves |= {name: values[:, i] for i, name in enumerate(names)}
        length = max(map(len, curves.values()), default=0)
        return [{"iteration": i} | {name: float(c[i]) for name, c in curves.items()} for i in range(length)]

    def tables(self) -> list[TextTable]:
        rows = [[name, f"{float(self.params[name]):.4g}"] for name in named_parameters(self.params)]
        rows = rows or [["parameters", f"{size_of(self.params)}"]]
        rows += [["arms", f"{self.policy.arms}"], ["rounds", f"{self.policy.horizon}"]]
        training, evaluation = (self.about.get(what) for what in ("training", "evaluation"))
        if isinstance(training, dict) and "seconds" in training:
            rows.append(["iterations", f"{training.get('iterations', '')}"])
            rows.append(["seconds", f"{training['seconds']:.1f}"])
        if isinstance(evaluation, dict) and isinstance(regret := evaluation.get("regret"), dict):
            rows.append(["Bayes regret", f"{regret['mean']:.3f} ± {regret['se']:.3f}"])
        notes = f"Learning stopped early: {self.stopped}." if self.stopped else ""
        return [TextTable(f"{self.policy.name}, learned", ["", ""], rows, notes)]

    def plot(self, ax: "Axes | None" = None, what: str = "regret") -> "Axes":
        """Draws the training curve.

        Args:
            ax: Where to draw; new Axes by default.
            what: "regret", or "params" for policies of few parameters.
        """
        if what not in DRAWN:
            raise unknown("curve", what, DRAWN)
        if "regret" not in self.history:
            raise InputError(f"{self.policy.name} has no training curve")
        names = named_parameters(self.params)
        if what == "params" and not names:
            raise InputError(f"{size_of(self.params)} parameters are too many to draw")
        axes = figures.axes_for(ax, (7, 3.8))
        if what == "regret":
            figures.regret_curve(axes, self.history, {})
        else:
            figures.parameters(axes, np.arange(len(self.history["regret"])), self.history["params"], names)
            axes.set_xlabel("iteration")
        return axes

    def save(self, path: str | Path) -> None:
        """Writes the policy and its history to one safetensors file."""
        if self.policy.core is not self.policy and describe_class(self.policy.core):
            raise InputError(
                f"a file of {self.policy.name} needs a policy of the library, not {self.policy.core.name}"
            )
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


def size_of(params: Params) -> int:
    """The number of parameters."""
    from gradband.core.pytrees import by_path

    return sum(int(np.size(leaf)) for leaf in by_path(params).values())


def named_parameters(params: Params) -> list[str]:
    """The names of parameters that are few enough to show one by one."""
    few = len(params) <= NAMED_PARAMETERS and all(np.shape(leaf) == () for leaf in params.values())
    return list(params) if few else []


def params_in_words(params: Params) -> str:
    """A few parameters with their values, or how many there are."""
    if not named_parameters(params):
        return f"{size_of(params)} parameters"
    return ", ".join(f"{name} = {float(value):.4g}" for name, value in params.items())


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


def _takes_tuples(annotation: Any) -> bool:
    """Whether a setting may be several numbers in place of one."""
    return any(get_origin(one) is tuple for one in get_args(annotation))


def _settings(kind: type[Policy], given: dict[str, Any]) -> dict[str, Any]:
    """A file's settings, or an error if their types differ from those of the defaults."""
    found = dict(given)
    for field in dataclasses.fields(kind):
        if field.name not in given:
            continue
        value, wanted = given[field.name], type(field.default)
        if isinstance(value, list) and (wanted is tuple or _takes_tuples(field.type)):
            found[field.name] = tuple(value)
        elif wanted in (bool, int, float, str) and (
            isinstance(value, bool) != (wanted is bool)
            or not (isinstance(value, wanted) or (wanted is float and isinstance(value, int)))
        ):
            raise InputError(f"{field.name} of {kind.name} cannot be {shown(value)}")
    return found
