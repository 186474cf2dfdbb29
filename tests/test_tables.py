"""Tables of realised rewards: what is read, held out and refused."""

import contextlib
import io
import subprocess
import sys
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradband
from gradband import policies, problems
from gradband.core import parquet
from gradband.core.errors import InputError
from gradband.policies import binding
from gradband.problems import Problem, priors, reward_tables

# Reward tables.


def frame_of(table):
    """A table as rows (instance, arm, round, reward)."""
    instance, arm, t = (axis.ravel() for axis in np.indices(table.shape))
    return polars.DataFrame({"instance": instance, "arm": arm, "round": t, "reward": table.ravel()})


def table_problem(folder, file, horizon=4, **entries):
    return problems.parse({"horizon": horizon, "prior": {"kind": "table", "file": file, **entries}}, folder)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("arrange", [np.ascontiguousarray, np.asfortranarray])
def test_npz_is_read_back(tmp_path, table, save, arrange):
    save(tmp_path / "t.npz", rewards=arrange(table), other=np.zeros(3))
    np.testing.assert_array_equal(reward_tables.read_table(tmp_path / "t.npz"), table)


@pytest.mark.parametrize("kind", ["float32", ">f8", "uint8", "bool"])
def test_npz_of_other_number_types_is_read_back(tmp_path, table, kind):
    table = (table * 2).astype(kind)
    np.savez(tmp_path / "t.npz", rewards=table)
    np.testing.assert_array_equal(table_problem(tmp_path, "t.npz").prior.table, table.astype("f4"))


def test_parquet_is_read_back_whatever_the_order_of_its_rows(tmp_path, table):
    frame_of(table).sample(fraction=1, shuffle=True, seed=0).write_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal(reward_tables.read_table(tmp_path / "t.parquet"), table)


def test_npz_and_parquet_make_the_same_problem(tmp_path, table):
    np.savez(tmp_path / "t.npz", rewards=table)
    frame_of(table).write_parquet(tmp_path / "t.parquet")
    one, other = (table_problem(tmp_path, f"t.{kind}") for kind in ("npz", "parquet"))
    np.testing.assert_array_equal(one.prior.table, other.prior.table)
    assert (
        (one.arms, one.horizon, one.noise) == (other.arms, other.horizon, other.noise) == (3, 4, "shared")
    )


def test_reward_of_a_table_is_its_entry(table):
    problem = Problem(priors.Table(table), horizon=6, noise="independent")
    for instance, arm, t in [(0, 0, 0), (7, 2, 5), (9, 1, 3)]:
        reward = problem.reward(jax.random.key(0), *(jnp.int32(i) for i in (instance, arm, t)))
        assert reward == np.float32(table[instance, arm, t])


@pytest.mark.parametrize(
    ("count", "held_out", "trained_on"), [(10, 0.2, 8), (10, 0.25, 8), (5, 0.01, 4), (2, 0.9, 1), (3, 0, 3)]
)
def test_the_last_instances_of_a_table_are_held_out(count, held_out, trained_on):
    table = np.arange(count, dtype=float)[:, None, None] * np.ones((1, 2, 4))
    prior = priors.Table(table, held_out)
    assert prior.trained_on == trained_on
    assert set(
        np.asarray(jax.jit(jax.vmap(prior.sample))(jax.random.split(jax.random.key(0), 500))).tolist()
    ) == set(range(trained_on))
    kept = np.asarray(prior.fresh().table)[:, 0, 0]
    assert kept.tolist() == (list(range(trained_on, count)) if held_out else list(range(count)))


def test_evaluation_sees_each_held_out_instance_once():
    """Rewards of instance i are i, so that they tell which instances were played."""
    table = np.arange(40.0)[:, None, None] * np.ones((1, 2, 5))
    found = gradband.evaluate(
        [policies.Uniform()], Problem(priors.Table(table), horizon=5), instances=10_000
    )
    np.testing.assert_array_equal(found["uniform"].rewards, 5 * np.arange(32.0, 40.0))
    np.testing.assert_array_equal(found["uniform"].regrets, np.zeros(8))


def test_regret_on_a_table_is_against_the_best_arm_in_hindsight():
    table = np.broadcast_to(np.array([1.0, 0.0, 0.25])[:, None], (10, 3, 6))
    found = gradband.evaluate([policies.SoftElim()], Problem(priors.Table(table), horizon=3))["softelim"]
    np.testing.assert_allclose(found.regrets, [3 - 1.25] * 2)


def test_means_of_a_table_are_unknown(table):
    prior = priors.Table(table)
    assert not prior.knows_means
    with pytest.raises(InputError, match="unknown"):
        prior.means(0)


