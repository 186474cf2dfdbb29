"""`gradband reproduce`: experiments as data, work that is done once, and a report of it."""

import ast
import contextlib
import csv
import fcntl
import io
import json
import multiprocessing
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from conftest import assert_z
from matplotlib.container import ErrorbarContainer

import gradband as gb
from gradband.cli.main import main
from gradband.core.errors import InputError
from gradband.paper import experiment_files, plots, rows, work, workers
from gradband.paper.curves import middle
from gradband.paper.panels import Level
from gradband.paper.store import Store, versions
from gradband.paper.unit import command

pytestmark = pytest.mark.brief

SMALL = {
    "fig1": """
title = "Figure 1: over θ"
caption = "Small."
problem = "two-point"
horizon = 10
noise = "independent"
thetas = [0.5, 1.0]
instances = 600
regret_instances = 600

[[panels]]
name = "fig1a"
kind = "regret over theta"
title = "Regret"
policies = ["exp3", "softelim"]
minutes = { quick = 1, paper = 1 }

[[panels]]
name = "fig1c"
kind = "gradient over theta"
title = "Gradient"
policy = "softelim"
baselines = ["none", "self"]
minutes = { quick = 1, paper = 1 }

[[rows]]
what = "none over self"
says = "> 1"
of = { panel = "fig1c", variance = "none", over = "self", at = 1.0 }
""",
    "fig2": """
title = "Figure 2: learning"
caption = "Small."
problem = "two-point"
horizon = 10
iterations = 60
batch = 64
evaluation = 128
final = 256
every = 20
runs = 2
benchmarks = { two-point = 600 }

[[panels]]
name = "fig2b"
kind = "learning"
title = "SoftElim"
policy = "softelim"
curves.b-opt = { baseline = "optimal" }
curves.b-self = { baseline = "self" }
lines = ["optimum", "ts"]
minutes = { quick = 1, paper = 1 }

[[panels]]
name = "fig3b"
kind = "learning"
title = "Phases"
policy = "softelim"
curves."the paper's" = { recipe = "paper", horizon = 25 }
lines = ["ts"]
median = true
faint = true
minutes = { quick = 1, paper = 1 }
quick = { iterations = 40, batch = 32 }

[[rows]]
what = "SoftElim tuned"
printed = [1.2]
samples = 1000
of = { panel = "fig2b", curve = "b-self" }

[[rows]]
what = "SoftElim less TS"
says = "< 0"
of = { panel = "fig2b", curve = "b-self", less = "ts" }
""",
    "findings": """
title = "What we found"
caption = "Small."

[[panels]]
name = "lemma3"
kind = "lemma 3"
title = "Lemma 3"
problem = "two-point"
horizon = 3
thetas = [0.5]
minutes = { quick = 1, paper = 1 }
""",
}


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder for all of the processes that tests run in."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A folder of small experiments."""
    folder = tmp_path_factory.mktemp("experiments")
    for name, text in SMALL.items():
        (folder / f"{name}.toml").write_text(text)
    return folder


def words_for(small, out, *options):
    """The command's words, after its name."""
    words = ["reproduce", "--json", "--experiments", str(small), "--out", str(out), *options]
    return words if "--jobs" in options else [*words, "--jobs", "1"]  # starting processes takes longest


