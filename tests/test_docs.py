"""What the documentation shows runs."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names = {"__name__": page.stem}
    monkeypatch.setitem(sys.modules, page.stem, type(sys)(page.stem))
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_problem_files_in_the_docs_are_problems(tmp_path):
    from gradband import problems

    for i, block in enumerate(
        re.findall(r"```toml\n(.*?)```", (ROOT / "docs/problems.md").read_text(), re.DOTALL)
    ):
        file = tmp_path / f"{i}.toml"
        file.write_text(block)
        assert problems.load(str(file)).arms == 2
