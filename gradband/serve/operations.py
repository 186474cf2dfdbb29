"""Operations on a test, called in a turn. Each succeeds or changes nothing."""

import json
import secrets
from typing import Any

from gradband.core.errors import InputError, shown
from gradband.play.checks import check_reward
from gradband.play.settings import Settings
from gradband.policies import Seeing
from gradband.serve.batcher import Turn
from gradband.serve.errors import ConflictError, InvalidError, NotFoundError
from gradband.serve.library import parse_policy, store_policy
from gradband.serve.limits import MOST_ARMS, MOST_NUMBERS, MOST_POLICIES, MOST_TESTS
from gradband.serve.live import COLUMNS, LiveTest, load_test

SEED_BITS = 53  # JavaScript can represent it
FOLLOWS = {"start": ("created", "paused"), "pause": ("running",), "end": ("created", "running", "paused")}
"""the states in which each step is allowed"""
LEADS_TO = {"start": "running", "pause": "paused", "end": "ended"}
Answer = dict[str, Any]


def need(test: LiveTest | None, key: str) -> LiveTest:
    """The test, or an error if there is none."""
    if test is None:
        raise NotFoundError(f"there is no test {shown(key)}")
    return test


def decide(
    turn: Turn, test: LiveTest | None, key: str, id: str | None, unit: str | None, context: Any = None
) -> Answer:
    """Chooses an arm, or repeats the decision that this id or unit has."""
    test = need(test, key)
    player = test.player
    if id is not None and player.finished(id):
        raise ConflictError(f"the decision {shown(id)} has its reward, and cannot be made again")
    if test.status != "running":
        raise ConflictError(f"the test {key} is {test.status}: it makes no decisions")
    made = player.select(id, unit, context)
    return {
        "id": made.id,
        "arm": int(made),
        "label": made.label,
        "propensity": made.propensity,
        "returning": made.returning,
    }


def decide_flag(turn: Turn, test: LiveTest | None, key: str, unit: str, features: Any) -> Answer:
    """Chooses an arm for a unit, by the features of its context if the test takes them."""
    test = need(test, key)
    return decide(turn, test, key, None, unit, features if test.player.playable.dims else None)


def reward(turn: Turn, test: LiveTest | None, key: str, id: str, reward: float) -> Answer:
    """Gives a decision its reward, or corrects the default that it got before."""
    test = need(test, key)
    player = test.player
    check_reward(player.policy, reward)
    late = player.pending.expired(id)
    if not late and not player.waits(id):
        if player.finished(id):
            raise ConflictError(f"the decision {shown(id)} has its reward already")
        raise NotFoundError(f"there is no decision {shown(id)}")
    try:
        player.update(id, reward)
    except InputError as error:
        if late:
            raise ConflictError(str(error)) from None
        raise
    test.rewards += 1
    return {"id": id, "late": late}


def weights(turn: Turn, test: LiveTest | None, key: str, context: Any = None) -> Answer:
    """The probability of each arm in the next decision."""
    test = need(test, key)
    return {"version": test.version + len(test.events), "weights": test.player.weights(context)}


def nothing(turn: Turn, test: LiveTest | None) -> None:
    """Does nothing: shows that turns are taken."""


def expire(turn: Turn, test: LiveTest | None) -> int:
    """Gives decisions past their deadline the default."""
    return 0 if test is None else test.player.expire()


def create(turn: Turn, test: LiveTest | None, key: str, spec: Answer, actor: str) -> Answer:
    """Adds a test, which `start` then starts."""
    if test is not None:
        raise ConflictError(f"there is a test {key} already")
    store = turn.store
    (count,) = store.one("SELECT count(*) FROM tests") or (0,)
    if count >= MOST_TESTS:
        raise ConflictError(f"there are {count} tests, the most that the service takes")
    if len(set(spec["arms"])) < len(spec["arms"]):
        raise InvalidError("no two arms may have the same label")
    seed, policy = spec.pop("seed"), spec.pop("policy")
    settings = Settings.from_dict(spec)
    policy = turn.library.resolve(store, policy, len(spec["arms"]))
    if not settings.guarded:
        settings = settings.guarded_as_learned(turn.library.find(store, policy).guardrails)
    kept = {
        "policy": policy,
        "settings": settings.as_dict(),
        "seed": secrets.randbits(SEED_BITS) if seed is None else seed,
    }
    (id,) = store.one("UPDATE counters SET value = value + 1 WHERE name = 'tests' RETURNING value") or (0,)
    if store.one("SELECT 1 FROM tests WHERE key = ?", (key,)):  # another worker was faster
        raise ConflictError(f"there is a test {key} already")
    row = (id, key, json.dumps(kept), "created", policy, "[]", 0, 0)
    made = load_test(store, turn.library, row)  # raises an error if the settings do not fit the policy
    store.execute(
        f"INSERT INTO tests ({COLUMNS}, decisions, waiting, created, changed) "
        f"VALUES ({', '.join('?' * 12)})",
        (*row, 0, 0, turn.now, turn.now),
    )
    turn.tests[key] = made
    note(turn, made, actor, "create")
    return describe(made)


