"""What players have recorded, events and states, read with distrust before it is used."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband import plain
from gradband.errors import LARGEST, InputError, shown

if TYPE_CHECKING:
    from gradband.player import Player

VERSION = 1
LONGEST_ID = 256
MOST_ARMS = 1_000_000
MOST_DRAWS = 2**63


def check_event(player: "Player", event: Any) -> None:
    """Refuses an event that can't come next."""
    if not isinstance(event, dict):
        raise InputError(f"an event must be a dictionary, not {shown(event)}")
    op = event.get("op")
    if op == "select":
        _keys(event, "op", "id", "arms" if "arms" in event else "arm", "p", "drawn")
        _decision(event, player.arms_ever, player.law.batches)
        if event["id"] in player.open or player.finished(event["id"]):
            raise InputError(f"the decision {shown(event['id'])} was made before")
        if "arm" in event and event["arm"] not in player.arms:
            raise InputError(f"there is no arm {shown(event['arm'])}")
    elif op == "update":
        _keys(event, "op", "id", *(("sums",) if "sums" in event else ("reward", "heard")), "drawn")
        decision = player.waiting(event["id"])
        if ("arms" in decision) != ("sums" in event):
            raise InputError(f"{shown(event['id'])} is heard of in the wrong way")
        if "sums" in event:
            check_sums(decision, event["sums"])
        else:
            for key in ("reward", "heard"):
                check_reward(player.law, event[key])
            if player.law.binary and event["heard"] not in (0, 1):
                raise InputError(f"{player.law.name} hears 0 or 1, not {shown(event['heard'])}")
    elif op in ("add", "retire"):
        _keys(event, "op", "arm")
        player.need_flexible("added" if op == "add" else "retired")
        allowed = (player.arms_ever,) if op == "add" else player.arms if len(player.arms) > 1 else ()
        if isinstance(event["arm"], bool) or event["arm"] not in allowed:
            raise InputError(f"arm {shown(event['arm'])} can't be {op}ed".replace("eed", "ed"))
    else:
        raise InputError(f"there is no op {shown(op)}")
    if "drawn" in event and not player.drawn <= _count("drawn", event["drawn"]) <= player.drawn + 1:
        raise InputError(f"after {player.drawn} draws there can't be {event['drawn']}")


def check_state(player: "Player", state: Any) -> dict[str, Any]:
    """The state, if it is one of a player of this policy."""
    keys = ("format", "version", "policy", "fingerprint", "seed", "drawn", "decisions", "numbered", "arms")
    if not isinstance(state, dict) or state.get("format") != "gradband-state":
        raise InputError("this is not the state of a player")
    if state.get("version") != VERSION:
        raise InputError(f"this state has the version {shown(state.get('version'))}, not {VERSION}")
    _keys(state, *keys, "active", "fresh", "memory", "open", "finished")
    if state["fingerprint"] != plain.fingerprint(player.law):
        raise InputError(f"this is the state of another policy, {shown(state['policy'])}")
    for name in ("seed", "drawn", "decisions", "numbered", "arms"):
        _count(name, state[name])
    law = player.law
    if not law.arms <= state["arms"] <= MOST_ARMS or (state["arms"] > law.arms and not law.flexible):
        raise InputError(f"{law.name} can't have {state['arms']} arms")
    active = _distinct("active", state["active"], state["arms"])
    if not active or (len(active) < state["arms"] and not law.flexible):
        raise InputError(f"{law.name} needs arms to pull, not {shown(active)}")
    if set(_distinct("fresh", state["fresh"], state["arms"])) - set(active if law.opens else ()):
        raise InputError("fresh must hold active arms")
    memory = _memory(player, state["memory"], len(active))
    finished = state["finished"]
    if not isinstance(finished, list) or not all(is_id(id) and id[0] != "#" for id in finished):
        raise InputError("finished must be a list of ids")
    if not isinstance(state["open"], list):
        raise InputError("open must be a list of decisions")
    for event in state["open"]:
        if not isinstance(event, dict) or event.get("op") != "select":
            raise InputError(f"an open decision must be a dictionary, not {shown(event)}")
        _keys(event, "op", "id", "arms" if "arms" in event else "arm", "p", "drawn")
        _decision(event, state["arms"], law.batches)
    ids = [event["id"] for event in state["open"]]
    if len(set(ids)) < len(ids) or set(ids) & set(finished):
        raise InputError("an id is there twice")
    return state | {"memory": memory}