def start(small, out, *options):
    """Starts the command in a process of its own."""
    words = [sys.executable, "-m", "gradband", *words_for(small, out, *options)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(output)


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command here: its exit code, and what it wrote."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["gradband", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def whole(small, shared):
    """Where all of the small experiments were done without a break, once for all of the tests' processes,
    and what the command said."""
    said = shared / "whole.json"
    with (shared / "whole.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not said.exists():
            said.write_text(json.dumps(finish(start(small, shared / "whole"))))
        return shared / "whole", json.loads(said.read_text())


def numbers(out):
    """All numbers, which must not depend on how often the work was cut off."""
    return (out / "numbers.csv").read_text()


def test_all_panels_files_and_rows_are_there(whole):
    out, result = whole
    assert result["panels"] == ["fig1a", "fig1c", "fig2b", "fig3b", "lemma3"]
    assert {row["what"] for row in result["rows"]} == {
        "none over self",
        "SoftElim tuned",
        "SoftElim less TS",
    }
    assert {"what", "paper", "paper_se", "ours", "se", "z"} <= set(result["rows"][0])
    for path in result["files"].values():
        assert Path(path).stat().st_size > 0
    page = (out / "report.html").read_text()
    for name in result["panels"]:
        assert f'id="{name}"' in page
    table = list(csv.DictReader(numbers(out).splitlines()))
    assert {row["panel"] for row in table} == {*result["panels"]}
    assert {row["what"] for row in table} >= {"curve", "run", "line", "end of run", "paper", "ours"}


@pytest.mark.slow
def test_nothing_is_done_twice(small, whole, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(whole[0], out)
    before = stored(out)
    assert len(before) == sum(whole[1]["units"].values())
    again = finish(start(small, out, "--only", "fig2b"))
    assert again["units"] == {"done": 0, "found": 6}
    assert before == stored(out)
    assert 'id="fig3b"' in (out / "report.html").read_text(), "what is finished stays in the report"
    other = finish(start(small, out, "--only", "fig2b", "--seeds", "5-5"))
    assert other["units"] == {"done": 2, "found": 2}, "other seeds are other runs"
    page = (out / "report.html").read_text()
    assert 'id="fig3b"' in page
    assert "Seeds 5, L = 60" in page


def stored(out):
    """When each result was written."""
    return {path: path.stat().st_mtime_ns for path in out.glob("results/[!.]*.json")}


def cut_off_and_resumed(small, out, moment):
    """Kills the command when it has been at work for so long, lets it finish, and says what was found."""
    process = start(small, out)
    while process.poll() is None and not [*out.glob("results/*.json"), *out.glob("results/unfinished/*")]:
        time.sleep(0.05)
    time.sleep(moment)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = stored(out)
    result = finish(start(small, out))
    assert {path: when for path, when in stored(out).items() if path in before} == before
    assert result["units"]["found"] == len(before)
    assert not list((out / "results" / "unfinished").iterdir())
    return result


@pytest.mark.slow
def test_a_killed_reproduction_ends_with_the_same_numbers(small, whole, tmp_path):
    result = cut_off_and_resumed(small, tmp_path, 4)
    assert result["units"]["done"] > 0
    assert numbers(tmp_path) == numbers(whole[0])


def test_an_interrupted_reproduction_says_what_is_left_and_shows_what_is_done(small, tmp_path):
    process = start(small, tmp_path)
    while process.poll() is None and not stored(tmp_path):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "units of work are left; the same command resumes" in errors
    assert "Traceback" not in errors
    assert (tmp_path / "report.html").exists()
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert left.stdout == "", "no worker is left behind"


def test_a_unit_that_fails_is_named_and_the_others_are_done(tmp_path):
    good = {"do": "optimum", "problem": {"name": "two-point", "horizon": 3}}
    bad = {"do": "optimum", "problem": {"name": "bernoulli-10"}}
    seen = []
    failed = workers.do_all([bad, good], tmp_path, 1, seen.append, lambda *_: None)
    assert [unit for unit, _ in failed] == [bad]
    assert failed[0][1].startswith("InputError: ")
    assert seen == [bad, good]
    assert Store(tmp_path).find(good)["regret"] == pytest.approx(0.26)


def test_a_worker_that_dies_is_told(tmp_path, monkeypatch):
    long = {"iterations": 1_000_000, "batch": 64, "seed": 0, "final": 100}  # of which the first is noted
    unit = {"do": "learn", "problem": {"name": "two-point", "horizon": 10}, "policy": "softelim", **long}

    def kill(*_):
        for process in multiprocessing.active_children():
            process.kill()

    with pytest.raises(RuntimeError, match="perhaps for lack of memory"):
        workers.do_all([unit], tmp_path, 1, lambda _: None, kill)


@pytest.mark.slow
def test_killed_at_twenty_random_moments(small, whole, tmp_path):
    moments = random.Random(0)
    for attempt in range(20):
        out = tmp_path / str(attempt)
        cut_off_and_resumed(small, out, moments.uniform(0, 15))
        assert numbers(out) == numbers(whole[0])


def test_a_run_cut_off_in_the_middle_goes_on_from_its_checkpoint(tmp_path):
    unit = {
        "do": "learn",
        "problem": {"name": "two-point", "horizon": 25},
        "policy": "softelim",
        "recipe": "paper",
        "iterations": 120,
        "batch": 32,
        "seed": 1,
        "evaluation": 64,
        "every": 40,
        "final": 128,
    }
    seen = []

    def note(share, words):
        seen.append(share)
        if stop and len(seen) == 190:
            raise KeyboardInterrupt

    stop = False
    whole = work.carry_out(unit, work.Desk(note, tmp_path / "whole.json"))
    assert [point[0] for point in whole["points"]] == [0, 40, 80, 120]
    seen.clear()
    stop = True
    with pytest.raises(KeyboardInterrupt):
        work.carry_out(unit, work.Desk(note, tmp_path / "draft.json"))
    seen.clear()
    stop = False
    assert work.carry_out(unit, work.Desk(note, tmp_path / "draft.json")) == whole
    assert len(seen) == 240 - 170, "it went on from the last checkpoint"
    (tmp_path / "draft.json").unlink()
    seen.clear()
    assert work.carry_out(unit, work.Desk(note, tmp_path / "draft.json")) == whole
    assert len(seen) == 240, "a checkpoint without its points is not taken"


def test_a_damaged_checkpoint_is_begun_anew(tmp_path):
    unit = {
        "do": "learn",
        "problem": {"name": "two-point", "horizon": 5},
        "policy": "softelim",
        "iterations": 3,
        "batch": 32,
        "seed": 0,
        "evaluation": 64,
        "every": 1,
        "final": 128,
    }
    good = work.carry_out(unit, work.Desk(lambda *_: None, tmp_path / "a.json"))
    for points in ("[[0, 1", json.dumps(good["points"][:2])):
        (tmp_path / "b.safetensors").write_bytes(b"nonsense")
        (tmp_path / "b.json").write_text(points)
        assert work.carry_out(unit, work.Desk(lambda *_: None, tmp_path / "b.json")) == good


@pytest.mark.parametrize(
    ("unit", "find"),
    [
        (
            {
                "do": "learn",
                "problem": {"name": "two-point", "horizon": 10},
                "policy": "softelim",
                "recipe": "algorithm-1",
                "iterations": 5,
                "batch": 64,
                "baseline": "self",
                "seed": 3,
                "evaluation": 64,
                "every": 5,
                "final": 300,
            },
            lambda result: result["regret"]["mean"],
        ),
        (
            {
                "do": "evaluate",
                "problem": {"name": "distractors", "arms": 4, "horizon": 10},
                "policy": "ts",
                "instances": 300,
                "seed": 2,
            },
            lambda result: result["policies"][0]["regret"],
        ),
        (
            {
                "do": "gradient",
                "problem": {"name": "two-point", "horizon": 10, "noise": "independent"},
                "policy": "exp3:theta=0.5",
                "baseline": "self",
                "instances": 300,
                "seed": 0,
            },
            lambda result: result["rows"][0]["gradient"],
        ),
        (
            {"do": "optimum", "problem": {"name": "distractors", "arms": 3, "horizon": 10}},
            lambda result: result["regret"],
        ),
    ],
    ids=lambda value: value["do"] if isinstance(value, dict) else "",
)
def test_the_command_beside_a_number_gives_that_number(unit, find, tmp_path, monkeypatch, run):
    done = work.carry_out(unit, work.Desk(lambda *_: None, tmp_path / "draft.json"))
    monkeypatch.chdir(tmp_path)
    name, *words = command(unit).split()
    assert name == "gradband"
    assert find(json.loads(run(*words, "--json")[1])) == done.get("regret", done.get("gradient"))


def test_what_no_command_can_say_is_a_line_of_python():
    problem = {"name": "two-point", "horizon": 10, "noise": "independent"}
    sizes = {"iterations": 2, "batch": 64, "seed": 3, "final": 50}
    unit = {"do": "learn", "problem": problem, "policy": "softelim", "baseline": "optimal", **sizes}
    python, how, line = shlex.split(command(unit))
    assert (python, how) == ("python", "-c")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(line, {})
    assert ast.literal_eval(printed.getvalue()) == work.carry_out(unit)


@pytest.mark.slow
def test_openings_are_no_better_than_the_optimum():
    desk, there = work.Desk(lambda *_: None, Path()), {"name": "distractors", "arms": 3}
    regrets = [work.opening(desk, there | {"horizon": 40}, arm)["regret"] for arm in (1, 2, 3)]
    best = gb.exact.optimum(gb.problems.named("distractors", horizon=40)).regret
    assert min(regrets[1:]) == pytest.approx(best, abs=1e-6)
    assert regrets[0] > best
    # Known from elsewhere for 200 rounds.
    assert work.opening(desk, there, 1)["regret"] == pytest.approx(1.635, abs=5e-4)


@pytest.mark.parametrize("profile", experiment_files.PROFILES)
def test_the_papers_experiments_are_complete(profile):
    found = experiment_files.wanted(["all"], profile)
    names = [panel.name for experiment in found for panel in experiment.panels]
    wanted = ["fig1a", "fig1b", "fig1c", "fig2a", "fig2b", "fig2c", "fig3a", "fig3b", "fig3c", "table1"]
    assert names[:10] == wanted
    known = {panel.name: panel for experiment in found for panel in experiment.panels}
    for experiment in found:
        for row in experiment.rows:
            panel = known[row["of"]["panel"]]
            curve = row["of"].get("curve")
            assert curve is None or curve in panel.curves
            assert "printed" in row or "says" in row
    for panel in known.values():
        for unit in panel.units().values():
            assert unit["do"] in work.WORK
            assert command(unit)
    if profile == "paper":
        assert known["fig2b"].seeds == known["fig3c"].seeds == tuple(range(10))
        assert (known["fig2b"].iterations, known["fig2b"].batch) == (100, 1000)
        assert known["fig3a"].iterations is None, (
            "the recipe's own: 1000 iterations at each horizon, m = 500"
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[[panels]]", "[[panels]]\nthetaz = 1"), "unknown key of fig1a 'thetaz': did you mean 'thetas'?"),
        (('kind = "regret over theta"', 'kind = "regret"'), "unknown kind of panel 'regret'"),
        (('title = "Regret"', ""), "missing"),
        (("thetas = [0.5, 1.0]", "thetas = 3"), "fig1.toml: "),
        (("thetas =", "other = 1\nthetas ="), "unknown key 'other'"),
        (('name = "fig1a"', 'name = "fig1c"'), "panel names must be unique"),
        (("caption", "caption ="), "is not valid TOML"),
        (("at = 1.0", "at = 0.7"), "unknown at of the row 'none over self' 0.7"),
        (('over = "self"', 'over = "selfish"'), "did you mean 'self'?"),
        (('panel = "fig1c"', 'panel = "fig1x"'), "unknown panel of a row 'fig1x'"),
        (('says = "> 1"', ""), "needs a printed number"),
        (('says = "> 1"', 'says = "more"'), "the row 'none over self' needs reads"),
    ],
)
def test_a_wrong_experiment_is_one_sentence(change, words, tmp_path):
    (tmp_path / "fig1.toml").write_text(SMALL["fig1"].replace(*change, 1))
    with pytest.raises(InputError, match=re.escape(words)):
        experiment_files.wanted(["all"], "quick", folder=tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["fig9"], "unknown experiment or panel 'fig9': did you mean"),
        (["--profile", "slow"], "unknown profile 'slow'"),
        (["--seeds", "3-1"], "seeds must be first-last"),
        (["--jobs", "0"], "jobs must be from 1 to 256, not 0"),
        (["fig1", "--only", "fig2"], "not both"),
        (["--experiments", "nowhere"], "there are no experiment files"),
        ([","], "nothing to reproduce"),
    ],
)
def test_wrong_options_are_one_sentence(options, words, tmp_path, run):
    status, _, errors = run("reproduce", *options, "--out", str(tmp_path / "out"))
    assert status == 2
    assert words in errors
    assert not (tmp_path / "out").exists()


