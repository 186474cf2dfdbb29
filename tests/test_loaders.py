"""Files are untrusted: whatever their bytes, a loader gives what was asked for or one clear error."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loaders import LOADERS, corpus

from gradband.core.errors import InputError

pytestmark = pytest.mark.brief
EXAMPLES = {"policy": 150, "parquet": 5}
INTERESTING = [
    b"",
    b"\0",
    b"\xff" * 8,
    b"\n",
    b"-1",
    b"1e999",
    b"null",
    b"[" * 3000,
    b"9" * 5000,
    b'"\\ud800"',
    b"../",
]
seeds = functools.cache(corpus)


# Made once: strategies that are made for each example take most of the time.
PLACES = st.integers(0, 2**32)
SIZES = st.sampled_from([0, 1, 1, 2, 8, 100, None])  # None for all of it
PIECES = st.sampled_from(INTERESTING) | st.binary(max_size=8) | st.none()  # None for what was there, twice
DAMAGES = st.lists(st.tuples(PLACES, SIZES, PIECES), max_size=4)


def damage(content, damages):
    """Bytes in which a few pieces are cut out, replaced or doubled."""
    for place, size, piece in damages:
        begin = place % (len(content) + 1)
        end = len(content) if size is None else begin + size
        piece = content[begin:end] * 2 if piece is None else piece
        content = content[:begin] + piece + content[end:]
    return content


def damaged(name):
    """Valid bytes with some damage."""
    return st.builds(damage, st.sampled_from(seeds(name)), DAMAGES)


@pytest.mark.parametrize("name", LOADERS)
def test_any_damage_is_taken_or_refused(name):
    @settings(max_examples=EXAMPLES.get(name, 400), deadline=None, database=None, derandomize=True)
    @given(damaged(name))
    def load(content):
        try:
            LOADERS[name](content)
        except InputError as error:
            if not str(error).strip():
                raise AssertionError("an error without words") from error

    load()


@pytest.mark.parametrize("name", LOADERS)
def test_what_fuzzing_begins_with_is_mostly_valid(name):
    """Or fuzzing would never get far."""
    refused = []
    for content in seeds(name):
        try:
            LOADERS[name](content)
        except InputError as error:
            refused.append(str(error))
    assert len(refused) <= len(seeds(name)) / 3, refused
