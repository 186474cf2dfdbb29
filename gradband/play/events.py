"""Checks of recorded events and states, which come from files, before a player uses them."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.arrays import flatten, unflatten
from gradband.core.errors import LARGEST, MOST_ARMS, InputError, number, shown, whole
from gradband.policies import Policy

if TYPE_CHECKING:
    from gradband.play.player import Player

VERSION = 2
LONGEST_ID = 256
MOST_PULLS = 2**31  # in a batch
MOST_DRAWS = 2**63 - 1
STATE_KEYS = (
    "format version policy fingerprint seed drawn decisions numbered arms active fresh rounds memory"
)


def check_event(player: "Player", event: Any) -> None:
    """Raises an error unless the event can come next."""
    if not isinstance(event, dict):
        raise InputError(f"an event must be a dictionary, not {shown(event)}")
    op = event.get("op")
    if op == "select":
        _check_decision(event, player.arms_ever, player.policy.batches)
        if player.waits(event["id"]) or player.finished(event["id"]):
            raise InputError(f"the decision {shown(event['id'])} was made before")
        if number_of(event["id"]) not in (0, player.numbered + 1):
            raise InputError(f"{event['id']} cannot follow {player.numbered} numbered decisions")
        pulls = event.get("arms", [0] * player.arms_ever)
        if len(pulls) != player.arms_ever:
            raise InputError(f"a batch must say how often each of the {player.arms_ever} arms is pulled")
        pulled = {event["arm"]} if "arm" in event else set(np.flatnonzero(pulls).tolist())
        if gone := pulled - set(player.arms):
            raise InputError(f"there is no arm {min(gone)}")
    elif op == "update":
        _check_keys(event, "op", "id", *(("sums",) if "sums" in event else ("reward", "heard")), "drawn")
        decision = player.waiting(event["id"])
        if ("arms" in decision) != ("sums" in event):
            raise InputError(f"{shown(event['id'])} needs sums if it is a batch, and else a reward")
        if "sums" in event:
            check_sums(decision, event["sums"])
        else:
            for key in ("reward", "heard"):
                check_reward(player.policy, event[key])
            if player.policy.binary and event["heard"] not in (0, 1):
                raise InputError(f"{player.policy.name} observes 0 or 1, not {shown(event['heard'])}")
    elif op in ("add", "retire"):
        _check_keys(event, "op", "arm")
        done = "added" if op == "add" else "retired"
        player.need_flexible(done)
        allowed = (player.arms_ever,) if op == "add" else player.arms if len(player.arms) > 1 else ()
        if check_count("arm", event["arm"]) not in allowed or event["arm"] >= MOST_ARMS:
            raise InputError(f"arm {shown(event['arm'])} cannot be {done}")
    else:
        raise InputError(f"there is no op {shown(op)}")
    if "drawn" in event and not player.drawn <= check_count("drawn", event["drawn"]) <= player.drawn + 1:
        raise InputError(f"{event['drawn']} draws cannot follow {player.drawn}")


def check_state(player: "Player", state: Any) -> dict[str, Any]:
    """The state, with the policy's memory as arrays, if it belongs to a player of this policy."""
    if not isinstance(state, dict) or state.get("format") != "gradband-state":
        raise InputError("this is not the state of a player")
    if state.get("version") != VERSION:
        raise InputError(f"this state has the version {shown(state.get('version'))}, not {VERSION}")
    _check_keys(state, *STATE_KEYS.split(), "open", "finished")
    if state["fingerprint"] != player.playable.fingerprint:
        raise InputError(f"this is the state of another policy, {shown(state['policy'])}")
    for name in ("seed", "drawn", "decisions", "numbered", "arms", "rounds"):
        check_count(name, state[name])
    policy, arms = player.policy, state["arms"]
    if not policy.arms <= arms <= (MOST_ARMS if policy.flexible else policy.arms):
        raise InputError(f"{policy.name} cannot have {arms} arms")
    active = _check_arms("active", state["active"], arms)
    if not active or (len(active) < arms and not policy.flexible):
        raise InputError(f"{policy.name} needs arms to pull, not {shown(active)}")
    if set(_check_arms("fresh", state["fresh"], arms)) - set(active if policy.opens else ()):
        raise InputError("fresh must contain active arms only")
    memory = _read_memory(player, state, len(active))
    finished, waiting = state["finished"], state["open"]
    if not isinstance(finished, list) or not all(is_id(id) and id[0] != "#" for id in finished):
        raise InputError("finished must be a list of ids")
    if not isinstance(waiting, list):
        raise InputError("open must be a list of decisions")
    for event in waiting:
        if not isinstance(event, dict) or event.get("op") != "select":
            raise InputError(f"an open decision must be a dictionary, not {shown(event)}")
        _check_decision(event, arms, policy.batches)
    ids = {event["id"] for event in waiting}
    if len(ids) < len(waiting) or ids & set(finished):
        raise InputError("no id may occur twice")
    if any(number_of(id) > state["numbered"] for id in ids):
        raise InputError(f"an id has a number above {state['numbered']}, the last numbered decision")
    return state | {"memory": memory}


