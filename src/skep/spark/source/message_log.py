"""The log as readers on Spark plan it: queues, the present, spans and what was lost.

Planning runs in the driver, with the small statements here; `skep.spark.source.splits` reads what
was planned.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from skep.model.errors import NotFound, Refused, Unavailable
from skep.spark.runtime.postgres import database, text_of
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
SNAPSHOT_BEFORE: Final = "select skep.snapshot_before($1::text::timestamptz) as snapshot"
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
MEASURE: Final = (
    "select * from skep.measure_span($1::text::integer[], $2::text::bigint[], "
    "$3::text::pg_snapshot, $4::text::pg_snapshot, $5::text::bigint[], $6::text::bigint[], "
    "$7::text::timestamptz, $8::text::timestamptz, $9::text::integer)"
)
SEGMENTS_MEASURED: Final = 10_000
"""Of a longer backlog a reader only tells how much there is at least."""
REGISTER: Final = (
    "select skep.register_reader($1, $2::text::text[], $3::text::json)::text as position"
)
PUBLISH: Final = (
    "select skep.publish_progress($1, $2::text::text[], $3::text::json, $4::text::pg_snapshot, "
    "$5::text::integer) as holds"
)
QUEUES_MAX: Final = 1_000
LAG: Final = "select * from skep.measure_readers($1, $2::text::integer)"

_TYPES: Final = (
    *("integer[]", "bigint[]", "pg_snapshot", "pg_snapshot"),
    *("bigint[]", "bigint[]", "timestamptz", "timestamptz"),
)
"""Of the parameters of `skep.read_span`, in the order of `_span_arguments`."""
_logger: Final = logging.getLogger(__name__)


class DataLost(Refused):
    """Messages were removed before they had been read."""


class RestoredDatabase(Refused):
    """The log was restored from a dump and carries the transaction ids of another server."""


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

    def ask(self, sql: str, *arguments: object) -> list[dict[str, Any]]:
        """Run a statement, and once more if the connection was lost: all are idempotent."""
        url, timeout_s = self._options.url, self._options.statement_timeout_s
        try:
            return database(url, timeout_s).rows(sql, *arguments)
        except Unavailable:
            return database(url, timeout_s).rows(sql, *arguments)

    def partitions(self) -> Partitions:
        """Return the queues and partitions that the reader subscribed to; raise `NotFound`."""
        wanted = self._options.subscription
        found = self.ask(FIND_QUEUES, wanted.names or None, wanted.pattern)
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
            found = self.ask(RESOLVE_PARTITIONS, queue_ids[queue], names)
            if missing := sorted(set(names) - {row["partition_name"] for row in found}):
                raise NotFound(f"queue {queue} has no partition {', '.join(missing)}")
            ids += [row["partition_id"] for row in found]
        return tuple(ids)

    def present(self, partitions: Partitions) -> Present:
        """Take the present position; raise `RestoredDatabase` if the log is from another server."""
        (row,) = self.ask(TAKE_POSITION, partitions.queue_ids)
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

    def passed_over(self, since_us: int | None) -> Snapshot:
        """Return a snapshot that sees only messages from before a moment."""
        if since_us is None:
            return NOTHING
        (row,) = self.ask(SNAPSHOT_BEFORE, moment_of(since_us))
        return NOTHING if row["snapshot"] is None else Snapshot.parse(row["snapshot"])

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
            partitions.queue_ids,
            position.checked,
            position.seen,
            part and part.snapshot,
            part and part.through.xid,
            self._options.tier != "live",
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
        bounds = _span_arguments(span, partitions, since_us, self._options.until_us)
        rows = self.ask(DIVIDE, *bounds, messages, size_bytes, share)
        return [
            Size(Address(*row["last"]), row["segments"], row["messages"], row["bytes"])
            for row in rows
        ]

    def behind(
        self, position: Position, partitions: Partitions, present: Present
    ) -> dict[str, Any]:
        """Return how much has been stored that a position has not seen, as far as it is live."""
        part = position.part
        spans = [Span(position.target, present.seen)]
        if part is not None:
            spans.append(Span(position.seen, part.snapshot, after=part.through))
        rows = [
            self.ask(
                MEASURE,
                *_span_arguments(span, partitions, position.since_us, None),
                SEGMENTS_MEASURED,
            )[0]
            for span in spans
        ]
        return {
            "exact": all(row["is_exact"] for row in rows),
            "messages": sum(row["messages"] for row in rows),
            "seconds": max(row["seconds"] for row in rows),
        }

    def register(self, name: str, partitions: Partitions, position: Position) -> Position:
        """Begin under a name; return where the reader of that name is to go on."""
        (row,) = self.ask(REGISTER, name, partitions.queue_names, position)
        known = Position.parse(row["position"])
        self.publish(name, partitions, None, known.seen)
        return known

    def publish(
        self, name: str, partitions: Partitions, position: Position | None, seen: Snapshot
    ) -> None:
        """Put progress on record and keep the log from there on; None only renews the hold."""
        self.ask(PUBLISH, name, partitions.queue_names, position, seen, self._options.keep_s)

    def lag(self, name: str | None) -> list[dict[str, Any]]:
        """Return how far a reader is behind, or all are, by queue."""
        return self.ask(LAG, name, QUEUES_MAX)


def _span_arguments(
    span: Span, partitions: Partitions, since_us: int | None, until_us: int | None
) -> tuple[object, ...]:
    """Return a span as the SQL functions take it."""
    return (
        *(partitions.queue_ids, partitions.partition_ids),
        *(span.seen, span.upto, span.after, span.through),
        *(None if each is None else moment_of(each) for each in (since_us, until_us)),
    )


def span_statement(
    span: Span,
    partitions: Partitions,
    needed: Iterable[str],
    since_us: int | None = None,
    until_us: int | None = None,
) -> str:
    """Return the statement that reads the segments of a span.

    `needed` are columns of `skep.read_span` beside the extent and the body.
    """
    bounds = _span_arguments(span, partitions, since_us, until_us)
    extent = ("s.xid::text::bigint as xid", "partition_id", "first", "last")
    columns = [*extent, *sorted(needed), "body"]
    typed = [f"{_literal(value)}::{name}" for value, name in zip(bounds, _TYPES, strict=True)]
    return (
        f"select {', '.join(columns)} from skep.read_span({', '.join(typed)}) s"  # noqa: S608 (numbers and times that were spelled here)
        " order by s.xid, s.partition_id, s.first"
    )


def _literal(value: object) -> str:
    text = text_of(value)
    return "null" if text is None else "'" + text.replace("'", "''") + "'"


def _described(row: dict[str, Any], position: Position) -> str:
    return (
        f"in queue {row['queue']}, transactions {position.seen.xmin} to {row['upto']}, written up "
        f"to {row['created_to'].isoformat()} and removed at {row['removed_at'].isoformat()}"
    )
