"""What the documentation shows runs."""

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


LONG = ("certificates.md", "guide.md", "problems.md", "revenue.md", "tutorial.md")


def of_its_length(page):
    """The lines of some pages compute a lot, those of the others little."""
    return pytest.param(
        page, id=page.name, marks=pytest.mark.slow if page.name in LONG else pytest.mark.brief
    )


@pytest.mark.parametrize("page", [*map(of_its_length, PAGES)])
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    blocks = re.findall(r"```(python|sh|text)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names, printed = {"__name__": page.stem}, ""
    if page.name == "README.md":
        past_tests(Path("past.csv"))
    monkeypatch.setitem(sys.modules, page.stem, type(sys)(page.stem))
    for language, block in blocks:
        if language == "text":
            assert_printed(block, printed)
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as told:
                exec(compile(block, str(page), "exec"), names)
            printed += told.getvalue()
        else:
            done = subprocess.run(["bash", "-ec", block], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert '"error"' not in done.stdout
            printed += done.stdout
    if page.name == "tutorial.md":
        result = json.loads(Path("learned/result.json").read_text())
        held = next(entry for entry in result["gain"] if entry["situation"] == "held-out experiments")
        over = {row["name"]: row["gain"] for row in held["policies"] if row["name"] != "learned"}
        assert {"uniform", "split:share=0.25", "split", "ucb1", "ts"} < set(over)
        assert len(over) == 9
        for name in ("uniform", "split", "ucb1", "ts"):
            assert over[name]["mean"] > 3 * over[name]["se"]
        assert all(check["holds"] for check in held["check"])
        gain, se = names["clicks"] - names["split"], names["clicks"] ** 0.5
        assert 5 * se < gain < names["best"] - names["split"]


def past_tests(path):
    """Writes 60 small tests of three arms and 40 pulls, a size whose programs other tests need too."""
    rng, pulls = np.random.default_rng(0), (13, 13, 14)
    wins = rng.binomial(pulls, rng.beta(20, 80, (60, 3)))
    rows = [f"{test},{arm},{pulls[arm]},{wins[test, arm]}" for test in range(60) for arm in range(3)]
    path.write_text("\n".join(["experiment,arm,pulls,successes", *rows]) + "\n")


def assert_printed(shown, printed):
    """What a page shows is part of what it printed so far, up to rounding, which differs by machine."""
    (words, values), (all_words, all_values) = _split(shown), _split(printed)
    places = [i for i in range(len(all_words)) if all_words[i : i + len(words)] == words]
    assert places, f"not printed: {shown}\nbut: {printed}"
    starts = [sum(word.count("#") for word in all_words[:place]) for place in places]
    found = [all_values[start : start + len(values)] for start in starts]
    assert any(values == pytest.approx(each, rel=0.1, abs=0.1) for each in found), (values, found)


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_lines_end_at_100_columns(page):
    """Except in tables, which cannot be wrapped."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    long = [line for line in text.splitlines() if len(line) > 100 and not line.startswith(("|", "    "))]
    assert long == []


def test_problem_files_in_the_docs_are_problems(tmp_path):
    from gradband import problems

    for i, block in enumerate(
        re.findall(r"```toml\n(.*?)```", (ROOT / "docs/problems.md").read_text(), re.DOTALL)
    ):
        file = tmp_path / f"{i}.toml"
        file.write_text(block)
        assert problems.load(str(file)).arms == 2


def test_the_recipe_in_the_docs_is_one_with_every_key(tmp_path):
    from gradband.learning import recipe_file
    from gradband.policies import SoftElim

    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/recipes.md").read_text(), re.DOTALL)
    file = tmp_path / "mine.toml"
    file.write_text(block)
    assert recipe_file.load_recipe(file, SoftElim().bind(2, 200)).iterations == 200
    assert all(re.search(rf"^\[?{key}\b", block, re.MULTILINE) for key in recipe_file.KEYS)


@pytest.mark.brief
def test_the_readme_shows_what_the_first_command_prints(tmp_path):
    """Up to rounding, which differs between machines."""
    shown = re.search(
        r"    two-point: 2 arms.*?The optimum has[^\n]*", (ROOT / "README.md").read_text(), re.S
    )
    command = [sys.executable, "-m", "gradband", "learn"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    printed = re.sub(
        r"Learned theta.*(?=The optimum has)", "", printed[: printed.index("Files:")], flags=re.S
    )
    texts, values = zip(*(_split(text) for text in (shown[0], printed)), strict=True)
    assert texts[0] == texts[1]
    for mine, theirs in zip(*values, strict=True):
        assert mine == pytest.approx(theirs, abs=1 if mine.is_integer() else 0.02)


def _split(text):
    """The words of a text, and the numbers in it."""
    number = r"-?\d+(?:\.\d+)?"
    return re.sub(number, "#", text).split(), [float(value) for value in re.findall(number, text)]


def test_the_citation_is_valid_and_of_this_version():
    import gradband

    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.citation-file-format"]
    told = subprocess.run([*command, "CITATION.cff"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {gradband.__version__}\n" in text
    assert "Differentiable Bandit Exploration" in text


def test_the_draft_cites_what_its_bibliography_has():
    keys = re.findall(
        r"^@\w+\{(\w+),$", (ROOT / "docs/paper.bib").read_text(encoding="utf-8"), re.MULTILINE
    )
    cited = re.findall(r"@(\w+)", (ROOT / "docs/paper.md").read_text(encoding="utf-8"))
    assert set(cited) == set(keys)


@pytest.mark.brief
@pytest.mark.parametrize("name", ["first_picture", "contexts_picture"])
def test_pictures_show_the_numbers_that_the_docs_keep(name, monkeypatch):
    """They are what `draw` makes of them."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module(name)
    assert script.draw(script.read(script.NUMBERS)) == script.PICTURE.read_text(encoding="utf-8")
