"""Find messages in the bodies of segments without parsing them, and make columns of them.

A body is a JSON array of envelopes, whose layout is fixed up to the payload (see
`skep.model.envelopes`). The text that ends one envelope and begins the next is searched for in all
bodies at once; then each member begins where the one before it ended. A member of many messages
becomes a column by one copy of its bytes: no Python object stands for a message, unless headers or
parsed payloads are asked for.

A payload may hold the same text. Counting shows whether it did, because a segment knows how many
messages it has: if the text is there once less than that, and nothing else begins a message there,
then all of these are the ends of messages. Any other segment is *irregular* and left to
`skep.spark.decode.messages`, and so is one with messages that are deleted, sealed or expire, with
escapes in an id, with an id longer than `LOOKED_AT`, or with blanks around a payload.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from skep.model.envelopes import DATA_MARK, HEADERS_MARK, ID_MARK
from skep.model.ids import OFFSET_LOW_BITS, message_id_head
from skep.spark.decode.messages import Pairs, header_pairs
from skep.spark.runtime.arrow import pa, text_bytes, text_offsets

LOOKED_AT: Final = 64
"""Bytes of a string in which its end must lie."""

_WORD: Final = 8
_TRACE_MARK: Final = b',"traceId":'
_PRODUCER_MARK: Final = b',"producerSub":'
_IRREGULAR_BEGINNINGS: Final = (b'{"enc":"', b'{"expire')
_NULL: Final = b"null"
_JOINT: Final = len(b"},")
"""From the end of a payload to the next message."""
_END: Final = len(b"}]")
_QUOTE: Final = ord('"')
_BLANK: Final = ord(" ")
_BACKSLASH: Final = ord("\\")

_MARGIN: Final = 4 * LOOKED_AT + sum(
    map(len, (ID_MARK, _TRACE_MARK, _PRODUCER_MARK, HEADERS_MARK, DATA_MARK))
)
"""How far behind a beginning the search reads at most, in text that was no message after all."""

Numbers = Any
"""An array of numbers, one for each message or segment."""


class Spans(NamedTuple):
    """Where a member of each message lies; empty where it is null."""

    starts: Numbers
    ends: Numbers

    def of(self, chosen: Numbers) -> "Spans":
        """Return those of some messages."""
        return Spans(self.starts[chosen], self.ends[chosen])


class EnvelopeSpans(NamedTuple):
    """Messages of regular segments, in their order."""

    text: Numbers
    """The bytes in which they lie."""
    segments: Numbers
    """The segment of each message, by its place in the batch."""
    places: Numbers
    """The place of each message in its segment, from 0."""
    transaction_ids: Spans
    trace_ids: Spans
    producers: Spans
    headers: Spans
    payloads: Spans

    def of(self, chosen: Numbers) -> "EnvelopeSpans":
        """Return some of the messages."""
        _, segments, places, *members = self
        return EnvelopeSpans(
            self.text, segments[chosen], places[chosen], *(each.of(chosen) for each in members)
        )


def find_envelopes(bodies: Any, counts: Numbers) -> tuple[EnvelopeSpans, Numbers]:
    """Return the messages of regular segments, and for each segment whether it is regular."""
    text = _Text(text_bytes(bodies))
    offsets = text_offsets(bodies).astype(np.int64)
    bounds = offsets - offsets[0]
    starts, payload_ends, is_regular = _bounds_of_messages(text, bounds, counts)
    regular_counts = counts[is_regular]
    segments = np.repeat(np.flatnonzero(is_regular), regular_counts)
    firsts = np.cumsum(regular_counts) - regular_counts
    places = np.arange(len(segments)) - np.repeat(firsts, regular_counts)
    members, is_found = _members(text, starts, payload_ends)
    found = EnvelopeSpans(text.bytes, segments, places, *members)
    if is_found.all():
        return found, is_regular
    is_regular[segments[~is_found]] = False
    return found.of(is_regular[segments]), is_regular


class _Text:
    """Bytes that are looked at in many places at once; a margin behind them is blank."""

    def __init__(self, content: Numbers) -> None:
        size = len(content)
        self.bytes: Final[Any] = np.empty(size + _MARGIN, np.uint8)
        self.bytes[:size] = content
        self.bytes[size:] = 0
        size += _MARGIN + 1
        # As if a word, or a window, began at every byte: nothing of that is copied.
        self._words: Final[Any] = np.ndarray((size - _WORD,), "<u8", self.bytes, strides=(1,))
        self._windows: Final[Any] = np.ndarray(
            (size - LOOKED_AT,), f"V{LOOKED_AT}", self.bytes, strides=(1,)
        )

    def words(self, at: Numbers) -> Numbers:
        """Return eight bytes from each place."""
        return self._words[at]

    def has(self, mark: bytes, at: Numbers) -> Numbers:
        """Tell at which places a mark stands, by its first eight bytes: no other begins so."""
        return self._words[at] == _word(mark)

    def string_ends(self, starts: Numbers) -> Numbers:
        """Return where strings end, or a place that is no end if there is an escape or none near.

        Callers notice: what must follow a string does not follow such a place.
        """
        windows = self._windows[starts].view(np.uint8).reshape(-1, LOOKED_AT)
        return starts + ((windows == _QUOTE) | (windows == _BACKSLASH)).argmax(axis=1)


def _bounds_of_messages(
    text: _Text, bounds: Numbers, counts: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Return where messages start, where their payloads end, and which segments are regular."""
    joints = np.flatnonzero(text.bytes[: bounds[-1]] == ord("}"))
    joints = joints[text.bytes[joints + 1] == ord(",")]
    beginnings = text.words(joints + _JOINT)
    ends = joints[beginnings == _word(ID_MARK)]
    joints_of = np.diff(_places_in(ends, bounds))
    is_regular = (joints_of == counts - 1) & text.has(ID_MARK, bounds[:-1] + 1)
    is_odd = beginnings & 0xFFFF_FFFF == _word(_NULL)
    for mark in _IRREGULAR_BEGINNINGS:
        is_odd |= beginnings == _word(mark)
    if is_odd.any():
        is_regular[_places_in(bounds, joints[is_odd]) - 1] = False
    if not is_regular.all():
        ends = ends[np.repeat(is_regular, joints_of)]
    return *_joined(bounds, ends, is_regular, counts), is_regular


