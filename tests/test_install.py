"""What each extra brings: the wheel, built here and installed into environments of its own."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import gradband as gb

ROOT = Path(__file__).parents[1]
PACKAGES = "from importlib.metadata import distributions\nprint(*(d.name for d in distributions()))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


class Environment:
    """A new environment with the wheel, and nothing of the tests' own."""

    def __init__(self, folder, wheel, extra=""):
        venv.create(folder, with_pip=False)
        self.folder, self.bin = folder, folder / "bin"
        mine = ("PYTHON", "JAX_", "XLA_")  # packages on a path of the tests' own would count as installed
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "-q"]
        flags = ["--disable-pip-version-check", "--no-compile", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, *flags, f"{wheel}{extra}"], check=True, capture_output=True, env=self.environ)

    def run(self, *words, text=""):
        """Runs a command of the environment, in its folder."""
        return subprocess.run(
            [self.bin / words[0], *words[1:]],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=self.environ,
        )

    def python(self, code, *words):
        return self.run("python", "-c", code, *words)


@pytest.fixture(scope="module")
def production(wheel, tmp_path_factory):
    """As `pip install gradband` makes it."""
    return Environment(tmp_path_factory.mktemp("production"), wheel)


def test_production_brings_numpy_alone(production):
    assert sorted(production.python(PACKAGES).stdout.split()) == ["gradband", "numpy"]


PLAY = """
import os, sys
before = dict(os.environ)
import gradband as gb
player = gb.Player(sys.argv[1], seed=3, journal="test.jsonl")
for _ in range(20):
    arm = player.select()
    print(int(arm), end=" ")
    player.update(arm, arm == 1)
assert os.environ == before
assert not {"jax", "numba", "scipy"} & set(sys.modules)
"""


def test_a_policy_is_played_in_production_as_it_is_here(production, files):
    path = files("softelim")
    ran = production.python(PLAY, path)
    assert (ran.returncode, ran.stderr) == (0, "")
    player, arms = gb.Player(path, seed=3), []
    for _ in range(20):
        arms.append(player.select())
        player.update(arms[-1], arms[-1] == 1)
    assert [int(arm) for arm in ran.stdout.split()] == arms
    lines = "".join(json.dumps({"op": "select"}) + "\n" for _ in range(3))
    told = production.run("gradband", "play", path, "--journal", "test.jsonl", text=lines)
    assert told.returncode == 0
    assert "resumes after 40 events, with the seed 3" in told.stderr
    again = [json.loads(line)["arm"] for line in told.stdout.splitlines()]
    assert again == [int(player.select()) for _ in range(3)]


def test_a_test_is_reported_on_in_production(production, files):
    assert production.python(PLAY.replace("test.jsonl", "report.jsonl"), files("softelim")).returncode == 0
    ran = production.run("gradband", "report", "report.jsonl", "--html", "report.html")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Were arms chosen as often as logged? Yes" in ran.stdout
    assert "<svg" in (production.folder / "report.html").read_text(encoding="utf-8")
    told = production.python("import gradband as gb\nprint(gb.report('report.jsonl').sentence)")
    assert told.stdout == ran.stdout.splitlines()[0] + "\n"


@pytest.mark.parametrize(
    ("command", "extra"), [("learn", "learn"), ("compare", "learn"), ("fit", "data"), ("export", "onnx")]
)
def test_a_command_names_the_extra_that_it_needs(production, command, extra):
    ran = production.run("gradband", command, "--json")
    sentence = f"gradband: gradband {command} needs the extra '{extra}': pip install 'gradband[{extra}]'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", sentence)


def test_production_knows_its_version_and_says_what_it_can_do(production):
    assert production.run("gradband", "--version").stdout == f"{gb.__version__}\n"
    for words in ((), ("--help",)):
        ran = production.run("gradband", *words)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "gradband play FILE" in ran.stdout
        assert "gradband report JOURNAL" in ran.stdout
        assert "pip install 'gradband[learn]'" in ran.stdout
    assert "--journal" in production.run("gradband", "play", "--help").stdout


MISSING = """
import gradband as gb
def tell(name):
    try:
        getattr(gb, name)
    except gb.InputError as error:
        assert isinstance(error, ImportError)
        print(str(error).partition(" needs ")[2])
for name in ("learn", "evaluate", "estimate", "exact", "explain", "priors"):
    tell(name)
try:
    from gradband.learning.learn import learn
except ImportError as error:
    print(str(error).partition(" needs ")[2])
"""


def test_names_that_need_an_extra_say_so_in_python(production):
    ran = production.python(MISSING)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["the extra 'learn': pip install 'gradband[learn]'"] * 7


def test_the_service_names_its_extra(production):
    ran = production.run("gradband", "serve", "--db", "tests.db")
    sentence = "gradband: gradband serve needs the extra 'serve': pip install 'gradband[serve]'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", sentence)
    assert "--workers" in production.run("gradband", "serve", "--help").stdout


SERVE = """
import json, subprocess, sys, urllib.request
serve = [sys.argv[1], "serve"]
words = [*serve, "token", "--db", "t.db", "--role", "admin"]
token = subprocess.run(words, capture_output=True, text=True).stdout
service = subprocess.Popen([*serve, "--db", "t.db", "--port", "0"], stderr=subprocess.PIPE, text=True)
port = next(line["port"] for line in map(json.loads, service.stderr) if line["message"] == "listening")
def ask(path, body):
    headers = {"Authorization": "Bearer " + token.strip(), "Content-Type": "application/json"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return json.load(answer)
ask("/v1/tests", {"key": "home", "policy": "ts", "arms": ["red", "blue"]})
ask("/v1/tests/home/start", {})
print(ask("/v1/tests/home/decide", {})["label"])
with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
    print(answer.read().decode()[:15])
service.terminate()
print(service.wait())
"""


@pytest.mark.slow
def test_the_extra_serve_serves(wheel, tmp_path):
    service = Environment(tmp_path, wheel, "[serve]")
    assert not {"jax", "numba", "scipy", "typer"} & set(service.python(PACKAGES).stdout.split())
    ran = service.python(SERVE, str(service.bin / "gradband"))
    assert ran.returncode == 0, ran.stderr
    label, page, status = ran.stdout.splitlines()
    assert label in ("red", "blue")
    assert (page, status) == ("<!doctype html>", "0")


@pytest.mark.slow
def test_the_extra_learn_learns(wheel, tmp_path):
    research = Environment(tmp_path, wheel, "[learn]")
    sizes = ("--horizon", "20", "--iterations", "3")
    ran = research.run("gradband", "learn", *sizes, "--out", "learned", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["regret"]["mean"] > 0
    played = research.run("gradband", "play", "learned/policy.safetensors", text='{"op": "select"}\n')
    assert json.loads(played.stdout)["arm"] in (0, 1)
    assert "polars" not in research.python(PACKAGES).stdout.split()
    (tmp_path / "past.csv").write_text("experiment,arm,pulls,successes\n1,1,10,1\n")
    ran = research.run("gradband", "fit", "past.csv")
    assert "needs the extra 'data': pip install 'gradband[data]'" in ran.stderr
