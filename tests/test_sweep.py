"""Sweeps over seeds, policies and problems."""

import json
import sys

import numpy as np
import pytest

import gradband as gb
from gradband.core.errors import InputError
from gradband.engine import measure
from gradband.gradient import surrogate
from gradband.policies import SoftElim

pytestmark = pytest.mark.brief

FEW = {"iterations": 2, "instances": 64}
ONE = gb.Problem(gb.priors.Finite([[0.6, 0.4], [0.4, 0.6]]), 10)
OTHER = gb.Problem(gb.priors.Finite([[0.9, 0.4], [0.2, 0.6]]), 10)


@pytest.fixture(scope="module")
def found():
    policies = {"mine": SoftElim(), "flat": "uniform"}
    return gb.sweep(policies, {"one": ONE, "other": OTHER}, seeds=[3, 4], learning=FEW, instances=200)


def test_a_row_is_what_learn_and_evaluate_give(found):
    learned = gb.learn(SoftElim(), OTHER, seed=4, **FEW)
    table = gb.evaluate({"mine": learned, "flat": "uniform"}, OTHER, instances=200, seed=4)
    rows = {row.policy: row for row in found.rows if (row.problem, row.seed) == ("other", 4)}
    assert set(rows) == {"mine", "flat"}
    for name, row in rows.items():
        assert row.regret == table[name].regret
        assert row.reward == table[name].reward
    assert rows["flat"].learned is None
    np.testing.assert_array_equal(rows["mine"].learned.params["theta"], learned.params["theta"])


def test_all_seeds_and_problems_of_a_shape_share_what_is_compiled(found):
    compiled = surrogate.differentiate, measure._play
    before = [function._cache_size() for function in compiled]
    third = gb.Problem(gb.priors.Finite([[0.3, 0.4], [0.2, 0.1]]), 10)
    gb.sweep(["softelim", "uniform"], [ONE, third], seeds=2, learning=FEW, instances=200)
    assert [function._cache_size() for function in compiled] == before


def test_it_is_shown_and_given_as_numbers(found):
    order = [(row.problem, row.seed, row.policy) for row in found.rows]
    assert order == [(p, s, name) for p in ("one", "other") for s in (3, 4) for name in ("mine", "flat")]
    rows = json.loads(json.dumps(found.as_dict()))["rows"]
    assert [row["policy"] for row in rows if row["learned"]] == ["mine"] * 4
    frame = found.to_frame()
    assert frame.shape == (8, 10)
    assert frame["regret"].to_list() == [row.regret.mean for row in found.rows]
    means = [row.regret.mean for row in found.rows if (row.policy, row.problem) == ("mine", "one")]
    both = found.regret("mine", "one")
    assert both.mean == pytest.approx(np.mean(means))
    assert both.se == pytest.approx(abs(means[0] - means[1]) / 2)
    assert repr(found).startswith(f"Sweep(2 seeds: mine on one {both}, flat on one ")
    assert repr(found).endswith(", 1 more)")


def test_names_and_progress():
    told = []
    found = gb.sweep(
        SoftElim(theta=0.5),
        [ONE, ONE, "two-point"],
        learning=None,
        instances=50,
        progress=lambda what, share: told.append((what, share)),
    )
    names = ["finite, 2 arms, 10 rounds", "finite, 2 arms, 10 rounds #2", "two-point"]
    assert [row.problem for row in found.rows] == names
    assert told[-1] == ("softelim on two-point, seed 0", 1.0)
    assert all(row.learned is None for row in found.rows)


def test_what_can_not_be_swept_is_refused(monkeypatch, found):
    for arguments, match in (
        (([], ONE), "no policy"),
        (("ts", []), "no problem"),
        (("ts", ONE, []), "no seed"),
        (("ts", ONE, 0), "seeds"),
    ):
        with pytest.raises(InputError, match=match):
            gb.sweep(*arguments)
    with pytest.raises(InputError, match="seed is an argument of sweep"):
        gb.sweep("softelim", ONE, learning={"seed": 1})
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match=r"gradband\[data\]"):
        found.to_frame()
