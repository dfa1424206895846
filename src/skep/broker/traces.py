"""Traces: events that applications attach to messages.

A trace is an event (a type and any JSON) of one message, with any number of names, so that the path
of an order through many queues can be read in one place. Traces are kept for some days, whether or
not their message still exists.

A message is named by its transaction id or its message id. Transaction ids are searched where
traces come from: under lease, among the newest, around the cursors; an older message needs its
message id.
"""

from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec
import xxhash

from skep.broker.cluster.housekeeping import CallDuty, Duty
from skep.broker.messages.stored_message import named_partition, offset_in, read_envelope
from skep.broker.paging import Page, from_row
from skep.broker.timestamps import wire_time
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.encryption import OpenEnvelope
from skep.model.errors import BadRequest, NotFound, SkepError
from skep.model.ids import parse_partition_uuid, partition_uuid
from skep.model.limits import TRACE_NAMES_MAX, TRANSACTION_ID_CHARS_MAX
from skep.model.names import check_name, check_optional_name, refuse_transaction_id
from skep.model.wire import JSON_NULL

PURGE_CALL: Final = "select skep.purge_traces(skep.now() - $1::interval, $2)"
KNOWN_PARTITION: Final = "select 1 from skep.partition where id = $1"

PURGE_STEP: Final = 1_000
"""Traces removed in one call."""


