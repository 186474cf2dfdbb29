"""What can be asked of a test, as functions that a turn calls: each does its work, or changes nothing."""

import json
import secrets
from typing import Any

from gradband.core.errors import InputError, shown
from gradband.serve.batcher import Turn
from gradband.serve.errors import ConflictError, InvalidError, NotFoundError
from gradband.serve.limits import MOST_ARMS, MOST_POLICIES, MOST_TESTS
from gradband.serve.live import COLUMNS, LiveTest, load_test, parse_policy

SEED_BITS = 53  # JavaScript can represent it
FOLLOWS = {"start": ("created", "paused"), "pause": ("running",), "end": ("created", "running", "paused")}
"""the states in which each step is allowed"""
LEADS_TO = {"start": "running", "pause": "paused", "end": "ended"}
Answer = dict[str, Any]


def need(test: LiveTest | None, key: str) -> LiveTest:
    """The test, or the error that there is none."""
    if test is None:
        raise NotFoundError(f"there is no test {shown(key)}")
    return test


def decide(turn: Turn, test: LiveTest | None, key: str, id: str | None, unit: str | None) -> Answer:
    """Chooses an arm, or repeats the decision that waits under this id."""
    test = need(test, key)
    player = test.player
    if id is not None and player.finished(id):
        raise ConflictError(f"the decision {shown(id)} has its reward, and cannot be made again")
    if test.status != "running":
        raise ConflictError(f"the test {key} is {test.status}, and makes no decisions")
    before = len(test.events)
    decision = player.select(id)
    test.decisions += len(test.events) - before
    return {
        "id": decision.id,
        "arm": int(decision),
        "label": test.arms[decision]["label"],
        "propensity": decision.propensity,
        "returning": False,
    }


def reward(turn: Turn, test: LiveTest | None, key: str, id: str, reward: float) -> Answer:
    """Gives a decision its reward."""
    test = need(test, key)
    player = test.player
    if player.finished(id):
        raise ConflictError(f"the decision {shown(id)} has its reward already")
    if not player.waits(id):
        raise NotFoundError(f"there is no decision {shown(id)}")
    player.update(id, reward)
    test.rewards += 1
    return {"id": id}


def weights(turn: Turn, test: LiveTest | None, key: str) -> Answer:
    """The probability of each arm in the next decision."""
    test = need(test, key)
    shares = test.player.probabilities().tolist()
    return {
        "version": test.version,
        "weights": {
            arm["label"]: p for arm, p in zip(test.arms, shares, strict=True) if not arm["retired"]
        },
    }


def create(turn: Turn, test: LiveTest | None, key: str, spec: Answer, actor: str) -> Answer:
    """Adds a test, which waits to be started."""
    if test is not None:
        raise ConflictError(f"there is a test {key} already")
    store = turn.store
    (count,) = store.one("SELECT count(*) FROM tests") or (0,)
    if count >= MOST_TESTS:
        raise ConflictError(f"there are {count} tests, as many as the service takes")
    labels = check_labels(spec["arms"])
    playable = turn.library.find(store, spec["policy"])
    if len(labels) != playable.policy.arms:
        raise InvalidError(f"this policy is for {playable.policy.arms} arms, not {len(labels)}")
    seed = spec.get("seed")
    spec = spec | {"seed": secrets.randbits(SEED_BITS) if seed is None else seed}
    (id,) = store.one("UPDATE counters SET value = value + 1 WHERE name = 'tests' RETURNING value") or (0,)
    if store.one("SELECT 1 FROM tests WHERE key = ?", (key,)):  # another worker was faster
        raise ConflictError(f"there is a test {key} already")
    arms = [{"label": label, "retired": False} for label in labels]
    row = (id, key, json.dumps(spec), "created", spec["policy"], json.dumps(arms), 0, 0, 0, 0)
    made = load_test(store, turn.library, row)  # raises an error if the settings do not fit the policy
    store.execute(
        f"INSERT INTO tests ({COLUMNS}, created, changed) VALUES ({', '.join('?' * 12)})",
        (*row, turn.now, turn.now),
    )
    turn.tests[key] = made
    note(turn, made, actor, "create")
    return describe(made)


def change_status(
    turn: Turn, test: LiveTest | None, key: str, step: str, reason: str, actor: str
) -> Answer:
    """Starts, pauses or ends a test. A step that was taken already changes nothing."""
    test = need(test, key)
    if test.status != LEADS_TO[step]:
        if test.status not in FOLLOWS[step]:
            raise ConflictError(f"the test {key} is {test.status}: it cannot {step}")
        test.status = LEADS_TO[step]
        note(turn, test, actor, step, reason=reason)
    return describe(test)


