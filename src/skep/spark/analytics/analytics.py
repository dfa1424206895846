"""Analytics: what happened in each hour and queue, kept where reports and the dashboard find it.

A run computes whole hours, day by day. Spark counts what was stored, over the log and its archive:
one pass over addresses, times and lengths gives the totals of each queue and the keys that got
most. A key is the name of a partition; a run with an expression of its own reads the payloads as
well, and computes both. PostgreSQL sums up what its tables already have: deliveries, dead letters
and the lag of groups. One transaction stores the results of a day, moves the watermark, and commits
the same to the lake. A run that dies before has changed nothing.

An hour that is computed again replaces what was known of it, unless its source has lost something
since; see `skep.store_volume` and its neighbours.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, text

from skep.model.errors import BadRequest, NotFound, Refused
from skep.spark.analytics.hours import Hours, choose_hours
from skep.spark.analytics.lake import AnalyticsLake
from skep.spark.archive.lake import Lake
from skep.spark.source.message_log import Partitions, Present
from skep.spark.source.options import read_options
from skep.spark.source.positions import (
    EPOCH,
    InvalidPosition,
    Position,
    microseconds_of,
    moment_of,
)
from skep.spark.source.tiered_log import TieredLog
from skep.spark.transfer.single_write import explained, is_encrypted

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
    """Count what was stored in some hours, with the data source options of the log to read.

    `key` is an expression of Spark SQL whose most frequent values are counted, too. Raises
    `BadRequest` if it is invalid, or `JobFailed`.
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

    `frame` has the columns queue, created_at, payload_bytes and key; rows without key do not count.
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
    return EPOCH + timedelta(hours=hours)


CAUSES_MAX: Final = 20
"""Causes of death that are told apart in an hour of a queue."""

PROGRESS: Final = "select * from skep.analytics_progress()"
POSITION: Final = "select skep.analytics_position(:since)"
STORE: Final = "select skep.store_volume(:volume, :keys)"
GATHER: Final = (
    "select skep.gather_deliveries(:since, :upto, :queues), "
    "skep.gather_letters(:since, :upto, :causes), skep.gather_lags(:since, :upto, :queues)"
)
FINISH: Final = (
    "select skep.finish_analytics(:since, :upto, :messages, :taken_at, :position, :keep_days)"
)

OnDay = Callable[[Hours, Hours], None]
"""Is told the hours of a day that were computed, and all that are to be computed."""


