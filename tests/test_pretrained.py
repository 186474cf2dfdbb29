"""The policy that comes with the package: near Gittins indices at every size, without JAX and learning."""

import importlib
import json
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import optimize
from scipy.special import betaln

import gradband as gb
from gradband.cli import play as play_command
from gradband.cli.weights import weights as weights_command
from gradband.core import prng
from gradband.core.statistics import Mean
from gradband.engine.blocks import workers
from gradband.learning import pretraining
from gradband.learning.ascent import PLAIN, Steps
from gradband.learning.choice import Chooser
from gradband.policies import Counts, Pretrained, PretrainedBeta
from gradband.policies.beta_evidence import Evidence
from gradband.policies.given import resolve
from gradband.policies.pretrained_index import FILE
from gradband.policies.references import beta_like
from gradband.solvers.gittins import SCALE, diagonal, finite_horizon
from gradband.solvers.layout import place

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TARGET = 1.02  # times the regret of Gittins indices with the same prior


def states(horizon):
    """Pulls, ones and rounds before, for all states of an arm."""
    found = [(t, n, s) for t in range(horizon) for n in range(t + 1) for s in range(n + 1)]
    return np.array(found).T


@pytest.mark.brief
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (1.0, 3.0), (5.0, 5.0), (0.5, 0.5), (1.0, 30.0)])
def test_indices_are_those_of_gittins(a, b):
    """To 4 % of an arm's standard deviation in each state, and to 1 % in most; the table has 2e-5."""
    n = 60
    t, pulls, ones = states(n)
    truth = finite_horizon(a, b, n)[0][place(t, pulls, ones)] / SCALE
    found, spread = np.empty(len(t)), np.empty(len(t))
    policy = gb.policies.pretrained(a, b).bind(1, n)
    for before in range(n):
        at = t == before
        counts = Counts(pulls[at].astype(float), ones[at].astype(float), np.float64(0))
        counts = counts._replace(gone=before - counts.pulls.sum())  # as many rounds left for every state
        found[at], spread[at] = policy.index(policy.stored(), counts)
    error = np.abs(found - truth) / spread
    assert error.max() < 0.04
    assert np.quantile(error, 0.9) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "error"), [(10_000, 0.025), (20_000, 0.065)])
