"""DataFrames written into queues."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import AnalysisException, PythonException
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
    return [(queue, lane, json.loads(text)) for queue, lane, text in writer.rows(MESSAGES)]


def data_of(writer):
    return [envelope["data"] for _, _, envelope in stored(writer)]


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
    assert writer.value("select count(*) from skep.staged_segment") == 0