def change_status(
    turn: Turn, test: LiveTest | None, key: str, step: str, reason: str, actor: str
) -> Answer:
    """Starts, pauses or ends a test. Repeating a step changes nothing."""
    test = need(test, key)
    if test.status != LEADS_TO[step]:
        if test.status not in FOLLOWS[step]:
            raise ConflictError(f"the test {key} is {test.status}: it cannot {step}")
        test.status = LEADS_TO[step]
        note(turn, test, actor, step, reason=reason)
    return describe(test)


def add_arm(turn: Turn, test: LiveTest | None, key: str, label: str, actor: str) -> Answer:
    """Adds an arm. A label that exists already changes nothing."""
    test = need(test, key)
    need_open(test)
    arm = find_arm(test, label)
    if arm is not None and arm["retired"]:
        raise ConflictError(f"the arm {shown(label)} was retired: a new arm needs a new label")
    if arm is None:
        if len(test.arms) >= MOST_ARMS:
            raise ConflictError(f"a test may have {MOST_ARMS} arms")
        test.player.add_arm(label)
        note(turn, test, actor, "add", label)
    return describe(test)


def retire_arm(turn: Turn, test: LiveTest | None, key: str, label: str, reason: str, actor: str) -> Answer:
    """Retires an arm. Retiring it again changes nothing."""
    test = need(test, key)
    need_open(test)
    arm = find_arm(test, label)
    if arm is None:
        raise NotFoundError(f"the test {key} has no arm {shown(label)}")
    if not arm["retired"]:
        test.player.retire(label)
        note(turn, test, actor, "retire", label, reason)
    return describe(test)


def swap(turn: Turn, test: LiveTest | None, key: str, policy: str, reason: str, actor: str) -> Answer:
    """Gives the test another policy. Its own policy changes nothing."""
    test = need(test, key)
    need_open(test)
    policy = turn.library.resolve(turn.store, policy, len(test.player.arms))
    if policy != test.policy:
        test.player.swap(turn.library.find(turn.store, policy), reason)
        test.policy = policy
        note(turn, test, actor, "swap", policy, reason)
    return describe(test)


def upload(turn: Turn, test: LiveTest | None, data: bytes) -> Answer:
    """Stores a policy file after reading it. The same file may be uploaded again."""
    (count,) = turn.store.one("SELECT count(*) FROM policies") or (0,)
    if count >= MOST_POLICIES:
        raise ConflictError(f"there are {count} policies, the most that the service takes")
    playable = parse_policy(data)
    policy = playable.policy
    if policy.arms > MOST_ARMS:
        raise InputError(f"a test may have {MOST_ARMS} arms, and this policy is for {policy.arms}")
    if isinstance(policy, Seeing) and policy.numbers > MOST_NUMBERS:
        told = f"the belief of {policy.name} has {policy.numbers:,} numbers"
        raise InputError(f"{told}: at most {MOST_NUMBERS:,} can be served")
    return store_policy(turn.store, playable, data)


def show(turn: Turn, test: LiveTest | None, key: str) -> Answer:
    """A test with its current shares and its history."""
    test = need(test, key)
    rows = turn.store.execute(
        "SELECT t, actor, action, detail, reason FROM changes WHERE test = ? ORDER BY seq", (test.id,)
    )
    names = ("t", "actor", "action", "detail", "reason")
    history = [dict(zip(names, row, strict=True)) for row in rows]
    try:
        shares = test.player.weights()
    except InputError:  # the policy is for fewer rounds, or its shares depend on the context
        shares = None
    arms = [arm | {"share": None if shares is None else shares.get(arm["label"], 0.0)} for arm in test.arms]
    return describe(test) | {"arms": arms, "history": history, "context": describe_context(test)}


def describe(test: LiveTest) -> Answer:
    """A test as the API shows it."""
    return {
        "key": test.key,
        "status": test.status,
        "policy": test.policy,
        "arms": test.arms,
        "version": test.version + len(test.events),
        "decisions": test.player.pending.made,
        "rewards": test.rewards,
        "waiting": test.waiting,
        "settings": describe_settings(test.spec),
    }


def describe_context(test: LiveTest) -> Answer | None:
    """What a decision's context must have, if the policy takes one."""
    policy = test.player.playable.policy
    if not isinstance(policy, Seeing):
        return None
    return {"features": policy.dims, "visitor": policy.takes_visitor}


def describe_settings(spec: Answer) -> Answer:
    """The settings of a test as the API shows them."""
    kept = ("wait", "default", "floor", "control", "control_share", "cap")
    return {name: spec["settings"][name] for name in kept} | {"seed": spec["seed"]}


def note(turn: Turn, test: LiveTest, actor: str, action: str, detail: str = "", reason: str = "") -> None:
    """Records who changed a test and why, under the number of the next version."""
    test.events.append(None)
    turn.store.execute(
        "INSERT INTO changes (test, seq, t, actor, action, detail, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (test.id, test.version + len(test.events), turn.now, actor, action, detail, reason),
    )


def need_open(test: LiveTest) -> None:
    if test.status == "ended":
        raise ConflictError(f"the test {test.key} has ended: it cannot be changed")


def find_arm(test: LiveTest, label: str) -> Answer | None:
    return next((arm for arm in test.arms if arm["label"] == label), None)
