"""Past experiments from data frames, relations, arrays and files: the same numbers, the same errors."""

import datetime
import decimal
import gzip
import uuid

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pytest

import gradband as gb
from gradband.core.errors import InputError
from gradband.problems import past_experiments
from gradband.problems.past_experiments import Columns


def table(count=40, seed=0):
    """Experiments of two to four arms, in a shuffled order of rows."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, count)
    owner = np.repeat(np.arange(count), sizes)
    arm = np.concatenate([np.arange(size) for size in sizes])
    pulls = rng.integers(200, 12_000, len(owner))
    level = rng.beta(3, 97, count)[owner]
    successes = rng.binomial(pulls, rng.beta(400 * level, 400 * (1 - level)))
    order = rng.permutation(len(owner))
    return {
        "experiment": [f"test {e}" for e in owner[order]],
        "arm": [chr(ord("A") + a) for a in arm[order]],
        "pulls": pulls[order].tolist(),
        "successes": successes[order].tolist(),
    }


def forms(given, folder):
    """The same table in every form."""
    frame = polars.DataFrame(given, strict=False)
    frame.write_csv(folder / "past.csv")
    frame.write_parquet(folder / "past.parquet")
    relation = pyarrow.table(frame.to_dict(as_series=False))
    numpy = {name: np.array(values) for name, values in given.items()}
    kinds = [(name, values.dtype) for name, values in numpy.items()]
    structured = np.array(list(zip(*numpy.values(), strict=True)), dtype=kinds)
    return {
        "csv": folder / "past.csv",
        "csv as text": str(folder / "past.csv"),
        "parquet": folder / "past.parquet",
        "polars": frame,
        "lazy": frame.lazy(),
        "pandas": pandas.DataFrame(given),
        "pandas of objects": pandas.DataFrame(given).astype(object),
        "pandas, nullable": pandas.DataFrame(given).convert_dtypes(),
        "pandas of arrow": pandas.DataFrame(given).convert_dtypes(dtype_backend="pyarrow"),
        "pandas, categorical": pandas.DataFrame(given).astype(
            {"experiment": "category", "arm": "category"}
        ),
        "pandas, indexed": pandas.DataFrame(given).set_index(["experiment", "arm"]),
        "pyarrow": relation,
        "duckdb": duckdb.from_arrow(relation),
        "dictionary": given,
        "arrays": numpy,
        "structured": structured,
    }


def numbers(found):
    return [getattr(found, name).tolist() for name in ("starts", "pulls", "successes")]


def test_every_source_has_the_same_experiments(tmp_path):
    found = {name: past_experiments.read(form) for name, form in forms(table(), tmp_path).items()}
    first = numbers(found["csv"])
    assert len(found["csv"]) == 40
    for name, other in found.items():
        assert numbers(other) == first, name


def test_every_source_has_the_same_fit(tmp_path):
    """Identical, not merely close: the same arrays go into the same fits."""
    sources = forms(table(15), tmp_path)
    fits = {
        name: gb.fit(sources[name], held_out=0.3)
        for name in ("csv", "parquet", "pandas", "polars", "pyarrow", "duckdb", "structured")
    }
    first = fits["csv"].as_dict()
    assert first["experiments"] == 15
    for name, other in fits.items():
        assert other.as_dict() == first, name
        assert other.problem.describe() | {"name": ""} == fits["csv"].problem.describe() | {"name": ""}


FAULTY = {
    "experiment": ["a", "a", "a", "b", "b", "b", "b", None, "c", "c", "d", "d", "e", "e"],
    "arm": ["0", "1", "2", "0", "1", "2", "2", "0", "0", "1", "0", "1", "0", "1"],
    "pulls": [100, 100, -4, 100, 70, 50, 50, 10, 20, 0, 40, 40, 40, 41],
    "successes": [3, None, 0, 200, 3, 1, 1, 1, 1, 0, 2, 2, 2, 2],
}


def told(data, **how):
    with pytest.raises(InputError) as caught:
        past_experiments.read(data, **how)
    return str(caught.value)


def test_every_source_has_the_same_errors(tmp_path):
    frame = polars.DataFrame(FAULTY)
    frame.write_csv(tmp_path / "past.csv")
    frame.write_parquet(tmp_path / "past.parquet")
    arrow = pyarrow.table(FAULTY)
    sources = {
        "parquet": tmp_path / "past.parquet",
        "polars": frame,
        "lazy": frame.lazy(),
        "pandas": pandas.DataFrame(FAULTY),  # whose successes are floats, with NaN
        "pandas, nullable": pandas.DataFrame(FAULTY).convert_dtypes(),
        "pandas of objects": pandas.DataFrame(FAULTY).astype(object),
        "pyarrow": arrow,
        "duckdb": duckdb.from_arrow(arrow),
        "dictionary": FAULTY,
        "arrays": {name: np.array(values, dtype=object) for name, values in FAULTY.items()},
    }
    first = told(tmp_path / "past.csv")
    for words in (
        "1 row has no experiment (8)",
        "1 row has no successes (2)",
        "1 row has negative pulls or successes (3)",
        "1 row has more successes than pulls (4)",
        "1 row has no pulls (10)",
        "of an earlier row, which add_up (--sum) adds up (7)",
        "skip these rows with drop_bad (--drop-bad)",
    ):
        assert words in first
    for name, source in sources.items():
        assert told(source).replace("the table", "past.csv").replace("past.parquet", "past.csv") == first, (
            name
        )
        kept = past_experiments.read(source, drop=True)
        assert numbers(kept) == numbers(past_experiments.read(tmp_path / "past.csv", drop=True)), name


def small(**changes):
    given = {"experiment": list("aabb"), "arm": list("xyxy"), "pulls": [9] * 4, "successes": [2] * 4}
    return given | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pulls": ["9", "nine", "9", "9"]}, r"1 row has no number in pulls \(2\)"),
        ({"pulls": [9, "nine", 9.0, decimal.Decimal(9)]}, r"1 row has no number in pulls \(2\)"),
        ({"pulls": [9, np.nan, 9, 9]}, r"1 row has no pulls \(2\)"),
        ({"pulls": [9, np.inf, 9, 9]}, r"1 row has no number in pulls \(2\)"),
        ({"pulls": [9, pandas.NA, 9, 9]}, r"1 row has no pulls \(2\)"),
        ({"pulls": [9.5, 9, 9, 9]}, r"pulls must be counts, but 1 row has a fraction \(1\), such as 9.5"),
        ({"pulls": [datetime.date(2020, 1, 1)] * 4}, "'pulls' must hold text or numbers, not Date"),
        (
            {"pulls": pandas.to_datetime(["2020-01-01"] * 4)},
            "'pulls' must hold text or numbers, not Datetime",
        ),
        ({"arm": [b"x", b"y", b"x", b"y"]}, "'arm' must hold text or numbers, not Binary"),
        ({"arm": [["x"], ["y"], ["x"], ["y"]]}, "'arm' must hold text or numbers, not List"),
        ({"arm": [{"x"}, {"y"}, {"x"}, {"y"}]}, "'arm' must hold text or numbers, not set"),
        ({"arm": list("xxxy")}, r"1 row has the experiment and arm of an earlier row, .* \(2\)"),
        ({"experiment": list("aa b")}, r"1 row has no experiment \(3\)"),
    ],
)
def test_mistakes_in_a_pandas_frame_are_told(changes, words):
    with pytest.raises(InputError, match=words):
        past_experiments.read(pandas.DataFrame(small(**changes)))


def test_a_wrong_column_is_told_with_those_that_are_there():
    frame = pandas.DataFrame(small()).rename(columns={"successes": "clicks"})
    words = "the table has no column 'successes': it has experiment, arm, pulls, clicks; name your columns"
    assert words in told(frame)
    assert len(past_experiments.read(frame, Columns(successes="clicks"))) == 2
    doubled = pandas.concat([frame, frame[["pulls"]]], axis=1)
    assert "several columns of the same name" in told(doubled)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([1, 2, 3], "past experiments must be the path of a CSV or Parquet file, a data frame .* not"),
        (None, "past experiments must be"),
        (pandas.Series([1, 2]), "past experiments must be"),
        (np.ones((3, 4)), "past experiments must be"),
        (small(pulls=7), "the column 'pulls' must be a list or an array, not 7"),
        (small(pulls=np.ones((4, 2))), "'pulls' must have one dimension, not 2"),
        (small(pulls=[1, 2]), "columns must be equally long: experiment has 4, arm has 4, pulls has 2"),
        ("nowhere.csv", "cannot read nowhere.csv"),
    ],
)
def test_other_data_are_one_sentence(given, words):
    with pytest.raises(InputError, match=words):
        past_experiments.read(given)


NAMES = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)]


@pytest.mark.parametrize(
    "arms",
    [
        pandas.to_datetime(["2020-01-01", "2020-01-02"] * 2),
        pandas.to_datetime(["2020-01-01", "2020-01-02"] * 2).tz_localize("Europe/Berlin"),
        pandas.Series(NAMES * 2).dt.date,
        pandas.Series(["2020-01-01", "2020-01-02"] * 2, dtype="category"),
        pandas.PeriodIndex(["2020-01-01", "2020-01-02"] * 2, freq="D"),
        np.array(["2020-01-01", "2020-01-02"] * 2, "datetime64[D]"),
        np.array([b"2020-01-01", b"2020-01-02"] * 2),
    ],
    ids=lambda arms: str(arms.dtype),
)
def test_dates_and_categories_are_names(arms):
    frame = small(arm=arms) if isinstance(arms, np.ndarray) else pandas.DataFrame(small(arm=arms))
    assert past_experiments.read(frame, arms_matter=True).labels == ("2020-01-01", "2020-01-02")


@pytest.mark.parametrize(
    "arms",
    [[3, 12], [3.0, 12.0], ["3", "12"], pandas.array([3, 12], "Int64"), pandas.Categorical([3, 12])]
    + [[decimal.Decimal(3), decimal.Decimal(12)], [3, "12"], np.array([3, 12], ">i4")],
    ids=str,
)
def test_numbers_are_the_names_that_a_file_has(arms):
    frame = small(arm=np.concatenate([arms, arms])) if isinstance(arms, np.ndarray) else None
    frame = pandas.DataFrame(small(arm=[*arms] * 2)) if frame is None else frame
    assert past_experiments.read(frame, arms_matter=True).labels == ("12", "3")


def test_long_numbers_stay_different_names():
    """As floating-point numbers, these would be the same."""
    arms = pandas.array([2**60, 2**60 + 1, 2**60, None], "Int64")
    experiments = [*small()["experiment"], "a"]
    frame = pandas.DataFrame({"experiment": experiments[:4], "arm": arms, "pulls": 9, "successes": 2})
    assert "1 row has no arm (4)" in told(frame)
    frame = pandas.DataFrame(small(arm=pandas.array([2**60, 2**60 + 1] * 2, "Int64")))
    assert len(past_experiments.read(frame)) == 2
    ids = [uuid.UUID(int=1), uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=2)]
    assert len(past_experiments.read(pandas.DataFrame(small(experiment=ids)))) == 2


def test_sums_of_a_database_are_counts():
    """DuckDB sums whole numbers in 128 bits, which Arrow has as decimals."""
    relation = duckdb.sql(
        """select experiment, arm, sum(shown) as pulls, count(*) filter (clicked) as successes
           from (select i % 3 as experiment, 'xy'[1 + i % 2] as arm, 1 as shown, i % 5 = 0 as clicked
                 from range(600) t(i))
           group by all order by all"""
    )
    found = past_experiments.read(relation)
    assert (len(found), found.pulls.tolist()) == (3, [100.0] * 6)
    assert found.successes.tolist() == [20.0] * 6


def test_single_pulls_are_counted_from_any_source():
    rng = np.random.default_rng(0)
    given = {"test": ["p", "q", "r"] * 40, "arm": ["x", "y"] * 60, "won": rng.random(120) < 0.4}
    columns = Columns(experiment="test", reward="won")
    sources = [polars.DataFrame(given), pandas.DataFrame(given), pyarrow.table(given), given]
    first, *others = [numbers(past_experiments.read(source, columns)) for source in sources]
    assert sum(first[2]) == given["won"].sum()
    assert all(other == first for other in others)
    late = pandas.DataFrame(given).astype({"won": "boolean"})
    late.loc[3, "won"] = pandas.NA
    with pytest.raises(InputError, match=r"1 row has no won \(4\)"):
        past_experiments.read(late, columns)


def wide(given):
    """The same experiments with one row each, in the order of their first rows."""
    long = pandas.DataFrame(given)
    order = long["experiment"].drop_duplicates()
    frame = long.pivot(index="experiment", columns="arm", values=["pulls", "successes"])
    return frame.loc[order]


@pytest.mark.parametrize(
    "style", ["{what}_{arm}", "{arm} {what}", "{what} ({arm})", "{arm}: {what}", "{what}{arm}"]
)
def test_a_row_per_experiment_is_read(style, tmp_path):
    given = table()
    first = numbers(past_experiments.read(given))
    frame = wide(given)
    assert numbers(past_experiments.read(frame)) == first, "as pivot makes it"
    frame.columns = [style.format(what=what, arm=arm) for what, arm in frame.columns]
    frame.reset_index().to_csv(tmp_path / "wide.csv", sep=";", index=False, encoding="utf-16")
    assert numbers(past_experiments.read(tmp_path / "wide.csv")) == first
    zeros = frame.fillna(0).astype(int).reset_index()
    assert numbers(past_experiments.read(polars.from_pandas(zeros))) == first, "arms that were not shown"
    named = past_experiments.read(frame[frame.notna().all(axis=1)], arms_matter=True)
    assert named.labels == ("A", "B", "C", "D")


def test_faults_in_a_row_per_experiment_name_the_arm():
    frame = pandas.DataFrame(
        {"experiment": list("abc"), "pulls_A": [10, 10, 10], "successes_A": [1, 2, 3]}
        | {"pulls_B": [10, 10, -1], "successes_B": [1, None, 1]}
    )
    assert "1 row has no successes (2 B)" in told(frame)
    assert "1 row has negative pulls or successes (3 B)" in told(frame)
    frame["pulls_C"] = 4
    assert "the column 'pulls_C' has no partner" in told(frame)


@pytest.mark.parametrize(
    ("text", "pulls"),
    [
        ("sep=;\nexperiment;arm;pulls;successes\na;x;1200;2\na;y;9;2\nb;x;9;2\nb;y;9;2\n", 1200),
        (
            "sep=\t\r\nexperiment\tarm\tpulls\tsuccesses\r\na\tx\t12 000\t2\r\na\ty\t9\t2\r\n"
            "b\tx\t9\t2\r\nb\ty\t9\t2",
            12_000,
        ),
        ('experiment,arm,pulls,successes\na,x,"1,234,567",2\na,y,9,2\nb,x,9,2\nb,y,9,2\n', 1_234_567),
        ("experiment;arm;pulls;successes\na;x;9,0;2\na;y;9;2\nb;x;9;2\nb;y;9;2\n", 9),
    ],
)
def test_files_are_read_as_spreadsheets_write_them(text, pulls, tmp_path):
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "past.csv").write_bytes(text.encode(encoding))
        found = past_experiments.read(tmp_path / "past.csv")
        assert (len(found), found.pulls[0]) == (2, pulls), encoding


def test_decimal_commas_are_numbers_where_they_can_be_nothing_else(tmp_path):
    rows = [
        ("a", "x", "0,5"),
        ("a", "y", "0,125"),
        ("b", "x", "1,0"),
        ("b", "y", "n/a"),
        ("b", "y", "0,25"),
    ]
    text = "\n".join(["experiment;arm;reward", *(";".join(row) for row in rows)])
    (tmp_path / "log.csv").write_text(text)
    assert "1 row has no reward (4)" in told(tmp_path / "log.csv")
    assert past_experiments.read(tmp_path / "log.csv", drop=True).successes.tolist() == [
        0.5,
        0.125,
        1,
        0.25,
    ]


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0"])
def test_a_workbook_is_called_so(start, tmp_path):
    (tmp_path / "past.xlsx").write_bytes(start + b"rest")
    assert "is an Excel workbook or an archive: save the sheet as CSV" in told(tmp_path / "past.xlsx")


def test_a_compressed_file_of_another_form_is_the_same(tmp_path):
    text = polars.DataFrame(table()).write_csv(separator="\t").encode("utf-16")
    (tmp_path / "past.csv.gz").write_bytes(gzip.compress(text))
    assert numbers(past_experiments.read(tmp_path / "past.csv.gz")) == numbers(
        past_experiments.read(table())
    )


def test_a_fit_is_a_problem_and_can_be_saved(tmp_path):
    found = gb.fit(table(15), held_out=0.3, pulls_per_round=100, horizon=3000, afterwards=500, name="mine")
    files = found.save(tmp_path / "fit")
    problem = gb.problems.load(files["problem"])
    assert problem.describe() == found.problem.describe()
    assert (problem.name, problem.pulls_per_round, problem.afterwards) == ("mine", 100, 500)
    assert gb.problems.as_problem(found).describe() == problem.describe()
    assert "\n" not in repr(found)
    assert len(repr(found)) < 300
    with pytest.raises(InputError, match="'pulls_a_round': did you mean 'pulls_per_round'"):
        gb.fit(table(15), pulls_a_round=3)
    with pytest.raises(InputError, match="unknown prior 'poled': did you mean 'pooled'"):
        gb.fit(table(15), prior="poled")


def test_what_works_is_reported(capsys):
    seen = []
    gb.fit(table(15), held_out=0.3, progress=lambda share, name: seen.append((share, name)))
    assert seen == [(0.0, "pooled"), (0.5, "hierarchical")]
    assert capsys.readouterr() == ("", ""), "there is no terminal"
