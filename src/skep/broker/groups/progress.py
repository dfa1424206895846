"""Which consumer groups there are, and how far behind each one is.

Reads only. Counts are exact up to `EXACT_PARTITIONS_MAX` partitions in one
answer; beyond that they come from a sample and say so, because a listing must not read a hundred
thousand partitions.

The broker does not know its consumers: a poll belongs to a group for its duration. `members` is
therefore what Queen gives under this name, the number of partitions with a cursor. When consumers
last polled and made progress is recorded by group (`record_group_activity`), not by partition.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import asdict

from skep.broker.groups.condition import (
    WORST_FIRST,
    GroupCondition,
    GroupFacts,
    group_condition,
)
from skep.broker.paging import Page, from_row
from skep.broker.timestamps import spell_moment
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import NotFound
from skep.model.ids import partition_uuid
from skep.model.names import check_name

EXACT_PARTITIONS_MAX: Final = 10_000
"""Partitions counted one by one in one answer, and partitions of a queue counted at all."""

LAGGING_EXAMINED_MAX: Final = 10_000
"""Partitions that the search for the worst ones examines, over all groups."""

LAGGING_S: Final = 300
"""A group whose oldest unread message waits longer than this is lagging."""

QUEUES_OF_GROUP_MAX: Final = 1_000
"""Queues of one group that its detail goes through."""

GROUPS_JUDGED_MAX: Final = 1_000
"""Groups that are measured to order a listing by condition, or to filter it."""

State = Literal["Stable", "Lagging", "Dead", "Paused", "Idle"]
GroupOrder: TypeAlias = Literal["name", "worst"]


class GroupEntry(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A consumer group on a queue."""

    name: str
    topics: list[str]
    """The queue, as a list of one."""
    queue_name: str
    members: int
    """The same as `partitionCount`, under the name Queen gives it; consumers are not counted."""
    partition_count: int
    """Partitions in which the group has a cursor: all of the queue."""
    lanes: int
    """The same as `partitionCount`, under its earlier name."""
    partitions_with_lag: int
    total_lag: int
    """Messages the group has yet to finish."""
    max_time_lag: int
    """Age in seconds of the oldest message it has not finished; 0 when there is none."""
    state: State
    """Queen's word, for its clients. Paused; Idle: nothing to read; Stable: no message waits longer
    than five minutes; Lagging: some do; Dead: they do, and no consumer polls for them either."""
    condition: GroupCondition
    """`consuming`: keeps up; `lagging`: behind, progressing; `stalled`: behind without progress;
    `no-consumers`: behind, and no consumer polls or holds a lease; `paused`, itself or its queue;
    `empty`: nothing to read, no consumer."""
    last_polled_at: str | None
    """When a consumer last polled, to about half a minute."""
    last_progress_at: str | None
    """When messages were last finished, or progress could first be expected: consumers came back,
    delivery was resumed, a seek moved the group."""
    subscription_mode: str
    subscription_timestamp: str | None
    """Where a subscription of mode `timestamp` or `new` starts."""
    subscription_created_at: str
    is_paused: bool
    conflation: bool
    """Only the newest message of each partition is delivered."""
    estimated: bool
    """The counts come from a sample, because there are very many partitions to count."""


class LaggingPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition in which a group is behind."""

    consumer_group: str
    queue_name: str
    partition_name: str
    partition_id: str
    worker_id: str | None
    """The lease under which a consumer holds the partition now."""
    offset_lag: int
    time_lag_seconds: int
    lag_hours: float
    oldest_unconsumed_at: str
    last_consumed_at: None = None
    """Not recorded."""


class PartitionProgress(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How far a group is in one partition."""

    partition: str
    partition_id: str
    worker_id: str | None
    last_consumed_at: None = None
    """Not recorded."""
    total_consumed: int
    """Messages up to the cursor, those the group started behind included."""
    offset_lag: int
    time_lag_seconds: int
    lease_active: bool


class QueueProgress(msgspec.Struct, frozen=True):
    """The partitions of one queue."""

    partitions: list[PartitionProgress]


