"""The service behind the routes: checks tokens, queues operations on tests, and reads."""

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import Any

from gradband.serve import operations
from gradband.serve.batcher import Batcher, Turn
from gradband.serve.errors import ForbiddenError, TooManyError, UnauthorizedError
from gradband.serve.limits import check_key
from gradband.serve.live import LiveTest
from gradband.serve.metrics import Metrics
from gradband.serve.options import Options
from gradband.serve.rates import Bucket
from gradband.serve.reader import Reader
from gradband.serve.reports import Reports
from gradband.serve.store import Store, open_store, without_password
from gradband.serve.tokens import Token, find_token, read_tokens

TOKENS_EVERY = 2.0  # seconds until a revoked token stops working
STRANGERS = 50.0  # requests per second without a valid token
SECOND_LOOKS = 5.0  # per second, whether an unknown token is a new one
EXPIRE_EVERY = 1.0

log = logging.getLogger("gradband.serve")


class Service:
    """Everything that one worker keeps."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.metrics = Metrics()
        self.batcher = Batcher(options.db, self.metrics)
        self.reader = Reader(options.db, "reads")
        self.reporter = Reader(options.db, "reports")
        self.keeper = Reader(options.db, "upkeep")
        self.reports = Reports()
        self.stopping = asyncio.Event()
        self._tokens: dict[str, Token] = {}
        self._tokens_read = -TOKENS_EVERY
        self._buckets: dict[str, Bucket] = {}
        self._strangers = Bucket(STRANGERS)
        self._second_looks = Bucket(SECOND_LOOKS)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Brings the schema up to date and starts the threads."""
        done = await asyncio.to_thread(prepare, self.options.db)
        log.info("started", extra={"db": without_password(self.options.db), "migrations": done})
        self.batcher.start()
        await self.read_tokens()
        self._tasks = [asyncio.create_task(self._keep_up())]

    async def stop(self) -> None:
        """Does what is queued, then ends."""
        self.stopping.set()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(self.batcher.close)
        for reader in (self.reader, self.reporter, self.keeper):
            await asyncio.to_thread(reader.close)
        log.info("stopped")

    async def _keep_up(self) -> None:
        """Rereads the tokens, expires decisions and tidies up, again and again."""
        while True:
            await asyncio.sleep(EXPIRE_EVERY)
            try:
                if time.monotonic() - self._tokens_read >= TOKENS_EVERY:
                    await self.read_tokens()
                for key in await self.reader.read(keys_due, time.time()):
                    await self.batcher.submit(key, operations.expire)
                await self.keeper.read(tidy)
            except Exception as error:  # the database is away: the next time may do
                log.warning("the timer failed", extra={"reason": str(error)})

    async def read_tokens(self) -> None:
        self._tokens_read = time.monotonic()
        self._tokens = await self.reader.read(read_tokens)

    def authorize(self, header: str, right: str) -> Token:
        """The token in an Authorization header, if it has this right and is within its rate."""
        scheme, _, text = header.partition(" ")
        token = find_token(self._tokens, text.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            if wait := self._strangers.wait():
                raise TooManyError("too many requests without a valid token", wait)
            raise UnauthorizedError("this needs a valid token: Authorization: Bearer gbt_…")
        bucket = self._buckets.get(token.id)
        if bucket is None:
            bucket = self._buckets[token.id] = Bucket(self.options.rate)
        if wait := bucket.wait():
            raise TooManyError(f"a token may make {self.options.rate:g} requests per second", wait)
        if not token.may(right):
            raise ForbiddenError(f"the role {token.role} may not do this: it needs the right to {right}")
        return token

    async def admit(self, header: str, right: str) -> Token:
        """`authorize`, which looks again for a token that may be new."""
        try:
            return self.authorize(header, right)
        except UnauthorizedError:
            if self._second_looks.wait():
                raise
        await self.read_tokens()
        return self.authorize(header, right)

    def ask(self, key: str, work: Any, *given: Any) -> "asyncio.Future[Any]":
        """Queues an operation on a test; its result is on disk when the future is done."""
        check_key(key)
        return self.batcher.submit(key, partial(call, work, key, given))

    def upload(self, data: bytes) -> "asyncio.Future[Any]":
        """Queues a policy file to be stored."""
        return self.batcher.submit("", partial(operations.upload, data=data))


def call(work: Any, key: str, given: tuple[Any, ...], turn: Turn, test: LiveTest | None) -> Any:
    return work(turn, test, key, *given)


def prepare(address: str) -> list[int]:
    """Creates what the database lacks."""
    store = open_store(address)
    try:
        return store.migrate()
    finally:
        store.close()


def keys_due(store: Store, now: float) -> list[str]:
    """Tests with decisions past their deadline."""
    rows = store.execute("SELECT key FROM tests WHERE due <= ? ORDER BY due LIMIT 100", (now,))
    return [key for (key,) in rows]


def tidy(store: Store) -> None:
    store.tidy()