def _check_decision(event: dict[str, Any], arms: int, batches: bool) -> None:
    """Checks a decision or a batch by itself."""
    _check_keys(event, "op", "id", "arms" if "arms" in event else "arm", "p", "drawn")
    if not is_id(event["id"]):
        raise InputError(
            f"an id must be a string of 1 to {LONGEST_ID} characters, not {shown(event['id'])}"
        )
    check_count("drawn", event["drawn"])
    if "arm" in event:
        if check_count("arm", event["arm"]) >= arms or not _is_probability(event["p"]) or event["p"] == 0:
            raise InputError(f"{shown(event)} is not a decision among {arms} arms")
        return
    pulls, p = event["arms"], event["p"]
    if not batches or not all(isinstance(x, list) and 0 < len(x) <= arms for x in (pulls, p)):
        raise InputError(f"{shown(event)} is not a batch among {arms} arms")
    if len(pulls) != len(p) or not all(map(_is_probability, p)):
        raise InputError("a batch needs one probability for each of its arms")
    for count, share in zip(pulls, p, strict=True):
        if check_count("pulls", count) >= MOST_PULLS or (count and not share):
            raise InputError(f"an arm of probability {share} cannot be pulled {count} times")


def _read_memory(player: "Player", state: dict[str, Any], arms: int) -> Any:
    """The policy's state from nested lists, with the shapes that it has for this many arms."""
    policy, given = player.policy, state["memory"]
    first = player.playable.begin(0.0)
    if arms < state["arms"]:
        first = policy.missed(first, 0)  # some were retired
    usual = flatten(first)
    if not isinstance(given, dict) or set(given) != set(usual):
        raise InputError(f"memory must contain {', '.join(usual)}")
    leaves = []
    for name, like in usual.items():
        shape, dtype = np.shape(like), np.asarray(like).dtype
        if policy.flexible and shape[:1] == (policy.arms,):
            shape = (arms, *shape[1:])
        found = np.array(given[name], object)
        if found.shape != shape or not all(_is_entry(entry, dtype) for entry in found.flat):
            raise InputError(f"{name} in memory must contain {shape or 1} finite numbers")
        leaves.append(found.astype(dtype))
    memory = unflatten(first, leaves)
    player.playable.sized(arms).check_state(memory, state["rounds"])
    return memory


def _is_entry(value: Any, dtype: np.dtype) -> bool:
    """Whether an array of this dtype can hold the value."""
    # Compared before it is converted: Python's integers may be larger than any float.
    if dtype.kind == "f":
        return isinstance(value, int | float) and abs(value) <= LARGEST
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return isinstance(value, int) and low <= value <= high


def check_reward(policy: Policy, reward: Any) -> float:
    """The reward as a number, if the policy can observe it."""
    low, high = (0, 1) if policy.binary or policy.unit else (-math.inf, math.inf)
    given = int(reward) if isinstance(reward, bool) else reward
    return number(f"a reward of {policy.name}", given, low, high)


def check_sums(decision: dict[str, Any], sums: Any) -> list[int]:
    """The sums of a batch's rewards, if it can have them."""
    pulls = decision["arms"]
    if not isinstance(sums, list | tuple) or len(sums) != len(pulls):
        raise InputError(f"a batch needs one sum for each of its {len(pulls)} arms")
    found = [check_count("a sum of rewards", ones) for ones in sums]
    for arm, (ones, count) in enumerate(zip(found, pulls, strict=True)):
        if ones > count:
            raise InputError(f"arm {arm} was pulled {count} times in this batch: its sum cannot be {ones}")
    return found


def is_id(id: Any) -> bool:
    return isinstance(id, str) and 0 < len(id) <= LONGEST_ID


def number_of(id: str) -> int:
    """The number in an id such as #17, or 0.

    >>> number_of("#17"), number_of("#017"), number_of("visitor 17")
    (17, 0, 0)
    """
    digits = id[1:] if id.startswith("#") else ""
    return int(digits) if digits.isascii() and digits.isdecimal() and digits[0] != "0" else 0


def check_count(what: str, value: Any) -> int:
    """A whole number that is at least 0 and fits 63 bits, or an error that names it."""
    return whole(what, value, 0, MOST_DRAWS)


def _is_probability(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1 + 1e-9


def _check_arms(what: str, given: Any, arms: int) -> list[int]:
    if not isinstance(given, list) or any(check_count(what, arm) >= arms for arm in given):
        raise InputError(f"{what} must be a list of arms, not {shown(given)}")
    if len(set(given)) < len(given):
        raise InputError(f"{what} must name each arm once")
    return given


def _check_keys(given: dict[str, Any], *wanted: str) -> None:
    if set(given) != set(wanted):
        raise InputError(f"the keys must be {', '.join(wanted)}, not {shown(sorted(given, key=str))}")