class PartitionLag(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The lag of a group in one partition."""

    partition: str
    partition_id: str
    offset_lag: int
    time_lag_seconds: int
    leased: bool
    failing: int
    """Messages beyond the cursor that failed and will be tried again."""
    head: int
    """Offset of the newest message."""
    tail: int
    """Offset of the oldest message kept."""
    acked: int
    """Offset up to which everything is done."""


class GroupLag(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The lag of a group on a queue, in total and by partition."""

    consumer_group: str
    queue_name: str
    state: State
    condition: GroupCondition
    partition_count: int
    lanes: int
    """The same as `partitionCount`, by its earlier name."""
    partitions_with_lag: int
    offset_lag: int
    time_lag_seconds: int
    conflation: bool
    """Only the newest message of each partition is delivered."""
    estimated: bool
    """The totals come from a sample."""
    limit: int
    offset: int
    partitions: list[PartitionLag]
    """In the order of their names."""


class JudgedGroup(NamedTuple):
    """A group as it is listed, and what only the broker needs of it."""

    group_id: int
    queue_id: int
    facts: GroupFacts
    polled_at: datetime | None
    progressed_at: datetime | None
    entry: GroupEntry


class GroupPage(NamedTuple):
    """Entries, how many there are in all, and whether some groups were not looked at."""

    entries: list[GroupEntry]
    total: int
    is_partial: bool = False


class LaggingPage(NamedTuple):
    """Partitions, how many were found, and whether some were not looked at."""

    partitions: list[LaggingPartition]
    total: int
    is_partial: bool


class GroupKey(NamedTuple):
    """The ids of a group and of its queue."""

    queue_id: int
    group_id: int


async def find_group(sql: Functions, queue: str, group: str) -> GroupKey:
    """Look up a group of a queue; if either does not exist, raise `NotFound`."""
    check_name("queue", queue)
    check_name("consumerGroup", group)
    row = await sql.row("find_group", queue, group, missing=NotFound("Queue not found"))
    if row["group_id"] is None:
        raise NotFound("Consumer group not found")
    return GroupKey(row["queue_id"], row["group_id"])


class Groups:
    """Answers questions about consumer groups; one that does not exist raises `NotFound`."""

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def list_groups(
        self,
        page: Page,
        *,
        queue: str | None = None,
        condition: GroupCondition | None = None,
        order: GroupOrder = "name",
    ) -> GroupPage:
        """Return a page of all groups, by group and queue name or worst first."""
        if order == "name" and condition is None:
            groups, total = await self.judge_groups(page, queue=queue)
            return GroupPage([each.entry for each in groups], total)
        groups, total = await self.judge_groups(Page(GROUPS_JUDGED_MAX, 0), queue=queue)
        chosen = [each.entry for each in groups if condition in (None, each.entry.condition)]
        if order == "worst":
            chosen.sort(key=_by_need)
        shown = chosen[page.offset : page.offset + page.limit]
        return GroupPage(shown, len(chosen), total > GROUPS_JUDGED_MAX)

    async def judge_groups(
        self, page: Page, *, queue: str | None = None
    ) -> tuple[list[JudgedGroup], int]:
        """Return a page of all groups, by group and queue name, and how many there are."""
        rows, total = await self._groups(None, queue, page)
        measured = await self._measure([row["group_id"] for row in rows])
        groups = [
            _judged(row, measured[row["group_id"]])
            for row in rows
            if row["group_id"] in measured  # else it was deleted between the two calls
        ]
        return groups, total

    async def find_lagging(
        self, min_lag_s: int, page: Page, *, group: str | None = None, queue: str | None = None
    ) -> LaggingPage:
        """Return the partitions whose oldest unread message is at least so old, worst first."""
        rows = await self._sql.rows(
            "lagging_partitions",
            group,
            queue,
            min_lag_s,
            LAGGING_EXAMINED_MAX,
            page.limit,
            page.offset,
        )
        partitions = [_lagging(row) for row in rows if row["partition_id"] is not None]
        return LaggingPage(partitions, rows[0]["total"], rows[0]["is_partial"])

    async def describe_group(
        self, group: str, page: Page, *, queue: str | None = None
    ) -> dict[str, QueueProgress]:
        """Return a group's progress in its partitions, by queue; the page counts partitions."""
        check_name("consumerGroup", group)
        found, _ = await self._groups(group, queue, Page(QUEUES_OF_GROUP_MAX, 0))
        if not found:
            raise NotFound("Consumer group not found")
        queue_by_group = {row["group_id"]: row["queue_name"] for row in found}
        rows = await self._sql.rows(
            "describe_partitions", list(queue_by_group), page.limit, page.offset
        )
        progress: dict[str, QueueProgress] = {}
        for row in rows:
            name = queue_by_group[row["group_id"]]
            progress.setdefault(name, QueueProgress([])).partitions.append(_progress(row))
        return progress

    async def measure_lag(self, group: str, queue: str, page: Page) -> GroupLag:
        """Return the lag of a group on a queue, in total and for a page of its partitions."""
        key = await find_group(self._sql, queue, group)
        found, _ = await self._groups(group, queue, Page(1, 0))
        measured = await self._measure([key.group_id])
        if not found or key.group_id not in measured:
            raise NotFound("Consumer group not found")
        rows = await self._sql.rows("describe_partitions", [key.group_id], page.limit, page.offset)
        entry = _judged(found[0], measured[key.group_id]).entry
        return from_row(
            GroupLag,
            {**asdict(entry), **asdict(page)},
            consumer_group=group,
            offset_lag=entry.total_lag,
            time_lag_seconds=entry.max_time_lag,
            partitions=[_lag(row) for row in rows],
        )

    async def _groups(
        self, group: str | None, queue: str | None, page: Page
    ) -> tuple[Sequence[Any], int]:
        rows = await self._sql.rows("list_groups", group, queue, page.limit, page.offset)
        return [row for row in rows if row["group_id"] is not None], rows[0]["total"]

    async def _measure(self, group_ids: Sequence[int]) -> dict[int, Any]:
        rows = await self._sql.rows("measure_backlog", group_ids, EXACT_PARTITIONS_MAX)
        return {row["group_id"]: row for row in rows}


def _judged(row: Any, measured: Any) -> JudgedGroup:
    facts = _facts(row, measured)
    return JudgedGroup(
        row["group_id"],
        row["queue_id"],
        facts,
        row["polled_at"],
        row["progressed_at"],
        _entry(row, measured, group_condition(facts)),
    )


def _entry(row: Any, measured: Any, condition: GroupCondition) -> GroupEntry:
    subscribed_from = row["subscribed_from"]
    lag_s: int = measured["lag_s"]
    return from_row(
        GroupEntry,
        row,
        name=row["group_name"],
        topics=[row["queue_name"]],
        members=measured["partitions"],
        partition_count=measured["partitions"],
        lanes=measured["partitions"],
        partitions_with_lag=measured["partitions_behind"],
        total_lag=measured["backlog"],
        max_time_lag=lag_s,
        state=state_of(
            is_paused=row["is_paused"],
            backlog=measured["backlog"],
            lag_s=lag_s,
            is_held=measured["is_held"],
            ready_s=measured["ready_s"],
        ),
        condition=condition,
        last_polled_at=row["polled_at"] and spell_moment(row["polled_at"]),
        last_progress_at=row["progressed_at"] and spell_moment(row["progressed_at"]),
        subscription_timestamp=spell_moment(subscribed_from) if subscribed_from else None,
        subscription_created_at=spell_moment(row["created_at"]),
        estimated=measured["is_estimated"],
    )


def _facts(row: Any, measured: Any) -> GroupFacts:
    def age_s(moment: datetime | None) -> float | None:
        return None if moment is None else (row["listed_at"] - moment).total_seconds()

    return GroupFacts(
        is_paused=row["is_paused"] or row["is_held_back"],
        backlog=measured["backlog"],
        lag_s=measured["lag_s"],
        is_held=measured["is_held"],
        polled_s=age_s(row["polled_at"]),
        progressed_s=age_s(row["progressed_at"]),
        is_failing=bool(row["is_failing"]),
        delay_s=row["delay_s"],
        lease_s=row["lease_s"],
    )


def _by_need(entry: GroupEntry) -> tuple[int, int, int, str, str]:
    """Order by condition, then by how far behind."""
    return (
        WORST_FIRST.index(entry.condition),
        -entry.max_time_lag,
        -entry.total_lag,
        entry.name,
        entry.queue_name,
    )


def state_of(*, is_paused: bool, backlog: int, lag_s: int, is_held: bool, ready_s: int) -> State:
    """Sum up a group in one word.

    Polls take the partition that has been ready for longest. So a partition that stays ready for
    minutes, while none is under lease, means that no consumer polls.
    """
    if is_paused:
        return "Paused"
    if backlog == 0:
        return "Idle"
    if lag_s <= LAGGING_S:
        return "Stable"
    return "Dead" if ready_s > LAGGING_S and not is_held else "Lagging"


def _lagging(row: Any) -> LaggingPartition:
    lag_s: int = row["lag_s"]
    return LaggingPartition(
        consumer_group=row["group_name"],
        queue_name=row["queue_name"],
        partition_name=row["partition_name"],
        partition_id=partition_uuid(row["partition_id"]),
        worker_id=row["lease_id"] and str(row["lease_id"]),
        offset_lag=row["backlog"],
        time_lag_seconds=lag_s,
        lag_hours=round(lag_s / 3600, 2),
        oldest_unconsumed_at=spell_moment(row["oldest_at"]),
    )


def _progress(row: Any) -> PartitionProgress:
    return PartitionProgress(
        partition=row["partition_name"],
        partition_id=partition_uuid(row["partition_id"]),
        worker_id=row["lease_id"] and str(row["lease_id"]),
        total_consumed=row["acked"],
        offset_lag=row["backlog"],
        time_lag_seconds=row["lag_s"],
        lease_active=row["lease_id"] is not None,
    )


def _lag(row: Any) -> PartitionLag:
    return from_row(
        PartitionLag,
        row,
        partition=row["partition_name"],
        partition_id=partition_uuid(row["partition_id"]),
        offset_lag=row["backlog"],
        time_lag_seconds=row["lag_s"],
        leased=row["lease_id"] is not None,
    )
