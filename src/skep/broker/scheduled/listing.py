"""List scheduled messages, cancel them, or deliver them now."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from skep.broker.messages.stored_message import leave_as_it_is, read_envelope
from skep.broker.scheduled.accept import DueListener
from skep.broker.timestamps import wire_time
from skep.db.access.slots import Caller
from skep.model.encryption import OpenEnvelope
from skep.model.errors import NotFound

LIST_CALL: Final = "select * from skep.list_scheduled($1, $2, $3, $4, $5)"
COUNT_CALL: Final = "select skep.count_scheduled($1, $2, $3)"
CANCEL_CALL: Final = "select skep.cancel_scheduled($1)"
DELIVER_CALL: Final = "select skep.deliver_scheduled($1)"

TOTAL_MAX: Final = 10_000
"""A listing counts no further; counting all could take longer than listing."""

_ID_MAX: Final = 2**63 - 1


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


class Scheduled:
    """The scheduled messages."""

    def __init__(
        self,
        caller: Caller,
        listener: DueListener,
        open_envelope: OpenEnvelope = leave_as_it_is,
    ) -> None:
        """Take what is needed; `listener` hears when a message becomes due earlier."""
        self._caller: Final = caller
        self._listener: Final = listener
        self._open_envelope: Final = open_envelope

    async def list_messages(
        self, *, queue: str | None, partition: str | None, after: int, limit: int
    ) -> WaitingPage:
        """Return the waiting messages that follow `after`."""
        rows = await self._caller.call(LIST_CALL, None, queue, partition, after, limit + 1)
        ((count,),) = await self._caller.call(COUNT_CALL, queue, partition, TOTAL_MAX + 1)
        messages = [WaitingMessage(**_members(row)) for row in rows[:limit]]
        return WaitingPage(
            messages=messages,
            total=min(count, TOTAL_MAX),
            is_total_exact=count <= TOTAL_MAX,
            next_after=messages[-1].id if len(rows) > limit else None,
        )

    async def show(self, scheduled_id: int) -> WaitingMessageDetail:
        """Return one waiting message.

        Raises:
            NotFound: It does not wait: delivered, cancelled or never scheduled.
        """
        _check_id(scheduled_id)
        rows = await self._caller.call(LIST_CALL, scheduled_id, None, None, 0, 1)
        if not rows:
            raise _not_waiting(scheduled_id)
        content = read_envelope(self._open_envelope(rows[0][4]))
        return WaitingMessageDetail(
            **_members(rows[0]),
            trace_id=content.trace_id,
            producer_sub=content.producer_sub,
            headers=content.headers,
            data=content.data,
        )

    async def cancel(self, scheduled_id: int) -> None:
        """Cancel a message.

        Raises:
            NotFound: It does not wait any more.
        """
        _check_id(scheduled_id)
        ((is_cancelled,),) = await self._caller.call(CANCEL_CALL, scheduled_id)
        if not is_cancelled:
            raise _not_waiting(scheduled_id)

    async def deliver(self, scheduled_id: int) -> datetime:
        """Deliver a message now; return its new delivery time.

        Raises:
            NotFound: It does not wait any more.
        """
        _check_id(scheduled_id)
        ((deliver_at,),) = await self._caller.call(DELIVER_CALL, scheduled_id)
        if deliver_at is None:
            raise _not_waiting(scheduled_id)
        self._listener.hear_of_due(0)
        return deliver_at


def _members(row: Sequence[Any]) -> dict[str, Any]:
    scheduled_id, queue, partition, transaction_id, _, deliver_at, created_at = row
    return {
        "id": str(scheduled_id),
        "queue": queue,
        "partition": partition,
        "transaction_id": transaction_id,
        "deliver_at": wire_time(deliver_at).decode(),
        "created_at": wire_time(created_at).decode(),
    }


def _check_id(scheduled_id: int) -> None:
    if not 0 < scheduled_id <= _ID_MAX:
        raise _not_waiting(scheduled_id)


def _not_waiting(scheduled_id: int) -> NotFound:
    return NotFound(f"no message waits under the id {scheduled_id}")
