"""The data source as a stream inside Spark: what the reader's own tests cannot show."""

import json
from contextlib import contextmanager

import pytest
from pyspark.errors import StreamingQueryException

TIMEOUT_S = 100


@pytest.fixture
def stream(spark, database_url, tmp_path):
    """Run a streaming query over this test's log to its end; return what each batch brought."""

    def run(checkpoint="checkpoint", progress=None, **options):
        batches = []
        reader = spark.readStream.format("skep").option("url", database_url).options(**options)
        with started(
            reader.load()
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .foreachBatch(lambda frame, _: batches.append(found(frame)))
        ) as query:
            assert query.awaitTermination(TIMEOUT_S)
            if progress is not None:
                progress += [json.loads(each.json)["sources"][0] for each in query.recentProgress]
        return batches

    return run


@contextmanager
def started(writer):
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def found(frame):
    return sorted(json.loads(row.payload) for row in frame.select("payload").collect())


def test_a_query_goes_on_from_its_checkpoint_in_limited_batches(stream, writer, tmp_path):
    for number in range(5):
        writer.push(number)

    shown = []
    limits = {"maxMessagesPerTrigger": "2", "consumerGroup": "billing"}
    first = stream(queue="orders", progress=shown, **limits)
    writer.push(5)
    second = stream(queue="orders", **limits)

    assert first == [[0, 1], [2, 3], [4]]
    assert second == [[5]]
    lags = [each["latestOffset"]["behind"]["messages"] for each in shown if each["numInputRows"]]
    assert lags == [3, 1, 0]
    assert all(each["processedRowsPerSecond"] > 0 for each in shown if each["numInputRows"])
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    assert max(path.stat().st_size for path in offsets) < 10_000
    assert writer.value("select count(*) from skep.hold where name = 'billing'") == 1


def test_a_loss_ends_the_query_with_a_cause_a_person_can_read(stream, writer):
    writer.push(1)
    assert stream(queue="orders") == [[1]]
    writer.push(2)
    writer.execute("delete from skep.segment where first = 2")
    writer.push(3)

    with pytest.raises(StreamingQueryException, match="DataLost: messages were removed before"):
        stream(queue="orders")
    assert stream(queue="orders", failOnDataLoss="false") == [[3]]
