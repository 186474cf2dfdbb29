"""Rows on engines: lanes beside XLA, and how long a first use takes in a new process."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

from timing import compared, in_turns, seconds

FIRST_LEARN = 'import gradband as gb; gb.learn("softelim", "two-point")'
SIX = ["softelim", "ts", "ucb1", "exp3", "kl-ucb", "greedy"]
FIRST_EVALUATE = f'import gradband as gb; gb.evaluate({SIX}, "two-point")'
EVALUATED = [*SIX, "kl-softelim", "gittins", "index"]


def engine_rows(repeats: int) -> list[dict]:
    """The same work in lanes (ours) and by XLA (peer)."""
    import gradband as gb

    def rows(what: str, work: Callable[[str], object]) -> dict:
        row = in_turns(lambda: work("lanes"), lambda: work("xla"), repeats)
        return {"what": f"{what}, in lanes (ours) and by XLA (peer)", **row}

    # So many instances that what Python does before and after does not count.
    def gradient(policy: object, problem: str) -> Callable[[str], object]:
        size = 10_000 if problem == "two-point" else 2000
        return lambda engine: gb.estimate(policy, problem, instances=size, engine=engine)

    def evaluation(policy: str, problem: str) -> Callable[[str], object]:
        return lambda engine: gb.evaluate(policy, problem, instances=20_000, engine=engine)

    found = [
        rows(f"a gradient of {policy}, {problem}", gradient(policy, problem))
        for problem in ("two-point", "bernoulli-10")
        for policy in ("softelim", "exp3", "kl-softelim")
    ]
    own = gradient(tempered(), "two-point")
    found.append(rows("a gradient of the guide's policy with two parameters, two-point", own))
    small = [rows(f"evaluation of {name}, two-point", evaluation(name, "two-point")) for name in EVALUATED]
    return found + small


def tempered() -> object:
    """The policy of the guide, with two parameters."""
    import dataclasses

    import numpy as np

    import gradband as gb
    from gradband.policies import nn

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Tempered(gb.policies.Counting):
        name = "tempered"

        def init(self, key: object) -> dict:
            return {"mean": np.float32(5.0), "rare": np.float32(0.5)}

        def log_probs(self, params: dict, state: gb.policies.Counts) -> object:
            rarity = (state.pulls + 1) ** -0.5
            scores = params["mean"] * state.means + params["rare"] * rarity
            return nn(scores).log_softmax(scores)

    return Tempered()


def first_rows(repeats: int) -> list[dict]:
    """Whole processes, imports included, with kernels on disk (ours) and without (peer)."""

    def run(code: str, folder: str) -> None:
        variables = os.environ | {"XDG_CACHE_HOME": folder}
        subprocess.run([sys.executable, "-c", code], check=True, env=variables)

    rows = []
    for what, code in (("gb.learn", FIRST_LEARN), ("gb.evaluate of six policies", FIRST_EVALUATE)):
        with tempfile.TemporaryDirectory() as kept:
            run(code, kept)
            turns = []
            for _ in range(max(3, repeats // 2)):
                with tempfile.TemporaryDirectory() as empty:
                    cold = seconds(lambda code=code, folder=empty: run(code, folder))
                turns.append((seconds(lambda code=code, folder=kept: run(code, folder)), cold))
        rows.append(
            {"what": f"first {what} of a process, with kernels on disk (peer: without)", **compared(turns)}
        )
    return rows
