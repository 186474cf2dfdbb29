"""Limits of the service, and checks of names."""

import re
from typing import Any

from gradband.core.errors import shown
from gradband.serve.errors import InvalidError

MOST_TESTS = 10_000
MOST_POLICIES = 10_000
MOST_ARMS = 1000
MOST_NUMBERS = 1_000_000  # that a policy believes: each worker keeps them, and each snapshot
LONGEST_ID = 256  # characters, of decisions and units
LONGEST_REASON = 500
LARGEST_BODY = 64 << 10  # bytes, of JSON
LARGEST_DECISION = 1 << 20  # with the features of its context
LARGEST_POLICY = 16 << 20
SLOWEST_BODY = 20.0  # seconds until a body must have arrived
MOST_LISTENERS = 200  # of live updates, per worker

KEY = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
LABEL = r"^[^\x00-\x1f\x7f-\x9f/.][^\x00-\x1f\x7f-\x9f/]{0,63}$"
TEXT = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"
FINGERPRINT = r"^[0-9a-f]{16}$"
_KEY = re.compile(KEY[:-1] + r"\Z")


def check_key(key: str) -> str:
    """The key of a test, if it can be one."""
    if not _KEY.match(key):
        raise InvalidError(
            "a test's key has 1 to 64 letters, digits, dots, underscores and hyphens, the first a letter "
            f"or digit, not {shown(key)}"
        )
    return key


def check_id(what: str, value: Any) -> str:
    """The id of a decision or a unit, if it can be one."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID:
        raise InvalidError(f"{what} must be a string of 1 to {LONGEST_ID} characters, not {shown(value)}")
    return value
