"""The data source as a DataFrame."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as f

from skep.model.encryption import KeyRing
from skep.model.encryption_key import EncryptionKey
from skep.model.ids import message_id
from skep.spark.decode.segments import ROWS_PER_BATCH
from tests.spark.support.logs import envelope

KEY = "2b" * 32


def payloads(frame):
    return [json.loads(row.payload) for row in frame.orderBy("partition", "offset").collect()]


def test_every_message_is_a_row_with_all_that_is_known_of_it(load, writer):
    trace = "01890000-0000-7000-8000-000000000001"
    writer.push_envelopes(
        envelope('{"a": 1}', "tx-a", trace_id=trace, producer="me", headers={"x": "1", "n": 2.5}),
        envelope("[1,  2]", "tx-b"),
        queue="facts",
    )
    partition, xid, created_at = writer.rows(
        "select partition_id, xid::text::bigint, created_at from skep.segment"
    )[0]

    rows = load(queue="facts").orderBy("offset").collect()

    shared = {"queue": "facts", "partition": "Default", "xid": xid}
    assert [row.asDict() | {"created_at": None} for row in rows] == [
        {
            **shared,
            "offset": 1,
            "message_id": message_id(partition, 1),
            "transaction_id": "tx-a",
            "payload": '{"a": 1}',
            "headers": {"x": "1", "n": "2.5"},
            "producer": "me",
            "trace_id": trace,
            "created_at": None,
        },
        {
            **shared,
            "offset": 2,
            "message_id": message_id(partition, 2),
            "transaction_id": "tx-b",
            "payload": "[1,  2]",
            "headers": None,
            "producer": None,
            "trace_id": None,
            "created_at": None,
        },
    ]
    assert {row.created_at.replace(tzinfo=UTC) for row in rows} == {created_at}


def test_an_empty_queue_is_an_empty_frame(load, writer):
    writer.partition("empty")

    assert load(queue="empty").collect() == []


def test_queues_are_read_by_list_by_pattern_by_assignment_and_by_path(
    load, spark, writer, database_url
):
    for number, (queue, partition) in enumerate(
        [("orders", "a"), ("orders", "b"), ("orders-eu", "a"), ("other", "a")], start=1
    ):
        writer.push(number, queue=queue, partition=partition)

    def found(**options):
        return sorted(int(row.payload) for row in load(**options).collect())

    assert found(subscribe="orders, other") == [1, 2, 4]
    assert found(subscribePattern="orders.*") == [1, 2, 3]
    assert found(assign='{"orders": ["b"], "other": ["a"]}') == [2, 4]
    by_path = spark.read.format("skep").option("url", database_url).load("orders-eu")
    assert [row.payload for row in by_path.collect()] == ["3"]


def test_a_schema_picks_columns_and_says_how_to_read_the_payload(load, writer):
    writer.push(
        {"id": 7, "at": "2026-01-02T03:04:05Z", "tags": {"a": 1}, "more": [1]}, {"id": None}
    )

    frame = load(
        "payload struct<id:int,at:timestamp,tags:map<string,int>>, offset bigint", queue="orders"
    )

    assert frame.columns == ["payload", "offset"]
    first, second = frame.orderBy("offset").collect()
    assert (first.payload.id, first.payload.tags) == (7, {"a": 1})
    assert first.payload["at"].isoformat() == "2026-01-02T03:04:05"
    assert second.payload.asDict() == {"id": None, "at": None, "tags": None}


TIMES = (
    *("2026-07-01T12:00:00", "2026-07-01T12:00:00Z", "2026-07-01 12:00:00.125+05:30"),
    *("2026-03-29T02:30:00", "2026-10-25T02:30:00"),  # an hour that is not there, one that is twice
)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "-08:00"])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_times_of_payloads_are_read_as_from_json_reads_them(load, writer, spark, zone, kind):
    writer.push(*({"at": text} for text in TIMES))
    usual = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        read = load(
            f"payload struct<at:{kind}>, offset bigint", queue="orders", payloadErrors="null"
        )
        texts = load("payload string, offset bigint", queue="orders")
        parsed = texts.select("offset", f.from_json("payload", f"at {kind}").alias("payload"))
        ours, theirs = (
            dict(frame.selectExpr("offset", "string(payload.at)").collect())
            for frame in (read, parsed)
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", usual)

    assert ours == theirs
    assert list(theirs.values()).count(None) == (2 if kind == "timestamp_ntz" else 0)


def test_a_payload_schema_makes_columns_that_spark_can_use(load, writer):
    writer.push(*({"kind": "ab"[n % 2], "amount": n} for n in range(10)))

    frame = load(queue="orders", payloadSchema="kind STRING, amount BIGINT")
    sums = frame.groupBy("payload.kind").agg(f.sum("payload.amount").alias("sum"))

    assert {row.kind: row["sum"] for row in sums.collect()} == {"a": 20, "b": 25}


def test_a_payload_that_does_not_fit_names_the_message_or_becomes_null(load, writer):
    writer.push({"id": 1}, {"id": "not a number"})
    schema = "payload struct<id:int>, offset bigint"

    with pytest.raises(PythonException, match=r"does not fit the schema of the payload.*\$\.id"):
        load(schema, queue="orders").collect()
    kept = load(schema, queue="orders", payloadErrors="null").orderBy("offset").collect()

    assert [row.payload and row.payload.id for row in kept] == [1, None]


def test_the_shape_of_kafka_is_what_programs_for_kafka_expect(load, writer):
    writer.push_envelopes(envelope('{"a":1}', headers={"h": "x"}), partition="customer-1")

    (row,) = load(queue="orders", shape="kafka", includeHeaders="true").collect()
    (pruned,) = load("key binary, value binary", queue="orders", shape="kafka").collect()

    assert (bytes(row.key), bytes(row.value), row.topic) == (b"customer-1", b'{"a":1}', "orders")
    assert (row.offset, row.timestampType) == (1, 0)
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"x")]
    assert (bytes(pruned.key), bytes(pruned.value)) == (b"customer-1", b'{"a":1}')


def test_a_payload_of_bytes_is_what_was_sent_byte_for_byte(load, writer):
    sent = '{ "nul":"\\u0000", "e": 1e400,"é":"\\ud83d\\ude00" }'
    writer.push_envelopes(envelope(sent))

    (row,) = load(queue="orders", payload="binary").collect()

    assert bytes(row.payload) == sent.encode()


def test_deleted_and_expired_messages_are_left_out_and_offsets_stay(load, writer):
    now = datetime.now(UTC)
    writer.push_envelopes(
        envelope("1"),
        envelope("2"),
        envelope("3", expires_at=now - timedelta(seconds=5)),
        envelope("4", expires_at=now + timedelta(hours=1)),
        b"null",
    )
    writer.value("select skep.delete_message($1, 1)", writer.partition())

    def found(**options):
        frame = load(queue="orders", **options).orderBy("offset")
        return [(row.offset, row.payload) for row in frame.collect()]

    assert found() == [(2, "2"), (4, "4")]
    assert found(includeExpired="true") == [(2, "2"), (3, "3"), (4, "4")]


def test_sealed_messages_are_opened_with_the_keys_of_the_reader(load, writer):
    ring = KeyRing([EncryptionKey("k1", bytes.fromhex(KEY))])
    expires_at = datetime.now(UTC) + timedelta(hours=1)
    sealed = ring.seal_envelope(envelope('{"secret": 1}', headers={"h": "clear"}))
    expiring = ring.seal_envelope(envelope("2", expires_at=expires_at))
    writer.push_envelopes(sealed, expiring, envelope("3"))

    rows = load(queue="orders", encryptionKeys=f"k1:{KEY}").orderBy("offset").collect()

    assert [row.payload for row in rows] == ['{"secret": 1}', "2", "3"]
    assert rows[0].headers == {"h": "clear"}
    with pytest.raises(PythonException, match="encrypted with key 'k1', which this instance"):
        load(queue="orders").collect()


def test_the_log_is_cut_into_as_many_tasks_as_asked_for_and_read_once(load, writer):
    for first in range(0, 100, 10):
        writer.push(*range(first, first + 10), partition=f"p{first % 30}")

    whole = load(queue="orders")
    split = load(queue="orders", minPartitions="5")
    small = load(queue="orders", maxRecordsPerPartition="10")

    assert [each.rdd.getNumPartitions() for each in (whole, split, small)] == [1, 5, 10]
    for frame in (whole, split, small):
        assert sorted(int(row.payload) for row in frame.collect()) == list(range(100))


def test_large_results_come_in_several_batches(load, writer):
    count = ROWS_PER_BATCH * 2 + 5
    for first in range(0, count, 1000):
        writer.push(*range(first, min(first + 1000, count)))

    found = load("offset bigint, payload string", queue="orders", minPartitions="1")

    assert found.count() == count
    assert found.selectExpr("sum(int(payload))").collect()[0][0] == sum(range(count))


def test_times_bound_what_is_read(load, writer):
    writer.execute("select set_config('skep.fake_now', '2026-01-01T12:00:00Z', false)")
    writer.push(1)
    writer.execute("select set_config('skep.fake_now', '2026-01-01T12:00:10Z', false)")
    writer.push(2)
    ten_later = str(int(datetime(2026, 1, 1, 12, 0, 10, tzinfo=UTC).timestamp() * 1000))

    assert payloads(load(queue="orders", startingTimestamp="2026-01-01T12:00:05Z")) == [2]
    assert payloads(load(queue="orders", startingTimestamp=ten_later)) == [2]
    assert payloads(load(queue="orders", endingTimestamp=ten_later)) == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": "orders", "maxMesagesPerTrigger": "5"}, "did you mean maxMessagesPerTrigger"),
        ({"queue": "orders", "minPartitions": "none"}, "minPartitions must be a whole number"),
        ({}, "say which queues to read"),
    ],
)
def test_wrong_options_are_refused_at_load(load, options, message):
    with pytest.raises(AnalysisException, match=message):
        load(**options)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("nonsense string", "there is no column 'nonsense'; the columns are queue, partition"),
        ("offset string", "'offset' is of type bigint, not string"),
        ("payload struct<a:interval>", "cannot be read as"),
    ],
)
def test_a_schema_that_cannot_be_served_is_refused(load, writer, schema, message):
    writer.push({"a": 1})

    with pytest.raises((AnalysisException, PythonException), match=message):
        load(schema, queue="orders").collect()


def test_what_does_not_exist_or_does_not_answer_is_named_with_advice(load, writer, spark):
    writer.push(1)
    for options, message in [
        ({"queue": "nowhere"}, "queue nowhere does not exist: check its name"),
        ({"assign": '{"orders": ["nope"]}'}, "queue orders has no partition nope"),
        ({"queue": "orders", "url": "postgresql://x:y@127.0.0.1:1/z"}, "cannot connect to"),
        ({"queue": "orders", "startingOffsets": "latest"}, "a DataFrame would be empty"),
    ]:
        with pytest.raises(AnalysisException, match=message) as refusal:
            load(**options).collect()
        assert ":y@" not in str(refusal.value)


def test_a_database_without_the_schema_is_told_to_migrate(spark, empty_database_url):
    reader = spark.read.format("skep").option("url", empty_database_url).option("queue", "orders")

    with pytest.raises(AnalysisException, match="run `skep migrate"):
        reader.load().collect()


def test_a_restored_log_is_refused_until_it_is_adopted(load, writer):
    writer.push(1)
    writer.execute("update skep.segment set xid = '999999999999'")

    with pytest.raises(AnalysisException, match="restored from a dump"):
        load(queue="orders").collect()
    writer.execute("select skep.adopt_restored_log()")

    assert payloads(load(queue="orders")) == [1]
