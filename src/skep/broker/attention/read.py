"""Read the facts of what needs attention: bounded reads, one reading for all who ask.

A reading serves everybody for some seconds, and the longer the more it cost: however many pages are
open, reading takes at most `1 / KEEP_PER_COST` of a core, unless it takes very long.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from skep.broker.attention import facts as seen
from skep.broker.cluster.report import MISSING_S
from skep.broker.groups.progress import GROUPS_JUDGED_MAX, Groups, JudgedGroup
from skep.broker.overload.deferral import PRIORITY_BY_TYPE
from skep.broker.paging import Page, from_row
from skep.broker.queues.catalog import QueueCatalog
from skep.db.access.functions import Functions
from skep.model.limits import PIPELINE_SILENT_S
from skep.telemetry.snapshots import Snapshot

KEEP_S: Final = 2.0
KEEP_S_MAX: Final = 15.0
"""Older than that, a reading is of no use to a person who watches."""
KEEP_PER_COST: Final = 50

QUEUES_SEEN_MAX: Final = 1_000
GROWTH_S: Final = 600
BLOCKED_LOOK_MAX: Final = 200
"""Partitions of a group that are searched for one that is blocked."""
BLOCKED_DELIVERIES: Final = 3
NEWS_S: Final = 86_400
"""Dead letters and failed chains no older than this are news."""
LETTERS_SEEN_MAX: Final = 1_000
CHAINS_SEEN_MAX: Final = 1_000
JOBS_LATE_S: Final = 60.0
JOBS_COUNTED: Final = 2_000
PIPELINES_SEEN_MAX: Final = 200
ARCHIVES_SEEN_MAX: Final = 200
ARCHIVE_GRACE_S: Final = 86_400.0
"""How much later than `archiveAfter` a queue may be archived: runs are often daily."""
STUCK_SEEN_MAX: Final = 10
INSTANCES_SEEN_MAX: Final = 1_000

_T = TypeVar("_T", bound=msgspec.Struct)


@dataclass(slots=True, eq=False)
class AttentionReader:
    """Reads the facts, at most so often."""

    sql: Functions
    groups: Groups
    catalog: QueueCatalog
    gather: Callable[[], Sequence[Snapshot]]
    """Returns the meters of the instance's workers."""
    stuck_after_s: float
    now: Callable[[], float]
    _facts: seen.Facts | None = None
    _fresh_until: float = field(default=float("-inf"))
    _reading: asyncio.Task[seen.Facts] | None = None

    async def facts(self) -> seen.Facts:
        """Return the facts of this moment, or of some seconds ago.

        Raises:
            SkepError: The database cannot be asked.
        """
        if self._facts is not None and self.now() < self._fresh_until:
            return self._facts
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(self._note)
        return await asyncio.shield(self._reading)

    def _note(self, reading: asyncio.Task[seen.Facts]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # it was raised to those who asked

    async def _read(self) -> seen.Facts:
        began_at = self.now()
        checked_at = await self.sql.value("now")
        groups, _ = await self.groups.judge_groups(Page(GROUPS_JUDGED_MAX, 0))
        messages, _ = await self.catalog.sum_messages()
        needs = await self.sql.rows("job_needs", JOBS_LATE_S)
        chains = await self.sql.rows("failed_chains", CHAINS_SEEN_MAX, NEWS_S)
        instances = await self.sql.rows("list_instances", INSTANCES_SEEN_MAX)
        is_lost = [row["silent_s"] >= MISSING_S for row in instances]
        connections = await self.sql.row("server_connections")
        facts = seen.Facts(
            checked_at=checked_at,
            groups=await self._groups(groups),
            queues=await self._queues(groups),
            letters=[
                from_row(
                    seen.LettersSeen,
                    row,
                    queue=row["queue_name"],
                    group=row["group_name"],
                    count=row["letters"],
                )
                for row in await self.sql.rows("recent_letters", LETTERS_SEEN_MAX, NEWS_S)
            ],
            chains=[from_row(seen.ChainsSeen, row, count=row["chains"]) for row in chains],
            job_types=[
                from_row(seen.JobTypeSeen, row, name=row["type"])
                for row in needs
                if row["type"] is not None
            ],
            workers=needs[0]["workers"],
            pipelines=await self._pipelines(checked_at),
            archives=_all(
                seen.ArchiveSeen,
                await self.sql.rows("late_archives", ARCHIVE_GRACE_S, ARCHIVES_SEEN_MAX),
            ),
            stuck=[
                from_row(seen.StuckSeen, row, since=row["due_at"])
                for row in await self.sql.rows(
                    "stuck_operations",
                    list(PRIORITY_BY_TYPE.values()),
                    self.stuck_after_s,
                    STUCK_SEEN_MAX,
                )
            ],
            lost=[
                seen.InstanceSeen(name=f"{row['host']}:{row['port']}", silent_s=row["silent_s"])
                for row, lost in zip(instances, is_lost, strict=True)
                if lost
            ],
            process=msgspec.structs.replace(
                process_seen(self.gather()),
                connections=connections["used"],
                connections_max=connections["most"],
            ),
            messages=_spelled(messages),
            jobs=await self._jobs(sum(row["chains"] for row in chains)),
            instances=dict(Counter("missing" if lost else "alive" for lost in is_lost)),
        )
        self._facts = facts
        cost_s = self.now() - began_at
        self._fresh_until = self.now() + min(max(KEEP_S, cost_s * KEEP_PER_COST), KEEP_S_MAX)
        return facts

    async def _groups(self, groups: Sequence[JudgedGroup]) -> list[seen.GroupSeen]:
        behind = [each.group_id for each in groups if each.entry.total_lag]
        growth = dict(await self.sql.rows("group_growth", behind, GROWTH_S))
        blocked = {
            row["group_id"]: row
            for row in await self.sql.rows(
                "blocked_partitions", behind, BLOCKED_LOOK_MAX, BLOCKED_DELIVERIES
            )
        }
        found: list[seen.GroupSeen] = []
        for each in groups:
            entry, facts, block = each.entry, each.facts, blocked.get(each.group_id)
            found.append(
                seen.GroupSeen(
                    queue=entry.queue_name,
                    group=entry.name,
                    condition=entry.condition,
                    is_paused=entry.is_paused,
                    backlog=facts.backlog,
                    lag_s=facts.lag_s,
                    growth=growth.get(each.group_id),
                    is_held=facts.is_held,
                    is_failing=facts.is_failing,
                    polled_at=each.polled_at,
                    progressed_at=each.progressed_at,
                    blocked_partitions=block["partitions"] if block else 0,
                    blocked_partition=block["partition_name"] if block else "",
                    deliveries=block["deliveries"] if block else 0,
                )
            )
        return found

    async def _queues(self, groups: Sequence[JudgedGroup]) -> list[seen.QueueSeen]:
        rows = await self.sql.rows("list_queues", None, None, None, "newest", QUEUES_SEEN_MAX, 0)
        backlogs: Counter[int] = Counter()
        for each in groups:
            backlogs[each.queue_id] = max(backlogs[each.queue_id], each.facts.backlog)
        return [
            seen.QueueSeen(
                name=row["name"],
                condition=condition,
                is_paused=row["is_paused"],
                backlog=backlogs[row["id"]],
                in_per_second=flows["in_per_second"],
            )
            for row, flows, condition in await self.catalog.judge(rows)
        ]

    async def _pipelines(self, now: datetime) -> list[seen.PipelineSeen]:
        rows = await self.sql.rows("list_pipelines", None, PIPELINES_SEEN_MAX, 0)
        return [
            seen.PipelineSeen(
                name=row["name"],
                state=row["state"],
                is_silent=row["state"] in {"starting", "running"}
                and row["silent_s"] > PIPELINE_SILENT_S,
                error=row["last_error"],
                since=row["ended_at"] or row["seen_at"] or now,
            )
            for row in rows
        ]

    async def _jobs(self, failed: int) -> dict[str, int]:
        counts: Counter[str] = Counter(failedChains=failed)
        for row in await self.sql.rows("job_counts", JOBS_COUNTED):
            counts.update({state: row[state] for state in _JOB_STATES})
        return dict(counts)


_JOB_STATES: Final = ("ready", "scheduled", "blocked", "running")


def process_seen(snapshots: Sequence[Snapshot]) -> seen.ProcessSeen:
    """Return what the meters of an instance tell: the most that any of its workers says."""

    def most(family: str, *labels: str) -> float:
        return max((each.gauges.get(family, {}).get(labels, 0.0) for each in snapshots), default=0)

    def share(snapshot: Snapshot) -> float:
        keys, room = (
            snapshot.gauges.get(family, {}).get((), 0.0)
            for family in ("skep_dedup_keys", "skep_dedup_keys_max")
        )
        return keys / room if room else 0.0

    return seen.ProcessSeen(
        is_push_maintenance=bool(most("skep_maintenance_mode", "push")),
        is_pop_maintenance=bool(most("skep_maintenance_mode", "pop")),
        is_database_away=bool(most("skep_database_away")),
        spilled=int(most("skep_spill_pending_messages")),
        rejected=int(most("skep_spill_rejected_files")),
        dedup_share=max(map(share, snapshots), default=0.0),
        dedup_lacking_s=most("skep_dedup_lacking_seconds"),
    )


def _all(shape: type[_T], rows: Sequence[Any]) -> list[_T]:
    return [from_row(shape, row) for row in rows]


def _spelled(counts: msgspec.Struct) -> dict[str, int]:
    """Return counts by their names on the wire."""
    return msgspec.to_builtins(counts)
