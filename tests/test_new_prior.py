"""The prior in CONTRIBUTING is a whole one: read, written, played and learned on."""

import importlib.util
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband.core.errors import InputError
from gradband.problems import priors

pytestmark = pytest.mark.brief


@pytest.fixture
def spike(monkeypatch, tmp_path):
    """The skeleton's class, with the one line that lists it."""
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "(Prior)" in block
    )
    file = tmp_path / "spike.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("gradband.problems.priors.spike", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(priors.KINDS, "spike", module.Spike)
    return module.Spike


def test_it_is_read_and_written(spike, tmp_path):
    file = tmp_path / "spike.toml"
    file.write_text('horizon = 20\n[prior]\nkind = "spike"\narms = 4\nbest = 0.8\n')
    problem = gb.problems.load(str(file))
    described = {"kind": "spike", "arms": 4, "usual": 0.5, "best": 0.8}
    assert problem.prior.describe() == described
    assert gb.problems.parse(problem.describe()).prior.describe() == described
    assert gb.problems.load(str(file), arms=7).arms == 7
    for wrong, words in (("most = 1", "prior.most"), ("best = 2", "best of the spike prior")):
        file.write_text(f'horizon = 20\n[prior]\nkind = "spike"\narms = 4\n{wrong}\n')
        with pytest.raises(InputError, match=words):
            gb.problems.load(str(file))


def test_it_is_played_and_learned_on(spike):
    problem = gb.Problem(spike(4), horizon=20)
    regret = gb.evaluate("uniform", problem, instances=2000).rows[0].regret
    assert_z(regret.mean, regret.se, 20 * 0.75 * 0.4)
    learned = gb.learn("softelim", problem, iterations=2, instances=256, recipe="algorithm-1")
    assert gb.evaluate(learned, problem, instances=2000).rows[0].regret.mean < regret.mean
    keys = jax.random.split(jax.random.key(0), 4000)
    best = np.asarray(jax.jit(jax.vmap(spike(4).sample))(keys)).argmax(1)
    counts = np.bincount(best, minlength=4)
    assert_z(counts / 4000, np.sqrt(0.25 * 0.75 / 4000), 0.25)