def test_two_at_work_in_a_folder_are_refused(small, tmp_path, run):
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        status, _, errors = run(*words_for(small, tmp_path))
        assert "another gradband reproduce is running" in errors
        assert status == 2


def listed_by(run, small, out):
    """What the command lists."""
    status, told, errors = run(*words_for(small, out, "--list"))
    assert status == 0, errors
    return json.loads(told)


def test_the_list_says_what_is_done(small, whole, run):
    listed = listed_by(run, small, whole[0])
    assert {row["panel"]: row["units"] - row["done"] for row in listed["panels"]}["fig2b"] == 0
    assert listed["minutes_left"] == 0


def test_the_list_counts_once_what_panels_share(small, tmp_path, run):
    listed = listed_by(run, small, tmp_path)
    assert 0 < listed["minutes_left"] < sum(row["minutes"] for row in listed["panels"])


def test_results_of_other_settings_and_damaged_ones_are_not_taken(tmp_path, monkeypatch):
    store, unit = Store(tmp_path), {"do": "optimum", "problem": {"name": "two-point"}}
    store.keep(unit, {"regret": 2.5}, 1.0)
    assert store.find(unit) == {"regret": 2.5, "seconds": 1.0}
    other = {"do": "optimum", "problem": {"name": "two-point", "horizon": 20}}
    assert store.find(other) is None
    store.path(other).write_text(store.path(unit).read_text())
    assert store.find(other) is None
    for damage in (
        "",
        json.dumps({"unit": unit, "result": {}, "seconds": 1.0, "versions": versions()}),
        "{",
        "[]",
        '{"result": 3}',
        '{"unit": 1, "versions": 2, "seconds": "x", "result": {}}',
    ):
        store.path(unit).write_text(damage)
        assert store.find(unit) is None
    store.keep(unit, {"regret": 2.5}, 1.0)
    monkeypatch.setattr("gradband.paper.store.__version__", "99")
    assert store.find(unit) is None


