"""The policies in the database: files that were uploaded, and policies that need no file."""

import json
import time
from typing import Any

from gradband.core.errors import InputError
from gradband.play.playable import Playable
from gradband.policies import named, policy_file
from gradband.serve.store import Store

WITHOUT_FILE = ("ts", "bayes-ucb", "kl-ucb", "ucb1", "ucb-v", "uniform")
"""policies without parameters, which a test can name in place of an uploaded file"""
PRETRAINED = ("pretrained", "pretrained-linear")
"""policies that come with the package, for numbers of arms and decisions that the test does not say"""
HORIZON = 1_000_000  # of those policies, on which it has little or no effect


class Library:
    """The policies that this worker has read, by fingerprint."""

    def __init__(self) -> None:
        self._read: dict[str, Playable] = {}

    def find(self, store: Store, fingerprint: str) -> Playable:
        """A stored policy, ready to be played."""
        if fingerprint not in self._read:
            row = store.one("SELECT file FROM policies WHERE fingerprint = ?", (fingerprint,))
            if row is None:
                raise InputError(f"there is no policy {fingerprint}: upload its file first")
            self._read[fingerprint] = read_policy(bytes(row[0]))
        return self._read[fingerprint]

    def resolve(self, store: Store, policy: str, arms: int) -> str:
        """The fingerprint of a policy, given by it or by the name of one that needs no file."""
        if policy not in WITHOUT_FILE:
            return self.find(store, policy).fingerprint
        given = {"name": policy, "arms": arms, "horizon": HORIZON}
        playable = make_policy(given)
        store_policy(store, playable, json.dumps(given).encode())
        return playable.fingerprint


def parse_policy(data: bytes) -> Playable:
    """The policy in the bytes of a file. No code is ever taken from it."""
    policy, params, _, about = policy_file.parse(data, "the policy file")
    return Playable(policy, params, about)


def read_policy(data: bytes) -> Playable:
    """The policy in the bytes that were stored."""
    return make_policy(json.loads(data)) if data.startswith(b"{") else parse_policy(data)


def make_policy(given: dict[str, Any]) -> Playable:
    """A policy without parameters."""
    return Playable(named(given["name"]).bind(given["arms"], given["horizon"]), {})


def store_policy(store: Store, playable: Playable, data: bytes) -> dict[str, Any]:
    """Stores a policy unless it is there already, and describes it."""
    policy, now = playable.policy, time.time()
    row = (playable.fingerprint, policy.name, policy.arms, policy.horizon, int(policy.flexible), now)
    store.execute(
        "INSERT INTO policies (fingerprint, name, arms, horizon, flexible, created, file) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (fingerprint) DO NOTHING",
        (*row, data),
    )
    return describe_policy(row)


def describe_policy(row: Any) -> dict[str, Any]:
    """A policy as the API shows it."""
    names = ("fingerprint", "name", "arms", "horizon", "flexible", "created")
    return dict(zip(names, row, strict=True)) | {"flexible": bool(row[4])}
