"""Rows on evaluation, against NumPy and other libraries, and on the exact solvers."""

import statistics

import libraries
from timing import HERE, Row, compared, environment, in_turns, reported, seconds


def evaluation_rows(repeats: int) -> list[dict]:
    import numpy_softelim

    import gradband as gb

    problem = gb.problems.named("bernoulli-10")
    count = 2000

    def ours() -> object:
        return gb.evaluate([gb.policies.SoftElim()], problem, instances=count)

    rows = []
    for what, peer in (("", numpy_softelim.evaluate), (", tuned", numpy_softelim.evaluate_tuned)):
        row = in_turns(ours, lambda peer=peer: peer(1.0, instances=count), repeats)
        rows.append({"what": f"SoftElim evaluation, K=10, n=1000, against NumPy vectorised{what}", **row})
        rows[-1]["pulls_per_second"] = count * 1000 / row["ours"]
    return rows


def library_rows(repeats: int) -> list[Row]:
    """UCB1, K=10, n=1000: pulls in a second. The regrets show that all play the same policy."""
    import gradband as gb

    problem = gb.problems.named("bernoulli-10")
    count, games = 4000, 20

    def ours() -> object:
        return gb.evaluate([gb.policies.UCB1()], problem, instances=count)

    table = gb.evaluate([gb.policies.UCB1()], problem, instances=count)
    rows: list[Row] = []
    for library, packages in libraries.PACKAGES.items():
        if (python := environment(library, *packages)) is None:
            continue
        command = [python, str(HERE / "libraries.py"), library, "--games", str(games)]
        turns, regrets = [], []
        for _ in range(max(2, repeats // 3)):
            mine, theirs = seconds(ours), reported(command)
            turns.append((mine / count, theirs["seconds"] / games))
            regrets = theirs["regrets"]
        row = {"what": f"UCB1 evaluation, K=10, n=1000, a game, against {library}", **compared(turns)}
        row |= {"regret": table.rows[0].regret.mean, "peer_regret": statistics.mean(regrets)}
        row["peer_regret_se"] = statistics.stdev(regrets) / len(regrets) ** 0.5
        rows.append(row)
    return rows


def solver_rows(repeats: int) -> list[Row]:
    import numpy_two_arms

    from gradband.core import resources
    from gradband.solvers.two_arms import solve

    horizon = 100

    def ours() -> float:
        return float(solve([1, 1], [1, 1], horizon, resources.cores())[0])

    assert abs(ours() - numpy_two_arms.reward(horizon)) < 1e-9
    row = in_turns(ours, lambda: numpy_two_arms.reward(horizon), max(2, repeats // 3))
    return [{"what": "optimum of uniform-2, n=100, against NumPy", **row}]
