"""A policy of counts in each group of visitors."""

import json
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from test_export import Session
from test_serve import Api

import gradband as gb
from gradband.core.errors import InputError
from gradband.exact import by_enumeration
from gradband.play.player import Player
from gradband.play.settings import Settings
from gradband.policies import ByGroup, Counting, Counts, Pretrained, SoftElim, binding
from gradband.policies.given import parse_policy
from gradband.policies.onnx import as_onnx
from gradband.policies.policy_file import Learned
from gradband.policies.text import as_text, from_text

pytestmark = pytest.mark.brief
GROUPS, ARMS, ROUNDS = 3, 2, 60
PROBLEM = gb.Problem(gb.priors.Groups(ARMS, GROUPS, a=1, b=3), ROUNDS)


def visitor(group):
    return np.eye(GROUPS)[group]


def learned(text="softelim:theta=0.5"):
    """The policy with the parameters that it starts with."""
    policy = binding.check(parse_policy(f"by-group:policy={text}", PROBLEM), PROBLEM)
    return Learned(policy, policy.init(jax.random.key(0)), {}, {})


def played(player, rounds=30, seed=0):
    """Visitors of random groups, with the counts of each of them [C, K]."""
    rng, pulls, sums = np.random.default_rng(seed), np.zeros((GROUPS, ARMS)), np.zeros((GROUPS, ARMS))
    for _ in range(rounds):
        group = rng.integers(GROUPS)
        arm, reward = player.select(context=visitor(group)), float(rng.random() < 0.5)
        player.update(arm, reward)
        pulls[group, arm] += 1
        sums[group, arm] += reward
    return pulls, sums


