"""Policies in plain NumPy, for players: the same names and probabilities as `gradband.policies`."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from gradband import files
from gradband.errors import InputError, unknown
from gradband.plain.base import Law, Memory
from gradband.plain.indices import KLUCB, UCB1, UCBV, BayesUCB, Greedy
from gradband.plain.lookups import Gittins, OptimalGraph, OptimalGrid, OptimalThresholds
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
        OptimalGraph,
        OptimalGrid,
    )
}


def load(path: str | Path) -> Law:
    """The law in a policy file, which is read with distrust."""
    arrays, about = files.load(path, "policy")
    params = {
        name.removeprefix("params."): array for name, array in arrays.items() if name.startswith("params.")
    }
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


def fingerprint(law: Law) -> str:
    """Sixteen digits that tell one law from another."""
    fields = (field.name for field in dataclasses.fields(law) if field.name != "params")
    settings = {name: getattr(law, name) for name in fields}
    digest = hashlib.sha256(json.dumps([law.name, settings], sort_keys=True).encode())
    for name in sorted(law.params):
        digest.update(f"{name} {law.params[name].dtype} {law.params[name].shape}".encode())
        digest.update(np.ascontiguousarray(law.params[name]).tobytes())
    return digest.hexdigest()[:16]


__all__ = ["LAWS", "Law", "Memory", "fingerprint", "law", "load"]