class AnalyticsBusy(Refused):
    """Another process computes the analytics of this database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsPlan:
    """What to compute."""

    url: str
    since: datetime | None = None
    until: datetime | None = None
    queues: tuple[str, ...] = ()
    """Only these are counted, and the watermark stays where it is; none for all."""
    key: str | None = None
    """An expression of Spark SQL whose most frequent values are kept besides partitions."""
    keep_days: int = 90
    warehouse: str | None = None
    storage: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """The options `encryptionKeys` and `encryptionKeyFile`, as far as they are given."""


@dataclass(slots=True)
class Computed:
    """What was done."""

    hours: Hours | None = None
    """None when there was nothing new."""
    messages: int = 0
    left_out: int = 0
    """Hours of queues that are not kept, because too many others were busier."""
    has_lake: bool = False


class Analytics:
    """Computes the analytics of one database."""

    def __init__(
        self,
        session: Callable[[], "SparkSession"],
        lake: Lake,
        plan: AnalyticsPlan,
        *,
        on_step: Callable[[str], None] = lambda _step: None,
    ) -> None:
        """Check the plan; `session` is not called unless there is something to compute.

        Raises `BadRequest` for a key without a queue, `NotFound`, or `Refused` if keys of encrypted
        messages would be stored in the clear.
        """
        self._session: Final = session
        self._lake: Final = lake
        self._plan: Final = plan
        self._on_step: Final = on_step
        self._tables: Final = AnalyticsLake(lake, plan.warehouse)
        self._options: Final = {
            "url": plan.url,
            "subscribePattern": pattern_of(plan.queues),
            **({} if plan.storage is None else {"storage": plan.storage}),
            **plan.keys,
        }
        self._log: Final = TieredLog(read_options(self._options | {"tier": "all"}))
        self._check_queues()

    def _check_queues(self) -> None:
        plan = self._plan
        if plan.key is not None and not plan.queues:
            raise BadRequest("--key needs --queue: payloads of different queues differ")
        for queue in plan.queues:
            is_sealed = is_encrypted(plan.url, queue)
            if is_sealed is None:
                raise NotFound(f"there is no queue {queue!r} in this database")
            if plan.key is not None and is_sealed:
                raise Refused(
                    f"queue {queue} is encrypted, and its keys would be kept in the clear: leave "
                    "--key out for it"
                )

    def run(self, on_day: OnDay = lambda _done, _all: None) -> Computed:
        """Compute what the plan says; raise `AnalyticsBusy`, or `BadRequest` for wrong hours."""
        busy = AnalyticsBusy("another process computes the analytics; wait for its end")
        with self._lake.locked("analytics", busy) as connection:
            progress, plan = connection.execute(text(PROGRESS)).one(), self._plan
            hours = choose_hours(
                progress.now, progress.watermark, plan.since, plan.until, keep_days=plan.keep_days
            )
            done = Computed(hours, has_lake=self._tables.ensure_tables())
            if hours is None:
                return done
            for day in hours.by_day():
                self._compute(connection, day, done)
                on_day(day, hours)
            if done.has_lake:
                self._tables.tidy()
        return done

    def _compute(self, connection: Connection, hours: Hours, done: Computed) -> None:
        partitions = self._log.partitions()
        present = self._log.present(partitions)
        volume = self._count(connection, hours, partitions, present)
        self._on_step("counted")
        with self._lake.transaction() as transaction:
            self._store(transaction, hours, volume, present)
            self._on_step("stored")
            if done.has_lake:
                self._tables.write_day(transaction, hours.since)
            self._on_step("written")
        self._on_step("committed")
        done.messages += volume.messages
        done.left_out += volume.left_out

    def _count(
        self, connection: Connection, hours: Hours, partitions: Partitions, present: Present
    ) -> Volume:
        if not partitions.queue_ids:
            return Volume()
        start = self._start(connection.scalar(text(POSITION), {"since": hours.since}), present)
        options = self._options | (
            {"startingTimestamp": hours.since.isoformat()}
            if start is None
            else {"startingOffsets": str(replace(start, since_us=microseconds_of(hours.since)))}
        )
        return count_volume(self._session(), hours, options, self._plan.key)

    def _start(self, known: str | None, present: Present) -> Position | None:
        """Return from where on to read the log; None for its begin."""
        if known is None:
            return None
        try:
            position = Position.parse(known)
            self._log.check(position, present)
        except InvalidPosition:
            return None  # the database was restored, and the position is of another time
        # What retention removed since then is what it removed from these hours, too.
        return replace(position, checked=present.snapshot)

    def _store(
        self, transaction: Connection, hours: Hours, volume: Volume, present: Present
    ) -> None:
        span: dict[str, Any] = {"since": hours.since, "upto": hours.upto}
        transaction.execute(
            text(STORE), {"volume": _as_json(volume.queues), "keys": _as_json(volume.keys)}
        )
        transaction.execute(text(GATHER), {**span, "queues": QUEUES_MAX, "causes": CAUSES_MAX})
        if self._plan.queues:
            return
        transaction.execute(
            text(FINISH),
            {
                **span,
                "messages": volume.messages,
                "taken_at": moment_of(present.taken_us),
                "position": str(present.position()),
                "keep_days": self._plan.keep_days,
            },
        )


def analytics_progress(lake: Lake) -> Any:
    """Return how far analytics have come: now, watermark, finished_at, messages."""
    with lake.connect() as connection:
        return connection.execute(text(PROGRESS)).one()


def _as_json(rows: list[Any]) -> str:
    return json.dumps([row._asdict() for row in rows], default=datetime.isoformat)
