"""What the documentation shows runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    blocks = re.findall(r"```(python|sh)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names = {"__name__": page.stem}
    monkeypatch.setitem(sys.modules, page.stem, type(sys)(page.stem))
    for language, block in blocks:
        if language == "python":
            exec(compile(block, str(page), "exec"), names)
        else:
            done = subprocess.run(["bash", "-ec", block], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert '"error"' not in done.stdout
    if page.name == "tutorial.md":
        result = json.loads(Path("learned/result.json").read_text())
        held = next(entry for entry in result["gain"] if entry["situation"] == "held-out experiments")
        over = {row["name"]: row["gain"] for row in held["policies"] if row["name"] != "learned"}
        assert {"uniform", "split:share=0.25", "split", "ucb1", "ts"} < set(over)
        assert len(over) == 8
        for name in ("uniform", "split", "ucb1", "ts"):
            assert over[name]["mean"] > 3 * over[name]["se"]
        assert all(check["holds"] for check in held["check"])
        gain, se = names["clicks"] - names["split"], names["clicks"] ** 0.5
        assert 5 * se < gain < names["best"] - names["split"]


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
