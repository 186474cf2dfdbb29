"""Parts of a page: escaped text, and tables that scroll on narrow screens."""

import html
import re
from collections.abc import Iterable


def text(given: object) -> str:
    """Anything as text in HTML or in an attribute. Lines do not break within a number.

    >>> text("<b> & co"), text("12 345 of them, 9.5 %")
    ('&lt;b&gt; &amp; co', '12\xa0345 of them, 9.5\xa0%')
    """
    return re.sub(r"(?<=\d) (?=\d{3}\b|%)", "\u00a0", html.escape(str(given)))


def table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table that scrolls if it is too wide; the first cell of a row names it."""
    columns = "".join(f'<th scope="col">{text(head)}</th>' for head in heads)
    body = ""
    for first, *cells in rows:
        inner = "".join(f"<td>{text(cell)}</td>" for cell in cells)
        body += f'<tr><th scope="row">{text(first)}</th>{inner}</tr>'
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{columns}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def legend(names: Iterable[str], colours: Iterable[str]) -> str:
    """The list of names below a picture, each with its colour. Names are HTML."""
    keys = "".join(
        '<li class="key"><svg class="swatch" viewBox="0 0 1 1" aria-hidden="true"><rect width="1" '
        f'height="1" fill="{colour}"/></svg>{name}</li>'
        for name, colour in zip(names, colours, strict=True)
    )
    return f'<ul class="legend soft">{keys}</ul>'
