"""List scheduled messages, cancel them, or deliver them now."""

from collections import ChainMap
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import asdict

from skep.broker.messages.stored_message import leave_as_it_is, read_envelope
from skep.broker.paging import from_row
from skep.broker.scheduled.accept import DueListener
from skep.broker.timestamps import wire_time
from skep.db.access.functions import Functions
from skep.model.encryption import OpenEnvelope
from skep.model.errors import NotFound

TOTAL_MAX: Final = 10_000
"""A listing counts no further; counting all could take longer than listing."""


class WaitingMessage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A scheduled message."""

    id: str
    queue: str
    partition: str
    transaction_id: str
    deliver_at: str
    created_at: str


class WaitingMessageDetail(WaitingMessage, frozen=True, kw_only=True):
    """A scheduled message, with its content."""

    trace_id: str | None
    producer_sub: str | None
    headers: msgspec.Raw
    data: msgspec.Raw
    """The payload, byte for byte as it was pushed."""


class WaitingPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of scheduled messages, in the order in which they were scheduled."""

    messages: list[WaitingMessage]
    total: int
    is_total_exact: bool
    """False when there are at least `total`."""
    next_after: str | None
    """`after` of the next page; null on the last one."""


@dataclass(frozen=True, slots=True, eq=False)
class Scheduled:
    """The scheduled messages; one that does not wait any more raises `NotFound`."""

    sql: Functions
    listener: DueListener
    """Hears when a message becomes due earlier."""
    open_envelope: OpenEnvelope = leave_as_it_is

    async def list_messages(
        self, *, queue: str | None, partition: str | None, after: int, limit: int
    ) -> WaitingPage:
        """Return the waiting messages that follow `after`."""
        rows = await self.sql.rows("list_scheduled", None, queue, partition, after, limit + 1)
        count = await self.sql.value("count_scheduled", queue, partition, TOTAL_MAX + 1)
        messages = [_shown(WaitingMessage, row) for row in rows[:limit]]
        return WaitingPage(
            messages=messages,
            total=min(count, TOTAL_MAX),
            is_total_exact=count <= TOTAL_MAX,
            next_after=messages[-1].id if len(rows) > limit else None,
        )

    async def show(self, scheduled_id: int) -> WaitingMessageDetail:
        """Return one waiting message."""
        missing = _not_waiting(scheduled_id)
        row = await self.sql.row("list_scheduled", scheduled_id, None, None, 0, 1, missing=missing)
        content = read_envelope(self.open_envelope(row["envelope"]))
        return _shown(WaitingMessageDetail, ChainMap(row, asdict(content)))

    async def cancel(self, scheduled_id: int) -> None:
        """Cancel a message."""
        missing = _not_waiting(scheduled_id)
        await self.sql.value("cancel_scheduled", scheduled_id, missing=missing)

    async def deliver(self, scheduled_id: int) -> datetime:
        """Deliver a message now; return its new delivery time."""
        missing = _not_waiting(scheduled_id)
        deliver_at = await self.sql.value("deliver_scheduled", scheduled_id, missing=missing)
        self.listener.hear_of_due(0)
        return deliver_at


_Shape = TypeVar("_Shape", bound=WaitingMessage)


def _shown(shape: type[_Shape], row: Any) -> _Shape:
    return from_row(
        shape,
        row,
        id=str(row["id"]),
        deliver_at=wire_time(row["deliver_at"]).decode(),
        created_at=wire_time(row["created_at"]).decode(),
    )


def _not_waiting(scheduled_id: int) -> NotFound:
    """Return the error for an id under which no message waits."""
    return NotFound(f"no message waits under the id {scheduled_id}")
