"""DataFrames written into queues."""

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

MESSAGES = """
  select q.name, p.name, m.envelope::text
  from skep.segment s
  join skep.partition p on p.id = s.partition_id
  join skep.queue q on q.id = s.queue_id
  cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
    with ordinality m(envelope, position)
  order by q.name, p.name, s.first, m.position
"""


@pytest.fixture
def save(spark, database_url):
    """Write a DataFrame into this test's log."""

    def save(frame, **options):
        writer = frame.write.format("skep").mode("append")
        writer.option("url", database_url).options(**options).save()

    return save


def stored(writer):
    """Return what is in the log: (queue, partition, envelope)."""
    return [
        (queue, partition, json.loads(text)) for queue, partition, text in writer.rows(MESSAGES)
    ]


def data_of(writer):
    return [envelope["data"] for _, _, envelope in stored(writer)]


def staged_rows(writer):
    tables = ("staged_segment", "staged_message", "staged_reject")
    bodies = writer.value("select count(*) from skep.segment where partition_id < 0")
    return bodies + sum(writer.value(f"select count(*) from skep.{table}") for table in tables)


def test_rows_become_messages_with_all_their_columns(save, spark, writer):
    frame = spark.createDataFrame(
        [
            ("orders", "a", "tx-1", '{"n":  1}', {"x": "1", "data": "y"}),
            ("orders", None, None, "[2]", None),
        ],
        "queue string, partition string, transaction_id string, payload string, "
        "headers map<string,string>",
    ).coalesce(1)

    save(frame)

    (_, _, second), (_, _, first) = stored(writer)
    assert first == {
        "transactionId": "tx-1",
        "traceId": None,
        "producerSub": None,
        "headers": {"x": "1", "data": "y"},
        "data": {"n": 1},
    }
    assert second["data"] == [2]
    assert second["transactionId"].startswith("spark:")
    assert [row[:2] for row in stored(writer)] == [("orders", "Default"), ("orders", "a")]
    assert writer.rows("select messages, duplicates, is_passing from skep.sink") == [(2, 0, True)]
    assert staged_rows(writer) == 0


def test_payloads_of_any_type_are_read_back_as_they_were_written(save, load, spark):
    frame = spark.sql(
        "select named_struct('n', id, 'name', concat('a\"', id), 'at', timestamp_millis(id), "
        "'tags', array('x', null), 'more', map('k', id / 2), 'price', cast(id as decimal(10,2))) "
        "as payload from range(3)"
    )
    save(frame, queue="orders")

    found = load(f"payload {frame.schema['payload'].dataType.simpleString()}", queue="orders")

    assert sorted(found.collect()) == sorted(frame.collect())


def test_what_was_read_can_be_written_into_another_queue(save, load, writer):
    writer.push({"n": 1}, {"n": 2}, queue="first", partition="p")
    columns = ("partition", "transaction_id", "payload", "headers")

    save(load(queue="first").select(*columns), queue="second")

    before, after = (
        [row[1:] for row in stored(writer) if row[0] == queue] for queue in ("first", "second")
    )
    assert before == after


@pytest.mark.slow
def test_a_hundred_thousand_rows_come_whole_and_in_order(save, spark, writer):
    rows = 100_000
    frame = spark.range(0, rows, numPartitions=3).select(
        (f.col("id") % 7).cast("string").alias("partition"),
        f.concat(f.lit("t"), "id").alias("transaction_id"),
        f.struct("id").alias("payload"),
    )

    save(frame, queue="orders")

    by_partition = {}
    for _, partition, envelope in stored(writer):
        by_partition.setdefault(partition, []).append(envelope["data"]["id"])
    assert by_partition == {str(n): list(range(n, rows, 7)) for n in range(7)}
    assert writer.value("select messages from skep.sink") == rows


def test_a_task_that_fails_when_half_is_staged_and_is_repeated_writes_its_rows_once(
    save, spark, writer
):
    # The first attempt to stage messages for later meets a server that shuts down.
    writer.execute(
        """
        create sequence attempts;
        create function stumble() returns trigger language plpgsql as $$
        begin
          if nextval('attempts') = 1 then
            raise exception using errcode = '57P01', message = 'shutting down';
          end if;
          return null;
        end $$;
        create trigger stumble after insert on skep.staged_message
          for each statement execute function stumble();
        """
    )
    frame = spark.range(0, 20, numPartitions=2).select(
        f.col("id").cast("string").alias("payload"),
        f.expr("if(id % 2 = 0, null, now() + interval '1' hour)").alias("deliver_at"),
    )

    save(frame, queue="orders")

    assert writer.value("select last_value from attempts") == 3
    assert data_of(writer) == list(range(0, 20, 2))
    assert writer.value("select count(*) from skep.scheduled") == 10
    assert staged_rows(writer) == 0


def test_a_program_that_says_which_write_it_is_writes_once(save, spark, writer):
    frame = spark.createDataFrame([("1",)], "payload string")
    version = {"queue": "orders", "txnAppId": "nightly"}

    for number in ("1", "1", "2"):
        save(frame, txnVersion=number, **version)

    assert data_of(writer) == [1, 1]
    assert writer.rows("select write_id, epoch, is_passing from skep.sink") == [
        ("nightly", 2, False)
    ]


def test_one_version_may_be_written_to_several_queues(save, spark, writer):
    frame = spark.createDataFrame([("1", "third")], "payload string, queue string")
    version = {"txnAppId": "nightly", "txnVersion": "1"}

    for _ in range(2):
        save(frame.select("payload"), queue="orders", **version)
        save(frame.select("payload"), queue="second", **version)
        save(frame, **version)

    assert writer.rows("select target, messages from skep.sink order by target") == [
        ("queue:orders", 1), ("queue:second", 1), ("rows", 1)
    ]  # fmt: skip
    assert len(data_of(writer)) == 3


def test_rejects_end_the_write_with_a_cause_a_person_can_read(save, spark, writer):
    frame = spark.createDataFrame([("1",), ("{",)], "payload string").coalesce(1)

    with pytest.raises(AnalysisException, match="RejectedRows: at least 1 rows cannot be stored"):
        save(frame, queue="orders")
    assert (data_of(writer), staged_rows(writer)) == ([], 0)

    save(frame, queue="orders", onError="dead-letter")
    assert data_of(writer) == [1]
    assert writer.rows("select rejected, messages from skep.sink") == [(1, 1)]


def test_an_empty_frame_is_no_error(save, spark, writer):
    save(spark.createDataFrame([], "payload string"), queue="orders")

    assert data_of(writer) == []


def test_what_cannot_be_written_is_refused_before_any_task_runs(save, spark, database_url):
    frame = spark.createDataFrame([("1",)], "payload string")

    with pytest.raises(AnalysisException, match="InvalidColumns: say where"):
        save(frame)
    with pytest.raises(AnalysisException, match="did you mean queue"):
        save(frame, qeue="orders")
    with pytest.raises(AnalysisException, match="CannotOverwrite: A log is appended to"):
        frame.write.format("skep").mode("overwrite").option("url", database_url).save("orders")
