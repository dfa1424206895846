"""Jobs that write once, by name: what they hand to Spark's writer."""

import pytest
from pyspark.sql.types import LongType, MapType, StringType

from skep.spark import transfer_jobs
from skep.spark.transfer_jobs import Outcome, without_null_headers, write_once

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


def test_what_a_job_writes_has_no_null_headers(spark, writer, database_url, monkeypatch):
    writer.lane("again")
    handed_on = []

    def observed(frame):
        handed_on.append(without_null_headers(frame).where("headers is null").count())
        return without_null_headers(frame)

    monkeypatch.setattr(transfer_jobs, "without_null_headers", observed)
    frame = spark.createDataFrame(
        [("1", None), ("2", {"h": "x"})], "payload string, headers map<string,string>"
    )

    done = write_once(frame, {"url": database_url, "queue": "again"}, "a job", lambda _: None)

    assert (handed_on, done._replace(committed_at=None)) == ([0], Outcome(False, messages=2))
    bodies = writer.rows("select convert_from(body, 'UTF8') from skep.segment")
    assert "".join(body for (body,) in bodies).count('"headers"') == 1
