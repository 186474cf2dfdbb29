"""Reports on journals, the command `gradband report`, and the page in a real browser."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_page import answer, needs_browser, requests, without_policy

import gradband as gb
from gradband.cli.main import main
from gradband.play.player import Player
from gradband.play.reporting.journals import read_journal
from gradband.play.reporting.ledger import Ledger

LABELS = ["Control", "Big <b>headline</b> & more", "green"]


def play(path, count=400, seed=1, record=None, **settings):
    """Plays SoftElim on a clock of its own; with a wait, only ones are reported, and late."""
    now, rng, due = [1.7e9], np.random.default_rng(seed), []
    policy = gb.policies.SoftElim(theta=0.5).bind(3, 100_000)
    with Player(policy, seed=seed, journal=path, clock=lambda: now[0], **settings) as player:
        player.record = record
        for _ in range(count):
            now[0] += 60.0
            while due and due[0][0] <= now[0]:
                player.update(due.pop(0)[1], 1)
            decision = player.select()
            if rng.random() < (0.1, 0.2, 0.4)[decision]:
                due.append((now[0] + rng.exponential(600), decision))
                due.sort(key=lambda entry: entry[0])
            elif "wait" not in settings:
                player.update(decision, 0)
    return now[0]


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """A journal in several files."""
    path = tmp_path_factory.mktemp("journal") / "test.jsonl"
    play(path, 900, arms=LABELS, floor=0.05, wait="2h", compact_every=300)
    assert len(list(path.parent.iterdir())) > 3
    return path


def run(*words):
    """The command, in this process: its exit code, and what it writes."""
    out, err = io.StringIO(), io.StringIO()
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with pytest.MonkeyPatch.context() as patch, streams[0], streams[1]:
        patch.setattr(sys, "argv", ["gradband", "report", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    return subprocess.CompletedProcess(words, ended.value.code, out.getvalue(), err.getvalue())


def copy(journal, folder):
    for file in journal.parent.iterdir():
        shutil.copy(file, folder / file.name)
    return folder / journal.name


def test_a_journal_in_several_files_is_one_test(journal, tmp_path):
    whole = tmp_path / "whole.jsonl"
    events = []
    play(whole, 900, record=events.append, arms=LABELS, floor=0.05, wait="2h", compact_every=None)
    want = read_journal(whole).report().as_dict()
    assert read_journal(journal).report().as_dict() == want
    assert gb.report(journal).as_dict() == gb.report(str(whole)).as_dict() == want
    assert want["wait"] == 7200
    assert [arm["label"] for arm in want["arms"]] == LABELS
    folded = gb.report(events, labels=LABELS, wait=7200.0)
    assert folded.as_dict() == want
    assert want["allocation"]["p_value"] > 0.01


def test_a_journal_is_read_while_its_player_writes(tmp_path):
    path = tmp_path / "test.jsonl"
    with Player(gb.policies.SoftElim().bind(3, 1000), seed=0, journal=path) as player:
        player.update(player.select(), 1)
        assert read_journal(path).report().counted == 1
        player.select()
        assert read_journal(path).report().waiting == 1
    with path.open("ab") as file:
        file.write(b'{"op":"update","id":"#2"')
    assert read_journal(path).report().waiting == 1


def test_a_report_begins_in_the_middle_if_old_files_are_gone(journal, tmp_path):
    path = copy(journal, tmp_path)
    (tmp_path / "test.jsonl.000001").unlink()
    ledger = read_journal(path)
    report = ledger.report()
    assert ledger.before == 300
    assert any("oldest files are gone: 300 events" in note for note in report.notes)
    assert 0 < report.counted < read_journal(journal).report().counted
    assert not any("version 1" in note for note in report.notes)  # what was open then is left out
    assert [arm.label for arm in report.arms] == LABELS


def test_a_missing_file_in_between_is_an_error(journal, tmp_path):
    path = copy(journal, tmp_path)
    (tmp_path / "test.jsonl.000002").unlink()
    with pytest.raises(gb.InputError, match="cannot follow the file number 1"):
        read_journal(path)


def damaged_line(data):
    lines = data.split(b"\n")
    lines[5] = lines[5].replace(b'"op"', b'"oq"')
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (damaged_line, "line 6: this line is damaged"),
        (lambda data: b"", "is empty"),
        (lambda data: b"no journal\n" + data, "line 1: this line is damaged, or does not belong"),
        (lambda data: b"no journal", "line 1: this is not a gradband journal"),
        (
            lambda data: b"\n".join([data.split(b"\n")[0], *data.split(b"\n")[2:]]),
            "line 2: this line is damaged",
        ),
    ],
)
def test_damage_is_refused(journal, tmp_path, change, told):
    path = copy(journal, tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(gb.InputError, match=told):
        read_journal(path)
    ran = run(path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.fullmatch(r"gradband: .*\n", ran.stderr)


def test_an_older_file_must_be_complete(journal, tmp_path):
    path = copy(journal, tmp_path)
    old = tmp_path / "test.jsonl.000001"
    old.write_bytes(old.read_bytes()[:-9])
    with pytest.raises(gb.InputError, match=r"000001, line \d+: this line is incomplete"):
        read_journal(path)


def test_a_journal_of_version_1(tmp_path):
    from gradband.play import journal_lines as lines

    header = {"format": "gradband-journal", "version": 1, "policy": "ts", "fingerprint": "0", "seed": 1}
    events = [header]
    for i in range(30):
        events.append({"op": "select", "id": f"#{i}", "arm": i % 3, "p": 1 / 3, "drawn": i})
        events.append({"op": "update", "id": f"#{i}", "reward": i % 2, "heard": i % 2, "drawn": i})
    path = tmp_path / "old.jsonl"
    path.write_bytes(lines.join(events)[0])
    report = read_journal(path).report()
    assert [arm.pulls for arm in report.arms] == [10, 10, 10]
    assert report.arms[0].estimate is None
    assert report.now is None
    assert "first decision" in report.to_html()
    added = [*events, {"op": "add", "arm": 3}]
    path.write_bytes(lines.join(added)[0])
    assert len(read_journal(path).report().arms) == 4
    path.write_bytes(lines.join([header | {"version": 3}])[0])
    with pytest.raises(gb.InputError, match="has the version 3, not 2 or 1"):
        read_journal(path)


# The command


def test_the_command_prints_a_sentence_and_a_table(journal, tmp_path):
    page, arms = tmp_path / "report.html", tmp_path / "arms.csv"
    ran = run(journal, "--html", page, "--csv", arms)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[0].startswith(("Stop: green", "Go on: green"))
    assert re.search(r"^green +\d", ran.stdout, re.MULTILINE)
    assert "gain over an equal split" in ran.stdout
    assert page.read_text(encoding="utf-8") == read_journal(journal).report().to_html()
    head, *rows = arms.read_text().splitlines()
    assert head.startswith("arm,label,active,pulls,share,naive_mean,estimate")
    assert len(rows) == 3


def test_the_command_prints_json_and_counts_by_the_clock_if_asked(journal):
    found = json.loads(run(journal, "--json").stdout)
    assert found["advice"] in ("stop", "go on")
    assert found["waiting"] > 0
    assert found == read_journal(journal).report().as_dict()
    now = json.loads(run(journal, "--json", "--now", "--confidence", "0.9").stdout)
    assert (now["waiting"], now["counted"], now["confidence"]) == (0, 900, 0.9)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere.jsonl"], "there is no journal"),
        (["."], "is not a file"),
        ([], "the following arguments are required: JOURNAL"),
        (["{journal}", "--confidence", "2"], "confidence must be"),
        (["{journal}", "--confidence", "much"], "invalid float value"),
        (["{journal}", "--colour"], "unrecognized arguments"),
    ],
)
def test_errors_are_a_sentence(journal, words, told):
    ran = run(*(word.format(journal=journal) for word in words))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_help_has_examples_and_needs_no_numpy():
    words = [sys.executable, "-m", "gradband", "report", "--help"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert "gradband report test-17.jsonl --html report.html" in ran.stdout
    code = "import sys; from gradband.cli.report import make_parser\nassert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# The page


@pytest.fixture(scope="module")
def text(journal):
    return read_journal(journal).report().to_html()


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


def many_arms():
    """A report on twelve arms, some with long names, one of them retired."""
    names = ["A very long name of a variant that nobody would want to read aloud", "x" * 80]
    ledger = Ledger(12, [*names, *(f"variant {i}" for i in range(2, 12))])
    rng = np.random.default_rng(0)
    for i in range(600):
        arm = int(rng.integers(12))
        ps = [round(1 / 12, 6)] * 12
        ledger.observe(
            {"op": "select", "id": str(i), "arm": arm, "p": 1 / 12, "ps": ps, "drawn": i, "t": 1e9 + i}
        )
        ledger.observe({"op": "update", "id": str(i), "reward": 0.0, "heard": 0, "drawn": i, "t": 1e9 + i})
    ledger.observe({"op": "retire", "arm": 4, "t": 2e9})
    return ledger.report().to_html()


@needs_browser
@pytest.mark.parametrize("many", [False, True])
def test_nothing_is_wider_than_the_screen(text, many, tmp_path):
    text = many_arms() if many else text
    frame = without_policy(text).replace("&", "&amp;").replace('"', "&quot;")
    widths = [360, 768, 1280]
    screens = "".join(f'<iframe width="{w}" height="800" srcdoc="{frame}"></iframe>' for w in widths)
    script = """addEventListener("load", () => {
        const inner = [...document.querySelectorAll("iframe")].map(f => f.contentDocument.documentElement);
        document.getElementById("answer").textContent = JSON.stringify(inner.map(page =>
            [page.scrollWidth, page.clientWidth, page.querySelectorAll("svg[role=img]").length])) })"""
    found = answer(tmp_path, f"<!DOCTYPE html><body>{screens}</body>", script)
    for width, (wide, screen, pictures) in zip(widths, found, strict=True):
        assert 0 < screen <= width
        assert wide <= screen
        assert pictures == (13 if many else 4)


@needs_browser
def test_no_request_leaves_the_page(text, tmp_path):
    assert requests(tmp_path, without_policy(text)) == []


def test_the_page_names_no_other_host_and_escapes_labels(text):
    assert "default-src 'none'" in text
    assert not re.findall(r"(?:https?:)?//[\w.-]+", text)
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="', text)
    assert "<b>headline" not in text
    assert "Big &lt;b&gt;headline&lt;/b&gt; &amp; more" in text
    told = re.findall(r'<svg [^>]*role="img"[^>]*aria-label="([^"]+)"', text)
    assert len(told) == 4
    assert "NaN" not in text
    assert "nan" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