def test_z_scores_and_verdicts():
    assert rows.z_score(4.0, 0.3, 3.0, 0.4) == pytest.approx(2.0)
    assert rows.z_score(4.0, 0.0, 3.0, 0.0) is None
    assert rows.verdict("< 25", Level("", 27.0, 0.5)) == ("disagrees", "does not hold (p = 6e-05)")
    assert rows.verdict("> 0", Level("", 2.0, 0.5), 2) == ("open", "undecided (p = 0.2, 2 runs)")
    assert rows.verdict("> 0", Level("", 2.0, 0.5), 10) == ("agrees", "holds (p = 0.003, 10 runs)")
    assert rows.verdict("> 0", Level("", 2.0, 0.5), 1) == ("open", "one run is not enough to tell")
    assert [rows.of_z(z) for z in (None, -2.9, 3.1)] == ["", "agrees", "disagrees"]


@pytest.mark.parametrize(
    ("what", "value", "verdict"),
    [
        ("variance with b-none over that with b-self, SoftElim at θ = 1", (770.27, 27.05), "agrees"),
        ("variance with b-opt over that with b-self, SoftElim at θ = 1", (2.13, 0.11), "agrees"),
        ("variance with b-none over that with b-opt, Exp3 at θ = 1", (21.14, 0.49), "disagrees"),
        ("variance with b-opt over that with b-self, Exp3 at θ = 1", (11.07, 0.34), "disagrees"),
        ("variance with b-opt over that with b-self, Exp3 at θ = 1", (100.0, 3.0), "agrees"),
        ("variance with b-opt over that with b-self, Exp3 at θ = 1", (33.0, 3.0), "open"),
        ("variance with b-opt over that with b-self, Exp3 at θ = 1", (1000.0, 3.0), "disagrees"),
        ("SoftElim tuned on beta-10", (9.52, 0.05), "agrees"),
        ("SoftElim tuned on beta-10", (8.5, 0.05), "disagrees"),
        ("LSTM on distractors, K = 10 less K = 3", (0.19, 0.03), "disagrees"),
    ],
)
def test_statements_in_words_get_a_verdict(what, value, verdict):
    """As the paper's files read them: numbers of an earlier report, and others."""
    found = {row["what"]: row for e in experiment_files.wanted(["all"], "quick") for row in e.rows}
    assert rows.verdict(found[what].get("reads"), Level("", *value))[0] == verdict


