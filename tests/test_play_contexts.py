"""Players of policies with contexts: features, late rewards, journals, arms that come and go."""

import base64
import dataclasses
import json
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from every_policy import CONTEXTUAL, learned
from test_context_fit import past

import gradband as gb
from gradband.cli.weights import weights
from gradband.play.events import check_event
from gradband.play.playable import Playable
from gradband.play.player import Player
from gradband.play.service import respond
from gradband.policies import LinSoftElim, SoftElim

pytestmark = pytest.mark.brief
ARMS, DIMS = 4, 3
PRIOR = {"mean": 0.2, "within": 0.8, "sd": 0.5}
THETA = np.array([1.0, 0.0, -1.0])


def linear(arms=ARMS, dims=DIMS, a=0.7, **settings):
    policy = LinSoftElim(dims=dims, **(PRIOR | settings)).bind(arms, 100)
    return Playable(policy, {"a": np.array(a)})


def by_arm(arms=ARMS):
    return linear(arms, model="by-arm")


def contexts(seed=0, arms=ARMS, dims=DIMS):
    """Features that single precision holds exactly."""
    rng = np.random.default_rng(seed)
    while True:
        yield rng.integers(-64, 65, (arms, dims)) / 32


def solved(rows, rewards, dims=DIMS):
    """The posterior of θ: mean and covariance, by solving the normal equations."""
    x, r = np.reshape(rows, (-1, dims)), np.asarray(rewards)
    precision = np.eye(dims) / PRIOR["within"] ** 2 + x.T @ x / PRIOR["sd"] ** 2
    right = PRIOR["mean"] / PRIOR["within"] ** 2 * np.ones(dims) + x.T @ r / PRIOR["sd"] ** 2
    return np.linalg.solve(precision, right), np.linalg.inv(precision)


