"""What every result has: a data frame, a dictionary, HTML, and a picture where it says more."""

import html.parser
import json
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from conftest import assert_z
from scipy.stats import betabinom
from test_frames import table
from test_gain import MANY, situation

import gradband as gb
from gradband.core import progress, results
from gradband.core.errors import InputError
from gradband.core.files import finite
from gradband.evaluation.compare_with_defaults import HELD_OUT
from gradband.evaluation.gain import Gain
from gradband.problems import fit_figure, past_experiments

pytestmark = pytest.mark.brief

FEW = {"iterations": 2, "instances": 64}
TASK = gb.Problem(gb.priors.Finite([[0.6, 0.4], [0.4, 0.6]]), 10, name="mine & <yours>")
NAME = "<b>ts</b> & co"


@pytest.fixture(scope="module")
def fit():
    return gb.fit(table(15), horizon=20, arms=2, prior="hierarchical")


@pytest.fixture(scope="module")
def found(fit):
    learned = gb.learn("softelim", TASK, **FEW)
    return {
        "comparison": gb.evaluate({NAME: "ts", "learned": learned}, TASK, instances=50),
        "standing": gb.compare({NAME: "ts", "softelim": "softelim"}, TASK, instances=50),
        "learned": learned,
        "estimate": gb.estimate("softelim", TASK, instances=50),
        "optimum": gb.exact.optimum(TASK),
        "fit": fit.chosen,
        "priors": fit.priors,
        "fitted": fit,
        "gain": Gain(
            (
                situation(HELD_OUT, MANY, learned=110.0, ts=100.0),
                situation("as fitted", learned=9.0, ts=8.0),
            )
        ),
        "explanation": gb.explain("softelim", TASK, instances=50),
        "sweep": gb.sweep({NAME: "ts", "softelim": "softelim"}, TASK, learning=FEW, instances=50),
    }


