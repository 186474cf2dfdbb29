"""Files: round trips to the bit, atomic writing, and one clear sentence for anything that is damaged."""

import ast
import contextlib
import dataclasses
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import gradband
from gradband.core import files, tensor_file
from gradband.core.errors import InputError
from gradband.policies import (
    POLICIES,
    Exp3,
    ExploreThenCommit,
    OneParameter,
    Policy,
    SoftElim,
    ThompsonSampling,
)

pytestmark = pytest.mark.brief

ARRAYS = {
    "scalar": np.float32(0.1),
    "matrix": np.arange(6.0).reshape(2, 3),
    "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "none": np.zeros((0, 4), np.float32),
    "odd": np.array([np.nan, -np.inf, -0.0, 1e-45], np.float32),
    "flags": np.array([True, False]),
}
ABOUT = {"text": "θ ↦ ∇", "list": [1, 2.5, None, True], "deep": {"a": {"b": []}}}


def learned(policy=None, **about):
    """A learned policy that nobody had to learn."""
    bound = (policy or SoftElim()).bind(2, 20)
    params = {
        name: (value * 0.9375).astype(value.dtype) for name, value in bound.init(jax.random.key(0)).items()
    }
    rng = np.random.default_rng(0)
    history = {name: rng.random(7, np.float32) for name in ("horizon", "norm", "regret", "regret_se")}
    history["params"] = rng.random((7, len(params)), np.float32)
    return gradband.Learned(
        bound, params, history, {"seed": 3, "problem": {"name": "two-point"}, **about}, "why"
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policy.safetensors"


# Round trips.


def test_arrays_and_what_is_known_of_them_come_back(path):
    tensor_file.save(path, "thing", ARRAYS, ABOUT)
    arrays, about = tensor_file.load(path, "thing")
    assert about == ABOUT
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].shape, arrays[name].dtype) == (array.shape, array.dtype)
        assert arrays[name].tobytes() == np.asarray(array).tobytes()


def test_values_that_json_lacks_are_written_as_it_can_hold_them(path):
    given = {
        "nan": np.nan,
        "inf": [np.inf, (1, -np.inf)],
        "array": jnp.arange(3),
        "number": np.float32(0.5),
        1: 2,
    }
    tensor_file.save(path, "thing", {}, given)
    expected = {"nan": None, "inf": [None, [1, None]], "array": [0, 1, 2], "number": 0.5, "1": 2}
    assert tensor_file.load(path, "thing") == ({}, expected)


@pytest.mark.parametrize("name", POLICIES)
def test_policy_comes_back_to_the_bit(path, name):
    first = learned(POLICIES[name]())
    first.save(path)
    again = gradband.load(path)
    assert again.policy == first.policy
    assert (again.about, again.stopped) == (first.about, first.stopped)
    assert set(again.params) == set(first.params)
    for mine, theirs in ((again.params, first.params), (again.history, first.history)):
        assert set(mine) == set(theirs)
        for key in mine:
            assert (mine[key].shape, mine[key].dtype) == (theirs[key].shape, theirs[key].dtype)
            assert np.asarray(mine[key]).tobytes() == np.asarray(theirs[key]).tobytes()


def test_settings_of_a_policy_come_back(path):
    learned(Exp3(theta=0.3, gradient="lemma")).save(path)
    assert gradband.load(path).policy == Exp3(theta=0.3, gradient="lemma").bind(2, 20)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Policy):
    """A policy of a user's own, with a parameter for each arm."""

    name: ClassVar[str] = "mine"

    def init(self, key):
        return {"weights": jnp.arange(1.0, self.arms + 1)}

    def begin(self, params, latent):
        return ()

    def log_probs(self, params, state):
        return jax.nn.log_softmax(params["weights"])

    def update(self, params, state, arm, reward):
        return ()


def test_policy_of_ones_own_class_loads_with_that_class(path):
    learned(Mine()).save(path)
    again = gradband.load(path, trust=Mine)
    assert again.policy == Mine(arms=2, horizon=20)
    np.testing.assert_array_equal(again.params["weights"], [0.9375, 1.875])


def test_policy_of_ones_own_class_needs_that_class(path):
    learned(Mine()).save(path)
    with pytest.raises(InputError, match="class 'test_files:Mine', which is not gradband's: .*trust=Mine"):
        gradband.load(path)


def test_policy_of_another_class_is_refused(path):
    learned(Mine()).save(path)
    with pytest.raises(InputError, match="'test_files:Mine', which is not among those that you trust"):
        gradband.load(path, trust=SoftElim)


# Writing.


def write_nothing(target):
    raise OSError("the disk is full")


def write_half(target):
    target.write_bytes(b"half")
    raise KeyboardInterrupt