def check_belief(player, rows, rewards):
    mean, covariance = solved(rows, rewards)
    belief = player.memory.state
    np.testing.assert_allclose(belief.mean, mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(belief.root @ belief.root.T, covariance, rtol=0, atol=1e-9)


@pytest.mark.parametrize("late", [1, 7])
def test_a_player_believes_what_the_normal_equations_say(late):
    """Rewards may come late and in any order; probabilities are the formula's."""
    player, rng, rows, rewards = Player(linear(), seed=1), np.random.default_rng(2), [], []
    shown = contexts()
    for _ in range(6):
        waiting = []
        for _ in range(late):
            x = next(shown)
            mean, covariance = solved(rows, rewards)
            gaps = (x @ mean).max() - x @ mean
            weights = np.exp(-(gaps**2) / (0.49 * np.einsum("ki,ij,kj->k", x, covariance, x)))
            p = player.probabilities(context=x)
            np.testing.assert_allclose(p, weights / weights.sum(), rtol=0, atol=1e-9)
            arm = player.select(context=x)
            assert arm.propensity == p[arm]
            waiting.append((arm, x[arm]))
        for place in rng.permutation(late):
            arm, x = waiting[place]
            rewards.append(float(x @ THETA + rng.normal()))
            rows.append(x)
            player.update(arm, rewards[-1])
        check_belief(player, rows, rewards)


def test_an_arms_own_belief_learns_from_its_own_rewards():
    player, rng = Player(by_arm(), seed=1), np.random.default_rng(2)
    seen = {arm: ([], []) for arm in range(ARMS)}
    for t in range(20):
        visitor = rng.integers(-64, 65, DIMS) / 32
        every = np.tile(visitor, (ARMS, 1))
        np.testing.assert_array_equal(player.probabilities(visitor), player.probabilities(every))
        arm = player.select(context=visitor if t % 2 else every)
        player.update(arm, float(t % 3))
        seen[int(arm)][0].append(visitor)
        seen[int(arm)][1].append(t % 3)
    for arm, (rows, rewards) in seen.items():
        np.testing.assert_allclose(player.memory.state.mean[arm], solved(rows, rewards)[0], atol=1e-9)


def shared(**settings):
    return linear(model="by-arm", exclusive=0.5, hinges=2, **settings)


def test_rewards_that_exclude_each_other_tell_of_all_arms(tmp_path):
    """Late rewards too: a decision keeps the visitor's features, which are those of all arms."""
    path, playable = tmp_path / "journal.jsonl", shared()
    policy, state = playable.policy, playable.begin(0.5)
    with Player(playable, seed=1, journal=path) as player:
        for visitor in np.random.default_rng(2).integers(-64, 65, (10, 2, DIMS)) / 32:
            arms = [player.select(context=x) for x in visitor]
            for arm, x, reward in zip(arms[::-1], visitor[::-1], (1.0, 0.0), strict=True):
                player.update(arm, reward)
                seen = policy.see(playable.params, state, x)
                state = policy.update(playable.params, seen, np.int64(arm), reward)
        np.testing.assert_array_equal(player.memory.state.mean, state.mean)
        np.testing.assert_array_equal(player.memory.state.root, state.root)
        wanted = player.state()
    with Player(playable, journal=path) as again:
        assert again.state() == wanted
    with pytest.raises(gb.InputError, match=r"must have the shape \[3\] .*, not \[4, 3\]"):
        Player(playable).select(context=np.ones((ARMS, DIMS)))


def test_features_are_given_by_name_or_number_or_in_order():
    player = Player(linear(), arms=["red", "blue", "green", "black"])
    x = next(contexts())
    wanted = player.weights(x)
    names = ("black", "red", "green", "blue")
    for given in (x.tolist(), {name: x[player.labels.index(name)].tolist() for name in names}):
        assert player.weights(given) == wanted
    assert player.weights({i: x[i] for i in range(ARMS)}) == wanted
    assert player.recommend(x) == max(range(ARMS), key=lambda arm: x[arm].sum())


WRONG = (
    (None, r"needs a context: features of the shape \[4, 3\]"),
    ([1.0, 2.0, 3.0], r"must have the shape \[4, 3\] .*, not \[3\]"),
    (np.ones((3, 3)), r"not \[3, 3\]"),
    ([[1, 2, 3]] * 3 + [[1, 2]], "must be numbers, equally many for each arm"),
    ([["1"] * 3] * 4, "must be numbers"),
    ([[None] * 3] * 4, "must be numbers"),
    ("red", "must be numbers"),
    (7, r"not \[\]"),
    (np.full((4, 3), np.nan), "finite"),
    (np.full((4, 3), 1e39), "finite"),
    ([[10**400] * 3] * 4, "must be numbers"),
    ({"0": [1, 2, 3]}, "lacks features of the arm '1'"),
    ({"pink": [1, 2, 3]}, "'pink', which is not an arm"),
)


@pytest.mark.parametrize(("context", "says"), WRONG)
def test_wrong_contexts_are_refused_and_nothing_is_lost(context, says):
    player = Player(linear(), seed=1)
    player.select(context=next(contexts()))
    before = player.state()
    for ask in (player.select, player.probabilities, player.weights, player.recommend):
        with pytest.raises(gb.InputError, match=says):
            ask(context=context)
    assert player.state() == before


def test_contexts_are_for_policies_that_take_them():
    player = Player(Playable(SoftElim().bind(ARMS, 100), {"theta": np.array(1.0)}))
    with pytest.raises(gb.InputError, match="softelim takes no context"):
        player.select(context=next(contexts()))
    with pytest.raises(gb.InputError, match="no batches"):
        Player(linear()).select_many(10)
    with pytest.raises(gb.InputError, match="needs dims"):
        linear(dims=0)
    with pytest.raises(gb.InputError, match="at most 10,000,000 can be played"):
        linear(arms=1000, dims=1000, model="by-arm")


def played(player, rounds=40, seed=3, arms=ARMS):
    """Decides and rewards, some of them late, some never."""
    rng, shown, waiting = np.random.default_rng(seed), contexts(seed, arms), []
    for t in range(rounds):
        x = next(shown)
        unit = {"unit": f"user-{t % 11}"} if t % 3 == 0 else {}
        arm = player.select(context=x, **unit)
        waiting.append((arm.id, float(x[arm] @ THETA + rng.normal())))
        if t % 5 == 4:
            for id, reward in reversed(waiting[:4]):
                if player.waits(id):
                    player.update(id, reward)
            waiting = waiting[4:]


def test_a_restored_player_goes_on_in_the_same_way():
    player, other = Player(linear(), seed=5, wait="1h"), Player(linear(), seed=6, wait="1h")
    played(player)
    state = json.loads(json.dumps(player.state()))
    assert {len(base64.b64decode(made["x"])) for made in state["open"]} == {4 * DIMS}
    other.restore(state)
    assert other.state() == player.state()
    other.clock = player.clock = lambda: player.time
    for each in (player, other):
        played(each, seed=4)
    assert other.state() == player.state()


def test_a_journal_leads_to_the_same_state_bit_for_bit(tmp_path):
    for model in ("linear", "by-arm"):
        playable, path = linear(model=model), tmp_path / f"{model}.jsonl"
        with Player(playable, seed=7, journal=path, wait="1h") as player:
            played(player)
            wanted = player.state()
        with Player(playable, journal=path, compact_every=10) as again:
            assert again.state() == wanted
            played(again, seed=8)
            wanted = again.state()
        assert len(list(tmp_path.glob(f"{model}.jsonl.0*"))) > 1  # older files
        with Player(playable, journal=path) as again:
            assert again.state() == wanted
        with path.open("ab") as file:
            file.write(b'{"op":"select","id":"#9')
        with Player(playable, journal=path) as again:
            assert again.state() == wanted


def test_an_event_has_all_features_and_exact_propensities():
    told = []
    player, x = Player(linear(), seed=1, record=told.append), next(contexts())
    arm = player.select(context=x)
    (event,) = told
    found = np.frombuffer(base64.b64decode(event["xs"]), "<f4").reshape(ARMS, DIMS)
    np.testing.assert_array_equal(found, x)
    assert event["p"] == arm.propensity == Player(linear()).probabilities(x)[arm]
    assert "xs" not in player.state()["open"][0]


def events_of(tmp_path, playable):
    """A header and a decision that a journal may begin with."""
    path = tmp_path / "first.jsonl"
    told = []
    with Player(playable, seed=1, journal=path, record=told.append) as player:
        player.select(context=next(contexts()))
    return path.read_bytes().splitlines(keepends=True)[0], told[0]


def test_hostile_journals_are_refused(tmp_path):
    playable = linear()
    first, event = events_of(tmp_path, playable)
    numbers = np.ones(ARMS * DIMS, "<f4")
    packed = base64.b64encode(numbers.tobytes()).decode()
    changes = [
        {"xs": None},
        {"xs": 7},
        {"xs": packed[:-4]},
        {"xs": packed + packed},
        {"xs": "*" * len(packed)},
    ]
    changes += [
        {"xs": "é" * len(packed)},
        {"xs": [1.0] * 12},
        {"x": packed[:16]},
        {"xs": "AACAfw" * 10 + "AACA"},
    ]
    for place, value in ((0, np.nan), (5, np.inf)):
        wrong = numbers.copy()
        wrong[place] = value
        changes.append({"xs": base64.b64encode(wrong.tobytes()).decode()})
    body = json.loads(first)
    before = int(body.pop("crc"), 16)
    for number, change in enumerate([{}, *changes]):
        text = json.dumps(event | change, separators=(",", ":")).encode()
        line = text[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(text, before)
        path = tmp_path / f"hostile-{number}.jsonl"
        path.write_bytes(first + line)
        if not change:
            Player(playable, journal=path).close()
            continue
        with pytest.raises(gb.InputError, match="line 2: "):
            Player(playable, journal=path)
    softelim = Playable(SoftElim().bind(ARMS, 100), {"theta": np.array(1.0)})
    with pytest.raises(gb.InputError, match="is not a context for softelim"):
        check_event(Player(softelim), event)


def test_states_with_wrong_features_are_refused():
    player = Player(linear(), seed=1, wait="1h", clock=lambda: 1e9)
    player.select(context=next(contexts()))
    player.clock = lambda: 2e9
    player.select(context=next(contexts()))
    state = player.state()
    assert [len(state[name]) for name in ("open", "finished")] == [1, 1]
    for name in ("open", "finished"):
        for x in (None, "AAAA", "AADAfwAAwH8AAMB/", 3):
            (made,) = state[name]
            with pytest.raises(gb.InputError, match="no features for"):
                Player(linear()).restore(state | {name: [made | {"x": x}]})
        with pytest.raises(gb.InputError, match="no features for"):
            Player(linear()).restore(state | {name: [made | {"xs": made["x"]}]})
    memory = state["memory"]
    for wrong in ({"mean": [0.0] * 4}, {"root": [[1.0] * 3] * 2}, {"rewards": 99}):
        with pytest.raises(gb.InputError, match="memory"):
            Player(linear()).restore(state | {"memory": memory | wrong})


def test_a_late_reward_corrects_the_default_exactly():
    now = [1000.0]
    player = Player(linear(), seed=1, wait=60, clock=lambda: now[0])
    shown, rows, ids = contexts(), [], []
    for _ in range(5):
        x = next(shown)
        arm = player.select(context=x)
        rows.append(x[arm])
        ids.append(arm.id)
    now[0] += 100
    assert player.expire() == 5
    check_belief(player, rows, np.zeros(5))
    player.update(ids[3], 2.5)
    player.update(ids[0], -1.0)
    check_belief(player, rows, [-1.0, 0, 0, 2.5, 0])
    again = Player(linear(), seed=1)
    again.restore(player.state())
    again.update(ids[1], 1.5)
    check_belief(again, rows, [-1.0, 1.5, 0, 2.5, 0])
    own = Player(by_arm(), seed=1, wait=60, clock=lambda: now[0])
    arm = own.select(context=rows[0])
    now[0] += 100
    own.expire()
    own.update(arm, 2.0)
    np.testing.assert_allclose(own.memory.state.mean[arm], solved(rows[:1], [2.0])[0], atol=1e-9)


@pytest.mark.parametrize("playable", [linear(link="logistic"), shared()], ids=["logistic", "exclusive"])
def test_a_belief_that_cannot_be_corrected_keeps_its_default_and_takes_rewards_of_0_to_1(playable):
    now = [1000.0]
    player = Player(playable, seed=1, wait=60, clock=lambda: now[0])
    x = next(contexts())
    arm = player.select(context=x if playable.policy.takes_arms else x[0])
    with pytest.raises(gb.InputError, match=r"in \[0, 1\]"):
        player.update(arm, 2.0)
    now[0] += 100
    player.expire()
    with pytest.raises(gb.InputError, match="cannot take back"):
        player.update(arm, 1.0)


def test_a_unit_keeps_its_arm_whatever_the_context():
    player, shown = Player(linear(), seed=1), contexts()
    first = player.select(unit="u", context=next(shown))
    for context in (next(shown), None, "anything"):
        again = player.select(unit="u", context=context)
        assert (again.id, int(again), again.returning) == (first.id, int(first), True)
    assert player.select(first.id) == first
    assert "x" not in player.pending.units["u"]


def test_guardrails_hold_in_every_context():
    player = Player(linear(a=0.01), seed=1, floor=0.05, control=2, control_share=0.3, cap=0.6)
    for _, x in zip(range(50), contexts(), strict=False):
        p = player.probabilities(x)
        assert p.sum() == pytest.approx(1, abs=1e-12)
        assert p.min() >= 0.05
        assert p[2] >= 0.3
        assert p.max() <= 0.6 + 1e-12
        arm = player.select(context=x)
        assert arm.propensity == p[arm]
        player.update(arm, float(x[arm] @ THETA))


def test_arms_with_features_come_and_go():
    """As many arms as features: what is believed of θ is not taken for what is known of arms."""
    player, rng = Player(linear(arms=3), seed=1), np.random.default_rng(1)
    rows, rewards = [], []

    def learn(arm, x):
        rewards.append(float(rng.normal()))
        rows.append(x)
        player.update(arm, rewards[-1])
        check_belief(player, rows, rewards)

    x = next(contexts(1, 3))
    late = player.select(context=x)
    player.add_arm("new")
    wide = next(contexts(2, 4))
    arm = player.select(context=wide)
    learn(arm, wide[arm])
    player.retire(int(late))
    learn(late, x[late])  # it tells of θ, although the arm is gone
    left = [arm for arm in range(4) if arm != late]
    with pytest.raises(gb.InputError, match=r"\[3, 3\]"):
        player.select(context=wide)
    arm = player.select(context=wide[left])
    assert int(arm) in left
    restored = Player(linear(arms=3))
    restored.restore(player.state())
    assert restored.state() == player.state()
    learn(arm, wide[arm])
    names = {player.labels[arm]: wide[arm].tolist() for arm in range(4)}
    assert player.weights(names) == player.weights(wide[left])  # features of retired arms are ignored
    assert player.probabilities(names)[late] == 0


def test_arms_with_beliefs_of_their_own_stay():
    player = Player(by_arm())
    for change in (player.add_arm, lambda: player.retire(0)):
        with pytest.raises(gb.InputError, match="lin-softelim is for 4 arms"):
            change()


def test_another_policy_takes_over_the_same_beliefs(tmp_path):
    path = tmp_path / "swapped.jsonl"
    old, new = linear(), linear(a=0.2)
    with Player(old, seed=1, journal=path) as player:
        played(player)
        before = player.memory.state
        for other in (linear(sd=0.6), linear(dims=2), by_arm(), linear(link="logistic"), linear(hinges=2)):
            with pytest.raises(gb.InputError, match="cannot be swapped"):
                player.swap(other, "no reason")
        softelim = Playable(SoftElim().bind(ARMS, 100), {"theta": np.array(1.0)})
        with pytest.raises(gb.InputError, match="cannot be swapped"):
            player.swap(softelim, "no reason")
        with pytest.raises(gb.InputError, match="cannot be swapped"):
            Player(softelim).swap(old, "no reason")
        player.swap(new, "it was learned")
        np.testing.assert_array_equal(player.memory.state.mean, before.mean)
        played(player, seed=9)
        wanted = player.state()
    with Player(new, journal=path) as again:
        assert again.state() == wanted


def test_lines_of_json_take_contexts():
    player, x = Player(linear(), seed=1), next(contexts())

    def ask(**request):
        return json.loads(respond(player, None, json.dumps(request).encode(), 1))

    p = ask(op="probabilities", context=x.tolist())["probabilities"]
    assert sum(p) == pytest.approx(1)
    made = ask(op="select", id="a", context=x.tolist())
    assert made["propensity"] == p[made["arm"]]
    assert ask(op="update", id="a", reward=1.5) == {"op": "update", "id": "a"}
    weights = ask(op="weights", context={str(arm): x[arm].tolist() for arm in range(ARMS)})["weights"]
    assert list(weights) == ["0", "1", "2", "3"]
    assert ask(op="recommend", context=x.tolist())["arm"] in range(ARMS)
    assert "needs a context" in ask(op="select")["error"]
    assert "a batch has no context" in ask(op="select", count=3, context=[])["error"]


def difference(name, model, tests, size=1):
    """z of the mean regret of players in NumPy against the evaluation's, in rounds of some size."""
    arms, dims, horizon = 3, 2, 20
    policy = dataclasses.replace(gb.policies.named(name), within=1.0, sd=1.0, model=model, dims=dims)
    policy = policy.bind(arms, horizon)
    given = gb.Learned(policy, policy.init(jax.random.key(1)), {}, {})
    shared = model == "by-arm"  # a θ for each arm, and features of the visitor
    rng, regrets, playable = np.random.default_rng(4), [], Player(given).playable
    for seed in range(tests):
        theta = rng.normal(size=(arms, dims) if shared else dims)
        player, regret = Player(playable, seed=seed), 0.0
        for start in range(0, horizon, size):
            due = {}
            for pull in range(start, start + size):
                x = rng.normal(size=dims if shared else (arms, dims))
                means = theta @ x if shared else x @ theta
                arm = player.select(f"{pull}", context=x)
                regret += means.max() - means[arm]
                due[f"{pull}"] = float(means[arm] + rng.normal())
            for id, reward in due.items():
                player.update(id, reward)
        regrets.append(regret)
    kind = gb.priors.LinearByArm(arms, dims) if shared else gb.priors.Linear(arms, dims, changing=True)
    problem = gb.Problem(kind, horizon, pulls_per_round=size)
    found = gb.evaluate(given, problem, instances=4000, seed=11).rows[0].regret
    return (np.mean(regrets) - found.mean) / np.hypot(np.std(regrets, ddof=1) / np.sqrt(tests), found.se)


@pytest.mark.parametrize("model", ["linear", "by-arm"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "lin-softelim")) for name in CONTEXTUAL]
)
def test_what_is_evaluated_is_what_is_played(name, model):
    assert abs(difference(name, model, 150)) < 5


