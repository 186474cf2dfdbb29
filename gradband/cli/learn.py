"""`gradband learn`."""

import atexit
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from gradband.cli import options, shared, terminal
from gradband.core.errors import StoppedError

if TYPE_CHECKING:
    from gradband.evaluation.compare_with_defaults import Situation
    from gradband.evaluation.outcome import Outcome
    from gradband.policies import Policy
    from gradband.policies.policy_file import Learned
    from gradband.problems import Problem


def learn(
    problem: options.ProblemName = "two-point",
    policy: options.PolicyName = "softelim",
    arms: options.Arms = None,
    horizon: options.Horizon = None,
    recipe: Annotated[
        str | None,
        Option(
            metavar="NAME|FILE",
            help="How to learn: gradband (few parameters), algorithm-1 (as the paper prints it), network, "
            "index, paper or paper-yogi (the LSTM of Appendix F), or a TOML file of your own.",
        ),
    ] = None,
    imitate: Annotated[
        str,
        Option(
            help="Warm start: imitate optimal (the problem's optimal policy), gittins, another policy or a "
            "policy FILE first."
        ),
    ] = "",
    iterations: Annotated[int | None, Option(help="Gradient steps per horizon, L (gradband: 100).")] = None,
    instances: Annotated[int | None, Option(help="Instances per step, m (gradband: 1000).")] = None,
    compare_on: Annotated[
        int | None,
        Option(
            help="Fresh instances to compare on (default: 10 000, or fewer if that would take longer than "
            "learning)."
        ),
    ] = None,
    seed: options.Seed = 0,
    devices: options.Devices = None,
    memory: options.Memory = None,
    out: Annotated[Path | None, Option(help="Folder for files (default: runs/PROBLEM-POLICY).")] = None,
    resume: Annotated[bool, Option("--resume", help="Resume from the checkpoint in the folder.")] = False,
    distributed: Annotated[
        bool,
        Option("--distributed", help="One of several processes started by Slurm, Open MPI or Kubernetes."),
    ] = False,
    coordinator: Annotated[str | None, Option(help="HOST:PORT of the first of several processes.")] = None,
    peers: Annotated[int | None, Option("--processes", help="Number of processes.")] = None,
    rank: Annotated[int | None, Option("--process-id", help="Number of this process, from 0.")] = None,
    json: options.Json = False,
) -> None:
    """Learn a policy, compare it with Thompson sampling and the optimum, and save it.

    All other settings of learning are in a recipe: a name, or a TOML file with
    what differs from the default recipe. For example, mine.toml may contain

      iterations = 200

      estimator = { baseline = "leave-one-out", rollouts = 8 }

      optimizer = { name = "adam", learning_rate = 0.05, decay = 0.99 }

    Its keys: base (the recipe to start from), iterations, instances, most, estimator,
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
    from gradband.cli import figures
    from gradband.engine import processes
    from gradband.evaluation.evaluate import fresh_instances
    from gradband.evaluation.outcome import MOST_INSTANCES, named_parameters

    began = time.perf_counter()
    if distributed or any(value is not None for value in (coordinator, peers, rank)):
        processes.connect(coordinator, peers, rank)
    task, start = options.load_problem(problem, arms, horizon), options.parse_policy(policy)
    label = shared.label_of(task, problem)
    folder = folder_of_first(out or Path("runs") / shared.file_name(f"{label}-{start.name}"))
    fresh_instances(task, MOST_INSTANCES if compare_on is None else compare_on)
    fitted = problems.fit_of(problem)
    where: dict[str, Any] = {"seed": seed, "devices": devices, "memory": memory}
    settings = where | {
        "recipe": recipe,
        "iterations": iterations,
        "instances": instances,
        "imitate": reference(imitate, task) if imitate else None,
        "params": options.parse_start(policy, start, task),
        "checkpoint": folder / "checkpoint.safetensors",
        "resume": resume,
    }
    shared.make_folder(folder)
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
        "problem": shared.about(task, problem),
        **outcome.as_dict(),
        "seed": seed,
        "seconds": time.perf_counter() - began,
        "files": files,
    }
    if processes.first():
        notes = f"{note}\nFiles: {', '.join(files.values())}"
        title = shared.describe(task, problem)
        terminal.emit(result, json, lambda: show(outcome, title, notes), files["result"])
    if learned.stopped:
        raise RuntimeError(f"learning stopped early: {learned.stopped}; the last good policy was saved")


def reference(text: str, task: "Problem") -> Any:
    """The policy to imitate."""
    from gradband.policies.given import from_command_line

    return shared.optimal_policy(task) if text == "optimal" else from_command_line(text, task)


def folder_of_first(folder: Path) -> Path:
    """The folder for files in the first process, and a temporary one in the others."""
    from gradband.engine import processes

    if processes.first():
        return folder
    scratch = tempfile.TemporaryDirectory(prefix="gradband-")
    atexit.register(scratch.cleanup)
    return Path(scratch.name)


def train(start: "Policy", task: "Problem", settings: dict[str, Any]) -> "Learned":
    """Learns under a progress bar. If it is interrupted, the message says how to resume."""
    import gradband as gb
    from gradband.core.files import before
    from gradband.engine import processes
    from gradband.learning import interruption

    file = settings["checkpoint"]
    there = any(map(os.path.lexists, (file, before(file))))
    if settings["resume"] and start.trainer == "gradband" and processes.first() and not there:
        print(f"gradband: no checkpoint in {file.parent}: starting from scratch", file=sys.stderr)

    def report(step: Any) -> None:
        where = f"{step.iteration}/{step.iterations}  {in_words(step.params)}  n {step.horizon}"
        words = f"{where}  |g| {step.norm:.3g}  regret {step.regret:.2f}"
        update(step.iteration / step.iterations, words)

    try:
        with terminal.progress("learning") as update:
            return gb.learn(start, task, **settings, progress=report)
    except interruption.Interrupted as stopped:
        again = "the same command with --resume resumes from there"
        raise StoppedError(f"{stopped} ({again})", 128 + stopped.number) from None


def assess(
    learned: "Learned",
    task: "Problem",
    fitted: tuple[dict[str, Any], Path] | None,
    compare_on: int | None,
    where: dict[str, Any],
    file: str,
) -> "tuple[Outcome, str]":
    """Compares the learned policy, which is saved in `file`, under progress bars.

    Returns the outcome and a sentence about the optimum.
    """
    from gradband.evaluation import compare_with_defaults, outcome
    from gradband.evaluation.standing import Standing
    from gradband.learning import interruption

    how = where | {"instances": compare_on or outcome.instances_to_compare_on(learned, task)}
    situations: list[Situation] = []
    saved = f"interrupted while comparing; the learned policy is saved in {file}"
    try:
        with interruption.at_once(f"{saved}, and the same command with --resume only compares"):
            table = shared.measure(outcome.entries_to_compare(learned, task), task, **how)
            if fitted is not None:
                with terminal.progress("gain") as update:
                    situations = compare_with_defaults.measure(
                        learned, task, *fitted, **how, progress=lambda name, done: update(done, name)
                    )
            optimum, note = shared.known_optimum(task)
    except interruption.Interrupted as stopped:
        raise StoppedError(str(stopped), 128 + stopped.number) from None
    return outcome.Outcome(learned, task, Standing.of(table, optimum), tuple(situations)), note


def show(outcome: "Outcome", title: str, notes: str) -> None:
    """Prints the comparison, the verdict, and the gain on a fitted problem."""
    seconds = outcome.learned.about["training"]["seconds"]
    verdict = outcome.verdict.in_words(outcome.problem)
    learned = f"Learned {in_words(outcome.learned.params)} in {seconds:.1f} s."
    shared.show_standing(outcome.standing, title, f"{learned}\n{verdict}\n{notes}")
    if outcome.situations:
        show_gain(list(outcome.situations))


def show_gain(situations: "list[Situation]") -> None:
    """Prints the rewards on held-out experiments, the gain if the prior is wrong, and a check of both."""
    from gradband.evaluation import compare_with_defaults

    held = next(entry for entry in situations if entry.name == compare_with_defaults.HELD_OUT)
    terminal.print_table(
        f"On {held.experiments} {compare_with_defaults.HELD_OUT}: successes per test, "
        "and the gain of the learned policy",
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
        "Gain over the best of the other policies, by what the truth is",
        ["truth", "best of the others", "per thousand pulls", "± se", "percent", "± se"],
        [[entry.name, entry.rival, *_numbers(entry, entry.rival)[2:]] for entry in situations],
        "" if checks else verdict,
        texts=2,
    )
    if checks:
        terminal.print_table(
            "A check without any model: gain of the winner of an equal split over the mean arm, per "
            "thousand pulls",
            ["explored", "draws of", "promised", "came true", "± se", "within 2 se"],
            checks,
            verdict,
            texts=2,
        )


def _numbers(situation: "Situation", name: str) -> list[str]:
    """A policy's successes per test and the learned policy's gain over it, with standard errors."""
    from gradband.evaluation.compare_with_defaults import LEARNED

    reward = situation.reward(name)
    gains = () if name == LEARNED else (situation.gain(name), situation.percent(name))
    texts = [text for value in gains for text in (f"{value.mean:+.3f}", f"{value.se:.3f}")]
    return [f"{reward.mean:.1f}", f"{reward.se:.3f}", *(texts or [""] * 4)]


def in_words(params: dict[str, Any]) -> str:
    """A few parameters with their values, or how many there are."""
    from gradband.evaluation.outcome import named_parameters, size_of

    if not named_parameters(params):
        return f"{size_of(params)} parameters"
    return ", ".join(f"{name} = {float(value):.4g}" for name, value in params.items())
