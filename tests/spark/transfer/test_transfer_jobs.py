"""Jobs that write once, by name: what they hand to Spark's writer."""

import pytest

from skep.spark.sink.columns import without_null_headers
from skep.spark.transfer import single_write as transfer_jobs
from skep.spark.transfer.single_write import Outcome, write_once

pytestmark = pytest.mark.slow


def test_what_a_job_writes_has_no_null_headers(spark, writer, database_url, monkeypatch):
    writer.partition("again")
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