@pytest.mark.parametrize(("name", "model"), [("lin-softelim", "by-arm"), ("lin-greedy", "linear")])
def test_rounds_are_played_as_they_are_evaluated(name, model):
    assert abs(difference(name, model, 100, size=10)) < 5


def test_shares_by_segment(tmp_path, capsys):
    playable, shown = linear(), contexts(5)
    journal, state, file = (tmp_path / name for name in ("test.jsonl", "state.json", "segments.json"))
    segments = {"phone": next(shown).tolist(), "desktop": {str(arm): [arm, 1, 0] for arm in range(ARMS)}}
    policy = tmp_path / "policy.safetensors"
    learned = gb.Learned(playable.policy, {"a": np.float32(0.7)}, {}, {})
    learned.save(policy)
    with Player(learned, seed=1, journal=journal, floor=0.02, compact_every=30) as player:
        played(player)
        wanted = {name: player.weights(context) for name, context in segments.items()}
        assert gb.segment_weights(learned, segments, journal=journal) == wanted  # while it is in use
        assert gb.segment_weights(learned, segments, state=player.state()) == wanted
        state.write_text(json.dumps(player.state()))
    file.write_text(json.dumps(segments))
    run_weights = ["--segments", str(file)]
    for kept in (["--journal", str(journal)], ["--state", str(state)]):
        weights([str(policy), *run_weights, *kept, "--json"])
        assert json.loads(capsys.readouterr().out) == wanted
    weights([str(policy), *run_weights, *kept])
    assert f"desktop  3    {wanted['desktop']['3']:.4f}" in capsys.readouterr().out
    weights([str(policy), *run_weights, *kept, "--format", "unleash", "--key", "colours"])
    assert set(json.loads(capsys.readouterr().out)) == {"phone", "desktop"}
    for words, says in (
        ([], "either COUNTS.csv or --segments"),
        (run_weights, "need either the journal or the state"),
        ([*run_weights, *kept, "--floor", "0.1"], "guardrails are those of the player"),
        (["counts.csv", "--state", str(state)], "are for --segments"),
        ([*run_weights, "--journal", str(tmp_path / "none")], "there is no journal"),
        (["--segments", str(state), *kept], "segment 'format'"),
    ):
        with pytest.raises(gb.InputError, match=says):
            weights([str(policy), *words])
    with pytest.raises(gb.InputError, match="use segment_weights"):
        gb.weights(learned, [1] * ARMS, [0] * ARMS)
    with pytest.raises(gb.InputError, match="contexts by name"):
        gb.segment_weights(learned, {}, journal=journal)


