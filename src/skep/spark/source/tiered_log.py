"""The log and its archive as one: what is read from which tier.

For every queue the archive has a watermark, a transaction id. What the queue stored below it is in
the lake, whether or not it is still in the live log; so a reader of both tiers takes the lake below
the watermark and the live log from there on, and finds nothing twice. Positions know nothing of
tiers: rows of the lake carry the same addresses as segments.

The watermark moves while readers plan. A plan counts only if it was the same before and after, and
a task whose planned segments are gone looks for them in the lake: the transaction that deleted them
from the log has put them there.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from skep.model.errors import NotFound
from skep.settings import load_settings
from skep.spark.source.message_log import MessageLog, Partitions, Present, RestoredDatabase, Size
from skep.spark.source.options import ReadOptions
from skep.spark.source.positions import Span, moment_of

if TYPE_CHECKING:
    from skep.spark.archive.erasures import LakeFile
    from skep.spark.archive.read import Choice

BOUNDS: Final = "select * from skep.archive_bounds($1::text::integer[])"
NO_ARCHIVE: Final = 1
"""The watermark of a queue of which nothing is archived."""

Planned = TypeVar("Planned")


@dataclass(frozen=True, slots=True)
class Boundary:
    """Queues that change from the lake to the live log at the same transaction."""

    partitions: Partitions
    upto: int

    def live(self, span: Span) -> Span:
        """Return the part of a span that is read from the live log."""
        if self.upto == NO_ARCHIVE:
            return span
        return replace(span, seen=span.seen.with_all_below(self.upto))

    def archived(self, span: Span) -> Span | None:
        """Return the part of a span that is read from the lake; None if it has none."""
        upto = span.upto.cut(self.upto)
        has_none = self.upto == NO_ARCHIVE or span.seen.covers(upto)
        return None if has_none else replace(span, upto=upto)


class TieredLog(MessageLog):
    """Plans what one reader reads of the log and its archive."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._tiers: Final = options.tier

    def boundaries(self, partitions: Partitions) -> list[Boundary]:
        """Return where the queues change from the one tier to the other, now.

        Raises `RestoredDatabase`, or `NotFound` if only the archive is read and a queue has none.
        """
        if self._tiers == "live":
            return [Boundary(partitions, NO_ARCHIVE)]
        rows = self.ask(BOUNDS, partitions.queue_ids)
        if any(row["is_foreign"] for row in rows):
            raise RestoredDatabase(
                "the archive belongs to another server. After pg_upgrade run `skep adopt`. If this "
                "database was restored from a dump, read with tier=live, or run `select "
                "skep.forget_archive()` in it once"
            )
        queues: dict[int, list[int]] = {}
        for row in rows:
            queues.setdefault(row["upto"], []).append(row["queue_id"])
        if self._tiers == "archive" and NO_ARCHIVE in queues:
            names = _some(partitions, queues[NO_ARCHIVE]).queue_names
            raise NotFound(
                f"nothing of queue {', '.join(names)} is archived: set archiveAfterSeconds and run "
                "`skep archive run`, or read with tier=all"
            )
        return [Boundary(_some(partitions, ids), upto) for upto, ids in sorted(queues.items())]

    def settled(self, partitions: Partitions, plan: Callable[[list[Boundary]], Planned]) -> Planned:
        """Return a plan during which no boundary has moved."""
        boundaries = self.boundaries(partitions)
        while True:
            planned = plan(boundaries)
            after = boundaries if self._tiers == "live" else self.boundaries(partitions)
            if after == boundaries:
                return planned
            boundaries = after

    def present(self, partitions: Partitions) -> Present:
        """Take the present position, in the tiers that are read; raise `RestoredDatabase`."""
        # Before the snapshot, which then sees everything below.
        marks = [boundary.upto for boundary in self.boundaries(partitions)]
        present = super().present(partitions)
        if self._tiers == "live" or not marks:
            return present
        upto = min(marks) if self._tiers == "archive" else max(present.seen.xmax, *marks)
        seen = present.snapshot.cut(upto)
        newest_us = present.newest_us if seen == present.seen else None
        return present._replace(seen=seen, newest_us=newest_us)

    def admit(
        self,
        span: Span,
        partitions: Partitions,
        since_us: int | None,
        *,
        messages: int | None = None,
        size_bytes: int | None = None,
    ) -> Size | None:
        """Return how much of a span fits into the limits; None if there is nothing in it."""
        is_limited = messages is not None or size_bytes is not None

        def admit(boundaries: list[Boundary]) -> Size | None:
            archived = [
                sizes
                for boundary in boundaries
                if (sizes := self._archived_sizes(span, boundary, since_us, is_limited=is_limited))
            ]
            # Only where sizes are merged does one have to know every segment.
            is_merged = is_limited and (archived or len(boundaries) > 1)
            live = [
                self.divide(
                    boundary.live(span), boundary.partitions, since_us, messages=messages,
                    size_bytes=size_bytes, share=1 if is_merged else None,
                )
                for boundary in (boundaries if self._tiers != "archive" else ())
            ]  # fmt: skip
            merged = heapq.merge(*archived, *live, key=lambda size: size.last)
            return _fitting(merged, messages, size_bytes)

        return self.settled(partitions, admit)

    def _archived_sizes(
        self, span: Span, boundary: Boundary, since_us: int | None, *, is_limited: bool
    ) -> Iterable[Size] | None:
        """Return the sizes of segments in the lake, in their order; None if there are none."""
        part = boundary.archived(span)
        if part is None:
            return None
        from skep.spark.archive.read import segments_in_order, whole_size  # noqa: PLC0415 (heavy)
        from skep.spark.archive.storage import Storage  # noqa: PLC0415 (as above)

        choice = self.choice(boundary, part, since_us)
        files = self.lake_files(boundary, choice)
        found = segments_in_order(Storage(storage_of(self._options)), files, choice)
        first = next(found, None)
        if first is None:
            return None
        return chain([first], found) if is_limited else [whole_size(files, choice)]

    def choice(self, boundary: Boundary, part: Span, since_us: int | None) -> "Choice":
        """Return the messages that are wanted of the lake."""
        from skep.spark.archive.read import Choice  # noqa: PLC0415 (heavy, and seldom needed)

        partitions = boundary.partitions
        return Choice(
            partitions.queue_ids, partitions.partition_ids, part, since_us, self._options.until_us
        )

    def lake_files(self, boundary: Boundary, choice: "Choice") -> list["LakeFile"]:
        """Return the files in which something of a span may be, in the order of transactions.

        Raises `NotFound` if nothing was ever archived.
        """
        from skep.spark.archive.lake import Lake  # noqa: PLC0415 (heavy, and an extra)

        since, until = (
            None if each is None else moment_of(each) for each in (choice.since_us, choice.until_us)
        )
        xids = {"xid_min": choice.span.seen.xmin, "xid_end": choice.span.upto.xmax}
        with Lake(self._options.url, storage_of(self._options)) as lake:
            found = [
                file
                for queue in boundary.partitions.queue_names
                for file in lake.files(queue, since=since, until=until, **xids)
            ]
        return sorted(found, key=lambda file: file.order)


def storage_of(options: ReadOptions) -> dict[str, str]:
    """Return how to reach the files of the archive."""
    from skep.spark.archive.storage import storage_properties  # noqa: PLC0415 (heavy, and an extra)

    text = options.storage
    return storage_properties(load_settings().settings.archive_storage if text is None else text)


def _some(partitions: Partitions, queue_ids: Iterable[int]) -> Partitions:
    names = dict(zip(partitions.queue_ids, partitions.queue_names, strict=True))
    chosen = {id_: names[id_] for id_ in names if id_ in set(queue_ids)}
    return replace(partitions, queue_ids=tuple(chosen), queue_names=tuple(chosen.values()))


def _fitting(sizes: Iterable[Size], messages: int | None, size_bytes: int | None) -> Size | None:
    """Return the sum of the sizes that fit; the first one always does."""
    total: Size | None = None
    for size in sizes:
        if total is None:
            total = size
            continue
        both = Size(max(total.last, size.last), *map(sum, zip(total[1:], size[1:], strict=True)))
        if (messages is not None and both.messages > messages) or (
            size_bytes is not None and both.bytes > size_bytes
        ):
            break
        total = both
    return total
