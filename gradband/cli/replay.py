"""`gradband replay`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from gradband.cli import options, shared, terminal

if TYPE_CHECKING:
    from gradband.evaluation.replayed import Replay


def replay(
    data: options.Data,
    policy: Annotated[str, Argument(metavar="FILE", help="A policy file, or the name of a policy.")],
    problem: Annotated[
        str,
        Option(
            metavar="fitted.toml",
            help="The fit whose prior shrinks observed rates (default: what the policy was learned on).",
        ),
    ] = "",
    fresh_only: Annotated[
        bool, Option("--fresh-only", help="Leave out experiments that the prior was fitted to.")
    ] = False,
    pulls_per_round: Annotated[
        int | None,
        Option(
            "--pulls-per-round",
            "--batch",
            help="Pulls decided before their results are seen (default: the problem's).",
        ),
    ] = None,
    per_year: Annotated[
        float | None, Option(help="Pulls (visitors) per year, to say what the gain is per year.")
    ] = None,
    date: Annotated[
        str | None, Option(help="Column with dates, from which pulls per year are derived.")
    ] = None,
    draws: Annotated[
        int | None, Option(help="Times that each experiment is played (default: 16 000 tests in all).")
    ] = None,
    experiment: options.Experiment = "experiment",
    arm: options.Arm = "arm",
    pulls: options.Pulls = "pulls",
    successes: options.Successes = "successes",
    reward: options.Reward = "reward",
    drop_bad: options.DropBad = False,
    add_up: options.AddUp = False,
    trust: options.Trust = None,
    seed: options.Seed = 0,
    out: Annotated[Path | None, Option(help="Folder for files (default: runs/DATA-replay).")] = None,
    json: options.Json = False,
) -> None:
    """Replay past experiments: what a policy would have gained, over what was done.

    Each experiment is played with its own number of arms and of pulls. The means
    of its arms are drawn from their posterior, which shrinks observed rates.
    Intervals are clustered by experiment. As a check without any model, shorter
    tests are played on each experiment's own pulls, drawn without replacement.

    Examples:

      gradband replay tests.csv runs/tests-index/policy.safetensors

      gradband replay tests.csv policy.safetensors --problem runs/tests-fit/fitted.toml --fresh-only

      gradband replay tests.csv policy.safetensors --per-year 5000000

      gradband replay daily.csv policy.safetensors --sum --date day
    """
    import gradband as gb
    from gradband.core.files import to_csv, write_text
    from gradband.policies.given import from_command_line

    began = time.perf_counter()
    played = from_command_line(policy, None, trust)
    folder = shared.make_folder(out or Path("runs") / shared.file_name(f"{data.stem}-replay"))
    reading: dict[str, Any] = {
        "experiment": experiment,
        "arm": arm,
        "pulls": pulls,
        "successes": successes,
        "reward": reward,
        "drop_bad": drop_bad,
        "add_up": add_up,
        "date": date,
        "draws": draws,
    }
    with terminal.progress("replaying") as update:
        found = gb.replay(
            data,
            played,
            problem or None,
            fresh_only=fresh_only,
            pulls_per_round=pulls_per_round,
            per_year=per_year,
            seed=seed,
            progress=update,
            **reading,
        )
    files = {"table": str(folder / "replay.csv"), "result": str(folder / "result.json")}
    write_text(Path(files["table"]), to_csv(found.records()))
    result = {**found.as_dict(), "seed": seed, "seconds": time.perf_counter() - began, "files": files}
    terminal.emit(result, json, lambda: show(found, data.name, files["table"]), files["result"])


def show(found: "Replay", name: str, file: str) -> None:
    """Prints gains in all experiments, and by their number of arms."""
    first, second = found.tables()
    terminal.show(first, f"{name}: {first.title}")
    terminal.show(second, notes=f"{second.notes}\nOne row per experiment: {file}")