@pytest.mark.parametrize("binary", [False, True])
def test_a_report_knows_what_arms_pay_for_everyone(binary):
    """Arms were chosen by contexts; estimates and gains are within five standard errors of the truth."""
    told, rng, shown = [], np.random.default_rng(8), contexts(8)
    player = Player(linear(a=2.0), seed=1, floor=0.05, record=told.append)
    truth, played, split = np.zeros(ARMS), 0.0, 0.0
    for _ in range(1500):
        x = next(shown)
        mean = x @ THETA + np.array([0.4, 0.0, 0.0, 0.0])
        if binary:
            mean = 1 / (1 + np.exp(-2 * mean))
        arm = player.select(context=x)
        player.update(arm, float(rng.random() < mean[arm] if binary else mean[arm] + rng.normal()))
        truth, played, split = truth + mean / 1500, played + mean[arm] / 1500, split + mean.mean() / 1500
    found = gb.report(told)
    assert played - split > (0.15 if binary else 0.3)
    for arm, mean in zip(found.arms, truth, strict=True):
        assert_z(arm.estimate.mean, arm.estimate.se, mean)
        assert abs(arm.naive - mean) > 3 * arm.estimate.se  # it was chosen where it pays
        assert (arm.best, arm.loss) == (None, None)
        assert arm.always_valid == ((0, 1) if binary else (-np.inf, np.inf))
    for method in ("ips", "dr"):
        assert_z(found.value.gain[method].mean, found.value.gain[method].se, played - split)
    assert found.advice == "can't tell"
    assert "depends on them" in str(found)
    assert "chosen by contexts" in found.to_html()


