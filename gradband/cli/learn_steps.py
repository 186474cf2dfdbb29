"""The steps of `gradband learn`, each under a progress bar: learning, comparing, writing the page."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradband.cli import shared, terminal
from gradband.core.errors import StoppedError

if TYPE_CHECKING:
    from gradband.evaluation.compare_with_defaults import Situation
    from gradband.evaluation.outcome import Outcome
    from gradband.policies import Policy
    from gradband.policies.policy_file import Learned
    from gradband.problems import Problem


def train(
    start: "Policy | str", task: "Problem", settings: dict[str, Any], what: str = "learning"
) -> "Learned":
    """Learns a policy, or `auto`, under a progress bar. If it is interrupted, it says how to resume."""
    import gradband as gb
    from gradband.core.files import before
    from gradband.engine import processes
    from gradband.learning import interruption
    from gradband.learning.learn import show_steps

    file = settings["checkpoint"]
    there = file is None or any(map(os.path.lexists, (file, before(file))))
    if isinstance(start, str) and file is not None:
        there = any(file.parent.glob(f"{file.stem}-*"))
    by_gradients = isinstance(start, str) or start.trainer == "gradband"
    if settings["resume"] and by_gradients and processes.first() and not there:
        print(f"gradband: no checkpoint in {file.parent}: starting from scratch", file=sys.stderr)

    try:
        with terminal.progress(what) as update:
            return gb.learn(start, task, **settings, progress=show_steps(update))
    except interruption.Interrupted as stopped:
        again = "the same command with --resume resumes from there"
        raise StoppedError(f"{stopped} ({again})", 128 + stopped.number) from None


def train_unguarded(
    start: "Policy", learned: "Learned", task: "Problem", settings: dict[str, Any]
) -> "Learned | None":
    """The policy learned without the problem's guardrails, which shows their price, if that is quick."""
    from gradband.evaluation.outcome import size_of
    from gradband.gradient.estimator import FEW

    usual = not len(learned.history["regret"])  # nothing was learned
    if task.guardrails is None or usual or size_of(learned.params) > FEW:
        return None
    anew = settings | {"checkpoint": None, "resume": False}
    return train(start, task.replace(guardrails=None), anew, "learning without guardrails")


def assess(
    both: "tuple[Learned, Learned | None]",
    task: "Problem",
    fitted: tuple[dict[str, Any], Path] | None,
    compare_on: int | None,
    where: dict[str, Any],
    file: str,
) -> "tuple[Outcome, str]":
    """Compares the learned policy, which is saved in `file`, under progress bars.

    It comes with the one that was learned without guardrails, if there is one. Returns the outcome and a
    sentence about the optimum.
    """
    from gradband.evaluation import compare_with_defaults, outcome, price
    from gradband.evaluation.evaluate import TAIL
    from gradband.evaluation.standing import Standing, known_bound
    from gradband.learning import interruption

    learned, paid = both[0], None
    how = where | {"instances": compare_on or outcome.instances_to_compare_on(learned, task)}
    tail = {"quantiles": TAIL} if "objective" in learned.about["training"] else {}
    began = time.perf_counter()
    situations: list[Situation] = []
    saved = f"interrupted while comparing; the learned policy is saved in {file}"
    try:
        with interruption.at_once(f"{saved}, and the same command with --resume only compares"):
            table = shared.measure(outcome.entries_to_compare(learned, task), task, **how, **tail)
            if fitted is not None:
                with terminal.progress("gain") as update:
                    situations = compare_with_defaults.measure(
                        learned, task, *fitted, **how, progress=terminal.by_name(update)
                    )
            if task.guardrails is not None:
                with terminal.progress("price of guardrails") as update:
                    paid = price.price_of_guardrails(
                        *(learned, task, both[1]), **how, progress=terminal.by_name(update)
                    )
            optimum, note = shared.known_optimum(task)
            spent = learned.about["training"]["seconds"] + time.perf_counter() - began
            limit, words = known_bound(task, optimum, learned.about["training"].get("certify"), spent)
    except interruption.Interrupted as stopped:
        raise StoppedError(str(stopped), 128 + stopped.number) from None
    standing = Standing.of(table, optimum, bound=limit)
    return outcome.Outcome(learned, task, standing, tuple(situations), paid), f"{note}{words}"


def write_page(
    outcome: "Outcome",
    fitted: tuple[dict[str, Any], Path],
    label: str,
    file: Path,
    how: dict[str, Any],
) -> dict[str, Any]:
    """Measures under a progress bar what the page needs, and writes it. Returns the decision."""
    from gradband.core.files import write_text
    from gradband.engine import processes
    from gradband.evaluation.decision import decide
    from gradband.evaluation.past_tests import Past
    from gradband.play.reporting.decision_page import page

    if how["instances"] is None:
        del how["instances"]
    with terminal.progress("page") as update:
        past = Past.load(outcome.problem, *fitted)
        found = decide(outcome, past, **how, progress=terminal.by_name(update))
    if processes.first():
        write_text(file, page(found, label))
    return found.as_dict()
