"""The routes of single messages: list, look, delete, retry, give up, peek.

A message is named by its partition's id and its transaction id or its own id.
"""

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter, QueryParameter

from skep.broker.messages.listing import MessageFilter, MessageList, MessagePage, Status
from skep.broker.messages.messages import DescribedMessage, Intervention, Messages, PeekPage
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import PARTITION, Level, listed_by, needs
from skep.server.hot.decoding import decode_optional_body
from skep.server.routes.refusals import UNREADABLE, refusal

PartitionId: TypeAlias = Annotated[
    str, Parameter(description="The id of a partition, as delivered.")
]
MessageName: TypeAlias = Annotated[str, Parameter(description="A transaction id, or a message id.")]

_TAGS: Final = ["Messages"]
_PATH: Final = "/api/v1/messages/{partition_id:str}/{transaction_id:str}"


class RetryRequest(msgspec.Struct, frozen=True, rename="camel"):
    """For whom to retry a message."""

    consumer_group: str | None = None
    """None: for whichever group it failed."""


class GiveUpRequest(msgspec.Struct, frozen=True, rename="camel"):
    """For whom to give up a message, and why."""

    consumer_group: str | None = None
    """None: for every group that is not done with it."""
    error: str | None = None


_retry_decoder = msgspec.json.Decoder(RetryRequest)
_give_up_decoder = msgspec.json.Decoder(GiveUpRequest)


def message_routes(listing: MessageList, messages: Messages) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""
    return [_list_route(listing), *_reading_routes(messages), *_changing_routes(messages)]


def _list_route(listing: MessageList) -> HTTPRouteHandler:
    @get(
        "/api/v1/messages",
        operation_id="listMessages",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue", namespace="ns")),
        summary="List messages, the newest first",
        description="Pages are filled as far as a bounded amount of work goes: an incomplete one "
        "with a `nextCursor` is not the last.",
        tags=_TAGS,
    )
    async def list_messages(
        queue: Annotated[str | None, Parameter(description="Only of this queue.")] = None,
        partition: Annotated[
            str | None, Parameter(description="Only of this partition; needs `queue`.")
        ] = None,
        ns: Annotated[str | None, Parameter(description="Only queues of this namespace.")] = None,
        namespace: Annotated[str | None, Parameter(description="The same as `ns`.")] = None,
        task: Annotated[str | None, Parameter(description="Only queues of this task.")] = None,
        status: Annotated[Status | None, Parameter(description="Only in this state.")] = None,
        since: Annotated[
            datetime | None,
            QueryParameter(
                name="from", description="Pushed then or later; an hour ago by default."
            ),
        ] = None,
        until: Annotated[
            datetime | None, QueryParameter(name="to", description="Pushed then or earlier.")
        ] = None,
        transaction_id: Annotated[
            str | None,
            QueryParameter(name="transactionId", description="With this id, whenever pushed."),
        ] = None,
        limit: Annotated[int, Parameter(ge=1, le=1_000, description="The most to return.")] = 200,
        offset: Annotated[int, Parameter(ge=0, le=2**62, description="How many to skip.")] = 0,
        cursor: Annotated[
            str | None, Parameter(description="A `nextCursor`; `offset` does not count then.")
        ] = None,
    ) -> MessagePage:
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

    return list_messages


def _reading_routes(messages: Messages) -> list[HTTPRouteHandler]:
    @get(
        "/api/v1/messages/peek",
        operation_id="peekMessages",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        responses={404: refusal("There is no such queue or group."), **UNREADABLE},
        summary="Show what a group would get next, claiming nothing",
        tags=_TAGS,
    )
    async def peek_messages(
        queue: Annotated[str, Parameter(description="The queue.")],
        partition: Annotated[str | None, Parameter(description="Only this partition.")] = None,
        consumer_group: Annotated[
            str | None,
            QueryParameter(name="consumerGroup", description="Absent: the group of queue mode."),
        ] = None,
        limit: Annotated[int, Parameter(ge=1, le=1_000, description="The most to return.")] = 10,
    ) -> PeekPage:
        return await messages.peek(queue, partition or None, consumer_group or None, limit)

    @get(
        _PATH,
        operation_id="describeMessage",
        opt=needs(Level.READ_ONLY, PARTITION),
        responses=UNREADABLE,
        summary="Show a message with its payload",
        tags=_TAGS,
    )
    async def describe_message(
        partition_id: PartitionId, transaction_id: MessageName
    ) -> DescribedMessage:
        return await messages.describe(partition_id, transaction_id)

    return [peek_messages, describe_message]


def _changing_routes(messages: Messages) -> list[HTTPRouteHandler]:
    @delete(
        _PATH,
        status_code=200,
        operation_id="deleteMessage",
        opt=needs(Level.READ_WRITE, PARTITION),
        summary="Delete a message for all groups, with its dead letters",
        tags=_TAGS,
    )
    async def delete_message(
        partition_id: PartitionId, transaction_id: MessageName
    ) -> Intervention:
        return await messages.delete(partition_id, transaction_id)

    @post(
        f"{_PATH}/retry",
        status_code=200,
        operation_id="retryMessage",
        opt=needs(Level.READ_WRITE, PARTITION),
        responses={409: refusal("It has not failed, or cannot be decrypted.")},
        operation_class=body_of(RetryRequest, is_required=False),
        summary="Deliver a message that failed again, now",
        description="One that waits after a failure is available at once. One that died is pushed "
        "again, for all groups of its queue.",
        tags=_TAGS,
    )
    async def retry_message(
        partition_id: PartitionId, transaction_id: MessageName, request: Request[Any, Any, Any]
    ) -> Intervention:
        asked = decode_optional_body(_retry_decoder, await request.body(), {})
        group = asked.consumer_group if asked else None
        return await messages.retry(partition_id, transaction_id, group or None)

    @post(
        f"{_PATH}/dlq",
        status_code=200,
        operation_id="giveUpMessage",
        opt=needs(Level.READ_WRITE, PARTITION),
        responses={409: refusal("Every group in question is done with it.")},
        operation_class=body_of(GiveUpRequest, is_required=False),
        summary="Move a message to the dead letters",
        tags=_TAGS,
    )
    async def give_up_message(
        partition_id: PartitionId, transaction_id: MessageName, request: Request[Any, Any, Any]
    ) -> Intervention:
        asked = decode_optional_body(_give_up_decoder, await request.body(), {}) or GiveUpRequest()
        return await messages.give_up(
            partition_id, transaction_id, asked.consumer_group or None, asked.error
        )

    return [delete_message, retry_message, give_up_message]
