"""Exact answers, for problems small enough to have them. Tests rest on these."""

from gradband.exact.commitment import explore_then_commit_reward
from gradband.exact.enumeration import Exact, by_enumeration

__all__ = ["Exact", "by_enumeration", "explore_then_commit_reward"]
