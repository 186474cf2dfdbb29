"""Compilation by Numba, cached on disk where possible."""

from collections.abc import Callable
from typing import Any

import numba


def compiled(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` without the interpreter's lock; the code is cached if some folder is writable."""

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # Numba has no writable folder
            return numba.njit(nogil=True, **options)(function)

    return decorate
