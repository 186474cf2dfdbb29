"""The command line: what it prints, what it writes, and one line for every mistake."""

import contextlib
import inspect
import io
import json
import os
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

import gradband
from gradband.cli import app, main

pytestmark = pytest.mark.brief

TINY = ("--horizon", 20, "--instances", 2000)
LEARN = ("--iterations", 5, "--instances", 256, "--horizon", 20, "--compare-on", 2000)


class Ran(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self):
        """The one JSON object on stdout, of a command that went well."""
        assert (self.status, self.err) == (0, "")
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture(scope="session")
def run_in():
    """Runs a command inside a folder, in this process."""

    def run(folder, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(sys, "argv", ["gradband", *map(str, arguments)])
            stack.enter_context(contextlib.chdir(folder))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            stop = stack.enter_context(pytest.raises(SystemExit))
            main.main()
        return Ran(stop.value.code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def run(run_in, tmp_path):
    return lambda *arguments: run_in(tmp_path, *arguments)


def numbers(result):
    """What must not depend on when and where a command ran."""
    return {key: value for key, value in result.items() if key not in ("seconds", "files")}


# learn


class Learned(NamedTuple):
    folder: object
    result: dict


@pytest.fixture(scope="module")
def learned(run_in, tmp_path_factory):
    """One run of learn, looked at by many tests."""
    folder = tmp_path_factory.mktemp("learned")
    return Learned(folder, run_in(folder, "learn", *LEARN, "--json").json)


def test_learn_prints_one_json_object(learned):
    result = learned.result
    wanted = {"problem", "policy", "params", "regret", "regret_before", "optimum", "benchmarks", "seconds"}
    assert wanted | {"files"} <= set(result)
    assert result["problem"]["name"] == "two-point"
    assert result["problem"]["horizon"] == 20
    assert result["policy"] == "softelim"
    assert set(result["params"]) == {"theta"}
    assert result["seconds"] > 0
    assert result["stopped"] is None
    for entry in (result["regret"], result["regret_before"]):
        assert set(entry) == {"mean", "se"}
        assert 0 < entry["mean"] < 4
        assert 0 < entry["se"] < 0.1
    assert [row["name"] for row in result["benchmarks"]] == ["gittins", "ts"]
    assert set(result["benchmarks"][0]) == {"name", "regret", "se"}


def test_learn_lowers_the_regret(learned):
    assert learned.result["regret"]["mean"] < learned.result["regret_before"]["mean"]


def test_learn_writes_its_files(learned):
    files = learned.result["files"]
    assert set(files) == {"policy", "curve", "result"}
    assert all((learned.folder / file).is_file() for file in files.values())
    assert (learned.folder / files["curve"]).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert json.loads((learned.folder / files["result"]).read_text()) == learned.result
    folder = learned.folder / "runs" / "two-point-softelim"
    written = {file.name for file in folder.iterdir()}
    assert written == {"policy.safetensors", "training.png", "result.json", "checkpoint.safetensors"}


def test_learned_policy_loads(learned):
    policy = gradband.load(learned.folder / learned.result["files"]["policy"])
    assert {"theta": float(policy.params["theta"])} == learned.result["params"]
    assert policy.about["evaluation"]["regret"] == learned.result["regret"]
    assert policy.about["problem"] == learned.result["problem"]
    assert policy.history["regret"].shape == (5,)


@pytest.mark.parametrize("devices", [1, 2])
def test_numbers_do_not_depend_on_the_devices(run, learned, devices):
    again = run("learn", *LEARN, "--json", "--devices", devices).json
    assert numbers(again) == numbers(learned.result)


def test_another_seed_gives_other_numbers(run, learned):
    other = run("learn", *LEARN, "--json", "--seed", 1, "--out", "here").json
    assert other["params"] != learned.result["params"]
    assert other["regret"] != learned.result["regret"]
    assert other["files"]["policy"] == "here/policy.safetensors"


def test_resuming_a_finished_run_changes_nothing(run, tmp_path, learned):
    shutil.copytree(learned.folder / "runs", tmp_path / "runs")
    again = run("learn", *LEARN, "--json", "--resume").json
    assert numbers(again) == numbers(learned.result)


def test_resuming_without_a_checkpoint_starts_one_and_says_so(run, learned):
    ran = run("learn", *LEARN, "--json", "--resume")
    assert numbers(json.loads(ran.out)) == numbers(learned.result)
    assert "no checkpoint in runs/two-point-softelim: starting from scratch" in ran.err


def test_nothing_to_learn_is_said_and_the_policy_saved(run, tmp_path):
    """With as many rounds as arms there is no choice."""
    ran = run("learn", "two-point", "--horizon", 2, "--iterations", 2, "--instances", 8, "--compare-on", 10)
    assert ran.status == 1
    assert "nothing to learn" in ran.err
    assert gradband.load(tmp_path / "runs/two-point-softelim/policy.safetensors").stopped


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (("--iterations", 6), r"iterations\D*5.*\b6\b"),
        (("--instances", 128), r"instances\D*256.*\b128\b"),
        (("--seed", 1), "seed was 0, now it is 1"),
        (("--recipe", "none.toml"), "baseline.*self.*none"),
        (("--horizon", 21), r"horizon\D*20.*\b21\b"),
        (("--recipe", "adam.toml"), "optimizer was '?usual'?, now it is '?name=adam learning_rate=0.001"),
        (("--policy", "exp3"), "policy was '?softelim'?, now it is '?exp3"),
    ],
)
def test_resuming_with_other_settings_is_refused_with_the_difference(run_in, learned, changes, difference):
    folder = "runs/two-point-softelim"
    (learned.folder / "none.toml").write_text('name = "gradband"\nestimator = "none"')
    (learned.folder / "adam.toml").write_text('name = "gradband"\noptimizer = "adam"')
    ran = run_in(learned.folder, "learn", *LEARN, "--out", folder, *changes, "--resume")
    assert_refused(ran, difference)


