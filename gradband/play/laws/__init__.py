"""Policies in plain NumPy, for players: the same names and probabilities as `gradband.policies`."""

from pathlib import Path
from typing import Any

import numpy as np

from gradband.core import tensor_file
from gradband.core.errors import InputError, unknown
from gradband.play.laws.base import Law, Memory
from gradband.play.laws.indices import KLUCB, UCB1, UCBV, BayesUCB, Greedy
from gradband.play.laws.lookups import Gittins, OptimalChoices, OptimalGraph, OptimalGrid, OptimalThresholds
from gradband.play.laws.networks import DQN, LSTM, IndexNetwork
from gradband.play.laws.softmaxes import (
    Boltzmann,
    EpsilonGreedy,
    Exp3,
    ExploreThenCommit,
    KLSoftElim,
    SoftElim,
    Split,
    Uniform,
)
from gradband.play.laws.thompson import HierarchicalTS, ThompsonSampling

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
    arrays, about = tensor_file.load(path, "policy")
    params = tensor_file.named(arrays, "params.")
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
