"""`gradband learn`."""

import atexit
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from gradband.cli import options, shared, terminal
from gradband.cli.learn_steps import assess, train, train_unguarded, write_page
from gradband.core.errors import InputError

if TYPE_CHECKING:
    from gradband.core.results import TextTable
    from gradband.evaluation.compare_with_defaults import Situation
    from gradband.evaluation.outcome import Outcome
    from gradband.policies import Policy
    from gradband.problems import Problem


def learn(
    problem: options.ProblemName = "two-point",
    policy: options.LearnedName = None,
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
    objective: Annotated[
        str | None,
        Option(
            help="What to minimise: mean (the Bayes regret), or cvar:0.1 (the mean regret on the worst "
            "tenth of the instances)."
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
    report: Annotated[
        Path | None,
        Option(
            metavar="PAGE.html",
            help="On a fitted problem: write a page for the people who decide whether to adopt the policy.",
        ),
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Resume from the checkpoint in the folder.")] = False,
    coordinator: Annotated[
        str | None,
        Option(
            metavar="auto|HOST:PORT",
            help="Run as one of several processes: auto if Slurm, Open MPI or Kubernetes started them, or "
            "the address of the first.",
        ),
    ] = None,
    process: Annotated[
        str | None,
        Option(metavar="I/COUNT", help="Number of this process, from 0, and how many there are: 0/2."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Learn a policy, compare it with Thompson sampling and the optimum, and save it.

    With --policy auto, which is the default on a fitted problem, several kinds of
    policies are learned, for about two minutes on two cores (auto:10min for ten), and
    the best of them and of the usual policies is saved. The result depends on the
    seed and the budget, not on the clock.

    All other settings of learning are in a recipe: a name, or a TOML file with
    what differs from the default recipe. For example, mine.toml may contain

      iterations = 200

      estimator = { baseline = "leave-one-out", rollouts = 8 }

      optimizer = { name = "adam", learning_rate = 0.05, decay = 0.99 }

    Its keys: base (the recipe to start from), iterations, instances, most, estimator,
    objective, optimizer, scale, temperature, entropy, curriculum, settings, survey, choose,
    refine, certify, imitating, tuning, guided_from. docs/recipes.md explains them.

    Examples:

      gradband learn

      gradband learn bernoulli-10 --seed 3 --out runs/ten-arms

      gradband learn mine-problem.toml --policy exp3:theta=0.5 --recipe mine.toml

      gradband learn uniform-2 --policy lstm --imitate optimal

      gradband learn bernoulli-10 --policy kl-softelim --objective cvar:0.1

      gradband learn distractors --arms 10 --policy lstm --recipe paper

      gradband learn bernoulli-10 --horizon 200 --policy pretrained

      gradband learn dpt-linear --policy directed-softelim

      gradband learn groups --policy co-softelim:link=logistic+within=1.6

      gradband learn two-point --policy my_policies.py:Tempered

      gradband learn runs/tests-fit/fitted.toml --policy index --report page.html

      gradband learn bernoulli-10 --policy auto:5min

      srun gradband learn bernoulli-10 --policy index --coordinator auto
    """
    from gradband import problems
    from gradband.cli import figures
    from gradband.engine import processes
    from gradband.evaluation.evaluate import fresh_instances
    from gradband.evaluation.outcome import MOST_INSTANCES
    from gradband.learning.auto import parse_auto
    from gradband.policies.policy_file import named_parameters

    began = time.perf_counter()
    if coordinator is not None or process is not None:
        processes.connect(None if coordinator == "auto" else coordinator, *parse_process(process))
    task, fitted = options.load_problem(problem, arms, horizon), problems.fit_of(problem)
    own = recipe or objective or imitate or iterations or instances  # of one policy's learning
    policy = policy or ("auto" if fitted is not None and not own else options.usual_name(task))
    budget, label = parse_auto(policy), shared.label_of(task, problem)
    start = None if budget is not None else options.parse_policy(policy, task)
    name = "auto" if start is None else start.name
    folder = folder_of_first(out or Path("runs") / shared.file_name(f"{label}-{name}"))
    fresh_instances(task, MOST_INSTANCES if compare_on is None else compare_on)
    if report is not None and fitted is None:
        raise InputError("--report needs a problem that gradband fit wrote: it is about past experiments")
    if report is not None:
        shared.make_folder(report.parent)
    where: dict[str, Any] = {"seed": seed, "devices": devices, "memory": memory}
    settings = where | {
        "recipe": recipe if objective is None else recipe_for(objective, recipe, start, task),
        "iterations": iterations,
        "instances": instances,
        "imitate": reference(imitate, task) if imitate else None,
        "params": None if start is None else options.parse_start(policy, start, task),
        "checkpoint": folder / "checkpoint.safetensors",
        "resume": resume,
    }
    shared.make_folder(folder)
    learned = train(start or policy, task, settings)
    names = {"policy": "policy.safetensors", "curve": "training.png", "result": "result.json"}
    files = {what: str(folder / name) for what, name in names.items()}
    learned.about["source"] = problem  # where explain finds a prior that is in a file of its own
    learned.save(files["policy"])
    free = train_unguarded(start or learned.policy, learned, task, settings)
    outcome, note = assess((learned, free), task, fitted, compare_on, where, files["policy"])
    learned.about["evaluation"] = outcome.evaluation()
    learned.save(files["policy"])
    more = {}
    if report is not None and fitted is not None:
        more = {"decision": write_page(outcome, fitted, label, report, where | {"instances": compare_on})}
        files["page"] = str(report)
    title, shown = f"{learned.policy.name} on {label}", named_parameters(learned.params)
    figures.training_curve(Path(files["curve"]), title, learned.history, shown, outcome.levels())
    result = {
        "problem": shared.about(task, problem),
        **outcome.as_dict(),
        **more,
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


def parse_process(text: str | None) -> tuple[int | None, int | None]:
    """How many processes there are, and the number of this one, from `I/COUNT`."""
    if text is None:
        return None, None
    own, _, count = text.partition("/")
    if not own.isdecimal() or not count.isdecimal():
        raise InputError(f"process must be I/COUNT, such as 0/2 for the first of two, not {text!r}")
    return int(count), int(own)


def recipe_for(objective: str, recipe: str | None, start: "Policy | None", task: "Problem") -> Any:
    """The recipe with another objective."""
    from gradband.learning import recipes
    from gradband.policies import binding

    if start is None or start.trainer != "gradband":
        name = "auto" if start is None else start.name
        raise InputError(f"objective does not apply to {name}: name a policy that is learned by gradients")
    return recipes.choose(binding.check(start, task), recipe).aiming(objective)


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


def show(outcome: "Outcome", title: str, notes: str) -> None:
    """Prints the comparison, the verdict, and the gain on a fitted problem."""
    from gradband.policies.policy_file import params_in_words

    seconds = outcome.learned.about["training"]["seconds"]
    verdict = outcome.verdict.in_words(outcome.problem)
    learned = f"Learned {params_in_words(outcome.learned.params)} in {seconds:.1f} s."
    if (tried := outcome.learned.about.get("auto")) is not None:
        terminal.show(table_of_auto(tried))
        if not outcome.learned.history["regret"].size:
            learned, verdict = "Nothing learned is kept.", ""
    notes = notes if outcome.price is None else f"{outcome.price.in_words()}\n{notes}"
    terminal.show(outcome.standing.as_text(title, f"{learned}\n{verdict}\n{notes}"))
    for table in outcome.standing.table.quantile_tables():
        terminal.show(table)
    if outcome.situations:
        show_gain(list(outcome.situations))


def table_of_auto(tried: dict[str, Any]) -> "TextTable":
    """What `auto` tried, and why it chose."""
    from gradband.core.figures import shortened
    from gradband.core.results import TextTable

    rows = [
        [shortened(row["name"]), f"{row['regret']:.3f}", f"{row['se']:.3f}", f"{row['seconds']:.1f}"]
        for row in tried["tried"]
    ]
    left = [f"{name} was left out: it {why}." for name, why in tried["left_out"].items()]
    title = f"Tried by auto, on {tried['instances']} instances"
    columns = ["policy", "Bayes regret", "± se", "seconds"]
    return TextTable(title, columns, rows, "\n".join([tried["why"], *left]))


def show_gain(situations: "list[Situation]") -> None:
    """Prints the rewards on held-out experiments, the gain if the prior is wrong, and a check of both."""
    from gradband.evaluation.gain import Gain

    for table in Gain(tuple(situations)).tables():
        terminal.show(table)
