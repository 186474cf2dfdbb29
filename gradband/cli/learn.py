"""`gradband learn`."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradband.cli.options import (
    Arms,
    Devices,
    Horizon,
    Json,
    Memory,
    PolicyName,
    ProblemName,
    Seed,
    load_problem,
    parse_start,
    typed_policy,
)
from gradband.cli.shared import (
    about,
    describe,
    file_name,
    known_optimum,
    label_of,
    make_folder,
    measure,
    optimal_policy,
    player,
)
from gradband.core.errors import StoppedError

if TYPE_CHECKING:
    from gradband.evaluation.compare_with_defaults import Situation
    from gradband.evaluation.outcome import Outcome
    from gradband.policies import Policy
    from gradband.policies.policy_file import Learned
    from gradband.problems import Problem


def learn(
    problem: ProblemName = "two-point",
    policy: PolicyName = "softelim",
    arms: Arms = None,
    horizon: Horizon = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="How to learn: gradband (few parameters), algorithm-1 (as the paper prints it), network, "
            "index, paper or paper-yogi (the LSTM of Appendix F), or a TOML file of your own.",
        ),
    ] = None,
    imitate: Annotated[
        str,
        typer.Option(
            help="A warm start: agree with optimal (the problem's optimal policy), gittins, another policy "
            "or a policy FILE first."
        ),
    ] = "",
    iterations: Annotated[
        int | None, typer.Option(help="Steps of gradient ascent, L, at each horizon (gradband: 100).")
    ] = None,
    instances: Annotated[
        int | None, typer.Option(help="Instances in each step, m (gradband: 1000).")
    ] = None,
    compare_on: Annotated[
        int | None,
        typer.Option(
            help="Fresh instances to compare on (10 000; fewer where that would outlast learning)."
        ),
    ] = None,
    seed: Seed = 0,
    devices: Devices = None,
    memory: Memory = None,
    out: Annotated[Path | None, typer.Option(help="Folder for files (runs/PROBLEM-POLICY).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's checkpoint.")] = False,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed", help="One of several processes, which Slurm, Open MPI or Kubernetes started."
        ),
    ] = False,
    coordinator: Annotated[
        str | None, typer.Option(help="Address HOST:PORT of the first of several processes.")
    ] = None,
    peers: Annotated[int | None, typer.Option("--processes", help="How many processes there are.")] = None,
    rank: Annotated[int | None, typer.Option("--process-id", help="Which of them this is, from 0.")] = None,
    json: Json = False,
) -> None:
    """Learn a policy, compare it with Thompson sampling and the optimum, and save it.

    Everything else about how to learn is in a recipe: a name, or a TOML file with
    what should differ from the usual one. For example, mine.toml may say

      iterations = 200

      estimator = { baseline = "leave-one-out", rollouts = 8 }

      optimizer = { name = "adam", learning_rate = 0.05, decay = 0.99 }

    Its keys: base (the recipe to begin with), iterations, instances, most, estimator,
    optimizer, scale, temperature, entropy, curriculum, settings, survey, choose,
    imitating, tuning. docs/recipes.md explains them.

    Examples:

      gradband learn

      gradband learn bernoulli-10 --seed 3 --out runs/ten-arms

      gradband learn mine-problem.toml --policy exp3:theta=0.5 --recipe mine.toml

      gradband learn uniform-2 --policy lstm --imitate optimal

      gradband learn distractors --arms 10 --policy lstm --recipe paper

      gradband learn runs/tests-fit/fitted.toml --policy index

      gradband learn two-point --policy my_policies.py:Tempered

      srun gradband learn bernoulli-10 --policy index --distributed
    """
    from gradband import problems
    from gradband.cli import figures, terminal
    from gradband.engine import processes
    from gradband.evaluation.evaluate import fresh_instances
    from gradband.evaluation.outcome import MOST_INSTANCES, named_parameters

    began = time.perf_counter()
    if distributed or any(value is not None for value in (coordinator, peers, rank)):
        processes.connect(coordinator, peers, rank)
    task, start = load_problem(problem, arms, horizon), typed_policy(policy)
    label = label_of(task, problem)
    folder = folder_of_first(out or Path("runs") / file_name(f"{label}-{start.name}"))
    fresh_instances(task, MOST_INSTANCES if compare_on is None else compare_on)
    fitted = problems.fit_of(problem)
    where: dict[str, Any] = {"seed": seed, "devices": devices, "memory": memory}
    settings = where | {
        "recipe": recipe,
        "iterations": iterations,
        "instances": instances,
        "imitate": reference(task, imitate) if imitate else None,
        "params": parse_start(policy, start, task),
        "checkpoint": folder / "checkpoint.safetensors",
        "resume": resume,
    }
    make_folder(folder)
    learned = train(start, task, settings)
    names = {"policy": "policy.safetensors", "curve": "training.png", "result": "result.json"}
    files = {what: str(folder / name) for what, name in names.items()}
    learned.about["source"] = problem  # where explain finds a prior that is in a file of its own
    learned.save(files["policy"])
    outcome, note = assess(learned, task, fitted, compare_on, where, files["policy"])
    learned.about["evaluation"] = outcome.evaluation()
    learned.save(files["policy"])
    title, shown = f"{start.name} on {label}", named_parameters(learned.params)
    figures.training_curve(Path(files["curve"]), title, learned.history, shown, outcome.levels())
    result = {
        "problem": about(task, problem),
        **outcome.as_dict(),
        "seed": seed,
        "seconds": time.perf_counter() - began,
        "files": files,
    }
    if processes.first():
        notes = f"{note}\nFiles: {', '.join(files.values())}"
        title = describe(task, problem)
        terminal.emit(result, json, lambda: show(outcome, title, notes), files["result"])
    if learned.stopped:
        raise RuntimeError(f"learning stopped early: {learned.stopped}; the last good policy was saved")


def train(start: "Policy", task: "Problem", settings: dict[str, Any]) -> "Learned":
    """Learns under a progress bar; an interruption says how to go on."""
    import gradband as gb
    from gradband.cli import terminal
    from gradband.core.files import before as kept_before
    from gradband.engine import processes
    from gradband.learning import interruption

    file = settings["checkpoint"]
    there = any(map(os.path.lexists, (file, kept_before(file))))
    if settings["resume"] and start.trainer == "gradband" and processes.first() and not there:
        print(f"gradband: there is no checkpoint in {file.parent}: starting anew", file=sys.stderr)
    try:
        with terminal.progress("learning", 1) as update:
            return gb.learn(
                start,
                task,
                **settings,
                progress=lambda step: update(step.iteration / step.iterations, progress_of(step)),
            )
    except interruption.Interrupted as stopped:
        again = "the same command with --resume goes on from there"
        raise StoppedError(f"{stopped} ({again})", 128 + stopped.number) from None


def assess(
    learned: "Learned",
    task: "Problem",
    fitted: tuple[dict[str, Any], Path] | None,
    compare_on: int | None,
    where: dict[str, Any],
    file: str,
) -> "tuple[Outcome, str]":
    """How the learned policy in a file compares, under progress bars, and a sentence on the optimum."""
    from gradband.evaluation import outcome
    from gradband.evaluation.standing import Standing
    from gradband.learning import interruption

    instances = outcome.instances_to_compare_on(learned, task) if compare_on is None else compare_on
    entries = outcome.entries_to_compare(learned, task)
    saved = f"interrupted while comparing; {file} has the learned policy"
    try:
        with interruption.at_once(f"{saved}, and the same command with --resume only compares"):
            table = measure(entries, task, instances=instances, **where)
            situations = gains(learned, task, fitted, instances=instances, **where)
            optimum, note = known_optimum(task)
    except interruption.Interrupted as stopped:
        raise StoppedError(str(stopped), 128 + stopped.number) from None
    return outcome.Outcome(learned, task, Standing.of(table, optimum), tuple(situations)), note


def show(outcome: "Outcome", title: str, notes: str) -> None:
    """The comparison as a table, the verdict, and the gain on a fitted problem."""
    from gradband.cli import terminal

    table, shares = outcome.standing.table, outcome.standing.shares
    seconds = outcome.learned.about["training"]["seconds"]
    terminal.print_table(
        title,
        ["policy", "Bayes regret", "± se", "from ts to the optimum"][: 4 if shares else 3],
        [
            [
                row.name,
                f"{row.regret.mean:.3f}",
                f"{row.regret.se:.3f}",
                *([terminal.bar(shares[row.name].mean, shares[row.name].se)] if shares else []),
            ]
            for row in table.rows
        ],
        f"Learned {in_words(outcome.learned.params)} in {seconds:.1f} s."
        f"\n{outcome.verdict.in_words(outcome.problem)}\n{notes}",
    )
    if outcome.situations:
        show_gain(list(outcome.situations))


def gains(
    learned: "Learned", task: "Problem", fitted: tuple[dict[str, Any], Path] | None, **how: Any
) -> "list[Situation]":
    """What a policy gains where a prior was fitted to past experiments, or nothing for other problems."""
    from gradband.cli import terminal
    from gradband.evaluation import compare_with_defaults

    if fitted is None:
        return []
    with terminal.progress("gain", 1) as update:
        return compare_with_defaults.measure(
            learned, task, *fitted, **how, progress=lambda name, done: update(done, name)
        )


def show_gain(situations: "list[Situation]") -> None:
    """What each policy has on experiments held out, what is gained elsewhere, and whether to believe it."""
    from gradband.cli import terminal
    from gradband.evaluation import compare_with_defaults

    held = next(entry for entry in situations if entry.name == compare_with_defaults.HELD_OUT)
    terminal.print_table(
        f"On {held.experiments} {compare_with_defaults.HELD_OUT}: successes per test, "
        "and what the learned policy has more",
        ["policy", "successes", "± se", "per thousand pulls", "± se", "percent", "± se"],
        [[row.name, *_numbers(held, row.name)] for row in held.table.rows],
    )
    verdict = compare_with_defaults.in_words(situations)
    checks = [
        [
            f"{100 * check.share:.0f} %",
            entry.name,
            f"{check.promised:.2f}",
            f"{check.real.mean:.2f}",
            f"{check.real.se:.2f}",
            {True: "yes", False: "no", None: "too few"}[check.holds],
        ]
        for entry in situations
        for check in entry.check
    ]
    terminal.print_table(
        "What it has more than the best of the others, if the truth is",
        ["truth", "best of the others", "per thousand pulls", "± se", "percent", "± se"],
        [[entry.name, entry.rival, *_numbers(entry, entry.rival)[2:]] for entry in situations],
        "" if checks else verdict,
        texts=2,
    )
    if checks:
        terminal.print_table(
            "A check without any model: what the winner of an equal split has more than the mean arm, per "
            "thousand pulls",
            ["explored", "draws of", "promised", "came true", "± se", "within 2 se"],
            checks,
            verdict,
            texts=2,
        )


def _numbers(situation: "Situation", name: str) -> list[str]:
    """Successes per test of a policy, and what the learned one has more, each with its standard error."""
    from gradband.evaluation.compare_with_defaults import LEARNED

    found = [situation.reward(name)]
    found += [situation.gain(name), situation.percent(name)] if name != LEARNED else []
    texts = [
        text
        for place, value in enumerate(found)
        for text in (f"{value.mean:.1f}" if place == 0 else f"{value.mean:+.3f}", f"{value.se:.3f}")
    ]
    return texts + [""] * (6 - len(texts))


def folder_of_first(folder: Path) -> Path:
    """The folder for files; for processes other than the first one, one that is thrown away."""
    import atexit
    import tempfile

    from gradband.engine import processes

    if processes.first():
        return folder
    scratch = tempfile.TemporaryDirectory(prefix="gradband-")
    atexit.register(scratch.cleanup)
    return Path(scratch.name)


def reference(task: Any, text: str) -> Any:
    """The policy to imitate."""
    return optimal_policy(task) if text == "optimal" else player(text, task)


def progress_of(step: Any) -> str:
    """A few words on an iteration."""
    where = f"{step.iteration}/{step.iterations}  {in_words(step.params)}"
    return f"{where}  n {step.horizon}  |g| {step.norm:.3g}  regret {step.regret:.2f}"


def in_words(params: dict[str, Any]) -> str:
    """A few parameters in words, or how many there are."""
    from gradband.evaluation.outcome import named_parameters, size_of

    if not named_parameters(params):
        return f"{size_of(params)} parameters"
    return ", ".join(f"{name} = {float(value):.4g}" for name, value in params.items())