@pytest.mark.parametrize(("name", "policy"), [("signs", "lin-softelim"), ("groups", "co-softelim")])
def test_a_policy_that_sees_contexts_is_learned_where_there_are_some(run, name, policy):
    sizes = ("--horizon", 30, "--iterations", 1, "--instances", 200, "--compare-on", 10)
    assert run("learn", name, *sizes, "--json").json["files"]["policy"].startswith(f"runs/{name}-{policy}/")


def test_learn_prints_a_table(run):
    ran = run("learn", *LEARN, "--out", "here")
    assert (ran.status, ran.err) == (0, "")
    for word in ("two-point: 2 arms, 20 rounds", "softelim, learned", "softelim, before", "ts", "± se"):
        assert word in ran.out
    assert "Learned theta = " in ran.out
    assert "here/policy.safetensors" in ran.out


GAUSSIAN = "horizon = 20\n[prior]\nkind = 'gaussian'\narms = 2\n[rewards]\nkind = 'gaussian'\nsd = 0.5\n"
TABLE = "horizon = 8\n[prior]\nkind = 'table'\nfile = 't.npz'\n"


def test_gaussian_problem_is_compared_with_thompson_sampling_of_normal_beliefs(run, tmp_path):
    (tmp_path / "mine.toml").write_text(GAUSSIAN)
    result = run(
        "learn", "mine.toml", "--iterations", 2, "--instances", 64, "--compare-on", 500, "--json"
    ).json
    assert [entry["name"] for entry in result["benchmarks"]] == [
        "gittins-gaussian:prior",
        "ts-gaussian:prior",
    ]
    assert result["problem"]["name"] == "mine"
    assert result["problem"]["prior"] == {"kind": "gaussian", "arms": 2, "mean": 0.0, "sd": 1.0}
    assert (tmp_path / "runs" / "mine-softelim" / "policy.safetensors").is_file()


def write_table(folder, name="mine.toml"):
    rng = np.random.default_rng(0)
    np.savez(folder / "t.npz", rewards=rng.random((50, 3, 8)) < [[[0.9], [0.3], [0.2]]])
    (folder / name).write_text(TABLE)


