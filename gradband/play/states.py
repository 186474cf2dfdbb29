"""A player's state for JSON: written, and checked before it is loaded."""

from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.arrays import flatten, unflatten
from gradband.core.errors import LARGEST, MOST_ARMS, InputError, number, shown
from gradband.play import contexts
from gradband.play.arms import Arms
from gradband.play.checks import (
    Keys,
    check_count,
    check_decision,
    check_keys,
    check_settings,
    check_sums,
    check_time,
    is_probability,
)
from gradband.play.pending import Event, is_id, number_of
from gradband.play.settings import Settings, check_label
from gradband.policies import Policy

if TYPE_CHECKING:
    from gradband.play.playable import Playable
    from gradband.play.player import Player

VERSION = 3
OLD_KEYS = (
    "format version policy fingerprint seed drawn decisions numbered arms active fresh rounds memory open "
    "finished"
)
KEYS = {2: Keys(OLD_KEYS), VERSION: Keys(f"{OLD_KEYS} settings t first labels units")}


def write_state(player: "Player") -> dict[str, Any]:
    """Everything a player knows."""
    arms, memory = player.known_arms, player.memory
    return {
        "format": "gradband-state",
        "version": VERSION,
        "policy": player.policy.name,
        "fingerprint": player.playable.fingerprint,
        "settings": player.settings.as_dict(),
        "t": player.time,
        "seed": player.seed,
        "drawn": player.drawn,
        "arms": arms.ever,
        "first": arms.first,
        "active": list(arms.active),
        "fresh": list(arms.fresh),
        "labels": list(arms.labels),
        "rounds": memory.rounds,
        "memory": {name: np.asarray(leaf).tolist() for name, leaf in flatten(memory.state).items()},
        **player.pending.as_dict(),
    }


def check_state(player: "Player", state: Any) -> dict[str, Any]:
    """The state if it belongs to a player of this policy.

    The policy's memory is turned into arrays; `playable` and `settings` are added.
    """
    if not isinstance(state, dict) or state.get("format") != "gradband-state":
        raise InputError("this is not the state of a player")
    if state.get("version") not in (2, VERSION) or isinstance(state["version"], bool):
        raise InputError(f"this state has the version {shown(state.get('version'))}, not {VERSION}")
    check_keys(state, KEYS[state["version"]])
    playable = _find_playable(player, state)
    for name in ("seed", "drawn", "decisions", "numbered", "arms", "rounds"):
        check_count(name, state[name])
    if state["version"] == VERSION:
        now, settings = check_time(state["t"]), Settings.from_dict(state["settings"])
    else:
        now, settings = max(round(player.clock(), 3), 0.0), player.settings
    arms = _check_all_arms(playable.policy, state, settings)
    memory = _read_memory(playable, state, len(state["active"]))
    found = {**state, **arms, "memory": memory, "playable": playable, "settings": settings, "t": now}
    waiting = _check_open(state, playable, now)
    return found | {
        "open": waiting,
        "finished": _check_finished(state, waiting, playable),
        "units": _check_units(state),
    }


def _find_playable(player: "Player", state: dict[str, Any]) -> "Playable":
    fingerprint = state["fingerprint"]
    if fingerprint == player.playable.fingerprint:
        return player.playable
    if player.policies is None or not is_id(fingerprint):
        raise InputError(f"this is the state of another policy, {shown(state['policy'])}")
    return player.find_policy(fingerprint)


