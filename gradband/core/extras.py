"""Packages beyond NumPy, the extras that install them, and the error for a missing extra."""

from gradband.core.errors import InputError

LEARN = ("jax", "matplotlib", "numba", "optax", "rich", "safetensors", "scipy", "typer")
SERVE = (
    "fastapi",
    "httptools",
    "orjson",
    "prometheus_client",
    "psycopg",
    "pydantic",
    "starlette",
    "uvicorn",
    "uvloop",
)
EXTRAS = (
    {"onnx": "onnx", "narwhals": "data", "polars": "data"}
    | dict.fromkeys(LEARN, "learn")
    | dict.fromkeys(SERVE, "serve")
)  # by package


class MissingExtraError(InputError, ImportError):
    """A package that an extra of gradband brings is not installed."""


def needs(what: str, extra: str) -> MissingExtraError:
    """The error for something that needs an extra.

    >>> print(needs("gradband learn", "learn"))
    gradband learn needs the extra 'learn': pip install 'gradband[learn]'
    """
    return MissingExtraError(f"{what} needs the extra '{extra}': pip install 'gradband[{extra}]'")


def extra_of(error: ImportError) -> str | None:
    """The extra that would prevent this error, if there is one.

    >>> extra_of(ModuleNotFoundError(name="jax.numpy")), extra_of(ModuleNotFoundError(name="json"))
    ('learn', None)
    """
    return EXTRAS.get((error.name or "").partition(".")[0])
