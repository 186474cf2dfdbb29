"""The context of a decision: features as a caller gives them, and as events store them.

The event of a decision has the features of all arms as `xs`, to compute its probabilities again. A decision
that waits for its reward keeps only those of the pulled arm, `x`, which the policy needs with the reward.
Both are single-precision numbers, least significant byte first, in base64.
"""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradband.core.errors import LARGEST, InputError, shown
from gradband.play.arms import Arms
from gradband.play.pending import Event

if TYPE_CHECKING:
    from gradband.play.playable import Playable

MOST_NUMBERS = 1 << 20  # numbers in a context
BYTES = 4  # of a number


def read_context(playable: "Playable", given: Any, arms: Arms) -> np.ndarray | None:
    """The features [K, d] of the active arms, or [d] of a visitor; None without contexts."""
    name, dims, rows = playable.policy.name, playable.dims, len(arms.active)
    if not dims:
        if given is not None:
            raise InputError(f"{name} takes no context: it does not use features")
        return None
    policy: Any = playable.policy
    shapes: dict[tuple[int, ...], str] = {}
    if policy.takes_arms:
        shapes[rows, dims] = f"[{rows}, {dims}] (arms, features)"
    if policy.takes_visitor:
        shapes[dims,] = f"[{dims}] (features of the visitor)"
    wanted = " or ".join(shapes.values())
    if given is None:
        raise InputError(f"{name} needs a context: features of the shape {wanted}")
    found = _as_numbers(_encoded(playable, given, arms) if isinstance(given, Mapping) else given)
    if found.shape not in shapes:
        raise InputError(f"a context must have the shape {wanted}, not {list(found.shape)}")
    if found.size > MOST_NUMBERS:
        raise InputError(f"a context may have at most {MOST_NUMBERS:,} numbers, not {found.size:,}")
    policy.check_features(found)
    # As an event will have them, so that a replay sees the same.
    return found.astype(np.float32).astype(np.float64)


def _encoded(playable: "Playable", given: Mapping[Any, Any], arms: Arms) -> list[Any]:
    """Features by arms, or those of the visitor by their names; those of arms may be by names too."""
    names = playable.features
    if names is None:
        return _in_order(given, arms)
    for_arms = any(arms.number(each) is not None for each in given)
    if cast(Any, playable.policy).takes_visitor and (names.names >= {*given} or not for_arms):
        return names.encode(given)
    found = _in_order(given, arms)
    return [names.encode(each) if isinstance(each, Mapping) else each for each in found]


def _in_order(given: Mapping[Any, Any], arms: Arms) -> list[Any]:
    """Features by arms' names or numbers, in the arms' order; those of retired arms are ignored."""
    found = {}
    for arm, features in given.items():
        number = arms.number(arm)
        if number is None:
            raise InputError(f"the context has features of {shown(arm)}, which is not an arm of this test")
        if number in found:
            raise InputError(f"the context has features of the arm {shown(arms.labels[number])} twice")
        found[number] = features
    for arm in arms.active:
        if arm not in found:
            raise InputError(f"the context lacks features of the arm {shown(arms.labels[arm])}")
    return [found[arm] for arm in arms.active]


def _as_numbers(given: Any) -> np.ndarray:
    try:
        found = np.asarray(given)
    except (ValueError, TypeError, OverflowError, RecursionError):
        found = np.empty(0, object)
    if found.dtype.kind not in "biuf":
        raise InputError(f"a context must be numbers, equally many for each arm, not {shown(given)}")
    if not (np.abs(found) <= LARGEST).all():
        raise InputError("a context must have finite numbers, which single precision can hold")
    return found


def pack(features: np.ndarray) -> str:
    """Features as an event has them.

    >>> pack(np.array([0.5, -1.0]))
    'AAAAPwAAgL8='
    """
    return base64.b64encode(features.astype("<f4").tobytes()).decode()


def pack_pulled(features: np.ndarray, place: int) -> str:
    """The features of the arm in this place, or of the visitor."""
    return pack(features if features.ndim == 1 else features[place])


def unpack(text: str, dims: int) -> np.ndarray:
    """Features [rows, d] from an event's `x` or `xs`; a visitor's are one row.

    >>> unpack("AAAAPwAAgL8=", 2)
    array([[ 0.5, -1. ]])
    """
    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float64).reshape(-1, dims)


def keep(event: Event, place: int, dims: int) -> str:
    """The features of the arm in this place, from the event of its decision."""
    data, size = base64.b64decode(event["xs"]), BYTES * dims
    start = 0 if len(data) == size else place * size
    return base64.b64encode(data[start : start + size]).decode()


def check_made(playable: "Playable", event: Event, arms: int) -> None:
    """Checks the features in the event of a decision among so many arms."""
    policy: Any = playable.policy
    rows = (*(1,) * policy.takes_visitor, *(arms,) * policy.takes_arms) if playable.dims else ()
    if "x" in event or not _are_features(playable, event.get("xs"), rows):
        raise InputError(f"{shown(event.get('xs'))} is not a context for {playable.policy.name}")


def check_kept(playable: "Playable", decision: Event) -> None:
    """Checks the features of a decision that waits for its reward, or may get another."""
    if "xs" in decision or not _are_features(playable, decision.get("x"), (1,)):
        raise InputError(f"{shown(decision.get('x'))} are no features for {playable.policy.name}")


def _are_features(playable: "Playable", text: Any, rows: tuple[int, ...]) -> bool:
    """Whether this is what `pack` returns for so many rows, or nothing for a policy without contexts."""
    if not playable.dims or text is None:
        return not playable.dims and text is None
    sizes = [BYTES * playable.dims * count for count in rows]
    if not isinstance(text, str) or len(text) not in [4 * -(-size // 3) for size in sizes]:
        return False
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return False
    found, policy = np.frombuffer(data, "<f4"), cast(Any, playable.policy)
    if len(data) not in sizes or not np.isfinite(found).all():
        return False
    try:
        policy.check_features(found.reshape(-1, playable.dims))
    except InputError:
        return False
    return True
