"""Read the log as a DataFrame or as a stream, never skipping a late commit.

A DataFrame is everything between two positions, as it was when it was planned. A stream is what
has come since the last micro-batch: Spark keeps positions in its checkpoint and asks how far the
next micro-batch may go. Two of its habits matter here. It asks for the start twice, and again when
the first micro-batch has to be repeated; so the answer is kept, with a `consumerGroup` in the
database. It reports a commit one micro-batch late and never the last one; so commits serve display
and holds, never removal.

The planner lives in one Python process of the driver; the same class is pickled for executors,
which only call `read`.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from skep.spark.runtime.postgres import forget_connections
from skep.spark.source.message_log import Partitions, Present, Size
from skep.spark.source.options import InvalidOption, ReadOptions, read_options
from skep.spark.source.positions import (
    BEHIND,
    Address,
    Joining,
    Part,
    Position,
    Snapshot,
    Span,
)
from skep.spark.source.splits import SplitReader
from skep.spark.source.tiered_log import TieredLog
from skep.spark.source.typed_shape import shape_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class SkepReader(DataSourceReader):
    """Plans and reads one DataFrame."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        """Check options and columns; raise `InvalidOption` or `InvalidColumns`."""
        self._options: Final = read_options(options)
        if self._options.start == "latest":
            raise InvalidOption("startingOffsets=latest is for streams: a DataFrame would be empty")
        self._splits: Final = SplitReader(self._options, shape_of(options, self._options), schema)

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks."""
        log = TieredLog(self._options)
        partitions = log.partitions()
        present = log.present(partitions)
        start = _first_position(log, self._options, partitions, present)
        end = present.position(partitions) if self._options.end == "latest" else self._options.end
        log.check(end, present)
        return self._splits.plan(log, partitions, start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of one task as record batches."""
        return self._splits.read(partition)


def _first_position(
    log: TieredLog, options: ReadOptions, partitions: Partitions, present: Present
) -> Position:
    start = options.start
    if isinstance(start, Position):
        log.check(start, present)
        log.is_forked(start, present)
        log.check_losses(start, partitions)
        # It is the start in all queues that are read, whichever were read before.
        return replace(start, queues=partitions.queue_ids, partitions=partitions.partition_ids)
    if start == "latest":
        return present.position(partitions)
    end = options.end.seen if isinstance(options.end, Position) else present.seen
    seen = log.passed_over(options.since_us).common(end)
    return present.position(partitions, seen, options.since_us)


_NOWHERE: Final = Address(0, 0, 0)
REREAD_US: Final = 300 * 1_000_000
"""How much earlier than a position messages are read again: clocks of servers differ."""
RENEWALS_PER_HOLD: Final = 4
"""How often a hold is renewed in the time it lasts, however little comes in."""


class SkepStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of one query."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        """Check options and columns; raise `InvalidOption` or `InvalidColumns`."""
        self._options: Final = read_options(options)
        if self._options.end != "latest" or self._options.until_us is not None:
            raise InvalidOption("endingOffsets and endingTimestamp are not for streams")
        self._splits: Final = SplitReader(self._options, shape_of(options, self._options), schema)
        self._log: Final = TieredLog(self._options)
        self._initial: Position | None = None
        self._available: Present | None = None
        self._planned: Position | None = None
        self._waiting_since: float | None = None
        self._renewed_at: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (here and below: names of Spark's)
        """Return where the query begins."""
        if self._initial is None:
            partitions = self._log.partitions()
            present = self._log.present(partitions)
            start = _first_position(self._log, self._options, partitions, present)
            if self._options.consumer_group is not None:
                start = self._log.register(self._options.consumer_group, partitions, start)
            self._initial = start
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch; the reader itself minds all that were set."""
        if self._options.messages_per_trigger is not None:
            return ReadMaxRows(self._options.messages_per_trigger)
        if self._options.bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the present: the query ends when it has come to it."""
        self._available = self._log.present(self._log.partitions())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends; its start when there is nothing to do."""
        position = Position.from_json(start)
        partitions = self._log.partitions()
        present = self._log.present(partitions)
        self._log.check(position, present)
        is_forked = self._log.is_forked(position, present)
        self._log.check_losses(position, partitions)
        if is_forked:
            return self._rewound(position, partitions, present, limit).to_json()
        end = self._end(position, partitions, present, limit) or position
        self._renew_hold(partitions, end if end.held != end.seen else position)
        self._planned = end
        return end.to_json()

    def _end(
        self, position: Position, partitions: Partitions, present: Present, limit: ReadLimit
    ) -> Position | None:
        """Return where the next micro-batch ends; None when there is nothing to do."""
        # One thing after the other: so a position has one part, and queues that join, at most.
        if position.joining is not None:
            known = partitions.known_to(position)
            step = self._joined(position, position.joining, known, present, limit)
            # Even with nothing else to do: its log is held back for what was joining.
            together = replace(position, joining=None)
            return step or self._end(together, partitions, present, limit) or together
        if position.part is not None:
            rest = partitions.known_to(position)
            return self._read(position, rest, position.target, position.part, present, limit)
        return self._begin_joining(position, partitions, present, limit) or self._read(
            position, partitions, self._target(present), None, present, limit
        )

    def _read(
        self,
        position: Position,
        partitions: Partitions,
        target: Snapshot,
        part: Part | None,
        present: Present,
        limit: ReadLimit,
    ) -> Position | None:
        """Go on in all queues alike."""
        span = Span(position.seen, target, part and part.through)
        size = self._admitted(span, partitions, position.since_us, limit)
        finished = present.position(partitions, target, position.since_us)
        if part is not None:
            finished = replace(finished, newest_us=position.newest_us)
        elif self._available is not None and target == self._available.seen:
            finished = replace(finished, newest_us=self._available.newest_us)
        if size is None:
            if part is not None:
                # What was left of the span is gone; the loss has been reported.
                return self._end(finished, partitions, present, limit)
            # Else deleted queues would have to be remembered for as long as nothing comes.
            renamed = replace(finished, seen=position.seen, newest_us=position.newest_us)
            return None if partitions.are_of(position) else renamed
        if self._should_wait(size):
            return None
        self._waiting_since = None
        rest = replace(span, after=size.last)
        if self._log.admit(rest, partitions, position.since_us, messages=1) is None:
            return finished
        return replace(finished, seen=position.seen, part=Part(target, size.last))

    def _begin_joining(
        self, position: Position, partitions: Partitions, present: Present, limit: ReadLimit
    ) -> Position | None:
        """Begin with queues that were added, where a new query would; None if that is here."""
        added = partitions.new_to(position)
        if added is None or self._options.start == "latest":
            return None
        start = _first_position(self._log, self._options, added, present)
        joining = Joining(added.queue_ids, added.partition_ids, start.seen, _NOWHERE)
        return self._joined(position, joining, partitions, present, limit)

    def _joined(
        self,
        position: Position,
        joining: Joining,
        partitions: Partitions,
        present: Present,
        limit: ReadLimit,
    ) -> Position | None:
        """Go on in queues that are behind the others; None if they have come up."""
        after = None if joining.through == _NOWHERE else joining.through
        span = Span(joining.seen, position.seen, after)
        there = self._log.still_there(joining.queues, joining.partitions)
        size = self._admitted(span, there, joining.wanted_from(position.since_us), limit)
        if size is None:
            return None
        taken = present.position(partitions, position.seen, position.since_us)
        return replace(
            taken, newest_us=position.newest_us, joining=replace(joining, through=size.last)
        )

    def _rewound(
        self, position: Position, partitions: Partitions, present: Present, limit: ReadLimit
    ) -> Position:
        """Return a position that has seen only what this timeline has, and reads some of it again.

        Whatever got an id that the old timeline had used was created after the position was
        taken. What was joining joins anew.
        """
        seen = position.seen.common(present.seen)
        since_us = position.taken_us - REREAD_US
        known = partitions.known_to(position)
        if position.joining is not None and position.joining.since_us is not None:
            since_us = min(since_us, position.joining.since_us)
        elif position.joining is not None:
            left = set(known.queue_ids).difference(position.joining.queues)
            known = known.only(left, known.partition_ids)
        fresh = present.position(known, seen, position.since_us)
        past = self._log.passed_over(since_us).common(seen)
        joining = Joining(known.queue_ids, known.partition_ids, past, _NOWHERE, since_us)
        step = self._joined(fresh, joining, known, present, limit) or fresh
        return replace(step, newest_us=None, is_rewound=True)

    def _target(self, present: Present) -> Snapshot:
        if self._available is None:
            return present.seen
        return self._available.seen.common(present.seen)

    def _admitted(
        self, span: Span, partitions: Partitions, since_us: int | None, limit: ReadLimit
    ) -> Size | None:
        """Return how much of a span one micro-batch may read; None if there is nothing."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return self._log.admit(
            span,
            partitions,
            since_us,
            messages=self._options.messages_per_trigger if is_limited else None,
            size_bytes=self._options.bytes_per_trigger if is_limited else None,
        )

    def _should_wait(self, size: Size) -> bool:
        """Tell whether a micro-batch is too small to begin yet."""
        wanted = self._options.messages_to_wait_for
        if wanted is None or size.messages >= wanted or self._available is not None:
            return False
        now = time.monotonic()
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        return now - self._waiting_since < self._options.trigger_delay_s

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the present, for Spark to show in the progress of the query, and the lag."""
        partitions = self._log.partitions()
        present = self._log.present(partitions)
        shown = present.position(partitions).to_json()
        if self._planned is not None and self._options.tier != "archive":
            shown[BEHIND] = self._log.behind(self._planned, partitions, present)
        return shown

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the tasks of a micro-batch."""
        first, last = Position.from_json(start), Position.from_json(end)
        # What the position says, not what is asked for now: a repeated batch must be the same.
        partitions = (
            self._log.partitions()
            if last.queues is None
            else self._log.still_there(last.queues, last.partitions)
        )
        present = self._log.present(partitions)
        self._log.check(last, present)
        self._log.is_forked(last, present)
        # Spark may ask long after the end was chosen. What was removed before, was told then.
        self._log.check_losses(replace(first, checked=last.checked), partitions)
        return self._splits.plan(self._log, partitions, first, last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of one task as record batches."""
        return self._splits.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Put on record how far the query has come, and keep the log from there on."""
        if self._options.consumer_group is not None:
            position = Position.from_json(end)
            partitions = self._log.partitions()
            self._log.publish(self._options.consumer_group, partitions, position, position.held)
            self._renewed_at = time.monotonic()

    def _renew_hold(self, partitions: Partitions, position: Position) -> None:
        """Say that this reader is alive: an idle stream commits nothing, but must not lapse."""
        group = self._options.consumer_group
        if group is None:
            return
        now = time.monotonic()
        pause_s = self._options.keep_s / RENEWALS_PER_HOLD
        is_joining = position.held != position.seen
        if self._renewed_at is None or now - self._renewed_at >= pause_s or is_joining:
            self._log.publish(group, partitions, None, position.held)
            self._renewed_at = now

    def stop(self) -> None:
        """Let go of the database."""
        forget_connections()
