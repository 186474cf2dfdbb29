"""The rooms of the package: who imports whom, what production never imports, and CONTRIBUTING's map."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gradband"
ROOMS = (
    "core",
    "solvers",
    "problems",
    "policies",
    "engine",
    "gradient",
    "learning",
    "exact",
    "evaluation",
    "play",
    "serve",
    "paper",
    "cli",
)
OF_ALL_ROOMS = ("paper", "cli")  # the rooms that may `import gradband`, whose names come from all above
IN_PRODUCTION = (
    "core.errors",
    "core.files",
    "core.tensor_file",
    "core.resources",
    "play",
    "cli.report",
    "cli.serve",
)
HEAVY = ("jax", "numba", "optax", "matplotlib", "scipy", "typer")


def rooms_imported(path):
    """The rooms that a file imports anywhere, lazily or for types too, each with a line; "" is the top."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno} imports by a relative path"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == "gradband" and rest != "__version__":
                room = rest.partition(".")[0]
                yield node.lineno, room if room in ROOMS else ""


def violations(package):
    """Imports of a room further down the list, as sentences."""
    for place, room in enumerate(ROOMS):
        allowed = {*ROOMS[: place + 1], *([""] if room in OF_ALL_ROOMS else [])}
        for path in sorted((package / room).rglob("*.py")):
            for line, other in rooms_imported(path):
                if other not in allowed:
                    yield f"{path.relative_to(package)}:{line} imports {other or 'the whole package'}"


def test_the_package_consists_of_its_rooms():
    entries = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert entries == {"__init__.py", "__main__.py", "py.typed", *ROOMS}
    assert len(entries) <= 16


def test_a_room_imports_itself_and_rooms_above_it():
    assert list(violations(PACKAGE)) == []


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("core/a.py", "from gradband.cli import main\n", "core/a.py:1 imports cli"),
        ("problems/priors/a.py", "def f():\n    import gradband.policies.base\n", "imports policies"),
        ("play/a.py", "if TYPE_CHECKING:\n    from gradband import paper\n", "play/a.py:2 imports paper"),
        ("exact/a.py", "import gradband as gb\n", "exact/a.py:1 imports the whole package"),
        ("learning/a.py", "from gradband import learn\n", "imports the whole package"),
        ("engine/a.py", "from gradband.engine import b\nfrom gradband import core\n", None),
        ("paper/a.py", "import gradband as gb\nfrom gradband import __version__\n", None),
    ],
)
def test_a_planted_violation_is_found(file, text, told, tmp_path):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    found = list(violations(tmp_path))
    assert len(found) == (told is not None)
    assert all(sentence.endswith(told) for sentence in found)


def test_production_imports_neither_jax_nor_anything_heavy():
    """Every module of the player and of reports, in a process of its own."""
    rooms = [PACKAGE / "play", PACKAGE / "serve"]
    files = [path for room in rooms for path in room.rglob("*.py") if path.name != "__init__.py"]
    inside = [".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in files]
    assert {"play.player", "play.reporting.report"} <= set(inside)
    names = [f"gradband.{name}" for name in (*IN_PRODUCTION, *inside)]
    code = f"import sys, {', '.join(names)}\nprint(*({set(HEAVY)} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "\n", "")


def modules(folder):
    """What the map names of a room: its modules, and the folders in it."""
    for path in folder.iterdir():
        if path.suffix == ".py" and path.stem != "__init__":
            yield path.stem
        elif path.is_dir() and path.name != "__pycache__":
            yield f"{path.name}/"


def test_contributing_has_a_map_of_the_rooms():
    """One row for each room, in their order, that names its modules; folders in it may have one too."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z/]+)/` \| ([^|]*) \| [^|]+ \|$", text, re.MULTILINE)
    assert [room for room, _ in rows if "/" not in room] == list(ROOMS)
    for room, named in rows:
        assert sorted(re.findall(r"`([^`]+)`", named)) == sorted(modules(PACKAGE / room)), room


def test_whatever_imports_jax_has_set_its_flags():
    """Whatever imports JAX also imports what sets its flags: itself, by its room or by another module."""
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for path in PACKAGE.rglob("*.py")
    }
    imported = {}
    for name, tree in trees.items():
        found = {name.rpartition(".")[0]}  # its package is imported first
        for node in tree.body:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        imported[name] = found
    sets_flags = {"gradband.core.jax_setup"}
    while more := {name for name in imported if imported[name] & sets_flags} - sets_flags:
        sets_flags |= more
    uses_jax = {
        name for name in imported if {entry.partition(".")[0] for entry in imported[name]} & {"jax"}
    }
    assert uses_jax - sets_flags == set()
