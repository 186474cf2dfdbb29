"""What players have recorded, events and states, read with distrust before it is used."""

from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.arrays import flatten, unflatten
from gradband.core.errors import LARGEST, MOST_ARMS, InputError, shown
from gradband.policies import Policy

if TYPE_CHECKING:
    from gradband.play.player import Player

VERSION = 2
LONGEST_ID = 256
MOST_PULLS = 2**31  # in a batch
MOST_DRAWS = 2**63


def check_event(player: "Player", event: Any) -> None:
    """Refuses an event that can't come next."""
    if not isinstance(event, dict):
        raise InputError(f"an event must be a dictionary, not {shown(event)}")
    op = event.get("op")
    if op == "select":
        _keys(event, "op", "id", "arms" if "arms" in event else "arm", "p", "drawn")
        _decision(event, player.arms_ever, player.policy.batches)
        if player.waits(event["id"]) or player.finished(event["id"]):
            raise InputError(f"the decision {shown(event['id'])} was made before")
        if number_of(event["id"]) not in (0, player.numbered + 1):
            raise InputError(f"after {player.numbered} numbered decisions comes no {event['id']}")
        if "arms" in event and len(event["arms"]) != player.arms_ever:
            raise InputError(f"a batch of {player.arms_ever} arms must say of each how often it is pulled")
        pulled = (
            {i for i, count in enumerate(event["arms"]) if count} if "arms" in event else {event["arm"]}
        )
        if gone := pulled - set(player.arms):
            raise InputError(f"there is no arm {min(gone)}")
    elif op == "update":
        _keys(event, "op", "id", *(("sums",) if "sums" in event else ("reward", "heard")), "drawn")
        decision = player.waiting(event["id"])
        if ("arms" in decision) != ("sums" in event):
            raise InputError(f"{shown(event['id'])} is heard of in the wrong way")
        if "sums" in event:
            check_sums(decision, event["sums"])
        else:
            for key in ("reward", "heard"):
                check_reward(player.policy, event[key])
            if player.policy.binary and event["heard"] not in (0, 1):
                raise InputError(f"{player.policy.name} hears 0 or 1, not {shown(event['heard'])}")
    elif op in ("add", "retire"):
        _keys(event, "op", "arm")
        done = "added" if op == "add" else "retired"
        player.need_flexible(done)
        allowed = (player.arms_ever,) if op == "add" else player.arms if len(player.arms) > 1 else ()
        if check_count("arm", event["arm"]) not in allowed or event["arm"] >= MOST_ARMS:
            raise InputError(f"arm {shown(event['arm'])} can't be {done}")
    else:
        raise InputError(f"there is no op {shown(op)}")
    if "drawn" in event and not player.drawn <= check_count("drawn", event["drawn"]) <= player.drawn + 1:
        raise InputError(f"after {player.drawn} draws there can't be {event['drawn']}")


def check_state(player: "Player", state: Any) -> dict[str, Any]:
    """The state, if it is one of a player of this policy."""
    keys = ("format", "version", "policy", "fingerprint", "seed", "drawn", "decisions", "numbered", "arms")
    if not isinstance(state, dict) or state.get("format") != "gradband-state":
        raise InputError("this is not the state of a player")
    if state.get("version") != VERSION:
        raise InputError(f"this state has the version {shown(state.get('version'))}, not {VERSION}")
    _keys(state, *keys, "active", "fresh", "rounds", "memory", "open", "finished")
    if state["fingerprint"] != player.playable.fingerprint:
        raise InputError(f"this is the state of another policy, {shown(state['policy'])}")
    for name in ("seed", "drawn", "decisions", "numbered", "arms", "rounds"):
        check_count(name, state[name])
    policy = player.policy
    if not policy.arms <= state["arms"] <= MOST_ARMS or (
        state["arms"] > policy.arms and not policy.flexible
    ):
        raise InputError(f"{policy.name} can't have {state['arms']} arms")
    active = _distinct("active", state["active"], state["arms"])
    if not active or (len(active) < state["arms"] and not policy.flexible):
        raise InputError(f"{policy.name} needs arms to pull, not {shown(active)}")
    if set(_distinct("fresh", state["fresh"], state["arms"])) - set(active if policy.opens else ()):
        raise InputError("fresh must hold active arms")
    memory = _memory(player, state, len(active))
    finished = state["finished"]
    if not isinstance(finished, list) or not all(is_id(id) and id[0] != "#" for id in finished):
        raise InputError("finished must be a list of ids")
    if not isinstance(state["open"], list):
        raise InputError("open must be a list of decisions")
    for event in state["open"]:
        if not isinstance(event, dict) or event.get("op") != "select":
            raise InputError(f"an open decision must be a dictionary, not {shown(event)}")
        _keys(event, "op", "id", "arms" if "arms" in event else "arm", "p", "drawn")
        _decision(event, state["arms"], policy.batches)
    ids = [event["id"] for event in state["open"]]
    if len(set(ids)) < len(ids) or set(ids) & set(finished):
        raise InputError("an id is there twice")
    if any(number_of(id) > state["numbered"] for id in ids):
        raise InputError(f"there are {state['numbered']} numbered decisions, and no later ones")
    return state | {"memory": memory}


