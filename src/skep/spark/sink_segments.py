"""Turn checked rows into what is staged: finished segments, messages for later, dead letters.

A task gathers rows for a while and sorts them by lane, keeping their order; then each lane's rows
are cut into segments. Bodies are joined by Arrow, a column at a time, in the layout of
`skep.model.envelopes`. Only hashing a transaction id and sealing a payload are done one by one.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
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
from skep.spark.arrow import pa
from skep.spark.sink_columns import DELIVER_AT, HEADERS, PARTITION, PAYLOAD, QUEUE, TRANSACTION_ID
from skep.spark.sink_json import json_texts, pc
from skep.spark.sink_rows import MADE_UP, Reject
from skep.spark.sink_rules import QueueRules

SEGMENT_MESSAGES_MAX: Final = 500
SEGMENT_BYTES: Final = 128 << 10
"""A segment ends with the first of these. Larger ones are cheaper to write and to probe for
duplicates; but a consumer that asks for ten messages reads the whole segment they are in."""
KEY_BYTES: Final = 16

Seal = Callable[[bytes], bytes]


class Place(NamedTuple):
    """Whose staging it is."""

    write_id: str
    epoch: int
    task: int
    attempt: int
    staged_at: datetime


class SegmentMaker:
    """Makes the staged rows of one attempt of a task."""

    def __init__(
        self,
        place: Place,
        *,
        hash_seed: int,
        rules_of: Callable[[str], QueueRules],
        seal: Seal,
    ) -> None:
        self._place: Final = place
        self._hash_seed: Final = hash_seed
        self._rules_of: Final = rules_of
        self._seal: Final = seal
        self._number = 0

    def segments(self, rows: Any) -> tuple[Any, Any]:
        """Return the segments of rows that are to be delivered at once.

        Returns:
            What is known of them, and the segments themselves as the log has them, in the lane of
            the attempt.
        """
        codes = _lanes(rows)
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        rows = rows.take(pa.array(order))
        envelopes = self._envelopes(rows)
        starts = _segment_starts(codes, pc.binary_length(envelopes).to_numpy())
        ends = np.append(starts[1:], len(codes))
        first_rows = rows.select([QUEUE, PARTITION]).take(pa.array(starts))
        made_up = rows.column(MADE_UP).to_numpy(zero_copy_only=False)
        known = self._staged(
            first_rows,
            messages=pa.array(ends - starts, pa.int32()),
            is_unique=pa.array(np.logical_and.reduceat(made_up, starts)),
            **self._followed(first_rows),
        )
        keys = self._keys(rows)
        spans = zip(starts * KEY_BYTES, ends * KEY_BYTES, strict=True)
        return known, self._stored(
            known.column("number"),
            pa.array([keys[start:end] for start, end in spans], pa.binary()),
            _bodies(envelopes, starts),
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
        lanes = pa.RecordBatch.from_pydict(
            {
                QUEUE: pa.array([each.queue for each in rejects], pa.string()),
                PARTITION: pa.array([each.partition for each in rejects], pa.string()),
            }
        )
        followed = self._followed(lanes)
        plain = [build_envelope(each.transaction_id, each.payload) for each in rejects]
        is_sealed = followed["is_sealed"].to_pylist()
        return self._staged(
            lanes,
            is_sealed=followed["is_sealed"],
            transaction_id=pa.array([each.transaction_id for each in rejects], pa.string()),
            envelope=pa.array(self._sealed(plain, is_sealed), pa.binary()),
            error=pa.array([each.error for each in rejects], pa.string()),
        )

    def _stored(self, numbers: Any, keys: Any, bodies: Any) -> Any:
        """Return rows of the log, at addresses that nobody reads."""
        count = len(numbers)
        addresses = numbers.cast(pa.int64())
        return pa.RecordBatch.from_pydict(
            {
                "partition_id": pa.array(np.full(count, -self._place.attempt, np.int64)),
                "first": addresses,
                "last": addresses,
                "queue_id": pa.array(np.zeros(count, np.int32)),
                "created_at": self._staged_at(count),
                "keys": keys,
                "body": bodies,
            }
        )

    def _staged_at(self, count: int) -> Any:
        return pa.array([self._place.staged_at] * count, pa.timestamp("us", tz="UTC"))

    def _staged(self, lanes: Any, **columns: Any) -> Any:
        """Return rows of staging: whose they are, in which lanes, and what."""
        count = lanes.num_rows
        numbers = np.arange(self._number, self._number + count, dtype=np.int32)
        self._number += count
        whose = {
            "write_id": pa.array([self._place.write_id] * count, pa.string()),
            "epoch": pa.array(np.full(count, self._place.epoch, np.int64)),
            "task": pa.array(np.full(count, self._place.task, np.int32)),
            "attempt": pa.array(np.full(count, self._place.attempt, np.int64)),
            "number": pa.array(numbers),
            QUEUE: lanes.column(QUEUE),
            PARTITION: lanes.column(PARTITION),
            "staged_at": self._staged_at(count),
        }
        return pa.RecordBatch.from_pydict(whose | columns)

    def _followed(self, lanes: Any) -> dict[str, Any]:
        """Return by which rules messages were made."""
        queues = lanes.column(QUEUE).dictionary_encode()
        rules = [self._rules_of(queue) for queue in queues.dictionary.to_pylist()]
        is_sealed = pa.array([each.is_encrypted for each in rules], pa.bool_())
        digests = pa.array([each.schema_digest for each in rules], pa.string())
        return {
            "is_sealed": is_sealed.take(queues.indices),
            "schema_digest": digests.take(queues.indices),
        }

    def _keys(self, rows: Any) -> bytes:
        digest, seed = xxhash.xxh3_128_digest, self._hash_seed
        names = rows.column(TRANSACTION_ID).cast(pa.binary()).to_pylist()
        return b"".join([digest(name, seed) for name in names])

    def _envelopes(self, rows: Any) -> Any:
        headers = rows.column(HEADERS)
        parts = [ID_MARK, json_texts(rows.column(TRANSACTION_ID)), UNTRACED_MARK]
        if headers.null_count < len(headers):
            marked = pc.binary_join_element_wise(HEADERS_MARK.decode(), headers, "")
            parts.append(pc.fill_null(marked, ""))
        parts += [DATA_MARK, rows.column(PAYLOAD), b"}"]
        texts = [part.decode() if isinstance(part, bytes) else part for part in parts]
        envelopes = pc.binary_join_element_wise(*texts, "")
        is_sealed = self._followed(rows)["is_sealed"]
        if not pc.any(is_sealed).as_py():
            return envelopes
        plain = envelopes.cast(pa.binary()).to_pylist()
        return pa.array(self._sealed(plain, is_sealed.to_pylist()), pa.binary()).cast(pa.string())

    def _sealed(self, envelopes: Iterable[bytes], is_sealed: Iterable[bool]) -> list[bytes]:
        return [
            self._seal(envelope) if is_wanted else envelope
            for envelope, is_wanted in zip(envelopes, is_sealed, strict=True)
        ]


def _lanes(rows: Any) -> Any:
    """Return the lane of each row as a number."""
    # Names hold no NUL, so no two pairs of names look the same.
    names = pc.binary_join_element_wise(rows.column(QUEUE), rows.column(PARTITION), "\0")
    return names.dictionary_encode().indices.to_numpy()


def _segment_starts(codes: Any, sizes: Any) -> Any:
    """Return where segments begin in rows sorted by lane."""
    rows = np.arange(len(codes))
    lane_start = np.maximum.accumulate(np.where(np.append(True, codes[1:] != codes[:-1]), rows, 0))
    bytes_before = np.append(0, np.cumsum(sizes, dtype=np.int64)[:-1])
    by_count = (rows - lane_start) // SEGMENT_MESSAGES_MAX
    by_bytes = (bytes_before - bytes_before[lane_start]) // SEGMENT_BYTES
    # A new lane, or either of the two counters has gone on: a segment ends with both.
    number = by_count + by_bytes
    is_start = np.append(True, (codes[1:] != codes[:-1]) | (number[1:] != number[:-1]))
    return np.flatnonzero(is_start)


def _bodies(envelopes: Any, starts: Any) -> Any:
    offsets = pa.array(np.append(starts, len(envelopes)), pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, envelopes), ",")
    return pc.binary_join_element_wise("[", joined, "]", "").cast(pa.binary())
