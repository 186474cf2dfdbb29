"""What every request passes: limits on its body, the fast routes, and the shape of errors.

Decisions and rewards are answered here, without FastAPI: its routing, validation and response take longer
than the decision itself. Everything else goes to the application.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from gradband.core.errors import InputError, shown
from gradband.serve import ofrep, operations
from gradband.serve.errors import InvalidError, RefusalError, TooLargeError, TooSlowError, UnsupportedError
from gradband.serve.limits import (
    LARGEST_BODY,
    LARGEST_DECISION,
    LARGEST_POLICY,
    SLOWEST_BODY,
    check_id,
    check_key,
)
from gradband.serve.service import Service

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

log = logging.getLogger("gradband.serve")
FAST = re.compile(r"/v1/tests/([^/]+)/(decide|reward)|/ofrep/v1/evaluate/flags(?:/([^/]+))?")
JSON = (b"content-type", b"application/json")
NUMBERS = frozenset((int, float))
SAFE: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


class Gate:
    """The ASGI application that uvicorn calls."""

    def __init__(self, service: Service, app: Any) -> None:
        self.service, self.app = service, app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        path = scope["path"]
        match = FAST.fullmatch(path)
        if match is None:
            status = await self._slow(scope, receive, send)
            route = getattr(scope.get("route"), "path", "other")
        else:
            key, action, flag = match.groups()
            route = action or ("flag" if flag else "flags")
            status = await self._fast(scope, receive, send, route, key or flag or "")
        self.service.metrics.request(route, status, time.perf_counter() - started)

    async def _fast(self, scope: Message, receive: Receive, send: Send, route: str, key: str) -> int:
        headers: Headers = [JSON]
        try:
            if scope["method"] != "POST":
                headers.append((b"allow", b"POST"))
                status, answer = 405, {"error": "this route takes POST"}
            else:
                found = dict(scope["headers"])
                await self.service.admit(found.get(b"authorization", b"").decode("latin-1"), "decide")
                if route in ("flag", "flags"):
                    body = await read_body(found, receive, LARGEST_BODY)
                    status, answer, more = await ofrep.evaluate(self.service, key, body, found)
                    headers += more
                else:
                    most = LARGEST_DECISION if route == "decide" else LARGEST_BODY
                    body = parse(await read_body(found, receive, most))
                    status, answer = 200, await ROUTES[route](self.service, check_key(key), body)
        except (RefusalError, InputError) as error:
            status, answer, more = explain(error)
            headers += more
        except Exception:
            log.exception("a request failed", extra={"route": route})
            status, answer = 500, {"error": "the service failed: its log has the reason"}
        await answer_json(send, status, answer, headers)
        return status

    async def _slow(self, scope: Message, receive: Receive, send: Send) -> int:
        """Hands a request to the application, with its whole body, and notes the status."""
        status = 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *SAFE]
            await send(message)

        upload = scope["path"] == "/v1/policies"
        most = LARGEST_DECISION if scope["path"].endswith("/weights") else LARGEST_BODY
        try:
            body = await read_body(
                dict(scope["headers"]), receive, LARGEST_POLICY if upload else most, not upload
            )
        except RefusalError as error:
            status, answer, headers = explain(error)
            await answer_json(note, status, answer, [*headers, JSON])
            return status
        given = False

        async def receive_again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, receive_again, note)
        return status


async def answer_json(send: Send, status: int, answer: Any, headers: Headers) -> None:
    """Sends an answer, which is empty if None."""
    body = b"" if answer is None else orjson.dumps(answer)
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def decide(service: Service, key: str, body: Any) -> Any:
    """Handles `POST /v1/tests/{key}/decide`."""
    known(body, "id", "unit", "context")
    id, unit, context = body.get("id"), body.get("unit"), body.get("context")
    if id is not None:
        check_id("id", id)
        if id[0] == "#":
            raise InvalidError(f"an id of your own must not start with #, not {shown(id)}")
    if unit is not None:
        check_id("unit", unit)
    if context is not None:
        check_context(context)
    return await service.ask(key, operations.decide, id, unit, context)


async def reward(service: Service, key: str, body: Any) -> Any:
    """Handles `POST /v1/tests/{key}/reward`."""
    known(body, "id", "reward")
    for name in ("id", "reward"):
        if name not in body:
            raise InvalidError(f"a reward needs {name}")
    id, value = check_id("id", body["id"]), body["reward"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidError(f"a reward must be a number, not {shown(value)}")
    return await service.ask(key, operations.reward, id, value)


def check_context(given: Any) -> None:
    """Raises an error unless these are lists of numbers, even if a decision is only repeated."""
    rows = list(given.values()) if isinstance(given, dict) else given
    if isinstance(given, list) and set(map(type, given)) <= NUMBERS:
        return
    if not isinstance(rows, list) or not all(
        type(x) is list and set(map(type, x)) <= NUMBERS for x in rows
    ):
        raise InvalidError(f"a context must be numbers, in lists of equal length, not {shown(given)}")


ROUTES = {"decide": decide, "reward": reward}


def known(body: Any, *names: str) -> None:
    """Raises an error unless the body is an object with no other keys than these."""
    if not isinstance(body, dict):
        raise InvalidError(f"the body must be an object, not {shown(body)}")
    for name in body:
        if name not in names:
            raise InvalidError(f"unknown key {shown(name)}: the keys are {', '.join(names)}")


async def read_body(headers: dict[bytes, bytes], receive: Receive, most: int, json: bool = True) -> bytes:
    """The body of a request, if it is small enough and arrives in time."""
    length = headers.get(b"content-length", b"0")
    claimed = int(length) if length.isdigit() else 0
    parts: list[bytes] = []
    size, more = 0, True
    while more and max(claimed, size) <= most:
        message = await _next(receive)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    if max(claimed, size) > most:
        raise TooLargeError(f"a body may have at most {most} bytes here")
    body = b"".join(parts)
    if json and body and b"json" not in headers.get(b"content-type", b"").lower():
        raise UnsupportedError("the body must be JSON, with Content-Type: application/json")
    return body


async def _next(receive: Receive) -> Message:
    try:
        async with asyncio.timeout(SLOWEST_BODY):
            return await receive()
    except TimeoutError:
        raise TooSlowError(f"the body did not arrive within {SLOWEST_BODY:g} seconds") from None


def parse(body: bytes) -> Any:
    """JSON; no body, or null, means an empty object."""
    try:
        found = orjson.loads(body or b"{}")
        return {} if found is None else found
    except orjson.JSONDecodeError as error:
        raise InvalidError(f"the body is not JSON: {error}") from None


def explain(error: Exception) -> tuple[int, dict[str, str], Headers]:
    """Status, body and headers of a refusal."""
    status = error.status if isinstance(error, RefusalError) else 422
    headers: Headers = []
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    wait = getattr(error, "retry_after", None)
    if wait is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(wait))))
    return status, {"error": str(error)}, headers