def act(player, rng, shown):
    """Does something that a player with contexts can do, of all kinds."""
    kind, arms = rng.integers(10), len(player.arms)
    if kind < 5:
        x = next(shown)[:1] + rng.integers(-32, 33, (arms, DIMS)) / 32
        context = {player.labels[arm]: row for arm, row in zip(player.arms, x, strict=True)}
        unit = f"u{rng.integers(20)}" if kind < 2 else None
        player.select(f"d{rng.integers(10**9)}" if kind % 2 else None, unit, x if kind < 3 else context)
    elif kind == 5 and arms < 6:
        player.add_arm(f"new {player.known_arms.ever}" if rng.random() < 0.5 else None)
    elif kind == 6 and arms > 3:
        player.retire(int(rng.choice(player.arms)))
    else:
        expired = [made for made in player.pending.closed.values() if made is not None]
        made = [*(expired if kind == 7 and expired else player.pending.open.values())]
        if made:
            player.update(made[rng.integers(len(made))]["id"], float(rng.normal()))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_a_restart_knows_it(tmp_path, seed):
    """Random histories, compacted at random: by journal, by state, by events."""
    playable, path = linear(arms=3), tmp_path / "journal"
    rng, shown, events, now = np.random.default_rng(seed), contexts(seed), [], [1000.0]

    def clock():
        now[0] += 1
        return now[0]

    more = {"clock": clock, "wait": 9, "window": 15, "floor": 0.02}
    with Player(playable, seed, events.append, path, compact_every=17, **more) as player:
        for _ in range(250):
            act(player, rng, shown)
        state = player.state()
    kinds = {(event["op"], event.get("late", False)) for event in events}
    assert kinds == {
        *((op, False) for op in ("select", "update", "expire", "add", "retire")),
        ("update", True),
    }
    with Player(playable, journal=path, window=15) as again:
        assert again.state() == state
    restored, repeated = Player(playable), Player(playable, seed, **more)
    restored.restore(json.loads(json.dumps(state)))
    for event in json.loads(json.dumps(events)):
        check_event(repeated, event)
        repeated.apply(event)
    assert restored.state() == repeated.state() == state


