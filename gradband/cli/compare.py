"""`gradband compare`."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from gradband.cli import options, shared, terminal


def compare(
    problem: options.ProblemName = "two-point",
    policies: options.Policies = None,
    trust: options.Trust = None,
    arms: options.Arms = None,
    horizon: options.Horizon = None,
    afterwards: options.Afterwards = None,
    noise: options.Noise = None,
    instances: options.Instances = 10_000,
    seed: options.Seed = 0,
    devices: options.Devices = None,
    memory: options.Memory = None,
    quantiles: Annotated[
        bool,
        Option(
            "--quantiles",
            help="Show the regret that 95 % and 99 % of the instances do not exceed, with 95 % intervals.",
        ),
    ] = False,
    certify: options.Certify = None,
    out: Annotated[Path | None, Option(help="Folder for files (default: runs/PROBLEM-compare).")] = None,
    json: options.Json = False,
) -> None:
    """Compare the Bayes regret of policies on the same instances.

    If the optimum can be computed, each policy is also shown on the way
    from Thompson sampling (0 %) to the optimum (100 %). If not, a bound on every
    policy's regret makes it an interval.

    Examples:

      gradband compare --policies optimal,gittins,ts,ucb1,ucb-v

      gradband compare bernoulli-10 --policies ts,ucb1,softelim:theta=0.1

      gradband compare mine.toml --policies ts,ts:prior,gittins:prior,pretrained

      gradband compare --policies runs/two-point-softelim/policy.safetensors,ts --instances 100000

      gradband compare --policies ts,my_policies.py:Tempered

      gradband compare bernoulli-10 --policies ts,gittins --quantiles

      gradband compare dpt-linear --policies pretrained-linear,lin-ts,lin-softelim:a=0.6
    """
    import gradband as gb
    from gradband.cli import figures
    from gradband.evaluation.evaluate import TAIL, fresh_instances
    from gradband.evaluation.standing import OPTIMAL, stages, usual_policies
    from gradband.policies.given import from_command_line

    task = options.load_problem(problem, arms, horizon, noise, afterwards)
    folder = out or Path("runs") / shared.file_name(f"{shared.label_of(task, problem)}-compare")
    fresh_instances(task, instances)
    words = None if policies is None else [word for word in policies.split(",") if word]
    entries: dict[str, Any] = {
        word: word if word == OPTIMAL else from_command_line(word, task, trust) for word in words or ()
    }
    if words is None:
        entries = {**usual_policies(task)}
    shared.make_folder(folder)
    with terminal.progress("comparing") as update:
        found = gb.compare(
            entries,
            task,
            instances=instances,
            seed=seed,
            devices=devices,
            memory=memory,
            quantiles=TAIL if quantiles else (),
            certify=certify,
            progress=terminal.in_turn(update, stages(entries)),
        )
    files = {"figure": str(folder / "regret.png"), "result": str(folder / "result.json")}
    result = {"problem": shared.about(task, problem), "seed": seed, **found.as_dict(), "files": files}
    title = shared.describe(task, problem)
    figures.comparison(Path(files["figure"]), title, found)
    notes = f"{found.note}\nFiles: {', '.join(files.values())}"
    title = f"{title}, {found.instances} instances"
    table, *more = found.tables()

    def show() -> None:
        terminal.show(table, title, notes)
        for each in more:
            terminal.show(each)

    terminal.emit(result, json, show, files["result"])
