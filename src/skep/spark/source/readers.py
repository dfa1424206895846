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
from skep.spark.source.options import InvalidOption, ReadOptions, read_options, shape_options
from skep.spark.source.positions import BEHIND, Part, Position, Snapshot, Span
from skep.spark.source.splits import SplitReader
from skep.spark.source.tiered_log import TieredLog

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class SkepReader(DataSourceReader):
    """Plans and reads one DataFrame."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        """Check options and columns; raise `InvalidOption` or `InvalidColumns`."""
        self._options: Final = read_options(options)
        if self._options.start == "latest":
            raise InvalidOption("startingOffsets=latest is for streams: a DataFrame would be empty")
        self._splits: Final = SplitReader(self._options, shape_options(options), schema)

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks."""
        log = TieredLog(self._options)
        partitions = log.partitions()
        present = log.present(partitions)
        start = _first_position(log, self._options, partitions, present)
        end = present.position() if self._options.end == "latest" else self._options.end
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
        log.check_losses(start, partitions)
        return start
    if start == "latest":
        return present.position()
    end = options.end.seen if isinstance(options.end, Position) else present.seen
    seen = log.passed_over(options.since_us).common(end)
    return Position(present.system, seen, present.snapshot, present.taken_us, options.since_us)


RENEWALS_PER_HOLD: Final = 4
"""How often a hold is renewed in the time it lasts, however little comes in."""


class SkepStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of one query."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        """Check options and columns; raise `InvalidOption` or `InvalidColumns`."""
        self._options: Final = read_options(options)
        if self._options.end != "latest" or self._options.until_us is not None:
            raise InvalidOption("endingOffsets and endingTimestamp are not for streams")
        self._splits: Final = SplitReader(self._options, shape_options(options), schema)
        self._log: Final = TieredLog(self._options)
        self._initial: Position | None = None
        self._available: Snapshot | None = None
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
        self._available = self._log.present(self._log.partitions()).seen

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends; its start when there is nothing to do."""
        position = Position.from_json(start)
        partitions = self._log.partitions()
        present = self._log.present(partitions)
        self._log.check(position, present)
        self._log.check_losses(position, partitions)
        self._renew_hold(partitions, position)
        self._planned = self._end(position, partitions, present, limit)
        return self._planned.to_json()

    def _end(
        self, position: Position, partitions: Partitions, present: Present, limit: ReadLimit
    ) -> Position:
        # A span that was begun is finished first, so that a position has one part at most.
        target = position.target if position.part else self._target(present)
        after = position.part.through if position.part else None
        span = Span(position.seen, target, after)
        size = self._admitted(span, partitions, position.since_us, limit)
        finished = Position(
            position.system, target, present.snapshot, present.taken_us, position.since_us
        )
        if size is None:
            # What was left of the span is gone; the loss has been reported.
            return self._end(finished, partitions, present, limit) if position.part else position
        if self._should_wait(size):
            return position
        self._waiting_since = None
        rest = replace(span, after=size.last)
        if self._log.admit(rest, partitions, position.since_us, messages=1) is None:
            return finished
        return replace(finished, seen=position.seen, part=Part(target, size.last))

    def _target(self, present: Present) -> Snapshot:
        return present.seen if self._available is None else self._available.common(present.seen)

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
        shown = present.position().to_json()
        if self._planned is not None and self._options.tier != "archive":
            shown[BEHIND] = self._log.behind(self._planned, partitions, present)
        return shown

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the tasks of a micro-batch."""
        first, last = Position.from_json(start), Position.from_json(end)
        partitions = self._log.partitions()
        self._log.check(last, self._log.present(partitions))
        return self._splits.plan(self._log, partitions, first, last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of one task as record batches."""
        return self._splits.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Put on record how far the query has come, and keep the log from there on."""
        if self._options.consumer_group is not None:
            position = Position.from_json(end)
            partitions = self._log.partitions()
            self._log.publish(self._options.consumer_group, partitions, position, position.seen)
            self._renewed_at = time.monotonic()

    def _renew_hold(self, partitions: Partitions, position: Position) -> None:
        """Say that this reader is alive: an idle stream commits nothing, but must not lapse."""
        group = self._options.consumer_group
        if group is None:
            return
        now = time.monotonic()
        pause_s = self._options.keep_s / RENEWALS_PER_HOLD
        if self._renewed_at is None or now - self._renewed_at >= pause_s:
            self._log.publish(group, partitions, None, position.seen)
            self._renewed_at = now

    def stop(self) -> None:
        """Let go of the database."""
        forget_connections()
