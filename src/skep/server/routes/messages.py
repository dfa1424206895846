"""The routes of single messages: list, show, history, delete, retry, give up, peek; positions.

A message is named by its partition's id and its transaction id or its own id.
"""

from datetime import datetime
from typing import Annotated, Final, TypeAlias

import msgspec

from skep.broker.fetch.positions import Changed, OffsetsFound, Positions
from skep.broker.fetch.request import ChangedBody, OffsetsBody
from skep.broker.messages import single
from skep.broker.messages.contents import Contents
from skep.broker.messages.listing import (
    PREVIEW_CHARS_MAX,
    MessageFilter,
    MessageList,
    MessagePage,
)
from skep.broker.messages.stored_message import Status
from skep.server.auth import access
from skep.server.auth.guard import requester_of
from skep.server.routes import parameters as given
from skep.server.routes.section import (
    UNREADABLE,
    AnyRequest,
    Body,
    Section,
    in_path,
    in_query,
    routes_of,
)

_PATH: Final = "/api/v1/messages"
_ONE: Final = f"{_PATH}/{{partition_id:str}}/{{transaction_id:str}}"

MessageName: TypeAlias = Annotated[str, in_path("Transaction id or message id.")]


class RetryRequest(msgspec.Struct, frozen=True, rename="camel"):
    """For which group to retry a message."""

    consumer_group: str | None = None
    """By default the group for which it failed."""


class GiveUpRequest(msgspec.Struct, frozen=True, rename="camel"):
    """For which group to give up a message, and why."""

    consumer_group: str | None = None
    """By default every group that is not done with it."""
    error: str | None = None


@routes_of("Messages")
def message_routes(section: Section, listing: MessageList, messages: single.Messages) -> None:
    """Declare the routes of single messages."""

    @section.get(
        _PATH, access.needs(access.Level.READ_ONLY, access.listed_by(queue="queue", namespace="ns"))
    )
    async def list_messages(
        queue: given.OnlyQueue = None,
        partition: given.OnlyPartition = None,
        ns: Annotated[str | None, in_query("Only queues of this namespace.")] = None,
        namespace: Annotated[str | None, in_query("The same as `ns`.")] = None,
        task: given.OnlyTask = None,
        status: Annotated[Status | None, in_query("Only in this state.")] = None,
        since: Annotated[
            datetime | None,
            in_query("Pushed at this time or later; by default an hour ago.", "from"),
        ] = None,
        until: Annotated[datetime | None, in_query("Pushed at this time or earlier.", "to")] = None,
        transaction_id: Annotated[
            str | None, in_query("Only this transaction id, at any time.", "transactionId")
        ] = None,
        header: given.OnlyHeader = None,
        payload: given.OnlyPayload = None,
        preview: Annotated[
            int,
            in_query("How many characters of each payload to show.", ge=0, le=PREVIEW_CHARS_MAX),
        ] = 0,
        limit: given.Limit = 200,
        offset: given.DeepOffset = 0,
        cursor: Annotated[
            str | None, in_query("`nextCursor` of the previous page; `offset` is ignored then.")
        ] = None,
    ) -> MessagePage:
        """List messages, newest first.

        A page does a bounded amount of work: one that is not full but has a `nextCursor` is not
        the last. `searchedTo` says how far back it looked.
        """
        chosen = MessageFilter(
            queue=queue or None,
            partition=partition or None,
            namespace=ns or namespace or None,
            task=task or None,
            status=status,
            since=since,
            until=until,
            transaction_id=transaction_id or None,
            contents=Contents.parse(header, payload),
        )
        return await listing.read_page(
            chosen, limit=limit, offset=offset, cursor=cursor, preview=preview
        )

    @section.get(
        f"{_PATH}/peek",
        access.READ_LIST,
        responses={404: "There is no such queue or group.", **UNREADABLE},
    )
    async def peek_messages(
        queue: Annotated[str, in_query("The queue.")],
        partition: Annotated[str | None, in_query("Only this partition.")] = None,
        consumer_group: Annotated[
            str | None, in_query("Consumer group; by default the default group.", "consumerGroup")
        ] = None,
        limit: given.Limit = 10,
    ) -> single.PeekPage:
        """Show what a group would get next, without claiming it."""
        return await messages.peek(queue, partition or None, consumer_group or None, limit)

    @section.get(_ONE, access.READ_PARTITION, responses=UNREADABLE)
    async def describe_message(
        partition_id: given.PartitionId, transaction_id: MessageName
    ) -> single.DescribedMessage:
        """Show a message with its payload."""
        return await messages.describe(partition_id, transaction_id)

    @section.get(
        f"{_ONE}/history", access.READ_PARTITION, responses={404: "There is no such message."}
    )
    async def show_message_history(
        partition_id: given.PartitionId, transaction_id: MessageName
    ) -> single.MessageHistory:
        """Show how far each group has come with a message, and its dead letters.

        The log keeps one position per group, so the times of deliveries and acknowledgments are
        not recorded. Consumers can attach traces to record more.
        """
        return await messages.history(partition_id, transaction_id)

    @section.delete(_ONE, access.WRITE_PARTITION)
    async def delete_message(
        partition_id: given.PartitionId, transaction_id: MessageName
    ) -> single.Intervention:
        """Delete a message for all groups, with its dead letters."""
        return await messages.delete(partition_id, transaction_id)

    @section.post(
        f"{_ONE}/retry",
        access.WRITE_PARTITION,
        body=Body(RetryRequest, is_required=False),
        responses={409: "The message has not failed, or cannot be decrypted."},
    )
    async def retry_message(
        partition_id: given.PartitionId, transaction_id: MessageName, asked: RetryRequest
    ) -> single.Intervention:
        """Deliver a failed message again, now.

        A message that waits for its next attempt becomes available at once. A dead letter is
        pushed again, for all groups of its queue.
        """
        return await messages.retry(partition_id, transaction_id, asked.consumer_group or None)

    @section.post(
        f"{_ONE}/dlq",
        access.WRITE_PARTITION,
        body=Body(GiveUpRequest, is_required=False),
        responses={409: "Every group in question is done with the message."},
    )
    async def give_up_message(
        partition_id: given.PartitionId, transaction_id: MessageName, asked: GiveUpRequest
    ) -> single.Intervention:
        """Move a message to the dead letters."""
        return await messages.give_up(
            partition_id, transaction_id, asked.consumer_group or None, asked.error
        )


@routes_of("Reads by offset")
def fetch_routes(section: Section, positions: Positions) -> None:
    """Declare the routes that tell positions."""

    @section.post("/api/v1/fetch/offsets", access.READ_BY_BODY, body=Body(OffsetsBody))
    async def find_offsets(request: AnyRequest, asked: OffsetsBody) -> OffsetsFound:
        """Show where times begin in partitions."""
        await requester_of(request).require(queues={each.queue for each in asked.entries})
        return await positions.find_offsets(asked)

    @section.post("/api/v1/partitions/changed", access.READ_BY_BODY, body=Body(ChangedBody))
    async def find_changed_partitions(request: AnyRequest, asked: ChangedBody) -> Changed:
        """List the partitions written since a time.

        `safeTime` is the time to ask with next: what was stored up to it can be read, and nothing
        appears there later.
        """
        await requester_of(request).require(queues={each.queue for each in asked.entries})
        return await positions.find_changed(asked)
