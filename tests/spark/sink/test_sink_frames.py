"""What Spark's writer gets: no null maps, which cost it the square of their number."""

import pytest
from pyspark.sql.types import LongType, MapType, StringType

from skep.spark.pipelines.frames import as_messages
from skep.spark.sink.columns import without_null_headers

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("value", "type_"), [("x", StringType()), (7, LongType())])
def test_rows_without_headers_get_an_empty_map_and_the_others_keep_theirs(spark, value, type_):
    rows = [("1", None), ("2", {"h": value}), ("3", {})]
    headers = MapType(StringType(), type_)
    schema = f"payload string, headers {headers.simpleString()}"
    frame = spark.createDataFrame(rows, schema)

    mended = without_null_headers(frame)

    assert [tuple(row) for row in mended.collect()] == [("1", {}), ("2", {"h": value}), ("3", {})]
    assert mended.schema["headers"].dataType == headers


@pytest.mark.parametrize("columns", [["payload"], ["payload", "null as headers"]])
def test_frames_that_have_no_column_of_maps_are_left_alone(spark, columns):
    frame = spark.createDataFrame([("1",)], "payload string").selectExpr(*columns)

    assert without_null_headers(frame) is frame


@pytest.mark.parametrize("partition", [None, "'a'"])
def test_a_pipeline_hands_on_messages_without_null_headers(spark, partition):
    rows = [("1", None), ("2", {"h": "x"})]
    frame = spark.createDataFrame(rows, "payload string, headers map<string,string>")

    messages = as_messages(frame, partition)

    assert [row.headers for row in messages.collect()] == [{}, {"h": "x"}]