def test_nothing_but_the_file_is_left_after_writing(tmp_path):
    tensor_file.save(tmp_path / "deep" / "er" / "x.safetensors", "thing", ARRAYS, ABOUT)
    files.write_text(tmp_path / "deep" / "er" / "x.txt", "θ")
    assert sorted(os.listdir(tmp_path / "deep" / "er")) == ["x.safetensors", "x.txt"]
    assert (tmp_path / "deep" / "er" / "x.txt").read_text(encoding="utf-8") == "θ"


@pytest.mark.parametrize("write", [write_nothing, write_half])
def test_file_survives_when_writing_fails(path, write):
    path.write_bytes(b"old")
    with pytest.raises((OSError, KeyboardInterrupt)):
        files.write_atomically(path, write)
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("write", [write_nothing, write_half])
def test_nothing_is_left_when_writing_fails(path, write):
    with pytest.raises((OSError, KeyboardInterrupt)):
        files.write_atomically(path, write)
    assert os.listdir(path.parent) == []


def test_nothing_is_left_when_the_file_can_not_be_put_in_place(path):
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        tensor_file.save(path, "thing", ARRAYS, ABOUT)
    assert os.listdir(path.parent) == [path.name]


def test_nothing_is_written_of_what_json_can_not_hold(path):
    with pytest.raises(TypeError):
        tensor_file.save(path, "thing", {}, {"object": object()})
    assert os.listdir(path.parent) == []


def test_a_file_is_on_disk_before_it_is_in_place_and_its_name_afterwards(path, monkeypatch):
    """A crash leaves the old file or all of the new one: contents are flushed first, then the name."""
    calls = []
    fsync, replace = os.fsync, os.replace

    def flushed(file):
        found = os.fstat(file)
        calls.append("flush folder" if stat.S_ISDIR(found.st_mode) else f"flush {found.st_size} bytes")
        fsync(file)

    def put(source, target):
        calls.append(f"put {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", put)
    files.write_text(path, "first")
    assert calls == ["flush 5 bytes", f"put {path.name}", "flush folder"]
    calls.clear()
    tensor_file.save(path, "policy", ARRAYS, ABOUT, keep=True)
    size = path.stat().st_size
    assert calls == [
        f"flush {size} bytes",
        f"put {files.before(path).name}",
        f"put {path.name}",
        "flush folder",
    ]


def test_old_file_is_replaced(path):
    for text in ("one", "two"):
        files.write_text(path, text)
    assert path.read_text() == "two"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_follow_the_umask(path, mask):
    before = os.umask(mask)
    try:
        tensor_file.save(path, "thing", ARRAYS, ABOUT)
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


# What is refused.


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """The bytes of a policy file."""
    path = tmp_path_factory.mktemp("valid") / "policy.safetensors"
    learned().save(path)
    return path.read_bytes()


def test_files_are_read_as_safetensors_reads_them(path):
    rng = np.random.default_rng(0)
    kinds = ("?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8")
    arrays = {f"a {kind}": (9 * rng.random((2, 3))).astype(kind) for kind in kinds}
    arrays |= {"none": np.zeros((0, 3)), "one": np.array(2.5)}
    tensor_file.save(path, "policy", arrays, {})
    found = tensor_file.load(path, "policy")[0]
    for name, array in load_file(path).items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
    assert set(found) == set(arrays)


