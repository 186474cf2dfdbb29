"""Checks of single values and decisions, which come from callers and files."""

import math
from typing import TYPE_CHECKING, Any

from gradband.core.errors import InputError, number, shown, whole
from gradband.play.arms import Arms
from gradband.play.pending import LONGEST_ID, Event, is_id
from gradband.play.settings import Settings
from gradband.policies import Policy, Seeing

if TYPE_CHECKING:
    from gradband.play.memory import Memory

MOST_PULLS = 2**31  # in a batch
MOST_DRAWS = 2**63 - 1
LAST_TIME = 1e11  # seconds since 1970: in three thousand years
LONGEST_REASON = 2000


class Keys:
    """The keys that something must have, and those that it may have."""

    def __init__(self, needed: str, optional: str = "") -> None:
        self.needed = frozenset(needed.split())
        self.all = self.needed | frozenset(optional.split())


DECISION = Keys("op id arm p drawn", "t ps unit x xs")
BATCH = Keys("op id arms p drawn", "t")


def check_settings(policy: Policy, settings: Settings, arms: Arms) -> None:
    """Raises an error if the settings do not fit the policy and its first arms."""
    if settings.arms is not None and len(settings.arms) != arms.first:
        raise InputError(
            f"{policy.name} has {arms.first} arms here, but {len(settings.arms)} names were given"
        )
    if settings.wait is not None:
        check_reward(policy, settings.default)
    if settings.control is None:
        control = None
    elif (control := arms.number(settings.control)) is None or control >= arms.first:
        raise InputError(f"control must be one of the arms, not {shown(settings.control)}")
    settings.check_room(arms.active, control)


def check_batches(policy: Policy, settings: Settings) -> None:
    """Raises an error unless the policy takes batches."""
    if isinstance(policy, Seeing):
        raise InputError(f"{policy.name} needs the context of each pull, so it takes no batches")
    if not policy.batches:
        raise InputError(
            f"{policy.name} must observe each reward before the next decision, so it takes no batches"
        )
    if settings.wait is not None and settings.default not in (0, 1):
        raise InputError(
            f"rewards in batches are 0 or 1, so default must be 0 or 1 too, not {settings.default}"
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
        return float(reward)  # the usual case, fast
    low, high = (0, 1) if policy.binary or policy.unit else (-math.inf, math.inf)
    given = int(reward) if isinstance(reward, bool) else reward
    return number(f"a reward of {policy.name}", given, low, high)


def check_heard(policy: Policy, heard: Any) -> None:
    """Raises an error unless the policy could have observed this."""
    check_reward(policy, heard)
    if policy.binary and heard not in (0, 1):
        raise InputError(f"{policy.name} observes 0 or 1, not {shown(heard)}")


def check_sums(decision: Event, sums: Any, any_sums: bool) -> list[Any]:
    """The sums of a batch's rewards, if it can have them: any numbers, or counts of ones."""
    pulls = decision["arms"]
    if not isinstance(sums, list | tuple) or len(sums) != len(pulls):
        raise InputError(f"a batch needs one sum for each of its {len(pulls)} arms")
    if any_sums:
        totals = [number("a sum of rewards", total) for total in sums]
        for arm, (total, count) in enumerate(zip(totals, pulls, strict=True)):
            if total and not count:
                raise InputError(f"arm {arm} was not pulled in this batch: its sum cannot be {total:g}")
        return totals
    found = [check_count("a sum of rewards", ones) for ones in sums]
    for arm, (ones, count) in enumerate(zip(found, pulls, strict=True)):
        if ones > count:
            raise InputError(f"arm {arm} was pulled {count} times in this batch: its sum cannot be {ones}")
    return found


def check_decision(event: Event, arms: int, batches: bool) -> None:
    """Checks a decision or a batch by itself."""
    check_keys(event, DECISION if "arm" in event else BATCH)
    if not is_id(event["id"]) or not is_id(event.get("unit", "none")):
        wrong = event["id"] if not is_id(event["id"]) else event["unit"]
        raise InputError(f"an id must be a string of 1 to {LONGEST_ID} characters, not {shown(wrong)}")
    check_count("drawn", event["drawn"])
    if "arm" in event:
        if check_count("arm", event["arm"]) >= arms or not is_probability(event["p"]) or event["p"] == 0:
            raise InputError(f"{shown(event)} is not a decision among {arms} arms")
        if "ps" in event and not are_probabilities(event["ps"], arms):
            raise InputError(f"ps must contain {arms} probabilities, not {shown(event['ps'])}")
        return
    check_batch(event, arms, batches)


def check_batch(event: Event, arms: int, batches: bool) -> None:
    pulls, p = event["arms"], event["p"]
    if not batches:
        raise InputError("this policy takes no batches")
    if not isinstance(pulls, list) or not isinstance(p, list) or not 0 < len(pulls) == len(p) <= arms:
        raise InputError(f"{shown(event)} is not a batch among {arms} arms")
    if not all(map(is_probability, p)):
        raise InputError("the probabilities of a batch must lie in [0, 1]")
    for count, share in zip(pulls, p, strict=True):
        if check_count("pulls", count) >= MOST_PULLS or (count and not share):
            raise InputError(f"an arm of probability {share} cannot be pulled {count} times")


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


def is_probability(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1 + 1e-9


def are_probabilities(given: Any, arms: int) -> bool:
    """Whether these are rounded probabilities of all arms. It is fast: a replay checks them a lot."""
    if not isinstance(given, list) or len(given) != arms:
        return False
    try:
        return min(given) >= 0 and abs(sum(given) - 1) < 1e-5 * arms
    except TypeError:
        return False


def check_keys(given: dict[str, Any], keys: Keys) -> None:
    found = given.keys()
    if not (keys.all >= found >= keys.needed):
        wanted = ", ".join(sorted(keys.needed))
        raise InputError(f"the keys must be {wanted}, not {shown(sorted(given, key=str))}")
