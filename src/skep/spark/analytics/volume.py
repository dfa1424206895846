"""What queues stored, by hour: counted on Spark over the log and its archive as one.

All that is read of a message is where it lies, when it was stored and how long its payload is;
nothing is opened for that. One pass gives the totals of each queue and the keys that got most. A
key is the name of a partition. A run that is told another one, an expression over the columns of
the data source, reads the payloads as well, and computes both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from skep.spark.analytics.hours import Hours
from skep.spark.transfer.jobs import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES_MAX: Final = 1_000
"""Queues of an hour that are kept, the busiest first."""
KEYS_MAX: Final = 10
"""Keys of an hour and queue that are kept, of each kind."""
KEY_CHARS_MAX: Final = 255

MEASURED_COLUMNS: Final = "queue string, partition string, payload_bytes int, created_at timestamp"
EVERY_QUEUE: Final = ".*"

Kind = Literal["partition", "key"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class QueueHour(NamedTuple):
    """What a queue stored in an hour: a row of `skep.analytics_volume`."""

    hour: datetime
    queue: str
    messages: int
    bytes: int
    partitions: int
    busiest_messages: int


class KeyHour(NamedTuple):
    """What one key of a queue got in an hour: a row of `skep.analytics_key`."""

    hour: datetime
    queue: str
    kind: Kind
    key: str
    messages: int
    bytes: int


@dataclass(slots=True)
class Volume:
    """What was counted."""

    queues: list[QueueHour] = field(default_factory=list[QueueHour])
    keys: list[KeyHour] = field(default_factory=list[KeyHour])
    left_out: int = 0
    """Queues that stored something in an hour and are not among the busiest, over all hours."""

    @property
    def messages(self) -> int:
        """How many messages there were in the queues that are kept."""
        return sum(each.messages for each in self.queues)


def count_volume(
    spark: "SparkSession", hours: Hours, options: Mapping[str, str], key: str | None = None
) -> Volume:
    """Count what was stored in some hours.

    Args:
        spark: Where to count.
        hours: Which ones.
        options: Of the data source: what to read, and from where on.
        key: An expression of Spark SQL whose most frequent values are wanted besides.

    Raises:
        BadRequest: The expression is none.
        JobFailed: A task failed.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 (heavy, and an extra)

    chosen = {
        **options,
        "tier": "all",
        "includeExpired": "true",
        "failOnDataLoss": "false",
        "endingTimestamp": hours.upto.isoformat(),
    }
    with explained():
        frame = spark.read.format("skep").options(**chosen).schema(MEASURED_COLUMNS).load()
        volume = _totals(busiest_keys(frame.withColumn("key", f.col("partition"))).collect())
        if key is not None:
            whole = spark.read.format("skep").options(**chosen).load()
            sized = whole.withColumn("payload_bytes", f.octet_length("payload"))
            volume.keys += _keys(
                busiest_keys(sized.withColumn("key", f.expr(key))).collect(), "key"
            )
    return volume


def busiest_keys(frame: "DataFrame") -> "DataFrame":
    """Return the busiest keys of each hour and queue, each with the totals of its queue.

    Args:
        frame: Messages, with the columns queue, created_at, payload_bytes and key; those without
            a key do not count.
    """
    from pyspark.sql import Window  # noqa: PLC0415 (heavy, and an extra)
    from pyspark.sql import functions as f  # noqa: PLC0415

    # By seconds of the epoch: hours of the session's time zone may begin at half past.
    hour = f.floor(f.unix_timestamp("created_at") / 3600)
    # PostgreSQL stores no NUL, and an index no long texts.
    key = f.substring(f.regexp_replace(f.col("key").cast("string"), "\\x00", ""), 1, KEY_CHARS_MAX)
    counted = (
        frame.where("key is not null")
        .groupBy(hour.alias("hour"), "queue", key.alias("key"))
        .agg(f.count("*").alias("messages"), f.sum("payload_bytes").alias("bytes"))
    )
    queue = Window.partitionBy("hour", "queue")
    ranked = counted.select(
        "*",
        f.sum("messages").over(queue).alias("queue_messages"),
        f.sum("bytes").over(queue).alias("queue_bytes"),
        f.count("*").over(queue).alias("queue_keys"),
        f.max("messages").over(queue).alias("busiest_messages"),
        f.row_number().over(queue.orderBy(f.desc("messages"), "key")).alias("place"),
    ).where(f.col("place") <= KEYS_MAX)
    by_size = Window.partitionBy("hour").orderBy(f.desc("queue_messages"), "queue")
    placed = ranked.select("*", f.dense_rank().over(by_size).alias("queue_place"))
    every = f.max("queue_place").over(Window.partitionBy("hour")).alias("queues")
    return placed.select("*", every).where(f.col("queue_place") <= QUEUES_MAX)


def pattern_of(queues: tuple[str, ...]) -> str:
    """Return a regular expression of PostgreSQL that matches these queues; every one if none."""
    return "|".join(map(re.escape, queues)) if queues else EVERY_QUEUE


def _totals(rows: list[Any]) -> Volume:
    """Take apart what `busiest_keys` found for partitions."""
    queues = {
        (row.hour, row.queue): QueueHour(
            _moment(row.hour),
            row.queue,
            row.queue_messages,
            row.queue_bytes,
            row.queue_keys,
            row.busiest_messages,
        )
        for row in rows
    }
    left_out = {row.hour: max(row.queues - QUEUES_MAX, 0) for row in rows}
    return Volume(list(queues.values()), _keys(rows, "partition"), sum(left_out.values()))


def _keys(rows: list[Any], kind: Kind) -> list[KeyHour]:
    return [
        KeyHour(_moment(row.hour), row.queue, kind, row.key, row.messages, row.bytes)
        for row in rows
    ]


def _moment(hours: int) -> datetime:
    return _EPOCH + timedelta(hours=hours)