def test_changed_states_are_refused_or_make_players_that_work():
    """One entry of a state at a time is changed to something else."""
    player = Player(linear(arms=3), seed=1, wait="1h")
    played(player, arms=3)
    text, rng, fine = json.dumps(player.state()), np.random.default_rng(0), 0
    odd = [None, -1, 0, 1, 2.5, 1e300, 10**400, "", "AAAA", [], [[]], {}, True, "é"]
    for _ in range(400):
        state = json.loads(text)
        node, key = state, ""
        while isinstance(node, dict | list) and len(node) and (key == "" or rng.random() < 0.8):
            parent, key = (
                node,
                rng.choice(list(node)) if isinstance(node, dict) else rng.integers(len(node)),
            )
            node = parent[key]
        parent[key] = odd[rng.integers(len(odd))]
        other = Player(linear(arms=3))
        try:
            other.restore(state)
        except gb.InputError:
            continue
        fine += 1
        arm = other.select(context=np.eye(len(other.arms), DIMS))
        other.update(arm, 1.0)
        for id in other.open:
            other.update(id, 0.5)
        json.dumps(other.state(), allow_nan=False)
    assert fine > 5


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_every_policy_with_contexts_is_played(name, tmp_path):
    given, path = learned(name), tmp_path / "test.jsonl"
    given.save(tmp_path / "policy.safetensors")
    playable = Player(tmp_path / "policy.safetensors").playable
    with Player(playable, seed=1, journal=path, wait="1h") as player:
        played(player, rounds=15)
        state, x = player.state(), next(contexts(9))
        p = player.probabilities(x)
        assert p.sum() == pytest.approx(1)
        assert player.recommend(x) in range(ARMS)
    with Player(playable, journal=path) as again:
        assert again.state() == state
        np.testing.assert_array_equal(again.probabilities(x), p)