def test_table_is_learned_and_measured_on_what_was_held_out(run, tmp_path):
    write_table(tmp_path)
    result = run("learn", "mine.toml", "--iterations", 2, "--instances", 64, "--json").json
    assert result["instances"] == 10
    assert [row["name"] for row in result["benchmarks"]] == ["gittins", "ts"]
    assert result["problem"]["prior"]["file"] == "t.npz"


RECIPE = """
base = "algorithm-1"
iterations = 2
instances = 64
estimator = "none"
optimizer = { name = "adam", learning_rate = 0.1, decay = 0.9 }
scale = "linear"
temperature = "annealed"
curriculum = [5]
"""


def test_a_recipe_file_is_followed(run, tmp_path):
    (tmp_path / "mine.toml").write_text(RECIPE)
    sizes = ("--horizon", 20, "--compare-on", 200)
    result = run("learn", "--policy", "softelim:theta=0.7", *sizes, "--recipe", "mine.toml", "--json").json
    found = gradband.load(tmp_path / result["files"]["policy"])
    assert found.history["horizon"].tolist() == [5, 5, 20, 20]
    moved = np.diff(found.history["params"][:, 0], prepend=0.7)
    assert moved[0] == pytest.approx(0, abs=1e-6)
    assert np.abs(moved[[1, 3]]) == pytest.approx(0.1, rel=1e-3)
    about = found.about["training"]
    assert (about["baseline"], about["scale"], about["temperature"]) == ("none", "linear", "annealed")
    assert (about["recipe"], about["instances"]) == ("mine", 64)


def test_compare_shows_quantiles_if_asked(run):
    asked = run("compare", "--policies", "ts,uniform", *TINY, "--quantiles")
    assert asked.status == 0
    assert "95 % quantile" in asked.out
    assert "99 % quantile" in asked.out
    found = run("compare", "--policies", "ts,uniform", *TINY, "--quantiles", "--json").json["policies"]
    assert all(row["regret_q95_low"] <= row["regret_q95"] <= row["regret_q99"] for row in found)
    plain = run("compare", "--policies", "ts,uniform", *TINY, "--json").json["policies"]
    assert [row["regret"] for row in plain] == [row["regret"] for row in found]
    assert "regret_q95" not in plain[0]


def test_learn_has_few_options():
    """The rest is in recipes."""
    assert len(inspect.signature(app.learn).parameters) - 1 <= 18  # the problem is an argument


def test_an_option_that_was_renamed_still_works_and_says_so(run):
    with pytest.warns(FutureWarning, match="--runs is now called --rollouts"):
        ran = run("gradient", "--runs", 3, "--baselines", "self", "--theta", "1", *TINY)
    assert ran.status == 0


def test_name_of_a_problem_neither_leaves_the_folder_nor_breaks_the_table(run_in, tmp_path):
    name = "/../../outside [/b] :smile:"
    inner = tmp_path / "one" / "two" / "three"
    inner.mkdir(parents=True)
    (inner / "mine.toml").write_text(f"horizon = 9\nname = '{name}'\n[prior]\nkind = 'beta'\narms = 2\n")
    ran = run_in(inner, "learn", "mine.toml", "--iterations", 1, "--instances", 99, "--compare-on", 10)
    assert (ran.status, ran.err) == (0, "")
    assert f"{name}: 2 arms" in ran.out
    assert len(list((inner / "runs").rglob("policy.safetensors"))) == 1
    assert len(list(tmp_path.rglob("policy.safetensors"))) == 1


# compare


@pytest.fixture(scope="module")
def compared(run_in, learned):
    """A comparison with a policy file in it."""
    policies = f"uniform,{learned.result['files']['policy']},ts,softelim:theta=0.3,softelim"
    return run_in(learned.folder, "compare", "--policies", policies, *TINY, "--json").json


def test_compare_is_sorted_by_regret(compared):
    assert set(compared) == {"problem", "instances", "seed", "optimum", "bound", "policies", "files"}
    assert compared["instances"] == 2000
    assert compared["problem"]["name"] == "two-point"
    rows = compared["policies"]
    keys = {"name", "regret", "se", "share", "share_se", "share_least", "share_most", "seconds"}
    assert all(set(row) == keys for row in rows)
    assert [row["regret"] for row in rows] == sorted(row["regret"] for row in rows)
    assert len(rows) == 5
    assert rows[-1]["name"] == "uniform"
    assert rows[-1]["regret"] == pytest.approx(2, abs=6 * rows[-1]["se"])


