"""The catalog: what queues and partitions there are, and how much is in them.

Reads only, and always pages. Message counts are exact up to `PARTITIONS_EXACT` partitions in one
answer; beyond that the largest queues are extrapolated from `PARTITIONS_SAMPLED` partitions and say
so. Every figure is of the moment of the request: nothing is rolled up in the background.
"""

import json
from collections import ChainMap
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import asdict, astuple

from skep.broker.groups.condition import RATES_S, QueueCondition, queue_condition
from skep.broker.groups.progress import Groups
from skep.broker.messages.listing import summarize_messages
from skep.broker.paging import Page, from_row
from skep.broker.queues import resources
from skep.broker.queues.configure import stored_options
from skep.broker.queues.lifecycle import find_queue
from skep.broker.queues.resources import MessageCounts
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest, NotFound
from skep.model.ids import parse_partition_uuid, partition_uuid, queue_uuid
from skep.model.names import check_name, check_optional_name

PARTITIONS_EXACT: Final = 10_000
"""Partitions counted one by one in one answer: about a tenth of a second of PostgreSQL's time."""

PARTITIONS_SAMPLED: Final = 2_000
"""Partitions that stand for those of the queues that are not counted one by one."""

INGEST_WINDOW_S: Final = 300
INGEST_PARTITIONS: Final = 1_000
INGEST_SEGMENTS: Final = 100
"""What is looked at for the rate of pushes: so many partitions, and segments of each."""

MINUTES_MAX: Final = 60
"""Minutes that a listing shows one by one."""

QueueOrder: TypeAlias = Literal["newest", "oldest", "name"]

_MEASURE_INGEST: Final = "select skep.measure_ingest($1, $2, $3), skep.now()"
_KNOWN_PARTITION: Final = "select from skep.partition where id = $1"
_LIST_QUEUE_IDS: Final = (
    "select q.id from skep.queue q"
    " where ($1::text is null or q.namespace = $1) and ($2::text is null or q.task = $2)"
)
_LIST_QUEUE_LABELS: Final = "select q.id, q.namespace, q.task from skep.queue q"


class QueueFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues to list, and in which order."""

    namespace: str | None = None
    task: str | None = None
    search: str | None = None
    """A part of the name, in any case."""
    order: QueueOrder = "newest"


class JudgedQueue(NamedTuple):
    """A queue with its latest flows, and its condition by them and by whether something waits."""

    row: Any
    flows: Any
    condition: QueueCondition


class _Counted(msgspec.Struct, frozen=True):
    """A queue's partitions and messages."""

    partitions: int
    messages: MessageCounts
    estimated: bool


