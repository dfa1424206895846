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

FIND_QUEUES: Final = "select * from skep.find_queues($1::text::text[], $2, $3::text::integer[])"
RESOLVE_PARTITIONS: Final = (
    "select * from skep.resolve_partitions($1::text::integer, $2::text::text[])"
)
TAKE_POSITION: Final = "select * from skep.take_position($1::text::integer[])"
SNAPSHOT_BEFORE: Final = "select skep.snapshot_before($1::text::timestamptz) as snapshot"
FIND_LOST: Final = (
    "select * from skep.find_lost_spans($1::text::integer[], $2::text::pg_snapshot, "
    "$3::text::pg_snapshot, $4::text::pg_snapshot, $5::text::bigint, $6::text::boolean, "
    "$7::text::integer[])"
)
EVIDENCE: Final = (
    "select * from skep.position_evidence($1::text::integer[], $2::text::bigint, $3::text::integer)"
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
_OR_REREAD: Final = (
    ". Or set onTimelineChange to reread: then messages of the time around it come twice"
)
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
    timeline: int
    newest_us: int | None
    """When the newest segment that `seen` sees was created; None if it is not known."""

    def position(
        self,
        partitions: "Partitions | None" = None,
        seen: Snapshot | None = None,
        since_us: int | None = None,
    ) -> Position:
        """The position of a reader that has seen all there is, or what that snapshot sees."""
        return Position(
            self.system,
            self.seen if seen is None else seen,
            self.snapshot,
            self.taken_us,
            since_us,
            queues=None if partitions is None else partitions.queue_ids,
            partitions=None if partitions is None else partitions.partition_ids,
            timeline=self.timeline,
            newest_us=self.newest_us if seen is None or seen == self.seen else None,
        )


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

    def only(self, queue_ids: Iterable[int], partition_ids: Iterable[int] | None) -> "Partitions":
        """Return those of them that are in these queues, and among these partitions."""
        names = dict(zip(self.queue_ids, self.queue_names, strict=True))
        chosen = tuple(id_ for id_ in names if id_ in set(queue_ids))
        mine, wanted = self.partition_ids, partition_ids
        if mine is None or wanted is None:
            both = mine if wanted is None else tuple(wanted)
        else:
            both = tuple(id_ for id_ in mine if id_ in set(wanted))
        return Partitions(chosen, tuple(names[id_] for id_ in chosen), both)

    def known_to(self, position: Position) -> "Partitions":
        """Return those that a position speaks of: all, if it does not tell."""
        if position.queues is None:
            return self
        return self.only(position.queues, position.partitions)

    def new_to(self, position: Position) -> "Partitions | None":
        """Return those that were added after a position; None for none.

        Raises `InvalidPosition` if single partitions had been read and now all are to be.
        """
        if position.queues is None:
            return None
        if position.partitions is not None:
            if self.partition_ids is None:
                raise InvalidPosition(
                    "single partitions were read until now (assign), and all of the queue are "
                    "asked for: begin with a new checkpoint, or name the partitions"
                )
            added = [id_ for id_ in self.partition_ids if id_ not in set(position.partitions)]
            return self.only(self.queue_ids, added) if added else None
        added = [id_ for id_ in self.queue_ids if id_ not in set(position.queues)]
        return self.only(added, None) if added else None

    def are_of(self, position: Position) -> bool:
        """Tell whether a position speaks of exactly these, or does not tell."""
        return position.queues is None or (
            set(position.queues) == set(self.queue_ids)
            and set(position.partitions or ()) == set(self.partition_ids or ())
        )


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
        found = self.ask(FIND_QUEUES, wanted.names or None, wanted.pattern, None)
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

    def still_there(
        self, queues: tuple[int, ...], partitions: tuple[int, ...] | None
    ) -> Partitions:
        """Return the queues with these ids, as far as they were not deleted."""
        found = self.ask(FIND_QUEUES, None, None, queues)
        ids, names = (tuple(row[column] for row in found) for column in ("id", "name"))
        return Partitions(ids, names, partitions)

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
                "the server it came from. Run `skep adopt` once, and begin with new checkpoints"
            )
        seen = snapshot.cut(newest + 1) if newest else NOTHING
        return Present(
            row["system"], snapshot, seen, row["taken_us"], row["timeline"], row["newest_us"]
        )

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
                "the option url names another one, or it was restored from a dump. After "
                "pg_upgrade run `skep adopt`, and go on with this checkpoint. "
                + self._way_out("startingTimestamp where the old one had come to")
            )
        if position.target.xmax > present.snapshot.xmax and not self._options.may_reread:
            raise InvalidPosition(
                f"the position has seen transactions up to {position.target.xmax - 1}, but this "
                f"database has only come to {present.snapshot.xmax - 1}: it was restored to an "
                "earlier time, or is a replica that lags. Read from the primary. "
                + self._way_out("startingOffsets=latest")
                + _OR_REREAD
            )

    def is_forked(self, position: Position, present: Present) -> bool:
        """Tell whether transaction ids that a position has seen may mean others by now.

        Raises `InvalidPosition`, unless that is to be answered by reading again.
        """
        if position.timeline is None or not self._may_be_reused(position, present):
            return False
        if self._options.may_reread:
            return True
        raise InvalidPosition(
            f"the position has seen transactions up to {position.target.xmax - 1} that are not all "
            f"known here (its timeline of the server is {position.timeline}, the present one "
            f"{present.timeline}): a failover to a standby that was behind, or a recovery to an "
            "earlier time, lost them and gives their ids to new messages, which would be "
            "skipped. "
            + self._way_out("startingTimestamp where the old one had come to")
            + _OR_REREAD
        )

    def _may_be_reused(self, position: Position, present: Present) -> bool:
        newest = position.target.xmax - 1
        if newest < 1:  # it has seen nothing
            return False
        (row,) = self.ask(EVIDENCE, position.queues or (), newest, position.timeline)
        created: list[int] = row["created_us"]
        if position.newest_us in created:
            return False
        if position.timeline == present.timeline:
            if position.newest_us is None:
                return False
            # Only a copy of the files, put back, goes back on the same timeline.
            is_behind = position.target.xmax > present.snapshot.xmax
            return is_behind or any(each > position.taken_us for each in created)
        return row["kept"] is None or row["kept"] < newest

    def _way_out(self, start: str) -> str:
        group = self._options.consumer_group
        forget = f"; before that run `select skep.forget_reader('{group}')`" if group else ""
        return f"Begin with a new checkpoint, and with {start}{forget}"

    def check_losses(self, position: Position, partitions: Partitions) -> None:
        """Raise or log `DataLost` if messages were removed that the reader had not read.

        Removals are on record by queue. A reader of single partitions is not told about them, as
        most concern others; its tasks still notice what vanishes before them. It is told about
        queues that were deleted.
        """
        part, joining = position.part, position.joining
        lost = self._lost(
            position, partitions, position.queues, position.seen,
            None if part is None else (part.snapshot, part.through.xid),
        )  # fmt: skip
        if joining is not None:
            upto = (position.seen, joining.through.xid)
            lost += self._lost(position, partitions, joining.queues, joining.seen, upto)
        if position.since_us is not None:
            lost = [
                row
                for row in lost
                if row["created_to"] is None
                or microseconds_of(row["created_to"]) >= position.since_us
            ]
        if lost:
            way_out = (
                ". They are in the archive: set tier to all to read on there"
                if all(row["is_archived"] for row in lost)
                else ""
            )
            self.report_loss("; ".join(_described(row, position) for row in lost) + way_out)

    def _lost(
        self,
        position: Position,
        partitions: Partitions,
        queues: tuple[int, ...] | None,
        seen: Snapshot,
        part: tuple[Snapshot, int] | None,
    ) -> list[dict[str, Any]]:
        asked = set(partitions.queue_ids)
        known = asked if queues is None else asked.intersection(queues)
        rows = self.ask(
            FIND_LOST,
            sorted(known),
            position.checked,
            seen,
            part and part[0],
            part and part[1],
            self._options.tier != "live",
            sorted(set(queues or ()) - asked),
        )
        return [row for row in rows if partitions.partition_ids is None or row["is_deleted"]]

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
        part, joining = position.part, position.joining
        spans = [(partitions, Span(position.target, present.seen))]
        if part is not None:
            rest = Span(position.seen, part.snapshot, after=part.through)
            spans.append((partitions.known_to(position), rest))
        if joining is not None:
            there = self.still_there(joining.queues, joining.partitions)
            spans.append((there, Span(joining.seen, position.seen, after=joining.through)))
        rows = [
            self.ask(
                MEASURE,
                *_span_arguments(span, queues, position.since_us, None),
                SEGMENTS_MEASURED,
            )[0]
            for queues, span in spans
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
        self.publish(name, partitions, None, known.held)
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
    if row["upto"] is None:
        return f"in the queue {row['queue']}, which was deleted too long ago to tell what was in it"
    deleted = ", which was deleted" if row["is_deleted"] else ""
    return (
        f"in queue {row['queue']}{deleted}, transactions {position.seen.xmin} to {row['upto']}, "
        f"written up to {row['created_to'].isoformat()} and removed at "
        f"{row['removed_at'].isoformat()}"
    )
