"""Checkpoints that are damaged or of another run are refused with one clear sentence."""

import numpy as np
import pytest

import gradband
from gradband import problems
from gradband.core import tensor_file
from gradband.core.errors import InputError
from gradband.policies import SoftElim


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint.safetensors"


PROBLEM = problems.named("two-point", horizon=20)


def resume(path, resume=True):
    return gradband.learn(SoftElim(), PROBLEM, iterations=2, instances=32, checkpoint=path, resume=resume)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """What a checkpoint holds: arrays and what is known of them."""
    path = tmp_path_factory.mktemp("checkpoint") / "checkpoint.safetensors"
    resume(path, resume=False)
    return tensor_file.load(path, "checkpoint")


@pytest.mark.parametrize(
    ("arrays", "about", "word"),
    [
        ({}, {"iteration": "1"}, "iteration"),
        ({}, {"iteration": None}, "iteration"),
        ({}, {"iteration": -1}, "iteration"),
        ({}, {"iteration": 10**9}, "iteration"),
        ({}, {"stage": 5}, "checkpoint"),
        ({}, {"stage": -1}, "stage"),
        ({}, {"settings": None}, "settings"),
        ({}, {"settings": {}}, "settings"),
        ({"params": np.zeros(2, np.float32)}, {}, "not a complete checkpoint"),
        ({"params": np.full(1, np.nan, np.float32)}, {}, "checkpoint"),
        ({"history.regret": np.zeros(1)}, {}, "checkpoint"),
        ({"history.regret": np.float64(1)}, {}, "not a complete checkpoint"),
        ({"optimizer.0": np.zeros(3)}, {}, "another optimiser"),
    ],
)
def test_checkpoint_with_a_wrong_entry_is_refused(path, checkpoint, arrays, about, word):
    tensor_file.save(path, "checkpoint", checkpoint[0] | arrays, checkpoint[1] | about)
    with pytest.raises(InputError, match=word):
        resume(path)


@pytest.mark.parametrize("name", ["params", "stage_start", "history.regret"])
def test_checkpoint_with_an_array_missing_is_refused(path, checkpoint, name):
    arrays = {key: array for key, array in checkpoint[0].items() if key != name}
    tensor_file.save(path, "checkpoint", arrays, checkpoint[1])
    with pytest.raises(InputError, match=f"not a complete checkpoint.*{name}"):
        resume(path)


@pytest.mark.parametrize("name", ["stage", "iteration", "stopped", "settings"])
def test_checkpoint_with_an_entry_missing_is_refused(path, checkpoint, name):
    about = {key: value for key, value in checkpoint[1].items() if key != name}
    tensor_file.save(path, "checkpoint", checkpoint[0], about)
    with pytest.raises(InputError, match="checkpoint"):
        resume(path)
