"""Shares of the arms from counts alone, and a stable hash that assigns units by shares.

For feature-flag systems that assign and count by themselves: no player and no journal is needed.
"""

import hashlib
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.errors import InputError, number, number_of_arms, shown
from gradband.play.arms import Arms
from gradband.play.checks import check_settings
from gradband.play.memory import Memory
from gradband.play.playable import Playable, as_playable
from gradband.play.settings import Settings
from gradband.policies import Counting, Counts, Policy
from gradband.policies.own import Trust

if TYPE_CHECKING:
    from gradband.policies.policy_file import Learned


def weights(
    policy: "str | PathLike[str] | Learned | Policy | Playable",
    pulls: Sequence[float] | np.ndarray,
    successes: Sequence[float] | np.ndarray,
    settings: Settings | None = None,
    trust: Trust | None = None,
) -> np.ndarray:
    """The probability [K] of each arm after these counts, as a player has it for a batch.

    A player's single decisions differ only at the start, where some policies pull each arm once.

    Args:
        policy: A policy file, what `gb.learn` returned, or a bound policy. It must remember counts.
        pulls: How often each arm was pulled [K].
        successes: The sum of each arm's rewards [K].
        settings: Names of the arms and guardrails. By default the guardrails of the problem that the policy
            was learned on.
        trust: For a policy file with a class of your own: the class, or the Python file that has it.
    """
    playable = as_playable(policy, trust)
    if settings is None:
        settings = Settings().guarded_as_learned(playable.guardrails)
    own = playable.policy
    if playable.dims:
        raise InputError(f"{own.name} decides by contexts: use segment_weights (--segments), or a player")
    if not isinstance(own, Counting):
        raise InputError(f"{own.name} remembers more than counts: use a player")
    if own.forgets:
        raise InputError(f"{own.name} forgets old rewards, so counts are not enough: use a player")
    counts = Counts(_numbers("pulls", pulls), _numbers("successes", successes))
    arms = number_of_arms(len(counts.pulls))
    if len(counts.sums) != arms:
        raise InputError(f"there are pulls of {arms} arms, but successes of {len(counts.sums)}")
    if arms != own.arms and not own.flexible:
        raise InputError(f"{own.name} is for {own.arms} arms, but there are counts of {arms}")
    known = Arms(arms, settings.arms, opens=False)
    check_settings(own, settings, known)
    memory = Memory(playable, settings, known)
    sized: Any = memory.policy
    memory.state, memory.rounds = sized.after(counts), int(counts.pulls.sum())
    sized.check_state(memory.state, memory.rounds)
    return memory.many(1).copy()


def assign(unit: str, weights: Sequence[float] | np.ndarray, salt: str = "") -> int:
    """The arm of a unit: always the same one, and each arm for its share of all units.

    u is the first 53 bits of SHA-256 of "salt:unit" in UTF-8, divided by 2⁵³; the arm is the first whose
    cumulative share exceeds u. If shares change, some units change arms: store the arm of a unit that must
    keep it.

    >>> assign("user-17", [0.5, 0.5]), assign("user-17", [0.5, 0.5], salt="buttons")
    (0, 1)

    Args:
        unit: The id of a user, for example.
        weights: Shares of the arms [K].
        salt: The name of the test, so that tests assign independently.
    """
    if not isinstance(unit, str) or not isinstance(salt, str):
        raise InputError(f"unit and salt must be strings, not {shown(unit)} and {shown(salt)}")
    shares = _numbers("weights", weights)
    edges = shares.cumsum()
    if not len(shares) or not edges[-1] > 0:
        raise InputError(f"weights must be numbers of at least 0, with a sum above 0, not {shown(weights)}")
    digest = hashlib.sha256(f"{salt}:{unit}".encode(errors="surrogatepass")).digest()
    u = (int.from_bytes(digest[:8], "big") >> 11) / 2**53
    place = int(edges.searchsorted(u * edges[-1], "right"))
    return min(place, int(shares.nonzero()[0][-1]))


def _numbers(what: str, given: Any) -> np.ndarray:
    """Numbers of at least 0, as an array [K]."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(f"{what} must be a list of numbers, not {shown(given)}")
    return np.array([number(what, value, 0) for value in given])
