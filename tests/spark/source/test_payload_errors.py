"""Messages that do not fit the schema of a reader: dead letters, or rows with a text."""

import json

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from skep.spark.source.columns import CORRUPT_RECORD
from skep.spark.source.readers import SkepStreamReader
from tests.spark.support.archives import Shop, run_tasks
from tests.spark.support.logs import envelope
from tests.spark.support.queries import Query

PAYLOAD = StructField("payload", StructType([StructField("id", IntegerType())]))


@pytest.fixture
def shop(database_url, tmp_path, writer):
    return Shop(database_url, tmp_path / "lake", writer)


def letters(shop):
    query = (
        "select message_offset, transaction_id, error, envelope::text from skep.dead_letter"
        " order by message_offset"
    )
    return shop.writer.rows(query)


def ids(rows):
    return [row["payload"]["id"] for row in rows]


@pytest.mark.parametrize("tier", ["live", "archive"])
def test_what_does_not_fit_is_left_out_and_kept_as_a_dead_letter_once(shop, tier):
    past = "(clock_timestamp() - interval '2 hours')::text"
    shop.writer.value(f"select set_config('skep.fake_now', {past}, false)")
    bad = envelope('{"id": "x"}', "bad", headers={"a": "b"}, producer="me")
    # The second segment is decoded message by message: a payload has the text that ends others.
    shop.writer.push_envelopes(envelope('{"id": 1}'), bad, envelope('{"id": 2}'))
    odd = envelope('{"id": [{"a":1},{"transactionId":"x"}]}', "odd")
    shop.writer.push_envelopes(envelope('{"id": 3}'), odd)
    shop.writer.value("select set_config('skep.fake_now', '', false)")
    shop.archive()
    schema = StructType([PAYLOAD])

    for _ in range(2):
        found = shop.rows(schema, tier=tier, payloadErrors="dead-letter")
        assert ids(found) == [1, 2, 3]

    first, second = letters(shop)
    assert first[:2] == (2, "bad")
    assert "the schema of a reader on Spark: Expected `int | null`, got `str`" in first[2]
    assert json.loads(first[3]) == json.loads(bad)
    assert second[:2] == (5, "odd")


def test_a_stream_goes_on_behind_a_message_that_does_not_fit(shop):
    shop.writer.push({"id": 1}, {"id": "x"})
    query = Query(shop.url, payloadErrors="dead-letter")
    query.reader = SkepStreamReader(query.options, StructType([PAYLOAD]))
    query.start = query.reader.initialOffset()

    def step():
        end = query.plan()
        rows = run_tasks(query.reader, query.reader.partitions(query.start, end))
        again = run_tasks(query.reader, query.reader.partitions(query.start, end))
        assert [each.to_pylist() for each in again] == [each.to_pylist() for each in rows]
        query.start = end
        return ids(row for batch in rows for row in batch.to_pylist())

    assert step() == [1]
    shop.writer.push({"id": 2})
    assert step() == [2]
    assert [letter[0] for letter in letters(shop)] == [2]


@pytest.mark.parametrize("chosen", ["fail", "null"])
def test_a_column_has_the_payloads_that_do_not_fit(shop, chosen):
    shop.writer.push({"id": 1}, {"id": "x"})
    schema = StructType([StructField(CORRUPT_RECORD, StringType()), PAYLOAD])

    found = shop.rows(schema, payloadErrors=chosen)

    assert [(row["payload"], row[CORRUPT_RECORD]) for row in found] == [
        ({"id": 1}, None),
        (None, '{"id": "x"}'),
    ]
    assert letters(shop) == []
