"""Options of earlier versions: renamed ones still work, moved ones raise an error that says where to."""

import warnings

from gradband.core.errors import InputError

RENAMED = {
    "fit": {"--batch": "--pulls-per-round"},
    "gradient": {"--runs": "--rollouts"},
    "learn": {"--distributed": "--coordinator=auto"},
}
IN_A_RECIPE = {
    "--baseline": 'estimator = { baseline = "…" }',
    "--rollouts": "estimator = { rollouts = … }",
    "--runs": "estimator = { rollouts = … }",
    "--returns": 'estimator = { returns = "…" }',
    "--optimizer": 'optimizer = { name = "…" }',
    "--learning-rate": 'optimizer = { name = "…", learning_rate = … }',
    "--decay": 'optimizer = { name = "…", decay = … }',
    "--scale": 'scale = "…"',
    "--anneal": 'temperature = "annealed"',
    "--curriculum": "curriculum = […]",
}
"""the line of a recipe file that replaces an option of `gradband learn`"""
MOVED = {
    "--batch": "--batch of learn is now --instances, and what was --instances is --compare-on",
    **dict.fromkeys(
        ("--processes", "--process-id"),
        "--processes and --process-id are one option now: --process 0/4 is the first of four processes",
    ),
    **{
        f"--{key}": f"--{key} is not an option of learn: set {key} in a problem file (docs/problems.md)"
        for key in ("noise", "afterwards")
    },
    **{
        option: f"{option} is in the recipe now: write {line} to mine.toml, and give --recipe mine.toml"
        for option, line in IN_A_RECIPE.items()
    },
}


def update_words(words: list[str]) -> list[str]:
    """The words of a command line with the current names of options, or an error that says what to do.

    >>> with warnings.catch_warnings(action="ignore"):
    ...     update_words(["fit", "past.csv", "--batch=200"])
    ['fit', 'past.csv', '--pulls-per-round=200']
    """
    command = words[0] if words else ""
    renamed, found = RENAMED.get(command, {}), []
    for word in words:
        option, equals, value = word.partition("=")
        if command == "learn" and option in MOVED:
            raise InputError(MOVED[option])
        if option in renamed:
            warnings.warn(f"{option} is now called {renamed[option]}", FutureWarning, stacklevel=1)
            option = renamed[option]
        found.append(option + equals + value)
    return found
