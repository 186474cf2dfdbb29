"""CSV files as people have them: other separators, other encodings, compressed, numbers with separators.

What can only mean one thing is read. Files are read with distrust: nothing is unpacked beyond a limit.
"""

import csv
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradband.core import files
from gradband.core.errors import InputError

if TYPE_CHECKING:
    import polars

SIZE_LIMIT = 4 << 30  # bytes of a file that is read as it is
TEXT_LIMIT = 1 << 30  # bytes of one that must be unpacked or converted
SNIFFED = 1 << 16  # bytes in which the header must end
GZIP = b"\x1f\x8b"
COMPRESSED = (b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x28\xb5\x2f\xfd")  # zlib, zstd: Polars would unpack
SEPARATORS = {",": ",", ";": ";", "\t": "tab", "|": "|"}
GROUPED = r"^[1-9]\d{0,2}(?:([,' \x{a0}\x{202f}])\d{3})(?:[,' \x{a0}\x{202f}]\d{3})*$"
BETWEEN = r"[,' \x{a0}\x{202f}]"  # thousands


def read(path: Path, wanted: tuple[str, ...]) -> "polars.DataFrame":
    """The table in a CSV file, all columns as text; `wanted` columns help to find the separator."""
    import polars

    begin = files.read(path, SIZE_LIMIT, only=SNIFFED)
    if begin.startswith(COMPRESSED):
        raise InputError(f"{path} has an unsupported compression: unpack it, or use gzip")
    content: bytes | None = None  # if it can't be read as it is
    if begin.startswith(GZIP):
        content = unpacked(path)
    if encoding := wide(begin if content is None else content[:SNIFFED]):
        content = converted(files.read(path, TEXT_LIMIT) if content is None else content, encoding, path)
    header = (begin if content is None else content[:SNIFFED]).decode("utf-8", errors="replace")
    how: dict[str, Any] = {"infer_schema": False, "glob": False, "separator": separator_of(header, wanted)}
    try:
        return with_plain_names(polars.read_csv(path if content is None else content, **how))
    except polars.exceptions.ComputeError as error:
        if "utf-8" not in str(error).lower():
            raise
    content = converted(files.read(path, TEXT_LIMIT) if content is None else content, "cp1252", path)
    return with_plain_names(polars.read_csv(content, **how))


def unpacked(path: Path) -> bytes:
    """What a gzip file holds, if it is not too much."""
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
            raise InputError(
                f"{path} unpacks to more than {TEXT_LIMIT >> 20} MiB: unpack it yourself first"
            )
        if not member.eof:
            raise InputError(f"{path} is not a readable gzip file: it ends too early")
        found.append(piece)
        content = member.unused_data
    return b"".join(found)


def wide(begin: bytes) -> str:
    """UTF-16 if the bytes are, by their mark or since every other one of the first is zero."""
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    odd, even = begin[1:64:2], begin[0:64:2]
    if len(odd) > 4 and not any(odd) and all(even):
        return "utf-16-le"
    return "utf-16-be" if len(odd) > 4 and not any(even) and all(odd) else ""


def converted(content: bytes, encoding: str, path: Path) -> bytes:
    """The text in UTF-8; what Windows' Latin-1 leaves open is taken from Latin-1 itself."""
    if len(content) > TEXT_LIMIT:
        raise InputError(f"{path} is too large to be converted to UTF-8: convert it first")
    try:
        return content.decode(encoding).encode("utf-8")
    except UnicodeError as error:
        if encoding == "cp1252":
            return content.decode("latin-1").encode("utf-8")
        raise InputError(f"{path} is not readable as {encoding}: {error}") from None


def separator_of(begin: str, wanted: tuple[str, ...]) -> str:
    """What separates the columns: what most of the wanted ones are found with, or most columns at all."""
    header = begin.removeprefix("\ufeff").lstrip("\r\n").splitlines()[:1]
    names = {
        separator: [name.strip() for name in next(csv.reader(header, delimiter=separator), [])]
        for separator in SEPARATORS
    }
    return max(SEPARATORS, key=lambda one: (len({*wanted} & {*names[one]}), len(names[one])))


def with_plain_names(frame: "polars.DataFrame") -> "polars.DataFrame":
    """Columns without spaces around their names, where that leaves all of them different."""
    plain = [name.strip("\ufeff \t\r\n\x00") for name in frame.columns]
    if len({*plain}) < len(plain):
        return frame
    return frame.rename(dict(zip(frame.columns, plain, strict=True)))


def whole_text(column: "polars.Series") -> "polars.Series":
    """Text without the separators of thousands, where they can be nothing else: 12,345 or 1 234 567."""
    import polars

    alike = column.str.contains(GROUPED)
    return polars.select(
        polars.when(alike).then(column.str.replace_all(BETWEEN, "")).otherwise(column).alias(column.name)
    ).to_series()