def add_arm(turn: Turn, test: LiveTest | None, key: str, label: str, actor: str) -> Answer:
    """Adds an arm. A label that is there already changes nothing."""
    test = need(test, key)
    need_open(test)
    found = [arm for arm in test.arms if arm["label"] == label]
    if found and found[0]["retired"]:
        raise ConflictError(f"the arm {shown(label)} was retired: a new arm needs a new label")
    if not found:
        if len(test.arms) >= MOST_ARMS:
            raise ConflictError(f"a test may have {MOST_ARMS} arms")
        test.player.add_arm()
        test.arms.append({"label": label, "retired": False})
        note(turn, test, actor, "add", label)
    return describe(test)


def retire_arm(turn: Turn, test: LiveTest | None, key: str, label: str, reason: str, actor: str) -> Answer:
    """Retires an arm. One that is retired already stays so."""
    test = need(test, key)
    need_open(test)
    for number, arm in enumerate(test.arms):
        if arm["label"] == label:
            if not arm["retired"]:
                test.player.retire(number)
                arm["retired"] = True
                note(turn, test, actor, "retire", label, reason)
            return describe(test)
    raise NotFoundError(f"the test {key} has no arm {shown(label)}")


def expire(turn: Turn, test: LiveTest | None) -> int:
    """Gives decisions that have waited long enough their default."""
    return 0


def upload(turn: Turn, test: LiveTest | None, data: bytes) -> Answer:
    """Stores a policy file after reading it. The same file may be uploaded again."""
    (count,) = turn.store.one("SELECT count(*) FROM policies") or (0,)
    if count >= MOST_POLICIES:
        raise ConflictError(f"there are {count} policies, as many as the service takes")
    playable = parse_policy(data)
    policy = playable.policy
    if policy.arms > MOST_ARMS:
        raise InputError(f"a test may have {MOST_ARMS} arms, and this policy is for {policy.arms}")
    turn.store.execute(
        "INSERT INTO policies (fingerprint, name, arms, horizon, flexible, created, file) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (fingerprint) DO NOTHING",
        (
            playable.fingerprint,
            policy.name,
            policy.arms,
            policy.horizon,
            int(policy.flexible),
            turn.now,
            data,
        ),
    )
    return describe_policy(
        (playable.fingerprint, policy.name, policy.arms, policy.horizon, policy.flexible, turn.now)
    )


def show(turn: Turn, test: LiveTest | None, key: str) -> Answer:
    """A test with its current shares and its history."""
    test = need(test, key)
    rows = turn.store.execute(
        "SELECT t, actor, action, detail, reason FROM changes WHERE test = ? ORDER BY seq", (test.id,)
    )
    names = ("t", "actor", "action", "detail", "reason")
    history = [dict(zip(names, row, strict=True)) for row in rows]
    shares = test.player.probabilities().tolist() if test.status != "ended" else [0.0] * len(test.arms)
    arms = [arm | {"share": p} for arm, p in zip(test.arms, shares, strict=True)]
    return describe(test) | {"arms": arms, "history": history}


def describe(test: LiveTest) -> Answer:
    """A test as the API shows it."""
    kept = ("wait", "default", "floor", "control", "control_share", "cap", "seed")
    return {
        "key": test.key,
        "status": test.status,
        "policy": test.policy,
        "arms": test.arms,
        "version": test.version + len(test.events),
        "decisions": test.decisions,
        "rewards": test.rewards,
        "waiting": len(test.player.open),
        "settings": {name: test.spec.get(name) for name in kept},
    }


def describe_policy(row: Any) -> Answer:
    """A policy as the API shows it."""
    names = ("fingerprint", "name", "arms", "horizon", "flexible", "created")
    return dict(zip(names, row, strict=True)) | {"flexible": bool(row[4])}


def note(turn: Turn, test: LiveTest, actor: str, action: str, detail: str = "", reason: str = "") -> None:
    """Records who changed a test and why, under the number of the next version."""
    test.events.append(None)
    turn.store.execute(
        "INSERT INTO changes (test, seq, t, actor, action, detail, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (test.id, test.version + len(test.events), turn.now, actor, action, detail, reason),
    )


def need_open(test: LiveTest) -> None:
    if test.status == "ended":
        raise ConflictError(f"the test {test.key} is ended, and cannot be changed")


def check_labels(labels: list[str]) -> list[str]:
    if len(set(labels)) < len(labels):
        raise InvalidError("no two arms may have the same label")
    return labels
