"""Streams written into queues, exactly once whoever dies."""

import json

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f


@pytest.fixture
def start(spark, database_url, tmp_path):
    """Copy what is new in the queue `source` to the queue `sink`, through a checkpoint."""

    def start(transform=lambda frame: frame, name="checkpoint", **options):
        source = spark.readStream.format("skep").option("url", database_url)
        frame = source.option("queue", "source").option("maxMessagesPerTrigger", "2").load()
        writing = transform(frame.select("partition", "payload")).writeStream.format("skep")
        writing = writing.options(**{"url": database_url, "queue": "sink"} | options)
        checkpoint = writing.option("checkpointLocation", str(tmp_path / name))
        return checkpoint.trigger(availableNow=True).start()

    return start


def finish(query):
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    return query


@pytest.fixture
def run(start):
    """Do so until there is nothing new."""
    return lambda *arguments, **options: finish(start(*arguments, **options))


def copied(writer):
    rows = writer.rows(
        "select convert_from(s.body, 'UTF8') from skep.segment s join skep.queue q"
        " on q.id = s.queue_id where q.name = 'sink' order by s.partition_id, s.first"
    )
    return [message["data"] for (body,) in rows for message in json.loads(body)]


def forget_last_commit(checkpoint):
    """Leave the checkpoint as a driver does that dies before it notes that a batch is done."""
    commits = [path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_a_driver_that_dies_between_the_two_commits_repeats_a_batch_without_a_trace(
    run, writer, tmp_path
):
    for number in range(5):
        writer.push(number, queue="source")
    query = run()
    assert copied(writer) == [0, 1, 2, 3, 4]
    before = writer.rows("select epoch, messages from skep.sink")

    forget_last_commit(tmp_path / "checkpoint")
    run()

    assert copied(writer) == [0, 1, 2, 3, 4]
    assert writer.rows("select epoch, messages from skep.sink") == before
    writer.push(5, queue="source")
    again = run()
    assert copied(writer) == [0, 1, 2, 3, 4, 5]
    assert again.id == query.id
    assert writer.rows("select write_id from skep.sink") == [(str(query.id),)]


def test_a_batch_that_was_staged_and_not_committed_is_written_when_it_is_repeated(
    run, writer, tmp_path
):
    writer.push(1, queue="source")
    writer.execute(
        "alter table skep.segment add constraint never check (partition_id < 2) not valid"
    )

    with pytest.raises(StreamingQueryException, match="PostgreSQL refused a statement"):
        run()
    writer.execute("alter table skep.segment drop constraint never")
    run()

    assert copied(writer) == [1]
    assert writer.value("select count(*) from skep.staged_segment") == 0
    assert writer.value("select count(*) from skep.segment where partition_id < 0") == 0


def test_rejects_of_a_stream_can_become_dead_letters(run, writer):
    writer.push(1, "two", queue="source")
    writer.partition("sink")
    schema = """update skep.queue set json_schema = '{"type": "integer"}' where name = 'sink'"""
    writer.execute(schema)

    with pytest.raises(StreamingQueryException, match="RejectedRows: at least 1 rows"):
        run(name="strict")
    run(name="lenient", onError="dead-letter")

    assert copied(writer) == [1]
    assert writer.value("select count(*) from skep.dead_letter") == 1


def test_a_window_is_written_as_structs(run, writer):
    for number in range(4):
        writer.push(number, queue="source", partition=str(number % 2))

    run(
        lambda frame: frame.select(
            "partition", f.struct((f.col("payload").cast("int") * 10).alias("n")).alias("payload")
        )
    )

    assert copied(writer) == [{"n": 0}, {"n": 20}, {"n": 10}, {"n": 30}]


@pytest.mark.slow
def test_two_streams_into_the_same_new_partitions_at_once_both_get_through(start, writer):
    for number in range(20):
        writer.push(number, queue="source", partition=str(number % 10))

    for query in [start(name="one"), start(name="two")]:
        finish(query)

    assert sorted(copied(writer)) == sorted([*range(20), *range(20)])
    assert writer.rows("select messages from skep.sink") == [(20,), (20,)]
