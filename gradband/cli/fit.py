"""`gradband fit`."""

import math
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from gradband.cli import options, shared, terminal


def fit(
    data: Annotated[Path, Argument(metavar="DATA", help="A CSV or Parquet file of past experiments.")],
    experiment: Annotated[str, Option(help="Column with the experiment.")] = "experiment",
    arm: Annotated[str, Option(help="Column with the arm.")] = "arm",
    pulls: Annotated[str, Option(help="Counts: column with the pulls.")] = "pulls",
    successes: Annotated[str, Option(help="Counts: column with the successes.")] = "successes",
    reward: Annotated[str, Option(help="Outcomes, one row per pull: column with the rewards.")] = "reward",
    prior: Annotated[
        str,
        Option(help="pooled, hierarchical, varying or mixture (default: best on held-out experiments)."),
    ] = "",
    arms: Annotated[int | None, Option(help="Arms of a test (default: as in most experiments).")] = None,
    horizon: Annotated[
        int | None, Option(help="Pulls of a test (default: the median experiment's, for that many arms).")
    ] = None,
    afterwards: Annotated[
        int, Option(help="People who see the chosen arm after the test: their rewards count too.")
    ] = 0,
    pulls_per_round: Annotated[int, Option(help="Pulls decided before their results are seen.")] = 1,
    held_out: Annotated[float, Option(help="Share of the experiments to hold out.")] = 0.2,
    held_out_last: Annotated[
        bool,
        Option(
            "--held-out-last", help="Hold out the last experiments, if in order of time, not random ones."
        ),
    ] = False,
    arms_matter: Annotated[
        bool, Option("--arms-matter", help="Arms are the same in every experiment, identified by name.")
    ] = False,
    drop_bad: Annotated[bool, Option("--drop-bad", help="Drop invalid rows (default: error).")] = False,
    add_up: Annotated[
        bool, Option("--sum", help="Add up rows of the same experiment and arm, such as daily counts.")
    ] = False,
    seed: options.Seed = 0,
    out: Annotated[Path | None, Option(help="Folder for files (default: runs/DATA-fit).")] = None,
    json: options.Json = False,
) -> None:
    """Fit priors to past experiments, and write a problem for `gradband learn`.

    A row is an arm of an experiment with its pulls and successes, or, if there is
    a column of rewards, a single pull. CSV files may be separated by commas,
    semicolons or tabs, and compressed with gzip. Priors are compared by their
    likelihood on held-out experiments.

    Examples:

      gradband fit tests.csv

      gradband fit log.parquet --experiment test_id --arm variant --reward clicked

      gradband fit tests.csv --arms 4 --horizon 20000 --pulls-per-round 200

      gradband fit tests.csv --horizon 5000 --afterwards 100000

      gradband fit daily.csv.gz --sum --held-out-last
    """
    from gradband.problems import fitted
    from gradband.problems import past_experiments as past

    fitted.check_prior(prior, arms_matter)
    test = fitted.Design(arms, horizon, pulls_per_round, afterwards)
    columns = past.Columns(experiment, arm, pulls, successes, reward)
    everything = past.read(data, columns, arms_matter, drop_bad, add_up)
    parts = everything.split(held_out, seed, held_out_last)
    test = test.like(everything)
    folder = shared.make_folder(out or Path("runs") / shared.file_name(f"{data.stem}-fit"))
    with terminal.progress("fitting") as update:
        found = fitted.fit_problem(*parts, test, prior, tuple(everything.notes), update)
    files = found.save(folder, data.stem) | {"result": str(folder / "result.json")}
    result = {**found.as_dict(), "seed": seed, "file": files["problem"], "files": files}
    title = f"{data.name}: {len(found.experiments)} experiments fitted, {len(found.held_out)} held out"
    terminal.emit(result, json, lambda: show(title, result), files["result"])


def show(title: str, result: dict[str, Any]) -> None:
    """Prints the fitted priors, and the next command."""
    rows = []
    for row in result["priors"]:
        numbers = ", ".join(f"{name} {value['mean']:.4g}" for name, value in row["numbers"].items())
        below = f"{row['below']:.3f}" if row["below"] else ""
        se = f"{row['below_se']:.3f}" if row["below"] and math.isfinite(row["below_se"]) else ""
        rows.append([row["name"], numbers, f"{row['log_likelihood']:.3f}", below, se])
    notes = [
        *result["notes"],
        f"Chosen: {result['prior']['name']}, for {result['arms']} arms and {result['horizon']} pulls. "
        "Log-likelihoods are means over held-out experiments.",
        f"Files: {', '.join(result['files'].values())}",
        f"Next: gradband learn {result['file']}",
    ]
    columns = ["prior", "what it says", "log-likelihood", "below the best", "± se"]
    terminal.print_table(title, columns, rows, "\n".join(notes), texts=2)
