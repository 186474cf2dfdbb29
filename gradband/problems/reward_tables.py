"""Reads tables of realised rewards from untrusted files."""

import zipfile
from pathlib import Path

import numpy as np

from gradband.core import parquet
from gradband.core.errors import InputError

TABLE_LIMIT = 4 << 30  # bytes of a reward table that is read into memory


def read_table(path: Path) -> np.ndarray:
    """Realised rewards [N, K, n] from an .npz file (array `rewards`) or a Parquet file.

    A Parquet file has the columns `instance`, `arm` and `round`, whole numbers, and `reward`, with one row
    per combination.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path.name} beside the problem file")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".parquet":
        return _read_parquet(path)
    raise InputError(f"a reward table must be an .npz or .parquet file, not {path.name}")


def _read_npz(path: Path) -> np.ndarray:
    """Reads an array, allocated only if the file is as large as its header claims."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo("rewards.npy").file_size
            if size > TABLE_LIMIT:
                raise InputError(f"{path.name} holds more than {TABLE_LIMIT >> 30} GiB of rewards")
            with archive.open("rewards.npy") as member:
                version = np.lib.format.read_magic(member)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"its format is {version}")
                read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
                shape, fortran, dtype = read(member)
                if dtype.kind not in "fiub":
                    raise InputError(f"the rewards in {path.name} must be numbers, not {dtype}")
                wanted = int(np.prod(shape, dtype=object)) * dtype.itemsize
                if wanted != size - member.tell():
                    raise InputError(f"{path.name} is damaged: its size does not match its header")
                values = np.frombuffer(member.read(), dtype)
        return values.reshape(shape, order="F" if fortran else "C")
    except InputError:
        raise
    except KeyError:
        raise InputError(f"{path.name} must hold an array named 'rewards'") from None
    except Exception as error:  # zip, zlib and NumPy raise a dozen kinds of errors for damaged files
        raise InputError(f"{path.name} is not a readable .npz file: {error}") from None


def _read_parquet(path: Path) -> np.ndarray:
    columns = ["instance", "arm", "round", "reward"]
    frame = parquet.read(path, columns)
    import polars

    for name in columns:
        kind, is_reward = frame[name].dtype, name == "reward"
        if not (kind.is_numeric() or kind == polars.Boolean if is_reward else kind.is_integer()):
            wanted = "numbers" if is_reward else "whole numbers"
            raise InputError(f"the column {name} of {path.name} must hold {wanted}, not {kind}")
    try:
        counts = [frame[name].n_unique() for name in columns[:3]]
        complete = frame.select(columns[:3]).n_unique() == len(frame) == np.prod(counts)
        values = frame.sort(columns[:3])["reward"].cast(polars.Float64).to_numpy()
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path.name} must have numbers in its columns: {first}") from None
    if not complete:
        rows = f"{' × '.join(map(str, counts))} rows, not {len(frame)}"
        raise InputError(f"{path.name} must hold one reward for every instance, arm and round: {rows}")
    return values.reshape(counts)
