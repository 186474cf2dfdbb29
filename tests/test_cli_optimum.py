"""`gradband optimum`, and the optimum in other commands."""

import contextlib
import io
import json
import re
import sys
from pathlib import Path

import pytest

from gradband.cli import main
from gradband.core import resources
from gradband.core.errors import InputError

pytestmark = pytest.mark.brief


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in a folder of its own: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        out, err = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "argv", ["gradband", *map(str, arguments)])
        streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with streams[0], streams[1], pytest.raises(SystemExit) as stop:
            main.main()
        return stop.value.code, out.getvalue(), err.getvalue()

    return run


def result(ran):
    status, out, err = ran
    assert (status, err) == (0, "")
    return json.loads(out)


def test_optimum_prints_one_json_object(run):
    found = result(run("optimum", "uniform-2", "--horizon", 60, "--json"))
    assert found["reward"] == pytest.approx(38.562343246635564, abs=1e-9)
    assert found["regret"] == pytest.approx(40 - 38.562343246635564, abs=1e-9)
    assert found["method"] == "two-armed dynamic programme"
    assert (found["error"], found["loss"], found["files"]) == (0, 0, {})
    assert found["seconds"] > 0


def test_optimum_prints_a_table(run):
    status, out, err = run("optimum", "--horizon", 20)
    assert (status, err) == (0, "")
    assert all(
        words in out for words in ("two-point: 2 arms, 20 rounds", "1.142492", "Exact, up to rounding.")
    )


def test_an_interval_stands_for_an_optimum_that_is_out_of_reach(run):
    sizes = ("uniform-2", "--arms", 10, "--horizon", 40, "--certify", 0.5, "--instances", 500)
    found = result(run("optimum", *sizes, "--json"))
    assert found["regret"] is None
    assert "feasible" in found["reason"]
    assert 4.4 < found["bound"]["regret"] < found["best_policy"]["regret"] + 5 * found["best_policy"]["se"]
    assert found["best_policy"]["policy"] == "gittins"
    _, out, _ = run("optimum", *sizes)
    assert "The optimal regret lies between" in " ".join(out.split())


def test_compare_shows_an_interval_where_there_is_no_optimum(run):
    sizes = ("uniform-2", "--arms", 10, "--horizon", 40, "--instances", 500, "--certify", 0.5)
    found = result(run("compare", *sizes, "--policies", "ts,gittins", "--json"))
    rows = {row["name"]: row for row in found["policies"]}
    assert found["optimum"] is None
    assert found["bound"]["regret"] > 4.4
    assert rows["ts"]["share_least"] == rows["ts"]["share_most"] == 0
    assert 0.8 < rows["gittins"]["share_least"] <= rows["gittins"]["share_most"]
    _, out, _ = run("compare", *sizes, "--policies", "ts,gittins")
    assert re.search(r"\d+ to \d+ %", out)
    assert "No policy has a regret below" in " ".join(out.split())


def test_its_policy_can_be_saved_and_compared(run):
    saved = result(run("optimum", "uniform-2", "--arms", 3, "--horizon", 10, "--out", "best", "--json"))
    file = saved["files"]["policy"]
    sizes = ("--arms", 3, "--horizon", 10, "--instances", 2000)
    found = result(run("compare", "uniform-2", "--policies", f"{file},optimal", *sizes, "--json"))
    first, second = found["policies"]
    assert first["regret"] == second["regret"]
    assert abs(first["regret"] - saved["regret"]) < 5 * first["se"]
    assert abs(first["share"] - 1) < 5 * first["share_se"]
    assert {row["name"] for row in found["policies"]} == {file, "optimal"}
    assert all(Path(name).exists() for name in found["files"].values())
    status, _, err = run("compare", "uniform-2", "--arms", 3, "--horizon", 12, "--policies", file)
    assert (status, err) == (2, "gradband: optimal-graph was made for 10 rounds, not for 12\n")


