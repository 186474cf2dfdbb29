"""A thread with its own connection, for reads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gradband.serve.errors import UnavailableError
from gradband.serve.store import Store, StoreError, open_store

Found = TypeVar("Found")


class Reader:
    """Calls functions with a connection, one after the other."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._store: Store | None = None

    async def read(self, find: Callable[..., Found], *given: Any) -> Found:
        """Calls `find` with the connection and these arguments, in the thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._call, find, given)

    def _call(self, find: Callable[..., Found], given: tuple[Any, ...]) -> Found:
        try:
            if self._store is None:
                self._store = open_store(self._address)
            return find(self._store, *given)
        except StoreError as error:
            self._close()
            raise UnavailableError("the database cannot be read: try again later", 1.0) from error

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def close(self) -> None:
        """Ends the thread after its current call."""
        self._thread.submit(self._close)
        self._thread.shutdown()