class Checker(html.parser.HTMLParser):
    """Every tag is closed in turn, and only tags of tables are there."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


TAGS = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p", "br"}
ROWS = {"comparison": 2, "standing": 2, "learned": 2, "estimate": 1, "optimum": 1, "fit": 3, "priors": 2}
ROWS |= {"fitted": 2, "gain": 4, "explanation": 3, "sweep": 2}


def test_every_result_can_be_handed_on(found):
    for name, result in found.items():
        frame = result.to_frame()
        assert isinstance(frame, polars.DataFrame), name
        assert len(frame) == ROWS.get(name, len(frame)) > 0, name
        other = result.to_frame("pandas")
        assert isinstance(other, pandas.DataFrame)
        assert list(other.columns) == frame.columns == result.to_frame("pyarrow").column_names, name
        assert isinstance(result.to_frame("pyarrow"), pyarrow.Table)
        json.dumps(finite(result.as_dict()), allow_nan=False)
        assert "\n" not in repr(result)
        assert len(repr(result)) < 400, name


def test_every_result_is_shown_in_notebooks(found):
    for name, result in found.items():
        text = result._repr_html_()
        checker = Checker()
        checker.feed(text)
        assert checker.open == [], name
        assert checker.seen <= TAGS, name
        assert "color:#" not in text, "colours are the page's own, light or dark"
        assert "<b>ts" not in text, "names are escaped"
    assert "&lt;b&gt;ts&lt;/b&gt; &amp; co" in found["comparison"]._repr_html_()


def test_numbers_of_frames_are_those_of_the_results(found):
    frame = found["comparison"].to_frame()
    rows = {row.name: row for row in found["comparison"].rows}
    assert dict(zip(frame["name"], frame["regret"], strict=True)) == {
        n: r.regret.mean for n, r in rows.items()
    }
    standing = found["standing"]
    share = standing.to_frame("pandas").set_index("name")["share"]
    assert share["softelim"] == standing.shares["softelim"].mean
    gain, held = found["gain"].to_frame(), found["gain"].held_out
    row = gain.filter((polars.col("situation") == "held-out experiments") & (polars.col("policy") == "ts"))
    assert row["gain"].item() == held.gain("ts").mean
    assert row["percent_se"].item() == held.percent("ts").se
    learned = found["learned"]
    assert learned.to_frame()["theta"].to_list() == learned.history["params"][:, 0].tolist()
    priors = found["priors"]
    assert found["fitted"].to_frame().equals(priors.to_frame())
    assert priors["pooled"] is [entry for entry in priors if entry.name == "pooled"][0]
    assert priors[0].score.mean == max(entry.score.mean for entry in priors)
    assert len(priors) == 2


def test_pictures_are_drawn_where_one_wants_them(found, monkeypatch):
    monkeypatch.setattr(fit_figure, "INSTANCES", 400)
    for name in ("comparison", "standing", "learned", "fitted", "gain", "explanation", "sweep"):
        figure, axes = plt.subplots(layout="constrained")
        assert found[name].plot(axes) is axes, name
        figure.canvas.draw()
        assert axes.has_data(), name
        plt.close(figure)
        before = set(plt.get_fignums())
        made = found[name].plot()
        own = made[0] if name == "explanation" else made
        assert set(plt.get_fignums()) - before == {own.figure.number}, name
        plt.close(own.figure)
    for name, what in (("learned", "params"), ("fitted", "rates")):
        figure, axes = plt.subplots()
        assert found[name].plot(axes, what=what).has_data()
        plt.close(figure)
    with pytest.raises(InputError, match="unknown picture 'gap': did you mean 'gaps'"):
        found["fitted"].plot(what="gap")
    with pytest.raises(InputError, match="unknown curve 'theta': known: regret, params"):
        found["learned"].plot(what="theta")
    with pytest.raises(InputError, match="optimal-grid has no training curve|has no training curve"):
        found["optimum"].policy.plot()


def test_a_fit_draws_rates_with_the_noise_of_their_pulls(monkeypatch):
    """Of Beta(a, b), in n pulls: the variance of a beta-binomial distribution over n²."""
    monkeypatch.setattr(fit_figure, "INSTANCES", 4000)
    once = past_experiments.Experiments(np.array([0, 2]), np.array([40.0, 40.0]), np.array([3.0, 4.0]))
    rates = fit_figure.simulated(gb.priors.Beta(2, 3.0, 17.0), once, seed=0)
    law = betabinom(40, 3.0, 17.0)
    assert_z(rates.mean(), np.sqrt(law.var() / 40**2 / rates.size), law.mean() / 40)
    centred = (rates - law.mean() / 40) ** 2
    assert_z(centred.mean(), centred.std() / np.sqrt(rates.size), law.var() / 40**2)


def test_a_fit_of_revenue_and_one_of_named_arms_are_drawn():
    rng = np.random.default_rng(0)
    given = {"experiment": np.repeat(np.arange(30), 2), "arm": ["x", "y"] * 30}
    level = np.repeat(rng.normal(5, 1, 30), 2) + rng.normal(0, 0.3, 60)
    paid = given | {"pulls": np.full(60, 500), "mean": level, "variance": np.full(60, 4.0)}
    named = given | {"pulls": np.full(60, 500), "successes": rng.binomial(500, [0.1, 0.3] * 30)}
    found = [gb.fit(paid, horizon=100, unit="€"), gb.fit(named, horizon=100, arms_matter=True)]
    for fit, word in zip(found, ("observed mean (€) of", "observed rate of"), strict=True):
        figure, axes = plt.subplots()
        assert fit.plot(axes).get_xlabel().startswith(word)
        plt.close(figure)
    expected = fit_figure.simulated(found[1].chosen.prior, found[1].experiments, seed=0)
    assert expected.mean(0) == pytest.approx([0.1, 0.3], abs=0.03), "each arm has its own"
    means = fit_figure.simulated(found[0].chosen.prior, found[0].experiments, seed=0).mean(1)
    assert_z(means.mean(), level.std() / np.sqrt(30), level.mean())
    with pytest.raises(InputError, match="no past experiment has 3 arms to draw beside the priors"):
        gb.fit(named, horizon=100, arms=3, prior="pooled").plot()


def test_drawing_leaves_the_backend_alone():
    """Neither drawing on given Axes nor on new ones chooses one; given Axes do not even need pyplot."""
    code = """
import sys, matplotlib
from matplotlib.figure import Figure
from gradband.core import figures
given = Figure().subplots()
assert figures.axes_for(given, (4, 3)) is given
figures.bars(given, [{"name": "ts", "regret": 1.0, "se": 0.1, "share": None}])
assert "matplotlib.pyplot" not in sys.modules
figures.axes_for(None, (4, 3))
print(matplotlib.get_backend())
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"MPLBACKEND": "svg", "PATH": ""}, capture_output=True, text=True
    )
    assert (ran.stdout, ran.stderr) == ("svg\n", "")