def test_compare_measures_what_learn_did(compared, learned):
    regret = {row["name"]: (row["regret"], row["se"]) for row in compared["policies"]}
    result = learned.result
    assert regret[result["files"]["policy"]] == tuple(result["regret"].values())
    assert regret["softelim"] == tuple(result["regret_before"].values())
    ts = next(row for row in result["benchmarks"] if row["name"] == "ts")
    assert regret["ts"] == (ts["regret"], ts["se"])


def test_compare_takes_settings(compared):
    regret = {row["name"]: row["regret"] for row in compared["policies"]}
    assert regret["softelim:theta=0.3"] < regret["softelim"]


def test_compare_takes_several_settings_of_a_policy_and_another_noise(run):
    name = "exp3:theta=0.5+gradient=lemma"
    sizes = ("--horizon", 20, "--instances", 50, "--noise", "independent")
    result = run("compare", "--policies", name, *sizes, "--json").json
    assert [row["name"] for row in result["policies"]] == [name]
    assert result["problem"]["noise"] == "independent"


def test_compare_prints_a_table(run):
    ran = run("compare", "--policies", "uniform,softelim", *TINY)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].strip() == "two-point: 2 arms, 20 rounds, 2000 instances"
    assert all(
        word in lines[2] for word in ("policy", "Bayes regret", "± se", "above the first", "seconds")
    )
    assert "softelim" in lines[4]
    assert "uniform" in lines[5]
    assert lines[7] == "The optimum has a regret of 1.1425."
    assert len(lines) == 9


# gradient


def test_gradient_has_a_row_for_each_theta_and_baseline(run):
    grid = ("--theta", "0.2:0.6:3", "--baselines", "none,self")
    result = run("gradient", *grid, "--horizon", 20, "--instances", 512, "--json").json
    rows = result["rows"]
    assert all(set(row) == {"theta", "baseline", "gradient", "se", "spread"} for row in rows)
    pairs = [(row["theta"], row["baseline"]) for row in rows]
    assert pairs == [(pytest.approx(t), b) for t in (0.2, 0.4, 0.6) for b in ("none", "self")]
    assert all(row["spread"] == pytest.approx(row["se"] * 512**0.5) for row in rows)
    assert (result["policy"], result["instances"], result["problem"]["name"]) == (
        "softelim",
        512,
        "two-point",
    )


def test_gradient_takes_a_single_theta_and_prints_a_table(run):
    ran = run("gradient", "--theta", 0.5, "--baselines", "self", "--horizon", 20, "--instances", 512)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].strip() == "softelim on two-point: 2 arms, 20 rounds, 512 instances"
    assert all(word in lines[2] for word in ("baseline", "θ", "gradient", "± se", "spread"))
    assert "self" in lines[4]
    assert "0.5" in lines[4]
    assert len(lines) == 6


# Mistakes.


