"""The verdict on what was learned: in words and numbers, for any rows."""

import numpy as np
import pytest

from gradband import problems
from gradband.evaluation.evaluate import Comparison, Row
from gradband.evaluation.verdict import Verdict

PROBLEM = problems.named("two-point", horizon=20)
NOISE = np.random.default_rng(0).normal(size=1000)


def verdict(policy="softelim", **levels):
    """Of rows with these mean regrets; differences have a standard error of about .03."""
    rng = np.random.default_rng(1)
    rows = [
        Row(name.replace("_", ":"), 10 + level + NOISE + rng.normal(size=1000), -NOISE, 0.0)
        for name, level in levels.items()
    ]
    table = Comparison(tuple(sorted(rows, key=lambda row: row.regret.mean)))
    return Verdict.of(table, policy, "learned", "before")


def test_better_than_all():
    found = verdict(learned=0, before=2, ts=1)
    words = found.in_words(PROBLEM)
    assert "better than before: learning saves 2.0" in words
    assert "It is better than ts (" in words
    assert "instead" not in words
    against = found.in_numbers()
    assert [against[name]["verdict"] for name in ("before", "ts")] == ["better", "better"]
    assert against["ts"]["saves"] == pytest.approx(1, abs=5 * against["ts"]["se"])


def test_learning_that_changed_nothing_is_called_so_and_what_to_use_is_named():
    words = verdict(learned=0, before=0, ts=1, gittins_prior=-1).in_words(PROBLEM)
    assert "Learning made no difference beyond noise" in words
    assert "It is better than ts (" in words
    assert "It is worse than gittins:prior (" in words
    assert "Use gittins:prior instead, or try --policy kl-softelim, --policy index" in words


def test_a_start_that_was_kept_is_called_so():
    regrets = 10 + NOISE
    table = Comparison((Row("learned", regrets, regrets, 0.0), Row("before", regrets, regrets, 0.0)))
    words = Verdict.of(table, "softelim", "learned", "before").in_words(PROBLEM)
    assert "Learning changed nothing: it found nothing better than its start" in words


@pytest.mark.parametrize(("change", "told"), [(1.0, "better than before"), (-1.0, "worse than before")])
def test_a_difference_without_noise_is_one(change, told):
    rows = Row("learned", 10 + NOISE, NOISE, 0.0), Row("before", 10 + NOISE + change, NOISE, 0.0)
    words = Verdict.of(Comparison(rows), "softelim", "learned", "before").in_words(PROBLEM)
    assert told in words


def test_differences_that_cancel_are_noise():
    signs = np.where(np.arange(1000) % 2, 1.0, -1.0)
    rows = Row("learned", np.full(1000, 10.0), signs, 0.0), Row("before", 10 + signs, signs, 0.0)
    words = Verdict.of(Comparison(rows), "softelim", "learned", "before").in_words(PROBLEM)
    assert "Learning made no difference beyond noise" in words


def test_networks_are_told_of_imitation_where_it_exists():
    assert "--imitate gittins" in verdict("lstm", learned=1, before=2, ts=0).in_words(PROBLEM)
    batches = problems.named("two-point", horizon=20).replace(pulls_per_round=5)
    assert "--imitate" not in verdict("index", learned=1, before=2, ts=0).in_words(batches)


def test_without_references_there_is_still_a_verdict():
    found = verdict(learned=3, before=2)
    assert "worse than before" in found.in_words(PROBLEM)
    assert found.in_numbers()["before"]["verdict"] == "worse"


def test_with_contexts_a_policy_that_suits_them_is_named():
    for name, wanted in (("signs", "directed-softelim, "), ("groups", "by-group, ")):
        words = verdict("lin-softelim", learned=1, before=2, ts=0).in_words(problems.named(name))
        assert f"or try --policy {wanted}more instances" in words
        suited = wanted.partition(",")[0]
        best = verdict(suited, learned=1, before=2, ts=0).in_words(problems.named(name))
        assert "or try more instances" in best
