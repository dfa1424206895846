"""Turn checked rows into what is staged: finished segments, messages for later, dead letters.

A task gathers rows for a while and sorts them by partition, keeping their order; then each
partition's rows are cut into segments. Bodies are joined by Arrow, a column at a time, in the
layout of `skep.model.envelopes`. Only hashing a transaction id and sealing a payload are done one
by one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import xxhash

from skep.model.envelopes import (
    DATA_MARK,
    HEADERS_MARK,
    ID_MARK,
    UNTRACED_MARK,
    build_envelope,
)
from skep.spark.runtime.arrow import byte_strings, needs_no_escapes, pa, slices_of, text_lengths
from skep.spark.sink.columns import DELIVER_AT, HEADERS, PARTITION, PAYLOAD, QUEUE, TRANSACTION_ID
from skep.spark.sink.json_rows import json_texts, pc
from skep.spark.sink.rows import MADE_UP, Reject
from skep.spark.sink.rules import QueueRules

SEGMENT_BYTES: Final = 32 << 10
"""A segment ends with the message that exceeds it. Segments are larger than those of pushes on
purpose: bodies of this size lie out of line, so that the commit that gives them their place does
not write them again. A consumer reads the whole segment that its messages are in."""
KEY_BYTES: Final = 16

Seal = Callable[[bytes], bytes]


class Place(NamedTuple):
    """Whose staging it is."""

    write_id: str
    epoch: int
    task: int
    attempt: int
    staged_at: datetime
    target: str = ""
    """What the write is recorded for; empty for whatever it writes to."""


@dataclass(slots=True, eq=False)
class SegmentMaker:
    """Makes the staged rows of one attempt of a task."""

    place: Place
    hash_seed: int
    rules_of: Callable[[str], QueueRules]
    seal: Seal
    number: int = 0
    """Of the next staged row."""

    def segments(self, rows: Any) -> tuple[Any, Any]:
        """Return what is known of the segments of rows that are to be delivered at once.

        And the segments themselves as the log has them, in the partition of the attempt.
        """
        codes = _partitions(rows)
        order = _order(codes)
        codes, sorted_rows = (
            (codes, rows) if order is None else (codes[order], _sorted(rows, order))
        )
        parts = self._parts(sorted_rows)
        starts = _segment_starts(codes, _sizes(parts))
        places = starts if order is None else order[starts]
        first_rows = rows.select([QUEUE, PARTITION]).take(pa.array(places))
        made_up = sorted_rows.column(MADE_UP).to_numpy(zero_copy_only=False)
        known = self._staged(
            first_rows,
            messages=pa.array(np.diff(np.append(starts, len(codes))), pa.int32()),
            is_unique=pa.array(np.logical_and.reduceat(made_up, starts)),
            **self._followed(first_rows),
        )
        keys = self._keys(sorted_rows)
        bounds = pairwise([*(starts * KEY_BYTES).tolist(), len(keys)])
        return known, self._stored(
            known.column("number"),
            pa.array([keys[start:end] for start, end in bounds], pa.binary()),
            _bodies(parts, starts),
        )

    def messages_for_later(self, rows: Any) -> Any:
        """Return what is to be staged of rows that are to be delivered later."""
        keys = self._keys(rows)
        return self._staged(
            rows.select([QUEUE, PARTITION]),
            **self._followed(rows),
            key=pa.array([keys[at : at + 16] for at in range(0, len(keys), 16)], pa.binary()),
            transaction_id=rows.column(TRANSACTION_ID),
            envelope=self._envelopes(rows).cast(pa.binary()),
            deliver_at=rows.column(DELIVER_AT),
        )

    def dead_letters(self, rejects: Sequence[Reject]) -> Any:
        """Return what is to be staged of rejects; each of them has a queue."""
        partitions = pa.RecordBatch.from_pydict(
            {
                QUEUE: pa.array([each.queue for each in rejects], pa.string()),
                PARTITION: pa.array([each.partition for each in rejects], pa.string()),
            }
        )
        followed = self._followed(partitions)
        plain = [build_envelope(each.transaction_id, each.payload) for each in rejects]
        is_sealed = followed["is_sealed"].to_pylist()
        return self._staged(
            partitions,
            is_sealed=followed["is_sealed"],
            transaction_id=pa.array([each.transaction_id for each in rejects], pa.string()),
            envelope=pa.array(self._sealed(plain, is_sealed), pa.binary()),
            error=pa.array([each.error for each in rejects], pa.string()),
        )

    def _stored(self, numbers: Any, keys: Any, bodies: Any) -> Any:
        """Return rows of the log, at addresses that no reader reads."""
        count = len(numbers)
        addresses = numbers.cast(pa.int64())
        return pa.RecordBatch.from_pydict(
            {
                "partition_id": pa.array(np.full(count, -self.place.attempt, np.int64)),
                "first": addresses,
                "last": addresses,
                "queue_id": pa.array(np.zeros(count, np.int32)),
                "created_at": self._staged_at(count),
                "keys": keys,
                "body": bodies,
            }
        )

    def _staged_at(self, count: int) -> Any:
        return pa.array([self.place.staged_at] * count, pa.timestamp("us", tz="UTC"))

    def _staged(self, partitions: Any, **columns: Any) -> Any:
        """Return rows of staging: whose they are, in which partitions, and what."""
        count = partitions.num_rows
        numbers = np.arange(self.number, self.number + count, dtype=np.int32)
        self.number += count
        whose = {
            "write_id": pa.array([self.place.write_id] * count, pa.string()),
            "target": pa.array([self.place.target] * count, pa.string()),
            "epoch": pa.array(np.full(count, self.place.epoch, np.int64)),
            "task": pa.array(np.full(count, self.place.task, np.int32)),
            "attempt": pa.array(np.full(count, self.place.attempt, np.int64)),
            "number": pa.array(numbers),
            QUEUE: partitions.column(QUEUE),
            PARTITION: partitions.column(PARTITION),
            "staged_at": self._staged_at(count),
        }
        return pa.RecordBatch.from_pydict(whose | columns)

    def _followed(self, partitions: Any) -> dict[str, Any]:
        """Return by which rules messages were made."""
        queues = partitions.column(QUEUE).dictionary_encode()
        rules = [self.rules_of(queue) for queue in queues.dictionary.to_pylist()]
        is_sealed = pa.array([each.is_encrypted for each in rules], pa.bool_())
        digests = pa.array([each.schema_digest for each in rules], pa.string())
        return {
            "is_sealed": is_sealed.take(queues.indices),
            "schema_digest": digests.take(queues.indices),
        }

    def _keys(self, rows: Any) -> bytes:
        seeds = repeat(self.hash_seed)
        return b"".join(
            b"".join(map(xxhash.xxh3_128_digest, names, seeds))
            for names in byte_strings(rows.column(TRANSACTION_ID))
        )

    def _envelopes(self, rows: Any) -> Any:
        return pc.binary_join_element_wise(*self._parts(rows), "")

    def _parts(self, rows: Any) -> list[Any]:
        """Return what envelopes are made of, to be joined: columns, and texts for every row."""
        plain = _plain_parts(rows)
        is_sealed = self._followed(rows)["is_sealed"]
        if not pc.any(is_sealed).as_py():
            return plain
        envelopes = pc.binary_join_element_wise(*plain, "").cast(pa.binary()).to_pylist()
        sealed = self._sealed(envelopes, is_sealed.to_pylist())
        return [pa.array(sealed, pa.binary()).cast(pa.string())]

    def _sealed(self, envelopes: Iterable[bytes], is_sealed: Iterable[bool]) -> list[bytes]:
        return [
            self.seal(envelope) if is_wanted else envelope
            for envelope, is_wanted in zip(envelopes, is_sealed, strict=True)
        ]


def _plain_parts(rows: Any) -> list[Any]:
    names, headers = rows.column(TRANSACTION_ID), rows.column(HEADERS)
    before, behind = ID_MARK.decode(), UNTRACED_MARK.decode()
    if needs_no_escapes(names):
        # Most do not; then they are not copied for their quotes alone.
        before, behind = f'{before}"', f'"{behind}'
    else:
        names = json_texts(names)
    parts = [before, names, behind]
    if headers.null_count < len(headers):
        marked = pc.binary_join_element_wise(HEADERS_MARK.decode(), headers, "")
        parts.append(pc.fill_null(marked, ""))
    return [*parts, DATA_MARK.decode(), rows.column(PAYLOAD), "}"]


def _partitions(rows: Any) -> Any:
    """Return the partition of each row as a number."""
    queues = rows.column(QUEUE).dictionary_encode()
    partitions = rows.column(PARTITION).dictionary_encode()
    codes = partitions.indices.to_numpy()
    if len(queues.dictionary) == 1:
        return codes
    return queues.indices.to_numpy().astype(np.int64) * len(partitions.dictionary) + codes


def _order(codes: Any) -> Any:
    """Return the stable order of rows by partition; None if they are in that order already."""
    if (codes[1:] >= codes[:-1]).all():
        return None
    return np.argsort(codes, kind="stable")


def _sorted(rows: Any, order: Any) -> Any:
    """Return rows in another order; of columns without values there is nothing to move."""
    places = pa.array(order)
    columns = [
        column if column.null_count == len(column) else column.take(places)
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _sizes(parts: Sequence[Any]) -> Any:
    """Return how many bytes the parts of each row are."""
    texts = sum(len(part) for part in parts if isinstance(part, str))
    return texts + sum(text_lengths(part) for part in parts if not isinstance(part, str))


def _segment_starts(codes: Any, sizes: Any) -> Any:
    """Return where segments begin in rows sorted by partition."""
    rows = np.arange(len(codes))
    partition_start = np.maximum.accumulate(
        np.where(np.append(True, codes[1:] != codes[:-1]), rows, 0)
    )
    bytes_before = np.append(0, np.cumsum(sizes, dtype=np.int64)[:-1])
    number = (bytes_before - bytes_before[partition_start]) // SEGMENT_BYTES
    is_start = np.append(True, (codes[1:] != codes[:-1]) | (number[1:] != number[:-1]))
    return np.flatnonzero(is_start)


def _bodies(parts: Sequence[Any], starts: Any) -> Any:
    """Join the parts of all rows to JSON arrays, one per segment.

    Brackets and commas are joined with the rest, so that a segment is a slice of the whole and
    nothing is copied once more.
    """
    count = len(next(part for part in parts if not isinstance(part, str)))
    openings, closings = np.full(count, 1, np.int8), np.full(count, 1, np.int8)
    openings[starts] = 0
    closings[np.append(starts[1:], count) - 1] = 0
    texts = pc.binary_join_element_wise(
        pa.array(["[", ","]).take(pa.array(openings)),
        *parts,
        pa.array(["]", ""]).take(pa.array(closings)),
        "",
    )
    return slices_of(texts, starts)
