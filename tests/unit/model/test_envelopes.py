"""The layout of stored messages: what is before the data, and that SQL can cut there."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.envelopes import (
    SEGMENT_BYTES_MAX,
    build_envelope,
    checked_trace_id,
    cut_envelope,
    join_segments,
)
from skep.model.errors import BadRequest, Defect

MARK = b',"data":'
TRACE = "0198aaaa-0000-7000-8000-000000000001"
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
headers = st.dictionaries(st.text() | st.just("data"), scalars | st.just(',"data":'))


def test_a_plain_message_is_spelled_as_the_push_spells_it():
    assert build_envelope("t", b'{"n":1}') == (
        b'{"transactionId":"t","traceId":null,"producerSub":null,"data":{"n":1}}'
    )


def test_every_part_has_its_place():
    envelope = build_envelope(
        "t",
        b"QUJD",
        trace_id=TRACE,
        producer="me",
        headers={"a": 1, "data": "x"},
        expires_at=datetime(2026, 1, 2, 5, tzinfo=timezone(timedelta(hours=2))),
        encryption_key_id="k1",
    )

    assert envelope == (
        b'{"enc":"k1","expiresAt":"2026-01-02T03:00:00.000Z","transactionId":"t",'
        b'"traceId":"0198aaaa-0000-7000-8000-000000000001","producerSub":"me",'
        b'"headers":{"a":1, "data":"x"},"data":"QUJD"}'
    )


def test_a_message_that_expires_and_is_not_encrypted_begins_with_its_time():
    envelope = build_envelope("t", b"1", expires_at=datetime(2026, 1, 1, tzinfo=UTC))

    assert envelope.startswith(b'{"expiresAt":"2026-01-01T00:00:00.000Z","transactionId":')


@given(st.text(), headers, st.none() | st.text(), st.recursive(scalars, st.lists))
def test_the_data_begins_at_the_first_mark(transaction_id, its_headers, producer, payload):
    spelled = json.dumps(payload).encode()

    envelope = build_envelope(transaction_id, spelled, producer=producer, headers=its_headers)

    head, mark, rest = envelope.partition(MARK)
    assert [mark, rest] == [MARK, spelled + b"}"]
    members = json.loads(head + b"}")
    assert members["transactionId"] == transaction_id
    assert members["producerSub"] == producer
    assert members.get("headers", {}) == its_headers


@pytest.mark.parametrize("text", [None, ""])
def test_an_empty_trace_id_is_none(text):
    assert checked_trace_id(text) is None


def test_a_trace_id_gets_its_canonical_spelling():
    assert checked_trace_id(TRACE.upper().replace("-", "")) == TRACE


def test_a_trace_id_is_a_uuid():
    with pytest.raises(BadRequest, match="traceId must be a UUID"):
        checked_trace_id("x")


def test_an_envelope_is_cut_before_its_payload():
    envelope = build_envelope("t", b'{"data":1,"data":2}', headers={"a": 1, "data": 2})

    head, payload = cut_envelope(envelope)

    assert payload == b'{"data":1,"data":2}'
    assert head + b',"data":' + payload + b"}" == envelope


def test_what_has_no_payload_is_no_envelope():
    with pytest.raises(Defect):
        cut_envelope(b"null")


@given(st.lists(st.lists(st.integers(1, 9_000), min_size=1, max_size=30), min_size=1, max_size=5))
def test_segments_hold_all_messages_in_order_and_as_many_as_fit(partitions):
    envelopes = [
        [b"%d" % i * (n // len(b"%d" % i) + 1) for i, n in enumerate(p)] for p in partitions
    ]

    bodies, row_to, row_end = join_segments(envelopes)

    row_to = row_to or list(range(1, len(partitions) + 1))
    row_end = row_end or list(map(len, envelopes))
    assert (row_to[-1], len(row_end)) == (len(bodies), len(bodies))
    start = 0
    for messages, end in zip(envelopes, row_to, strict=True):
        low = 0
        for body, high in zip(bodies[start:end], row_end[start:end], strict=True):
            assert body == b"[%b]" % b",".join(messages[low:high])
            assert high == low + 1 or _size(messages[low:high]) <= SEGMENT_BYTES_MAX
            assert high == len(messages) or _size(messages[low : high + 1]) > SEGMENT_BYTES_MAX
            low = high
        assert low == len(messages)
        start = end


def _size(envelopes):
    return sum(map(len, envelopes)) + 17 * len(envelopes)
