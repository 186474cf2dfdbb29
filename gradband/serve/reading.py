"""Reads lists of tests and policies from the database, outside of turns."""

import json
from typing import Any

import orjson

from gradband.serve.library import describe_policy
from gradband.serve.operations import describe_settings
from gradband.serve.store import Store


def list_tests(store: Store) -> bytes:
    """All tests, the newest first, as JSON."""
    rows = store.execute(
        "SELECT key, spec, status, policy, arms, version, decisions, rewards, waiting FROM tests "
        "ORDER BY created DESC, id DESC"
    )
    found = [
        {
            "key": key,
            "status": status,
            "policy": policy,
            "arms": [arm | {"share": None} for arm in json.loads(arms)],
            "version": version,
            "decisions": decisions,
            "rewards": rewards,
            "waiting": waiting,
            "settings": describe_settings(json.loads(spec)),
            "history": None,
        }
        for key, spec, status, policy, arms, version, decisions, rewards, waiting in rows
    ]
    return orjson.dumps({"tests": found})


def list_policies(store: Store) -> list[dict[str, Any]]:
    """All policies, the newest first."""
    rows = store.execute(
        "SELECT fingerprint, name, arms, horizon, flexible, created FROM policies "
        "ORDER BY created DESC, fingerprint"
    )
    return [describe_policy(row) for row in rows]


def versions(store: Store) -> dict[str, int]:
    """The version of each test."""
    return {row[0]: row[1] for row in store.execute("SELECT key, version FROM tests")}


def alive(store: Store) -> bool:
    """Whether the database answers."""
    return store.one("SELECT 1") is not None