def _check_all_arms(policy: Policy, state: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The arms in a state, completed if it is of version 2."""
    ever = state["arms"]
    if state["version"] == VERSION:
        first, labels = check_count("first", state["first"]), state["labels"]
        if not isinstance(labels, list) or len({check_label(label) for label in labels}) != ever:
            raise InputError(f"labels must be a list of {ever} different names")
    else:
        first = policy.arms
        labels = [*(settings.arms or map(str, range(first))), *map(str, range(first, ever))]
        if len(set(labels)) != len(labels):
            raise InputError("an added arm has a number that is the name of another")
    least, most = (1, MOST_ARMS) if policy.flexible else (policy.arms, policy.arms)
    if not least <= first <= ever <= most:
        raise InputError(f"{policy.name} cannot have {ever} arms")
    active = _check_arms("active", state["active"], ever)
    if not active or (len(active) < ever and not policy.flexible):
        raise InputError(f"{policy.name} needs arms to pull, not {shown(active)}")
    if active != sorted(active):
        raise InputError("active must be in the order of the arms' numbers")
    if set(_check_arms("fresh", state["fresh"], ever)) - set(active if policy.opens else ()):
        raise InputError("fresh must contain active arms only")
    start = Arms(first, settings.arms, policy.opens)
    check_settings(policy, settings, start)
    settings.check_room(active, None if settings.control is None else start.number(settings.control))
    return {"first": first, "labels": labels}


def _check_arms(what: str, given: Any, arms: int) -> list[int]:
    if not isinstance(given, list) or any(check_count(what, arm) >= arms for arm in given):
        raise InputError(f"{what} must be a list of arms, not {shown(given)}")
    if len(set(given)) < len(given):
        raise InputError(f"{what} must name each arm once")
    return given


def _check_open(state: dict[str, Any], playable: "Playable", now: float) -> list[Event]:
    """The open decisions; those of version 2 begin to wait now."""
    if not isinstance(state["open"], list):
        raise InputError("open must be a list of decisions")
    waiting = []
    for event in state["open"]:
        if not isinstance(event, dict) or event.get("op") != "select" or "ps" in event:
            raise InputError(f"an open decision must be a dictionary, not {shown(event)}")
        check_decision(event, state["arms"], playable.policy.batches)
        contexts.check_kept(playable, event)
        waiting.append({**event, "t": check_time(event.get("t", now))})
    if len({event["id"] for event in waiting}) < len(waiting):
        raise InputError("no id may occur twice")
    if any(number_of(event["id"]) > state["numbered"] for event in waiting):
        raise InputError(f"an id has a number above {state['numbered']}, the last numbered decision")
    return waiting


def _check_finished(state: dict[str, Any], waiting: list[Event], playable: "Playable") -> list[Any]:
    """Ids of finished decisions, and decisions that have their default."""
    if not isinstance(state["finished"], list):
        raise InputError("finished must be a list of ids")
    ids = [event["id"] for event in waiting]
    for entry in state["finished"]:
        if isinstance(entry, dict) and state["version"] == VERSION:
            what = "sums" if "arms" in entry else "heard"
            check_decision({key: entry[key] for key in entry if key != what}, state["arms"], True)
            contexts.check_kept(playable, entry)
            if what == "sums":
                check_sums(entry, entry.get("sums"), playable.any_sums)
            else:
                number("heard", entry.get("heard"))
            check_time(entry.get("t"))
            ids.append(entry["id"])
        elif is_id(entry) and entry[0] != "#":
            ids.append(entry)
        else:
            raise InputError("finished must be a list of ids")
    if len(set(ids)) < len(ids):
        raise InputError("no id may occur twice")
    return state["finished"]


def _check_units(state: dict[str, Any]) -> list[Any]:
    """Units, each with the id, arm and probability of its decision."""
    units = state.get("units", [])
    if not isinstance(units, list):
        raise InputError("units must be a list")
    for entry in units:
        right = isinstance(entry, list) and len(entry) == 4 and is_id(entry[0]) and is_id(entry[1])
        if not right or check_count("arm", entry[2]) >= state["arms"] or not is_probability(entry[3]):
            raise InputError(f"a unit must have its id, arm and probability, not {shown(entry)}")
    if len({entry[0] for entry in units}) < len(units):
        raise InputError("no unit may occur twice")
    return units


def _read_memory(playable: "Playable", state: dict[str, Any], arms: int) -> Any:
    """The policy's state from nested lists, with the shapes that it has for this many arms."""
    policy, given = playable.policy, state["memory"]
    first = playable.begin(0.0)
    if arms < state["arms"]:
        first = policy.missed(first, 0)  # some were retired
    usual = flatten(first)
    if not isinstance(given, dict) or set(given) != set(usual):
        raise InputError(f"memory must contain {', '.join(usual)}")
    leaves = []
    for name, like in usual.items():
        shape, dtype = np.shape(like), np.asarray(like).dtype
        if policy.flexible and policy.is_by_arm(like):
            shape = (arms, *shape[1:])
        found = np.array(given[name], object)
        if found.shape != shape or not all(_is_entry(entry, dtype) for entry in found.flat):
            raise InputError(f"{name} in memory must contain {shape or 1} finite numbers")
        leaves.append(found.astype(dtype))
    memory = unflatten(first, leaves)
    playable.sized(arms).check_state(memory, state["rounds"])
    return memory


def _is_entry(value: Any, dtype: np.dtype) -> bool:
    """Whether an array of this dtype can hold the value."""
    # Compared before it is converted: Python's integers may be larger than any float.
    if dtype.kind == "f":
        return isinstance(value, int | float) and abs(value) <= LARGEST
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return isinstance(value, int) and low <= value <= high