def test_a_policy_of_ones_own_is_played_with_contexts():
    class Own(LinSoftElim):
        """It calls JAX by name, so a player calls it through JAX."""

        name = "own-lin-softelim"

        def log_probs(self, params, state):
            scores = jnp.asarray(state.mean) + params["a"] * jnp.sqrt(state.variance)
            return jax.nn.log_softmax(jax.lax.mul(scores, jnp.full_like(scores, 2.0)))

    for model in ("linear", "by-arm"):
        policy = Own(dims=DIMS, model=model, **PRIOR).bind(ARMS, 100)
        player = Player(Playable(policy, {"a": np.array(0.7)}), seed=1, wait="1h")
        played(player)
        x, belief = next(contexts(9)), player.memory.state
        means, roots = (
            np.broadcast_to(part, (ARMS, *part.shape[-n:]))
            for part, n in ((belief.mean, 1), (belief.root, 2))
        )
        scores = 2 * (np.sum(x * means, 1) + 0.7 * np.sqrt((np.einsum("kij,ki->kj", roots, x) ** 2).sum(1)))
        wanted = np.exp(scores - scores.max())
        np.testing.assert_allclose(player.probabilities(x), wanted / wanted.sum(), rtol=0, atol=1e-5)
        other = Player(Playable(policy, {"a": np.array(0.7)}))
        other.restore(player.state())
        assert other.state() == player.state()


