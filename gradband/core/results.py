"""How results are shown and exported: text tables, HTML for notebooks, data frames."""

import dataclasses
from typing import Any

from gradband.core.errors import unknown
from gradband.core.extras import MissingExtraError, needs

LIBRARIES = ("polars", "pandas", "pyarrow")
# Colours are inherited, so that a table can be read on light and on dark pages.
LINE = "1px solid color-mix(in srgb, currentColor 25%, transparent)"
TABLE = "border-collapse:collapse;border:none;margin:.5em 0"
CAPTION = "text-align:left;font-weight:bold;color:inherit;caption-side:top"
TEXT = "text-align:left"
NUMBER = "text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
CELL = f"padding:.2em .6em;border-bottom:{LINE};background:none;color:inherit"


@dataclasses.dataclass(frozen=True)
class TextTable:
    """A text table with a title and notes. The first `texts` columns hold text, the others numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: str = ""
    texts: int = 1

    def as_html(self) -> str:
        """The table as HTML, with everything escaped."""
        rows = "".join(self._row("td", row) for row in self.rows)
        body = f"<thead>{self._row('th', self.columns)}</thead><tbody>{rows}</tbody>"
        title = f'<caption style="{CAPTION}">{_text(self.title)}</caption>' if self.title else ""
        notes = f'<p style="max-width:60em">{_text(self.notes)}</p>' if self.notes else ""
        return f'<table style="{TABLE}">{title}{body}</table>{notes}'

    def _row(self, tag: str, texts: list[str]) -> str:
        sides = [TEXT if i < self.texts else NUMBER for i in range(len(texts))]
        cells = zip(sides, texts, strict=True)
        written = [f'<{tag} style="{CELL};{side}">{_text(text)}</{tag}>' for side, text in cells]
        return f"<tr>{''.join(written)}</tr>"


class Result:
    """The base class of results. Subclasses define `tables`, `records` and `as_dict`."""

    def tables(self) -> list[TextTable]:
        """The tables that show it."""
        raise NotImplementedError

    def records(self) -> list[dict[str, Any]]:
        """The rows of its data frame."""
        raise NotImplementedError

    def to_frame(self, library: str = "polars") -> Any:
        """The result as a data frame.

        Args:
            library: "polars" (the default, which the extra `data` installs), "pandas" or "pyarrow".
        """
        return as_frame(self.records(), library)

    def _repr_html_(self) -> str:
        return as_html(self.tables())


def as_html(tables: list[TextTable]) -> str:
    """Tables below each other, for a notebook."""
    return f"<div>{''.join(table.as_html() for table in tables)}</div>"


def as_frame(records: list[dict[str, Any]], library: str = "polars") -> Any:
    """Rows as a data frame of a library."""
    if library not in LIBRARIES:
        raise unknown("library", library, LIBRARIES)
    try:
        if library == "pandas":
            import pandas

            return pandas.DataFrame(records)
        if library == "pyarrow":
            import pyarrow

            return pyarrow.Table.from_pylist(records)
        import polars

        return polars.DataFrame(records, infer_schema_length=None)
    except ImportError:
        if library == "polars":
            raise needs("a data frame", "data") from None
        raise MissingExtraError(f"this data frame needs {library}: pip install {library}") from None


def _text(text: str) -> str:
    import html  # here: a player, which shows no pages, starts sooner

    return html.escape(text).replace("\n", "<br>")