def _decision(event: dict[str, Any], arms: int, batches: bool) -> None:
    """Checks a decision or a batch by itself."""
    if not is_id(event["id"]):
        raise InputError(f"an id must be a text of 1 to {LONGEST_ID} characters, not {shown(event['id'])}")
    check_count("drawn", event["drawn"])
    if "arm" in event:
        if check_count("arm", event["arm"]) >= arms or not _probability(event["p"]) or event["p"] == 0:
            raise InputError(f"{shown(event)} is not a decision among {arms} arms")
        return
    pulls, p = event["arms"], event["p"]
    if not batches or not all(isinstance(x, list) and 0 < len(x) <= arms for x in (pulls, p)):
        raise InputError(f"{shown(event)} is not a batch among {arms} arms")
    if len(pulls) != len(p) or not all(_probability(entry) for entry in p):
        raise InputError("a batch needs one probability for each of its arms")
    for count, share in zip(pulls, p, strict=True):
        if check_count("pulls", count) >= MOST_PULLS or (count and not share):
            raise InputError(f"an arm of probability {share} can't be pulled {count} times")


def _memory(player: "Player", state: dict[str, Any], arms: int) -> Any:
    """The policy's state, of the shapes that it has with so many arms."""
    policy, given = player.policy, state["memory"]
    first = player.playable.begin(0.0)
    if arms < state["arms"]:
        first = policy.missed(first, 0)  # some were retired
    usual = flatten(first)
    if not isinstance(given, dict) or set(given) != set(usual):
        raise InputError(f"memory must hold {', '.join(usual)}")
    leaves = []
    for name, like in usual.items():
        by_arm = policy.flexible and np.shape(like)[:1] == (policy.arms,)
        wanted = (arms, *np.shape(like)[1:]) if by_arm else np.shape(like)
        entries = _entries(given[name], wanted, np.asarray(like).dtype)
        if entries is None:
            raise InputError(f"{name} in memory must hold finite numbers, {wanted or 1} of them")
        leaves.append(np.array(entries, np.asarray(like).dtype).reshape(wanted))
    found = unflatten(first, leaves)
    player.playable.sized(arms).check_state(found, state["rounds"])
    return found


def _entries(given: Any, shape: tuple[int, ...], kind: np.dtype) -> list[Any] | None:
    """The numbers in nested lists of this shape, one behind the other, if they are of this kind."""
    if not shape:
        if kind.kind == "f":
            return [given] if _is_number(given) else None
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        return [given] if isinstance(given, int) and low <= given <= high else None
    if not isinstance(given, list) or len(given) != shape[0]:
        return None
    found: list[Any] = []
    for entry in given:
        inner = _entries(entry, shape[1:], kind)
        if inner is None:
            return None
        found += inner
    return found


def check_reward(policy: Policy, reward: Any) -> None:
    """Refuses what can't be a reward."""
    if not _is_number(reward):
        raise InputError(f"a reward must be a finite number, not {shown(reward)}")
    if (policy.binary or policy.unit) and not 0 <= reward <= 1:
        raise InputError(f"a reward of {policy.name} must lie in [0, 1], not {shown(reward)}")


def check_sums(decision: dict[str, Any], sums: Any) -> None:
    """Refuses sums of rewards that a batch can't have."""
    if not isinstance(sums, list | tuple) or len(sums) != len(decision["arms"]):
        raise InputError(f"a batch needs one sum for each of its {len(decision['arms'])} arms")
    for arm, (ones, pulls) in enumerate(zip(sums, decision["arms"], strict=True)):
        if check_count("a sum of rewards", ones) > pulls:
            raise InputError(f"arm {arm} was pulled {pulls} times in this batch, and can't pay {ones}")


def is_id(id: Any) -> bool:
    return isinstance(id, str) and 0 < len(id) <= LONGEST_ID


def number_of(id: str) -> int:
    """The number in an id such as #17, or 0.

    >>> number_of("#17"), number_of("#017"), number_of("visitor 17")
    (17, 0, 0)
    """
    digits = id[1:] if id.startswith("#") else ""
    return int(digits) if digits.isascii() and digits.isdecimal() and digits[0] != "0" else 0


def _is_number(value: Any) -> bool:
    # Compared before it is converted: Python's integers may be larger than any float.
    return isinstance(value, int | float) and abs(value) <= LARGEST


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_DRAWS


def check_count(what: str, value: Any) -> int:
    """A whole number that is at least 0 and fits 63 bits, or an error that names it."""
    if not is_count(value):
        raise InputError(f"{what} must be a whole number of at least 0, not {shown(value)}")
    return int(value)


def _probability(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1 + 1e-9


def _distinct(what: str, given: Any, arms: int) -> list[int]:
    if not isinstance(given, list) or any(check_count(what, arm) >= arms for arm in given):
        raise InputError(f"{what} must be a list of arms, not {shown(given)}")
    if len(set(given)) < len(given):
        raise InputError(f"{what} must name each arm once")
    return given


def _keys(given: dict[str, Any], *wanted: str) -> None:
    if set(given) != set(wanted):
        raise InputError(f"{shown(sorted(given, key=str))} should be {', '.join(wanted)}")
