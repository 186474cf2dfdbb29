"""`gradband fit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from gradband.cli import options, shared, terminal

if TYPE_CHECKING:
    from gradband.problems.fitted import FittedProblem

MORE = {
    "decided": "Outcomes: column with the time of the decision, to measure how late rewards come.",
    "rewarded": "Outcomes: column with the time at which the reward was known.",
    "mean": "Rewards of any size: column with the mean reward of an arm.",
    "variance": "Rewards of any size: column with the variance of an arm's rewards.",
    "context": "Columns with features of arms, or of visitors if arms have several rows, with commas.",
    "unit": "Unit of rewards of any size, such as € (default: reward).",
}


@options.with_texts(MORE)
def fit(
    data: options.Data,
    experiment: options.Experiment = "experiment",
    arm: options.Arm = "arm",
    pulls: options.Pulls = "pulls",
    successes: options.Successes = "successes",
    reward: options.Reward = "reward",
    prior: Annotated[
        str,
        Option(
            help="pooled, hierarchical, varying or mixture; for rewards of any size gaussian, "
            "hierarchical-gaussian, zero-inflated or varying-zero-inflated (default: best on held-out "
            "experiments)."
        ),
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
            "--held-out-last",
            help="Hold out the last experiments, not random ones (rows must be in order of time).",
        ),
    ] = False,
    arms_matter: Annotated[
        bool, Option("--arms-matter", help="Arms are the same in every experiment, identified by name.")
    ] = False,
    drop_bad: options.DropBad = False,
    add_up: options.AddUp = False,
    seed: options.Seed = 0,
    out: Annotated[Path | None, Option(help="Folder for files (default: runs/DATA-fit).")] = None,
    json: options.Json = False,
    **more: Any,
) -> None:
    """Fit priors to past experiments, and write a problem for `gradband learn`.

    A row is an arm of an experiment with its pulls and successes, or, if there is
    a column of rewards, a single pull. Rewards of any size, such as revenue,
    have one row per pull too, or one per arm with pulls, mean and variance.
    CSV files may be separated by commas, semicolons or tabs, and compressed
    with gzip. Priors are compared by their likelihood on held-out experiments.

    Examples:

      gradband fit tests.csv

      gradband fit log.parquet --experiment test_id --arm variant --reward clicked

      gradband fit tests.csv --arms 4 --horizon 20000 --pulls-per-round 200

      gradband fit tests.csv --horizon 5000 --afterwards 100000

      gradband fit daily.csv.gz --sum --held-out-last

      gradband fit log.csv --reward bought --decided shown_at --rewarded known_at

      gradband fit orders.parquet --reward revenue --unit €

      gradband fit weekly.csv --mean per_visitor --variance its_variance

      gradband fit segments.csv --context age,device
    """
    import gradband as gb

    with terminal.progress("fitting") as update:
        found = gb.fit(
            data,
            experiment=experiment,
            arm=arm,
            pulls=pulls,
            successes=successes,
            reward=reward,
            prior=prior,
            held_out=held_out,
            held_out_last=held_out_last,
            arms_matter=arms_matter,
            drop_bad=drop_bad,
            add_up=add_up,
            seed=seed,
            progress=update,
            arms=arms,
            horizon=horizon,
            pulls_per_round=pulls_per_round,
            afterwards=afterwards,
            **more,
        )
    folder = shared.make_folder(out or Path("runs") / shared.file_name(f"{data.stem}-fit"))
    files = found.save(folder) | {"result": str(folder / "result.json")}
    result = {**found.as_dict(), "seed": seed, "file": files["problem"], "files": files}
    terminal.emit(result, json, lambda: show(found, data.name, files), files["result"])


def show(found: "FittedProblem", source: str, files: dict[str, str]) -> None:
    """Prints the fitted priors, and the next command."""
    (table,) = found.tables()
    next_steps = f"Files: {', '.join(files.values())}\nNext: gradband learn {files['problem']}"
    title = f"{source}: {len(found.experiments)} experiments fitted, {len(found.held_out)} held out"
    terminal.show(table, title, f"{table.notes}\n{next_steps}")