def _places_in(sorted_numbers: Numbers, numbers: Numbers) -> Numbers:
    return sorted_numbers.searchsorted(numbers)


def _joined(
    bounds: Numbers, ends: Numbers, is_regular: Numbers, counts: Numbers
) -> tuple[Numbers, Numbers]:
    """Return starts and ends of all messages, those at the edges of segments included."""
    behind_last = np.cumsum(counts[is_regular])
    total = int(behind_last[-1]) if len(behind_last) else 0
    is_last = np.zeros(total, np.bool_)
    is_last[behind_last - 1] = True
    is_first = np.roll(is_last, 1)
    starts, payload_ends = np.empty(total, np.int64), np.empty(total, np.int64)
    starts[is_first] = bounds[:-1][is_regular] + 1
    starts[~is_first] = ends + _JOINT
    payload_ends[is_last] = bounds[1:][is_regular] - _END
    payload_ends[~is_last] = ends
    return starts, payload_ends


def _members(
    text: _Text, starts: Numbers, payload_ends: Numbers
) -> tuple[tuple[Spans, Spans, Spans, Spans, Spans], Numbers]:
    """Return the members of messages in their order, and whether all of a message were found."""
    strings: list[Spans] = []
    is_found = np.ones(len(starts), np.bool_)
    at = starts
    for mark in (ID_MARK, _TRACE_MARK, _PRODUCER_MARK):
        is_found &= text.has(mark, at)
        member, at = _string_or_null(text, at + len(mark))
        strings.append(member)
    transaction_ids, trace_ids, producers = strings
    is_found &= text.bytes[transaction_ids.starts - 1] == _QUOTE  # an id is never null
    headers, has_data = _headers(text, at)
    payloads = Spans(headers.ends + len(DATA_MARK), payload_ends)
    for edge in (payloads.starts, payloads.ends - 1):
        is_found &= text.bytes[edge] > _BLANK  # a decoder leaves out what is around a value
    return (transaction_ids, trace_ids, producers, headers, payloads), is_found & has_data


