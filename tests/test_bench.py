"""The speed benchmark: what it counts, how it compares, and that its scripts stand on their own."""

import ast
import json
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gradband
from gradband.cli import app
from gradband.cli.bench import QUICK, ROWS, bench
from gradband.core.errors import InputError

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.fixture
def benchmarks(monkeypatch):
    """Makes the scripts importable, as they are for each other."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def imported(script):
    """The packages that a script imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(script.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_only_scripts_of_their_own_environment_import_peers(script):
    """And they import nothing else that would have to be installed there."""
    if script.stem.startswith("torch_"):
        assert imported(script) - set(sys.stdlib_module_names) == {"torch"}
    elif script.stem.startswith("optuna_"):
        assert imported(script) - set(sys.stdlib_module_names) == {"optuna"}
    elif script.stem == "libraries":
        assert imported(script) <= set(sys.stdlib_module_names)
    else:
        assert not imported(script) & {"torch", "optuna", "river", "mabwiser", "SMPyBandits"}


def test_pytorch_is_no_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + sum(project["optional-dependencies"].values(), [])
    assert not [name for name in wanted if name.startswith("torch")]


def test_products_of_an_lstm_iteration_are_those_counted_by_hand(benchmarks):
    """Gates 200 × 54, head 2 × 50; two operations each, three times, for 1000 runs of 200 rounds."""
    import products

    assert products.operations() == 6 * 10_900 * 200_000 == 13_080_000_000
    assert products.operations(arms=3, hidden=1, rollouts=1, horizon=1) == 6 * (4 * 7 + 3)


def test_speed_of_a_product_is_positive_and_the_limit_follows_from_the_best(benchmarks, monkeypatch):
    import products

    assert products.speed(8, arms=2, hidden=3, repeats=1) > 0
    monkeypatch.setattr(products, "speed", {128: 1e9, 512: 4e9, 1000: 2e9}.__getitem__)
    assert products.seconds() == pytest.approx(3.27)


def test_ratio_is_that_of_the_best_times_and_its_range_that_of_the_turns(benchmarks):
    import timing

    row = timing.compared([(2.0, 8.0), (1.0, 6.0), (4.0, 5.0)])
    assert row == {"ours": 1, "peer": 5, "ratio": 5, "low": 1.25, "high": 6}


@pytest.fixture
def speed_json(benchmarks, monkeypatch, capsys):
    """Runs the benchmark with every measurement replaced by a row of its name."""
    import speed

    assert set(speed.rows(quick=True)) == set(ROWS)
    row = {"ours": 1, "peer": 2, "ratio": 2, "low": 1, "high": 3}
    fakes = {name: lambda name=name: [{"what": name, **row}] for name in ROWS}
    monkeypatch.setattr(speed, "rows", lambda quick: fakes)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["speed.py", "--json", *arguments])
        speed.main()
        return [row["what"] for row in json.loads(capsys.readouterr().out)["rows"]]

    return run


def test_rows_can_be_chosen(speed_json):
    assert speed_json() == list(ROWS)
    assert speed_json("--quick") == list(QUICK)
    assert speed_json("--quick", "--only", "lstm") == ["lstm"]
    assert speed_json("--quick", "--only", "memory") == ["memory"]


def test_the_slope_is_that_of_the_best_times(benchmarks, monkeypatch):
    import scaling

    monkeypatch.setattr(scaling, "seconds", lambda work: work())
    turns = iter([1, 10, 100, 3, 30, 300, 2, 200, 20_000])  # compiled, then two turns, the second is slower

    def work(size):
        return next(turns)

    row = scaling.slope(work, [1, 10, 100], repeats=2)
    assert row["seconds"] == [2, 30, 300]
    assert (row["low"], row["high"]) == pytest.approx((1, 2))
    assert row["ratio"] == pytest.approx(1.088, abs=1e-3)


def test_the_plain_solver_knows_the_optimum(benchmarks):
    """Two uniform arms: one pull earns 1/2, two pulls 1 + 1/12."""
    import numpy_two_arms

    assert numpy_two_arms.reward(1) == 0.5
    assert numpy_two_arms.reward(2) == pytest.approx(1 + 1 / 12)
    problem = gradband.problems.named("uniform-2", horizon=20)
    assert numpy_two_arms.reward(20) == pytest.approx(gradband.exact.optimum(problem).reward, abs=1e-9)


def test_other_libraries_are_played_one_pull_at_a_time(benchmarks, monkeypatch):
    import libraries

    heard = []
    player = (lambda: 1, lambda *event: heard.append(event))
    monkeypatch.setitem(libraries.PLAYERS, "river", lambda arms, seed: player)
    lost = libraries.play("river", arms=2, horizon=50, seed=3)
    assert len(heard) == 50
    assert {arm for arm, _ in heard} == {1}
    draw = random.Random(3)
    means = [draw.random(), draw.random()]
    assert lost == pytest.approx(50 * (max(means) - means[1]))


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [((), []), (("--quick",), ["--quick"]), (("--only", "lstm", "--json"), ["--json", "--only", "lstm"])],
)
def test_command_hands_its_options_on(monkeypatch, arguments, passed):
    commands = []

    def run(command, check):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    assert CliRunner().invoke(app.app, ["bench", *arguments]).exit_code == 0
    assert commands == [[sys.executable, str(ROOT / "benchmarks" / "speed.py"), *passed]]


def test_command_refuses_unknown_rows():
    with pytest.raises(InputError, match="unknown rows 'lstn': did you mean 'lstm'?"):
        bench(only="lstn")


@pytest.mark.usefixtures("benchmarks")
def test_a_policy_played_elsewhere_is_compared_with_one_learned_there():
    import networks

    known = networks.tasks()
    elsewhere = {size: {"mean": 3.3, "se": 0.1} for size in known["index/K=10,n=200"].elsewhere}
    row = {"seed": 0, "se": 0.1, "seconds": 1.0, "elsewhere": {}}
    rows = [
        row | {"task": "index/K=10,n=200", "regret": 9.0, "elsewhere": elsewhere},
        row | {"task": "index/K=2,n=200", "regret": 3.0},
    ]
    shown = networks.summary(rows, known)
    assert "played at K=2,n=200: 3.300, 1.100 of one learned there" in shown
    assert "played at K=50,n=200: 3.300\n" in shown
