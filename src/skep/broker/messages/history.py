"""What became of one message: how far each group has come with it, and its dead letters.

The log keeps a position per group, not an event per delivery: that is what makes acknowledging
cheap. So when a message was handed out or acknowledged is not on record; what is, is here.
"""

from datetime import datetime
from typing import Final, Literal

import msgspec

from skep.broker.messages.messages import Messages
from skep.db.access.slots import Caller
from skep.model.errors import NotFound
from skep.model.ids import message_id, partition_uuid

DELIVERIES_CALL: Final = "select * from skep.message_deliveries($1, $2)"
LETTERS_CALL: Final = "select * from skep.message_letters($1, $2, $3)"
REDRIVES_SEARCHED: Final = 10_000


class GroupDelivery(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How far a group has come with a message."""

    group: str
    state: Literal["done", "leased", "retrying", "waiting"]
    deliveries: int | None
    """How often it was handed out; counted for the first message a group is not done with."""
    failures: int
    ahead: int
    """Messages that the group has to finish first."""
    until: datetime | None
    """When the lease, or the pause before the next attempt, ends."""


class MessageLetter(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A dead letter that the message became, or came from."""

    group: str | None
    error: str
    failures: int
    failed_at: datetime
    redriven_at: datetime | None
    is_origin: bool
    """The message is the one that was pushed again."""
    other_partition_id: str | None
    other_id: str | None
    """The message it was pushed again as, or the one that this one copies."""


class MessageHistory(msgspec.Struct, frozen=True, kw_only=True):
    """All that is on record of what became of a message."""

    deliveries: list[GroupDelivery]
    letters: list[MessageLetter]
    """The oldest failure first; redriven ones among the newest redrives."""


class MessageHistories:
    """Reads what became of messages."""

    def __init__(self, caller: Caller, messages: Messages) -> None:
        self._caller: Final = caller
        self._messages: Final = messages

    async def of(self, partition: str, name: str) -> MessageHistory:
        """Return what became of a message.

        Raises:
            NotFound: There is no such message, and never was.
        """
        address = await self._messages.find(partition, name)
        deliveries = await self._caller.call(DELIVERIES_CALL, *address)
        letters = await self._caller.call(LETTERS_CALL, *address, REDRIVES_SEARCHED)
        if not deliveries and not letters:
            raise NotFound("Message not found")
        return MessageHistory(
            deliveries=[
                GroupDelivery(
                    group=row["group_name"],
                    state=row["state"],
                    deliveries=row["deliveries"],
                    failures=row["failures"],
                    ahead=row["ahead"],
                    until=row["until"],
                )
                for row in deliveries
            ],
            letters=[
                MessageLetter(
                    group=row["group_name"],
                    error=row["error"],
                    failures=row["failures"],
                    failed_at=row["failed_at"],
                    redriven_at=row["redriven_at"],
                    is_origin=row["is_origin"],
                    **_other(row["other_partition_id"], row["other_offset"]),
                )
                for row in letters
            ],
        )


def _other(partition_id: int | None, offset: int | None) -> dict[str, str | None]:
    if partition_id is None or offset is None:
        return {"other_partition_id": None, "other_id": None}
    return {
        "other_partition_id": partition_uuid(partition_id),
        "other_id": message_id(partition_id, offset),
    }
