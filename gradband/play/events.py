"""Checks recorded events, which come from files, before a player replays them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.errors import MOST_ARMS, InputError, shown
from gradband.play import checks, contexts
from gradband.play.checks import Keys, check_keys
from gradband.play.pending import Event, is_id, number_of

if TYPE_CHECKING:
    from gradband.play.player import Player

KEYS = {
    "update": Keys("op id reward heard drawn", "t late"),
    "sums": Keys("op id sums drawn", "t late"),
    "expire": Keys("op id heard drawn t"),
    "expire many": Keys("op id sums drawn t"),
    "add": Keys("op arm", "t label"),
    "retire": Keys("op arm", "t"),
    "swap": Keys("op fingerprint policy reason t"),
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
        checks.check_time(event["t"])


def _check_select(player: "Player", event: Event) -> None:
    arms, pending = player.known_arms, player.pending
    checks.check_decision(event, arms.ever, player.policy.batches)
    id = event["id"]
    if pending.waits(id) or pending.finished(id):
        raise InputError(f"the decision {shown(id)} was made before")
    if id[0] == "#" and number_of(id) != pending.numbered + 1:
        raise InputError(f"{shown(id)} cannot follow {pending.numbered} numbered decisions")
    if "arm" in event:
        if event["arm"] not in arms.active:
            raise InputError(f"there is no arm {event['arm']}")
        contexts.check_made(player.playable, event, len(arms.active))
        return
    if len(event["arms"]) != arms.ever:
        raise InputError(f"a batch must say how often each of the {arms.ever} arms is pulled")
    if gone := set(np.flatnonzero(event["arms"]).tolist()) - set(arms.active):
        raise InputError(f"there is no arm {min(gone)}")


def _check_update(player: "Player", event: Event) -> None:
    check_keys(event, KEYS["sums" if "sums" in event else "update"])
    pending = player.pending
    late = event.get("late", False)
    if late not in (True, False) or (late and not pending.expired(event["id"])):
        raise InputError(f"the decision {shown(event['id'])} has no default that could be corrected")
    made = pending.closed[event["id"]] if late else pending.waiting(event["id"])
    assert made is not None
    if "reward" in event:
        checks.check_reward(player.policy, event["reward"])
    _check_observed(player, made, event)
    if late:
        checks.check_correction(player.memory, made, event)


def _check_expire(player: "Player", event: Event) -> None:
    check_keys(event, KEYS["expire many" if "sums" in event else "expire"])
    _check_observed(player, player.pending.waiting(event["id"]), event)


def _check_observed(player: "Player", made: Event, event: Event) -> None:
    """Checks what the policy observed of a decision or a batch."""
    if ("arms" in made) != ("sums" in event):
        raise InputError(f"{shown(event['id'])} needs sums if it is a batch, otherwise a reward")
    if "sums" in event:
        checks.check_sums(made, event["sums"], player.playable.any_sums)
    else:
        checks.check_heard(player.policy, event["heard"])


def _check_add(player: "Player", event: Event) -> None:
    check_keys(event, KEYS["add"])
    player.need_flexible("added")
    arm = checks.check_count("arm", event["arm"])
    if arm != player.known_arms.ever or arm >= MOST_ARMS:
        raise InputError(f"arm {shown(arm)} cannot be added")
    player.known_arms.check_new(event.get("label", str(arm)))
    player.settings.check_room([*player.known_arms.active, arm], player.memory.control)


def _check_retire(player: "Player", event: Event) -> None:
    check_keys(event, KEYS["retire"])
    player.need_flexible("retired")
    checks.check_count("arm", event["arm"])
    if event["arm"] not in player.known_arms.active or len(player.known_arms.active) == 1:
        raise InputError(f"arm {shown(event['arm'])} cannot be retired")


def _check_swap(player: "Player", event: Event) -> None:
    check_keys(event, KEYS["swap"])
    checks.check_reason(event["reason"])
    if not is_id(event["fingerprint"]):
        raise InputError(f"a fingerprint must be a string, not {shown(event['fingerprint'])}")
    playable = player.find_policy(event["fingerprint"])
    player.memory.check_swap(playable)
    checks.check_settings(playable.policy, player.settings, player.known_arms)


CHECKS = {
    "select": _check_select,
    "update": _check_update,
    "expire": _check_expire,
    "add": _check_add,
    "retire": _check_retire,
    "swap": _check_swap,
}
