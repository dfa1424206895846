"""Archives for tests: a queue with messages of chosen ages, an archiver, and readers of tiers.

Everything runs in this process, without Spark: tasks one after the other, readers as Spark drives
them, with copies of reader and tasks as executors get them.
"""

import json
import pickle
from contextlib import contextmanager

from pyspark.sql.types import LongType, StringType, StructField, StructType

from skep.spark.archive.archiver import ArchivePlan, Archiver
from skep.spark.archive.lake import Lake
from skep.spark.runtime.tasks import run_here
from skep.spark.source.readers import SkepReader

SCHEMA = StructType([StructField("payload", StringType()), StructField("offset", LongType())])
HOUR_S = 3600


class Shop:
    """A database whose queue `orders` is archived after an hour, and the tools to do so."""

    def __init__(self, url, warehouse, writer, storage=""):
        self.url = url
        self.warehouse = str(warehouse)
        self.writer = writer
        self.storage = storage
        writer.partition()
        self.configure(archive_after_s=HOUR_S, dedup_window_s=0)

    def configure(self, queue="orders", **columns):
        for column, value in columns.items():
            text = value if isinstance(value, int) else f"'{value}'"
            self.writer.execute(f"update skep.queue set {column} = {text} where name = '{queue}'")

    def push_old(self, *payloads, hours=2, **where):
        """Store payloads as if some hours ago."""
        past = f"(clock_timestamp() - interval '{hours} hours')::text"
        self.writer.value(f"select set_config('skep.fake_now', {past}, false)")
        try:
            return self.writer.push(*payloads, **where)
        finally:
            self.writer.value("select set_config('skep.fake_now', '', false)")

    def read_all(self, queue="orders"):
        """Let the group of queue mode complete everything there is."""
        self.writer.execute(
            f"""
            update skep.consumer_group g set first_polled_at = now()
            from skep.queue q where q.id = g.queue_id and q.name = '{queue}';
            insert into skep.cursor (partition_id, group_id, queue_id)
            select p.id, g.id, q.id from skep.queue q
            join skep.partition p on p.queue_id = q.id
            join skep.consumer_group g on g.queue_id = q.id
            where q.name = '{queue}' on conflict do nothing;
            update skep.cursor c set acked = p.head
            from skep.partition p join skep.queue q on q.id = p.queue_id
            where p.id = c.partition_id and q.name = '{queue}'
            """
        )

    @contextmanager
    def lake(self):
        properties = dict(part.split("=", 1) for part in self.storage.split(",") if part)
        with Lake(self.url, properties) as lake:
            yield lake

    def left_over(self):
        """Return the files of messages that no snapshot knows; files of metadata may wait."""
        with self.lake() as lake:
            return [each for each in lake.unreferenced() if "/metadata/" not in each]

    def archive(self, run_tasks=run_here, **choices):
        """Archive what is old enough; return what was done."""
        hooks = {name: choices.pop(name) for name in ("on_step", "on_progress") if name in choices}
        plan = ArchivePlan(url=self.url, warehouse=self.warehouse, **choices)
        with self.lake() as lake:
            return Archiver(lake, plan, run_tasks, **hooks).archive()

    def live(self):
        """Return the payloads in the live log, without looking at the archive."""
        return self.read(tier="live")

    def archived(self):
        """Return the payloads in the lake, as the catalog has them."""
        with self.lake() as lake:
            if not lake.has_table():
                return []
            found = lake.table().scan(selected_fields=("payload",)).to_arrow()
            return sorted(json.loads(text) for text in found["payload"].to_pylist())

    def reader(self, schema=SCHEMA, **options):
        chosen = {"url": self.url, "queue": "orders", "storage": self.storage, **options}
        given = {name: text for name, text in chosen.items() if text is not None}
        return SkepReader(given, schema)

    def read(self, schema=SCHEMA, **options):
        """Read a DataFrame; return its payloads."""
        reader = self.reader(schema, **options)
        return payloads_of(run_tasks(reader, reader.partitions()))

    def rows(self, schema=SCHEMA, **options):
        reader = self.reader(schema, **options)
        return [
            row for batch in run_tasks(reader, reader.partitions()) for row in batch.to_pylist()
        ]


def run_tasks(reader, tasks):
    """Read tasks as executors do; return their record batches."""
    reader, tasks = pickle.loads(pickle.dumps((reader, tasks)))
    return [batch for task in tasks for batch in reader.read(task)]


def payloads_of(batches):
    return sorted(json.loads(text) for batch in batches for text in batch["payload"].to_pylist())


def files_below(directory):
    """Return all files there are, by their paths."""
    return {str(path) for path in directory.rglob("*") if path.is_file()}
