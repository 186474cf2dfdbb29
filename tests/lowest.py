"""Runs a core of the tests against the lowest versions that pyproject.toml allows (`make lowest`).

What users install (the dependencies, and every extra but those for development) is installed at exactly its
lower bound, into `.venv-lowest`; what only tests need comes in the versions of constraints.txt. An
environment whose bounds have not changed is used again.
"""

import argparse
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-lowest"
FOR_DEVELOPMENT = ("dev", "docs", "fuzz")
TOOLS = ("hypothesis", "onnxruntime", "pytest", "pytest-xdist")
CORE = [
    "test_vmap_last.py",
    "test_prng.py",
    "test_gradient.py",
    "test_learn.py",
    "test_regret.py",
    "test_priors.py",
    "test_files.py",
    "test_checkpoint.py",
    "test_fit.py",
    "test_tables.py",
    "test_gittins.py",
    "test_figures.py",
    "test_terminal.py",
    "test_export.py",
    "test_player.py",
]


def of_users(project: dict) -> Iterator[Requirement]:
    """The requirements that users install, of the package and of its extras."""
    extras = project.get("optional-dependencies", {})
    listed = [extras[name] for name in extras if name not in FOR_DEVELOPMENT]
    for line in sum(listed, project["dependencies"]):
        requirement = Requirement(line)
        if requirement.name != project["name"]:
            yield requirement


def lowest(requirement: Requirement) -> str:
    """The requirement at exactly its lower bound: `numpy>=2` is `numpy==2`."""
    bounds = [part.version for part in requirement.specifier if part.operator == ">="]
    if len(bounds) != 1:
        sys.exit(f"{requirement} must have one lower bound (>=)")
    return f"{requirement.name}=={bounds[0]}"


def pins() -> list[str]:
    """Everything that is installed, each at one version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    tools = [f"{name}=={version}" for name, version in pinned if name in TOOLS]
    return sorted({lowest(requirement) for requirement in of_users(project)}) + tools


def install(wanted: list[str]) -> None:
    """Makes the environment, unless one with these versions is there."""
    done = FOLDER / "pins.txt"
    if done.exists() and done.read_text().splitlines() == wanted:
        return
    venv.create(FOLDER, clear=True, with_pip=True)
    pip = [FOLDER / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *wanted], check=True)
    subprocess.run([*pip, "--no-deps", "-e", ROOT], check=True)
    done.write_text("\n".join(wanted) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="only print the versions")
    parser.add_argument("tests", nargs="*", help="test files in place of the core")
    options = parser.parse_args()
    wanted = pins()
    print("\n".join(wanted), flush=True)
    if options.list:
        return 0
    install(wanted)
    # Old versions warn of what newer ones do differently: here that is no error.
    pytest = [FOLDER / "bin/python", "-m", "pytest", "-q", "-n", "2", "-W", "default"]
    cache = ["-o", f"cache_dir={FOLDER / 'pytest_cache'}"]
    tests = [ROOT / "tests" / name for name in options.tests or CORE]
    return subprocess.run([*pytest, *cache, *tests], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
