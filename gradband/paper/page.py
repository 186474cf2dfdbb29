"""The report of a reproduction: one self-contained HTML page."""

import html
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

from gradband.paper import plots
from gradband.paper import rows as rows_of
from gradband.paper.curves import Learning
from gradband.paper.findings import Finding
from gradband.paper.panels import Panel, Table, title
from gradband.paper.reproduction import Reproduction
from gradband.paper.rows import Row
from gradband.paper.unit import command

WORDS = ("remark", "value")  # columns of text
CLASSES = {rows_of.AGREES: "good", rows_of.DISAGREES: "bad"}
PROFILES = {
    "paper": "This is the paper profile: the paper's own numbers of runs, iterations and instances.",
    "quick": "This is the <strong>quick profile</strong>: fewer runs than the paper, and in Figures 2c and "
    "3 smaller batches or fewer iterations, so that policies learned there are not at their best. Each "
    "panel lists its settings; <code>--profile paper</code> has the paper's.",
}


def page(found: Reproduction, about: dict[str, str], redo: str) -> str:
    """The page as text. `about` says how it was made, `redo` is the command that makes it again."""
    here, rows = Path(__file__).parent, found.rows
    titles = {"rows": "Number by number"} if rows else {}
    titles |= {experiment.name: experiment.title.partition(":")[0] for experiment in found.experiments}
    titles |= {"made": "How it was made"}
    links = (f'<li><a href="#{_text(name)}">{_text(words)}</a></li>' for name, words in titles.items())
    body = (_row(name, f'<td class="words">{_text(value)}</td>') for name, value in about.items())
    return Template((here / "page.html").read_text(encoding="utf-8")).substitute(
        style=(here / "page.css").read_text(encoding="utf-8"),
        profile=PROFILES[found.profile],
        links="".join(links),
        rows=_rows(rows) if rows else "",
        sections="".join(_section(found, experiment) for experiment in found.experiments),
        redo=_text(redo),
        about=_table("Versions, seeds and machine", ["what", "value"], "".join(body)),
    )


def _text(given: object) -> str:
    return html.escape(str(given))


def _row(name: str, cells: str) -> str:
    return f'<tr><th scope="row">{_text(name)}</th>{cells}</tr>'


def _rows(rows: list[Row]) -> str:
    """All rows beside the paper, and how many of them agree."""
    numbers = [row.verdict for row in rows if row.z is not None]
    words = [row.verdict for row in rows if row.z is None and row.verdict]
    body = "".join(
        f'<tr><th scope="row" class="words">{_text(row.what)}</th><td class="says">{_text(row.says)}</td>'
        f"<td>{_minus(f'{row.ours:.2f}')} ± {row.se:.2f}</td>"
        f"<td>{'–' if row.z is None else _minus(f'{row.z:+.1f}')}</td>"
        f'<td><span class="{CLASSES.get(row.verdict, "")}">{_text(row.verdict or "–")}</span></td>'
        f'<td class="words remark">{_text(row.remark)}<details><summary>redo<span class="unseen"> '
        f"{_text(row.what)}</span></summary><code>{_text(row.redo)}</code></details></td></tr>"
        for row in rows
    )
    summary = ""
    if numbers:
        agree = numbers.count(rows_of.AGREES)
        summary += f"{agree} of {len(numbers)} numbers agree within {rows_of.FAR:g} standard errors. "
    if words:
        hold, fail, left = map(words.count, (rows_of.AGREES, rows_of.DISAGREES, rows_of.OPEN))
        summary += f"Of {len(words)} statements, {hold} hold, {fail} do not, and {left} are undecided. "
    columns = ["what", "paper", "ours", "z", "verdict", "remark"]
    return f"""<section id="rows"><h2>Number by number</h2>
<p>{summary}z is the difference in combined standard errors. If the paper gives words instead of a number,
its column has the words, and the remark says which range they are read as: an order of magnitude is a
factor of ten, &quot;orders&quot; are at least two of them (nearer to 100 than to 10), comparable is less
than half of one, close is within a tenth. Our number is tested against that range at the 5 % level.</p>
{_table("The paper's numbers and ours", columns, body)}</section>"""


def _minus(number: str) -> str:
    return number.replace("-", "−")


def _table(caption: str, columns: Iterable[str], body: str, of: str = "") -> str:
    """A table that scrolls if it is too wide."""
    heads = "".join(
        f'<th scope="col"{" class=words" if column in WORDS else ""}>{_text(column)}</th>'
        for column in columns
    )
    label = f"{caption}: {of}" if of else caption
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{_text(label)}"><table>'
        f"<caption>{_text(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _section(found: Reproduction, experiment: Any) -> str:
    pictures = "".join(_picture(panel, found) for panel in experiment.panels if plots.drawable(panel))
    grid = f'<div class="panels">{pictures}</div>' if pictures else ""
    others = "".join(_other(panel, found) for panel in experiment.panels if not plots.drawable(panel))
    return (
        f'<section id="{_text(experiment.name)}"><h2>{_text(experiment.title)}</h2>'
        f"<p>{_text(experiment.caption)}</p>{grid}{others}</section>"
    )


def _picture(panel: Panel, found: Reproduction) -> str:
    results = found.results[panel.name]
    words = plots.describe(panel, results)
    drawn = plots.svg(panel, results).replace("<svg ", f'<svg role="img" aria-label="{_text(words)}" ', 1)
    count = panel.stopped(results) if isinstance(panel, Learning) else 0
    stopped = f" {count} runs stopped early because a number was not finite." if count else ""
    return (
        f'<figure id="{_text(panel.name)}">{drawn}<figcaption>{_text(panel.title)}. '
        f"{_text(panel.settings())}{stopped}{_redo(panel, found)}</figcaption></figure>"
    )


def _redo(panel: Panel, found: Reproduction) -> str:
    units = panel.units()
    seconds = sum(found.results[panel.name][label]["seconds"] for label in units)
    lines = "\n".join(dict.fromkeys(command(unit) for unit in units.values()))
    return (
        f"<details><summary>redo {_text(panel.name)}</summary><p>{seconds / 60:.1f} core-minutes in all: "
        f"<code>gradband reproduce {_text(panel.name)} --profile {found.profile}</code>; one by one:</p>"
        f'<pre tabindex="0"><code>{_text(lines)}</code></pre></details>'
    )


def _other(panel: Panel, found: Reproduction) -> str:
    results, redo = found.results[panel.name], _redo(panel, found)
    if isinstance(panel, Table):
        body = ""
        for policy in panel.policies:
            cells = ""
            for problem, printed in panel.printed.items():
                row = results[f"{policy} on {problem}"]
                paper = f"{printed[policy][0]:.2f} ± {printed[policy][1]:.2f}" if policy in printed else "×"
                cells += f"<td>{paper}</td><td>{row['regret']:.2f} ± {row['se']:.2f}</td>"
            body += _row(title(policy), cells)
        columns = [f"{problem}, {whose}" for problem in panel.printed for whose in ("paper", "ours")]
        table = _table("Bayes regret", ["policy", *columns], body)
        return f"{table}<p>{_text(panel.settings())}</p>{redo}"
    assert isinstance(panel, Finding)
    words, columns, rows = panel.evidence(results)
    body = "".join(
        _row(row[0], "".join(f"<td>{_minus(_text(cell))}</td>" for cell in row[1:])) for row in rows
    )
    return (
        f'<article id="{_text(panel.name)}"><h3>{_text(panel.title)}</h3><p>{_text(words)}</p>'
        f"{_table('Evidence', columns, body, of=panel.title)}{redo}</article>"
    )