def test_indices_are_those_of_gittins_beyond_the_rounds_that_were_learned(rounds, error):
    truth = diagonal(1.0, 1.0, rounds, 0)
    policy = gb.policies.pretrained().bind(1, rounds)
    for pulls in (0, 1, 5, 20, 100, 1000):
        for ones in {pulls // 2, 7 * pulls // 10, 9 * pulls // 10, pulls}:
            counts = Counts(np.array([float(pulls)]), np.array([float(ones)]))
            (found,), (spread,) = policy.index(policy.stored(), counts)
            assert abs(found - truth[pulls * (pulls + 1) // 2 + ones]) < error * spread


@pytest.mark.brief
def test_a_diagonal_has_the_indices_of_a_table():
    n = 30
    t, pulls, ones = states(n)
    table, error = finite_horizon(2.0, 0.7, n)
    for depth in (0, 5):
        for last in (1, 7, n):
            found = diagonal(2.0, 0.7, last, depth)
            own = n - t + pulls == last
            known = own & (n - t <= (depth or n))
            index = found[(pulls * (pulls + 1) // 2 + ones)[known]]
            np.testing.assert_allclose(index, table[place(t, pulls, ones)[known]] / SCALE, atol=2 * error)
            assert np.isnan(found).sum() == len(found) - known.sum()


@pytest.mark.brief
@pytest.mark.parametrize("arms", [1, 2, 7, 100])
@pytest.mark.parametrize("horizon", [1, 10, 2000, 10**7])
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.01, 5.0), (3000.0, 1e5), (1e-5, 1e9)])
def test_it_plays_any_number_of_arms_and_rounds_and_any_prior(arms, horizon, a, b):
    policy = gb.policies.pretrained(a, b).bind(arms, horizon)
    params = policy.stored()
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(policy.probabilities(params, Counts.zeros(arms)), 1 / arms)
    for scale in (1, 30, 10**6):
        pulls = rng.integers(0, scale + 1, arms).astype(float)
        p = policy.probabilities(params, Counts(pulls, np.floor(pulls * rng.random(arms))))
        assert np.isfinite(p).all()
        assert p.sum() == pytest.approx(1)


@pytest.mark.brief
def test_the_order_of_arms_does_not_matter_and_the_last_round_is_greedy():
    policy = gb.policies.pretrained(2, 3).bind(4, 30)
    pulls, sums = np.array([3.0, 9.0, 0.0, 6.0]), np.array([2.0, 5.0, 0.0, 4.0])
    p = policy.probabilities(policy.stored(), Counts(pulls, sums))
    order = np.array([2, 0, 3, 1])
    other = policy.probabilities(policy.stored(), Counts(pulls[order], sums[order]))
    np.testing.assert_allclose(other, p[order])
    last = policy.bind(4, 19)
    index, _ = last.index(last.stored(), Counts(pulls, sums))
    np.testing.assert_allclose(index, (2 + sums) / (5 + pulls), rtol=1e-12)


CELLS = [(5, 50, 1.0, 1.0), (20, 30, 1.0, 3.0)]
MORE_CELLS = [
    pytest.param(*cell, marks=pytest.mark.slow) for cell in ((2, 100, 0.5, 0.5), (50, 200, 5.0, 5.0))
]


@pytest.mark.brief
@pytest.mark.parametrize(("arms", "horizon", "a", "b"), [*CELLS, *MORE_CELLS])
def test_regret_is_that_of_gittins_indices(arms, horizon, a, b):
    """Paired, as evaluated by the engine; a false alarm has a probability below 1e-6."""
    problem = gb.Problem(gb.priors.Beta(arms=arms, a=a, b=b), horizon=horizon)
    table = gb.evaluate(["pretrained", "gittins:prior"], problem, instances=10_000, seed=5)
    mine, theirs = (table[name].regrets for name in ("pretrained", "gittins:prior"))
    above = Mean.of(mine - TARGET * theirs)
    assert above.mean < 5 * above.se
    assert 5 * above.se < 0.08 * theirs.mean()


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("pretrained")


def test_indices_of_the_benchmark_are_those_of_gittins(benchmark):
    n = 100
    gittins, table = benchmark.Gittins(1.0, 3.0, n), finite_horizon(1.0, 3.0, n)[0]
    t, pulls, ones = states(n)
    for before in range(n):
        at = t == before
        found = gittins(pulls[at], ones[at], n - before)
        truth = table[place(before, pulls[at], ones[at])] / SCALE
        np.testing.assert_allclose(found, truth, rtol=0, atol=4e-4)


@pytest.mark.brief
def test_the_benchmark_measures_what_the_engine_measures(benchmark):
    cell = benchmark.Cell(5, 50)
    own = benchmark.learned_indices(Pretrained().stored(), cell.a, cell.b)
    sharpness = float(Pretrained().stored()["sharpness"])
    problem = gb.Problem(gb.priors.Beta(arms=5), horizon=50)
    for name, indices, sharp in (
        ("pretrained", own, sharpness),
        ("gittins", benchmark.Gittins(1.0, 1.0, 50), benchmark.SHARP),
    ):
        here = Mean.of(benchmark.play(cell, indices, sharp, range(10_000)))
        there = gb.evaluate(name, problem, instances=10_000, seed=6).rows[0].regret
        assert abs(here.mean - there.mean) < 5 * np.hypot(here.se, there.se)


@pytest.mark.slow
def test_regret_in_every_cell(benchmark):
    for cell in benchmark.all_cells():
        gittins = benchmark.Gittins(cell.a, cell.b, cell.horizon)
        row = benchmark.measure(cell, gittins, Pretrained().stored())
        assert row["ratio"] < TARGET, row
        assert row["se"] < 0.005


@pytest.mark.brief
def test_it_has_the_prior_of_the_problem_by_its_name_alone():
    rare = gb.Problem(gb.priors.Beta(arms=4, a=1, b=30), horizon=200)
    assert resolve("pretrained", rare) == resolve("pretrained:prior", rare) == Pretrained(a=1.0, b=30.0)
    assert resolve("pretrained:a=2", rare) == Pretrained(a=2.0)
    assert resolve("pretrained") == gb.policies.pretrained() == Pretrained()
    a, b = beta_like(gb.priors.Beta(arms=2, a=[4.0, 1.0], b=[4.0, 1.0]))
    mean, var = 0.5, (1 / 12 + 1 / 36) / 2  # of a mixture of Beta(1, 1) and Beta(4, 4)
    assert (a + b) == pytest.approx(mean * (1 - mean) / var - 1, rel=0.15)
    assert a / (a + b) == pytest.approx(mean, abs=0.04)
    two_point = beta_like(gb.problems.named("two-point", horizon=20).prior)  # means (.6, .4) or (.4, .6)
    assert two_point == pytest.approx((12, 12), rel=1e-3)


@pytest.mark.brief
def test_decisions_are_spread_in_batches():
    problem = gb.Problem(gb.priors.Beta(arms=4), horizon=200, pulls_per_round=20)
    policy = resolve("pretrained", problem)
    assert policy.sharpness == pytest.approx(30 * 20**-0.4)
    table = gb.evaluate(["pretrained", Pretrained(), "ts"], problem, instances=4000, seed=2)
    soft, sharp, ts = (table[name].regrets for name in ("pretrained", "pretrained #2", "ts"))
    for other in (sharp, ts):
        less = Mean.of(other - soft)
        assert less.mean > 3 * less.se


WITHOUT_JAX = """
import sys
for name in ("jax", "jaxlib", "optax", "numba", "safetensors"):
    sys.modules[name] = None
import gradband as gb
player = gb.Player(gb.policies.pretrained(1, 3).bind(5, 100), seed=0)
for _ in range(100):
    player.update(player.select(), 1)
print(len({int(player.select()) for _ in range(3)}))
"""


def test_a_player_needs_no_jax():
    done = subprocess.run([sys.executable, "-c", WITHOUT_JAX], capture_output=True, text=True, check=False)
    assert done.stdout == "1\n", done.stderr


@pytest.mark.brief
def test_commands_play_it(capsys, tmp_path):
    words = ["pretrained", "--arms", "red,blue,green", "--horizon", "500", "--prior", "1,30", "--seed", "1"]
    requests = '{"op": "probabilities"}\n{"op": "select", "id": "x"}\n'
    command = [sys.executable, "-m", "gradband", "play", *words]
    done = subprocess.run(command, input=requests, capture_output=True, text=True, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told[0]["probabilities"] == pytest.approx([1 / 3] * 3), done.stderr
    assert told[1]["propensity"] == pytest.approx(1 / 3)
    (tmp_path / "counts.csv").write_text("arm,pulls,successes\nred,40,9\nblue,40,1\n")
    weights_command(["pretrained", str(tmp_path / "counts.csv"), "--horizon", "300", "--json"])
    assert json.loads(capsys.readouterr().out)["red"] > 0.99


@pytest.mark.brief
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrained", "--horizon", "10"], "pretrained needs --arms and --horizon"),
        (["pretrained", "--arms", "a,b"], "pretrained needs --arms and --horizon"),
        (["pretrained", "--arms", "a,b", "--horizon", "0"], "horizon must be"),
        (
            ["pretrained", "--arms", "a,b", "--horizon", "9", "--prior", "1"],
            "two numbers, as 1,30",
        ),
        (["pretrained", "--arms", "a,b", "--horizon", "9", "--prior", "1,-2"], "b of --prior must be"),
        (["pretrained", "--arms", "a,b", "--horizon", "9", "--dims", "3"], "pretrained sees no features"),
        (["policy.safetensors", "--horizon", "10"], "a policy file has its own"),
        (["policy.safetensors", "--dims", "3"], "a policy file has its own"),
    ],
)
def test_wrong_words_are_refused(words, message):
    with pytest.raises(gb.InputError, match=message):
        play_command.play(words)


@pytest.mark.brief
def test_the_file_is_a_policy_file_and_small():
    learned = gb.load(FILE)
    assert type(learned.policy) is Pretrained
    assert FILE.stat().st_size < 60_000
    first = learned.policy.init(jax.random.key(0))
    for name, leaf in learned.params.items():
        np.testing.assert_array_equal(leaf, first[name])
    assert learned.about["training"]["error"] < 0.03


@pytest.mark.brief
def test_learning_starts_from_it_and_keeps_what_is_best():
    problem = gb.Problem(gb.priors.Beta(arms=2, a=2, b=2), horizon=8)
    learned = gb.learn("pretrained", problem, iterations=2, instances=64, estimator="self", seed=1)
    assert learned.policy.settings() == {"a": 2.0, "b": 2.0, "sharpness": 1000.0}
    regrets = learned.about["choice"]["regrets"]
    assert regrets[learned.about["choice"]["chosen"]] == min(regrets.values()) <= regrets["start"]
    step = {name: np.abs(leaf - gb.load(FILE).params[name]).max() for name, leaf in learned.params.items()}
    assert all(size < 0.1 for name, size in step.items() if name != "sharpness")


def test_a_good_start_is_kept_unless_the_end_is_clearly_better():
    """Of two policies that are nearly as good, a choice on few instances would keep either."""
    problem = gb.Problem(gb.priors.Beta(arms=3), horizon=12)
    policy = Pretrained().bind(3, 12)
    start = {name: np.asarray(leaf) for name, leaf in policy.stored().items()}
    worse = start | {"sharpness": np.float32(60.0)}
    kept = 0
    for key in range(20):
        chooser = Chooser(problem, policy, Steps(policy, PLAIN, "log"), prng.root(key), workers(), 0)
        state = types.SimpleNamespace(params=worse, stage_start=worse)
        kept += chooser.choose({"start": start}, state)[1]["chosen"] == "start"
    assert kept >= 18


@pytest.mark.slow
def test_it_can_be_made_again(tmp_path, monkeypatch):
    """With few states and steps: a file that can be read, whose network has learned something."""
    monkeypatch.setattr(pretraining, "BATCH", 512)
    file = tmp_path / "small.safetensors"
    error = pretraining.make(file, diagonals=20, steps=600, seed=3)
    x, y = pretraining.as_examples(pretraining.draw_data(20, 4))
    assert error < 0.5 * y.std()
    assert gb.load(file).policy.bind(2, 5) == Pretrained().bind(2, 5)
    assert x.shape == (7, len(y))


# Beta rewards


@pytest.mark.brief
@pytest.mark.parametrize(("pulls", "logits", "share"), [(0, 0.0, 0.32), (1, 1.2, 0.22), (6, 9.0, 0.12)])
def test_indices_for_beta_rewards_are_near_gittins_with_two_rounds_left(pulls, logits, share):
    """The index λ solves m − λ + E(m′ − λ)⁺ = 0, m′ the mean after one reward, by quadrature.

    The network, which is asked about many pulls in place of one, comes out up to `share` of a standard
    deviation above it, and the index of a last round is the mean.
    """
    v, mu, x = 4.0, (np.arange(2000) + 0.5) / 2000, np.linspace(-40, 40, 8001)
    density = v * np.multiply.outer(mu, x) - v * np.logaddexp(0, x) - betaln(v * mu, v * (1 - mu))[:, None]
    density = np.exp(density) * (x[1] - x[0])
    prior = v * mu * logits - pulls * betaln(v * mu, v * (1 - mu))
    weight = np.exp(prior - prior.max()) / np.exp(prior - prior.max()).sum()
    chance = weight @ density
    mean, after = weight @ mu, (weight * mu) @ density / np.maximum(chance, 1e-300)
    spread = np.sqrt(weight @ (mu - mean) ** 2)
    truth = optimize.brentq(lambda c: mean - c + chance @ np.maximum(after - c, 0), mean, 1)
    policy = PretrainedBeta(v=v).bind(1, 100)
    for left, index, above in ((2, truth, share), (1, mean, 0.0)):
        counts = Counts(np.array([float(pulls)]), np.array([pulls / 2]), np.float64(100 - left - pulls))
        state = Evidence(counts, np.array([logits]), np.zeros(1), np.zeros(1))
        found, sd = policy.index(policy.stored(), state)
        assert sd[0] == pytest.approx(spread, rel=1e-3)
        assert -1e-3 < (found[0] - index) / spread < above + 1e-3


@pytest.mark.brief
def test_beta_rewards_are_worth_more_on_their_exact_posterior():
    """Paired on 1000 instances, against the same network if rewards are parts of successes."""
    problem = gb.Problem(gb.priors.Beta(5, rewards=gb.problems.rewards.Beta(4.0)), 200)
    table = gb.evaluate(["pretrained", "pretrained:a=1.0"], problem, instances=1000, progress=False)
    apart = table.difference("pretrained", "pretrained:a=1.0")
    assert apart.mean < -5 * apart.se


@pytest.mark.slow
def test_ten_arms_with_beta_rewards_are_played_below_the_target():
    names = ["pretrained", "brezzi-lai-beta:prior"]
    table = gb.evaluate(names, "beta-10", instances=3000, progress=False)
    assert table["pretrained"].regret.mean < 7.7 - 2 * table["pretrained"].regret.se
    apart = table.difference(*names)
    assert apart.mean < -5 * apart.se


@pytest.mark.brief
def test_its_name_alone_has_the_exact_posterior_where_there_is_one():
    law = gb.problems.rewards.Beta(6.0)
    alike = gb.Problem(gb.priors.Beta(3, 2, 5, law), 50)
    assert resolve("pretrained", alike) == PretrainedBeta(a=2.0, b=5.0, v=6.0)
    for problem in (
        gb.Problem(gb.priors.Beta(3, 2, 5), 50),
        gb.Problem(gb.priors.Beta(3, [1, 2, 3], 5, law), 50),
    ):
        assert isinstance(resolve("pretrained", problem), Pretrained)
