"""Bearer tokens: made once, shown once, stored as a hash, compared in constant time.

A token is gbt_ID_SECRET. The id finds the stored hash; the secret has 256 random bits, so that nobody can
search for one that fits a hash, and one round of SHA-256 keeps it as safe as a slow password hash would.
"""

import hashlib
import hmac
import re
import secrets
import time
from typing import NamedTuple

from gradband.core.errors import InputError, unknown
from gradband.serve.store import Store

ROLES = {"decide": ("decide",), "read": ("read",), "admin": ("decide", "read", "admin")}
"""what each role may do"""
FORMAT = re.compile(r"gbt_([0-9a-f]{12})_([0-9a-f]{64})")
LONGEST_NAME = 64


class Token(NamedTuple):
    """A stored token. Its secret is not kept."""

    id: str
    hash: str
    role: str
    name: str
    created: float = 0.0
    revoked: float | None = None

    def may(self, right: str) -> bool:
        return right in ROLES[self.role]


def create_token(store: Store, role: str, name: str = "") -> str:
    """Stores a new token and returns its text, which cannot be read again later."""
    if role not in ROLES:
        raise unknown("role", role, ROLES)
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError(f"a token's name may have {LONGEST_NAME} printable characters")
    id, secret = secrets.token_hex(6), secrets.token_hex(32)
    store.begin()
    try:
        store.execute(
            "INSERT INTO tokens (id, hash, role, name, created) VALUES (?, ?, ?, ?, ?)",
            (id, _hash(secret), role, name or role, time.time()),
        )
        store.commit()
    finally:
        store.rollback()
    return f"gbt_{id}_{secret}"


def read_tokens(store: Store) -> dict[str, Token]:
    """All tokens by id, with revoked ones."""
    rows = store.execute("SELECT id, hash, role, name, created, revoked FROM tokens ORDER BY created")
    return {row[0]: Token(*row) for row in rows}


def revoke_token(store: Store, id: str) -> None:
    """Makes a token worthless. Workers notice within seconds."""
    if id not in read_tokens(store):
        raise InputError(f"there is no token with the id {id[:20]!r}")
    store.begin()
    try:
        store.execute("UPDATE tokens SET revoked = ? WHERE id = ? AND revoked IS NULL", (time.time(), id))
        store.commit()
    finally:
        store.rollback()


def find_token(tokens: dict[str, Token], text: str) -> Token | None:
    """The token that this text stands for, if it is valid."""
    parts = FORMAT.fullmatch(text)
    token = tokens.get(parts[1]) if parts else None
    if parts is None or token is None or not hmac.compare_digest(_hash(parts[2]), token.hash):
        return None
    return token if token.revoked is None else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
