"""Whole columns of strings, looked at as bytes: the same as asking each string."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.spark.runtime.arrow import (
    PIECE_ROWS,
    byte_strings,
    has_control_characters,
    needs_no_escapes,
    slices_of,
    text_bytes,
    text_lengths,
)

words = st.lists(st.text(st.characters(codec="utf-8"), max_size=6), max_size=8)


@st.composite
def columns(draw):
    """Strings, as an array that begins and ends somewhere in its buffers."""
    before, inside, behind = draw(words), draw(words), draw(words)
    kind = draw(st.sampled_from([pa.string(), pa.large_string()]))
    values = pa.array([*before, *inside, *behind], kind)
    return inside, values.slice(len(before), len(inside))


@given(columns())
def test_bytes_and_lengths_are_those_of_the_strings_in_the_array_and_no_others(column):
    inside, values = column

    assert text_bytes(values).tobytes() == "".join(inside).encode()
    assert text_lengths(values).tolist() == [len(word.encode()) for word in inside]


@given(columns())
def test_what_needs_care_is_found_wherever_it_is(column):
    inside, values = column
    everything = "".join(inside)
    has_controls = any(character < " " for character in everything)

    assert has_control_characters(values) == has_controls
    assert needs_no_escapes(values) == (not has_controls and not set(everything) & set('"\\'))


def test_a_column_of_nulls_holds_nothing():
    values = pa.nulls(3, pa.string())

    assert text_bytes(values).tolist() == []
    assert text_lengths(values).tolist() == [0, 0, 0]
    assert needs_no_escapes(values)


@pytest.mark.parametrize("starts", [[0], [0, 1], [0, 2, 3]])
def test_neighbours_become_one_without_a_copy(starts):
    words = ["ab", "", "ü", "c"]
    values = pa.array(words)

    slices = slices_of(values, starts)

    ends = [*starts[1:], len(words)]
    expected = ["".join(words[start:end]) for start, end in zip(starts, ends, strict=True)]
    assert slices.to_pylist() == [text.encode() for text in expected]
    assert slices.buffers()[2].address == values.buffers()[2].address


@given(columns())
def test_pieces_together_are_all_strings_in_their_order(column):
    inside, values = column

    pieces = list(byte_strings(values))

    assert [text for piece in pieces for text in piece] == [text.encode() for text in inside]


def test_strings_come_in_pieces_that_stay_in_the_cache():
    values = pa.array(map(str, range(PIECE_ROWS + 1)), pa.string())

    assert [len(piece) for piece in byte_strings(values)] == [PIECE_ROWS, 1]
