"""The command line. Heavy modules are imported by the commands that need them."""

import dataclasses
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradband import cache
from gradband._version import __version__
from gradband.arguments import (
    Arms,
    Devices,
    Horizon,
    Instances,
    Json,
    Noise,
    PolicyName,
    ProblemName,
    Seed,
    load_problem,
    make_optimizer,
    parse_policy,
    parse_range,
    parse_whole,
)
from gradband.errors import InputError

if TYPE_CHECKING:
    from gradband.evaluation import Comparison
    from gradband.problems import Problem

app = typer.Typer(
    name="gradband",
    help="Learns exploration policies for bandits by gradient ascent on the Bayes reward.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


def label_of(problem: "Problem", source: str) -> str:
    """The problem's name, or its file's."""
    return problem.name or Path(source).stem


def describe(problem: "Problem", source: str) -> str:
    return f"{label_of(problem, source)}: {problem.arms} arms, {problem.horizon} rounds"


def in_words(params: dict[str, Any]) -> str:
    """A few parameters in words, or how many there are."""
    import numpy as np

    sizes = {name: np.size(value) for name, value in params.items()}
    if sum(sizes.values()) > 3:
        return f"{sum(sizes.values())} parameters"
    return ", ".join(f"{name} = {float(value):.4g}" for name, value in params.items())


def measure(
    entries: dict[str, Any], problem: "Problem", instances: int, seed: int, devices: int | None
) -> "Comparison":
    """Evaluates policies under a progress bar."""
    import gradband as gb
    from gradband.report import terminal

    settings: dict[str, Any] = {"instances": instances, "seed": seed, "devices": devices}
    with terminal.progress("evaluating", 1) as update:
        return gb.evaluate(entries, problem, **settings, progress=lambda name, done: update(done, name))


@app.command()
def learn(
    problem: ProblemName = "two-point",
    policy: PolicyName = "softelim",
    arms: Arms = None,
    horizon: Horizon = None,
    noise: Noise = None,
    iterations: Annotated[int, typer.Option(help="Steps of gradient ascent, L.")] = 100,
    batch: Annotated[int, typer.Option(help="Instances in each step, m.")] = 1000,
    baseline: Annotated[str, typer.Option(help="none, optimal, self or leave-one-out.")] = "self",
    runs: Annotated[
        int | None, typer.Option(help="Runs on each instance (none, optimal: 1; leave-one-out: 4).")
    ] = None,
    returns: Annotated[str, typer.Option(help="realised, or expected rewards in the return.")] = "realised",
    optimizer: Annotated[
        str,
        typer.Option(help="paper (step 1/(c√L), c found by itself) or an Optax optimiser: adam, sgd, …"),
    ] = "paper",
    learning_rate: Annotated[float | None, typer.Option(help="Step size of an Optax optimiser.")] = None,
    decay: Annotated[float, typer.Option(help="Factor on that step size after each iteration.")] = 1.0,
    scale: Annotated[str, typer.Option(help="log, or linear as in the paper, for positive θ.")] = "log",
    anneal: Annotated[
        bool, typer.Option("--anneal", help="Anneal the temperature, as Appendix F.")
    ] = False,
    curriculum: Annotated[str, typer.Option(help="Horizons to learn at first, e.g. 20,60.")] = "",
    instances: Instances = 10_000,
    seed: Seed = 0,
    devices: Devices = None,
    out: Annotated[Path | None, typer.Option(help="Folder for files (runs/PROBLEM-POLICY).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's checkpoint.")] = False,
    json: Json = False,
) -> None:
    """Learn a policy, compare it with Thompson sampling, and save it.

    Examples:

      gradband learn

      gradband learn bernoulli-10 --seed 3 --out runs/ten-arms

      gradband learn mine.toml --policy exp3:theta=0.5 --baseline leave-one-out --runs 8

      gradband learn uniform-2 --optimizer adam --learning-rate 0.05 --decay 0.99
    """
    import gradband as gb
    from gradband import evaluation
    from gradband.report import figures, terminal

    began = time.perf_counter()
    task = load_problem(problem, arms, horizon, noise)
    start = parse_policy(policy)
    stages = [parse_whole("curriculum", text) for text in filter(None, curriculum.split(","))]
    label = label_of(task, problem)
    folder = out or Path("runs") / re.sub(r"[^\w.-]", "-", f"{label}-{start.name}")
    evaluation.fresh_instances(task, instances)
    settings: dict[str, Any] = {
        "iterations": iterations,
        "batch": batch,
        "estimator": gb.Estimator(baseline, runs, returns),
        "optimizer": make_optimizer(optimizer, learning_rate, decay),
        "optimizer_name": " ".join(map(str, (optimizer, learning_rate, decay))),
        "scale": scale,
        "temperature": gb.annealed if anneal else None,
        "curriculum": stages,
        "seed": seed,
        "devices": devices,
        "checkpoint": folder / "checkpoint.safetensors",
        "resume": resume,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't write to {folder}: {error.strerror}") from None
    if resume and not settings["checkpoint"].exists():
        print(f"gradband: there is no checkpoint in {folder}: starting anew", file=sys.stderr)
    with terminal.progress("learning", iterations * (len(stages) + 1)) as update:
        learned = gb.learn(
            start,
            task,
            **settings,
            progress=lambda step: update(
                step.iteration, f"{in_words(step.params)}  |g| {step.norm:.3g}  regret {step.regret:.2f}"
            ),
        )
    names = {"policy": "policy.safetensors", "curve": "training.png", "result": "result.json"}
    files = {what: str(folder / name) for what, name in names.items()}
    learned.save(files["policy"])
    entries: dict[str, Any] = {f"{start.name}, learned": learned, f"{start.name}, before": start}
    entries |= {"ts": gb.policies.ThompsonSampling()} if task.unit else {}
    table = measure(entries, task, instances, seed, devices)
    ours, before = (table[f"{start.name}, {when}"].regret for when in ("learned", "before"))
    gain = table.difference(f"{start.name}, before", f"{start.name}, learned")
    benchmarks = [row for row in table.rows if row.name == "ts"]
    count = len(table.rows[0].regrets)
    learned.about["evaluation"] = {"instances": count, "regret": vars(ours), "regret_before": vars(before)}
    learned.save(files["policy"])
    lines = {"learned": ours.mean, **{row.name: row.regret.mean for row in benchmarks}}
    parameters = list(learned.params) if sum(p.size for p in learned.params.values()) <= 3 else []
    figures.training_curve(
        Path(files["curve"]), f"{start.name} on {label}", learned.history, parameters, lines
    )
    result = {
        "problem": task.describe() | {"name": label},
        "policy": start.name,
        "params": learned.params,
        "regret": vars(ours),
        "regret_before": vars(before),
        "optimum": None,
        "benchmarks": [{"name": r.name, "regret": r.regret.mean, "se": r.regret.se} for r in benchmarks],
        "instances": count,
        "seed": seed,
        "stopped": learned.stopped or None,
        "seconds": time.perf_counter() - began,
        "files": files,
    }
    write_json(Path(files["result"]), result)
    if json:
        terminal.print_json(result)
    else:
        terminal.print_table(
            describe(task, problem),
            ["policy", "Bayes regret", "± se"],
            [[row.name, f"{row.regret.mean:.3f}", f"{row.regret.se:.3f}"] for row in table.rows],
            f"Learned {in_words(learned.params)} in {result['seconds']:.1f} s; that saves {gain} regret "
            f"(paired, {count} fresh instances).\nFiles: {', '.join(files.values())}",
        )
    if learned.stopped:
        raise RuntimeError(f"learning stopped early: {learned.stopped}; the last good policy was saved")


@app.command()
def compare(
    problem: ProblemName = "two-point",
    policies: Annotated[
        str,
        typer.Option(
            help="Policies, a comma between: names (also ts, ucb1, uniform), settings after a colon, a + "
            "between (exp3:theta=0.5+gradient=lemma), or policy files."
        ),
    ] = "softelim,ts,ucb1,uniform",
    arms: Arms = None,
    horizon: Horizon = None,
    noise: Noise = None,
    instances: Instances = 10_000,
    seed: Seed = 0,
    devices: Devices = None,
    json: Json = False,
) -> None:
    """Compare the Bayes regret of policies on the same instances.

    Examples:

      gradband compare bernoulli-10 --policies ts,ucb1,softelim:theta=0.1

      gradband compare --policies runs/two-point-softelim/policy.safetensors,ts --instances 100000
    """
    import gradband as gb
    from gradband.report import terminal

    task = load_problem(problem, arms, horizon, noise)
    entries: dict[str, Any] = {}
    for text in filter(None, policies.split(",")):
        known = text.partition(":")[0] in gb.policies.POLICIES
        is_file = not known and (text.endswith(".safetensors") or Path(text).is_file())
        entries[text] = gb.load(text) if is_file else parse_policy(text)
    table = measure(entries, task, instances, seed, devices)
    rows = [
        {"name": r.name, "regret": r.regret.mean, "se": r.regret.se, "seconds": r.seconds}
        for r in table.rows
    ]
    count = len(table.rows[0].regrets)
    if json:
        about = task.describe() | {"name": label_of(task, problem)}
        terminal.print_json({"problem": about, "instances": count, "optimum": None, "policies": rows})
        return
    first = table.rows[0].name
    terminal.print_table(
        f"{describe(task, problem)}, {count} instances",
        ["policy", "Bayes regret", "± se", "above the first", "± se", "seconds"],
        [
            [
                row.name,
                f"{row.regret.mean:.3f}",
                f"{row.regret.se:.3f}",
                *(
                    (f"{(d := table.difference(row.name, first)).mean:.3f}", f"{d.se:.3f}")
                    if i
                    else ("", "")
                ),
                f"{row.seconds:.2f}",
            ]
            for i, row in enumerate(table.rows)
        ],
    )


@app.command()
def gradient(
    problem: ProblemName = "two-point",
    policy: PolicyName = "softelim",
    theta: Annotated[str, typer.Option(help="Values of θ, as low:high:count, or one value.")] = "0.2:2:10",
    baselines: Annotated[str, typer.Option(help="Baselines to compare.")] = "none,optimal,self",
    runs: Annotated[int | None, typer.Option(help="Runs on each instance, for leave-one-out (4).")] = None,
    returns: Annotated[str, typer.Option(help="realised, or expected rewards in the return.")] = "realised",
    arms: Arms = None,
    horizon: Horizon = None,
    noise: Noise = None,
    instances: Instances = 10_000,
    seed: Seed = 0,
    devices: Devices = None,
    json: Json = False,
) -> None:
    """Show the reward gradient over θ and its spread, for each baseline.

    The spread is the standard deviation of the estimate from a single instance (m = 1).

    Examples:

      gradband gradient --policy exp3 --theta 0.1:1:10

      gradband gradient bernoulli-10 --baselines self,leave-one-out --instances 2000
    """
    import gradband as gb
    from gradband.report import terminal

    task = load_problem(problem, arms, horizon, noise)
    start = parse_policy(policy)
    if not isinstance(start, gb.policies.OneParameter):
        raise InputError(f"{start.name} has no single parameter theta")
    values, names = parse_range(theta), [name for name in baselines.split(",") if name]
    if not names:
        raise InputError("there is no baseline to compare")
    estimators = {
        name: gb.Estimator(name, runs if name == "leave-one-out" else None, returns) for name in names
    }
    for value in values:
        bound = dataclasses.replace(start, theta=value).bind(task.arms, task.horizon)
        for estimator in estimators.values():
            estimator.check(bound, task)
    rows = []
    with terminal.progress("estimating", len(values) * len(names)) as update:
        for value in values:
            for name in names:
                found = gb.estimate(
                    dataclasses.replace(start, theta=value),
                    task,
                    instances=instances,
                    estimator=estimators[name],
                    seed=seed,
                    devices=devices,
                )
                row = {"gradient": found.mean[0], "se": found.se[0], "spread": found.spread[0]}
                rows.append({"theta": value, "baseline": name, **row})
                update(len(rows), f"θ = {value:.4g}, {name}")
    if json:
        about = task.describe() | {"name": label_of(task, problem)}
        terminal.print_json({"problem": about, "policy": start.name, "instances": instances, "rows": rows})
        return
    terminal.print_table(
        f"{start.name} on {describe(task, problem)}, {instances} instances",
        ["baseline", "θ", "gradient", "± se", "spread (m = 1)"],
        [
            [str(r["baseline"]), *(f"{r[k]:.4g}" for k in ("theta", "gradient", "se", "spread"))]
            for r in rows
        ],
    )


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats, and no PyTorch.")] = False,
    json: Json = False,
) -> None:
    """Measure speed side by side with peers, as ratios in one run.

    PyTorch is measured in an environment of its own, made in the cache folder when first needed.
    """
    script = Path(__file__).parent.parent / "benchmarks" / "speed.py"
    if not script.exists():
        raise InputError("the benchmarks come with the source: run make bench in a checkout")
    flags = [flag for flag, given in (("--quick", quick), ("--json", json)) if given]
    status = subprocess.run([sys.executable, str(script), *flags], check=False).returncode
    if status:
        raise typer.Exit(status)


def write_json(path: Path, result: dict[str, Any]) -> None:
    import json

    from gradband.files import finite, write_text

    write_text(path, json.dumps(finite(result), indent=2, allow_nan=False) + "\n")


def use_cache() -> None:
    """Keeps compiled code in the user's cache folder, so that the second run starts at once.

    Set by environment variables, before JAX is imported; a choice of the user's own stays.
    """
    folder = cache.folder("compiled")
    if folder is None:
        return
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")


def main() -> None:
    """Runs the command line: exit code 2 for bad input, 1 for a failure, one sentence each."""
    use_cache()
    try:
        status = app(standalone_mode=False)
        if status == 130:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        sys.exit(status if isinstance(status, int) else 0)
    except (InputError, typer.TyperException) as error:
        message = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        fail(message, 2)
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted", 130)
    except BrokenPipeError:
        os._exit(1)  # whoever read the output has gone
    except Exception as error:
        if os.environ.get("GRADBAND_TRACEBACK"):
            raise
        first = (str(error).splitlines() or [""])[0]
        fail(first if isinstance(error, RuntimeError) else f"{type(error).__name__}: {first}", 1)


def fail(message: str, status: int) -> None:
    if message:
        print(f"gradband: {message}", file=sys.stderr)
    sys.exit(status)
