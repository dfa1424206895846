"""Execute reads by offset: those of many clients in one statement, cut to what each may have.

Segments come as they are stored; their envelopes are cut into id and payload, and the payload is
not parsed. A deleted message leaves a gap. One that a poll would pass over because it has expired
is in the log as long as retention keeps it, and is returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from skep.broker.fetch.accept import Fetch, Fetches, Reading, shares
from skep.broker.messages.stored_message import is_encrypted, read_head
from skep.broker.timestamps import wire_time
from skep.db.access.slots import Caller
from skep.model.encryption import OpenEnvelope
from skep.model.envelopes import DATA_MARK, ID_MARK
from skep.model.errors import SkepError

FETCH_CALL: Final = "select * from skep.fetch_segments($1, $2, $3, $4, $5, $6)"

SHARE_MIN: Final = 64 * 1024
"""Bytes that a read may have in any call, however many share it."""

UNKNOWN: Final = "UNKNOWN_TOPIC_OR_PARTITION"
OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"

_TRACE_MARK: Final = b',"traceId":'
_DELETED: Final = b"null"
_encode: Final = msgspec.json.encode
_split_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


@dataclass(slots=True, eq=False)
class FetchExecutor:
    """Executor of the operation `fetch`."""

    caller: Caller
    fetches: Fetches
    open_envelope: OpenEnvelope
    bytes_max: int
    """Of the segments that one call reads, for all reads in it together."""
    count: int = 0
    """Messages read so far."""

    async def execute(self, batch: Sequence[Fetch], *, is_repeated: bool) -> None:
        """Read for all in one call, and answer each or let it wait."""
        del is_repeated
        wanted = [fetch for fetch in batch if not fetch.is_settled]
        if not wanted:
            return
        readings = [
            (number, fetch, reading)
            for number, fetch in enumerate(wanted, start=1)
            for reading in fetch.readings
        ]
        rows = await self.caller.call(
            FETCH_CALL,
            [number for number, _, _ in readings],
            [reading.queue for _, _, reading in readings],
            [reading.partition for _, _, reading in readings],
            [reading.at for _, _, reading in readings],
            [reading.left for _, _, reading in readings],
            shares(wanted, self.bytes_max, least=SHARE_MIN),
        )
        for entry, queue_id, head, tail, first, created_at, body in rows:
            _, fetch, reading = readings[int(entry) - 1]
            if queue_id is None:
                reading.error = UNKNOWN
                continue
            fetch.queue_ids.add(queue_id)
            reading.head, reading.tail = head, tail
            if first is not None:
                self._take(fetch, reading, first, created_at, body)
            elif head and not reading.records and not tail <= reading.at <= head + 1:
                reading.error = OUT_OF_RANGE
        for fetch in wanted:
            if not fetch.is_settled:
                self.fetches.go_on(fetch)

    def _take(
        self, fetch: Fetch, reading: Reading, first: int, created_at: datetime, body: bytes
    ) -> None:
        """Take the messages of a segment that there is room for. This is the inner loop."""
        if reading.left <= 0:
            return
        ts, records = wire_time(created_at), reading.records
        envelopes = _split_array(body)
        offset = max(reading.at, first)
        for envelope in envelopes[offset - first :]:
            text = bytes(envelope)
            size = len(text)
            if text != _DELETED:
                if (size > reading.left and records) or (size > fetch.left and fetch.size):
                    reading.left = 0
                    break
                reading.left -= size
                fetch.left -= size
                fetch.size += size
                records.append(self._record(offset, text, ts))
                self.count += 1
            offset += 1
        reading.at = offset

    def _record(self, offset: int, text: bytes, ts: bytes) -> bytes:
        error = b""
        if text.startswith(ID_MARK):
            head, _, payload = text.partition(DATA_MARK)
            name = head[len(ID_MARK) : head.index(_TRACE_MARK)]
        else:
            if is_encrypted(text):
                try:
                    text = self.open_envelope(text)
                except SkepError as refusal:
                    head, _, _ = text.partition(DATA_MARK)
                    text = b'%b,"data":null}' % head
                    error = b',"error":%b' % _encode(refusal.message)
            name = _encode(read_head(text).transaction_id)
            _, _, payload = text.partition(DATA_MARK)
        return b'{"offset":%d,"transactionId":%b,"payload":%b,"ts":"%b"%b}' % (
            offset,
            name,
            payload[:-1],
            ts,
            error,
        )


def render(fetch: Fetch) -> bytes:
    """Render the answer to a read: an entry for each that was asked for, in their order."""
    return b'{"entries":[%b]}' % b",".join(map(_entry, fetch.readings))


def _entry(reading: Reading) -> bytes:
    where = b'"queue":%b,"partition":%b' % (_encode(reading.queue), _encode(reading.partition))
    if reading.error == UNKNOWN:
        return b'{%b,"records":[],"highWatermark":0,"logStartOffset":0,"error":"%b"}' % (
            where,
            UNKNOWN.encode(),
        )
    ends = b'"highWatermark":%d,"logStartOffset":%d' % (reading.head + 1, reading.tail)
    if reading.error:
        return b'{%b,"records":[],%b,"error":"%b"}' % (where, ends, reading.error.encode())
    return b'{%b,"records":[%b],%b,"nextOffset":%d}' % (
        where,
        b",".join(reading.records),
        ends,
        reading.at,
    )
