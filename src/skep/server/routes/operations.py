"""Operations that were accepted to be executed later: count, list, show, retry, cancel."""

from typing import Annotated, Final
from uuid import UUID

import msgspec

from skep.broker.overload import operations
from skep.server.auth import access
from skep.server.routes.parameters import Limit, OnlyQueue
from skep.server.routes.section import Section, in_path, in_query, routes_of

_PATH: Final = "/api/v1/operations"
_ONE: Final = f"{_PATH}/{{operation_id:str}}"
_UNKNOWN: Final = {404: "There is no such operation, or it ended long ago."}

OperationId = Annotated[UUID, in_path("`operationId` of a 202 answer.")]
OnlyStatus = Annotated[operations.Status | None, in_query("Only this status.")]
Before = Annotated[int | None, in_query("`nextBefore` of the previous page.", ge=1, le=2**63 - 1)]


class Cancelled(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The operation will not be executed."""

    cancelled: bool = True
    operation_id: str


@routes_of("Operations")
def operation_routes(section: Section, control: operations.OperationControl) -> None:
    """Declare the routes of operations."""

    @section.get(f"{_PATH}/stats", access.READ)
    async def count_operations() -> operations.OperationStats:
        """Count the operations by type and status."""
        return await control.stats()

    @section.get(_PATH, access.READ_LIST)
    async def list_operations(
        status: OnlyStatus = None,
        queue: OnlyQueue = None,
        limit: Limit = 100,
        before: Before = None,
    ) -> operations.OperationPage:
        """List operations, newest first."""
        return await control.list_operations(status=status, queue=queue, before=before, limit=limit)

    @section.get(_ONE, access.READ, responses=_UNKNOWN)
    async def show_operation(operation_id: OperationId) -> operations.OperationDetail:
        """Show an operation, and its answer when it is done."""
        return await control.show(operation_id)

    @section.post(
        f"{_ONE}/retry",
        access.WRITE,
        responses={
            **_UNKNOWN,
            409: "The operation has not failed, or its queue was deleted.",
        },
    )
    async def retry_operation(operation_id: OperationId) -> operations.OperationDetail:
        """Retry a failed operation."""
        return await control.retry(operation_id)

    @section.delete(
        _ONE, access.WRITE, responses={**_UNKNOWN, 409: "The operation is running or has ended."}
    )
    async def cancel_operation(operation_id: OperationId) -> Cancelled:
        """Cancel a waiting or failed operation."""
        await control.cancel(operation_id)
        return Cancelled(operation_id=str(operation_id))
