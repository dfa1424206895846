"""The format of spill files: what was written is read back, whatever happens to its neighbours."""

from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from skep.spill.records import (
    FILE_HEAD_BYTES,
    RECORD_HEAD_BYTES,
    Damaged,
    FileHead,
    Found,
    SpillRecord,
    decode_file_head,
    encode_body,
    encode_file_head,
    frame,
    scan,
)

FILE_ID = UUID(int=0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF0)

records = st.builds(
    SpillRecord,
    st.text(max_size=5),
    st.text(max_size=5),
    st.binary(max_size=60),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.integers(0, 2**63 - 1),
    st.none() | st.integers(0, 2**63 - 1),
    st.none() | st.text(max_size=5),
    st.none() | st.text(max_size=5),
)


def encode_record(record, file_id):
    return frame(encode_body(record), file_id)


def spelled(*given_records):
    return [encode_record(record, FILE_ID) for record in given_records]


def found(pieces):
    return [piece.record for piece in pieces if isinstance(piece, Found)]


def record(text, queue="q"):
    return SpillRecord(queue, "p", text.encode())


@given(st.lists(records))
def test_records_are_read_back_in_order(given_records):
    pieces = scan(b"".join(spelled(*given_records)), FILE_ID, is_all=True)

    assert found(pieces) == given_records
    assert len(pieces) == len(given_records)


@given(records, st.integers(3, 8))
def test_a_record_of_a_release_that_wrote_fewer_fields_is_read(given_record, field_count):
    fields = astuple(given_record)[:field_count]
    pieces = scan(frame(msgspec.msgpack.encode(fields), FILE_ID), FILE_ID, is_all=True)

    assert found(pieces) == [SpillRecord(*fields)]


@given(st.lists(records, min_size=1, max_size=6), st.data())
def test_damage_costs_the_records_it_hits_and_no_other(given_records, data):
    texts = spelled(*given_records)
    whole = bytearray(b"".join(texts))
    at = data.draw(st.integers(0, len(whole) - 1))
    length = data.draw(st.integers(1, 40))
    whole[at : at + length] = bytes(byte ^ 0x5A for byte in whole[at : at + length])
    starts = [sum(map(len, texts[:number])) for number in range(len(texts))]
    unhurt = [
        each
        for each, start, text in zip(given_records, starts, texts, strict=True)
        if start + len(text) <= at or start >= at + length
    ]

    pieces = scan(bytes(whole), FILE_ID, is_all=True)

    assert found(pieces) == unhurt
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
    assert pieces[-1].end == len(whole)


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_a_torn_end_is_the_last_piece_and_everything_before_it_is_whole(given_records, data):
    texts = spelled(*given_records)
    last = texts[-1]
    torn = last[: data.draw(st.integers(1, len(last) - 1))]

    pieces = scan(b"".join([*texts[:-1], torn]), FILE_ID, is_all=True)

    assert found(pieces) == given_records[:-1]
    assert isinstance(pieces[-1], Damaged)


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_what_goes_on_beyond_the_bytes_at_hand_is_left_for_later(given_records, data):
    whole = b"".join(spelled(*given_records))
    size = data.draw(st.integers(0, len(whole)))

    pieces = scan(whole[:size], FILE_ID, is_all=False)

    read = pieces[-1].end if pieces else 0
    assert not any(isinstance(piece, Damaged) for piece in pieces)
    assert found(pieces) + found(scan(whole[read:], FILE_ID, is_all=True)) == given_records


def test_a_damaged_length_that_points_beyond_the_file_does_not_hide_what_follows():
    first, second = (bytearray(text) for text in spelled(record("a"), record("b")))
    first[4:8] = b"\xff\xff\xff\xff"

    pieces = scan(bytes(first + second), FILE_ID, is_all=True)

    assert pieces == [
        Damaged(0, len(first)),
        Found(len(first), len(first) + len(second), record("b")),
    ]


def test_a_payload_that_looks_like_a_record_is_not_taken_for_one():
    # Spelled with another file's id, because a producer cannot know this one's.
    bait = encode_record(record("evil", queue="somebody else's"), UUID(int=7))
    outer = bytearray(encode_record(SpillRecord("q", "p", bait), FILE_ID))
    outer[RECORD_HEAD_BYTES] ^= 0xFF

    assert found(scan(bytes(outer), FILE_ID, is_all=True)) == []


def test_defect_31_a_record_of_twelve_megabytes_hides_nothing_behind_it():
    large = record("x" * (12 << 20))

    pieces = scan(b"".join(spelled(record("a"), large, record("b"))), FILE_ID, is_all=True)

    assert found(pieces) == [record("a"), large, record("b")]


def test_a_file_says_who_it_is():
    head = FileHead(FILE_ID, 77)

    assert decode_file_head(encode_file_head(head)) == head


@given(st.integers(0, FILE_HEAD_BYTES - 1))
def test_a_damaged_head_is_noticed(at):
    data = bytearray(encode_file_head(FileHead(FILE_ID, 77)))
    data[at] ^= 1

    assert decode_file_head(bytes(data)) is None
    assert decode_file_head(bytes(data[:at])) is None
