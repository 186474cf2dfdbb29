"""`auto`: what it tries, that seed and budget decide, and that it never keeps less than a usual policy."""

import dataclasses
import json
import sys

import numpy as np
import pytest

import gradband as gb
from gradband.cli.main import main
from gradband.core.errors import InputError
from gradband.learning import auto
from gradband.learning.auto import SHORTEST
from gradband.problems.symmetry import arms_are_alike

pytestmark = pytest.mark.brief

SHORT = gb.Problem(gb.priors.Beta(5), 20)
DIFFER = gb.Problem(gb.priors.Finite([[0, 0.8, 0.5], [0.3, 0.5, 0.8]]), 30)


def only(**iterations):
    """Candidates in place of the usual ones."""
    found = [auto.Candidate(name, 1.0, length) for name, length in iterations.items()]
    return lambda problem, budget: (found, {"index": "would take too long"})


def test_budgets_are_parsed():
    known = {"auto": 120, "auto:90s": 90, "auto:2 min": 120, "auto:budget=1.5h": 5400, "softelim": None}
    assert {text: auto.parse_auto(text) for text in known} == known
    assert auto.parse_auto(gb.policies.SoftElim()) is None
    for wrong in ("auto:2", "auto:fast", "auto:1s", "auto:25h", "auto:-2min"):
        with pytest.raises(InputError, match="a time from 5s to 24h"):
            gb.learn(wrong, SHORT)


def test_the_problem_and_the_budget_decide_what_is_tried():
    def names(problem, budget=120.0):
        return [each.name for each in auto.candidates(problem, budget)[0]]

    assert names(SHORT) == ["beta-softelim", "kl-softelim", "softelim", "index"]
    assert names(DIFFER)[-1] == "index-by-arm"
    assert names(gb.Problem(gb.priors.Gaussian(3), 50)) == ["softelim"]
    moving = gb.Problem(gb.priors.Drifting(gb.priors.Beta(3), walk=1.0), 50)
    assert names(moving)[0] == "discounted-kl-softelim"
    ten = gb.problems.named("bernoulli-10")
    lengths = [auto.candidates(ten, budget)[0][-1].iterations for budget in (100.0, 150.0, 3600.0)]
    assert SHORTEST < lengths[0] < lengths[1] < 600
    assert lengths[2] is None  # those of the recipe
    few, left_out = auto.candidates(ten, 20.0)
    assert [each.name for each in few] == ["beta-softelim"]
    assert set(left_out) == {"kl-softelim", "softelim", "index"} - {each.name for each in few}
    teacher = auto.candidates(SHORT, 120.0)[0][-1].imitate
    assert isinstance(teacher, gb.policies.Gittins)


@pytest.mark.parametrize(
    ("prior", "alike"),
    [
        (gb.priors.Beta(4), True),
        (gb.priors.Beta(2, a=[1, 2], b=[1, 2]), False),  # the same means, other variances
        (gb.priors.Finite([[1, 0], [0, 1]]), True),
        (gb.priors.Finite([[1, 0], [0, 1]], [0.6, 0.4]), False),
        (gb.priors.Finite([[0, 0.8, 0.5], [0.3, 0.5, 0.8]]), False),
        (gb.priors.Gaussian(3), True),
        (gb.problems.named("distractors", arms=4).prior, False),
    ],
    ids=str,
)
def test_a_prior_treats_arms_alike_or_not(prior, alike):
    assert arms_are_alike(gb.Problem(prior, 10)) == alike


def test_a_usual_policy_is_kept_where_nothing_learned_is_better(monkeypatch, tmp_path):
    """One step of SoftElim cannot reach Gittins on five arms and 20 rounds, by its form."""
    monkeypatch.setattr(auto, "candidates", only(softelim=1))
    found = gb.learn("auto", SHORT)
    about = found.about["auto"]
    assert (about["chosen"], found.policy.name) == ("gittins", "gittins")
    assert "nothing learned is kept" in about["why"]
    regrets = [row["regret"] for row in about["tried"]]
    assert regrets == sorted(regrets)
    assert {row["name"] for row in about["tried"]} == {
        "softelim, learned",
        "ts",
        "gittins",
        "ucb1",
    }
    assert all(row["seconds"] > 0 and row["se"] > 0 for row in about["tried"])
    found.save(tmp_path / "policy.safetensors")
    again = gb.load(tmp_path / "policy.safetensors")
    assert again.about["auto"]["why"] == about["why"]
    player = gb.Player(tmp_path / "policy.safetensors", seed=1)
    assert player.probabilities().sum() == pytest.approx(1)


