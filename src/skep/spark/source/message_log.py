"""The log as readers on Spark plan it: queues, the present, spans and what was lost.

Planning runs in the driver, with the small statements here; `skep.spark.source.splits` reads what
was planned.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from skep.model.errors import NotFound, Refused, Unavailable
from skep.spark.runtime.postgres import array_of, database
from skep.spark.source.options import ReadOptions
from skep.spark.source.positions import (
    NOTHING,
    Address,
    InvalidPosition,
    Position,
    Snapshot,
    Span,
    microseconds_of,
    moment_of,
)

FIND_QUEUES: Final = "select * from skep.find_queues($1::text::text[], $2)"
RESOLVE_PARTITIONS: Final = (
    "select * from skep.resolve_partitions($1::text::integer, $2::text::text[])"
)
TAKE_POSITION: Final = "select * from skep.take_position($1::text::integer[])"
FIND_LOST: Final = (
    "select * from skep.find_lost_spans($1::text::integer[], $2::text::pg_snapshot, "
    "$3::text::pg_snapshot, $4::text::pg_snapshot, $5::text::bigint, $6::text::boolean)"
)
DIVIDE: Final = (
    "select * from skep.divide_span($1::text::integer[], $2::text::bigint[], "
    "$3::text::pg_snapshot, $4::text::pg_snapshot, $5::text::bigint[], $6::text::bigint[], "
    "$7::text::timestamptz, $8::text::timestamptz, $9::text::bigint, $10::text::bigint, "
    "$11::text::bigint)"
)
REGISTER: Final = (
    "select skep.register_reader($1, $2::text::text[], $3::text::json)::text as position"
)
PUBLISH: Final = (
    "select skep.publish_progress($1, $2::text::text[], $3::text::json, $4::text::pg_snapshot, "
    "$5::text::integer) as holds"
)
LAG: Final = "select * from skep.measure_readers($1, $2::text::integer)"

_logger: Final = logging.getLogger(__name__)


class DataLost(Refused):
    """Messages were removed before they had been read."""

    code: ClassVar[str] = "data_lost"


class RestoredDatabase(Refused):
    """The log was restored from a dump and carries the transaction ids of another server."""

    code: ClassVar[str] = "restored_database"


class Present(NamedTuple):
    """Now, in the queues that are read."""

    system: str
    snapshot: Snapshot
    """As it is; good for looking at removals."""
    seen: Snapshot
    """Cut behind the newest segment; good for positions."""
    taken_us: int

    def position(self, since_us: int | None = None) -> Position:
        """The position of a reader that has seen all there is."""
        return Position(self.system, self.seen, self.snapshot, self.taken_us, since_us)


class Size(NamedTuple):
    """A split of a span: how much it is, and the address at which it ends."""

    last: Address
    segments: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Partitions:
    """What is read: queues, and in them all partitions or only some."""

    queue_ids: tuple[int, ...]
    queue_names: tuple[str, ...]
    partition_ids: tuple[int, ...] | None


class MessageLog:
    """Questions about the log of one database, for one reader."""

    def __init__(self, options: ReadOptions) -> None:
        self._options: Final = options

    def ask(self, sql: str, *arguments: str | None) -> list[dict[str, Any]]:
        """Run a statement, and once more if the connection was lost: all are idempotent."""
        url, timeout_s = self._options.url, self._options.statement_timeout_s
        try:
            return database(url, timeout_s).rows(sql, *arguments)
        except Unavailable:
            return database(url, timeout_s).rows(sql, *arguments)

    def partitions(self) -> Partitions:
        """Return the queues and partitions that the reader subscribed to; raise `NotFound`."""
        wanted = self._options.subscription
        names = array_of(wanted.names) if wanted.names else None
        found = self.ask(FIND_QUEUES, names, wanted.pattern)
        missing = sorted(set(wanted.names) - {row["name"] for row in found})
        if missing:
            raise NotFound(
                f"queue {', '.join(missing)} does not exist: check its name and the database in "
                "the option url; subscribePattern reads queues that are made later"
            )
        return Partitions(
            tuple(row["id"] for row in found),
            tuple(row["name"] for row in found),
            self._partition_ids({row["name"]: row["id"] for row in found}),
        )

    def _partition_ids(self, queue_ids: Mapping[str, int]) -> tuple[int, ...] | None:
        assigned = self._options.subscription.partitions
        if assigned is None:
            return None
        ids: list[int] = []
        for queue, names in assigned.items():
            found = self.ask(RESOLVE_PARTITIONS, str(queue_ids[queue]), array_of(names))
            if missing := sorted(set(names) - {row["partition_name"] for row in found}):
                raise NotFound(f"queue {queue} has no partition {', '.join(missing)}")
            ids += [row["partition_id"] for row in found]
        return tuple(ids)

    def present(self, partitions: Partitions) -> Present:
        """Take the present position; raise `RestoredDatabase` if the log is from another server."""
        (row,) = self.ask(TAKE_POSITION, array_of(partitions.queue_ids))
        snapshot = Snapshot.parse(row["snapshot"])
        newest = row["newest"] or 0
        if newest >= snapshot.xmax:
            raise RestoredDatabase(
                "this database was restored from a dump: its log carries the transaction ids of "
                "the server it came from. Run `select skep.adopt_restored_log()` in it once, and "
                "begin with new checkpoints"
            )
        seen = snapshot.cut(newest + 1) if newest else NOTHING
        return Present(row["system"], snapshot, seen, row["taken_us"])

    def check(self, position: Position, present: Present) -> None:
        """Raise `InvalidPosition` if a position means nothing in this database."""
        if position.system != present.system:
            raise InvalidPosition(
                f"the position was taken in database {position.system}, this is {present.system}: "
                "the option url names another one, or it was restored from a dump. "
                + self._way_out("startingTimestamp where the old one had come to")
            )
        if position.target.xmax > present.snapshot.xmax:
            raise InvalidPosition(
                f"the position has seen transactions up to {position.target.xmax - 1}, but this "
                f"database has only come to {present.snapshot.xmax - 1}: it was restored to an "
                "earlier time, or is a replica that lags. Read from the primary. "
                + self._way_out("startingOffsets=latest")
            )

    def _way_out(self, start: str) -> str:
        group = self._options.consumer_group
        forget = f"; before that run `select skep.forget_reader('{group}')`" if group else ""
        return f"Begin with a new checkpoint, and with {start}{forget}"

    def check_losses(self, position: Position, partitions: Partitions) -> None:
        """Raise or log `DataLost` if messages were removed that the reader had not read.

        Removals are on record by queue. A reader of single partitions is not told about them, as
        most concern others; its tasks still notice what vanishes before them.
        """
        if partitions.partition_ids is not None:
            return
        part = position.part
        lost = self.ask(
            FIND_LOST,
            array_of(partitions.queue_ids),
            str(position.checked),
            str(position.seen),
            str(part.snapshot) if part else None,
            str(part.through.xid) if part else None,
            "true" if self._options.tier != "live" else "false",
        )
        if position.since_us is not None:
            lost = [row for row in lost if microseconds_of(row["created_to"]) >= position.since_us]
        if lost:
            way_out = (
                ". They are in the archive: set tier to all to read on there"
                if all(row["is_archived"] for row in lost)
                else ""
            )
            self.report_loss("; ".join(_described(row, position) for row in lost) + way_out)

    def report_loss(self, what: str) -> None:
        """Raise `DataLost`, or log a warning if the option failOnDataLoss is false."""
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"messages were removed before they had been read: {what}. Set failOnDataLoss to "
                "false to go on without them; a consumerGroup makes retention wait for its reader"
            )
        _logger.warning("Messages were removed before they had been read: %s", what)

    def divide(
        self,
        span: Span,
        partitions: Partitions,
        since_us: int | None,
        *,
        messages: int | None = None,
        size_bytes: int | None = None,
        share: int | None = None,
    ) -> list[Size]:
        """Cut a span into splits, as far as the limits allow."""
        rows = self.ask(
            DIVIDE,
            *span_arguments(span, partitions, since_us, self._options.until_us),
            *(None if limit is None else str(limit) for limit in (messages, size_bytes, share)),
        )
        return [
            Size(Address(*row["last"]), row["segments"], row["messages"], row["bytes"])
            for row in rows
        ]

    def register(self, name: str, partitions: Partitions, position: Position) -> Position:
        """Begin under a name; return where the reader of that name is to go on."""
        queues = array_of(partitions.queue_names)
        (row,) = self.ask(REGISTER, name, queues, str(position))
        known = Position.parse(row["position"])
        self.publish(name, partitions, None, known.seen)
        return known

    def publish(
        self, name: str, partitions: Partitions, position: Position | None, seen: Snapshot
    ) -> None:
        """Put progress on record and keep the log from there on; None only renews the hold."""
        self.ask(
            PUBLISH,
            name,
            array_of(partitions.queue_names),
            None if position is None else str(position),
            str(seen),
            str(self._options.keep_s),
        )

    def lag(self, name: str | None, limit: int = 1000) -> list[dict[str, Any]]:
        """Return how far readers are behind, by queue."""
        return self.ask(LAG, name, str(limit))


def span_arguments(
    span: Span, partitions: Partitions, since_us: int | None, until_us: int | None
) -> tuple[str | None, ...]:
    """Spell a span as the SQL functions take it, all as texts."""
    return (
        array_of(partitions.queue_ids),
        None if partitions.partition_ids is None else array_of(partitions.partition_ids),
        str(span.seen),
        str(span.upto),
        None if span.after is None else array_of(span.after),
        None if span.through is None else array_of(span.through),
        _timestamp(since_us),
        _timestamp(until_us),
    )


def _timestamp(moment_us: int | None) -> str | None:
    return None if moment_us is None else moment_of(moment_us).isoformat()


def _described(row: dict[str, Any], position: Position) -> str:
    return (
        f"in queue {row['queue']}, transactions {position.seen.xmin} to {row['upto']}, written up "
        f"to {row['created_to'].isoformat()} and removed at {row['removed_at'].isoformat()}"
    )
