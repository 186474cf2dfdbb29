"""The report in a real browser: headless Chromium, and axe for accessibility.

Skipped where there is no Chromium; `.ci/run` installs it.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gradband.paper import experiment_files, page, reproduction

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=20000",
]

needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: install chromium")


def value(place):
    """A number for a place where a result has one."""
    return 1.0 + place % 7 / 3


def made_up(unit, place):
    """A result as a unit of work would give it."""
    if unit["do"] == "learn":
        points = [[x, value(place) + 5 / (1 + x), 0.1] for x in range(0, 101, 10)]
        return {"points": points, "regret": value(place), "se": 0.1, "sd": 5.0, "seconds": 1.0}
    gradient = {"gradient": value(place) - 2, "spread": 10 * value(place), "doubt": 0.1}
    return {"regret": value(place), "se": 0.1, "sd": 5.0, "seconds": 1.0, **gradient}


@pytest.fixture(scope="module")
def text():
    """A report of all the paper's panels, with numbers that are made up."""
    found = experiment_files.wanted(["all"], "quick")
    results = {
        panel.name: {
            label: made_up(unit, place) for place, (label, unit) in enumerate(panel.units().items())
        }
        for experiment in found
        for panel in experiment.panels
    }
    everything = reproduction.Reproduction("quick", found, results)
    return page.page(everything, {"gradband": "<0>"}, "gradband reproduce")


def without_policy(text):
    """The page without its content security policy, so that a test's script may run in it."""
    changed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert changed != text
    return changed


def run(tmp_path, text):
    """The document as it is after its scripts have run."""
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(tmp_path, text, script):
    """What a script, run after the page has loaded, puts into `answer`."""
    body = f"<pre id=answer></pre><script>{script}</script>"
    shown = run(tmp_path, text.replace("</body>", f"{body}</body>"))
    return json.loads(re.search(r"<pre id=\"answer\">(.*?)</pre>", shown, re.DOTALL)[1])


@needs_browser
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_serious_fault_of_accessibility(text, colours, tmp_path):
    import axe_core_python

    if colours == "dark":
        text = text.replace("@media (prefers-color-scheme: dark)", "@media all")
    axe = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    found = answer(
        tmp_path,
        without_policy(text),
        axe
        + """
        ;axe.run().then(found => { document.getElementById("answer").textContent = JSON.stringify({
            passed: found.passes.length,
            faults: found.violations.map(v => [v.impact, v.id, v.nodes.length, v.nodes[0].html.slice(0, 80)
              .replaceAll("<", "(")])}) })""",
    )
    assert found["passed"] > 15
    assert found["faults"] == []


@needs_browser
def test_nothing_is_wider_than_the_screen(text, tmp_path):
    frame = without_policy(text).replace("&", "&amp;").replace('"', "&quot;")
    widths = [360, 768, 1280]
    screens = "".join(f'<iframe width="{w}" height="800" srcdoc="{frame}"></iframe>' for w in widths)
    script = """addEventListener("load", () => {
        const inner = [...document.querySelectorAll("iframe")].map(f => f.contentDocument.documentElement);
        document.getElementById("answer").textContent = JSON.stringify(inner.map(page =>
            [page.scrollWidth, page.clientWidth, page.querySelectorAll("svg").length])) })"""
    found = answer(tmp_path, f"<!DOCTYPE html><body>{screens}</body>", script)
    for width, (wide, screen, pictures) in zip(widths, found, strict=True):
        assert 0 < screen <= width
        assert wide <= screen
        assert pictures == 9


def requests(tmp_path, text):
    """All addresses that a page asks for."""
    script = """addEventListener("load", () => { document.getElementById("answer").textContent =
        JSON.stringify(performance.getEntriesByType("resource").map(entry => entry.name)) })"""
    return answer(tmp_path, text, script)


@needs_browser
def test_no_request_leaves_the_page(text, tmp_path):
    free = without_policy(text)
    assert requests(tmp_path, free) == []
    other = "http://127.0.0.1:9/other.png"
    picture = f'<img alt="" src="{other}"></main>'
    assert requests(tmp_path, free.replace("</main>", picture)) == [other], "a request would be seen"


def test_the_page_names_no_other(text):
    assert "default-src 'none'" in text
    elsewhere = re.findall(r"(?:https?:)?//[\w.-]+", text)
    names = {"http://www.w3.org"}  # the namespaces of SVG, which nobody asks for
    assert set(elsewhere) <= names
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?!#)', re.sub(r'xlink:href="#', 'href="#', text))


def test_every_picture_is_told_in_words_and_text_is_escaped(text):
    pictures = re.findall(r'<svg role="img" aria-label="([^"]+)"', text)
    assert len(pictures) == 9
    assert all("regret" in words or "gradient" in words for words in pictures)
    assert "&lt;0&gt;" in text