def test_the_pretrained_policy_is_a_usual_one_where_there_are_no_gittins_indices():
    law = gb.problems.rewards.Beta(4.0)
    for problem, has in (
        (SHORT, False),
        (gb.Problem(gb.priors.Beta(5), 2000), True),
        (gb.Problem(gb.priors.Beta(5), 20, pulls_per_round=5), True),
        (gb.Problem(gb.priors.Beta(5, rewards=law), 20), True),
        (gb.Problem(gb.priors.Drifting(gb.priors.Beta(5), walk=0.5), 20), False),
    ):
        assert ("pretrained" in auto.usual_policies(problem, None)) == has


def test_a_seed_decides_and_resuming_changes_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(auto, "candidates", only(**{"beta-softelim": 2, "softelim": 2}))
    how = {"checkpoint": tmp_path / "checkpoint.safetensors", "seed": 3}
    whole = gb.learn("auto", SHORT, seed=3)
    steps = []

    def stop(step):
        steps.append((step.name, step.share))
        if len(steps) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gb.learn("auto", SHORT, **how, checkpoint_every=1, progress=stop)
    assert [name for name, _ in steps] == ["beta-softelim", "beta-softelim", "softelim"]
    assert [share for _, share in steps] == [0.25, 0.5, 0.75]
    again = gb.learn("auto", SHORT, **how, checkpoint_every=1, resume=True)
    assert again.policy == whole.policy
    assert all((again.params[name] == whole.params[name]).all() for name in whole.params)
    pairs = zip(again.about["auto"]["tried"], whole.about["auto"]["tried"], strict=True)
    assert all(one["regret"] == other["regret"] for one, other in pairs)


def test_the_command_tells_what_was_tried(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(auto, "candidates", only(**{"beta-softelim": 2}))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["gradband", "learn", "mine.toml", *words, "--compare-on", "500"])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr()

    (tmp_path / "mine.toml").write_text("horizon = 20\n[prior]\nkind = 'beta'\narms = 5\n")
    code, said = run("--policy", "auto", "--json")
    result = json.loads(said.out)
    assert code == 0
    assert result["auto"]["chosen"] in ("beta-softelim, learned", "gittins")
    assert (tmp_path / "runs" / "mine-auto" / "policy.safetensors").exists()
    code, said = run("--policy", "auto")
    assert "Tried by auto" in said.out
    assert "index was left out: it would take too long." in said.out
    for words in (["--iterations", "3"], ["--recipe", "gradband"], ["--imitate", "gittins"]):
        code, said = run("--policy", "auto", *words)
        assert code == 2
        assert "does not apply to auto" in said.err


@pytest.mark.slow
def test_auto_does_well_where_defaults_failed():
    """Never worse than the best usual policy, and close to the optimum where that is known."""
    sure = gb.Problem(gb.priors.Finite([[1.0, 0.0], [0.0, 1.0]]), 10)
    for problem, most in ((sure, 0.51), (DIFFER, 1.30), (SHORT, 2.45)):
        learned = gb.learn("auto", problem)
        usual = auto.usual_policies(problem, None)
        table = gb.evaluate({"auto": learned, **usual}, problem, instances=20_000, seed=5)
        assert table["auto"].regret.mean < most
        above = min((table.difference("auto", name) for name in usual), key=lambda gap: -gap.mean)
        assert above.mean < 2 * above.se


def test_index_by_arm_starts_as_the_index_network_and_can_tell_arms_apart():
    policy, plain = (
        kind(hidden=8).bind(3, 30) for kind in (gb.policies.IndexByArm, gb.policies.IndexNetwork)
    )
    start, theirs = policy.as_arrays(_plain(policy)), plain.as_arrays(_plain(plain))
    counts = gb.policies.Counts(np.array([3.0, 1.0, 0.0]), np.array([2.0, 0.0, 0.0]))
    assert policy.log_probs(start, counts) == pytest.approx(plain.log_probs(theirs, counts))
    moved = start | {"w2": start["w2"] + 1.0}
    same = gb.policies.Counts(np.full(3, 2.0), np.full(3, 1.0))
    assert np.ptp(policy.log_probs(moved, same)) > 0.01
    assert np.ptp(plain.log_probs(theirs | {"w2": theirs["w2"] + 1.0}, same)) < 1e-12
    assert dataclasses.replace(policy, arms=4).specs()["w0"].shape == (8, 12)


def _plain(policy):
    import jax

    return {name: np.asarray(leaf) for name, leaf in policy.init(jax.random.key(0)).items()}
