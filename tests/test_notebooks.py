"""The notebooks of the site run, and show what they showed when they were run as a whole."""

import importlib.util
import inspect
import json
import re
import shutil
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import gradband as gb
from gradband.evaluation import compare_with_defaults
from gradband.problems import fit_figure, fitting

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SMALL = {"iterations": 2, "instances": 60}


def cells(path, kind="code"):
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell | {"source": "".join(cell["source"])} for cell in found if cell["cell_type"] == kind]


def limited(function):
    """The function with fewer iterations and instances, whatever a notebook says."""
    takes = inspect.signature(function).parameters
    small = {name: value for name, value in SMALL.items() if name in takes}
    if "learning" in takes:
        small["learning"] = SMALL
    return lambda *given, **named: function(*given, **named | small)


@pytest.mark.brief
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=[] if p.stem == "own_policy" else pytest.mark.slow)
        for p in NOTEBOOKS
    ],
)
def test_every_cell_runs(path, tmp_path, monkeypatch):
    """With few instances, simple priors and one rival, so that it takes seconds."""
    shutil.copy(FOLDER / "past_tests.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("learn", "evaluate", "compare", "gain", "explain", "sweep"):
        monkeypatch.setitem(vars(gb), name, limited(getattr(gb, name)))
    rivals = compare_with_defaults.rivals([])
    few = {"uniform": rivals["uniform"]}
    monkeypatch.setattr(compare_with_defaults, "rivals", lambda fitted: few)
    monkeypatch.setattr(fitting, "FEW", 10**6)
    monkeypatch.setattr(fit_figure, "INSTANCES", 200)
    module = type(sys)("notebook")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(plt, "show", lambda: None)
    for cell in cells(path):
        exec(compile(cell["source"], str(path), "exec"), vars(module))
        plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_shows_what_it_did(path):
    found = cells(path)
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1)), "run from the top"
    outputs = [output for cell in found for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    pictures = sum("image/png" in output.get("data", {}) for output in outputs)
    assert pictures == sum(".plot(" in cell["source"] for cell in found)
    text = path.read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert "/tmp/" not in text
    assert not re.search(r'"text/html": \[\s*"(?!<div)', text.replace("<style", "<div")), (
        "escaped HTML only"
    )


def test_from_a_table_to_its_gain_takes_ten_lines():
    code = "\n".join(cell["source"] for cell in cells(FOLDER / "past_tests.ipynb"))
    until = code[: code.index("gain = gb.gain(") + 1]
    lines = [line for line in until.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 10


def test_the_data_are_those_that_the_script_makes(tmp_path):
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.write_data(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == (FOLDER / "past_tests.csv").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_run_in_a_kernel_of_their_own(path):
    """As `make notebooks` runs them. The gains are those that the notebook shows, up to rounding."""
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    again = [cell for cell in script.run(path).cells if cell.cell_type == "code"]
    for cell, before in zip(again, cells(path), strict=True):
        kinds = [sorted(output.get("data", {})) for output in cell.outputs]
        assert kinds == [sorted(output.get("data", {})) for output in before["outputs"]]
        if "gain.to_frame" in before["source"]:
            now, then = (
                [float(number) for number in re.findall(r">(-?\d+\.\d+)<", html)]
                for html in (
                    cell.outputs[0].data["text/html"],
                    "".join(before["outputs"][0]["data"]["text/html"]),
                )
            )
            np.testing.assert_allclose(now, then, atol=0.05)
