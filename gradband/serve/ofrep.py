"""OpenFeature's remote evaluation protocol: a test is a flag, its arms are the variants.

The `targetingKey` of the context is the unit, and its `features` are for tests whose policy takes some.
While a test makes no decisions, the answer has no value, and the client uses the default in its code.
"""

import asyncio
import hashlib
from typing import Any

import orjson

from gradband.core.errors import InputError
from gradband.serve import operations
from gradband.serve.errors import ConflictError, NotFoundError, RefusalError
from gradband.serve.limits import LONGEST_ID
from gradband.serve.service import Service
from gradband.serve.store import Store

Answer = tuple[int, Any, list[tuple[bytes, bytes]]]


class ContextError(Exception):
    """A context that cannot be evaluated, with OpenFeature's code for that."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def evaluate(service: Service, key: str, body: bytes, headers: dict[bytes, bytes]) -> Answer:
    """Handles `POST /ofrep/v1/evaluate/flags/{key}`, and all running tests if there is no key."""
    named = {"key": key} if key else {}
    try:
        unit, features = read_context(body)
    except ContextError as error:
        return 400, named | {"errorCode": error.code, "errorDetails": str(error)}, []
    if not key:
        return await evaluate_all(service, unit, features, headers)
    try:
        return 200, await evaluate_one(service, key, unit, features), []
    except NotFoundError as error:
        return 404, named | {"errorCode": "FLAG_NOT_FOUND", "errorDetails": str(error)}, []
    except InputError as error:
        return 400, named | {"errorCode": "GENERAL", "errorDetails": str(error)}, []


async def evaluate_one(service: Service, key: str, unit: str, features: Any) -> dict[str, Any]:
    """A test as a flag."""
    try:
        made = await service.ask(key, operations.decide_flag, unit, features)
    except ConflictError:  # it is not running
        return {"key": key, "reason": "DISABLED", "variant": "default"}
    except RefusalError as error:
        if error.status == 422:  # a key that no test can have
            raise NotFoundError(str(error)) from None
        raise
    return {
        "key": key,
        "value": made["label"],
        "variant": made["label"],
        "reason": "SPLIT",
        "metadata": {"decisionId": made["id"], "propensity": made["propensity"], "arm": made["arm"]},
    }


async def evaluate_all(service: Service, unit: str, features: Any, headers: dict[bytes, bytes]) -> Answer:
    """All running tests as flags, or 304 if the unit's arms are unchanged."""
    keys = await service.reader.read(running)
    asked = [evaluate_one(service, key, unit, features) for key in keys]
    flags: list[dict[str, Any]] = []
    for key, found in zip(keys, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(found, RefusalError):
            raise found
        if isinstance(found, BaseException):
            told = (
                str(found) if isinstance(found, InputError) else "this test failed: the log has the reason"
            )
            found = {"key": key, "errorCode": "GENERAL", "errorDetails": told}
        flags.append(found)
    shown = [(flag["key"], flag.get("variant"), flag.get("reason")) for flag in flags]
    tag = b'"%s"' % hashlib.sha256(orjson.dumps([unit, shown])).hexdigest()[:32].encode()
    if tag in [entry.strip() for entry in headers.get(b"if-none-match", b"").split(b",")]:
        return 304, None, [(b"etag", tag)]
    return 200, {"flags": flags}, [(b"etag", tag)]


def running(store: Store) -> list[str]:
    """Keys of the tests that make decisions."""
    rows = store.execute("SELECT key FROM tests WHERE status = 'running' ORDER BY key")
    return [key for (key,) in rows]


def read_context(body: bytes) -> tuple[str, Any]:
    """The unit that a request is about, and its features if there are any."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ContextError("PARSE_ERROR", f"the body is not JSON: {error}") from None
    context = given.get("context") if isinstance(given, dict) else None
    if not isinstance(context, dict):
        raise ContextError("INVALID_CONTEXT", "the body must be an object with a context, an object too")
    unit = context.get("targetingKey")
    if unit is None or unit == "":
        raise ContextError("TARGETING_KEY_MISSING", "the context needs a targetingKey")
    if not isinstance(unit, str) or len(unit) > LONGEST_ID:
        told = f"the targetingKey must be a string of 1 to {LONGEST_ID} characters"
        raise ContextError("INVALID_CONTEXT", told)
    return unit, context.get("features")
