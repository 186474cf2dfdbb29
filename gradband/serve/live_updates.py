"""Server-sent events: which tests have changed, at most once per second."""

import asyncio
from collections.abc import AsyncIterator

import orjson

from gradband.serve.errors import TooManyError, UnavailableError
from gradband.serve.limits import MOST_LISTENERS
from gradband.serve.reading import versions
from gradband.serve.service import Service

EVERY = 1.0  # seconds
SILENCE = 15  # times without a change until a comment shows that the connection is alive


class LiveUpdates:
    """Reads the database once per second for all listeners."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._listeners = 0
        self._seen: dict[str, int] = {}
        self._looked = -EVERY

    def listen(self) -> AsyncIterator[bytes]:
        """A stream of lines, until the client leaves or the service ends."""
        if self._listeners >= MOST_LISTENERS:
            raise TooManyError(f"{MOST_LISTENERS} clients listen already", 10.0)
        return self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        self._listeners += 1
        try:
            told = await self._versions()
            yield b"retry: 2000\n\n"
            silent = 0
            while not await self._stopping():
                now = await self._versions()
                changed = {key: version for key, version in now.items() if told.get(key) != version}
                silent = 0 if changed else silent + 1
                if changed:
                    yield b"event: tests\ndata: %s\n\n" % orjson.dumps(changed)
                elif silent % SILENCE == 0:
                    yield b": still here\n\n"
                told = now
        finally:
            self._listeners -= 1

    async def _stopping(self) -> bool:
        """Waits for the next look, and says whether the service ends."""
        try:
            await asyncio.wait_for(self._service.stopping.wait(), EVERY)
        except TimeoutError:
            return False
        return True

    async def _versions(self) -> dict[str, int]:
        now = asyncio.get_running_loop().time()
        if now - self._looked >= 0.9 * EVERY:
            self._looked = now
            try:
                self._seen = await self._service.reader.read(versions)
            except UnavailableError:
                return self._seen
        return self._seen
