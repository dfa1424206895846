"""Segments to rows, on segments made by hand."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from skep.model.ids import OFFSET_LOW_BITS, message_id
from skep.spark.decode.payloads import payload_decoder
from skep.spark.decode.segments import MalformedPayload, SegmentDecoder
from skep.spark.source.columns import InvalidColumns
from skep.spark.source.options import Shape
from tests.spark.support.logs import NOON, envelope, segments

COLUMNS = {
    "queue": StringType(),
    "partition": StringType(),
    "offset": LongType(),
    "message_id": StringType(),
    "transaction_id": StringType(),
    "payload": StringType(),
    "headers": MapType(StringType(), StringType()),
}


def cut(*batches, columns=COLUMNS, taken=NOON):
    schema = StructType([StructField(name, type_) for name, type_ in columns.items()])
    taken_us = round(taken.timestamp() * 1_000_000)
    decoder = SegmentDecoder(
        schema, Shape(), open_envelope=lambda sealed: sealed, taken_us=taken_us
    )
    return [row for batch in decoder.decode(batches) for row in batch.to_pylist()]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
messages = st.one_of(
    st.none(),
    st.tuples(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
        json_values,
        st.none()
        | st.dictionaries(st.sampled_from(["a", "data", 'q"']), st.text(max_size=4), min_size=1),
        st.sampled_from([None, -1, 1]),
    ),
)


@given(st.lists(st.lists(messages, min_size=1, max_size=5), min_size=1, max_size=4))
def test_rows_are_the_messages_that_are_neither_deleted_nor_expired(lots):
    def stored(message):
        if message is None:
            return b"null"
        name, payload, headers, life_s = message
        expires_at = None if life_s is None else NOON + timedelta(seconds=life_s)
        return envelope(json.dumps(payload), name, headers=headers, expires_at=expires_at)

    found = cut(segments(*([stored(each) for each in lot] for lot in lots), first=5))

    assert [
        (row["partition"], row["offset"], row["message_id"], row["transaction_id"],
         row["payload"], dict(row["headers"]) if row["headers"] else None)
        for row in found
    ] == [
        (f"p{partition}", 5 + index, message_id(partition, 5 + index), each[0], json.dumps(each[1]),
        each[2]) for partition, lot in enumerate(lots) for index, each in enumerate(lot) if each is
        not None and each[3] != -1
    ]  # fmt: skip


def test_ids_are_right_also_where_their_heads_change():
    first = OFFSET_LOW_BITS - 1
    found = cut(segments([envelope(str(n)) for n in range(4)], first=first))

    assert [row["message_id"] for row in found] == [message_id(0, first + n) for n in range(4)]


def test_headers_are_texts_whatever_they_were():
    headers = {"text": "a", "number": 1.5, "whole": 2, "flag": True, "none": None}
    (row,) = cut(segments([envelope("1", headers=headers)]))

    assert dict(row["headers"]) == {
        "text": "a", "number": "1.5", "whole": "2", "flag": "true", "none": None,
    }  # fmt: skip


def test_nothing_comes_of_nothing():
    assert cut() == []
    assert cut(segments([b"null", b"null"])) == []


def test_nested_payloads_become_nested_values():
    data_type = StructType(
        [
            StructField("lines", ArrayType(StructType([StructField("n", LongType())]))),
            StructField("tags", MapType(StringType(), ArrayType(LongType()))),
            StructField("price", DecimalType(10, 2)),
        ]
    )
    payload = '{"lines": [{"n": 1, "x": 2}, null], "tags": {"a": [1]}, "price": "1.50", "more": 1}'

    found = cut(
        segments([envelope(payload), envelope("null"), envelope("{}")]),
        columns={"payload": data_type},
    )

    first, second, third = (row["payload"] for row in found)
    assert first["lines"] == [{"n": 1}, None]
    assert first["tags"] == [("a", [1])]
    assert str(first["price"]) == "1.50"
    assert second is None
    assert set(third.values()) == {None}


def test_a_type_that_json_does_not_have_is_refused():
    with pytest.raises(InvalidColumns, match="cannot be read as"):
        payload_decoder(StructType([StructField("a", NullType())]))
    with pytest.raises(InvalidColumns, match="cannot be read as map"):
        payload_decoder(MapType(LongType(), StringType()))


@pytest.mark.parametrize(
    ("data_type", "payload"),
    [
        (ByteType(), "128"),
        (ShortType(), "-32769"),
        (IntegerType(), "2147483648"),
        (LongType(), str(2**63)),
        (DecimalType(4, 2), "123.4"),
        (DecimalType(4, 2), "1e400"),
        (LongType(), '"1"'),
        (TimestampType(), '"yesterday"'),
        (StructType([StructField("a", LongType())]), "[]"),
    ],
)
def test_a_payload_that_its_type_cannot_hold_is_an_error_of_that_message(data_type, payload):
    batch = segments([envelope("null", "good"), envelope(payload, "bad")])

    with pytest.raises(MalformedPayload, match=r"transaction id 'bad'.*payloadErrors"):
        cut(batch, columns={"payload": data_type})


@pytest.mark.parametrize(
    ("data_type", "payload", "value"),
    [
        (IntegerType(), "2147483647", 2147483647),
        (DecimalType(4, 2), "1.234", Decimal("1.23")),
        (TimestampType(), '"2026-01-01T13:00:00+01:00"', NOON),
        (DateType(), '"2026-01-01"', NOON.date()),
        (ArrayType(DecimalType(4, 2)), '["1", null]', [Decimal("1.00"), None]),
    ],
)
def test_a_payload_becomes_a_value_of_its_type(data_type, payload, value):
    (row,) = cut(segments([envelope(payload)]), columns={"payload": data_type})

    assert row["payload"] == value
