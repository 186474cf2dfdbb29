"""`gradband reproduce`: experiments as data, work that is done once, and a report of it."""

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband import cli
from gradband.errors import InputError
from gradband.report import plots
from gradband.reproduction import experiments, rows, work
from gradband.reproduction.panels import Level, middle
from gradband.reproduction.store import Store
from gradband.reproduction.unit import command

together = pytest.mark.xdist_group("reproduction")  # of one process, which does the work once
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
title = "LSTM"
policy = "lstm"
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


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder of small experiments."""
    folder = tmp_path_factory.mktemp("experiments")
    for name, text in SMALL.items():
        (folder / f"{name}.toml").write_text(text)
    return folder


def start(small, out, *options):
    """Starts the command in a process of its own."""
    words = [sys.executable, "-m", "gradband", "reproduce", "--json", "--experiments", str(small)]
    return subprocess.Popen(
        [*words, "--out", str(out), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(output)


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """Where all of the small experiments were done without a break, and what the command said."""
    out = tmp_path_factory.mktemp("whole")
    return out, finish(start(small, out))


def numbers(out):
    """All numbers, which must not depend on how often the work was cut off."""
    return (out / "numbers.csv").read_text()


@together
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


@together
def test_nothing_is_done_twice(small, whole):
    out, result = whole
    done = result["units"]["done"]
    before = {path: path.stat().st_mtime_ns for path in (out / "results").glob("*.json")}
    assert len(before) == done
    again = finish(start(small, out, "--only", "fig2b"))
    assert again["units"] == {"done": 0, "found": 6}
    assert before == {path: path.stat().st_mtime_ns for path in (out / "results").glob("*.json")}
    assert 'id="fig3b"' in (out / "report.html").read_text(), "what is finished stays in the report"
    other = finish(start(small, out, "--only", "fig2b", "--seeds", "5-5"))
    assert other["units"] == {"done": 2, "found": 2}, "other seeds are other runs"


def cut_off_and_resumed(small, out, moments):
    """Kills the command's processes at these moments, and lets it finish at last."""
    for moment in moments:
        process = start(small, out)
        time.sleep(moment)
        finished = {path: path.stat().st_mtime_ns for path in out.glob("results/*.json")}
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        for path, when in finished.items():
            assert path.stat().st_mtime_ns == when
    before = {path: path.stat().st_mtime_ns for path in out.glob("results/*.json")}
    result = finish(start(small, out))
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    return result


@together
def test_a_killed_reproduction_ends_with_the_same_numbers(small, whole, tmp_path):
    cut_off_and_resumed(small, tmp_path, [6, 9])
    assert numbers(tmp_path) == numbers(whole[0])
    assert not list((tmp_path / "results" / "unfinished").iterdir())


@together
@pytest.mark.slow
def test_killed_at_twenty_random_moments(small, whole, tmp_path):
    moments = random.Random(0)
    for attempt in range(20):
        out = tmp_path / str(attempt)
        cut_off_and_resumed(small, out, [moments.uniform(0, 25)])
        assert numbers(out) == numbers(whole[0])


