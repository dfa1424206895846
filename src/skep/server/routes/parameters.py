"""The parameters and the page shape that many routes share."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from skep.broker import paging
from skep.broker.stats.charts import Charts, QueueChoice
from skep.broker.stats.ranges import SPAN_DEFAULT, ChartRange, chart_range
from skep.broker.timestamps import in_utc
from skep.jobs.client.inspection import PAGE_LIMIT_MAX, Page
from skep.model.limits import PAGE_ROWS_MAX
from skep.server.routes.section import Parts, in_path, in_query

OFFSET_MAX: Final = 2**31 - 1

# Names

QueueName: TypeAlias = Annotated[str, in_path("Queue name, percent-encoded.")]
PartitionId: TypeAlias = Annotated[str, in_path("Partition id, as delivered with its messages.")]
OnlyQueue: TypeAlias = Annotated[str | None, in_query("Only this queue.", "queue")]
OnlyPartition: TypeAlias = Annotated[str | None, in_query("Only this partition; requires `queue`.")]
OnlyGroup: TypeAlias = Annotated[str | None, in_query("Only this consumer group.", "consumerGroup")]
OnlyNamespace: TypeAlias = Annotated[str | None, in_query("Only queues of this namespace.")]
OnlyTask: TypeAlias = Annotated[str | None, in_query("Only queues of this task.")]
OnlyHeader: TypeAlias = Annotated[
    str | None, in_query("Only messages with this header: a name, or `name=value`.")
]
OnlyPayload: TypeAlias = Annotated[
    str | None,
    in_query(
        "Only messages whose payload fulfils a condition, such as `$.customer.id = 7`, or contains "
        "a text. Operators are `=`, `!=`, `<`, `<=`, `>`, `>=` and `~` (contains); a path alone "
        "must exist."
    ),
]
Search: TypeAlias = Annotated[str | None, in_query("Only names that contain this, in any case.")]

# Times

Since: TypeAlias = Annotated[
    datetime | None, in_query("Start of the range; by default an hour before `to`.", "from")
]
Until: TypeAlias = Annotated[datetime | None, in_query("End of the range; by default now.", "to")]


class TimeSpan(msgspec.Struct, frozen=True):
    """The time that a chart is asked for."""

    since: datetime | None
    until: datetime | None

    async def on(self, charts: Charts, *, span: timedelta = SPAN_DEFAULT) -> ChartRange:
        """Return what a chart covers, by the clock of the database."""
        return chart_range(
            in_utc(self.since), in_utc(self.until), now=await charts.now(), span=span
        )


Span: TypeAlias = Annotated[TimeSpan, Parts(since=Since, until=Until)]
OneQueue: TypeAlias = Annotated[QueueChoice, Parts(queue=OnlyQueue)]
SomeQueues: TypeAlias = Annotated[
    QueueChoice, Parts(queue=OnlyQueue, namespace=OnlyNamespace, task=OnlyTask)
]

# Pages

Limit: TypeAlias = Annotated[int, in_query("Maximum number of rows.", ge=1, le=PAGE_ROWS_MAX)]
LimitOrNone: TypeAlias = Annotated[
    int, in_query("Maximum number of rows; 0 returns only totals.", ge=0, le=PAGE_ROWS_MAX)
]
Offset: TypeAlias = Annotated[int, in_query("Number of rows to skip.", ge=0, le=OFFSET_MAX)]
DeepOffset: TypeAlias = Annotated[int, in_query("Number of rows to skip.", ge=0, le=2**62)]
Rows: TypeAlias = Annotated[paging.Page, Parts(limit=Limit, offset=Offset)]
RowsOrNone: TypeAlias = Annotated[paging.Page, Parts(limit=LimitOrNone, offset=Offset)]
FIRST_50: Final = paging.Page(50, 0)
FIRST_100: Final = paging.Page(100, 0)
FIRST_1000: Final = paging.Page(PAGE_ROWS_MAX, 0)

# Chains, jobs and schedules

PageSize: TypeAlias = Annotated[
    int, in_query("Maximum number of rows.", "limit", ge=1, le=PAGE_LIMIT_MAX)
]
AfterId: TypeAlias = Annotated[UUID | None, in_query("`after` of the previous page.", "after")]
AfterName: TypeAlias = Annotated[str | None, in_query("`after` of the previous page.", "after")]
OnlyType: TypeAlias = Annotated[str | None, in_query("Only this job type.", "type")]


class CreationSpan(msgspec.Struct, frozen=True):
    """When what is listed was created; each bound has two names."""

    since: datetime | None = None
    until: datetime | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None

    def bounds(self) -> tuple[datetime | None, datetime | None]:
        """Return its begin, and its end, which is not part of it."""
        return in_utc(self.since or self.created_from), in_utc(self.until or self.created_to)


Created: TypeAlias = Annotated[
    CreationSpan,
    Parts(
        since=Annotated[
            datetime | None, in_query("Only what was created at this time or later.", "from")
        ],
        until=Annotated[datetime | None, in_query("Only what was created before this time.", "to")],
        created_from=Annotated[datetime | None, in_query("The same as `from`.", "createdFrom")],
        created_to=Annotated[datetime | None, in_query("The same as `to`.", "createdTo")],
    ),
]
ANY_TIME: Final = CreationSpan()
Order: TypeAlias = Annotated[
    Literal["newest", "oldest"], in_query("Which rows come first.", "order")
]

Row = TypeVar("Row")
Filter = TypeVar("Filter", bound=msgspec.Struct)


def without_blanks(chosen: Filter) -> Filter:
    """Return a filter in which an empty text means the same as none."""
    blank = {name: None for name in chosen.__struct_fields__ if getattr(chosen, name) == ""}
    return msgspec.structs.replace(chosen, **blank)


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
