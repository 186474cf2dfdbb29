"""Runs the notebooks of this folder, or those that are named, and writes what they show into them.

python docs/notebooks/run.py                    # make notebooks
python docs/notebooks/run.py past_tests.ipynb
"""

import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
import numpy as np
from nbclient import NotebookClient

HERE = Path(__file__).parent
DATA = "past_tests.csv"
SECONDS = 1200


def main(names: list[str]) -> None:
    write_data(HERE / DATA)
    for path in [HERE / name for name in names] or sorted(HERE.glob("*.ipynb")):
        notebook = run(path)
        nbformat.write(notebook, path)
        print(path.name)


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs, run in a folder of its own that has the data."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / DATA, folder)
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=where).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not is_empty(output)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel}
    return notebook


def is_empty(output: nbformat.NotebookNode) -> bool:
    """Whether it is where a progress bar was."""
    return output.output_type == "display_data" and output.data.get("text/html") == ""


def write_data(path: Path) -> None:
    """Simulated headline tests: click rates differ three times as much between tests as within one."""
    rng = np.random.default_rng(0)
    rows = ["test,headline,shown,clicked"]
    for test, level in enumerate(rng.beta(2.7, 177, size=300)):
        for arm in range(rng.integers(3, 6)):
            shown = rng.integers(2000, 4000)
            rate = rng.beta(1600 * level, 1600 * (1 - level))
            rows.append(f"{test},{'ABCDE'[arm]},{shown},{rng.binomial(shown, rate)}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