def test_compare_shows_where_policies_stand(run):
    sizes = ("--horizon", 20, "--instances", 2000)
    found = result(run("compare", "--policies", "ts,uniform", *sizes, "--json"))
    assert found["optimum"] == pytest.approx(1.1425, abs=1e-4)
    assert [row["share"] for row in found["policies"]][0] == 0
    assert found["policies"][1]["share"] < 0
    _, out, _ = run("compare", "--policies", "ts,uniform", *sizes)
    assert "░░░░░░░░░░   0 ± 0 %" in out


def test_compare_says_why_there_is_no_optimum(run):
    sizes = ("beta-10", "--arms", 2, "--horizon", 10, "--instances", 50, "--policies", "uniform")
    found = result(run("compare", *sizes, "--json"))
    assert found["optimum"] is None
    assert found["policies"][0]["share"] is None
    _, out, _ = run("compare", *sizes)
    assert "No optimum to compare with: the optimum needs bernoulli rewards, not beta rewards" in out


def test_learn_fills_in_the_optimum(run):
    sizes = ("--horizon", 20, "--iterations", 2, "--instances", 64, "--compare-on", 500)
    found = result(run("learn", *sizes, "--json"))
    assert found["optimum"] == pytest.approx(1.1425, abs=1e-4)
    assert set(found["share"]) == {"mean", "se"}


def test_gradient_has_rows_for_the_exact_one(run):
    sizes = ("--horizon", 20, "--theta", "0.3:0.5:2", "--instances", 512)
    rows = result(run("gradient", *sizes, "--exact", "--baselines", "self", "--json"))["rows"]
    assert [row["baseline"] for row in rows] == ["exact", "self"] * 2
    assert rows[0]["se"] == 0
    assert abs(rows[0]["gradient"] - rows[1]["gradient"]) < 5 * rows[1]["se"]
    alone = result(run("gradient", *sizes, "--exact", "--baselines", "", "--json"))["rows"]
    assert alone == rows[::2]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("optimum bernoulli-10 --out runs", "with 10 arms a horizon of 23 is feasible"),
        ("optimum beta-10 --out runs", "bernoulli rewards, not beta rewards"),
        ("optimum uniform-2 --horizon 5000 --out runs", "a horizon of"),
        ("optimum uniform-2 --out taken/x", "can't write to taken/x"),
        ("gradient --policy exp3 --exact", "exp3 can't be evaluated exactly"),
        ("gradient bernoulli-10 --exact", "exact evaluation needs 2 arms, not 10"),
        ("compare --policies optimal,nope", "unknown policy 'nope'"),
        ("compare beta-10 --policies optimal", "bernoulli rewards"),
        ("compare --policies gittins:a=0", "a of gittins must be above 0"),
        ("compare --policies dqn:hidden=1.5", "hidden of dqn must be a"),
    ],
)
def test_mistakes_give_one_line(run, tmp_path, command, words):
    (tmp_path / "taken").write_text("")
    status, out, err = run(*command.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_memory_is_refused_before_it_is_taken(monkeypatch):
    monkeypatch.setattr(resources, "free_memory", lambda: 10**6)
    with pytest.raises(InputError, match=r"needs 2\.0 GB of memory, but only 1\.0 MB is available: less"):
        resources.require(2 * 10**9, "this", "less")
    resources.require(10**5, "this", "less")
    assert resources.in_bytes(1500) == "2 kB"


def test_compare_shows_the_references_that_know_the_prior_by_default(run, tmp_path):
    (tmp_path / "rare.toml").write_text("horizon = 20\n[prior]\nkind = 'beta'\narms = 2\na = 1\nb = 30\n")
    found = result(run("compare", "rare.toml", "--instances", 200, "--json"))
    names = {row["name"] for row in found["policies"]}
    assert names == {"softelim", "ts", "ts:prior", "gittins", "gittins:prior", "ucb1", "uniform"}
    asked = ("compare", "rare.toml", "--instances", 200, "--policies")
    again = result(run(*asked, "gittins:prior,ts:prior", "--json"))
    for row in again["policies"]:
        assert row["regret"] == {old["name"]: old["regret"] for old in found["policies"]}[row["name"]]
    status, _, err = run(*asked, "ucb1:prior")
    assert (status, err.count("\n")) == (2, 1)
    assert "ucb1 has no prior to set" in err
