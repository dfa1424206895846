"""Columns of messages that were found in the bodies of segments, and not decoded.

A member of many messages becomes a column by one copy of its bytes: no Python object stands for a
message, unless headers or parsed payloads are asked for.
"""

from typing import Any, Final

import numpy as np

from skep.model.ids import OFFSET_LOW_BITS, message_id_head
from skep.spark.decode.envelope_spans import EnvelopeSpans, Numbers, Spans
from skep.spark.decode.headers import Pairs, header_pairs
from skep.spark.runtime.arrow import pa

_ID_HEAD: Final = 24
_ID_DIGITS: Final = 12
_ID: Final = _ID_HEAD + _ID_DIGITS
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHIFTS: Final = np.arange(4 * (_ID_DIGITS - 1), -1, -4)


class FoundMessages:
    """Messages of a batch of segments, as columns."""

    def __init__(self, batch: Any, spans: EnvelopeSpans) -> None:
        """Take them.

        Args:
            batch: The segments, of which at least `partition_id` and `first` are known.
            spans: Where the messages lie in their bodies.
        """
        self._batch: Final = batch
        self._spans: Final = spans
        self._segments: Final = pa.array(spans.segments)

    def __len__(self) -> int:
        return len(self._segments)

    def shared(self, name: str) -> Any:
        """Return a column that all messages of a segment share."""
        return self._batch.column(name).take(self._segments)

    @property
    def offsets(self) -> Any:
        """Return the places of the messages in their partitions."""
        return pa.array(self._offsets())

    def message_ids(self) -> Any:
        """Return the wire ids of the messages."""
        offsets = self._offsets()
        spelled = np.empty((len(offsets), _ID), np.uint8)
        spelled[:, :_ID_HEAD] = self._id_heads(offsets)
        low = offsets & OFFSET_LOW_BITS
        spelled[:, _ID_HEAD:] = _DIGITS[(low[:, np.newaxis] >> _SHIFTS) & 0xF]
        bounds = np.arange(0, (len(offsets) + 1) * _ID, _ID, dtype=np.int32)
        return _strings(spelled, bounds)

    def _id_heads(self, offsets: Numbers) -> Numbers:
        """Return what the ids begin with; neighbours mostly share it."""
        partitions = np.asarray(self.shared("partition_id"))
        is_new = np.ones(len(partitions), np.bool_)
        is_new[1:] = (np.diff(partitions) != 0) | (np.diff(offsets & ~OFFSET_LOW_BITS) != 0)
        rows = np.flatnonzero(is_new)
        heads = b"".join(
            message_id_head(partition, offset)
            for partition, offset in zip(
                partitions[rows].tolist(), offsets[rows].tolist(), strict=True
            )
        )
        return np.frombuffer(heads, np.uint8).reshape(-1, _ID_HEAD)[np.cumsum(is_new) - 1]

    def transaction_ids(self) -> Any:
        """Return the transaction ids."""
        return self._texts(self._spans.transaction_ids)

    def trace_ids(self) -> Any:
        """Return the trace ids; null where there is none."""
        return self._texts_or_nulls(self._spans.trace_ids)

    def producers(self) -> Any:
        """Return who sent the messages; null where nobody knows."""
        return self._texts_or_nulls(self._spans.producers)

    def headers(self) -> list[Pairs]:
        """Return the headers as texts; None for messages without any."""
        found: list[Pairs] = [None] * len(self)
        starts, ends = self._spans.headers
        rows = np.flatnonzero(starts < ends)
        for row, start, end in zip(
            rows.tolist(), starts[rows].tolist(), ends[rows].tolist(), strict=True
        ):
            found[row] = header_pairs(self._spans.text[start:end])
        return found

    def payloads(self) -> Any:
        """Return the payloads, as they were pushed."""
        return self._texts(self._spans.payloads)

    def payload_bytes(self) -> Any:
        """Return how long the payloads are."""
        starts, ends = self._spans.payloads
        return pa.array((ends - starts).astype(np.int32))

    def _offsets(self) -> Numbers:
        firsts = np.asarray(self._batch.column("first"))
        return firsts[self._spans.segments] + self._spans.places

    def _texts_or_nulls(self, spans: Spans) -> Any:
        is_null = (spans.starts == spans.ends) & (self._spans.text[spans.starts] == ord("n"))
        if is_null.all():
            return pa.nulls(len(self), pa.string())
        return self._texts(spans, is_null if is_null.any() else None)

    def _texts(self, spans: Spans, is_null: Numbers | None = None) -> Any:
        """Copy members out of the text: as every other string of it, what lies between left out."""
        if not len(self):
            return pa.array([], pa.string())
        bounds = np.stack(spans, axis=1).astype(np.int32).ravel()
        every_other = np.arange(0, len(bounds), 2, dtype=np.int32)
        return _strings(self._spans.text, bounds).take(pa.array(every_other, mask=is_null))


def _strings(text: Numbers, bounds: Numbers) -> Any:
    """Return strings that lie one behind the other; JSON was checked to be UTF-8 when pushed."""
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(bounds) - 1, buffers)
