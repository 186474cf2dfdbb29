"""What may be given as a policy or a problem, and what objects show of themselves."""

from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband.policies.given import resolve
from gradband.policies.references import fair, with_prior

HORIZON = 20
RARE = gb.Problem(gb.priors.Beta(arms=4, a=1, b=30), horizon=200)


@pytest.fixture(scope="module")
def two_point():
    return gb.problems.named("two-point", horizon=HORIZON)


@pytest.fixture(scope="module")
def learned(two_point):
    policy = gb.policies.SoftElim(theta=0.3).bind(2, HORIZON)
    return gb.Learned(policy, policy.init(jax.random.key(0)), {}, {"problem": two_point.describe()})


@pytest.mark.brief
def test_a_policy_is_a_name_a_list_of_names_a_file_or_a_learned_one(two_point, learned, tmp_path):
    file = tmp_path / "policy.safetensors"
    learned.save(file)
    regrets = {}
    for entry in ("softelim:theta=0.3", gb.policies.SoftElim(theta=0.3), learned, str(file), file):
        table = gb.evaluate(entry, two_point, instances=600)
        (row,) = table.rows
        regrets[row.name] = row.regrets
    assert set(regrets) == {"softelim:theta=0.3", "softelim", "softelim (learned)", str(file)}
    first, *others = regrets.values()
    for other in others:
        np.testing.assert_array_equal(first, other)
    names = gb.evaluate(["softelim", "uniform", "softelim"], two_point, instances=600)
    assert {row.name for row in names.rows} == {"softelim", "softelim #2", "uniform"}
    with pytest.raises(gb.InputError, match="unknown policy 'softelm': did you mean 'softelim'"):
        gb.evaluate("softelm", two_point)
    with pytest.raises(gb.InputError, match="cannot read nothing.safetensors"):
        gb.evaluate("nothing.safetensors", two_point)
    with pytest.raises(gb.InputError, match="needs a problem"):
        resolve("ts:prior")


@pytest.mark.brief
def test_a_learned_policy_is_evaluated_exactly(two_point, learned, tmp_path):
    learned.save(tmp_path / "policy.safetensors")
    other = gb.exact.by_counts(gb.policies.SoftElim(theta=0.3), two_point)
    for entry in (learned, str(tmp_path / "policy.safetensors"), "softelim:theta=0.3"):
        assert gb.exact.by_counts(entry, two_point).reward == pytest.approx(other.reward, rel=1e-7)
    assert gb.exact.by_counts(learned, two_point, {"theta": 1.0}).reward == pytest.approx(
        gb.exact.by_counts("softelim", two_point).reward, rel=1e-12
    )