def assert_refused(ran, word):
    """Bad input: exit code 2, one line on stderr, nothing on stdout."""
    assert ran.status == 2
    assert ran.out == ""
    assert ran.err.startswith("gradband: ")
    assert ran.err.endswith("\n")
    assert len(ran.err.splitlines()) == 1
    assert "Traceback" not in ran.err
    with pytest.raises(ValueError, match=word):
        raise ValueError(ran.err)


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("lern", "'lern'.*'learn'"),
        ("learn --instanes 3", "--instanes.*--instances"),
        ("learn two-point more", "more"),
        ("learn --iterations", "--iterations"),
        ("learn two-pint", "unknown problem 'two-pint': did you mean 'two-point'"),
        ("compare zzz", "unknown problem 'zzz': known: two-point"),
        ("gradient zzz", "unknown problem 'zzz'"),
        ("learn --policy sofelim", "unknown policy 'sofelim': did you mean 'softelim'"),
        ("compare --policies ts,sofelim", "unknown policy 'sofelim': did you mean 'softelim'"),
        ("learn --policy softelim:thta=1", "unknown setting of softelim 'thta': did you mean 'theta'"),
        ("learn --policy softelim:theta=x", "theta of softelim must be a number, not 'x'"),
        ("learn --policy softelim:theta", "theta of softelim must be a number, not ''"),
        ("learn --policy exp3:gradient=lema", "gradient of exp3 'lema': did you mean 'lemma'"),
        ("gradient --baselines none,slef", "unknown baseline 'slef': did you mean 'self'"),
        ("gradient --baselines ,", "baseline"),
        (
            "learn --batch 3",
            "--batch of learn is now --instances, and what was --instances is --compare-on",
        ),
        ("learn --baseline none", "--baseline is in the recipe now: .*--recipe mine.toml"),
        ("learn --decay=0.9", "--decay is in the recipe now"),
        ("learn --noise shared", "set noise in a problem file"),
        ("learn --recipe garbage.toml", "garbage.toml is not valid TOML"),
        ("learn --recipe gaussian.toml", "unknown key 'horizon': known: base, name, iterations"),
        ("learn --recipe missing.toml", "missing.toml: No such file"),
        ("learn table.toml --recipe optimal.toml", "baseline optimal needs to know the best arm"),
        ("learn table.toml --recipe expected.toml", "expected returns need the arms' means"),
        ("learn --recipe papr", "unknown recipe 'papr': did you mean 'paper'"),
        ("learn --imitate nobody", "unknown policy 'nobody'"),
        ("learn --imitate missing.safetensors", "missing.safetensors: No such file"),
        ("learn gaussian.toml --policy boltzmann --imitate gittins", r"gittins needs rewards in \[0, 1\]"),
        ("compare --noise shard", "unknown noise 'shard': did you mean 'shared'"),
        ("learn --instances 0", "instances must be a whole number of at least 1, not 0"),
        ("learn --iterations 0", "iterations must be a whole number of at least 1, not 0"),
        ("learn --compare-on 1", "instances must be a whole number of at least 2, not 1"),
        ("compare --instances 0", "instances"),
        ("gradient --instances 0", "instances"),
        ("learn --horizon 1", "2 arms it needs a horizon of at least 2, not 1"),
        ("learn --horizon 0", "horizon must be a whole number of at least 1, not 0"),
        ("learn bernoulli-10 --arms 0", "arms must be a whole number of at least 1, not 0"),
        ("learn --arms 3", "two-point has 2 arms, not 3"),
        ("learn --policy softelim:theta=0", "theta of softelim.*of at least 1e-15, not 0"),
        ("learn --policy softelim:theta=nan", "theta of softelim.*nan"),
        ("learn --policy softelim:theta=inf", "theta of softelim.*inf"),
        ("compare --policies exp3:theta=1.5", r"theta of exp3.*\[1e-15, 1\], not 1.5"),
        ("gradient --theta 0:1:3", "theta of softelim"),
        ("gradient --theta garbage", "theta must be low:high:count.*'garbage'"),
        ("gradient --theta 0.1:1", "low:high:count"),
        ("gradient --theta 0.1:1:0", "count ≥ 1"),
        ("gradient --theta 1:0.1:3", "low ≤ high"),
        ("gradient --theta 0.1:inf:3", "low:high:count"),
        ("gradient --theta nan", "low:high:count"),
        ("gradient --policy ts", "ts has no single parameter theta"),
        ("learn --policy ts", "ts has no density.*compared, not learned"),
        ("learn --policy ucb1", "ucb1 has no density.*compared, not learned"),
        ("learn --policy uniform", "uniform has no parameters to learn"),
        ("compare --policies ,", "no policy"),
        ("compare --policies missing.safetensors", "missing.safetensors: No such file"),
        ("compare --policies garbage.safetensors", "garbage.safetensors is damaged or not"),
        ("learn missing.toml", "missing.toml: No such file"),
        ("learn garbage.toml", "garbage.toml is not valid TOML"),
        ("learn lines.toml", "unknown key"),
        ("gradient table.toml", "baseline optimal needs to know the best arm"),
        ("learn table.toml --horizon 9", "table has 8 rounds, the horizon is 9"),
        ("compare gaussian.toml --policies ts", r"ts needs rewards in \[0, 1\]"),
        ("learn --devices 0", "devices"),
        ("learn --devices 99", "devices.*99"),
        ("learn --seed x", "--seed"),
        ("learn --seed 1.5", "--seed"),
        ("learn --seed -1", "seed must be a whole number of at least 0, not -1"),
        ("learn --seed 99999999999999999999", "seed"),
        ("learn --out garbage.toml/x", "garbage.toml/x"),
    ],
)
def test_mistake_gives_one_line(run, tmp_path, command, word):
    write_table(tmp_path, "table.toml")
    (tmp_path / "gaussian.toml").write_text(GAUSSIAN)
    (tmp_path / "garbage.toml").write_text("horizon = \n\n\n")
    (tmp_path / "optimal.toml").write_text('estimator = "optimal"')
    (tmp_path / "expected.toml").write_text('estimator = { returns = "expected" }')
    (tmp_path / "lines.toml").write_text('"two\\nlines" = 1')
    (tmp_path / "garbage.safetensors").write_bytes(b"garbage" * 9)
    assert_refused(run(*command.split()), word)