def _string_or_null(text: _Text, at: Numbers) -> tuple[Spans, Numbers]:
    """Return where values lie that begin at these places, and what is behind them."""
    is_string = text.bytes[at] == _QUOTE
    if is_string.all():
        ends = text.string_ends(at + 1)
        return Spans(at + 1, ends), ends + 1
    starts, behind = at + is_string, at + len(_NULL)
    ends = starts.copy()
    if is_string.any():
        ends[is_string] = text.string_ends(starts[is_string])
        behind[is_string] = ends[is_string] + 1
    return Spans(starts, ends), behind


def _headers(text: _Text, at: Numbers) -> tuple[Spans, Numbers]:
    """Return where headers lie that may stand at these places, and whether the payload follows."""
    has_data = text.has(DATA_MARK, at)
    starts, ends = at, at
    with_headers = np.flatnonzero(~has_data)
    with_headers = with_headers[text.has(HEADERS_MARK, at[with_headers])]
    if len(with_headers):
        starts, ends = at.copy(), at.copy()
        starts[with_headers] += len(HEADERS_MARK)
        content = text.bytes.tobytes()
        begins = starts[with_headers].tolist()
        ends[with_headers] = [content.find(DATA_MARK, each) for each in begins]
        has_data[with_headers] = True
    return Spans(starts, ends), has_data


def _word(mark: bytes) -> Any:
    return np.uint64(int.from_bytes(mark[:_WORD], "little"))


_ID_HEAD: Final = 24
_ID_DIGITS: Final = 12
_ID: Final = _ID_HEAD + _ID_DIGITS
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHIFTS: Final = np.arange(4 * (_ID_DIGITS - 1), -1, -4)


class FoundMessages:
    """Messages of a batch of segments, by column like `DecodedMessages`."""

    def __init__(self, batch: Any, spans: EnvelopeSpans) -> None:
        self._batch: Final = batch
        self._spans: Final = spans
        self._segments: Final = pa.array(spans.segments)

    def __len__(self) -> int:
        return len(self._segments)

    def column(self, name: str) -> Any:
        """Return a column of the data source, or one that all messages of a segment share."""
        spans = self._spans
        columns: dict[str, Any] = {
            "offset": lambda: pa.array(self._offsets()),
            "message_id": self._message_ids,
            "transaction_id": lambda: self._texts(spans.transaction_ids),
            "trace_id": lambda: self._texts_or_nulls(spans.trace_ids),
            "producer": lambda: self._texts_or_nulls(spans.producers),
            "headers": self._headers,
            "payload": lambda: self._texts(spans.payloads),
            "payload_bytes": lambda: pa.array(
                (spans.payloads.ends - spans.payloads.starts).astype(np.int32)
            ),
        }
        return columns[name]() if name in columns else self._shared(name)

    def envelope(self, number: int) -> None:
        """Return nothing: the message is in the log."""

    def _shared(self, name: str) -> Any:
        return self._batch.column(name).take(self._segments)

    def _message_ids(self) -> Any:
        offsets = self._offsets()
        spelled = np.empty((len(offsets), _ID), np.uint8)
        spelled[:, :_ID_HEAD] = self._id_heads(offsets)
        low = offsets & OFFSET_LOW_BITS
        spelled[:, _ID_HEAD:] = _DIGITS[(low[:, np.newaxis] >> _SHIFTS) & 0xF]
        bounds = np.arange(0, (len(offsets) + 1) * _ID, _ID, dtype=np.int32)
        return _strings(spelled, bounds)

    def _id_heads(self, offsets: Numbers) -> Numbers:
        """Return the first 24 characters of the ids; neighbours mostly share them."""
        partitions = np.asarray(self._shared("partition_id"))
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

    def _headers(self) -> list[Pairs]:
        found: list[Pairs] = [None] * len(self)
        starts, ends = self._spans.headers
        rows = np.flatnonzero(starts < ends)
        for row, start, end in zip(
            rows.tolist(), starts[rows].tolist(), ends[rows].tolist(), strict=True
        ):
            found[row] = header_pairs(self._spans.text[start:end])
        return found

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
