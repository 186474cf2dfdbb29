"""CSV files as they occur: various separators and encodings, compressed, with thousands separators.

Only what is unambiguous is converted. Files are not trusted: nothing is unpacked beyond a limit.
"""

import csv
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradband.core import files
from gradband.core.errors import InputError

if TYPE_CHECKING:
    import polars

SIZE_LIMIT = 4 << 30  # bytes of a file that is read as it is
TEXT_LIMIT = 1 << 30  # bytes of a file that must be unpacked or converted
SNIFFED = 1 << 16  # bytes that must contain the header
GZIP = b"\x1f\x8b"
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # of Excel, new and old
COMPRESSED = (b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x28\xb5\x2f\xfd")  # zlib, zstd: Polars would unpack
SAID = re.compile(r"sep=([,;\t|])\r?\n")
SEPARATORS = ",;\t|"
BETWEEN = r"[,' \x{a0}\x{202f}]"  # thousands
GROUPED = rf"^[1-9]\d{{0,2}}(?:{BETWEEN}\d{{3}})+$"
DECIMAL = r"^-?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,})|[1-9]\d{0,2}(?:\.\d{3})+,\d+)$"  # 0,125 or 1.234,50
MISSING = ("", "nan", "na", "n/a", "null", "none", "<na>", "-")  # what programs write in empty cells


def read(path: Path, wanted: tuple[str, ...]) -> "polars.DataFrame":
    """The table in a CSV file, all columns as text; `wanted` columns help to find the separator."""
    import polars

    begin = files.read(path, SIZE_LIMIT, only=SNIFFED)
    if begin.startswith(WORKBOOKS):
        raise InputError(
            f"{path} is an Excel workbook or an archive: save the sheet as CSV, or read it with pandas"
        )
    if begin.startswith(COMPRESSED):
        raise InputError(f"{path} has an unsupported compression: unpack it, or use gzip")
    source: Path | bytes = path  # or its contents, if they must be unpacked or converted
    if begin.startswith(GZIP):
        source = unpacked(path)
        begin = source[:SNIFFED]
    if encoding := wide(begin):
        source = converted(source, encoding, path)
        begin = source[:SNIFFED]
    text = begin.decode("utf-8", errors="replace").removeprefix("\ufeff")
    how: dict[str, Any] = {"infer_schema": False, "glob": False}
    if said := SAID.match(text):  # Excel's own first line
        how |= {"separator": said[1], "skip_rows": 1}
    else:
        how |= {"separator": separator_of(text, wanted)}
    try:
        return with_plain_names(polars.read_csv(source, **how))
    except polars.exceptions.ComputeError as error:
        if "utf-8" not in str(error).lower():
            raise
    return with_plain_names(polars.read_csv(converted(source, "cp1252", path), **how))


def unpacked(path: Path) -> bytes:
    """The contents of a gzip file, unless they are too large."""
    content = files.read(path, TEXT_LIMIT)
    found, size = [], 0
    while content.startswith(GZIP):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            piece = member.decompress(content, TEXT_LIMIT - size + 1)
        except zlib.error as error:
            raise InputError(f"{path} is not a readable gzip file: {error}") from None
        size += len(piece)
        if size > TEXT_LIMIT:
            raise InputError(f"{path} unpacks to more than {TEXT_LIMIT >> 20} MiB: unpack it first")
        if not member.eof:
            raise InputError(f"{path} is not a readable gzip file: it ends too early")
        found.append(piece)
        content = member.unused_data
    return b"".join(found)


def wide(begin: bytes) -> str:
    """The kind of UTF-16 that the bytes are, by their mark or because every other byte is zero, or ""."""
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    odd, even = begin[1:64:2], begin[0:64:2]
    if len(odd) > 4 and not any(odd) and all(even):
        return "utf-16-le"
    return "utf-16-be" if len(odd) > 4 and not any(even) and all(odd) else ""


def converted(source: Path | bytes, encoding: str, path: Path) -> bytes:
    """The text in UTF-8; bytes that Windows' cp1252 does not define are read as Latin-1."""
    content = files.read(source, TEXT_LIMIT) if isinstance(source, Path) else source
    if len(content) > TEXT_LIMIT:
        raise InputError(f"{path} is too large to be converted to UTF-8: convert it first")
    try:
        return content.decode(encoding).encode("utf-8")
    except UnicodeError as error:
        if encoding == "cp1252":
            return content.decode("latin-1").encode("utf-8")
        raise InputError(f"{path} is not readable as {encoding}: {error}") from None


def separator_of(begin: str, wanted: tuple[str, ...]) -> str:
    """The separator that finds most of the wanted columns, or else most columns."""
    header = begin.removeprefix("\ufeff").lstrip("\r\n").splitlines()[:1]
    names = {
        separator: [name.strip() for name in next(csv.reader(header, delimiter=separator), [])]
        for separator in SEPARATORS
    }
    return max(SEPARATORS, key=lambda one: (len({*wanted} & {*names[one]}), len(names[one])))


def with_plain_names(frame: "polars.DataFrame") -> "polars.DataFrame":
    """Columns without spaces around their names, if these stay distinct."""
    plain = [name.strip("\ufeff \t\r\n\x00") for name in frame.columns]
    if len({*plain}) < len(plain):
        return frame
    return frame.rename(dict(zip(frame.columns, plain, strict=True)))


def plain_text(column: "polars.Series") -> "polars.Series":
    """Text as numbers are written, and null where nothing is given.

    Thousands separators are removed where they can be nothing else (12,345 or 1 234 567), and decimal
    commas become points likewise (0,125 or 1.234,50).
    """
    text = column.str.strip_chars()
    decimal = text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    text = decimal.zip_with(text.str.contains(DECIMAL).fill_null(False), text)
    plain = text.str.replace_all(BETWEEN, "")
    text = plain.zip_with(text.str.contains(GROUPED).fill_null(False), text)
    gone = text.str.to_lowercase().is_in(MISSING).fill_null(True)
    return text.set(gone, None).alias(column.name)