@pytest.mark.parametrize("by_arm", [False, True])
def test_a_policy_file_knows_what_features_are_called(by_arm, tmp_path):
    """From past experiments to a player, with nothing but files in between."""
    fit = gb.fit(past(by_arm, experiments=20), context=["age", "device"], horizon=30)
    problem = gb.problems.load(fit.save(tmp_path)["problem"])
    start = LinSoftElim(model="by-arm" if by_arm else "linear")
    gb.learn(start, problem, iterations=1, instances=10, progress=False).save(
        tmp_path / "policy.safetensors"
    )
    player = Player(tmp_path / "policy.safetensors", seed=1, arms=["red", "green", "blue"])
    one, other = {"age": 3, "device": "web"}, {"device": "app", "age": -0.5}
    if by_arm:
        named, listed = one, fit.features(one)
    else:
        named = {"red": one, "green": other, "blue": [1, 0, 0]}
        listed = [fit.features(one), fit.features(other), [1, 0, 0]]
    np.testing.assert_array_equal(player.probabilities(named), player.probabilities(listed))
    assert player.select(context=named).label in player.labels
    for wrong in ({"device": "tv", "age": 1}, {"age": 1}, {"aged": 1, "device": "web"}):
        given = wrong if by_arm else named | {"red": wrong}
        with pytest.raises(gb.InputError, match="no experiment has device=tv|need values of age, device"):
            player.select(context=given)


WRONG_UNITS = [
    {"columns": ["intercept", "a"]} | units
    for units in ({"centre": [1]}, {"centre": [1], "spread": [0]}, {"spread": [1, 1]}, {"centre": ["x"]})
]
MISSPELT = {"columns": ["a", "b"], "center": [1, 2]}


@pytest.mark.parametrize(
    "wrong", [{"columns": []}, {"columns": ["a", "a"]}, {"columns": ["a"]}, 3, MISSPELT, *WRONG_UNITS]
)
def test_wrong_names_of_features_are_refused(wrong):
    with pytest.raises(gb.InputError, match="features"):
        gb.Problem(gb.priors.Linear(3, 2), 10, features=wrong)
    policy = LinSoftElim(dims=2).bind(3, 10)
    with pytest.raises(gb.InputError, match="features"):
        Playable(policy, {"a": np.array(0.7)}, {"problem": {"features": wrong}})
