"""Compilation by Numba, kept on disk where there is a place for it."""

from collections.abc import Callable
from typing import Any

import numba


def compiled(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` without the interpreter's lock; the code is kept if some folder can be written to."""

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # there is no folder that Numba may write to
            return numba.njit(nogil=True, **options)(function)

    return decorate