def test_a_run_cut_off_in_the_middle_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    unit = {
        "do": "learn",
        "problem": {"name": "two-point", "horizon": 25},
        "policy": "lstm:hidden=8",
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
    assert not list(tmp_path.glob("draft*"))


def test_a_damaged_checkpoint_is_begun_anew(tmp_path):
    unit = {
        "do": "learn",
        "problem": {"name": "two-point", "horizon": 5},
        "policy": "softelim",
        "iterations": 3,
        "batch": 32,
        "seed": 0,
        "final": 128,
    }
    good = work.carry_out(unit, work.Desk(lambda *_: None, tmp_path / "a.json"))
    (tmp_path / "b.safetensors").write_bytes(b"nonsense")
    (tmp_path / "b.json").write_text("[[0, 1")
    assert work.carry_out(unit, work.Desk(lambda *_: None, tmp_path / "b.json")) == good


@pytest.mark.parametrize(
    ("unit", "find"),
    [
        (
            {
                "do": "learn",
                "problem": {"name": "two-point", "horizon": 10, "noise": "independent"},
                "policy": "softelim",
                "iterations": 5,
                "batch": 64,
                "baseline": "optimal",
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
def test_the_command_beside_a_number_gives_that_number(unit, find, tmp_path, monkeypatch, capsys):
    done = work.carry_out(unit, work.Desk(lambda *_: None, tmp_path / "draft.json"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*command(unit).split(), "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    printed = json.loads(capsys.readouterr().out)
    assert find(printed) == done.get("regret", done.get("gradient"))


def test_openings_are_no_better_than_the_optimum():
    desk, there = work.Desk(lambda *_: None, Path()), {"name": "distractors", "arms": 3}
    regrets = [work.opening(desk, there | {"horizon": 40}, arm)["regret"] for arm in (1, 2, 3)]
    best = gb.exact.optimum(gb.problems.named("distractors", horizon=40)).regret
    assert min(regrets[1:]) == pytest.approx(best, abs=1e-6)
    assert regrets[0] > best
    # Known from elsewhere for 200 rounds.
    assert work.opening(desk, there, 1)["regret"] == pytest.approx(1.635, abs=5e-4)


@pytest.mark.parametrize("profile", experiments.PROFILES)
def test_the_papers_experiments_are_complete(profile):
    found = experiments.wanted(["all"], profile)
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
        (('name = "fig1c"', 'name = "fig1a"'), "names of panels must differ"),
        (("caption", "caption ="), "is not valid TOML"),
    ],
)
def test_a_wrong_experiment_is_one_sentence(change, words, tmp_path):
    (tmp_path / "fig1.toml").write_text(SMALL["fig1"].replace(*change, 1))
    with pytest.raises(InputError, match=re.escape(words)):
        experiments.wanted(["all"], "quick", folder=tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["fig9"], "unknown experiment or panel 'fig9': did you mean"),
        (["--profile", "slow"], "unknown profile 'slow'"),
        (["--seeds", "3-1"], "seeds must be first-last"),
        (["--jobs", "0"], "jobs must be from 1 to 256, not 0"),
        (["fig1", "--only", "fig2"], "not both"),
        (["--experiments", "nowhere"], "there are no experiments"),
    ],
)
def test_wrong_options_are_one_sentence(options, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gradband", "reproduce", *options, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@together
def test_two_at_work_in_a_folder_are_refused(small, whole):
    import fcntl

    with (whole[0] / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = start(small, whole[0])
        assert "another gradband reproduce is at work" in process.communicate(timeout=60)[1]
        assert process.returncode == 2


@together
def test_the_list_says_what_is_done(small, whole):
    listed = finish(start(small, whole[0], "--list"))
    assert {row["panel"]: row["units"] - row["done"] for row in listed["panels"]}["fig2b"] == 0


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
        "{",
        "[]",
        '{"result": 3}',
        '{"unit": 1, "versions": 2, "seconds": "x", "result": {}}',
    ):
        store.path(unit).write_text(damage)
        assert store.find(unit) is None
    store.keep(unit, {"regret": 2.5}, 1.0)
    monkeypatch.setattr("gradband.reproduction.store.__version__", "99")
    assert store.find(unit) is None


def test_z_scores_and_verdicts():
    assert rows.z_score(4.0, 0.3, 3.0, 0.4) == pytest.approx(2.0)
    assert rows.z_score(4.0, 0.0, 3.0, 0.0) is None
    assert rows.verdict("< 25", Level("", 27.0, 0.5)) == "does not hold, by 4.0"
    assert rows.verdict("> 0", Level("", 0.5, 0.5)).startswith("not to be told")
    assert rows.verdict("comparable", Level("", 0.5, 0.5)) == "the paper gives no number"


def test_the_error_of_a_median_is_that_of_normal_samples():
    draws = np.random.default_rng(0).normal(5, 2, (4000, 41))
    mean, se = middle(draws.T, median=True)
    truth = np.median(draws, axis=1)
    assert_z(mean.mean(), mean.std() / len(mean) ** 0.5, 5.0)
    assert mean == pytest.approx(truth)
    assert np.mean(se) == pytest.approx(mean.std(), rel=0.05)


@together
def test_pictures_on_a_page_share_no_names_and_take_its_colours(whole):
    page = (whole[0] / "report.html").read_text()
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len({*names})
    for used in re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", page):
        assert used[0] or used[1] in names
    assert "#000000" not in page
    assert page.count('role="img"') == 4


def test_names_of_lines_keep_apart():
    places = plots.spread([15.8, 5.0, 15.9, 16.0], 0.5)
    assert min(np.diff(np.sort(places))) >= 0.5 - 1e-9
    assert np.argsort(places).tolist() == [1, 0, 2, 3]
