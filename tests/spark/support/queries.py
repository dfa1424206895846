"""Streaming queries for tests: the reader as Spark drives it, without Spark."""

import json
import pickle

from pyspark.sql.types import LongType, StringType, StructField, StructType

from skep.spark.source.readers import SkepStreamReader

SCHEMA = StructType([StructField("payload", StringType()), StructField("offset", LongType())])


class Query:
    """A streaming query: keeps its positions, as Spark's checkpoint does."""

    def __init__(self, url, **options):
        given = {"url": url, "queue": "orders", **options}
        self.options = {name: value for name, value in given.items() if value is not None}
        self.restart()
        self.start = None
        self.batches = []

    def restart(self, **options):
        """Begin again with another reader and the positions there are."""
        self.options |= options
        self.reader = SkepStreamReader(self.options, SCHEMA)

    def plan(self):
        """Return the end of the next micro-batch; the start when there is nothing."""
        if self.start is None:
            self.start = through_json(self.reader.initialOffset())
            assert through_json(self.reader.initialOffset()) == self.start
        return through_json(self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit()))

    def step(self):
        """Run one micro-batch; return its payloads, or None when there is nothing to do."""
        end = self.plan()
        if end == self.start:
            return None
        found = self.read(self.start, end)
        self.batches.append((self.start, end, found))
        self.reader.commit(end)
        self.start = end
        return found

    def drain(self):
        return [payload for found in iter(self.step, None) for payload in found]

    def read(self, start, end):
        """Read what lies between positions, as executors do: with copies of reader and tasks."""
        tasks = self.reader.partitions(start, end)
        reader, tasks = pickle.loads(pickle.dumps((self.reader, tasks)))
        found = [batch for task in tasks for batch in reader.read(task)]
        return sorted(json.loads(text) for batch in found for text in batch["payload"].to_pylist())


def through_json(position):
    """Return a position after it lay in a checkpoint; equal ones are spelled alike."""
    text = json.dumps(position)
    assert text == json.dumps(position, sort_keys=True)
    return json.loads(text)
