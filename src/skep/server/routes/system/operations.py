"""The operations that were accepted to be done later: count, list, show, retry, cancel."""

from typing import Annotated, Final
from uuid import UUID

import msgspec
from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter, QueryParameter

from skep.broker.overload.operations import (
    OperationDesk,
    OperationDetail,
    OperationPage,
    OperationStats,
    Status,
)
from skep.server.auth.access import Level, listed_by, needs
from skep.server.routes.refusals import refusal

_TAGS: Final = ["Operations"]
_PATH: Final = "/api/v1/operations"
_ONE: Final = f"{_PATH}/{{operation_id:uuid}}"
_UNKNOWN: Final = {404: refusal("There is no such operation, or it ended long ago.")}

OperationId = Annotated[UUID, PathParameter(description="The `operationId` of a 202.")]
OnlyStatus = Annotated[Status | None, QueryParameter(description="Only of this status.")]
OnlyQueue = Annotated[str | None, QueryParameter(description="Only of this queue.")]
Before = Annotated[
    int | None,
    QueryParameter(ge=1, le=2**63 - 1, description="`nextBefore` of the page before."),
]
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="The most to return.")]


class Cancelled(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The operation will not be carried out."""

    cancelled: bool = True
    operation_id: str


def operation_routes(desk: OperationDesk) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker does."""

    @get(
        f"{_PATH}/stats",
        operation_id="countOperations",
        opt=needs(Level.READ_ONLY),
        summary="Count the operations by type and status",
        tags=_TAGS,
    )
    async def count_operations() -> OperationStats:
        return await desk.stats()

    @get(
        _PATH,
        operation_id="listOperations",
        opt=needs(Level.READ_ONLY, listed_by(queue="queue")),
        summary="List operations, the newest first",
        tags=_TAGS,
    )
    async def list_operations(
        status: OnlyStatus = None,
        queue: OnlyQueue = None,
        limit: Limit = 100,
        before: Before = None,
    ) -> OperationPage:
        return await desk.list_operations(status=status, queue=queue, before=before, limit=limit)

    @get(
        _ONE,
        operation_id="showOperation",
        opt=needs(Level.READ_ONLY),
        summary="Show an operation, and its answer when it is done",
        tags=_TAGS,
        responses=_UNKNOWN,
    )
    async def show_operation(operation_id: OperationId) -> OperationDetail:
        return await desk.show(operation_id)

    @post(
        f"{_ONE}/retry",
        operation_id="retryOperation",
        opt=needs(Level.READ_WRITE),
        summary="Let an operation that was given up wait once more",
        tags=_TAGS,
        responses={**_UNKNOWN, 409: refusal("It has not failed, or its queue is gone.")},
        status_code=200,
    )
    async def retry_operation(operation_id: OperationId) -> OperationDetail:
        return await desk.retry(operation_id)

    @delete(
        _ONE,
        operation_id="cancelOperation",
        opt=needs(Level.READ_WRITE),
        summary="Let an operation that waits or was given up not be done",
        tags=_TAGS,
        responses={**_UNKNOWN, 409: refusal("It is being carried out or has ended.")},
        status_code=200,
    )
    async def cancel_operation(operation_id: OperationId) -> Cancelled:
        await desk.cancel(operation_id)
        return Cancelled(operation_id=str(operation_id))

    return [count_operations, list_operations, show_operation, retry_operation, cancel_operation]
