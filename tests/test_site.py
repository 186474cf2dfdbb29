"""The site that `make docs` builds: no warning, every public name, no other host."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {
    "gradband": "gradband",
    "policies": "gradband.policies",
    "priors": "gradband.problems.priors",
    "problems": "gradband.problems",
    "rewards": "gradband.problems.rewards",
    "exact": "gradband.exact",
}
MODULES = PAGES.keys() - {"gradband"}  # which are names of gradband too, with pages of their own


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=quiet)
    assert built.returncode == 0, built.stderr
    return folder


def public_names(module):
    """Names that a module without `__all__` defines or, as `x as x`, hands on."""
    text = Path(module.__file__).read_text(encoding="utf-8")
    found = {
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    }
    return {name for name in found if name[0] != "_"} | set(re.findall(r"import (\w+) as \1\n", text))


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_has_every_public_name(site, page):
    module = importlib.import_module(PAGES[page])
    names = set(getattr(module, "__all__", None) or public_names(module)) - MODULES
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    headings = {name.rpartition(".")[2] for name in re.findall(r'<h2 id="([^"]+)"', text)}
    assert names
    assert not names - headings


def test_every_page_is_in_the_menu(site):
    text = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        target = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert f'href="{target}"' in text, target


def test_pages_ask_no_other_host_for_anything(site):
    loads = r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"'> ]+)"
    for page in site.rglob("*.html"):
        assert re.findall(loads, page.read_text(encoding="utf-8")) == [], page
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert re.findall(r"url\([\"']?(?:https?:)?//|@import", text) == [], sheet
