"""`gradband learn`."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradband.cli.options import (
    Afterwards,
    Arms,
    Devices,
    Horizon,
    Json,
    Memory,
    Noise,
    PolicyName,
    ProblemName,
    Seed,
    load_problem,
    make_estimator,
    make_optimizer,
    parse_curriculum,
    typed_policy,
)
from gradband.cli.shared import (
    describe,
    file_name,
    known_optimum,
    label_of,
    make_folder,
    measure,
    optimal_policy,
    player,
    references,
    shares,
    write_json,
)
from gradband.core.errors import StoppedError, whole

if TYPE_CHECKING:
    from gradband.evaluation.compare_with_defaults import Situation


def learn(
    problem: ProblemName = "two-point",
    policy: PolicyName = "softelim",
    arms: Arms = None,
    horizon: Horizon = None,
    afterwards: Afterwards = None,
    noise: Noise = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Preset that supplies defaults for the other options: gradband (few parameters), "
            "algorithm-1 (as the paper prints it), network, index, or paper or paper-yogi (the LSTM of "
            "Appendix F)."
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
    batch: Annotated[int | None, typer.Option(help="Instances in each step, m (gradband: 1000).")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="none, optimal, self, leave-one-out, critic or luck (gradband: self)."),
    ] = None,
    rollouts: Annotated[
        int | None,
        typer.Option("--rollouts", "--runs", help="Rollouts on each instance (leave-one-out: 4)."),
    ] = None,
    returns: Annotated[
        str | None, typer.Option(help="realised or expected rewards in the return (gradband: realised).")
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help="paper (Algorithm 1 as printed, step 1/(c√L)) or an Optax optimiser: adam, yogi, sgd, …"
        ),
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Step size of an Optax optimiser.")] = None,
    decay: Annotated[float, typer.Option(help="Factor on that step size after each iteration.")] = 1.0,
    scale: Annotated[
        str, typer.Option(help="log, or linear as in the paper's Algorithm 1, for positive θ.")
    ] = "log",
    anneal: Annotated[
        bool, typer.Option("--anneal", help="Anneal the temperature, as Appendix F.")
    ] = False,
    curriculum: Annotated[
        str | None, typer.Option(help="Horizons to learn at first, e.g. 20,60; none for no others.")
    ] = None,
    instances: Annotated[
        int | None,
        typer.Option(
            help="Fresh instances to measure on (10 000; fewer where that would outlast learning)."
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

    Examples:

      gradband learn

      gradband learn bernoulli-10 --seed 3 --out runs/ten-arms

      gradband learn mine.toml --policy exp3:theta=0.5 --baseline leave-one-out --rollouts 8

      gradband learn uniform-2 --optimizer adam --learning-rate 0.05 --decay 0.99

      gradband learn uniform-2 --policy lstm --imitate optimal

      gradband learn distractors --arms 10 --policy lstm --recipe paper

      gradband learn runs/tests-fit/fitted.toml --policy index

      gradband learn two-point --policy my_policies.py:Tempered

      srun gradband learn bernoulli-10 --policy index --distributed
    """
    import gradband as gb
    from gradband import problems
    from gradband.cli import figures, terminal
    from gradband.core.files import before as kept_before
    from gradband.engine import processes
    from gradband.evaluation.evaluate import fresh_instances
    from gradband.evaluation.verdict import Verdict
    from gradband.learning import interruption

    began = time.perf_counter()
    if distributed or any(value is not None for value in (coordinator, peers, rank)):
        processes.connect(coordinator, peers, rank)
    task = load_problem(problem, arms, horizon, noise, afterwards)
    start = typed_policy(policy)
    label = label_of(task, problem)
    folder = folder_of_first(out or Path("runs") / file_name(f"{label}-{start.name}"))
    fresh_instances(task, MOST if instances is None else instances)
    fitted = problems.fit_of(problem)
    if batch is not None:
        whole("batch", batch)
    settings: dict[str, Any] = {
        "recipe": recipe,
        "iterations": iterations,
        "instances": batch,
        "estimator": make_estimator(start, task, recipe, baseline, rollouts, returns),
        "optimizer": make_optimizer(optimizer, learning_rate, decay),
        "optimizer_name": " ".join(map(str, (optimizer, learning_rate, decay))) if optimizer else "",
        "scale": scale,
        "temperature": gb.annealed if anneal else None,
        "curriculum": None if curriculum is None else parse_curriculum(curriculum),
        "imitate": reference(task, imitate) if imitate else None,
        "params": given_params(start, task, policy),
        "seed": seed,
        "devices": devices,
        "memory": memory,
        "checkpoint": folder / "checkpoint.safetensors",
        "resume": resume,
    }
    make_folder(folder)
    kept = settings["checkpoint"], kept_before(settings["checkpoint"])
    if resume and start.name != "dqn" and processes.first() and not any(map(os.path.lexists, kept)):
        print(f"gradband: there is no checkpoint in {folder}: starting anew", file=sys.stderr)
    try:
        with terminal.progress("learning", 1) as update:
            learned = gb.learn(
                start,
                task,
                **settings,
                progress=lambda step: update(step.iteration / step.iterations, progress_of(step)),
            )
    except interruption.Interrupted as stopped:
        again = "the same command with --resume goes on from there"
        raise StoppedError(f"{stopped} ({again})", 128 + stopped.number) from None
    names = {"policy": "policy.safetensors", "curve": "training.png", "result": "result.json"}
    files = {what: str(folder / name) for what, name in names.items()}
    learned.about["source"] = problem  # where explain finds a prior that is in a file of its own
    learned.save(files["policy"])
    entries: dict[str, Any] = {f"{start.name}, learned": learned, f"{start.name}, before": learned.policy}
    entries |= references(task)
    instances = usual_instances(learned, task) if instances is None else instances
    saved = f"interrupted while comparing; {files['policy']} has the learned policy"
    try:
        with interruption.at_once(f"{saved}, and the same command with --resume only compares"):
            table = measure(entries, task, instances, seed, devices, memory)
            situations = gains(learned, task, fitted, instances, seed, devices, memory)
            optimum, note = known_optimum(task)
    except interruption.Interrupted as stopped:
        raise StoppedError(str(stopped), 128 + stopped.number) from None
    covered = shares(table, optimum)
    ours, before = (table[f"{start.name}, {when}"].regret for when in ("learned", "before"))
    verdict = Verdict.of(table, start.name, f"{start.name}, learned", f"{start.name}, before")
    benchmarks = [row for row in table.rows if not row.name.startswith(f"{start.name}, ")]
    count = len(table.rows[0].regrets)
    learned.about["evaluation"] = {"instances": count, "regret": vars(ours), "regret_before": vars(before)}
    learned.save(files["policy"])
    lines = {"learned": ours.mean, **{row.name: row.regret.mean for row in benchmarks}}
    lines |= {} if optimum is None else {"optimum": optimum}
    parameters = list(learned.params) if sum(p.size for p in learned.params.values()) <= 3 else []
    figures.training_curve(
        Path(files["curve"]), f"{start.name} on {label}", learned.history, parameters, lines
    )
    result = {
        "problem": task.describe() | {"name": label},
        "policy": start.name,
        "params": described(learned.params),
        "regret": vars(ours),
        "regret_before": vars(before),
        "optimum": optimum,
        "share": vars(covered[f"{start.name}, learned"]) if covered else None,
        "benchmarks": [{"name": r.name, "regret": r.regret.mean, "se": r.regret.se} for r in benchmarks],
        "instances": count,
        "seed": seed,
        "verdict": {"words": verdict.in_words(task), "against": verdict.in_numbers()},
        "gain": [in_numbers(situation) for situation in situations] or None,
        "stopped": learned.stopped or None,
        "seconds": time.perf_counter() - began,
        "files": files,
    }
    write_json(Path(files["result"]), result)
    if json and processes.first():
        terminal.print_json(result)
    elif processes.first():
        terminal.print_table(
            describe(task, problem),
            ["policy", "Bayes regret", "± se", "from ts to the optimum"][: 4 if covered else 3],
            [
                [
                    row.name,
                    f"{row.regret.mean:.3f}",
                    f"{row.regret.se:.3f}",
                    *([terminal.bar(covered[row.name].mean, covered[row.name].se)] if covered else []),
                ]
                for row in table.rows
            ],
            f"Learned {in_words(learned.params)} in {learned.about['training']['seconds']:.1f} s."
            f"\n{verdict.in_words(task)}\n{note}\nFiles: {', '.join(files.values())}",
        )
        if situations:
            show_gain(situations)
    if learned.stopped:
        raise RuntimeError(f"learning stopped early: {learned.stopped}; the last good policy was saved")


