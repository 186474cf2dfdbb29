"""`gradband fit`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradband.cli.options import Json, Seed
from gradband.cli.shared import file_name, make_folder, write_json
from gradband.core.errors import InputError, number_of_arms, unknown, whole

if TYPE_CHECKING:
    from gradband.problems.fitting import Fit


def fit(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A CSV or Parquet file of past experiments.")
    ],
    experiment: Annotated[
        str, typer.Option(help="The column that says which experiment a row belongs to.")
    ] = "experiment",
    arm: Annotated[str, typer.Option(help="The column that says which arm it was.")] = "arm",
    pulls: Annotated[str, typer.Option(help="Counts: the column of pulls.")] = "pulls",
    successes: Annotated[str, typer.Option(help="Counts: the column of successes.")] = "successes",
    reward: Annotated[
        str, typer.Option(help="Outcomes, one row per pull: the column of rewards.")
    ] = "reward",
    prior: Annotated[
        str,
        typer.Option(
            help="pooled, hierarchical, varying or mixture; by default the best on experiments held out."
        ),
    ] = "",
    arms: Annotated[int | None, typer.Option(help="Arms of a test (as most experiments had).")] = None,
    horizon: Annotated[
        int | None, typer.Option(help="Pulls of a test (as the median experiment had, for that many arms).")
    ] = None,
    afterwards: Annotated[
        int, typer.Option(help="People who see the arm that a test ends on, after it: they count too.")
    ] = 0,
    pulls_per_round: Annotated[
        int,
        typer.Option(
            "--pulls-per-round",
            "--batch",
            help="Pulls that are decided at a time, before their results are seen.",
        ),
    ] = 1,
    held_out: Annotated[float, typer.Option(help="Share of the experiments to hold out.")] = 0.2,
    held_out_last: Annotated[
        bool,
        typer.Option(
            "--held-out-last",
            help="Hold out the last experiments of the file, where they are in order of time, "
            "in place of random ones.",
        ),
    ] = False,
    arms_matter: Annotated[
        bool,
        typer.Option("--arms-matter", help="Arms are the same in every experiment, and differ by name."),
    ] = False,
    drop_bad: Annotated[
        bool, typer.Option("--drop-bad", help="Leave rows with faults out, in place of refusing them.")
    ] = False,
    add_up: Annotated[
        bool,
        typer.Option("--sum", help="Add up rows of the same experiment and arm, such as daily counts."),
    ] = False,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for files (runs/DATA-fit).")] = None,
    json: Json = False,
) -> None:
    """Fit priors to past experiments, and write a problem for `gradband learn`.

    A row is an arm of an experiment with its pulls and successes, or, if there is
    a column of rewards, a single pull. CSV files may be separated by commas,
    semicolons or tabs, and compressed with gzip. Priors are compared by how likely they make
    experiments that were held out.

    Examples:

      gradband fit tests.csv

      gradband fit log.parquet --experiment test_id --arm variant --reward clicked

      gradband fit tests.csv --arms 4 --horizon 20000 --pulls-per-round 200

      gradband fit tests.csv --horizon 5000 --afterwards 100000

      gradband fit daily.csv.gz --sum --held-out-last
    """
    from gradband.cli import terminal
    from gradband.core import files
    from gradband.problems import fitting
    from gradband.problems import past_experiments as past

    columns = past.Columns(experiment, arm, pulls, successes, reward)
    known = ("pooled", "hierarchical", "varying", "mixture")
    if prior and (prior not in known or arms_matter):
        raise (
            InputError("--prior does not apply where arms matter: each has a prior of its own")
            if arms_matter
            else unknown("prior", prior, known)
        )
    whole("pulls_per_round", pulls_per_round)
    whole("afterwards", afterwards, least=0)
    everything = past.read(data, columns, arms_matter, drop_bad, add_up)
    fitted, rest = everything.split(held_out, seed, held_out_last)
    count = usual_arms(everything, arms)
    length = (
        usual_horizon(everything, count, pulls_per_round) if horizon is None else whole("horizon", horizon)
    )
    if length % pulls_per_round:
        raise InputError(
            f"a test of {length} pulls is not made of whole batches of {pulls_per_round}: set --horizon"
        )
    folder = out or Path("runs") / file_name(f"{data.stem}-fit")
    make_folder(folder)
    with terminal.progress("fitting", 1) as update:
        found = fitting.fit(fitted, rest, count, progress=update)
    chosen = next((entry for entry in found if entry.name == (prior or found[0].name)), None)
    if chosen is None:
        raise InputError(f"{len(everything)} experiments are too few to fit a {prior} prior")
    notes = [*everything.notes, *warnings(len(everything), len(rest))]
    paths = {
        "problem": str(folder / "fitted.toml"),
        "experiments": str(folder / "experiments.safetensors"),
        "result": str(folder / "result.json"),
    }
    past.save(Path(paths["experiments"]), {"fitted": fitted, "held-out": rest})
    written = {
        "name": data.stem,
        "horizon": length,
        **({"pulls_per_round": pulls_per_round} if pulls_per_round > 1 else {}),
        **({"afterwards": afterwards} if afterwards else {}),
        "prior": chosen.prior.describe(),
        "fit": {
            "chosen": chosen.name,
            "file": "experiments.safetensors",
            "others": [entry.prior.describe() for entry in found if entry is not chosen],
        },
    }
    files.write_text(Path(paths["problem"]), files.toml(written) + "\n")
    result = {
        "experiments": len(everything),
        "held_out": len(rest),
        "arms": count,
        "horizon": length,
        "pulls_per_round": pulls_per_round,
        "afterwards": afterwards,
        "prior": chosen.prior.describe() | {"name": chosen.name},
        "priors": [in_numbers(entry, found[0]) for entry in found],
        "notes": notes,
        "seed": seed,
        "file": paths["problem"],
        "files": paths,
    }
    write_json(Path(paths["result"]), result)
    if json:
        terminal.print_json(result)
        return
    show(f"{data.name}: {len(fitted)} experiments fitted, {len(rest)} held out", result)


def show(title: str, result: dict[str, Any]) -> None:
    """The fitted priors as a table, and what to do next."""
    from gradband.cli import terminal

    terminal.print_table(
        title,
        ["prior", "what it says", "log-likelihood", "below the best", "± se"],
        [
            [
                row["name"],
                ", ".join(f"{name} {value['mean']:.4g}" for name, value in row["numbers"].items()),
                f"{row['log_likelihood']:.3f}",
                f"{row['below']:.3f}" if row["below"] else "",
                f"{row['below_se']:.3f}" if row["below"] and math.isfinite(row["below_se"]) else "",
            ]
            for row in result["priors"]
        ],
        "\n".join(
            [
                *result["notes"],
                f"Chosen: {result['prior']['name']}, for {result['arms']} arms and {result['horizon']} "
                "pulls. Log-likelihoods are means over experiments held out.",
                f"Files: {', '.join(result['files'].values())}",
                f"Next: gradband learn {result['file']}",
            ]
        ),
        texts=2,
    )


def usual_arms(found: Any, given: int | None) -> int:
    """The number of arms of a test: as given, or as most experiments had."""
    import numpy as np

    if found.labels:
        if given not in (None, len(found.labels)):
            raise InputError(f"where arms matter there are {len(found.labels)} of them, not {given}")
        return len(found.labels)
    return int(np.bincount(found.sizes).argmax()) if given is None else number_of_arms(given, 2)


def usual_horizon(found: Any, arms: int, pulls_per_round: int) -> int:
    """Pulls of a test: as many per arm as in the median experiment, in whole batches."""
    import numpy as np

    totals = np.add.reduceat(found.pulls, found.starts[:-1])
    pulls = max(2 * arms, round(float(np.median(totals / found.sizes)) * arms))
    return max(1, round(pulls / pulls_per_round)) * pulls_per_round


def warnings(experiments: int, held_out: int) -> list[str]:
    """What can't be expected of few experiments."""
    from gradband.problems.fitting import FEW
    from gradband.problems.thinning import FEWEST

    found = []
    if experiments < FEW:
        found.append(
            f"Warning: {experiments} experiments say little about the next one: only simple priors were "
            f"fitted, and roughly. It takes at least {FEW} to do better."
        )
    if held_out < FEWEST:
        found.append(
            f"Warning: with {held_out} held out, it is hardly known which prior is better, nor will it be "
            f"what a policy gains: that takes at least {FEWEST}."
        )
    return found


def in_numbers(entry: "Fit", best: "Fit") -> dict[str, Any]:
    """A fit's score, how far it is below the best one, paired by experiment, and its numbers."""
    from gradband.problems.fitting import mean_of

    below = mean_of(best.held_out - entry.held_out)
    return {
        "name": entry.name,
        "log_likelihood": entry.score.mean,
        "below": below.mean,
        "below_se": below.se,
        "numbers": {name: vars(value) for name, value in entry.numbers.items()},
    }
