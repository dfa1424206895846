"""What consumers say of a message, and what they are told: the words every kind of ack shares.

Plain acks, transactions and cycles of streams reach the database by different calls. They take the
same words for an outcome, find a message named by its own id, and refuse with the same texts.
"""

from typing import Final

from skep.model.ids import parse_address
from skep.model.limits import ERROR_TEXT_CHARS_MAX

STATUS_BY_WORD: Final = {
    "completed": "completed",
    "success": "completed",
    "acked": "completed",
    "ok": "completed",
    "failed": "failed",
    "retry": "retry",
    "dlq": "dlq",
}
"""The status that the database knows, by what clients of different ages send."""

REFUSAL_BY_OUTCOME: Final = {
    "lease_lost": "Invalid or expired lease",
    "lease_missing": "leaseId is required by this server",
    "beyond_lease": "unresolvable: the message is beyond the leased batch",
    "not_found": "Message not found",
    "already_done": "already committed: the message was completed before",
    "no_group": "consumer not found",
    "deferred": "acknowledgments of the partition that came before wait: try again",
}
"""What the client is told of an ack with such an outcome; all other outcomes are successes."""


def unknown_status(word: str) -> str:
    """Say that a status is none."""
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