MOST, FEWEST = 10_000, 2_000  # instances of the comparison, unless they are given
CHEAP = 2_000  # n K up to which that takes a second or two


def usual_instances(learned: Any, task: Any) -> int:
    """Instances to compare on. A reference may cost 25 times what an instance does in learning."""
    from gradband.gradient.estimator import FEW

    if task.horizon * task.arms <= CHEAP or sum(leaf.size for leaf in learned.params.values()) > FEW:
        return MOST
    training = learned.about["training"]
    return min(MOST, max(FEWEST, training["iterations"] * training["instances"] // 25))


def given_params(start: Any, task: Any, text: str) -> dict[str, Any] | None:
    """The parameters to start from, if the words on the policy say which θ."""
    import jax

    from gradband.policies import binding

    return binding.check(start, task).init(jax.random.key(0)) if "theta=" in text else None


def gains(
    learned: Any,
    task: Any,
    fitted: tuple[dict[str, Any], Path] | None,
    instances: int,
    seed: int,
    devices: int | None,
    memory: str | None,
) -> "list[Situation]":
    """What a policy gains where a prior was fitted to past experiments, or nothing for other problems."""
    from gradband.cli import terminal
    from gradband.evaluation import compare_with_defaults

    if fitted is None:
        return []
    with terminal.progress("gain", 1) as update:
        how: dict[str, Any] = {"instances": instances, "seed": seed, "devices": devices}
        how["memory"] = memory
        return compare_with_defaults.measure(
            learned, task, *fitted, **how, progress=lambda name, done: update(done, name)
        )


def in_numbers(situation: "Situation") -> dict[str, Any]:
    """A situation's successes per test, and what the learned policy gains over each of the others."""
    from gradband.evaluation.compare_with_defaults import LEARNED

    rows = []
    for row in situation.table.rows:
        other = row.name != LEARNED
        gain = vars(situation.gain(row.name)) if other else None
        percent = vars(situation.percent(row.name)) if other else None
        reward = vars(situation.reward(row.name))
        rows.append({"name": row.name, "reward": reward, "gain": gain, "percent": percent})
    checks = [
        {
            "explored": check.share,
            "experiments": check.experiments,
            "real": vars(check.real),
            "promised": check.promised,
            "holds": check.holds,
        }
        for check in situation.check
    ]
    return {
        "situation": situation.name,
        "instances": len(situation.table.rows[0].rewards),
        "experiments": situation.experiments,
        "conclusive": situation.conclusive,
        "best_rival": situation.rival,
        "policies": rows,
        "check": checks,
    }


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


def described(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters by name; of a network, whose weights are in its file, their shapes."""
    from gradband.gradient.estimator import FEW

    few = sum(leaf.size for leaf in params.values()) <= FEW
    return params if few else {name: {"shape": list(leaf.shape)} for name, leaf in params.items()}


def progress_of(step: Any) -> str:
    """A few words on an iteration."""
    where = f"{step.iteration}/{step.iterations}  {in_words(step.params)}"
    return f"{where}  n {step.horizon}  |g| {step.norm:.3g}  regret {step.regret:.2f}"


def in_words(params: dict[str, Any]) -> str:
    """A few parameters in words, or how many there are."""
    import numpy as np

    sizes = {name: np.size(value) for name, value in params.items()}
    if sum(sizes.values()) > 3:
        return f"{sum(sizes.values())} parameters"
    return ", ".join(f"{name} = {float(value):.4g}" for name, value in params.items())
