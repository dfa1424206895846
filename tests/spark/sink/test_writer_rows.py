"""Rows are checked a batch at a time; what cannot be stored is told apart, with its reason."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from skep.model.limits import SCHEDULE_SECONDS_MAX
from skep.spark.sink.options import WriteOptions
from skep.spark.sink.rows import EXCERPT_CHARS, RowChecker

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def checker(validators=None, **options):
    options = {"url": "postgresql://x", "message_bytes_max": 100_000, "queue": "hive"} | options
    return RowChecker(
        WriteOptions(**options), id_prefix="spark:w:0:3:", validators=validators, now=NOON
    )


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def texts(*values):
    return pa.array(values, pa.string())


def errors_of(rejects):
    return [(reject.row, reject.error) for reject in rejects]


def test_what_is_missing_gets_its_default_and_a_transaction_id_that_a_retry_makes_up_again():
    for _ in range(2):
        check = checker().check
        rows, rejects = check(batch(payload=texts("1", None)))
        more, _ = check(
            batch(
                payload=texts("3", "4"),
                queue=texts("other", ""),
                partition=texts("a", None),
                transaction_id=texts("mine", ""),
            )
        )

        assert rejects == []
        assert rows.to_pydict() == {
            "queue": ["hive", "hive"],
            "partition": ["Default", "Default"],
            "transaction_id": ["spark:w:0:3:0", "spark:w:0:3:1"],
            "is_made_up": [True, True],
            "payload": ["1", "null"],
            "headers": [None, None],
            "deliver_at": [None, None],
        }
        assert more.column("queue").to_pylist() == ["other", "hive"]
        assert more.column("transaction_id").to_pylist() == ["mine", "spark:w:0:3:3"]
        assert more.column("is_made_up").to_pylist() == [False, True]


def test_each_row_that_cannot_be_stored_is_told_with_its_reason_and_the_others_go_on():
    rows, rejects = checker(queue=None, message_bytes_max=10).check(
        batch(
            queue=texts("q", None, "n" * 256, "a\0b", "q", "q", "q", "q"),
            partition=texts("p", "p", "p", "p", "p" * 256, "p", "p", "p"),
            transaction_id=texts("1", "2", "3", "4", "5", "t" * 256, "7", "8"),
            payload=texts("1", "2", "3", "4", "5", "6", '"' + "x" * 10 + '"', "{"),
        )
    )

    assert rows.column("transaction_id").to_pylist() == ["1"]
    assert errors_of(rejects) == [
        (1, "queue is null"),
        (2, "queue is longer than 255 characters"),
        (3, "queue contains a NUL character"),
        (4, "partition is longer than 255 characters"),
        (5, "transaction_id is longer than 255 characters"),
        (6, "payload is larger than 10 bytes"),
        (7, "payload is not JSON: Input data was truncated"),
    ]
    assert [reject.queue for reject in rejects[:3]] == [None] * 3
    assert rejects[3].partition == "Default"
    assert rejects[4].transaction_id == "spark:w:0:3:5"
    assert str(rejects[0]) == "row 1 (no queue, transaction id '2'): queue is null"


@pytest.mark.parametrize(
    "payload", ["", "{", "1,2", "[1", "1]", "NaN", '"\n"', "'x'", '"\\ud800"', "[" * 5000, "01"]
)
def test_text_that_is_no_json_is_refused_and_kept_as_a_string(payload):
    _, (reject,) = checker().check(batch(payload=texts(payload)))

    assert reject.error.startswith("payload is not JSON: ")
    assert json.loads(reject.payload) == payload


def test_neighbours_cannot_pass_each_other_off_as_json():
    rows, rejects = checker().check(batch(payload=texts("1,2", "[3", "4]")))

    assert (rows.num_rows, len(rejects)) == (0, 3)


def test_of_a_payload_that_is_too_large_the_beginning_is_kept():
    _, (reject,) = checker(message_bytes_max=70_000).check(
        batch(payload=texts(json.dumps("ä" * 70_000)))
    )

    assert len(json.loads(reject.payload)) == EXCERPT_CHARS


def test_strings_can_be_written_as_strings_and_bytes_hold_json():
    rows, _ = checker(payload="text").check(batch(payload=texts('say "x"')))
    assert rows.column("payload").to_pylist() == ['"say \\"x\\""']

    rows, rejects = checker().check(batch(payload=pa.array([b"[1]", b'"\xff"', None])))
    assert rows.column("payload").to_pylist() == ["[1]", "null"]
    assert errors_of(rejects) == [(1, "payload is not text in UTF-8")]


def test_text_that_is_not_utf_8_is_refused_wherever_it_stands():
    broken = pa.array([b"ok", b"\xff"]).view(pa.string())
    payload = pa.StructArray.from_arrays([broken], ["name"])

    rows, rejects = checker().check(batch(payload=payload))
    assert rows.column("payload").to_pylist() == ['{"name":"ok"}']
    assert errors_of(rejects) == [(1, "payload is not text in UTF-8")]

    _, rejects = checker().check(batch(payload=texts("1", "2"), partition=broken))
    assert errors_of(rejects) == [(1, "partition is not text in UTF-8")]


def test_headers_are_spelled_as_envelopes_have_them():
    headers = pa.array([[("a", "1"), ("data", None)], [], None], pa.map_(pa.string(), pa.string()))

    rows, _ = checker().check(batch(payload=texts("1", "2", "3"), headers=headers))

    assert rows.column("headers").to_pylist() == ['{"a":"1", "data":null}', None, None]


def test_rows_without_any_headers_have_none():
    headers = pa.array([[], None], pa.map_(pa.string(), pa.string()))

    rows, _ = checker().check(batch(payload=texts("1", "2"), headers=headers))

    assert rows.column("headers").to_pylist() == [None, None]


def test_too_many_and_too_large_headers_are_refused():
    many = [(f"h{number}", "") for number in range(65)]
    headers = pa.array([many, [("a", "x" * 9000)]], pa.map_(pa.string(), pa.string()))

    _, rejects = checker().check(batch(payload=texts("1", "2"), headers=headers))

    assert errors_of(rejects) == [
        (0, "more than 64 headers"),
        (1, "headers are larger than 8192 bytes"),
    ]


def test_a_message_may_wait_for_a_year_and_no_longer():
    year = NOON + timedelta(seconds=SCHEDULE_SECONDS_MAX)
    moments = pa.array([year, year + timedelta(seconds=1), None], pa.timestamp("us", "UTC"))

    rows, rejects = checker().check(batch(payload=texts("1", "2", "3"), deliver_at=moments))

    assert rows.column("deliver_at").to_pylist() == [year, None]
    assert errors_of(rejects) == [(1, "deliver_at is more than a year ahead")]


def test_a_queue_with_a_schema_refuses_what_does_not_follow_it():
    validators = {"hive": lambda payload: None if payload == b"1" else "not one"}

    rows, rejects = checker(validators).check(
        batch(payload=texts("1", "2", "2", "{"), queue=texts("hive", "hive", "other", "hive"))
    )

    assert rows.column("queue").to_pylist() == ["hive", "other"]
    assert [error for _, error in errors_of(rejects)] == [
        "not one",
        "payload is not JSON: Input data was truncated",
    ]
