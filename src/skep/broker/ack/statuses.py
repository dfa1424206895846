"""The columns, statuses and refusals that acks, transactions and stream cycles share."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from skep.model.ids import parse_address
from skep.model.limits import ERROR_TEXT_CHARS_MAX
from skep.telemetry.group_activity import GroupActivity, GroupKey

STATUS_BY_WORD: Final = {
    "completed": "completed",
    "success": "completed",
    "acked": "completed",
    "ok": "completed",
    "failed": "failed",
    "retry": "retry",
    "dlq": "dlq",
}
"""The status in the database, by what clients of different versions send."""

REFUSAL_BY_OUTCOME: Final = {
    "lease_lost": "Invalid or expired lease",
    "lease_missing": "leaseId is required by this server",
    "beyond_lease": "unresolvable: the message is beyond the leased batch",
    "not_found": "Message not found",
    "already_done": "already committed: the message was completed before",
    "no_group": "consumer not found",
    "deferred": "acknowledgments of the partition that came before wait: try again",
}
"""The error for an ack with such an outcome; all other outcomes are successes."""


_FINISHED: Final = frozenset({"acked", "dead_lettered", "dropped", "expired"})
"""Outcomes after which the group has a message less to read."""


class AckColumns(msgspec.Struct, gc=False):
    """An ack as the SQL functions take it, and its lease as the client spelled it."""

    partition_id: int
    group: str
    lease_id: UUID | None
    offset: int | None
    key: bytes
    status: str
    error: str | None
    lease_text: str


class AckRow(AckColumns, gc=False):
    """One row of a call: an ack, and the items of the request it stands for."""

    positions: list[int]
    stands_alone: bool = True
    """No other ack may stand for it: its lease is individual, or not remembered here."""


def ack_columns(acks: Sequence[AckColumns]) -> tuple[list[object], ...]:
    """Return the arguments for these acks, an array for each column."""
    return (
        [ack.partition_id for ack in acks],
        [ack.group for ack in acks],
        [ack.lease_id for ack in acks],
        [ack.offset for ack in acks],
        [ack.key for ack in acks],
        [ack.status for ack in acks],
        [ack.error for ack in acks],
    )


def note_outcome(activity: GroupActivity, group: GroupKey, outcome: str) -> None:
    """Note whether an ack brought its group on."""
    if outcome in _FINISHED:
        activity.progressed.add(group)
    elif outcome == "retried":
        activity.failed.add(group)


def unknown_status(word: str) -> str:
    """Return the error for a status that does not exist."""
    return f"unknown status {word!r}: use completed, failed, retry or dlq"


def spelled_offset(message_id: str, partition_id: int) -> int | None:
    """Return the offset that a message id spells out, if it is one and of this partition."""
    address = parse_address(message_id)
    if address is None or address[0] != partition_id or address[1] < 1:
        return None
    return address[1]


def storable_error(text: str | None) -> str | None:
    """Cut an error text to what is kept, and drop the one character PostgreSQL text cannot hold."""
    return None if text is None else text[:ERROR_TEXT_CHARS_MAX].replace("\0", "")
