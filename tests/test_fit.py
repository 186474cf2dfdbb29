"""Priors from past experiments: reading, faults, fits against what is known, and the command."""

import gzip
import json
import os
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import polars
import pytest
from conftest import assert_z
from scipy.integrate import quad
from scipy.special import polygamma
from scipy.stats import beta, betabinom

from gradband import problems
from gradband.cli.main import main
from gradband.core import tensor_file
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.problems import delimited, fitting, past_experiments, priors

pytestmark = pytest.mark.brief


def drawn(count, a=3.0, b=147.0, strength=1000.0, arms=4, pulls=3000, seed=0, spread=0.0, slope=0.0):
    """Experiments from a known hierarchical prior."""
    rng = np.random.default_rng(seed)
    level = rng.beta(a, b, count)[:, None]
    kappa = np.full((count, 1), strength)
    if spread or slope:
        kappa = strength * (level * (a + b) / a) ** -slope * np.exp(spread * rng.normal(size=(count, 1)))
    means = rng.beta(kappa * level, kappa * (1 - level), (count, arms))
    each = rng.integers(pulls // 2, 3 * pulls // 2, (count, arms))
    wins = rng.binomial(each, means)
    return past_experiments.Experiments(np.arange(count + 1) * arms, each.ravel() * 1.0, wins.ravel() * 1.0)


def as_csv(path, found, shuffle=None):
    owner, arm = found.owner, np.concatenate([np.arange(size) for size in found.sizes])
    frame = polars.DataFrame(
        {
            "experiment": owner,
            "arm": arm,
            "pulls": found.pulls.astype(int),
            "successes": found.successes.astype(int),
        }
    )
    if shuffle is not None:
        frame = frame.with_columns(
            arm=polars.Series(np.random.default_rng(shuffle).permutation(len(frame)))
        ).sample(fraction=1.0, shuffle=True, seed=shuffle)
    frame.write_csv(path)
    return path


def test_a_hierarchical_prior_is_recovered():
    a, b, strength = 3.0, 147.0, 1000.0
    found = fitting.hierarchical(drawn(2000), drawn(50, seed=1), 4).numbers
    mean, total = a / (a + b), a + b
    within = np.sqrt(mean * (1 - mean) * total / (total + 1) / (strength + 1))
    truth = {
        "level mean": mean,
        "sd between experiments": np.sqrt(mean * (1 - mean) / (total + 1)),
        "sd within an experiment": within,
    }
    for name, value in truth.items():
        assert abs(found[name].mean - value) < 3 * found[name].se
        assert found[name].se < 0.05 * value


UNEVEN = {"spread": 0.9, "slope": 0.5}  # about as in headline tests


def test_experiments_whose_arms_vary_more_than_those_of_others_are_recognised():
    known, held = drawn(500, pulls=8000, **UNEVEN), drawn(300, pulls=8000, seed=1, **UNEVEN)
    even, uneven = (make(known, held, 4) for make in (fitting.hierarchical, fitting.varying))
    better = Mean.of(uneven.held_out - even.held_out)
    assert better.mean > 3 * better.se
    for name, value in (("spread of log κ", 0.9), ("slope", 0.5), ("level mean", 0.02)):
        assert abs(uneven.numbers[name].mean - value) < 4 * uneven.numbers[name].se
    # A spread that is not there is not found, and costs next to nothing.
    known, held = drawn(300), drawn(200, seed=1)
    even, uneven = (make(known, held, 4) for make in (fitting.hierarchical, fitting.varying))
    assert uneven.prior.spread < 0.35
    assert Mean.of(even.held_out - uneven.held_out).mean < 2 / len(known)


@pytest.mark.slow
def test_a_varying_prior_is_recovered():
    found = fitting.varying(drawn(2000, **UNEVEN), drawn(50, seed=1), 4)
    for name, value in (("spread of log κ", 0.9), ("slope", 0.5), ("level mean", 0.02)):
        assert abs(found.numbers[name].mean - value) < 3 * found.numbers[name].se
        assert found.numbers[name].se < 0.2 * value
    # The spread within an experiment, from a million draws of the truth.
    rng = np.random.default_rng(0)
    level = rng.beta(3.0, 147.0, 1_000_000)
    kappa = 1000 * (level * 50) ** -0.5 * np.exp(0.9 * rng.normal(size=level.size))
    within = np.sqrt((level * (1 - level) / (kappa + 1)).mean())
    assert (
        abs(found.numbers["sd within an experiment"].mean - within)
        < 3 * found.numbers["sd within an experiment"].se + 0.002 * within
    )


@pytest.mark.slow
def test_standard_errors_are_those_of_repeated_samples():
    fits = [fitting.hierarchical(drawn(150, seed=seed), drawn(5, seed=99), 4).numbers for seed in range(24)]
    for name in fits[0]:
        spread = np.std([fit[name].mean for fit in fits], ddof=1)
        claimed = np.mean([fit[name].se for fit in fits])
        assert spread == pytest.approx(claimed, rel=0.45)


def test_standard_errors_are_those_of_all_experiments_together():
    """With many pulls the means are seen: N of a beta law have N times its Fisher information."""
    rng = np.random.default_rng(0)
    count, pulls = 600, 1e5
    means = rng.beta(3.0, 12.0, count)
    seen = past_experiments.Experiments(
        np.arange(count // 2 + 1) * 2, np.full(count, pulls), np.round(pulls * means)
    )
    found = fitting.pooled(seen, seen, 2)
    a, b = found.prior.a[0], found.prior.b[0]
    total = a + b
    information = count * (np.diag([polygamma(1, a), polygamma(1, b)]) - polygamma(1, total))
    sd = np.sqrt(a * b / (total + 1)) / total
    slopes = {
        "mean": np.array([b, -a]) / total**2,
        "sd": sd * (np.array([1 / a, 1 / b]) / 2 - 1 / total - 1 / (2 * (total + 1))),
    }
    for name, slope in slopes.items():
        exact = np.sqrt(slope @ np.linalg.solve(information, slope))
        assert found.numbers[name].se == pytest.approx(exact, rel=0.01)


def test_where_arms_matter_an_experiment_is_as_likely_as_its_arms_together():
    rng = np.random.default_rng(0)
    wins = rng.binomial(200, rng.beta([[2.0, 8.0]], [[38.0, 32.0]], (60, 2)))
    known = past_experiments.Experiments(
        np.arange(61) * 2, np.full(120, 200.0), wins.ravel() * 1.0, labels=("x", "y")
    )
    fitted, held = known.only(np.arange(40)), known.only(np.arange(40, 60))
    found = fitting.by_arm(fitted, held)
    arms = held.successes.reshape(20, 2)
    each = betabinom.logpmf(arms, 200, found.prior.a, found.prior.b) - betabinom.logpmf(arms, 200, 1, 1)
    each += fitting.log_beta_binomial(arms, 200 - arms, 1.0, 1.0)
    assert found.held_out == pytest.approx(each.sum(1))
    assert found.score.se == pytest.approx(each.sum(1).std(ddof=1) / np.sqrt(20))


def test_the_level_is_integrated_out_exactly():
    held = drawn(6, pulls=800, seed=3)
    fit = fitting.hierarchical(drawn(200, seed=2), held, 4)
    prior = fit.prior
    for e in range(len(held)):
        chosen = slice(held.starts[e], held.starts[e + 1])
        pulls, wins = held.pulls[chosen], held.successes[chosen]

        def density(level, pulls=pulls, wins=wins):
            shapes = prior.strength * level, prior.strength * (1 - level)
            return beta.pdf(level, prior.a, prior.b) * np.prod(betabinom.pmf(wins, pulls, *shapes)) * 1e6

        whole = quad(density, 1e-6, 0.2, points=[0.01, 0.02, 0.03, 0.05], limit=400)[0]
        shared = betabinom.logpmf(wins, pulls, 1, 1) - fitting.log_beta_binomial(
            wins, pulls - wins, 1.0, 1.0
        )
        assert fit.held_out[e] + shared.sum() == pytest.approx(np.log(whole / 1e6), abs=1e-5)


def test_level_and_spread_are_integrated_out_exactly():
    held = drawn(5, pulls=800, seed=3, **UNEVEN)
    a, b, strength = 3.0, 147.0, 1000.0
    x = np.array([np.log(a / b), np.log(a + b), np.log(strength), np.log(0.9), 0.5])
    found, slopes = fitting.level_likelihood(x, held)
    # A dense grid of logit ℓ and ε, whose trapezoidal sums of such functions are exact.
    logits, noise = np.linspace(-9, 0, 3000)[:, None], np.linspace(-7, 7, 400)
    level = 1 / (1 + np.exp(-logits))
    log_weights = beta.logpdf(level, a, b) + np.log(level * (1 - level)) - noise**2 / 2
    log_weights += np.log(9 / 2999) + np.log(14 / 399) - np.log(2 * np.pi) / 2
    kappa = strength * (level * (a + b) / a) ** -0.5 * np.exp(0.9 * noise)
    for e in range(len(held)):
        total = log_weights.copy()
        for arm in range(held.starts[e], held.starts[e + 1]):
            wins, losses = held.successes[arm], held.pulls[arm] - held.successes[arm]
            total += fitting.log_beta_binomial(wins, losses, kappa * level, kappa * (1 - level))
        assert found[e] == pytest.approx(np.logaddexp.reduce(total.ravel()), abs=2e-3)
    where = fitting._whereabouts(x, held)
    for i, move in enumerate(1e-5 * np.eye(5)):
        up, down = (fitting.level_likelihood(x + sign * move, held, where)[0] for sign in (1, -1))
        assert slopes[:, i] == pytest.approx((up - down) / 2e-5, abs=1e-4)


def test_pooled_scores_are_those_of_their_definition():
    known, held = drawn(5, pulls=50, seed=4), drawn(2, pulls=50, seed=5)
    pooled = fitting.pooled(known, held, 4)
    a, b = pooled.prior.a[0], pooled.prior.b[0]
    shared = betabinom.logpmf(held.successes, held.pulls, 1, 1) - fitting.log_beta_binomial(
        held.successes, held.pulls - held.successes, 1.0, 1.0
    )
    each = betabinom.logpmf(held.successes, held.pulls, a, b).reshape(2, 4).sum(1)
    assert pooled.held_out + shared.reshape(2, 4).sum(1) == pytest.approx(each)


@pytest.mark.slow
def test_the_better_prior_is_chosen():
    levels = fitting.fit(drawn(300), drawn(100, seed=1), 4)
    assert {entry.name for entry in levels[:2]} == {"hierarchical", "varying"}
    assert levels[-1].name == "pooled"
    rng = np.random.default_rng(0)
    means = rng.beta(3, 147, 1600)
    wins = rng.binomial(3000, means)
    one = past_experiments.Experiments(np.arange(401) * 4, np.full(1600, 3000.0), wins * 1.0)
    fitted, held = one.split(0.25)
    scores = {entry.name: entry for entry in fitting.fit(fitted, held, 4)}
    below = Mean.of(scores["hierarchical"].held_out - scores["pooled"].held_out)
    # With one level for all, both say the same; a needless parameter costs 1/(2E) a held-out experiment.
    assert abs(below.mean) < 5 * below.se + 1 / len(fitted)


def test_the_order_of_arms_tells_nothing(tmp_path):
    known = drawn(80, pulls=400)
    order = np.lexsort((-known.successes, known.owner))  # best arms first, as some files have them
    ranked = past_experiments.Experiments(known.starts, known.pulls[order], known.successes[order])
    paths = [as_csv(tmp_path / "a.csv", ranked), as_csv(tmp_path / "b.csv", ranked, shuffle=7)]
    one, other = (past_experiments.read(path) for path in paths)
    assert sorted(one.successes) == sorted(other.successes)
    mine, theirs = (
        np.add.reduceat(found.successes * 1e6 + found.pulls, found.starts[:-1]) for found in (one, other)
    )
    other = other.only(np.argsort(theirs)[np.argsort(np.argsort(mine))])  # the same experiments in turn
    fits = []
    assert (one.successes != other.successes).any()
    for found in (one, other):
        held = found.only(np.arange(60, 80))
        fits.append({fit.name: fit.score.mean for fit in fitting.fit(found.only(np.arange(60)), held, 4)})
    assert fits[0] == pytest.approx(fits[1], rel=1e-7)


@pytest.mark.parametrize(
    ("prior", "mean", "between", "within"),
    [
        (priors.Hierarchical(3, a=3.0, b=147.0, strength=1000.0), 0.02, 0.01139, 0.00441),
        (priors.Mixture(3, weights=[0.25, 0.75], a=[2, 8], b=[98, 92]), 0.065, 0.026, 0.0243),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_priors_have_the_moments_of_their_definitions(prior, mean, between, within):
    import jax

    keys = jax.random.split(jax.random.key(0), 60_000)
    means = np.asarray(jax.jit(jax.vmap(prior.sample))(keys), np.float64)
    assert means.shape == (60_000, 3)
    assert ((means >= 0) & (means <= 1)).all()
    found = Mean.of(means.mean(1))
    assert_z(found.mean, found.se, mean, 1e-5)
    # Two arms of an instance have the level in common: their covariance is the variance between.
    products = (means[:, 0] - mean) * (means[:, 1] - mean)
    common = Mean.of(products)
    assert_z(common.mean, common.se, between**2, 0.01 * between**2)
    gaps = Mean.of((means[:, 0] - means[:, 2]) ** 2 / 2)
    assert_z(gaps.mean, gaps.se, within**2, 0.01 * within**2)


FAULTY = """experiment,arm,pulls,successes
a,0,100,3
a,1,100,
a,2,-4,0
b,0,100,200
b,1,ten,3
b,2,50,1
b,2,50,1
,0,10,1
c,0,20,1
c,1,0,0
d,0,40,2
d,1,40,2
e,0,40,2
e,1,41,2
"""


def test_faults_are_told_with_their_rows(tmp_path):
    path = tmp_path / "tests.csv"
    path.write_text(FAULTY)
    with pytest.raises(InputError) as caught:
        past_experiments.read(path)
    told = str(caught.value)
    for words in (
        "1 row has no experiment (8)",
        "1 row has no successes (2)",
        "1 row has no number in pulls (5)",
        "1 row has negative pulls or successes (3)",
        "1 row has more successes than pulls (4)",
        "1 row has no pulls (10)",
        "1 row has the experiment and arm of an earlier row, which add_up (--sum) adds up (7)",
        "--drop-bad",
    ):
        assert words in told
    assert "\n" not in told
    found = past_experiments.read(path, drop=True)
    assert len(found) == 2, "of the others a single arm is left"
    assert any("3 experiments with a single arm" in note for note in found.notes)


def test_a_row_a_pull_is_counted(tmp_path):
    rng = np.random.default_rng(0)
    frame = polars.DataFrame(
        {
            "test": np.repeat(["x", "y", "z"], 40),
            "version": ["p", "q"] * 60,
            "clicked": rng.integers(0, 2, 120),
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_csv(tmp_path / "log.csv")
    columns = past_experiments.Columns(experiment="test", arm="version", reward="clicked")
    one, other = (past_experiments.read(tmp_path / f"log.{kind}", columns) for kind in ("parquet", "csv"))
    assert one.pulls.tolist() == other.pulls.tolist() == [20.0] * 6
    assert one.successes.tolist() == other.successes.tolist()
    assert one.successes.sum() == frame["clicked"].sum()
    wrong = polars.when(polars.int_range(120) == 7).then(5).otherwise(polars.col("clicked"))
    frame.with_columns(clicked=wrong).write_csv(tmp_path / "log.csv")
    with pytest.raises(InputError, match=r"1 row has clicked outside \[0, 1\], which .* \(8\)"):
        past_experiments.read(tmp_path / "log.csv", columns)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "has no columns 'experiment', 'arm', .*: it has a, b; name your columns"),
        ("experiment,arm,pulls,successes\n", "0 experiments with at least two arms"),
        ("", "is not a readable table"),
        ("experiment,arm,pulls,successes\na,0,1e400,0\na,1,2,0\n", "no number in pulls"),
    ],
)
def test_other_files_are_one_sentence(text, words, tmp_path):
    path = tmp_path / "tests.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        past_experiments.read(path)


COUNTS = {"experiment": ["a", "a", "b", "b"], "arm": [0, 1, 0, 1], "pulls": [9] * 4, "successes": [2] * 4}


@pytest.mark.parametrize(
    ("column", "kind"), [("experiment", polars.List), ("arm", polars.Binary), ("pulls", polars.Date)]
)
def test_columns_are_text_or_numbers(column, kind, tmp_path):
    frame = polars.DataFrame(COUNTS)
    other = {
        polars.List: polars.col(column).reshape((4, 1)).arr.to_list(),
        polars.Binary: polars.lit(b"\xff"),
        polars.Date: polars.date(2020, 1, 1),
    }[kind]
    frame.with_columns(other.alias(column)).write_parquet(tmp_path / "tests.parquet")
    with pytest.raises(InputError, match=f"the column '{column}' must hold text or numbers, not"):
        past_experiments.read(tmp_path / "tests.parquet")


def test_categories_and_dates_are_names(tmp_path):
    frame = polars.DataFrame(COUNTS).with_columns(
        polars.col("experiment").cast(polars.Categorical), arm=polars.date(2020, 1, polars.col("arm") + 1)
    )
    frame.write_parquet(tmp_path / "tests.parquet")
    assert past_experiments.read(tmp_path / "tests.parquet", arms_matter=True).labels == (
        "2020-01-01",
        "2020-01-02",
    )


def test_a_long_name_takes_its_own_length(tmp_path):
    """As a NumPy array of text, all names would be as long, 16 GB."""
    rows = "".join(f"{i // 2},{i % 2},5,1\n" for i in range(1000))
    long = "x" * 4_000_000
    (tmp_path / "tests.csv").write_text(
        f"experiment,arm,pulls,successes\n{rows}{long},0,5,1\n{long},1,5,2\n"
    )
    assert len(past_experiments.read(tmp_path / "tests.csv")) == 501


TEXT = "experiment,arm,pulls,successes\nb,0,1200,20\nb,ä,900,30\na,0,500,0\na,ä,500,5\n"


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.encode("latin-1"),
        TEXT.replace(",", ";").encode(),
        TEXT.replace(",", "\t").encode(),
        TEXT.replace("1200", '"1,200"').encode(),
        TEXT.replace(",", ";").replace("1200", "1 200").encode(),
        TEXT.replace(",", ";").replace("1200", "1\u202f200").encode(),
        TEXT.replace("1200", "1'200").encode(),
        TEXT.replace("arm,pulls,successes", " arm , pulls, successes ").encode(),
        gzip.compress(TEXT.encode(), mtime=0),
        gzip.compress(TEXT[:40].encode(), mtime=0) + gzip.compress(TEXT[40:].encode("latin-1"), mtime=0),
        gzip.compress(TEXT.encode("utf-16"), mtime=0),
    ],
    ids=lambda content: ascii(content[:44]),
)
def test_tables_are_read_as_people_have_them(content, tmp_path):
    (tmp_path / "tests.csv").write_bytes(content)
    found = past_experiments.read(tmp_path / "tests.csv")
    assert found.pulls.tolist() == [1200, 900, 500, 500], "in the order of the file"
    assert found.successes.tolist() == [20, 30, 0, 5]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x28\xb5\x2f\xfd rest", "unsupported compression"),
        (gzip.compress(TEXT.encode(), mtime=0)[:-12], "ends too early"),
        (gzip.compress(b"experiment" * 1000, mtime=0), "unpacks to more than"),
        (b"\x1f\x8b\x08" + b"\xff" * 50, "not a readable gzip file"),
        (TEXT.encode("utf-16")[:41], "not readable as utf-16"),
    ],
)
def test_hostile_files_are_refused(content, words, tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "TEXT_LIMIT", 2000)
    (tmp_path / "tests.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        past_experiments.read(tmp_path / "tests.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace(",30\n", ",0.033\n"), r"successes must be counts, but 1 row has a fraction \(2\)"),
        (TEXT.replace("1200", "1.2"), "pulls must be counts, but 1 row has a fraction"),
        (
            re.sub(",[0-9]+\n", ",0\n", TEXT),
            "no success at all",
        ),
        (TEXT.replace("successes", "clicks"), "has no column 'successes': it has experiment, arm, pulls"),
        (TEXT.replace("arm,pulls", "a,b"), "has no columns 'arm', 'pulls'"),
        (TEXT + "a,0,10,1\n", r"of an earlier row, which add_up \(--sum\) adds up"),
    ],
)
def test_what_is_no_count_is_called_so(text, words, tmp_path):
    (tmp_path / "tests.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        past_experiments.read(tmp_path / "tests.csv")


def test_rewards_that_were_asked_for_are_missed(tmp_path):
    (tmp_path / "tests.csv").write_text(TEXT, encoding="utf-8")
    with pytest.raises(InputError, match="has no column 'clicked'"):
        past_experiments.read(tmp_path / "tests.csv", past_experiments.Columns(reward="clicked"))


def test_counts_come_before_rates(tmp_path):
    """A column that happens to be called reward does not turn counts into single pulls."""
    lines = TEXT.splitlines()
    rows = [f"{lines[0]},reward", *(f"{line},0.1" for line in lines[1:])]
    (tmp_path / "tests.csv").write_text("\n".join(rows), encoding="utf-8")
    assert past_experiments.read(tmp_path / "tests.csv").pulls.tolist() == [1200, 900, 500, 500]


def test_daily_rows_are_added_up(tmp_path):
    (tmp_path / "tests.csv").write_text(TEXT + "a,0,10,1\nb,ä,100,3\na,0,0,0\n", encoding="utf-8")
    found = past_experiments.read(tmp_path / "tests.csv", add_up=True)
    assert found.pulls.tolist() == [1200, 1000, 510, 500]
    assert found.successes.tolist() == [20, 33, 1, 5]


def test_the_last_experiments_are_held_out_on_request(tmp_path):
    known = drawn(40, pulls=300)
    text = as_csv(tmp_path / "tests.csv", known).read_text().splitlines()
    names = {str(e): f"{37 * e % 41:02d}" for e in range(40)}  # in another order than the file
    rows = [line.split(",", 1) for line in text[1:]]
    (tmp_path / "tests.csv").write_text("\n".join([text[0], *(f"{names[e]},{rest}" for e, rest in rows)]))
    fitted, held = past_experiments.read(tmp_path / "tests.csv").split(0.2, last=True)
    assert fitted.successes.tolist() == known.successes[: 32 * 4].tolist()
    assert held.successes.tolist() == known.successes[32 * 4 :].tolist()
    assert (
        past_experiments.read(tmp_path / "tests.csv").split(0.2)[1].successes.tolist()
        != held.successes.tolist()
    )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_name_is_no_pattern(kind, tmp_path):
    frame = polars.DataFrame(COUNTS)
    for name in (f"tests[1].{kind}", f"t*.{kind}"):
        with (tmp_path / name).open("wb") as file:
            frame.write_csv(file) if kind == "csv" else frame.write_parquet(file)
        assert len(past_experiments.read(tmp_path / name)) == 2


@pytest.mark.skipif(os.name != "posix", reason="there are no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    for name, load in (
        ("tests.csv", past_experiments.read),
        ("mine.toml", lambda path: problems.load(str(path))),
    ):
        os.mkfifo(tmp_path / name)
        with pytest.raises(InputError, match="it is not a regular file"):
            load(tmp_path / name)


def test_a_prior_of_earlier_versions_is_refused_in_words(tmp_path):
    given = {"horizon": 10, "prior": {"kind": "resampled", "arms": 2, "file": "past.safetensors"}}
    with pytest.raises(InputError, match="'resampled' was removed, .* run gradband fit again"):
        problems.parse(given, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"starts": [0, 2, 5]}, "starts must rise from 0 to the number of arms, 4"),
        ({"starts": [0, 4, 4]}, "starts must rise"),
        ({"starts": [0]}, "starts must rise"),
        ({"successes": [1.0, 2.0, 30.0, 0.0]}, "between 0 and the pulls"),
        ({"successes": [1.0, 2.0, np.nan, 0.0]}, "between 0 and the pulls"),
        ({"pulls": [9.0, 9.0, np.inf, 9.0]}, "between 0 and the pulls"),
        ({"successes": [1.0]}, "match pulls one to one"),
        ({"pulls": [[9.0] * 4]}, "rows of numbers"),
    ],
)
def test_stored_experiments_are_read_with_distrust(changes, words, tmp_path):
    usual = {"starts": [0, 2, 4], "pulls": [9.0] * 4, "successes": [2.0] * 4}
    arrays = {f"fitted.{name}": np.array(value) for name, value in (usual | changes).items()}
    tensor_file.save(tmp_path / "past.safetensors", "experiments", arrays, {})
    with pytest.raises(InputError, match=words):
        past_experiments.load(tmp_path / "past.safetensors", "fitted")


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["gradband", "fit", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        main()
    seen = capsys.readouterr()
    return stopped.value.code, seen.out, seen.err


@pytest.mark.parametrize("prior", ["pooled", "hierarchical", "varying", "mixture"])
def test_the_command_writes_a_problem(prior, tmp_path, monkeypatch, capsys):
    path = as_csv(tmp_path / "tests.csv", drawn(60, pulls=300))
    code, out, _ = run(monkeypatch, capsys, path, "--prior", prior, "--json", "--out", tmp_path / "fit")
    result = json.loads(out)
    assert code == 0
    assert (result["experiments"], result["arms"], result["held_out"]) == (60, 4, 12)
    problem = problems.load(result["file"])
    assert (problem.arms, problem.name) == (4, "tests")
    assert problem.horizon == result["horizon"]
    assert problem.prior.label == {"pooled": "beta"}.get(prior, prior)
    assert problems.load(result["file"], arms=7).arms == 7
    assert {row["name"] for row in result["priors"]} == {"pooled", "hierarchical", "varying", "mixture"}
    for other in tomllib.loads(Path(result["file"]).read_text())["fit"]["others"]:
        again = {"horizon": 10, "prior": other}
        assert problems.parse(again, tmp_path / "fit").arms == 4


def test_arms_that_matter_have_priors_of_their_own(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    wins = rng.binomial(500, rng.beta([[2.0, 8.0]], [[98.0, 92.0]], (300, 2)))
    known = past_experiments.Experiments(np.arange(301) * 2, np.full(600, 500.0), wins.ravel() * 1.0)
    path = as_csv(tmp_path / "tests.csv", known)
    code, out, _ = run(monkeypatch, capsys, path, "--arms-matter", "--json", "--out", tmp_path / "fit")
    assert code == 0
    prior = problems.load(json.loads(out)["file"]).prior
    assert prior.a / (prior.a + prior.b) == pytest.approx([0.02, 0.08], rel=0.1)
    assert problems.fit_of(json.loads(out)["file"]) is None, "there is no gain to tell"
    code, _, told = run(monkeypatch, capsys, path, "--pulls-per-round", "0", "--out", tmp_path / "x")
    assert (code, "pulls_per_round must be a whole number" in told) == (2, True)
    code, _, told = run(
        monkeypatch, capsys, path, "--arms-matter", "--prior", "pooled", "--out", tmp_path / "x"
    )
    assert code == 2
    assert "can be chosen if arms matter" in told


@pytest.mark.parametrize("count", [3, 8, 19])
def test_few_experiments_carry_simple_priors_only(count, tmp_path, monkeypatch, capsys):
    path = as_csv(tmp_path / "tests.csv", drawn(count, pulls=300))
    code, out, _ = run(monkeypatch, capsys, path, "--json", "--out", tmp_path / "fit")
    result = json.loads(out)
    assert code == 0
    assert {row["name"] for row in result["priors"]} == {"pooled", "hierarchical"}
    assert f"Warning: {count} experiments say little" in " ".join(result["notes"])
    for row in result["priors"]:
        assert (row["below_se"] is None) == (result["held_out"] == 1)
        assert all(number["se"] is not None for number in row["numbers"].values())
    code, out, _ = run(monkeypatch, capsys, path, "--out", tmp_path / "fit")
    assert code == 0
    assert "nan" not in out
    assert "Warning: with " in out
    code, _, told = run(monkeypatch, capsys, path, "--prior", "mixture", "--out", tmp_path / "fit")
    assert (code, "too few to fit a mixture prior" in told) == (2, True)


def test_options_of_the_command_reach_the_reader(tmp_path, monkeypatch, capsys):
    path = as_csv(tmp_path / "tests.csv", drawn(30, pulls=300))
    path.write_text(path.read_text() + "29,0,100,2\n")
    words = ["--sum", "--held-out-last", "--json", "--out", tmp_path / "fit"]
    code, out, _ = run(monkeypatch, capsys, path, *words)
    assert code == 0
    held = past_experiments.load(Path(json.loads(out)["files"]["experiments"]), "held-out")
    last = drawn(30, pulls=300)
    assert held.pulls[-4:].tolist() == [last.pulls[-4] + 100, *last.pulls[-3:]]


def test_the_tables_of_a_fit_can_be_read(tmp_path, monkeypatch, capsys):
    path = as_csv(tmp_path / "tests.csv", drawn(40, pulls=300))
    code, out, _ = run(monkeypatch, capsys, path, "--out", tmp_path / "fit")
    assert code == 0
    for words in ("32 experiments fitted, 8 held out", "hierarchical", "Chosen: ", "Next: gradband learn"):
        assert words in out
    code, _, told = run(monkeypatch, capsys, tmp_path / "none.csv", "--out", tmp_path / "x")
    assert (code, "cannot read" in told) == (2, True)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("seed", [0, 1])
def test_arms_that_hardly_vary_are_fitted_too(seed):
    """Then nothing says how far κ varies, and its maximum may lie beyond what the prior allows."""
    rng = np.random.default_rng(seed)
    wins = rng.binomial(30, rng.beta(20, 80, (60, 2))).ravel() * 1.0
    found = past_experiments.Experiments(np.arange(61) * 2, np.full(120, 30.0), wins)
    fits = fitting.fit(*found.split(0.2), 2)
    assert {entry.name for entry in fits} == {"pooled", "hierarchical", "varying", "mixture"}
    assert all(np.isfinite(entry.held_out).all() for entry in fits)