def test_every_row_of_the_paper_can_be_judged(whole):
    for experiment in experiment_files.wanted(["all"], "quick"):
        for row in experiment.rows:
            assert (
                len(row.get("printed", [])) == 2
                or "samples" in row
                or rows.bounds(row.get("reads", row.get("says")))
            )
    kinds = {row["what"]: row["verdict"] for row in whole[1]["rows"]}
    assert set(kinds.values()) <= {"agrees", "disagrees", "open", ""}
    assert kinds["none over self"] == "agrees"
    page = (whole[0] / "report.html").read_text()
    assert re.search(r"Of \d+ statements, \d+ hold", page)
    assert '<span class="good">agrees</span>' in page
    table = list(csv.DictReader(numbers(whole[0]).splitlines()))
    assert {row["verdict"] for row in table if row["what"] == "ours"} == set(kinds.values())


def test_figures_over_theta_have_error_bars(small, whole):
    """Of a panel's curves that are not exact, one bar for each θ, as long as its standard error."""
    found = experiment_files.wanted(["fig1"], "quick", folder=small)
    store = Store(whole[0] / "results")
    for panel in found[0].panels:
        results = {label: store.find(unit) for label, unit in panel.units().items()}
        figure, axis = plt.subplots()
        plots.draw(axis, panel, results)
        bars = [entry for entry in axis.containers if isinstance(entry, ErrorbarContainer)]
        curves = [curve for curve in panel.series(results) if curve.se is not None]
        assert len(bars) == len(curves) == 2
        for bar, curve in zip(bars, curves, strict=True):
            ends = [segment[:, 1] for segment in bar.lines[2][0].get_segments()]
            assert np.ptp(ends, axis=1) / 2 == pytest.approx(curve.se)
        plt.close(figure)


