"""Pipelines for tests: run in this process, on the session of the tests."""

import json
import threading
import warnings

from skep.spark.pipelines.files import load_pipeline, parse_pipeline
from skep.spark.pipelines.run import PipelineRun, RunPlan

COUNTS = """
name: counts
sources:
  orders:
    queue: orders
    schema: at BIGINT, n BIGINT
    eventTime: timestamp_millis(payload.at)
    watermark: 1s
window:
  kind: tumbling
  size: 10s
  aggregate: {count: count(*), total: sum(payload.n)}
sink: {queue: counts}
trigger: availableNow
"""
CLOSING_MS = 10_000_000
"""A time so late that every window of a test is closed by a message of it."""


class Pipelines:
    """Runs pipelines of one database."""

    def __init__(self, url, directory):
        self.url = url
        self.checkpoint = str(directory / "checkpoint")
        self.warehouse = str(directory / "lake")

    def run(self, definition=COUNTS, stop=None, on_progress=lambda progress: None, **plan):
        pipeline = (parse_pipeline if "\n" in definition else load_pipeline)(definition)
        chosen = {"url": self.url, "checkpoint": self.checkpoint, "master": "local[2,2]"}
        chosen |= {"warehouse": self.warehouse} | plan
        run = PipelineRun(pipeline, RunPlan(**chosen), on_progress=on_progress)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark's own, when a session is asked for again
            return run.run(stop or threading.Event())


def messages_of(writer, queue):
    """Return partitions and payloads of a queue, in the order of the log."""
    rows = writer.rows(
        "select p.name, convert_from(s.body, 'UTF8') from skep.segment s"
        " join skep.queue q on q.id = s.queue_id join skep.partition p on p.id = s.partition_id"
        f" where q.name = '{queue}' order by p.name, s.first"
    )
    return [
        (partition, message["data"]) for partition, body in rows for message in json.loads(body)
    ]