class QueueCatalog:
    """Answers questions about queues, partitions, namespaces and tasks.

    A queue or partition that does not exist raises `NotFound`.
    """

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def queues(
        self,
        wanted: QueueFilter,
        page: Page,
        *,
        condition: QueueCondition | None = None,
        minutes: int = 0,
        partitions_exact: int = PARTITIONS_EXACT,
    ) -> resources.QueuePage:
        """List queues with their counts, of up to so many partitions exactly, and what flows.

        To find those in a condition, all that match otherwise are judged.
        """
        for kind in ("namespace", "task", "search"):
            check_optional_name(kind, getattr(wanted, kind))
        if condition is None:
            rows = await self._sql.rows("list_queues", *astuple(wanted), *astuple(page))
            found = await self.judge(rows, minutes=minutes)
            total: int = rows[0]["total"]
        else:
            rows = await self._sql.rows("list_queues", *astuple(wanted), None, 0)
            chosen = [each for each in await self.judge(rows) if each.condition == condition]
            shown = [each.row for each in chosen[page.offset : page.offset + page.limit]]
            again = await self.judge(shown, minutes=minutes)
            found = [each._replace(condition=condition) for each in again]
            total = len(chosen)
        counted = await self._count(
            (each.row["id"] for each in found), partitions_exact=partitions_exact
        )
        queues = [
            from_row(
                resources.QueueSummary,
                ChainMap(asdict(counted[each.row["id"]]), dict(each.flows), each.row),
                id=queue_uuid(each.row["id"]),
                condition=each.condition,
            )
            for each in found
        ]
        return resources.QueuePage(queues, total, page)

    async def judge(self, rows: Sequence[Any], *, minutes: int = 0) -> list[JudgedQueue]:
        """Judge the queues of rows of `list_queues`, by what flows of late and what waits."""
        found = [row for row in rows if row["id"] is not None]
        ids = [row["id"] for row in found]
        waiting = {row[0] for row in await self._sql.rows("queues_waiting", ids)}
        rates = await self._sql.rows("queue_rates", ids, RATES_S, minutes)
        flows = {row["queue_id"]: row for row in rates}
        return [
            JudgedQueue(
                row,
                flows[row["id"]],
                queue_condition(
                    is_paused=row["is_paused"],
                    is_waiting=row["id"] in waiting,
                    in_per_second=flows[row["id"]]["in_per_second"],
                    out_per_second=flows[row["id"]]["out_per_second"],
                ),
            )
            for row in found
        ]

    async def queue(self, name: str, partitions: Page) -> resources.QueueDetail:
        """Describe one queue with a page of its partitions."""
        row = await self._sql.row(
            "describe_queue", check_name("queue", name), missing=NotFound("Queue not found")
        )
        stored = json.loads(row["queue"])
        counted = (await self._count([stored["id"]]))[stored["id"]]
        rows = await self._sql.rows(
            "list_partitions", stored["id"], None, None, partitions.limit, partitions.offset
        )
        return from_row(
            resources.QueueDetail,
            stored,
            id=queue_uuid(stored["id"]),
            created_at=datetime.fromisoformat(stored["created_at"]),
            options=stored_options(stored),
            groups=_groups_of(row),
            partitions=[_partition_summary(each) for each in rows],
            partitions_total=counted.partitions,
            totals=counted.messages,
            estimated=counted.estimated,
        )

    async def partitions(
        self, queue: str | None, search: str | None, after: str | None, page: Page
    ) -> resources.PartitionPage:
        """List partitions, of one queue or of all.

        Raises:
            NotFound: The partition `after` was removed: a page that just ended there would be
                taken for the last one.
        """
        check_optional_name("search", search)
        queue_id = None if queue is None else await find_queue(self._sql, queue)
        after_id = None if after is None else _parse_after(after)
        rows = await self._sql.rows(
            "list_partitions", queue_id, search, after_id, page.limit, page.offset
        )
        if after_id is not None and not (rows or await self._sql.call(_KNOWN_PARTITION, after_id)):
            raise NotFound("the partition given as after was removed: start without after")
        total = await self._sql.value("count_partitions", queue_id, search)
        listed = [_partition_summary(row) for row in rows]
        is_full = bool(listed) and len(listed) == page.limit
        return resources.PartitionPage(
            partitions=listed,
            total=total,
            pagination=page,
            next_after=listed[-1].id if is_full else None,
        )

    async def namespaces(self, page: Page) -> resources.NamespacePage:
        """List the namespaces that queues have."""
        labels, total = await self._labels("namespace", page)
        return resources.NamespacePage(
            [resources.NamespaceSummary(**each) for each in labels], total, page
        )

    async def tasks(self, page: Page) -> resources.TaskPage:
        """List the tasks that queues have."""
        labels, total = await self._labels("task", page)
        return resources.TaskPage([resources.TaskSummary(**each) for each in labels], total, page)

    async def overview(self) -> resources.Overview:
        """Sum up the whole installation."""
        queues = await self._sql.call(_LIST_QUEUE_LABELS)
        counted = await self._count((row["id"] for row in queues), is_sum=True)
        lag = await self._sql.row("measure_lag", PARTITIONS_SAMPLED)
        ((ingested, now),) = await self._sql.call(
            _MEASURE_INGEST, INGEST_WINDOW_S, INGEST_PARTITIONS, INGEST_SEGMENTS
        )
        return resources.Overview(
            queues=len(queues),
            partitions=sum(each.partitions for each in counted.values()),
            namespaces=len({row["namespace"] for row in queues}),
            tasks=len({row["task"] for row in queues}),
            messages=sum_counts(each.messages for each in counted.values()),
            estimated=any(each.estimated for each in counted.values()),
            lag=resources.Lag(time=_spread(lag, "time"), offset=_spread(lag, "offset")),
            throughput=resources.Throughput(
                ingested_per_second=ingested, processed_per_second=None
            ),
            timestamp=now,
        )

    async def sum_messages(
        self, *, namespace: str | None = None, task: str | None = None
    ) -> tuple[MessageCounts, bool]:
        """Count the messages of queues by namespace and task; also say if it is a guess."""
        rows = await self._sql.call(_LIST_QUEUE_IDS, namespace, task)
        counted = (await self._count((row["id"] for row in rows), is_sum=True)).values()
        is_guess = any(each.estimated for each in counted)
        return sum_counts(each.messages for each in counted), is_guess

    async def newest_messages(self, queue: str, page: Page) -> list[resources.MessageSummary]:
        """List the messages of a queue, newest first, without their payloads."""
        queue_id = await find_queue(self._sql, queue)
        segments = await self._sql.rows("newest_segments", queue_id, page.limit, page.offset)
        rows = await self._sql.rows(
            "list_messages",
            [segment["partition_id"] for segment in segments],
            [segment["first"] for segment in segments],
            [None] * len(segments),
            [segment["last"] + 1 - max(page.offset - segment["rank"], 0) for segment in segments],
            None,
            None,
            0,
            0,
            page.limit,
        )
        return summarize_messages(segments, rows, page)

    async def _labels(
        self, kind: Literal["namespace", "task"], page: Page
    ) -> tuple[list[dict[str, Any]], int]:
        """Return the labels of a page with the sums of their queues, and how many there are."""
        rows = await self._sql.rows("list_labels", kind, page.limit, page.offset)
        found = [row for row in rows if row["label"] is not None]
        counted = await self._count(queue_id for row in found for queue_id in row["queue_id"])
        labels = [
            {kind: row["label"], **_label_sums([counted[each] for each in row["queue_id"]])}
            for row in found
        ]
        return labels, rows[0]["total"]

    async def _count(
        self,
        queue_ids: Iterable[int],
        *,
        is_sum: bool = False,
        partitions_exact: int = PARTITIONS_EXACT,
    ) -> dict[int, _Counted]:
        wanted = list(queue_ids)
        if not wanted:
            return {}
        rows = await self._sql.rows(
            "count_messages", wanted, partitions_exact, PARTITIONS_SAMPLED, is_sum
        )
        return {
            row["queue_id"]: _Counted(row["partitions"], _counts_of(row), row["is_estimate"])
            for row in rows
        }


