"""The parameters and the page shape that many routes share."""

from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from litestar.params import Parameter, PathParameter, QueryParameter

from skep.jobs.client.inspection import PAGE_LIMIT_MAX, Page

LIMIT_MAX: Final = 1_000
_INTEGER_MAX: Final = 2**31 - 1

# Names

QueueName: TypeAlias = Annotated[str, PathParameter(description="Queue name, percent-encoded.")]
PartitionId: TypeAlias = Annotated[
    str, PathParameter(description="Partition id, as delivered with its messages.")
]
OnlyQueue: TypeAlias = Annotated[
    str | None, QueryParameter(name="queue", description="Only this queue.")
]
OnlyPartition: TypeAlias = Annotated[
    str | None, Parameter(description="Only this partition; requires `queue`.")
]
OnlyGroup: TypeAlias = Annotated[
    str | None, QueryParameter(name="consumerGroup", description="Only this consumer group.")
]
OnlyNamespace: TypeAlias = Annotated[
    str | None, QueryParameter(description="Only queues of this namespace.")
]
OnlyTask: TypeAlias = Annotated[str | None, QueryParameter(description="Only queues of this task.")]
Search: TypeAlias = Annotated[
    str | None, Parameter(description="Only names that contain this, in any case.")
]

# Times

Since: TypeAlias = Annotated[
    datetime | None,
    QueryParameter(name="from", description="Start of the range; by default an hour before `to`."),
]
Until: TypeAlias = Annotated[
    datetime | None, QueryParameter(name="to", description="End of the range; by default now.")
]

# Pages

Limit: TypeAlias = Annotated[
    int, Parameter(ge=1, le=LIMIT_MAX, description="Maximum number of rows.")
]
LimitOrNone: TypeAlias = Annotated[
    int,
    Parameter(ge=0, le=LIMIT_MAX, description="Maximum number of rows; 0 returns only totals."),
]
Offset: TypeAlias = Annotated[
    int, Parameter(ge=0, le=_INTEGER_MAX, description="Number of rows to skip.")
]
DeepOffset: TypeAlias = Annotated[
    int, Parameter(ge=0, le=2**62, description="Number of rows to skip.")
]
PartitionLimit: TypeAlias = Annotated[
    int,
    QueryParameter(
        name="partitionLimit", ge=0, le=LIMIT_MAX, description="Maximum number of partitions."
    ),
]
PartitionOffset: TypeAlias = Annotated[
    int,
    QueryParameter(
        name="partitionOffset",
        ge=0,
        le=_INTEGER_MAX,
        description="Number of partitions to skip.",
    ),
]

# Chains, jobs and schedules

PageSize: TypeAlias = Annotated[
    int,
    QueryParameter(name="limit", ge=1, le=PAGE_LIMIT_MAX, description="Maximum number of rows."),
]
AfterId: TypeAlias = Annotated[
    UUID | None, QueryParameter(name="after", description="`after` of the previous page.")
]
AfterName: TypeAlias = Annotated[
    str | None, QueryParameter(name="after", description="`after` of the previous page.")
]
OnlyType: TypeAlias = Annotated[
    str | None, QueryParameter(name="type", description="Only this job type.")
]
Order: TypeAlias = Annotated[
    Literal["newest", "oldest"], QueryParameter(name="order", description="Which rows come first.")
]

Row = TypeVar("Row")


class Listed(msgspec.Struct, Generic[Row], frozen=True):
    """A page of rows. Pass `after` to get the next page; null on the last one.

    A subclass gives it a name in the document and declares `items` again: Litestar does not look
    into generic bases.
    """

    items: list[Row]
    after: str | None

    @classmethod
    def of(cls, page: Page[Row, Any]) -> Self:
        """Show a page."""
        return cls(page.items, None if page.after is None else str(page.after))
