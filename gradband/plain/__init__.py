"""Policies in plain NumPy, for players: the same names and probabilities as `gradband.policies`."""

from pathlib import Path
from typing import Any

import numpy as np

from gradband import files
from gradband.errors import InputError, unknown
from gradband.plain.base import Law, Memory
from gradband.plain.indices import KLUCB, UCB1, UCBV, BayesUCB, Greedy
from gradband.plain.lookups import Gittins, OptimalChoices, OptimalGraph, OptimalGrid, OptimalThresholds
from gradband.plain.networks import DQN, LSTM, IndexNetwork
from gradband.plain.softmaxes import (
    Boltzmann,
    EpsilonGreedy,
    Exp3,
    ExploreThenCommit,
    KLSoftElim,
    SoftElim,
    Split,
    Uniform,
)
from gradband.plain.thompson import HierarchicalTS, ThompsonSampling

LAWS: dict[str, type[Law]] = {
    law.name: law
    for law in (
        SoftElim,
        Exp3,
        EpsilonGreedy,
        Boltzmann,
        ExploreThenCommit,
        Uniform,
        Greedy,
        UCB1,
        UCBV,
        KLUCB,
        BayesUCB,
        ThompsonSampling,
        HierarchicalTS,
        Split,
        Gittins,
        DQN,
        LSTM,
        IndexNetwork,
        KLSoftElim,
        OptimalThresholds,
        OptimalChoices,
        OptimalGraph,
        OptimalGrid,
    )
}


def load(path: str | Path) -> Law:
    """The law in a policy file, which is read with distrust."""
    arrays, about = files.load(path, "policy")
    params = files.named(arrays, "params.")
    try:
        return law(about["policy"], about["arms"], about["horizon"], about["settings"], params)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a complete policy file: {error}") from None


def law(name: Any, arms: int, horizon: int, settings: dict[str, Any], params: dict[str, np.ndarray]) -> Law:
    """The law of this name, for K arms and n rounds."""
    if not isinstance(name, str) or name not in LAWS:
        raise unknown("policy", name, LAWS)
    wide = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array
        for name, array in params.items()
    }
    return LAWS[name](arms=arms, horizon=horizon, params=wide, **settings)


__all__ = ["LAWS", "Law", "Memory", "law", "load"]
