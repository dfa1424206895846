"""The routes of single messages: list, show, history, delete, retry, give up, peek.

A message is named by its partition's id and its transaction id or its own id.
"""

from datetime import datetime
from typing import Annotated, Final, TypeAlias

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, QueryParameter

from skep.broker.messages.listing import MessageFilter, MessageList, MessagePage, Status
from skep.broker.messages.single import (
    DescribedMessage,
    Intervention,
    MessageHistory,
    Messages,
    PeekPage,
)
from skep.server.auth.access import PARTITION, Level, listed_by, needs
from skep.server.routes.parameters import (
    DeepOffset,
    Limit,
    OnlyPartition,
    OnlyQueue,
    OnlyTask,
    PartitionId,
)
from skep.server.routes.section import UNREADABLE, AnyRequest, Body, Section, refusal

_PATH: Final = "/api/v1/messages"
_ONE: Final = f"{_PATH}/{{partition_id:str}}/{{transaction_id:str}}"

MessageName: TypeAlias = Annotated[str, Parameter(description="Transaction id or message id.")]


class RetryRequest(msgspec.Struct, frozen=True, rename="camel"):
    """For which group to retry a message."""

    consumer_group: str | None = None
    """By default the group for which it failed."""


class GiveUpRequest(msgspec.Struct, frozen=True, rename="camel"):
    """For which group to give up a message, and why."""

    consumer_group: str | None = None
    """By default every group that is not done with it."""
    error: str | None = None


_RETRY: Final = Body(RetryRequest, is_required=False)
_GIVE_UP: Final = Body(GiveUpRequest, is_required=False)


def message_routes(listing: MessageList, messages: Messages) -> list[HTTPRouteHandler]:
    """Declare the routes of single messages."""
    section = Section("Messages")
    read, write = needs(Level.READ_ONLY, PARTITION), needs(Level.READ_WRITE, PARTITION)

    @section.get(_PATH, needs(Level.READ_ONLY, listed_by(queue="queue", namespace="ns")))
    async def list_messages(
        queue: OnlyQueue = None,
        partition: OnlyPartition = None,
        ns: Annotated[str | None, Parameter(description="Only queues of this namespace.")] = None,
        namespace: Annotated[str | None, Parameter(description="The same as `ns`.")] = None,
        task: OnlyTask = None,
        status: Annotated[Status | None, Parameter(description="Only in this state.")] = None,
        since: Annotated[
            datetime | None,
            QueryParameter(
                name="from",
                description="Pushed at this time or later; by default an hour ago.",
            ),
        ] = None,
        until: Annotated[
            datetime | None,
            QueryParameter(name="to", description="Pushed at this time or earlier."),
        ] = None,
        transaction_id: Annotated[
            str | None,
            QueryParameter(
                name="transactionId", description="Only this transaction id, at any time."
            ),
        ] = None,
        limit: Limit = 200,
        offset: DeepOffset = 0,
        cursor: Annotated[
            str | None,
            Parameter(description="`nextCursor` of the previous page; `offset` is ignored then."),
        ] = None,
    ) -> MessagePage:
        """List messages, newest first.

        A page does a bounded amount of work: one that is not full but has a `nextCursor` is not
        the last.
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
        )
        return await listing.read_page(chosen, limit=limit, offset=offset, cursor=cursor)

    @section.get(
        f"{_PATH}/peek",
        needs(Level.READ_ONLY, listed_by(queue="queue")),
        responses={404: refusal("There is no such queue or group."), **UNREADABLE},
    )
    async def peek_messages(
        queue: Annotated[str, Parameter(description="The queue.")],
        partition: Annotated[str | None, Parameter(description="Only this partition.")] = None,
        consumer_group: Annotated[
            str | None,
            QueryParameter(
                name="consumerGroup", description="Consumer group; by default the default group."
            ),
        ] = None,
        limit: Limit = 10,
    ) -> PeekPage:
        """Show what a group would get next, without claiming it."""
        return await messages.peek(queue, partition or None, consumer_group or None, limit)

    @section.get(_ONE, read, responses=UNREADABLE)
    async def describe_message(
        partition_id: PartitionId, transaction_id: MessageName
    ) -> DescribedMessage:
        """Show a message with its payload."""
        return await messages.describe(partition_id, transaction_id)

    @section.get(f"{_ONE}/history", read, responses={404: refusal("There is no such message.")})
    async def show_message_history(
        partition_id: PartitionId, transaction_id: MessageName
    ) -> MessageHistory:
        """Show how far each group has come with a message, and its dead letters.

        The log keeps one position per group, so the times of deliveries and acknowledgments are
        not recorded. Consumers can attach traces to record more.
        """
        return await messages.history(partition_id, transaction_id)

    @section.delete(_ONE, write)
    async def delete_message(
        partition_id: PartitionId, transaction_id: MessageName
    ) -> Intervention:
        """Delete a message for all groups, with its dead letters."""
        return await messages.delete(partition_id, transaction_id)

    @section.post(
        f"{_ONE}/retry",
        write,
        body=_RETRY,
        responses={409: refusal("The message has not failed, or cannot be decrypted.")},
    )
    async def retry_message(
        partition_id: PartitionId, transaction_id: MessageName, request: AnyRequest
    ) -> Intervention:
        """Deliver a failed message again, now.

        A message that waits for its next attempt becomes available at once. A dead letter is
        pushed again, for all groups of its queue.
        """
        asked = await _RETRY.read(request)
        return await messages.retry(partition_id, transaction_id, asked.consumer_group or None)

    @section.post(
        f"{_ONE}/dlq",
        write,
        body=_GIVE_UP,
        responses={409: refusal("Every group in question is done with the message.")},
    )
    async def give_up_message(
        partition_id: PartitionId, transaction_id: MessageName, request: AnyRequest
    ) -> Intervention:
        """Move a message to the dead letters."""
        asked = await _GIVE_UP.read(request)
        return await messages.give_up(
            partition_id, transaction_id, asked.consumer_group or None, asked.error
        )

    return section.routes