def test_thompson_sampling_plays_a_table_of_unit_rewards_only(table):
    inside, outside = (Problem(priors.Table(t), horizon=4) for t in (table, 2 * table))
    assert binding.check(policies.ThompsonSampling(), inside).horizon == 4
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        binding.check(policies.ThompsonSampling(), outside)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"file": "../t.npz"}, "must be in the problem file's folder"),
        ({"file": "sub/../../t.npz"}, "must be in the problem file's folder"),
        ({"file": "/etc/t.npz"}, "must be in the problem file's folder"),
        ({"file": "link.npz"}, "must be in the problem file's folder"),
        ({"file": "missing.npz"}, "no file missing.npz"),
        ({"file": "loop.npz"}, "loop.npz"),
        ({"file": "a" * 5000 + ".npz"}, "prior.file|no file"),
        ({"file": "nul\0.npz"}, "prior.file|no file"),
        ({"file": ""}, "prior.file"),
        ({"file": 3}, "prior.file"),
        ({"file": "t.csv"}, "npz or .parquet"),
        ({"file": "t.npz", "held_out": 1}, "held_out"),
        ({"file": "t.npz", "held_out": -0.1}, "held_out"),
        ({"file": "t.npz", "held_out": "x"}, "held_out"),
        ({"file": "t.npz", "horizon": 7}, "table has 6 rounds, the horizon is 7"),
        ({"file": "one.npz"}, "held_out to 0"),
        ({"file": "nan.npz"}, r"reward table must be finite, but entry \[1, 2, 3\]"),
        ({"file": "huge.npz"}, "reward table"),
        ({"file": "flat.npz"}, "reward table must have 3 axes"),
        ({"file": "empty.npz"}, "reward table.*empty"),
    ],
)
def test_bad_table_is_refused(tmp_path, table, change, word):
    folder = tmp_path / "problem"
    (folder / "sub").mkdir(parents=True)
    for path in (folder / "t.npz", tmp_path / "t.npz"):
        np.savez(path, rewards=table)
    (folder / "t.csv").write_text("1")
    (folder / "link.npz").symlink_to(tmp_path / "t.npz")
    (folder / "loop.npz").symlink_to("loop.npz")
    np.savez(folder / "one.npz", rewards=table[:1])
    np.savez(folder / "flat.npz", rewards=table[0])
    np.savez(folder / "empty.npz", rewards=table[:0])
    for name, value in (("nan", np.nan), ("huge", 1e300)):
        table[1, 2, 3] = value
        np.savez(folder / f"{name}.npz", rewards=table)
    with pytest.raises(InputError, match=word):
        table_problem(folder, **change)


def header(shape, kind="<f8", version=b"\x01\x00"):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text


NPZ = {
    "no array": ({"other.npy": header((1, 1, 1)) + bytes(8)}, "'rewards'"),
    "claims more": (
        {"rewards.npy": header((10**6, 10**6, 10**3)) + bytes(8)},
        "its size does not match its header",
    ),
    "claims less": ({"rewards.npy": header((1, 1, 1)) + bytes(16)}, "its size does not match its header"),
    "negative": ({"rewards.npy": header((-1, -1, 1)) + bytes(8)}, "npz"),
    "pickled": ({"rewards.npy": header((1, 1, 1), "|O") + b"cos\nsystem\n"}, "must be numbers, not object"),
    "text": ({"rewards.npy": header((1, 1, 1), "<U2") + bytes(8)}, "must be numbers"),
    "complex": ({"rewards.npy": header((1, 1, 1), "<c16") + bytes(16)}, "must be numbers"),
    "no magic": ({"rewards.npy": b"hello"}, "not a readable .npz"),
    "version 9": (
        {"rewards.npy": header((1, 1, 1), version=b"\x09\x00") + bytes(8)},
        "not a readable .npz",
    ),
    "bad header": ({"rewards.npy": b"\x93NUMPY\x01\x00\x06\x00{'x':("}, "not a readable .npz"),
    "empty": ({"rewards.npy": b""}, "not a readable .npz"),
}


@pytest.mark.parametrize("case", NPZ)
def test_bad_npz_is_refused(tmp_path, case):
    members, word = NPZ[case]
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(InputError, match=word):
        table_problem(tmp_path, "t.npz")


def test_object_array_of_numpy_is_refused(tmp_path):
    np.savez(tmp_path / "t.npz", rewards=np.array([[["x", {}]]], object))
    with pytest.raises(InputError, match="must be numbers, not object"):
        table_problem(tmp_path, "t.npz")


def test_npz_that_is_no_zip_is_refused(tmp_path):
    (tmp_path / "t.npz").write_bytes(b"hello")
    with pytest.raises(InputError, match="not a readable .npz"):
        table_problem(tmp_path, "t.npz")


