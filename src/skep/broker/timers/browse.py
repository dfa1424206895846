"""Show the timers that wait."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from skep.broker.messages.stored_message import Envelope
from skep.broker.timers.operations import TimerPage
from skep.broker.timestamps import wire_time
from skep.db.access.functions import Functions
from skep.model.envelopes import cut_envelope

_SEALED: Final = b'{"enc":'
_decode_envelope: Final = msgspec.json.Decoder(Envelope).decode


class TimerRow(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A timer that waits."""

    queue: str
    timer_key: str
    partition: str
    txn: str
    message_id: None = None
    """Always null: a message has no id before it has a place in the log."""
    deliver_at: str
    attempts: int = 0
    """Always 0: what could fail is refused when the timer is scheduled."""
    last_error: None = None
    claimed: bool = False
    created_at: str
    updated_at: str


class TimerDetail(TimerRow, frozen=True, kw_only=True):
    """A timer with its payload."""

    found: bool = True
    payload: str
    """As base64, as it is stored."""
    payload_zstd: bool = False
    encrypted: bool
    producer_sub: str | None


class TimerMissing(msgspec.Struct, frozen=True):
    """There is no such timer: it was never scheduled, or it fired, or it was cancelled."""

    found: bool = False


class TimerRows(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of timers, in the order of the bytes of their keys; or how many there are."""

    rows: list[TimerRow] | msgspec.UnsetType = msgspec.UNSET
    truncated: bool | msgspec.UnsetType = msgspec.UNSET
    next_after: str | msgspec.UnsetType | None = msgspec.UNSET
    """`after` of the next page; null on the last one."""
    count: int | msgspec.UnsetType = msgspec.UNSET
    """With `mode=count`, this alone."""


@dataclass(slots=True, eq=False, frozen=True)
class TimerBrowser:
    """Shows timers."""

    sql: Functions

    async def peek(self, queue: str, timer_key: str) -> TimerDetail | TimerMissing:
        """Return a timer with its payload."""
        rows = await self.sql.rows("list_timers", queue, timer_key, None, 1)
        if not rows:
            return TimerMissing()
        envelope = rows[0]["envelope"]
        head, payload = cut_envelope(envelope)
        is_sealed = envelope.startswith(_SEALED)
        if is_sealed:
            payload = payload[1:-1]  # base64 already, as a JSON string
        return TimerDetail(
            **_members(queue, rows[0]),
            payload=(payload if is_sealed else b64encode(payload)).decode(),
            encrypted=is_sealed,
            producer_sub=_decode_envelope(head + b"}").producer_sub,
        )

    async def list_timers(self, queue: str, asked: TimerPage) -> TimerRows:
        """Return a page of the timers of a queue, or how many begin with a prefix."""
        if asked.counted_prefix is not None:
            return TimerRows(
                count=await self.sql.value("count_timers", queue, asked.counted_prefix)
            )
        found = await self.sql.rows("list_timers", queue, None, asked.after, asked.limit + 1)
        rows = [TimerRow(**_members(queue, row)) for row in found[: asked.limit]]
        is_truncated = len(found) > asked.limit
        return TimerRows(
            rows=rows,
            truncated=is_truncated,
            next_after=rows[-1].timer_key if is_truncated else None,
        )


def _members(queue: str, row: Any) -> dict[str, Any]:
    times = {name: row[name] for name in ("deliver_at", "created_at", "updated_at")}
    return {
        "queue": queue,
        "timer_key": row["timer_key"],
        "partition": row["partition"],
        "txn": row["transaction_id"],
        **{name: wire_time(time).decode() for name, time in times.items()},
    }