def test_a_frame_of_a_library_that_is_missing_is_one_sentence(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="this data frame needs pandas: pip install pandas"):
        found["optimum"].to_frame("pandas")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match=r"gradband\[data\]"):
        found["optimum"].to_frame()
    with pytest.raises(InputError, match="unknown library 'panda': did you mean 'pandas'"):
        results.as_frame([], "panda")


def test_a_gain_needs_experiments_that_were_held_out(tmp_path):
    with pytest.raises(InputError, match="a gain needs what gb.fit returned, or its fitted.toml, not"):
        gb.gain("softelim", TASK)
    (tmp_path / "plain.toml").write_text('horizon = 4\n[prior]\nkind = "beta"\narms = 2\n')
    with pytest.raises(InputError, match="plain.toml has no experiments to measure a gain on"):
        gb.gain("softelim", tmp_path / "plain.toml")


def test_whatever_takes_a_problem_takes_a_fit(fit, tmp_path):
    how = {"instances": 40, "seed": 2}
    problem = gb.problems.load(fit.save(tmp_path)["problem"])
    for use in (
        lambda task: gb.evaluate("softelim", task, **how).rows[0].regret,
        lambda task: gb.sweep("softelim", task, learning=None, instances=40).rows[0].regret,
        lambda task: gb.compare("softelim", task, **how).table.rows[0].regret,
        lambda task: gb.estimate("softelim", task, **how).mean.tolist(),
    ):
        assert use(fit) == use(problem) == use(tmp_path / "fitted.toml")
    with pytest.raises(
        InputError, match="a problem must be a Problem, a fit, a name or a TOML file, not 3"
    ):
        gb.evaluate("ts", 3)


class Terminal:
    """A stream that says it is a terminal, and keeps what is written."""

    encoding = "utf-8"

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True

    def fileno(self):
        raise OSError


def test_long_calls_show_a_bar_in_terminals_only(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "_showing", False)
    gb.evaluate("ts", TASK, instances=50)
    assert capsys.readouterr() == ("", ""), "there is no terminal"
    for call, word in (
        (lambda **how: gb.evaluate("ts", TASK, instances=50, **how), "evaluating"),
        (lambda **how: gb.learn("softelim", TASK, **FEW, **how), "learning"),
        (lambda **how: gb.compare("ts", TASK, instances=50, **how), "comparing"),
        (lambda **how: gb.sweep("ts", TASK, learning=None, instances=50, **how), "sweeping"),
        (lambda **how: gb.explain("softelim", TASK, instances=50, **how), "explaining"),
    ):
        stream = Terminal()
        monkeypatch.setattr("sys.stderr", stream)
        call(progress=False)
        assert stream.text == ""
        call()
        assert word in stream.text
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    progress.silence()
    gb.evaluate("ts", TASK, instances=50)
    assert stream.text == ""


def test_a_notebook_shows_a_bar_below_the_cell(monkeypatch):
    shown = []

    class Handle:
        def update(self, picture):
            shown.append(picture.data)

    class Shell:
        kernel = object()

    from IPython import display

    def show(picture, display_id):
        shown.append(picture.data)
        return Handle()

    monkeypatch.setattr(display, "display", show)
    monkeypatch.setattr("IPython.get_ipython", Shell)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    monkeypatch.setattr(progress, "_showing", False)
    gb.evaluate({NAME: "ts"}, TASK, instances=50)
    assert shown[-1] == "", "it goes away"
    assert shown[-2].startswith('evaluating <progress value="1.0000" max="1"')
    assert "&lt;b&gt;ts" in shown[-2]
    assert not progress._showing


def test_a_function_of_ones_own_hears_of_it():
    heard = []
    gb.compare({"ts": "ts"}, TASK, instances=50, progress=lambda name, share: heard.append(name))
    assert {"ts"} <= set(heard)
    steps = []
    gb.learn("softelim", TASK, **FEW, progress=steps.append)
    assert [step.iteration for step in steps] == [1, 2]
    assert str(steps[1]).startswith("2/2  theta = ")