def _decision(event: dict[str, Any], arms: int, batches: bool) -> None:
    """Checks a decision or a batch by itself."""
    if not is_id(event["id"]):
        raise InputError(f"an id must be a text of 1 to {LONGEST_ID} characters, not {shown(event['id'])}")
    _count("drawn", event["drawn"])
    if "arm" in event:
        if _count("arm", event["arm"]) >= arms or not _probability(event["p"]) or event["p"] == 0:
            raise InputError(f"{shown(event)} is not a decision among {arms} arms")
        return
    pulls, p = event["arms"], event["p"]
    if not batches or not all(isinstance(x, list) and 0 < len(x) <= arms for x in (pulls, p)):
        raise InputError(f"{shown(event)} is not a batch among {arms} arms")
    if len(pulls) != len(p) or not all(_probability(entry) for entry in p):
        raise InputError("a batch needs one probability for each of its arms")
    if any(_count("pulls", count) and not share for count, share in zip(pulls, p, strict=True)):
        raise InputError("an arm of probability 0 can't be pulled")


def _memory(player: "Player", given: Any, arms: int) -> plain.Memory:
    """The law's memory, of the shapes that it has with so many arms."""
    usual = player.law.begin(0.0)
    if not isinstance(given, dict) or set(given) != set(usual):
        raise InputError(f"memory must hold {', '.join(usual)}")
    memory = {}
    for name, like in usual.items():
        by_arm = like.ndim and player.law.flexible
        try:
            array = np.array(given[name], dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            array = np.array(math.nan)
        if array.shape != ((arms,) if by_arm else like.shape) or not np.isfinite(array).all():
            raise InputError(f"{name} in memory must hold finite numbers, one for each arm")
        memory[name] = array
    player.law.check_memory(memory)
    return memory


def check_reward(law: plain.Law, reward: Any) -> None:
    """Refuses what can't be a reward."""
    # Compared before it is converted: Python's integers may be larger than any float.
    if not isinstance(reward, int | float) or not abs(reward) <= LARGEST:
        raise InputError(f"a reward must be a finite number, not {shown(reward)}")
    if (law.binary or law.unit) and not 0 <= reward <= 1:
        raise InputError(f"a reward of {law.name} must lie in [0, 1], not {shown(reward)}")


def check_sums(decision: dict[str, Any], sums: Any) -> None:
    """Refuses sums of rewards that a batch can't have."""
    if not isinstance(sums, list | tuple) or len(sums) != len(decision["arms"]):
        raise InputError(f"a batch needs one sum for each of its {len(decision['arms'])} arms")
    for arm, (ones, pulls) in enumerate(zip(sums, decision["arms"], strict=True)):
        if _count("a sum of rewards", ones) > pulls:
            raise InputError(f"arm {arm} was pulled {pulls} times in this batch, and can't pay {ones}")


def is_id(id: Any) -> bool:
    return isinstance(id, str) and 0 < len(id) <= LONGEST_ID


def _count(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST_DRAWS:
        raise InputError(f"{what} must be a whole number of at least 0, not {shown(value)}")
    return value


def _probability(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1 + 1e-9


def _distinct(what: str, given: Any, arms: int) -> list[int]:
    if not isinstance(given, list) or any(_count(what, arm) >= arms for arm in given):
        raise InputError(f"{what} must be a list of arms, not {shown(given)}")
    if len(set(given)) < len(given):
        raise InputError(f"{what} must name each arm once")
    return given


def _keys(given: dict[str, Any], *wanted: str) -> None:
    if set(given) != set(wanted):
        raise InputError(f"{shown(sorted(given, key=str))} should be {', '.join(wanted)}")