@pytest.mark.parametrize("text", ["softelim:theta=0.5", "ts:a=2", "ucb1", "kl-softelim", "bayes-ucb"])
def test_each_group_is_a_test_of_its_own(text):
    """Its probabilities are those of the policy on the group's counts alone."""
    given, own = learned(text), from_text(text).bind(ARMS, ROUNDS // GROUPS)
    player = Player(given, seed=1)
    pulls, sums = played(player)
    params = own.folded({name: np.asarray(leaf, float) for name, leaf in given.params.items()})
    for group in range(GROUPS):
        p = player.probabilities(context=visitor(group))
        wanted = own.probabilities(params, Counts(pulls[group], sums[group]))
        np.testing.assert_allclose(p, wanted, rtol=0, atol=1e-9)


def test_a_group_expects_its_share_of_the_rounds_that_are_left():
    given = learned("pretrained")
    policy, counts = given.policy, np.array([[4.0, 2.0], [10.0, 0.0], [0.0, 0.0]])
    state = policy.begin(given.params, np.int32(0))
    state = state._replace(own=Counts(counts, counts / 2), visits=counts.sum(1))
    for group, share in enumerate((9 / 25, 13 / 25, 3 / 25)):
        seen = policy.see({}, state, visitor(group))
        assert seen.own.left == pytest.approx(1 + (ROUNDS - 17) * share)
        np.testing.assert_array_equal(seen.own.pulls, counts[group])
        # As if a test of this group alone were as long.
        horizon = counts[group].sum() + 1 + (ROUNDS - 17) * share
        alone = Pretrained(a=1.0, b=3.0, arms=ARMS, horizon=horizon)
        params = {name: np.asarray(leaf, float) for name, leaf in given.params.items()}
        np.testing.assert_allclose(
            policy.log_probs(params, seen),
            alone.log_probs(params, Counts(counts[group], counts[group] / 2)),
            rtol=1e-9,
        )


def test_it_takes_the_prior_of_a_group():
    assert as_text(parse_policy("by-group", PROBLEM)) == "by-group:policy=pretrained:b=3.0"
    assert parse_policy("by-group:prior", PROBLEM) == parse_policy("by-group", PROBLEM)
    assert parse_policy("by-group:policy=ts:prior", PROBLEM).core.b == 3
    assert parse_policy("by-group:policy=ts", PROBLEM).core.b == 1
    assert parse_policy("by-group:policy=ts:a=2+b=5", PROBLEM).core.a == 2
    assert parse_policy("by-group").core == Pretrained()
    with pytest.raises(InputError, match="unknown policy 'tss'"):
        parse_policy("by-group:policy=tss")


NESTED = "by-group:policy=" * 2000


@pytest.mark.parametrize("wrong", ["gittins", "exp3", "lin-ts", "lstm", "by-group", NESTED, 3])
def test_only_policies_of_counts_play_in_groups(wrong):
    with pytest.raises(InputError, match="must be one of counts, such as pretrained"):
        ByGroup(policy=wrong)


def test_only_problems_in_groups_are_played():
    few = gb.priors.FiniteContexts([[[0.2, 0.8], [0.8, 0.2]], [[0.8, 0.2], [0.2, 0.8]]])
    assert binding.check(ByGroup(), gb.Problem(few, 10)).dims == 2
    for prior, words in (
        (gb.priors.LinearByArm(2, 3), "which group the visitor belongs to"),
        (gb.priors.Linear(2, 3), "which group the visitor belongs to"),
        (gb.priors.Beta(2), "needs contexts"),
    ):
        with pytest.raises(InputError, match=words):
            binding.check(ByGroup(), gb.Problem(prior, 10))

    def own(shift):
        return gb.priors.Contextual(
            sample=lambda key: jax.random.uniform(key, (GROUPS, ARMS)),
            context=lambda key, means, t: shift + jnp.eye(GROUPS)[t % GROUPS],
            means=lambda means, x: x @ means,
            arms=ARMS,
            dims=GROUPS,
            rewards=gb.rewards.Gaussian(1.0),
        )

    assert own(0.0).in_groups
    assert not own(1.0).in_groups
    assert binding.check(ByGroup(policy="softelim"), gb.Problem(own(0.0), 10)).own.horizon == 4
    with pytest.raises(InputError, match=r"rewards in \[0, 1\]"):
        binding.check(ByGroup(), gb.Problem(own(0.0), 10))


def test_one_group_is_a_problem_without_contexts():
    """Its regret is that of the policy alone, by enumeration."""
    alone = gb.Problem(gb.priors.Finite([[0.2, 0.7], [0.6, 0.3]]), 4)
    grouped = gb.Problem(gb.priors.FiniteContexts([[[0.2, 0.7]], [[0.6, 0.3]]]), 4)

    class Unopened(SoftElim):
        """SoftElim that does not pull each arm once first."""

        name: ClassVar[str] = "unopened"
        opens: ClassVar[bool] = False

    wanted = by_enumeration(Unopened(theta=0.4), alone).reward
    found = gb.evaluate([ByGroup(policy=SoftElim(theta=0.4))], grouped, instances=60_000).rows[0].reward
    assert_z(found.mean, found.se, wanted)


def test_it_is_learned_saved_and_played(tmp_path):
    """The inner policy's recipe learns parameters that all groups share."""
    found = gb.learn("by-group:policy=softelim", PROBLEM, iterations=3, instances=50, progress=False)
    assert found.about["training"]["recipe"] == "gradband"
    assert set(found.params) == {"theta"}
    found.save(tmp_path / "policy.safetensors")
    again = gb.load(tmp_path / "policy.safetensors")
    assert again.policy == found.policy
    assert again.params == found.params
    player = Player(tmp_path / "policy.safetensors", seed=1, journal=tmp_path / "test.jsonl", wait="1h")
    with player:
        played(player)
        state, p = player.state(), player.probabilities(context=visitor(1))
    json.dumps(state, allow_nan=False)
    with Player(again, journal=tmp_path / "test.jsonl") as other:
        assert other.state() == state
        np.testing.assert_array_equal(other.probabilities(context=visitor(1)), p)
    restored = Player(again)
    restored.restore(state)
    assert restored.state() == state
    assert gb.segment_weights(again, {"one": visitor(1).tolist()}, state=state)["one"]["0"] == p[0]


@pytest.mark.parametrize("text", ["softelim:theta=0.5", "pretrained:sharpness=2", "ucb1"])
def test_a_model_takes_the_visitors_features(text):
    """An exported model has the player's probabilities."""
    given, rng = learned(text), np.random.default_rng(0)
    player, session = Player(given, seed=1), Session(as_onnx(given))
    x, arm, reward = np.zeros(GROUPS, np.float32), -1, 0.0
    for _ in range(20):
        shown = visitor(rng.integers(GROUPS)).astype(np.float32)
        p = session.step(arm, reward, x=x, features=shown)
        np.testing.assert_allclose(p, player.probabilities(shown), rtol=0, atol=1e-5)
        arm = player.select(context=shown)
        x, reward = shown, float(rng.random() < 0.3 + 0.1 * arm)
        player.update(arm, reward)
    with pytest.raises(InputError, match="draws samples"):
        as_onnx(learned("ts"))


def test_the_service_decides_as_a_player_does(tmp_path):
    file = tmp_path / "policy.safetensors"
    learned().save(file)
    with Api(tmp_path / "tests.db") as api:
        api.new(file, arms=["red", "blue"])
        player = Player(file, 5, settings=Settings(arms=("red", "blue")))
        for t in range(9):
            body = {"context": visitor(t % GROUPS).tolist()}
            made = api.ok("POST", "/v1/tests/home/decide", body, role="decide")
            arm = player.select(context=body["context"])
            assert (made["id"], made["arm"], made["propensity"]) == (arm.id, arm, arm.propensity)
            given = {"id": made["id"], "reward": t % 2}
            api.ok("POST", "/v1/tests/home/reward", given, role="decide")
            player.update(made["id"], t % 2)
        wrong = {"context": [0.5, 0.5, 0]}
        words = api.refused(422, "POST", "/v1/tests/home/decide", wrong, role="decide")
        assert "a one among zeros" in words


def test_guardrails_hold_in_every_group():
    problem = gb.Problem(PROBLEM.prior, ROUNDS, guardrails={"floor": 0.3})
    row = gb.evaluate(["by-group", "uniform"], problem, instances=400)
    assert 0.5 < row["by-group"].regret.mean / row["uniform"].regret.mean < 1


def test_late_rewards_are_corrected(tmp_path):
    now = [0.0]
    late, prompt = (Player(learned(), seed=1, wait="1h", clock=lambda: now[0]) for _ in range(2))
    for player in (late, prompt):
        arm = player.select("a", context=visitor(2))
        if player is late:
            now[0] += 4000
            player.expire()
        player.update("a", 1.0)
    assert arm == 0 or arm == 1
    np.testing.assert_array_equal(late.memory.state.own.sums, prompt.memory.state.own.sums)
    np.testing.assert_array_equal(late.memory.state.visits, [0, 0, 1])


@pytest.mark.parametrize(
    "wrong", [[0.5, 0.5, 0], [1, 1, 0], [0, 0, 0], [2, 0, 0], [-1, 1, 1], np.eye(ARMS, GROUPS), [1, 0]]
)
def test_other_contexts_are_refused(wrong):
    player = Player(learned(), seed=1)
    with pytest.raises(InputError, match=r"a one among zeros|must have the shape \[3\] \(features of the"):
        player.select(context=wrong)
    assert player.state()["decisions"] == 0


def test_a_changed_context_in_a_journal_or_a_state_is_refused():
    events = []
    player = Player(learned(), seed=1, record=events.append)
    player.select("a", context=visitor(0))
    state = player.state()
    state["open"][0]["x"] = "AAAAPwAAAD8AAAAA"  # halves
    with pytest.raises(InputError, match="are no features for by-group"):
        Player(learned()).restore(state)
    state = player.state()
    state["memory"]["visits"] = [1.0, 0.0, 0.0]
    with pytest.raises(InputError, match="visits in memory"):
        Player(learned()).restore(state)


def test_another_policy_can_take_over():
    player = Player(learned(), seed=1)
    played(player)
    pulls = player.memory.state.own.pulls
    player.swap(learned("pretrained"), "learned again")
    np.testing.assert_array_equal(player.memory.state.own.pulls, pulls)
    assert player.probabilities(context=visitor(0)).sum() == pytest.approx(1)
    with pytest.raises(InputError, match="cannot be swapped"):
        player.swap(parse_policy("ts").bind(ARMS, ROUNDS), "another")
    player.swap(learned("discounted-softelim"), "means may move")
    with pytest.raises(InputError, match="it has forgotten part of its counts"):
        player.swap(learned("pretrained"), "another")


class Own(Counting):
    """A policy of one's own."""

    name: ClassVar[str] = "own-counts"

    def log_probs(self, params, state):
        scores = jnp.asarray(5 * state.means + 1 / (state.pulls + 1))
        return jax.nn.log_softmax(scores)


def test_a_policy_of_ones_own_plays_in_groups(tmp_path):
    given = ByGroup(policy=Own())
    assert gb.evaluate([given], PROBLEM, instances=20).rows[0].regret.mean > 0
    policy = binding.check(given, PROBLEM)
    player = Player(policy, seed=1)
    played(player)
    assert player.probabilities(context=visitor(1)).sum() == pytest.approx(1)
    with pytest.raises(InputError, match="needs a policy of the library, not own-counts"):
        Learned(policy, {}, {}, {}).save(tmp_path / "policy.safetensors")


def test_it_is_a_usual_policy_for_groups():
    assert "by-group" in gb.policies.references.fair(PROBLEM)
