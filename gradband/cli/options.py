"""Arguments and options that several commands have. Heavy modules are imported when they are needed."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from gradband.core.errors import InputError

if TYPE_CHECKING:
    from gradband.policies import Policy
    from gradband.problems import Problem


def with_texts(helps: dict[str, str]) -> Callable[[Any], Any]:
    """Replaces a command's `**keywords` by text options, which are empty by default."""

    def extended(command: Any) -> Any:
        given = inspect.signature(command)
        *own, rest = given.parameters.values()
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default="",
                annotation=Annotated[str, Option(help=text)],
            )
            for name, text in helps.items()
        ]
        command.__signature__ = given.replace(parameters=[*own, *more])
        del command.__annotations__[rest.name]
        return command

    return extended


@cache
def _policy_classes() -> dict[str, ast.ClassDef]:
    """All classes in the policies' files."""
    classes: dict[str, ast.ClassDef] = {}
    spec = find_spec("gradband.policies")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            classes |= {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return classes


def policy_names(trained: bool = False) -> list[str]:
    """Names of all policies, or of the learned ones, read from their files: help need not import NumPy."""
    classes = _policy_classes()

    def line(kind: str) -> Iterator[ast.ClassDef]:
        """The class and those that it extends, but for `Policy` itself."""
        if kind in classes and kind != "Policy":
            yield classes[kind]
            for base in classes[kind].bases:
                yield from line(ast.unparse(base))

    def said(kind: ast.ClassDef, what: str) -> Any:
        """What a class itself says of this name: a constant, or True for a method."""
        for node in kind.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == what:
                return node.value.value if isinstance(node.value, ast.Constant) else None
            if isinstance(node, ast.FunctionDef) and node.name == what:
                return True
        return None

    found = []
    for name, kind in classes.items():
        label, family = said(kind, "name"), list(line(name))
        unlisted = any(said(each, "listed") is False for each in family)
        learned = any(said(each, "init") for each in family)
        untrained = any(said(each, "trained") is False for each in family)
        if isinstance(label, str) and not unlisted and not (trained and (untrained or not learned)):
            found.append(label)
    return found


ProblemName = Annotated[
    str,
    Argument(
        metavar="PROBLEM",
        show_default=False,
        help="two-point, uniform-2, bernoulli-10, beta-10, distractors; with contexts signs, groups, "
        "dpt-linear, rvr-linear, lin-5, wheel; or a TOML file.",
    ),
]
PolicyFile = Annotated[Path, Argument(metavar="FILE", help="A policy file.", show_default=False)]
Arms = Annotated[int | None, Option(help="Number of arms, if the problem does not fix it.")]
Horizon = Annotated[int | None, Option(help="Number of rounds.")]
Afterwards = Annotated[
    int | None,
    Option(help="Pulls of the recommended arm after the last round (default: the file's, or 0)."),
]
Noise = Annotated[
    str | None, Option(help="shared (one draw per round for all arms) or independent, as in the paper.")
]
PolicyName = Annotated[
    str,
    Option(
        help=f"{', '.join(policy_names(trained=True))}, or a class of your own (my_policies.py:Tempered); "
        "settings follow a colon, as in lstm:hidden=30+head=1."
    ),
]
LearnedName = Annotated[
    str | None,
    Option(
        help=f"{', '.join(policy_names(trained=True))}, a class of your own (my_policies.py:Tempered), "
        "or auto, which tries several; settings follow a colon, as in lstm:hidden=30+head=1 and "
        "auto:10min (default: softelim, with contexts lin-softelim or co-softelim; on a fitted problem "
        "auto, unless options say how to learn)."
    ),
]
Policies = Annotated[
    str | None,
    Option(
        help=f"Policies, separated by commas: names ({', '.join(policy_names())}), with settings after a "
        "colon, separated by + (exp3:theta=0.5+gradient=lemma); ts:prior and gittins:prior, which know the "
        "problem's prior, as pretrained does; policy files; classes of your own (my_policies.py:Tempered); "
        "or optimal, the problem's optimal policy, if it can be computed. By default softelim, ts and "
        "gittins with and without the prior, ucb1 and uniform, if they can play the problem; with contexts "
        "lin-ts, lin-bayes-ucb, lin-greedy and uniform."
    ),
]
Trust = Annotated[
    list[Path] | None,
    Option(metavar="FILE.py", help="Your own Python file that defines the policy's class. It will be run."),
]
Instances = Annotated[int, Option(help="Fresh instances to measure on.")]
Seed = Annotated[int, Option(help="Determines all random numbers.")]
Devices = Annotated[
    int | None, Option(help="Cores or devices to use (default: all); the result does not depend on it.")
]
Memory = Annotated[
    str | None,
    Option(
        help="Memory limit of the process, such as 2GB (default: all that is free); the result does not "
        "depend on it."
    ),
]
Certify = Annotated[
    float | None,
    Option(
        metavar="SECONDS",
        help="Time for a bound on every policy's regret, if the optimum can't be computed (default: a "
        "tenth of the command's).",
    ),
]
Data = Annotated[Path, Argument(metavar="DATA", help="A CSV or Parquet file of past experiments.")]
Experiment = Annotated[str, Option(help="Column with the experiment.")]
Arm = Annotated[str, Option(help="Column with the arm.")]
Pulls = Annotated[str, Option(help="Counts: column with the pulls.")]
Successes = Annotated[str, Option(help="Counts: column with the successes.")]
Reward = Annotated[str, Option(help="Outcomes, one row per pull: column with the rewards.")]
DropBad = Annotated[bool, Option("--drop-bad", help="Drop invalid rows (default: error).")]
AddUp = Annotated[
    bool, Option("--sum", help="Add up rows of the same experiment and arm, such as daily counts.")
]
Json = Annotated[bool, Option("--json", help="Print one JSON object instead of a table.")]


def load_problem(
    name: str,
    arms: int | None,
    horizon: int | None,
    noise: str | None = None,
    afterwards: int | None = None,
) -> "Problem":
    from gradband import problems

    given = {"noise": noise, "afterwards": afterwards}
    changes = {key: value for key, value in given.items() if value is not None}
    return problems.load(name, arms, horizon).replace(**changes)


def parse_policy(text: str, problem: "Problem") -> "Policy":
    """The policy for `name`, `name:setting=value+…`, or a class in a file: `my_policies.py:Tempered`."""
    from gradband.policies import as_policy, given

    return as_policy(given.from_command_line(text)) if ".py:" in text else given.parse_policy(text, problem)


def usual_name(problem: "Problem") -> str:
    """The policy that is learned if none is named: SoftElim, with contexts that on linear beliefs."""
    if not problem.prior.contextual:
        return "softelim"
    return "co-softelim" if problem.prior.shares_context else "lin-softelim"


def parse_range(text: str) -> list[float]:
    """The numbers of `low:high:count`, or a single number."""
    import numpy as np

    try:
        first, last, number = text.split(":") if ":" in text else (text, text, "1")
        low, high, count = float(first), float(last), int(number)
    except ValueError:
        raise InputError(f"theta must be low:high:count, not {text!r}") from None
    if count < 1 or not -np.inf < low <= high < np.inf:
        raise InputError(f"theta must be low:high:count with low ≤ high and count ≥ 1, not {text!r}")
    return [float(value) for value in np.linspace(low, high, count)]


def parse_numbers(option: str, text: str) -> list[int] | None:
    """Whole numbers, separated by commas; None if there is no text."""
    try:
        return [int(word) for word in text.split(",")] if text else None
    except ValueError:
        raise InputError(f"{option} must be whole numbers, separated by commas, not {text!r}") from None


def parse_start(text: str, policy: "Policy", problem: "Problem") -> dict[str, Any] | None:
    """The parameters to start from, if a policy is given with its θ, or with `a` if that is learned."""
    if not re.search(rf"\b(theta|{policy.lead})=", text):
        return None
    from gradband.core import prng
    from gradband.policies import binding

    return binding.check(policy, problem).init(prng.root(0))