@pytest.mark.parametrize("runs", [2, 3, 5, 10])
@pytest.mark.parametrize("median", [False, True])
def test_the_error_over_runs_is_that_of_normal_samples(runs, median):
    draws = np.random.default_rng(0).normal(5, 2, (runs, 20_000))
    found, se = middle(draws, np.zeros_like(draws), median)
    assert_z(found.mean(), found.std() / len(found[0:]) ** 0.5, 5.0)
    assert np.mean(se) == pytest.approx(found.std(), rel=0.21 if runs == 2 else 0.15)
    _, least = middle(draws, np.full_like(draws, 100.0), median)
    assert least == pytest.approx(np.full(20_000, 100 / runs**0.5))


def test_runs_that_stopped_early_stay_where_they_ended(small):
    panel = {
        p.name: p for e in experiment_files.wanted(["fig2b"], "quick", folder=small) for p in e.panels
    }["fig2b"]
    whole = {"points": [[0, 5.0, 0.1], [20, 4.0, 0.1]], "regret": 3.9, "se": 0.05}
    cut = {"points": [], "regret": 7.0, "se": 0.05, "stopped": "the gradient was not finite"}
    results = {f"{curve} 0": whole for curve in panel.curves} | {
        f"{curve} 1": cut for curve in panel.curves
    }
    curve = panel.curve("b-self", results)
    assert (curve.x, curve.y) == ([0.0, 20.0], [6.0, 5.5])
    assert panel.stopped(results) == 2


def test_the_error_of_a_ratio_of_variances_covers_it():
    unit = {
        "do": "gradient",
        "problem": {"name": "two-point", "horizon": 10},
        "policy": "exp3:theta=0.5",
        "baseline": "none",
        "instances": 2000,
    }
    found = [work.carry_out(unit | {"seed": seed}) for seed in range(40)]
    logs = np.log([row["spread"] for row in found])
    assert np.mean([row["doubt"] for row in found]) == pytest.approx(logs.std(ddof=1), rel=0.4)


def test_pictures_on_a_page_share_no_names_and_take_its_colours(whole):
    page = (whole[0] / "report.html").read_text()
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len({*names})
    for used in re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", page):
        assert (used[0] or used[1]) in names
    assert "#000000" not in page
    assert page.count('role="img"') == 4


def test_names_of_lines_keep_apart():
    places = plots.spread([15.8, 5.0, 15.9, 16.0], 0.5)
    assert min(np.diff(np.sort(places))) >= 0.5 - 1e-9
    assert np.argsort(places).tolist() == [1, 0, 2, 3]
