"""Checks of recorded events and states, which come from files, before a player uses them."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.arrays import flatten, unflatten
from gradband.core.errors import LARGEST, MOST_ARMS, InputError, number, shown, whole
from gradband.play.arms import Arms
from gradband.play.pending import LONGEST_ID, Event, is_id, number_of
from gradband.play.settings import Settings, check_label
from gradband.policies import Policy

if TYPE_CHECKING:
    from gradband.play.memory import Memory
    from gradband.play.playable import Playable
    from gradband.play.player import Player

VERSION = 3  # of a state
MOST_PULLS = 2**31  # in a batch
MOST_DRAWS = 2**63 - 1
LAST_TIME = 1e11  # seconds since 1970: in three thousand years
LONGEST_REASON = 2000
STATE_KEYS = (
    "format version policy fingerprint seed drawn decisions numbered arms active fresh rounds memory open "
    "finished"
)


class Keys:
    """The keys that something must have, and those that it may have."""

    def __init__(self, needed: str, optional: str = "") -> None:
        self.needed = frozenset(needed.split())
        self.all = self.needed | frozenset(optional.split())


KEYS = {
    "decision": Keys("op id arm p drawn", "t ps unit"),
    "batch": Keys("op id arms p drawn", "t"),
    "update": Keys("op id reward heard drawn", "t late"),
    "sums": Keys("op id sums drawn", "t late"),
    "expire": Keys("op id heard drawn t"),
    "expire many": Keys("op id sums drawn t"),
    "add": Keys("op arm", "t label"),
    "retire": Keys("op arm", "t"),
    "swap": Keys("op fingerprint policy reason t"),
    "state": Keys(f"{STATE_KEYS} settings t first labels units"),
    "state of version 2": Keys(STATE_KEYS),
}


def check_event(player: "Player", event: Any) -> None:
    """Raises an error unless the event can come next."""
    if not isinstance(event, dict):
        raise InputError(f"an event must be a dictionary, not {shown(event)}")
    check = CHECKS.get(event["op"]) if isinstance(event.get("op"), str) else None
    if check is None:
        raise InputError(f"there is no op {shown(event.get('op'))}")
    check(player, event)
    if "drawn" in event:
        before, drawn = player.drawn, event["drawn"]
        if type(drawn) is not int or not before <= drawn <= before + 1:
            raise InputError(f"{shown(drawn)} draws cannot follow {before}")
    if "t" in event:
        check_time(event["t"])


def _check_select(player: "Player", event: Event) -> None:
    arms, pending = player.known_arms, player.pending
    _check_decision(event, arms.ever, player.policy.batches)
    id = event["id"]
    if pending.waits(id) or pending.finished(id):
        raise InputError(f"the decision {shown(id)} was made before")
    if id[0] == "#" and number_of(id) != pending.numbered + 1:
        raise InputError(f"{shown(id)} cannot follow {pending.numbered} numbered decisions")
    if "arm" in event:
        if event["arm"] not in arms.active:
            raise InputError(f"there is no arm {event['arm']}")
        return
    if len(event["arms"]) != arms.ever:
        raise InputError(f"a batch must say how often each of the {arms.ever} arms is pulled")
    if gone := set(np.flatnonzero(event["arms"]).tolist()) - set(arms.active):
        raise InputError(f"there is no arm {min(gone)}")


def _check_update(player: "Player", event: Event) -> None:
    _check_keys(event, KEYS["sums" if "sums" in event else "update"])
    pending, policy = player.pending, player.policy
    late = event.get("late", False)
    if late not in (True, False) or (late and not pending.expired(event["id"])):
        raise InputError(f"the decision {shown(event['id'])} has no default that could be corrected")
    made = pending.closed[event["id"]] if late else pending.waiting(event["id"])
    assert made is not None
    if ("arms" in made) != ("sums" in event):
        raise InputError(f"{shown(event['id'])} needs sums if it is a batch, and else a reward")
    if "sums" in event:
        check_sums(made, event["sums"])
    else:
        check_reward(policy, event["reward"])
        _check_heard(policy, event["heard"])
    if late:
        check_correction(player.memory, made, event)


def _check_expire(player: "Player", event: Event) -> None:
    _check_keys(event, KEYS["expire many" if "sums" in event else "expire"])
    made = player.pending.waiting(event["id"])
    if ("arms" in made) != ("sums" in event):
        raise InputError(f"{shown(event['id'])} needs sums if it is a batch, and else a reward")
    if "sums" in event:
        check_sums(made, event["sums"])
    else:
        _check_heard(player.policy, event["heard"])


def _check_add(player: "Player", event: Event) -> None:
    _check_keys(event, KEYS["add"])
    player.need_flexible("added")
    arm = check_count("arm", event["arm"])
    if arm != player.known_arms.ever or arm >= MOST_ARMS:
        raise InputError(f"arm {shown(arm)} cannot be added")
    player.known_arms.check_new(event.get("label", str(arm)))
    player.settings.check_room([*player.known_arms.active, arm], player.memory.control)


def _check_retire(player: "Player", event: Event) -> None:
    _check_keys(event, KEYS["retire"])
    player.need_flexible("retired")
    check_count("arm", event["arm"])
    if event["arm"] not in player.known_arms.active or len(player.known_arms.active) == 1:
        raise InputError(f"arm {shown(event['arm'])} cannot be retired")


def _check_swap(player: "Player", event: Event) -> None:
    _check_keys(event, KEYS["swap"])
    check_reason(event["reason"])
    if not is_id(event["fingerprint"]):
        raise InputError(f"a fingerprint must be a string, not {shown(event['fingerprint'])}")
    playable = player.find_policy(event["fingerprint"])
    player.memory.check_swap(playable)
    check_settings(playable.policy, player.settings, player.known_arms)


CHECKS = {
    "select": _check_select,
    "update": _check_update,
    "expire": _check_expire,
    "add": _check_add,
    "retire": _check_retire,
    "swap": _check_swap,
}


def check_state(player: "Player", state: Any) -> dict[str, Any]:
    """The state if it belongs to a player of this policy.

    The policy's memory is turned into arrays; `playable` and `settings` are added.
    """
    if not isinstance(state, dict) or state.get("format") != "gradband-state":
        raise InputError("this is not the state of a player")
    if state.get("version") not in (2, VERSION) or isinstance(state["version"], bool):
        raise InputError(f"this state has the version {shown(state.get('version'))}, not {VERSION}")
    _check_keys(state, KEYS["state" if state["version"] == VERSION else "state of version 2"])
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
    waiting = _check_open(state, playable.policy.batches, now)
    return found | {
        "open": waiting,
        "finished": _check_finished(state, waiting),
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
    """What a state says of arms, completed if it is of version 2."""
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


def _check_open(state: dict[str, Any], batches: bool, now: float) -> list[Event]:
    """The open decisions; those of version 2 begin to wait now."""
    if not isinstance(state["open"], list):
        raise InputError("open must be a list of decisions")
    waiting = []
    for event in state["open"]:
        if not isinstance(event, dict) or event.get("op") != "select" or "ps" in event:
            raise InputError(f"an open decision must be a dictionary, not {shown(event)}")
        _check_decision(event, state["arms"], batches)
        waiting.append({**event, "t": check_time(event.get("t", now))})
    if len({event["id"] for event in waiting}) < len(waiting):
        raise InputError("no id may occur twice")
    if any(number_of(event["id"]) > state["numbered"] for event in waiting):
        raise InputError(f"an id has a number above {state['numbered']}, the last numbered decision")
    return waiting


def _check_finished(state: dict[str, Any], waiting: list[Event]) -> list[Any]:
    """Ids of finished decisions, and decisions that have their default."""
    if not isinstance(state["finished"], list):
        raise InputError("finished must be a list of ids")
    ids = [event["id"] for event in waiting]
    for entry in state["finished"]:
        if isinstance(entry, dict) and state["version"] == VERSION:
            what = "sums" if "arms" in entry else "heard"
            _check_decision({key: entry[key] for key in entry if key != what}, state["arms"], True)
            if what == "sums":
                check_sums(entry, entry.get("sums"))
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
        if not right or check_count("arm", entry[2]) >= state["arms"] or not _is_probability(entry[3]):
            raise InputError(f"a unit must have its id, arm and probability, not {shown(entry)}")
    if len({entry[0] for entry in units}) < len(units):
        raise InputError("no unit may occur twice")
    return units


def _check_decision(event: Event, arms: int, batches: bool) -> None:
    """Checks a decision or a batch by itself."""
    _check_keys(event, KEYS["decision" if "arm" in event else "batch"])
    if not is_id(event["id"]) or not is_id(event.get("unit", "none")):
        wrong = event["id"] if not is_id(event["id"]) else event["unit"]
        raise InputError(f"an id must be a string of 1 to {LONGEST_ID} characters, not {shown(wrong)}")
    check_count("drawn", event["drawn"])
    if "arm" in event:
        if check_count("arm", event["arm"]) >= arms or not _is_probability(event["p"]) or event["p"] == 0:
            raise InputError(f"{shown(event)} is not a decision among {arms} arms")
        if "ps" in event and not _are_probabilities(event["ps"], arms):
            raise InputError(f"ps must contain {arms} probabilities, not {shown(event['ps'])}")
        return
    _check_batch(event, arms, batches)


def _check_batch(event: Event, arms: int, batches: bool) -> None:
    pulls, p = event["arms"], event["p"]
    if not batches:
        raise InputError("this policy takes no batches")
    if not isinstance(pulls, list) or not isinstance(p, list) or not 0 < len(pulls) == len(p) <= arms:
        raise InputError(f"{shown(event)} is not a batch among {arms} arms")
    if not all(map(_is_probability, p)):
        raise InputError("the probabilities of a batch must lie in [0, 1]")
    for count, share in zip(pulls, p, strict=True):
        if check_count("pulls", count) >= MOST_PULLS or (count and not share):
            raise InputError(f"an arm of probability {share} cannot be pulled {count} times")


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
        if policy.flexible and shape[:1] == (policy.arms,):
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


def check_settings(policy: Policy, settings: Settings, arms: Arms) -> None:
    """Raises an error for settings that do not fit the policy and the arms from the start."""
    if settings.arms is not None and len(settings.arms) != arms.first:
        raise InputError(
            f"{policy.name} has {arms.first} arms here, and {len(settings.arms)} names are given"
        )
    if settings.wait is not None:
        check_reward(policy, settings.default)
    if settings.control is None:
        control = None
    elif (control := arms.number(settings.control)) is None or control >= arms.first:
        raise InputError(f"there is no arm {shown(settings.control)} that could be the control")
    settings.check_room(arms.active, control)


def check_batches(policy: Policy, settings: Settings) -> None:
    """Raises an error if there can be no batches."""
    if not policy.batches:
        raise InputError(f"{policy.name} must observe each reward before the next: no batches")
    if settings.wait is not None and settings.default not in (0, 1):
        raise InputError(
            f"batches have rewards of 0 and 1, and so need such a default, not {settings.default}"
        )


def check_correction(memory: "Memory", expired: Event, event: Event) -> None:
    """Raises an error if the policy cannot take back the default of a decision."""
    if memory.corrected(expired, event) is None:
        raise InputError(
            f"the decision {shown(expired['id'])} got its default reward, which {memory.policy.name} "
            "cannot take back: send rewards sooner, or wait longer"
        )


def check_reward(policy: Policy, reward: Any) -> float:
    """The reward as a number, if the policy can observe it."""
    if type(reward) in (float, int, bool) and 0 <= reward <= 1:
        return float(reward)  # at once: this is the usual case
    low, high = (0, 1) if policy.binary or policy.unit else (-math.inf, math.inf)
    given = int(reward) if isinstance(reward, bool) else reward
    return number(f"a reward of {policy.name}", given, low, high)


def _check_heard(policy: Policy, heard: Any) -> None:
    """Raises an error unless the policy can have observed this."""
    check_reward(policy, heard)
    if policy.binary and heard not in (0, 1):
        raise InputError(f"{policy.name} observes 0 or 1, not {shown(heard)}")


def check_sums(decision: Event, sums: Any) -> list[int]:
    """The sums of a batch's rewards, if it can have them."""
    pulls = decision["arms"]
    if not isinstance(sums, list | tuple) or len(sums) != len(pulls):
        raise InputError(f"a batch needs one sum for each of its {len(pulls)} arms")
    found = [check_count("a sum of rewards", ones) for ones in sums]
    for arm, (ones, count) in enumerate(zip(found, pulls, strict=True)):
        if ones > count:
            raise InputError(f"arm {arm} was pulled {count} times in this batch: its sum cannot be {ones}")
    return found