class NewTrace(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What happened to a message."""

    transaction_id: str = ""
    """Transaction id or message id; required."""
    partition_id: str = ""
    """Required."""
    data: msgspec.Raw = msgspec.Raw()
    """Any JSON; required."""
    consumer_group: str | None = None
    event_type: str | None = None
    """`info` if left out."""
    trace_names: list[str] | None = None
    worker_id: str | None = None


class TraceRecorded(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The trace was stored."""

    success: bool = True
    trace_id: str


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a message."""

    id: str
    event_type: str
    data: msgspec.Raw
    consumer_group: str | None
    worker_id: str | None
    created_at: str
    trace_names: list[str]


class FiledTrace(Trace, frozen=True, kw_only=True):
    """One event of a name, with the message it speaks of."""

    transaction_id: str
    partition_id: str
    queue_name: str | None
    """Null when the queue was deleted."""
    partition_name: str | None
    message_payload: msgspec.Raw
    """Null when the message is gone or cannot be decrypted."""
    payload_error: str | None = None
    """Why the payload cannot be shown."""


class MessageTraces(msgspec.Struct, frozen=True):
    """The events of a message, oldest first."""

    traces: list[Trace]
    pagination: Page


class TracesByName(msgspec.Struct, frozen=True):
    """The events filed under a name, oldest first."""

    traces: list[FiledTrace]
    total: int
    pagination: Page


class TraceNameTotal(msgspec.Struct, frozen=True):
    """A name and what is filed under it."""

    trace_name: str
    trace_count: int
    message_count: int
    last_seen: str


class TraceNames(msgspec.Struct, frozen=True):
    """The names in use, last seen first."""

    trace_names: list[TraceNameTotal]
    total: int
    total_is_estimate: bool
    pagination: Page


class Traces:
    """Record traces and list them; a message or partition never known raises `NotFound`."""

    def __init__(self, caller: Caller, *, hash_seed: int, open_envelope: OpenEnvelope) -> None:
        self._sql: Final = Functions(caller)
        self._hash_seed: Final = hash_seed
        self._open_envelope: Final = open_envelope

    async def record(self, trace: NewTrace) -> TraceRecorded:
        """Attach an event to a message."""
        _check(trace)
        partition_id = parse_partition_uuid(trace.partition_id)
        if partition_id is None:
            raise NotFound("Message not found")
        trace_id = await self._sql.value(
            "record_trace",
            partition_id,
            offset_in(partition_id, trace.transaction_id),
            xxhash.xxh3_128_digest(trace.transaction_id.encode(), self._hash_seed),
            trace.event_type or "info",
            bytes(trace.data).decode(),
            trace.consumer_group,
            trace.worker_id,
            sorted(set(trace.trace_names or ())),
            missing=NotFound("Message not found"),
        )
        return TraceRecorded(trace_id=_trace_uuid(trace_id))

    async def list_of_message(
        self, partition_uuid_text: str, transaction_id: str, page: Page
    ) -> MessageTraces:
        """List the events of a message, also of one that is gone."""
        partition_id = named_partition(partition_uuid_text)
        offset = offset_in(partition_id, transaction_id)
        rows = await self._sql.rows(
            "list_message_traces",
            partition_id,
            None if offset is not None else _checked_transaction_id(transaction_id),
            offset,
            page.limit,
            page.offset,
        )
        if not rows and not await self._sql.call(KNOWN_PARTITION, partition_id):
            raise NotFound("Partition not found")
        return MessageTraces([_shown(Trace, row) for row in rows], page)

    async def list_by_name(self, name: str, page: Page) -> TracesByName:
        """List the events with a name; an unused name has none."""
        check_name("traceName", name)
        rows = await self._sql.rows("list_traces_by_name", name, page.limit, page.offset)
        total: int = rows[0]["total"] if rows else 0
        return TracesByName(
            [self._filed(row) for row in rows if row["id"] is not None], total, page
        )

    async def list_names(self, page: Page) -> TraceNames:
        """List the names in use."""
        rows = await self._sql.rows("list_trace_names", page.limit, page.offset)
        return TraceNames(
            trace_names=[
                from_row(
                    TraceNameTotal,
                    row,
                    trace_name=row["name"],
                    last_seen=wire_time(row["last_seen"]).decode(),
                )
                for row in rows
                if row["name"] is not None
            ],
            total=rows[0]["total"],
            total_is_estimate=rows[0]["is_estimate"],
            pagination=page,
        )

    def _filed(self, row: Any) -> FiledTrace:
        payload, error = self._payload_of(row["envelope"])
        return _shown(
            FiledTrace,
            row,
            partition_id=partition_uuid(row["partition_id"]),
            message_payload=payload,
            payload_error=error,
        )

    def _payload_of(self, envelope: str | None) -> tuple[msgspec.Raw, str | None]:
        if envelope is None:
            return JSON_NULL, "the message is no longer stored"
        try:
            opened = self._open_envelope(envelope.encode())
        except SkepError as error:
            return JSON_NULL, error.message
        return read_envelope(opened).data, None


def trace_purge(caller: Caller, *, keep: timedelta) -> Duty:
    """Return the duty that purges old traces, a step at a time."""
    arguments = (keep, PURGE_STEP)
    return CallDuty("purge traces", 60.0, caller, PURGE_CALL, arguments, again_from=PURGE_STEP)


def _check(trace: NewTrace) -> None:
    if not trace.transaction_id or not trace.partition_id:
        raise BadRequest("transactionId and partitionId are required")
    if not bytes(trace.data):
        raise BadRequest("data is required")
    _checked_transaction_id(trace.transaction_id)
    names = trace.trace_names or ()
    if len(names) > TRACE_NAMES_MAX:
        raise BadRequest(f"too many traceNames: {len(names)}. Send at most {TRACE_NAMES_MAX}")
    for name in names:
        check_name("traceName", name)
    for kind, text in (
        ("eventType", trace.event_type),
        ("consumerGroup", trace.consumer_group),
        ("workerId", trace.worker_id),
    ):
        check_optional_name(kind, text)


def _checked_transaction_id(text: str) -> str:
    if len(text) > TRANSACTION_ID_CHARS_MAX or "\0" in text:
        refuse_transaction_id(text)
    return text


_Shape = TypeVar("_Shape", bound=Trace)


def _shown(shape: type[_Shape], row: Any, **members: Any) -> _Shape:
    return from_row(
        shape,
        row,
        id=_trace_uuid(row["id"]),
        data=msgspec.Raw(row["data"].encode()),
        created_at=wire_time(row["created_at"]).decode(),
        trace_names=row["names"],
        **members,
    )


def _trace_uuid(trace_id: int) -> str:
    """Spell a trace id as a UUID (version 8), apart from other ids by its first bits."""
    return f"fffffffe-ffff-8fff-{0x8000 | trace_id >> 48:04x}-{trace_id & (1 << 48) - 1:012x}"