@pytest.mark.parametrize(
    "header",
    [
        [],
        {"a": 3},
        {"a": {"dtype": "F32", "shape": [1]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [10**30, 0], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "__metadata__": {"format": 3}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "__metadata__": []},
        {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"},
        {},
    ],
)
def test_headers_that_say_what_is_not_there_are_refused(path, header):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(InputError, match="not a safetensors file"):
        tensor_file.load(path, "policy")


def test_a_shape_of_huge_numbers_is_refused_at_once(path):
    """Their product would take minutes."""
    header = {"a": {"dtype": "F32", "shape": [10**4200] * 1000, "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    began = time.monotonic()
    with pytest.raises(InputError, match="the size that its shape requires"):
        tensor_file.load(path, "policy")
    assert time.monotonic() - began < 10


def test_truncated_file_is_refused(path, valid):
    for length in [0, 1, 7, 8, 9, 50, len(valid) // 2, len(valid) - 30, len(valid) - 1]:
        path.write_bytes(valid[:length])
        with pytest.raises(InputError, match="policy.safetensors.*(damaged|cannot read)"):
            gradband.load(path)


def test_random_bytes_are_refused(path):
    for seed in range(20):
        path.write_bytes(np.random.default_rng(seed).bytes(1000))
        with pytest.raises(InputError, match="damaged or not a safetensors file"):
            gradband.load(path)


def test_header_that_claims_a_huge_length_is_refused(path, valid):
    path.write_bytes(b"\xff" * 8 + valid[8:])
    with pytest.raises(InputError, match="damaged or not a safetensors file"):
        gradband.load(path)


def test_missing_file_is_refused(path):
    with pytest.raises(InputError, match="cannot read .*policy.safetensors: No such file"):
        gradband.load(path)


def test_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read|directory"):
        gradband.load(tmp_path)


def test_path_with_a_null_byte_is_refused():
    with pytest.raises(InputError, match="null byte"):
        gradband.load("a\0.safetensors")


def test_file_that_is_too_large_is_refused(path, valid, monkeypatch):
    monkeypatch.setattr(files, "SIZE_LIMIT", 100)
    path.write_bytes(valid)
    with pytest.raises(InputError, match="larger than"):
        gradband.load(path)


METADATA = {"format": "gradband-policy", "version": "1", "about": "{}"}


@pytest.mark.parametrize(
    ("metadata", "word"),
    [
        (None, "not a gradband policy file"),
        ({"format": "pt"}, "not a gradband policy file"),
        (METADATA | {"format": "gradband-checkpoint"}, "not a gradband policy file"),
        (METADATA | {"version": "2"}, "newer gradband.*upgrade"),
        (METADATA | {"version": "99"}, "newer gradband.*upgrade"),
        (METADATA | {"version": "0"}, "unknown format version '0'"),
        (METADATA | {"version": "one"}, "unknown format version 'one'"),
        (METADATA | {"version": "9" * 5000}, "newer gradband|damaged"),
        ({"format": "gradband-policy"}, "unknown format version ''"),
        ({"format": "gradband-policy", "version": "1"}, "damaged: 'about'"),
        (METADATA | {"about": ""}, "damaged"),
        (METADATA | {"about": "{"}, "damaged"),
        (METADATA | {"about": "[" * 100_000}, "damaged"),
        (METADATA | {"about": "[]"}, "not a gradband policy file"),
        (METADATA, "not a complete policy file"),
    ],
)
def test_file_with_other_metadata_is_refused(path, metadata, word):
    save_file({"params.theta": np.ones((), np.float32)}, path, metadata)
    with pytest.raises(InputError, match=word) as caught:
        gradband.load(path)
    assert str(path) in str(caught.value)


def test_checkpoint_is_no_policy(path):
    tensor_file.save(path, "checkpoint", {}, {})
    with pytest.raises(InputError, match="not a gradband policy file"):
        gradband.load(path)


USUAL = {
    "policy": "softelim",
    "settings": {"theta": 1.0},
    "arms": 2,
    "horizon": 20,
    "stopped": "",
}
THETA = np.float32(0.5)


@pytest.mark.parametrize(
    ("about", "theta", "word"),
    [
        ({"policy": "softelm"}, THETA, "unknown policy 'softelm': did you mean 'softelim'"),
        ({"policy": 3}, THETA, "policy"),
        ({"policy": ["softelim"]}, THETA, "policy"),
        ({"policy": None}, THETA, "policy"),
        ({"settings": {"theta": "1"}}, THETA, "theta of softelim"),
        ({"settings": {"theta": None}}, THETA, "theta of softelim"),
        ({"settings": {"theta": -1}}, THETA, "theta of softelim"),
        ({"settings": {"theta": 10**400}}, THETA, "theta of softelim"),
        ({"settings": {"theta": True}}, THETA, "theta of softelim"),
        ({"settings": {"thta": 1}}, THETA, "thta"),
        ({"settings": [1]}, THETA, "not a complete policy file"),
        ({"settings": None}, THETA, "not a complete policy file"),
        ({"policy": "exp3", "settings": {"gradient": "lema"}}, THETA, "mean 'lemma'"),
        ({"policy": "exp3", "settings": {"gradient": []}}, THETA, "gradient of exp3"),
        ({"policy": "ts", "settings": {"a": "x"}}, THETA, "a of ts"),
        ({"arms": 0}, THETA, "arms"),
        ({"arms": 2.0}, THETA, "arms"),
        ({"arms": "2"}, THETA, "arms"),
        ({"arms": 21}, THETA, "horizon of at least 21"),
        ({"horizon": 0}, THETA, "horizon"),
        ({"horizon": True}, THETA, "horizon"),
        ({"horizon": None}, THETA, "horizon"),
        ({"policy": "explore-then-commit", "settings": {}, "horizon": 10**400}, THETA, "horizon"),
        ({}, np.float32([0.5]), r"theta must hold finite numbers of shape \(\)"),
        ({}, np.zeros((0,), np.float32), "theta must hold"),
        ({}, np.float32(np.nan), "theta must hold finite numbers"),
        ({}, np.float32(np.inf), "theta must hold finite numbers"),
        ({}, np.float64(1e300), "theta must"),
        ({}, np.int32(1), "must hold floating-point numbers"),
        ({}, np.float32(0), r"theta must lie in \[1e-15, inf\]"),
        ({}, np.float32(-1), "theta must lie in"),
        ({"policy": "exp3"}, np.float32(1.5), r"theta must lie in \[1e-15, 1\]"),
        ({"policy": "explore-then-commit", "settings": {}}, np.float32(11), "theta must lie in"),
        ({}, None, "parameters of softelim must be: theta"),
    ],
)
def test_policy_file_with_a_wrong_entry_is_refused(path, about, theta, word):
    arrays = {} if theta is None else {"params.theta": theta}
    tensor_file.save(path, "policy", arrays, USUAL | about)
    with pytest.raises(InputError, match=word) as caught:
        gradband.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", USUAL)
def test_policy_file_with_an_entry_missing_is_refused(path, name):
    tensor_file.save(path, "policy", {"params.theta": THETA}, {k: v for k, v in USUAL.items() if k != name})
    with pytest.raises(InputError, match=f"not a complete policy file: .*{name}"):
        gradband.load(path)


def test_usual_entries_are_accepted(path):
    """Else the tests above would show nothing."""
    tensor_file.save(path, "policy", {"params.theta": THETA}, USUAL)
    assert gradband.load(path).params == {"theta": 0.5}
    tensor_file.save(path, "policy", {}, USUAL | {"policy": "ts", "settings": {"a": 2.0}})
    assert gradband.load(path).policy == ThompsonSampling(a=2.0).bind(2, 20)


def test_bounds_are_those_of_the_files_own_horizon(path):
    about = USUAL | {"policy": "explore-then-commit", "settings": {"theta": 15.5}, "horizon": 40}
    tensor_file.save(path, "policy", {"params.theta": np.float32(19.5)}, about)
    assert gradband.load(path).policy == ExploreThenCommit(theta=15.5).bind(2, 40)


def accepts_or_refuses(path, data):
    """Loads some bytes: a policy within its bounds, or InputError."""
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        found = gradband.load(path)
        assert isinstance(found.policy, OneParameter)
        lower, upper = (bound["theta"] for bound in found.policy.bounds())
        assert np.float32(lower) <= found.params["theta"] <= np.float32(upper)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch") / "damaged.safetensors"


# Places are counted anew from the start where there are fewer: strategies that are made for each example
# take most of the time.
PLACES = st.integers(0, 2**32)
DAMAGES = st.lists(st.tuples(PLACES, st.integers(0, 255)), max_size=3)


@settings(max_examples=400, deadline=None, database=None, derandomize=True)
@given(st.none() | PLACES, DAMAGES)
def test_any_damage_gives_a_policy_or_bad_input(scratch, valid, end, damages):
    damaged = bytearray(valid if end is None else valid[: end % (len(valid) + 1)])
    for place, byte in damages if damaged else ():
        damaged[place % len(damaged)] = byte
    accepts_or_refuses(scratch, damaged)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(
    st.fixed_dictionaries(
        {
            "policy": st.sampled_from(["softelim", "exp3", "explore-then-commit"]) | JSON,
            "settings": st.fixed_dictionaries({}, optional={"theta": JSON, "gradient": JSON}) | JSON,
            "arms": st.integers(1, 9) | JSON,
            "horizon": st.integers(1, 99) | JSON,
            "stopped": JSON,
        }
    )
)
def test_any_entries_give_a_policy_or_bad_input(scratch, about):
    metadata = METADATA | {"about": json.dumps(about)}
    save_file({"params.theta": np.asarray(THETA)}, scratch, metadata)
    accepts_or_refuses(scratch, scratch.read_bytes())


def test_policy_is_no_checkpoint(path):
    learned().save(path)
    with pytest.raises(InputError, match="not a gradband checkpoint file"):
        tensor_file.load(path, "checkpoint")


# The package.


@pytest.mark.parametrize(
    "first", [pytest.param("annealed", marks=pytest.mark.slow), "gradband.learning.learn"]
)
def test_functions_are_not_hidden_by_modules_of_the_same_name(first):
    """Whatever was used first: a submodule, once imported, is an attribute of its package."""
    use = f"import {first}" if "." in first else f"gb.{first}"
    code = f"import gradband as gb\n{use}\nassert type(gb.learn) is type(gb.evaluate) is type(lambda: 0)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


# No code comes out of a file.


def test_nothing_imports_pickle():
    sources = sorted(Path(gradband.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    for source in sources:
        text = source.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            roots = {name.split(".")[0] for name in names}
            assert not roots & {
                "pickle",
                "cPickle",
                "dill",
                "cloudpickle",
                "joblib",
                "shelve",
                "marshal",
            }, source
        assert "allow_pickle" not in text, source
