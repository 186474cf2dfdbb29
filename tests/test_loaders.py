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


@st.composite
def damaged(draw, name):
    """Valid bytes, in which a few pieces are cut out, replaced or doubled."""
    content = draw(st.sampled_from(seeds(name)))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(content)))
        end = begin + draw(st.sampled_from([0, 1, 1, 2, 8, 100, len(content)]))
        piece = draw(st.sampled_from(INTERESTING) | st.binary(max_size=8) | st.just(content[begin:end] * 2))
        content = content[:begin] + piece + content[end:]
    return content


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