def test_failure_that_is_not_bad_input_gives_one_line_too(run, monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("all\nbroken")

    monkeypatch.setattr("gradband.cli.options.load_problem", broken)
    assert run("compare") == (1, "", "gradband: ZeroDivisionError: all\n")


def test_interrupting_gives_one_line(run, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("gradband.cli.options.load_problem", interrupted)
    assert run("compare") == (130, "", "gradband: interrupted\n")


# Help, in a process of its own.


def test_help_lists_the_commands_without_starting_jax():
    """Help is shown at once: neither JAX nor Matplotlib is imported for it."""
    code = (
        "import sys; from gradband.cli.main import main; sys.argv = ['gradband', '--help']\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for command in ("fit", "learn", "compare", "gradient", "reproduce", "bench"):
        assert command in ran.stdout
    assert not {"jax", "numpy", "optax", "matplotlib", "numba", "polars"} & set(ran.stderr.split())


def test_module_is_a_command_that_knows_its_version():
    command = [sys.executable, "-m", "gradband", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, gradband.__version__, "")


@pytest.mark.parametrize("command", ["learn", "compare", "gradient", "bench"])
def test_every_command_has_help(run, command):
    ran = run(command, "--help")
    assert (ran.status, ran.err) == (0, "")
    assert "--json" in ran.out


# The cache of compiled code.


def test_compiled_code_is_kept_in_the_cache_folder_unless_the_user_says_otherwise(tmp_path):
    code = "import jax, gradband.core.jax_setup; print(jax.config.jax_compilation_cache_dir)"
    theirs = "JAX_COMPILATION_CACHE_DIR"
    usual = {name: value for name, value in os.environ.items() if name != theirs}

    def folder(**variables):
        given = usual | {"XDG_CACHE_HOME": str(tmp_path)} | variables
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=given, check=True, capture_output=True, text=True).stdout.strip()

    assert folder() == str(tmp_path / "gradband" / "compiled")
    assert folder(**{theirs: "mine"}) == "mine"
    assert folder(GRADBAND_NO_CACHE="1") == "None"


@pytest.mark.slow
def test_a_network_is_learned_from_a_reference_and_explained(run):
    command = "learn two-point --horizon 10 --policy lstm:hidden=4 --imitate optimal --iterations 3"
    done = run(*command.split(), "--instances", 20, "--compare-on", 200, "--out", "net", "--json")
    assert done.status == 0, done.err
    result = json.loads(done.out)
    assert result["params"]["arm"] == {"shape": [2, 4]}
    assert result["regret"]["mean"] > result["optimum"]
    file = "net/policy.safetensors"
    seen = run("explain", file, "--instances", "200", "--json")
    assert seen.status == 0, seen.err
    assert len(json.loads(seen.out)["windows"]) == 3