@pytest.mark.brief
def test_a_problem_file_is_taken_wherever_a_problem_is(learned, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(f"horizon = {HORIZON}\n[prior]\nkind = 'finite'\nmeans = [[0.6, 0.4], [0.4, 0.6]]\n")
    for path in (file, str(file)):
        assert len(gb.evaluate("uniform", path, instances=2).rows) == 1
        assert gb.exact.optimum(path).regret == pytest.approx(gb.exact.optimum(str(file)).regret)
        assert gb.exact.by_counts("softelim", path).regret > 0
        assert gb.explain(learned, path, instances=2, optimal=False).problem.horizon == HORIZON
        assert gb.estimate("softelim", path, instances=2).mean.shape == (1,)
        assert gb.learn("softelim", path, iterations=1, instances=2).policy.horizon == HORIZON


@pytest.mark.brief
def test_what_is_shown_is_one_or_two_lines(two_point, learned):
    table = gb.priors.Table(np.random.default_rng(0).random((40, 3, 50)))
    long = {f"long name of policy {i}": "uniform" for i in range(9)}
    found = gb.exact.optimum(two_point)
    shown = {
        repr(learned): "Learned(softelim, 2 arms, 20 rounds, theta=0.3)",
        repr(gb.priors.Beta(10)): "Beta(arms=10)",
        repr(gb.priors.Beta(2, [1, 2])): "Beta(arms=2, a=[1., 2.])",
        repr(table): "Table(table=array [40, 3, 50], arms=3)",
        repr(two_point): "Problem(prior=Finite(instances=[[0.6, 0.4], [0.4, 0.6]], weights=0.5, arms=2), "
        "horizon=20, name='two-point')",
        repr(found)[:16]: "Optimum(regret 1",
    }
    assert list(shown) == list(shown.values())
    network = gb.policies.LSTM().bind(3, HORIZON)
    many = gb.Learned(network, network.init(jax.random.key(0)), {"regret": np.ones(7)}, {})
    drawn = gb.priors.Drawn.of(gb.priors.Beta(4), 5000, jax.random.key(0))
    compared = gb.evaluate(long, two_point, instances=600)
    seen = gb.explain(learned, two_point, instances=10, optimal=False)
    gradient = gb.estimate("softelim", two_point, instances=600)
    for thing in (many, drawn, found, found.policy, compared, compared.rows[0], seen, gradient):
        assert len(repr(thing)) < 220, repr(thing)
        assert "\n" not in repr(thing)
    assert "7 iterations" in repr(many)


def test_a_repr_of_ones_own_stays():
    import dataclasses

    from gradband.core.pytrees import pytree

    @pytree()
    @dataclasses.dataclass(frozen=True, eq=False)
    class Own(gb.priors.Sampler):
        def __repr__(self):
            return "mine"

    assert repr(Own(lambda key: jax.random.uniform(key, (2,)), arms=2)) == "mine"


# Policies that know the prior


def test_policies_with_the_prior_have_the_regrets_measured_elsewhere():
    """Each of three may be off by 5 standard errors once in 1.7 million; the errors are those of 10 000."""
    table = gb.evaluate(fair(RARE), RARE, instances=6000)
    assert [row.name for row in table.rows] == ["gittins:prior", "gittins", "ts:prior", "ts"]
    for name, value, se in (("gittins:prior", 3.04, 0.033), ("ts", 4.74, 0.027), ("gittins", 3.79, 0.023)):
        assert_z(table[name].regret.mean, table[name].regret.se, value, se)
    ahead = table.difference("gittins", "gittins:prior")
    assert ahead.mean > 5 * ahead.se


@pytest.mark.brief
def test_fair_references_leave_out_what_equals_another_or_can_not_be_played():
    def names(prior, horizon=50, **settings):
        return list(fair(gb.Problem(prior, horizon, **settings)))

    assert names(gb.priors.Beta(3)) == ["ts", "gittins"]
    assert names(gb.priors.Beta(3, 2, 5)) == ["ts", "ts:prior", "gittins", "gittins:prior"]
    assert names(gb.priors.Beta(3, 2, 5), 1000) == ["ts", "ts:prior"]
    assert names(gb.priors.Beta(3, 2, 5), pulls_per_round=10) == ["ts", "ts:prior"]
    assert names(gb.priors.Hierarchical(3, 2, 98, 500)) == ["ts", "ts:prior", "gittins"]
    assert names(gb.priors.Beta(2, [1, 2])) == ["ts", "gittins"]
    assert names(gb.priors.Finite([[0.6, 0.4], [0.4, 0.6]])) == ["ts", "gittins"]
    assert names(gb.priors.Gaussian(3)) == ["ts-gaussian:prior", "gittins-gaussian:prior"]
    assert names(gb.priors.Gaussian(3), pulls_per_round=10) == ["ts-gaussian:prior"]
    beta = gb.priors.Beta(3, rewards=gb.problems.rewards.Beta(4.0))
    assert names(beta) == ["ts", "ts:prior", "gittins", "brezzi-lai-beta:prior"]
    level = with_prior("ts", gb.Problem(gb.priors.Hierarchical(3, 2, 98, 500), 50))
    assert level == gb.policies.HierarchicalTS(a=2.0, b=98.0, strength=500.0)


@pytest.mark.brief
@pytest.mark.parametrize(
    ("name", "prior", "words"),
    [
        ("ucb1", gb.priors.Beta(2), "ucb1 has no prior to set"),
        ("ids", gb.priors.Gaussian(2), r"ids:prior needs rewards in \[0, 1\]"),
        ("gittins", gb.priors.HierarchicalGaussian(2), "share a level: ts-gaussian:prior can use it"),
        ("ts", gb.priors.Finite([[0.6, 0.4]]), "ts:prior can't use a finite prior"),
        ("ts", gb.priors.Beta(2, [1, 2]), "the same beta prior for all arms"),
        ("gittins", gb.priors.Hierarchical(2, 1, 9, 50), "share a level: ts:prior can use it"),
        ("hierarchical-ts", gb.priors.Beta(2), "hierarchical-ts:prior can't use a beta prior"),
    ],
)
def test_a_prior_that_can_not_be_used_is_refused_in_one_sentence(name, prior, words):
    with pytest.raises(gb.InputError, match=words):
        gb.evaluate(f"{name}:prior", gb.Problem(prior, HORIZON), instances=2)


def test_paths_are_taken_as_they_are_written():
    assert resolve("ts") == resolve(gb.policies.ThompsonSampling())
    with pytest.raises(gb.InputError, match="cannot read"):
        resolve(Path("softelim"))
