"""The parameters and answers that the routes of chains, jobs and schedules share."""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from litestar.params import PathParameter, QueryParameter

from skep.jobs.client.inspection import PAGE_LIMIT_MAX, JobRow, Page
from skep.server.routes.refusals import refusal

Row = TypeVar("Row")
Shown = TypeVar("Shown")

ChainId: TypeAlias = Annotated[UUID, PathParameter(description="The id of a chain.")]
JobId: TypeAlias = Annotated[
    UUID, PathParameter(description="The id of a job; of a chain's first job it is the chain's.")
]
TypeName: TypeAlias = Annotated[
    str, PathParameter(description="The name of a job, percent-encoded.")
]
OnlyType: TypeAlias = Annotated[
    str | None, QueryParameter(name="type", description="Only jobs of this name.")
]
PageSize: TypeAlias = Annotated[
    int, QueryParameter(name="limit", ge=1, le=PAGE_LIMIT_MAX, description="Rows at most.")
]
AfterId: TypeAlias = Annotated[
    UUID | None, QueryParameter(name="after", description="`after` of the page before.")
]
AfterName: TypeAlias = Annotated[
    str | None, QueryParameter(name="after", description="`after` of the page before.")
]
Order: TypeAlias = Annotated[
    Literal["newest", "oldest"], QueryParameter(name="order", description="Which come first.")
]

NO_CHAIN: Final = {404: refusal("There is no such chain.")}
NO_JOB: Final = {404: refusal("There is no such job.")}


class JobPage(msgspec.Struct, frozen=True):
    """Some of the jobs; `after` asks for more, null at the end."""

    items: list[JobRow]
    after: str | None


def listed(shape: Callable[[list[Row], str | None], Shown], page: Page[Row, Any]) -> Shown:
    """Show a page in its shape, which has a name of its own for the API document."""
    return shape(page.items, None if page.after is None else str(page.after))
