"""The paper's problems and problem files, with what they refuse."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradband import problems
from gradband.core.errors import InputError
from gradband.problems import NAMED, Problem, priors, rewards
from gradband.problems.contextual_problems import CONTEXTUAL

# The paper's problems.


@pytest.mark.parametrize(
    ("name", "arms", "horizon", "law"),
    [
        ("two-point", 2, 200, rewards.Bernoulli()),
        ("uniform-2", 2, 200, rewards.Bernoulli()),
        ("bernoulli-10", 10, 1000, rewards.Bernoulli()),
        ("beta-10", 10, 1000, rewards.Beta(4.0)),
        ("distractors", 3, 200, rewards.Bernoulli()),
    ],
)
def test_named_problem_has_the_papers_size(name, arms, horizon, law):
    problem = problems.named(name)
    assert (problem.arms, problem.horizon, problem.name) == (arms, horizon, name)
    assert problem.prior.rewards == law
    assert problem.unit
    assert problem.noise == "shared"


def test_every_named_problem_is_checked_above():
    own = {"two-point", "uniform-2", "bernoulli-10", "beta-10", "distractors"}
    assert set(NAMED) == own | set(CONTEXTUAL)  # these in test_contexts.py


@pytest.mark.parametrize("name", ["uniform-2", "bernoulli-10", "beta-10"])
def test_means_of_named_problem_are_uniform(name):
    about = problems.named(name).prior.describe()
    assert (about["kind"], about["a"], about["b"]) == ("beta", 1, 1)


def test_two_point_is_two_mirrored_instances():
    about = problems.named("two-point").prior.describe()
    assert about["means"] == [[0.6, 0.4], [0.4, 0.6]]
    assert about["weights"] == [0.5, 0.5]


@pytest.mark.parametrize("arms", [3, 4, 7])
def test_distractors_are_filled_up_with_middling_arms(arms):
    about = problems.named("distractors", arms=arms).prior.describe()
    rest = [0.7] * (arms - 3)
    assert about["means"] == [[0.6, 0.9, 0.7, *rest], [0.2, 0.7, 0.9, *rest]]
    assert about["weights"] == [0.5, 0.5]


def test_arms_and_horizon_of_a_named_problem_can_be_changed():
    problem = problems.load("beta-10", arms=4, horizon=30)
    assert (problem.arms, problem.horizon) == (4, 30)


# Problem files.


def load(folder, text, **changes):
    path = folder / "mine.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return problems.load(str(path), **changes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "horizon = 200\n[prior]\nkind = 'finite'\n"
            "means = [[0.6, 0.4], [0.4, 0.6]]\nweights = [0.3, 0.7]",
            Problem(priors.Finite([[0.6, 0.4], [0.4, 0.6]], [0.3, 0.7]), 200),
        ),
        (
            "horizon = 9\nname = 'mine'\n[prior]\nkind = 'finite'\nmeans = [[-1, 2.5]]\n"
            "[rewards]\nkind = 'gaussian'\nsd = 0.5",
            Problem(priors.Finite([[-1, 2.5]], rewards=rewards.Gaussian(0.5)), 9, name="mine"),
        ),
        (
            "horizon = 50\nnoise = 'independent'\n[prior]\nkind = 'beta'\narms = 4",
            Problem(priors.Beta(4), 50, noise="independent"),
        ),
        (
            "horizon = 50\n[prior]\nkind = 'beta'\narms = 4\na = 2\nb = 0.5\n"
            "[rewards]\nkind = 'beta'\nv = 3",
            Problem(priors.Beta(4, 2, 0.5, rewards=rewards.Beta(3)), 50),
        ),
        (
            "horizon = 7\n[prior]\nkind = 'gaussian'\narms = 3",
            Problem(priors.Gaussian(3), 7),
        ),
        (
            "horizon = 7\n[prior]\nkind = 'gaussian'\narms = 3\nmean = 1\nsd = 2.5\n"
            "[rewards]\nkind = 'gaussian'\nsd = 0.1",
            Problem(priors.Gaussian(3, 1, 2.5, rewards=rewards.Gaussian(0.1)), 7),
        ),
        (
            "horizon = 20\npulls_per_round = 5\n[prior]\nkind = 'beta'\narms = 3",
            Problem(priors.Beta(3), 20, pulls_per_round=5),
        ),
        (
            "horizon = 20\nbatch = 5\n[prior]\nkind = 'beta'\narms = 3",
            Problem(priors.Beta(3), 20, pulls_per_round=5),
        ),
    ],
    ids=[
        "finite",
        "finite-gaussian",
        "beta",
        "beta-beta",
        "gaussian",
        "gaussian-sd",
        "batches",
        "batches by an old name",
    ],
)
def test_problem_file_equals_the_problem_in_python(tmp_path, text, problem):
    assert load(tmp_path, text).describe() == problem.describe()
    assert problems.parse(problem.describe()).describe() == problem.describe()


@pytest.mark.parametrize("file", ["t.npz", "sub/t.npz"])
def test_table_file_equals_the_table_in_python(tmp_path, table, file):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    np.savez(tmp_path / file, rewards=table)
    found = load(tmp_path, f"horizon = 6\n[prior]\nkind = 'table'\nfile = '{file}'\nheld_out = 0.3")
    assert found.describe() == Problem(priors.Table(table, 0.3, file), 6).describe()
    np.testing.assert_array_equal(found.prior.table, table.astype(np.float32))


BETA = "horizon = 5\n[prior]\nkind = 'beta'\narms = 3\n"


def test_arms_and_horizon_of_a_problem_file_can_be_changed(tmp_path):
    problem = load(tmp_path, BETA, arms=7, horizon=60)
    assert (problem.arms, problem.horizon) == (7, 60)


def test_description_is_json():
    for name in NAMED:
        assert json.loads(json.dumps(problems.named(name).describe())) == problems.named(name).describe()


# What is refused: each with a sentence that names the thing.


def finite(means="[[0.1, 0.2]]", more="", rewards="bernoulli"):
    head = f"horizon = 5\n[prior]\nkind = 'finite'\nmeans = {means}\n{more}\n"
    return f"{head}[rewards]\nkind = '{rewards}'\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("horizon = ", "valid TOML"),
        ("horizon = 5\nhorizon = 6", "valid TOML"),
        (b"\xff\xfe", "valid TOML"),
        ("x = " + "[" * 5000, "valid TOML"),
        ("horizon = " + "1" * 5000, "valid TOML"),
        ("", "'horizon' is missing"),
        ("horizon = 5", "'prior' is missing"),
        ("horizon = 5\n[prior]\nkind = 'beta'", "'prior.arms' is missing"),
        ("horizon = 5\n[prior]\nkind = 'linear'\narms = 3", "'prior.dims' is missing"),
        ("horizon = 5\n[prior]\nkind = 'linear-by-arm'\narms = 3", "'prior.dims' is missing"),
        ("horizon = 5\n[prior]\nkind = 'finite'", "'prior.means' is missing"),
        ("horizon = 5\n[prior]\nkind = 'table'", "'prior.file' is missing"),
        ("horizon = 5\n[prior]\narms = 2", "prior.kind"),
        ("horizont = 5\n[prior]\nkind = 'beta'\narms = 2", "'horizont'.*mean 'horizon'"),
        ("horizon = 5\n[prior]\nkind = 'beta'\nmarms = 2", "'prior.marms'.*mean 'prior.arms'"),
        ("horizon = 5\n[prior]\nkind = 'bta'\narms = 2", "'bta'.*mean 'beta'"),
        (finite(rewards="bernouli"), "'bernouli'.*mean 'bernoulli'"),
        (f"{BETA}[rewards]\nkind = 'beta'\nw = 1", "'rewards.w'.*rewards.v"),
        (f"{BETA}[rewards]\nkind = []", "rewards.kind"),
        (f"{BETA}[rewards]\nv = 1", "rewards.kind"),
        (f"{BETA}\n[rewards]\nkind = 'beta'\nv = 'x'", "v of beta rewards"),
        ("horizon = 5\nprior = 3", "prior must be a table"),
        ("rewards = 3\n" + BETA, "rewards must be a table"),
        ("name = 3\n" + BETA, "name"),
        ("batch = 1\npulls_per_round = 1\n" + BETA, "'batch' is the old name of 'pulls_per_round'"),
        ("pulls_per_round = 7\n" + BETA, "not a multiple of pulls_per_round = 7"),
        ("noise = 'shard'\n" + BETA, "'shard'.*mean 'shared'"),
        ("noise = ['shared']\n" + BETA, "noise"),
        (finite(more="weights = [0.5]"), "sum to 1"),
        (finite("[[0.1], [0.2]]", "weights = [1.5, -0.5]"), r"sum to 1, not \[1.5, -0.5\]"),
        (finite(more="weights = [0.5, 0.5]"), "must be 1 probabilities, one per instance"),
        (finite(more="weights = 1"), "weights"),
        (finite(more="weights = ['1']"), "weights"),
        (finite("[[0.1, 0.2], [0.3]]"), "means.*equal length"),
        (finite("[0.1, 0.2]"), "means.*axes"),
        (finite("[]"), "means.*axes"),
        (finite("[[]]"), "means.*empty"),
        (finite("'x'"), "means must be numbers"),
        (finite("[['0.1', '0.2']]"), "means must be numbers"),
        (finite("[[true, false]]"), "means must be numbers"),
        (finite("[[2020-01-01]]"), "means must be numbers"),
        (finite("[[0.1, 1.5]]"), r"means of bernoulli rewards must lie in \[0, 1\], not 1.5"),
        (finite("[[0.1, -0.5]]", rewards="beta"), r"means of beta rewards must lie in \[0, 1\]"),
        (finite("[[0.1, nan]]"), r"means must be finite, but entry \[0, 1\]"),
        (finite("[[inf, 0.1]]", rewards="gaussian"), r"means must be finite, but entry \[0, 0\]"),
        (finite("[[1e300, 0.1]]", rewards="gaussian"), "means"),
        (finite(f"[[{10**400}, 0.1]]", rewards="gaussian"), "means"),
        (BETA + f"a = {10**400}", "a of the beta prior"),
        (BETA + "a = 0", "a of the beta prior"),
        (BETA + "b = -1.0", "b of the beta prior"),
        (BETA + "b = nan", "b of the beta prior"),
        (BETA + "a = 'x'", "a of the beta prior"),
        (BETA + "a = true", "a of the beta prior"),
        (BETA + "[rewards]\nkind = 'beta'\nv = 0", "v of beta rewards"),
        (BETA + "[rewards]\nkind = 'gaussian'\nsd = 0", "sd of gaussian rewards"),
        (BETA.replace("beta", "gaussian") + "sd = 0", "sd of the gaussian prior"),
        (BETA.replace("beta", "gaussian") + "sd = -1", "sd of the gaussian prior"),
        (BETA.replace("beta", "gaussian") + "mean = inf", "mean of the gaussian prior"),
        (BETA.replace("beta", "gaussian") + "[rewards]\nkind = 'bernoulli'", "use gaussian rewards"),
        *(
            (BETA.replace("= 3", f"= {arms}"), "arms")
            for arms in ("0", "-1", "true", "2.0", "'2'", "2000000000")
        ),
        *((BETA.replace("= 5", f"= {n}"), "horizon") for n in ("0", "-3", "true", "2.5", "5.0", "'5'")),
    ],
)
def test_bad_problem_file_is_refused(tmp_path, text, word):
    with pytest.raises(InputError, match=word) as caught:
        load(tmp_path, text)
    assert "mine.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("two-pint", "'two-pint': did you mean 'two-point'"),
        ("zzz", "unknown problem 'zzz': known: two-point.*FILE.toml"),
        ("", "unknown problem"),
        ("missing.toml", "missing.toml: No such file"),
        ("folder.toml", "folder.toml: it is not a regular file"),
        ("nul\0.toml", "null byte"),
    ],
)
def test_unknown_problem_is_refused(tmp_path, monkeypatch, source, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match=word):
        problems.load(source)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: problems.named("bernouli-10"), "mean 'bernoulli-10'"),
        (lambda: problems.named("two-point", arms=3), "2 arms"),
        (lambda: problems.named("distractors", arms=2), "at least 3 arms"),
        (lambda: problems.named("beta-10", arms=0), "arms"),
        (lambda: problems.named("beta-10", horizon=0), "horizon"),
        (lambda: priors.Beta(True), "arms"),
        (lambda: Problem(priors.Beta(2), 5, noise="none"), "noise"),
        (lambda: Problem(priors.Beta(2), True), "horizon"),
        (lambda: Problem(priors.Beta(2), np.inf), "horizon"),
        (lambda: problems.parse({"horizon": 5, "prior": {"kind": "table", "file": "t.npz"}}), "file"),
        (lambda: problems.parse(None), "problem"),
    ],
)
def test_bad_problem_in_python_is_refused(make, word):
    with pytest.raises(InputError, match=word):
        make()


def test_arms_of_a_finite_problem_file_are_fixed(tmp_path):
    with pytest.raises(InputError, match="arms of a finite prior is fixed"):
        load(tmp_path, finite(), arms=3)


def test_table_problem_takes_no_rewards(tmp_path, table):
    np.savez(tmp_path / "t.npz", rewards=table)
    with pytest.raises(InputError, match="contains its rewards"):
        load(
            tmp_path,
            "horizon = 6\n[prior]\nkind = 'table'\nfile = 't.npz'\n[rewards]\nkind = 'bernoulli'",
        )


# Arbitrary input: a problem or an InputError, nothing else.

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.integers(),
    st.sampled_from([10**400, 2**63, 1e39, 1e-320]),
    st.floats(),
    st.floats(0, 1),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
SIZES = st.one_of(st.integers(1, 9), VALUES)


def entries(required, **optional):
    """Dictionaries with the right keys, some of them left out, and sometimes one that is wrong."""
    odd = st.dictionaries(st.text(max_size=4), VALUES, max_size=1)
    usual = st.fixed_dictionaries(required, optional=optional)
    return st.builds(
        lambda known, unknown: unknown | known, usual, st.one_of(st.just({}), st.just({}), odd)
    )


MATRIX = st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=1, max_size=3)
PRIORS = st.one_of(
    entries({"kind": st.just("finite"), "means": st.one_of(MATRIX, VALUES)}, weights=VALUES),
    entries({"kind": st.just("beta"), "arms": SIZES}, a=SCALARS, b=SCALARS),
    entries({"kind": st.just("gaussian"), "arms": SIZES}, mean=SCALARS, sd=SCALARS),
    entries({"kind": st.just("table"), "file": st.one_of(st.just("t.npz"), VALUES)}, held_out=SCALARS),
    entries({"kind": VALUES}),
    VALUES,
)
REWARDS = st.one_of(
    entries({"kind": st.just("bernoulli")}),
    entries({"kind": st.just("beta")}, v=SCALARS),
    entries({"kind": st.just("gaussian")}, sd=SCALARS),
    entries({"kind": VALUES}),
    VALUES,
)
NOISES = st.one_of(st.sampled_from(problems.problem.NOISES), VALUES)
FILES = entries({"horizon": SIZES, "prior": PRIORS}, name=SCALARS, noise=NOISES, rewards=REWARDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("problem")
    np.savez(path / "t.npz", rewards=np.full((5, 2, 8), 0.5))
    return path


@settings(max_examples=600, deadline=None, database=None, derandomize=True)
@given(st.one_of(FILES, FILES, FILES, st.dictionaries(st.text(max_size=4), VALUES, max_size=4)))
def test_anything_is_a_problem_or_bad_input(folder, given):
    try:
        problem = problems.parse(given, folder)
    except InputError:
        return
    assert isinstance(problem, Problem)
    about = problem.describe()
    if problem.prior.kind == "table":
        del about["rewards"]
    assert problems.parse(about, folder).describe() == problem.describe()
