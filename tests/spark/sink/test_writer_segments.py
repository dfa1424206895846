"""Rows become segments in the very layout that a push stores, sorted by partition and in order."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.model.encryption import KeyRing
from skep.model.encryption_key import EncryptionKey
from skep.model.envelopes import build_envelope
from skep.spark.sink.rows import CHECKED, Reject
from skep.spark.sink.rules import QueueRules
from skep.spark.sink.segments import (
    SEGMENT_BYTES,
    Place,
    SegmentMaker,
)

RING = KeyRing([EncryptionKey("k", bytes(32))])
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLACE = Place("write", 7, 3, 11, NOON)


def maker(rules=None):
    rules = rules or {}
    return SegmentMaker(
        PLACE,
        hash_seed=42,
        rules_of=lambda queue: rules.get(queue, QueueRules()),
        seal=RING.seal_envelope,
    )


def rows_of(*rows):
    """Rows as (queue, partition, id, payload), perhaps with more."""
    names = ("queue", "partition", "transaction_id", "payload", "headers", "is_made_up")
    columns = {name: [] for name in CHECKED.names}
    for row in rows:
        given = dict(zip(names, row, strict=False))
        for name in CHECKED.names:
            columns[name].append(given.get(name, False if name == "is_made_up" else None))
    return pa.RecordBatch.from_pydict(columns, schema=CHECKED)


def segments_of(rows, rules=None):
    """Return the segments made of rows, with what is known of them."""
    known, segments = maker(rules).segments(rows)
    return [
        before | {name: row[name] for name in ("keys", "body")}
        for before, row in zip(known.to_pylist(), segments.to_pylist(), strict=True)
    ]


def test_a_segment_has_the_envelopes_and_keys_of_a_push():
    (segment,) = segments_of(
        rows_of(
            ("q", "p", 'say "x"', '{"a":  1}', None),
            ("q", "p", "ü", "null", '{"h":"1", "data":2}'),
        )
    )

    first = build_envelope('say "x"', b'{"a":  1}')
    second = build_envelope("ü", b"null", headers={"h": "1", "data": 2})
    assert segment == {
        "write_id": "write",
        "epoch": 7,
        "task": 3,
        "attempt": 11,
        "target": "",
        "number": 0,
        "queue": "q",
        "partition": "p",
        "staged_at": NOON,
        "messages": 2,
        "is_unique": False,
        "is_sealed": False,
        "schema_digest": None,
        "keys": b"".join(xxhash.xxh3_128_digest(t.encode(), 42) for t in ('say "x"', "ü")),
        "body": b"[" + first + b"," + second + b"]",
    }


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=40))
def test_rows_are_sorted_by_partition_and_stay_in_order(partitions):
    rows = [(queue, partition, f"t{n}", str(n)) for n, (queue, partition) in enumerate(partitions)]

    segments = segments_of(rows_of(*rows))

    found = {(each["queue"], each["partition"]): each for each in segments}
    assert len(found) == len(segments) == len(set(partitions))
    for partition, segment in found.items():
        expected = [build_envelope(row[2], row[3].encode()) for row in rows if row[:2] == partition]
        assert segment["body"] == b"[" + b",".join(expected) + b"]"
        assert segment["messages"] == len(segment["keys"]) // 16 == len(expected)


def test_segments_end_when_they_have_enough_bytes():
    large = [("q", "z", f"l{n}", f'"{"x" * (SEGMENT_BYTES // 4)}"') for n in range(9)]

    found = segments_of(rows_of(*large))

    assert [each["messages"] for each in found] == [4, 4, 1]
    assert [each["number"] for each in found] == [0, 1, 2]


def test_numbers_go_on_from_flush_to_flush():
    made = maker()

    found = [made.segments(rows_of(("q", "p", "a", "1"))) for _ in "ab"]

    assert [known.column("number").to_pylist() for known, _ in found] == [[0], [1]]


def test_segments_wait_at_addresses_that_no_reader_asks_for():
    known, segments = maker().segments(rows_of(("q", "a", "1", "1"), ("q", "b", "2", "2")))

    rows = segments.drop_columns(["keys", "body"]).to_pylist()
    shared = {"partition_id": -11, "queue_id": 0, "created_at": NOON}
    assert rows == [{"first": n, "last": n, **shared} for n in known.column("number").to_pylist()]


def test_a_segment_is_unique_when_all_its_ids_were_made_up():
    segments = segments_of(
        rows_of(
            ("q", "a", "1", "1", None, True),
            ("q", "a", "2", "1", None, True),
            ("q", "b", "3", "1", None, True),
            ("q", "b", "4", "1", None, False),
        )
    )

    assert [each["is_unique"] for each in segments] == [True, False]


def test_payloads_of_encrypted_queues_are_sealed_and_no_others():
    rules = {"secret": QueueRules(is_encrypted=True, schema_digest="abc")}

    clear, secret = segments_of(
        rows_of(("clear", "p", "1", '"tea"'), ("secret", "p", "2", '"tea"')), rules
    )

    assert (clear["is_sealed"], secret["is_sealed"]) == (False, True)
    assert (clear["schema_digest"], secret["schema_digest"]) == (None, "abc")
    assert b"tea" in clear["body"]
    assert b"tea" not in secret["body"]
    assert RING.open_envelope(secret["body"][1:-1]) == build_envelope("2", b'"tea"')


def test_a_message_for_later_is_staged_alone():
    due = datetime(2026, 5, 1, tzinfo=UTC)
    rows = rows_of(("q", "p", "a", "1"), ("q", "p", "b", "2"))
    moments = pa.array([due, due], CHECKED.field("deliver_at").type)
    rows = rows.set_column(rows.schema.get_field_index("deliver_at"), "deliver_at", moments)

    first, second = maker().messages_for_later(rows).to_pylist()

    assert first["key"] == xxhash.xxh3_128_digest(b"a", 42)
    assert second["envelope"] == build_envelope("b", b"2")
    assert (second["transaction_id"], second["deliver_at"], second["number"]) == ("b", due, 1)


def test_a_reject_of_an_encrypted_queue_is_sealed_too():
    rules = {"secret": QueueRules(is_encrypted=True)}
    reject = Reject(0, "bad", "secret", "Default", "t", b'"tea"')

    (row,) = maker(rules).dead_letters([reject]).to_pylist()

    assert row["is_sealed"]
    assert RING.open_envelope(row["envelope"]) == build_envelope("t", b'"tea"')
    assert (row["error"], row["transaction_id"]) == ("bad", "t")


def test_ten_thousand_partitions_are_ten_thousand_segments():
    names = np.arange(10_000).astype(str)
    rows = rows_of(*(("q", name, f"t{name}", name) for name in names))

    known, segments = maker().segments(rows)

    assert known.num_rows == segments.num_rows == 10_000


@settings(deadline=None)
@given(st.data())
def test_rows_of_several_queues_with_odd_ids_and_headers_are_stored_as_a_push_stores_them(data):
    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
    row = st.tuples(
        st.sampled_from(["q", "r", "s"]),
        st.sampled_from(["x", "y"]),
        names,
        st.sampled_from(["1", '"},{\\"a"', "[{}]"]),
        st.sampled_from([None, '{"h":"1", "data":2}']),
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=30))

    segments = segments_of(rows_of(*rows))

    for segment in segments:
        mine = [row for row in rows if row[:2] == (segment["queue"], segment["partition"])]
        headers = {None: None, '{"h":"1", "data":2}': {"h": "1", "data": 2}}
        expected = [
            build_envelope(name, payload.encode(), headers=headers[given])
            for _, _, name, payload, given in mine
        ]
        assert segment["body"] == b"[" + b",".join(expected) + b"]"
        assert segment["keys"] == b"".join(
            xxhash.xxh3_128_digest(name.encode(), 42) for _, _, name, _, _ in mine
        )
    assert sum(segment["messages"] for segment in segments) == len(rows)
