"""Operations that were accepted to be executed later: count, list, show, retry, cancel."""

from typing import Annotated, Final
from uuid import UUID

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter, QueryParameter

from skep.broker.overload.operations import (
    OperationControl,
    OperationDetail,
    OperationPage,
    OperationStats,
    Status,
)
from skep.server.auth.access import Level, listed_by, needs
from skep.server.routes.parameters import Limit, OnlyQueue
from skep.server.routes.section import Section, refusal

_PATH: Final = "/api/v1/operations"
_ONE: Final = f"{_PATH}/{{operation_id:uuid}}"
_UNKNOWN: Final = {404: refusal("There is no such operation, or it ended long ago.")}

OperationId = Annotated[UUID, PathParameter(description="`operationId` of a 202 answer.")]
OnlyStatus = Annotated[Status | None, QueryParameter(description="Only this status.")]
Before = Annotated[
    int | None,
    QueryParameter(ge=1, le=2**63 - 1, description="`nextBefore` of the previous page."),
]


class Cancelled(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The operation will not be executed."""

    cancelled: bool = True
    operation_id: str


def operation_routes(desk: OperationControl) -> list[HTTPRouteHandler]:
    """Declare the routes of operations."""
    section = Section("Operations")
    read, write = needs(Level.READ_ONLY), needs(Level.READ_WRITE)

    @section.get(f"{_PATH}/stats", read)
    async def count_operations() -> OperationStats:
        """Count the operations by type and status."""
        return await desk.stats()

    @section.get(_PATH, needs(Level.READ_ONLY, listed_by(queue="queue")))
    async def list_operations(
        status: OnlyStatus = None,
        queue: OnlyQueue = None,
        limit: Limit = 100,
        before: Before = None,
    ) -> OperationPage:
        """List operations, newest first."""
        return await desk.list_operations(status=status, queue=queue, before=before, limit=limit)

    @section.get(_ONE, read, responses=_UNKNOWN)
    async def show_operation(operation_id: OperationId) -> OperationDetail:
        """Show an operation, and its answer when it is done."""
        return await desk.show(operation_id)

    @section.post(
        f"{_ONE}/retry",
        write,
        responses={
            **_UNKNOWN,
            409: refusal("The operation has not failed, or its queue was deleted."),
        },
    )
    async def retry_operation(operation_id: OperationId) -> OperationDetail:
        """Retry a failed operation."""
        return await desk.retry(operation_id)

    @section.delete(
        _ONE,
        write,
        responses={**_UNKNOWN, 409: refusal("The operation is running or has ended.")},
    )
    async def cancel_operation(operation_id: OperationId) -> Cancelled:
        """Cancel a waiting or failed operation."""
        await desk.cancel(operation_id)
        return Cancelled(operation_id=str(operation_id))

    return section.routes