def check_count(what: str, value: Any) -> int:
    """A whole number that is at least 0 and fits 63 bits, or an error that names it."""
    return value if type(value) is int and 0 <= value <= MOST_DRAWS else whole(what, value, 0, MOST_DRAWS)


def check_time(value: Any) -> float:
    """A time in seconds since 1970, or an error."""
    return (
        value if type(value) is float and 0 <= value <= LAST_TIME else number("a time", value, 0, LAST_TIME)
    )


def check_reason(reason: Any) -> str:
    """The reason for a change, or an error."""
    if not isinstance(reason, str) or not 0 < len(reason) <= LONGEST_REASON:
        raise InputError(
            f"a reason must be a string of 1 to {LONGEST_REASON} characters, not {shown(reason)}"
        )
    return reason


def _is_probability(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1 + 1e-9


def _are_probabilities(given: Any, arms: int) -> bool:
    """Whether these are rounded probabilities of all arms. It is fast: a replay checks them a lot."""
    if not isinstance(given, list) or len(given) != arms:
        return False
    try:
        return min(given) >= 0 and abs(sum(given) - 1) < 1e-5 * arms
    except TypeError:
        return False


def _check_arms(what: str, given: Any, arms: int) -> list[int]:
    if not isinstance(given, list) or any(check_count(what, arm) >= arms for arm in given):
        raise InputError(f"{what} must be a list of arms, not {shown(given)}")
    if len(set(given)) < len(given):
        raise InputError(f"{what} must name each arm once")
    return given


def _check_keys(given: dict[str, Any], keys: "Keys") -> None:
    found = given.keys()
    if not (keys.all >= found >= keys.needed):
        wanted = ", ".join(sorted(keys.needed))
        raise InputError(f"the keys must be {wanted}, not {shown(sorted(given, key=str))}")