def _parse_after(after: str) -> int:
    partition_id = parse_partition_uuid(after)
    if partition_id is None:
        raise BadRequest(f"after must be the id of a partition, not {after!r}")
    return partition_id


def _partition_summary(row: Any) -> resources.PartitionSummary:
    return from_row(
        resources.PartitionSummary,
        row,
        id=partition_uuid(row["id"]),
        queue=row["queue_name"],
        stats=_counts_of(row),
        last_activity=row["pushed_at"],
        oldest_message=row["oldest_at"],
        newest_message=row["pushed_at"] if row["head"] >= row["tail"] else None,
    )


def _groups_of(row: Any) -> list[resources.GroupSummary]:
    columns = ("group_name", "group_mode", "group_from", "group_is_paused", "group_created_at")
    groups = zip(*(row[column] or () for column in columns), strict=True)
    names = resources.GroupSummary.__struct_fields__
    return [resources.GroupSummary(**dict(zip(names, group, strict=True))) for group in groups]


def _spread(row: Any, figure: str) -> resources.Spread:
    return resources.Spread(
        **{name: row[f"{figure}_{name}"] for name in resources.Spread.__struct_fields__}
    )


def _counts_of(row: Any) -> MessageCounts:
    completed = max(row["total"] - row["pending"], 0)
    return from_row(MessageCounts, row, completed=completed, dead_letter=row["dead_letters"])


def _label_sums(counted: Sequence[_Counted]) -> dict[str, Any]:
    messages = sum_counts(each.messages for each in counted)
    return {
        "queues": len(counted),
        "partitions": sum(each.partitions for each in counted),
        "messages": resources.BriefCounts(messages.total, messages.pending),
        "estimated": any(each.estimated for each in counted),
    }


def sum_counts(all_counts: Iterable[MessageCounts]) -> MessageCounts:
    """Add up counts."""
    listed = list(all_counts)
    return MessageCounts(
        **{
            name: sum(getattr(counts, name) for counts in listed)
            for name in MessageCounts.__struct_fields__
        }
    )


class PartitionDepth(msgspec.Struct, frozen=True):
    """What waits in one partition."""

    partition: str
    pending: int


class QueueDepth(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What waits in a queue."""

    queue: str
    group: str | None
    """Null: of each partition what its slowest reader has yet to finish."""
    pending: int
    """Messages that are not finished yet."""
    partitions_pending: int
    """Partitions with such messages."""
    conflation: bool
    """Whether the group gets only the newest message of each partition."""
    effective_pending: int
    """Messages that will be delivered: one for each partition if the group conflates, else all."""
    estimated: bool
    """Whether the sums come from a sample, or of `partitionsPending` from this page alone."""
    partitions: list[PartitionDepth]
    """A page of the partitions, by name."""


class Depths:
    """Measures what waits in queues.

    The figures of the listings and of the lag of groups, in the shape of Queen's newer clients.
    """

    def __init__(self, groups: Groups, catalog: QueueCatalog) -> None:
        self._groups: Final = groups
        self._catalog: Final = catalog

    async def of_group(self, queue: str, group: str, page: Page) -> QueueDepth:
        """Measure what one group has yet to finish."""
        lag = await self._groups.measure_lag(group, queue, page)
        return QueueDepth(
            queue=queue,
            group=group,
            pending=lag.offset_lag,
            partitions_pending=lag.partitions_with_lag,
            conflation=lag.conflation,
            effective_pending=lag.partitions_with_lag if lag.conflation else lag.offset_lag,
            estimated=lag.estimated,
            partitions=[PartitionDepth(each.partition, each.offset_lag) for each in lag.partitions],
        )

    async def of_queue(self, queue: str, page: Page) -> QueueDepth:
        """Measure what the slowest reader of each partition has yet to finish."""
        detail = await self._catalog.queue(queue, page)
        partitions = [PartitionDepth(each.name, each.stats.pending) for each in detail.partitions]
        return QueueDepth(
            queue=queue,
            group=None,
            pending=detail.totals.pending,
            partitions_pending=sum(each.pending > 0 for each in partitions),
            conflation=False,
            effective_pending=detail.totals.pending,
            estimated=detail.estimated or len(partitions) < detail.partitions_total,
            partitions=partitions,
        )