def test_npz_with_damaged_compression_is_refused(tmp_path, table):
    path = tmp_path / "t.npz"
    np.savez_compressed(path, rewards=table)
    data = bytearray(path.read_bytes())
    data[60:120] = b"\xff" * 60
    path.write_bytes(data)
    with pytest.raises(InputError, match="not a readable .npz"):
        table_problem(tmp_path, "t.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_truncated_npz_is_refused(tmp_path, table, save):
    path = tmp_path / "t.npz"
    save(path, rewards=table)
    whole = path.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 25, dtype=int):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="t.npz"):
            table_problem(tmp_path, "t.npz")


def test_too_large_npz_is_refused(tmp_path, table, monkeypatch):
    np.savez(tmp_path / "t.npz", rewards=table)
    monkeypatch.setattr(reward_tables, "TABLE_LIMIT", 100)
    with pytest.raises(InputError, match="more than"):
        table_problem(tmp_path, "t.npz")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda f: f.drop("round"), "columns instance, arm, round, reward"),
        (lambda f: f[:-1], "10 × 3 × 6 rows, not 179"),
        (lambda f: polars.concat([f[:-1], f[:1]]), "10 × 3 × 6 rows"),
        (lambda f: f[:0], "reward table.*empty"),
        (lambda f: f.with_columns(reward=polars.lit("x")), "reward of t.parquet must hold numbers"),
        (lambda f: f.with_columns(polars.col("round").cast(str)), "round of .* whole numbers, not String"),
        (lambda f: f.with_columns(reward=polars.lit(None, polars.Float64)), "reward table must be finite"),
        (lambda f: f.with_columns(reward=polars.lit(float("nan"))), "reward table must be finite"),
    ],
    ids=["no column", "row missing", "row twice", "no rows", "text", "rounds as text", "null", "nan"],
)
def test_bad_parquet_is_refused(tmp_path, table, change, word):
    change(frame_of(table)).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=word):
        table_problem(tmp_path, "t.parquet")


@pytest.mark.parametrize(
    ("trial", "says"),
    [
        ("import os; os.abort()", "the reader crashed on it"),
        ("while True: pass", "longer than 0.5 s"),
    ],
)
def test_a_parquet_file_that_ends_its_reader_is_refused(tmp_path, table, monkeypatch, trial, says):
    frame_of(table).write_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(parquet, "TRIAL", trial)
    monkeypatch.setattr(parquet, "SECONDS", 0.5 if "while" in trial else 60)
    with pytest.raises(InputError, match=says):
        reward_tables.read_table(tmp_path / "t.parquet")


def test_reading_parquet_runs_nothing_that_lies_beside_it(tmp_path, table, monkeypatch):
    frame_of(table).write_parquet(tmp_path / "t.parquet")
    (tmp_path / "polars.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(reward_tables.read_table(tmp_path / "t.parquet"), table)


def test_parquet_is_read_under_a_limit_that_can_not_be_raised(tmp_path, table):
    frame_of(table).write_parquet(tmp_path / "t.parquet")
    code = (
        "import resource, sys, pathlib; from gradband.problems import reward_tables;"
        "resource.setrlimit(resource.RLIMIT_AS, (16 << 30,) * 2);"
        "print(reward_tables.read_table(pathlib.Path(sys.argv[1])).shape)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t.parquet")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == str(table.shape), ran.stderr


def test_file_that_is_no_parquet_is_refused(tmp_path):
    for data in (b"", b"hello", b"PAR1" * 3):
        (tmp_path / "t.parquet").write_bytes(data)
        with pytest.raises(InputError, match="must be a Parquet file"):
            table_problem(tmp_path, "t.parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("problem")
    np.savez(path / "t.npz", rewards=np.full((5, 2, 8), 0.5))
    return path


def npz_bytes(save):
    file = io.BytesIO()
    save(file, rewards=np.random.default_rng(0).random((5, 2, 8)))
    return file.getvalue()


NPZ_FILES = [npz_bytes(save) for save in (np.savez, np.savez_compressed)]


# Places are counted anew from the start where there are fewer: strategies that are made for each example
# take most of the time.
PLACES = st.integers(0, 2**32)
DAMAGES = st.lists(st.tuples(PLACES, st.integers(0, 255)), max_size=3)


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.sampled_from(NPZ_FILES), st.none() | PLACES, DAMAGES)
def test_any_damage_to_an_npz_gives_a_table_or_bad_input(folder, whole, end, damages):
    damaged = bytearray(whole if end is None else whole[: end % (len(whole) + 1)])
    for place, byte in damages if damaged else ():
        damaged[place % len(damaged)] = byte
    path = folder / "damaged.npz"
    path.write_bytes(damaged)
    with contextlib.suppress(InputError):
        priors.Table(reward_tables.read_table(path))
