"""Packages beyond NumPy, the extras that install them, and one sentence where an extra is missing."""

from gradband.core.errors import InputError

EXTRAS = {
    "jax": "learn",
    "matplotlib": "learn",
    "numba": "learn",
    "onnx": "onnx",
    "optax": "learn",
    "polars": "data",
    "rich": "learn",
    "safetensors": "learn",
    "scipy": "learn",
    "typer": "learn",
}
"""the extra that brings each package"""


class MissingExtraError(InputError, ImportError):
    """A package that an extra of gradband brings is not installed."""


def needs(what: str, extra: str) -> MissingExtraError:
    """The error for something that an extra has to be installed for.

    >>> print(needs("gradband learn", "learn"))
    gradband learn needs the extra 'learn': pip install 'gradband[learn]'
    """
    return MissingExtraError(f"{what} needs the extra '{extra}': pip install 'gradband[{extra}]'")


def extra_of(error: ImportError) -> str | None:
    """The extra that would have avoided this error, if there is one.

    >>> extra_of(ModuleNotFoundError(name="jax.numpy")), extra_of(ModuleNotFoundError(name="json"))
    ('learn', None)
    """
    return EXTRAS.get((error.name or "").partition(".")[0])
