"""The route of what became of a message."""

from typing import Final

from litestar import get
from litestar.handlers import HTTPRouteHandler

from skep.broker.messages.history import MessageHistories, MessageHistory
from skep.server.auth.access import PARTITION, Level, needs
from skep.server.routes.messages.messages import MessageName, PartitionId
from skep.server.routes.refusals import refusal

_TAGS: Final = ["Messages"]


def message_history_route(histories: MessageHistories) -> HTTPRouteHandler:
    """Make the route around what is on record of messages."""

    @get(
        "/api/v1/messages/{partition_id:str}/{transaction_id:str}/history",
        operation_id="showMessageHistory",
        opt=needs(Level.READ_ONLY, PARTITION),
        responses={404: refusal("There is no such message.")},
        summary="Show how far each group has come with a message, and its dead letters",
        description="When a message was handed out or acknowledged is not on record: the log "
        "keeps a position per group. Consumers that want to tell more attach traces.",
        tags=_TAGS,
    )
    async def show_message_history(
        partition_id: PartitionId, transaction_id: MessageName
    ) -> MessageHistory:
        return await histories.of(partition_id, transaction_id)

    return show_message_history
