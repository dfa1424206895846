"""Messages that are found in bodies must be those that a decoder would find there."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType

from skep.model.envelopes import build_envelope
from skep.spark.decode.envelopes import LOOKED_AT, find_envelopes
from skep.spark.decode.messages import EnvelopeDecoder
from skep.spark.decode.segments import SegmentDecoder
from skep.spark.source.options import Shape

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US = round(NOON.timestamp() * 1_000_000)
TRACE = "0190b2a4-7c1e-7000-8000-000000000001"
DECEIT = '[{"a":1},{"transactionId":"x","traceId":null,"producerSub":null,"data":1}]'
"""A payload in which a message seems to end and another to begin."""
SCHEMA = StructType(
    [
        StructField("queue", StringType()),
        StructField("partition", StringType()),
        StructField("offset", LongType()),
        StructField("message_id", StringType()),
        StructField("transaction_id", StringType()),
        StructField("payload", StringType()),
        StructField("payload_bytes", IntegerType()),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("producer", StringType()),
        StructField("trace_id", StringType()),
        StructField("xid", LongType()),
    ]
)


def body_of(envelopes):
    return b"[" + b",".join(envelopes) + b"]"


def batch_of(lots, first=7):
    count = len(lots)
    return pa.RecordBatch.from_pydict(
        {
            "xid": [9 + number for number in range(count)],
            "partition_id": [1 + number // 2 for number in range(count)],
            "first": [first] * count,
            "last": [first + len(lot) - 1 for lot in lots],
            "queue": ["orders"] * count,
            "partition": [f"p{number}" for number in range(count)],
            "body": [body_of(lot) for lot in lots],
        }
    )


def rows_of(batch):
    """Return the rows of segments, whichever way they went."""
    decoder = SegmentDecoder(SCHEMA, Shape(), open_envelope=lambda sealed: sealed, taken_us=NOON_US)
    return [row for cut in decoder.decode([batch]) for row in cut.to_pylist()]


def decoded_rows(batch):
    """Return the rows that come of decoding each and every segment."""
    found = EnvelopeDecoder(open_envelope=lambda sealed: sealed, taken_us=NOON_US).decode(batch)
    columns = {name: found.column(name) for name in SCHEMA.names}
    columns = {
        name: values if isinstance(values, list) else values.to_pylist()
        for name, values in columns.items()
    }
    columns["payload"] = [payload.decode() for payload in columns["payload"]]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def regular_among(*lots):
    """Tell of each segment whether its messages are found without decoding them."""
    batch = batch_of(lots)
    counts = np.array([len(lot) for lot in lots])
    return find_envelopes(batch.column("body"), counts)[1].tolist()


def plain(payload="1", name="tx", **members):
    return build_envelope(name, payload.encode(), **members)


fragments = st.sampled_from(
    [
        DECEIT,
        '[{},{"transactionId":1}]',
        '[{},{"transactionId":"a"},null,{"b":[]},null]',
        '[{},{"enc":"k"}]',
        '[{},{"expiresAt":1}]',
        '{"data":1,"x":[{"data":2},{"data":3}]}',
        r'"},{\"transactionId\":\"x\",\"traceId\":null"',
        '"},null"',
        '""',
        "{}",
        "[]",
        "0",
        "null",
        ' { "a" : [ 1 ] } ',
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["transactionId", "data", "enc", "a", "é"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
payloads = fragments | values.map(
    lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)
)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.just(
    "n" * (2 * LOOKED_AT)
)
envelopes = st.builds(
    lambda name, payload, **members: build_envelope(name, payload.encode(), **members),
    st.sampled_from(["a", "order-1", 'q"', "\\", "é"]) | names,
    payloads,
    trace_id=st.none() | st.just(TRACE),
    producer=st.none() | names,
    headers=st.none()
    | st.dictionaries(st.sampled_from(["a", "data", 'q"']), st.text(max_size=4) | st.integers()),
    expires_at=st.sampled_from(
        [None, None, None, NOON - timedelta(seconds=1), NOON + timedelta(seconds=1)]
    ),
)
sealed = st.just(
    build_envelope("s", b"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA==", encryption_key_id="k")
)
stored = st.one_of(envelopes, envelopes, envelopes, st.just(b"null"), sealed)


@given(st.lists(st.lists(stored, min_size=1, max_size=4), min_size=1, max_size=5))
@example([[plain(DECEIT), b"null"]])
@example([[b"null", plain(DECEIT)]])
@example([[plain(" 1 ")], [plain("[ 1 ]")]])
@example([[plain(DECEIT), plain(expires_at=NOON + timedelta(days=1))]])
@example([[plain("[{},{},{},{}]")], [plain(DECEIT), plain()], [plain()]])
def test_rows_do_not_tell_whether_they_were_decoded(lots):
    batch = batch_of(lots)

    assert rows_of(batch) == decoded_rows(batch)
    assert rows_of(batch.slice(1)) == decoded_rows(batch.slice(1))


@pytest.mark.parametrize(
    "lot",
    [
        [plain()],
        [plain(), plain("{}"), plain('[{"a":{}},{"b":{}}]')],
        [plain('"é"', "é"), plain("1", producer="", trace_id=TRACE)],
        [plain(headers={"data": 1, "b": ",x"}), plain()],
        [plain("1", "n" * (LOOKED_AT - 1))],
        [plain('[null,{"enc":"k"},1,{"expiresAt":1}]'), plain(r'"\"},{"')],
        [plain("1", producer="who"), plain("1", "")],
    ],
)
def test_messages_are_found_without_decoding_them(lot):
    assert regular_among(lot) == [True]


@pytest.mark.parametrize(
    "lot",
    [
        [b"null", plain()],
        [plain(), b"null"],
        [plain(), plain(encryption_key_id="k")],
        [plain(encryption_key_id="k"), plain()],
        [plain(), plain(expires_at=NOON)],
        [plain(DECEIT), plain()],
        [plain(DECEIT), b"null"],
        [plain(DECEIT), plain(encryption_key_id="k")],
        [plain("[{},null]"), plain()],
        [plain("1", "back\\slash"), plain()],
        [plain(" 1"), plain()],
        [plain("1\n"), plain()],
        [plain("1", "n" * LOOKED_AT)],
        [plain(), plain("1", producer='quo"te')],
    ],
)
def test_what_cannot_be_told_from_the_bytes_alone_is_left_to_the_decoder(lot):
    assert regular_among([plain()], lot, [plain()]) == [True, False, True]


def test_messages_know_their_segments_and_places():
    lots = [[plain("1"), plain("2")], [b"null"], [plain("3"), plain("4"), plain("5")]]

    found, _ = find_envelopes(batch_of(lots).column("body"), np.array([2, 1, 3]))

    assert found.segments.tolist() == [0, 0, 2, 2, 2]
    assert found.places.tolist() == [0, 1, 0, 1, 2]


def test_there_may_be_no_segments():
    assert rows_of(batch_of([[plain()]]).slice(1)) == []
    assert rows_of(batch_of([])) == []
