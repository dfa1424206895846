"""Seek: move the cursors of a consumer group, and preview what that would do.

A seek in a queue covers every partition, also those the group never consumed from, in small steps:
consumers may read the partitions done first while the rest is under way. It ends the leases it
meets, so that a late ack cannot move a cursor that was just moved.

Offsets count the messages of a partition from 1. A seek to an offset delivers that message next; an
exported position is the last offset that is done.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from skep.broker.cluster.wakeups import Announcer
from skep.broker.groups.progress import EXACT_PARTITIONS_MAX, GroupKey, find_group
from skep.broker.groups.subscriptions import PARTITIONS_PER_STEP, ChangedOnQueue
from skep.broker.paging import Page, from_row
from skep.broker.timestamps import parse_moment, spell_moment
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest, NotFound
from skep.model.ids import OFFSET_MAX, message_id
from skep.model.names import check_name

POSITIONS_MAX: Final = 10_000
"""Positions one request may set."""


class Aim(NamedTuple):
    """Where a seek goes."""

    to: Literal["end", "start", "timestamp", "offset"]
    moment: datetime | None = None
    offset: int | None = None

    @property
    def subscription(self) -> tuple[str, datetime | None]:
        """Mode and start of a group that comes into being by this seek."""
        if self.to == "end":
            return "new", None
        return ("timestamp", self.moment) if self.to == "timestamp" else ("all", None)


class SoughtQueue(ChangedOnQueue, frozen=True, kw_only=True):
    """A group was moved in all partitions of a queue."""

    seek_to_end: bool
    seek_to_start: bool
    target_timestamp: str | None
    partitions_updated: int


class SoughtPartition(ChangedOnQueue, frozen=True, kw_only=True):
    """A group was moved in one partition."""

    partition_name: str
    updated: bool
    """Whether the position is another one now."""
    cursor_moved_to: str
    """Id of the last message that counts as done; of the partition itself when none does."""
    acked: int
    """Its offset."""


class SeekPreview(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a seek would do."""

    consumer_group: str
    queue_name: str
    partition_name: str | None
    partitions: int
    skipped: int
    """Messages not finished yet that the group would never get."""
    replayed: int
    """Finished messages that it would get again."""
    estimated: bool
    """The numbers come from a sample."""


class Positions(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The positions of a group, to be kept and set again."""

    consumer_group: str
    queue_name: str
    limit: int
    offset: int
    offsets: dict[str, int]
    """By partition name, the last offset that is done."""


class ImportedPositions(ChangedOnQueue, frozen=True, kw_only=True):
    """Positions were set."""

    partitions_updated: int
    unknown_partitions: list[str]
    """Names in the request that the queue does not have."""


def choose_aim(
    *,
    to_end: bool = False,
    to_start: bool = False,
    timestamp: str | None = None,
    offset: int | None = None,
) -> Aim:
    """Return where to go."""
    aims: list[Aim] = []
    if to_end:
        aims.append(Aim("end"))
    if to_start:
        aims.append(Aim("start"))
    if timestamp is not None:
        aims.append(Aim("timestamp", moment=parse_moment("timestamp", timestamp)))
    if offset is not None:
        aims.append(Aim("offset", offset=_checked_offset("offset", offset)))
    if not aims:
        raise BadRequest("Either toEnd, toStart or a timestamp is required")
    if len(aims) > 1:
        raise BadRequest("only one of toEnd, toStart, timestamp and offset can be given")
    return aims[0]


class Seek:
    """Moves consumer groups.

    A queue, partition or group that does not exist raises `NotFound`. With `create` the group is
    subscribed.
    """

    def __init__(self, caller: Caller, announcer: Announcer) -> None:
        self._sql: Final = Functions(caller)
        self._announcer: Final = announcer

    async def seek_queue(
        self, group: str, queue: str, aim: Aim, *, create: bool = False
    ) -> SoughtQueue:
        """Move a group in all partitions of a queue."""
        _refuse_offset(aim)
        key = await self._find(queue, group, aim if create else None)
        partitions = 0
        next_name: str | None = ""
        while next_name is not None:
            row = await self._sql.row(
                "seek_partitions", key.group_id, next_name, PARTITIONS_PER_STEP, aim.to, aim.moment
            )
            partitions += row["partitions"]
            next_name = row["next_name"]
            self._announcer.announce(key.queue_id, row["partitions"])
        return SoughtQueue(
            consumer_group=group,
            queue_name=queue,
            seek_to_end=aim.to == "end",
            seek_to_start=aim.to == "start",
            target_timestamp=spell_moment(aim.moment) if aim.moment else None,
            partitions_updated=partitions,
        )

    async def seek_partition(
        self, group: str, queue: str, partition: str, aim: Aim, *, create: bool = False
    ) -> SoughtPartition:
        """Move a group in one partition."""
        key = await self._find(queue, group, aim if create else None)
        aimed = await self._aim(key, partition, aim)
        place = ([aimed["partition_id"]], [aimed["target"]])
        missing = NotFound("Partition not found")
        row = await self._sql.row("seek_cursors", key.group_id, *place, missing=missing)
        self._announcer.announce(key.queue_id, 1)
        acked: int = row["acked"]
        return SoughtPartition(
            consumer_group=group,
            queue_name=queue,
            partition_name=partition,
            updated=acked != aimed["acked"],
            cursor_moved_to=message_id(aimed["partition_id"], acked),
            acked=acked,
        )

    async def preview_queue(self, group: str, queue: str, aim: Aim) -> SeekPreview:
        """Say what a seek in all partitions of a queue would do."""
        _refuse_offset(aim)
        key = await find_group(self._sql, queue, group)
        row = await self._sql.row(
            "preview_seek", key.group_id, aim.to, aim.moment, EXACT_PARTITIONS_MAX
        )
        named = {"consumer_group": group, "queue_name": queue, "partition_name": None}
        return from_row(SeekPreview, row, estimated=row["is_estimated"], **named)

    async def preview_partition(
        self, group: str, queue: str, partition: str, aim: Aim
    ) -> SeekPreview:
        """Say what a seek in one partition would do."""
        key = await find_group(self._sql, queue, group)
        aimed = await self._aim(key, partition, aim)
        named = {"consumer_group": group, "queue_name": queue, "partition_name": partition}
        return from_row(SeekPreview, aimed, partitions=1, estimated=False, **named)

    async def export_positions(self, group: str, queue: str, page: Page) -> Positions:
        """Return a page of a group's positions, by partition name."""
        key = await find_group(self._sql, queue, group)
        rows = await self._sql.rows("describe_partitions", [key.group_id], page.limit, page.offset)
        return Positions(
            consumer_group=group,
            queue_name=queue,
            limit=page.limit,
            offset=page.offset,
            offsets={row["partition_name"]: row["acked"] for row in rows},
        )

    async def import_positions(
        self, group: str, queue: str, positions: Mapping[str, int]
    ) -> ImportedPositions:
        """Set positions by partition name; one beyond the end becomes the end."""
        if len(positions) > POSITIONS_MAX:
            raise BadRequest(
                f"too many offsets: {len(positions)}. Send at most {POSITIONS_MAX} per request"
            )
        for partition, acked in positions.items():
            check_name("partition", partition)
            _checked_offset(f"offset of {partition}", acked)
        key = await self._find(queue, group, Aim("start"))
        names = sorted(positions)
        known: set[str] = set()
        for start in range(0, len(names), PARTITIONS_PER_STEP):
            known |= await self._place(key, names[start : start + PARTITIONS_PER_STEP], positions)
        return ImportedPositions(
            consumer_group=group,
            queue_name=queue,
            partitions_updated=len(known),
            unknown_partitions=[name for name in names if name not in known],
        )

    async def _place(
        self, key: GroupKey, names: Sequence[str], positions: Mapping[str, int]
    ) -> set[str]:
        """Set some positions; return the names of the partitions that exist."""
        rows = await self._sql.rows("resolve_partitions", key.queue_id, names)
        known: dict[str, int] = {row["partition_name"]: row["partition_id"] for row in rows}
        if known:
            targets = [positions[name] for name in known]
            await self._sql.rows("seek_cursors", key.group_id, list(known.values()), targets)
            self._announcer.announce(key.queue_id, len(known))
        return set(known)

    async def _aim(self, key: GroupKey, partition: str, aim: Aim) -> Any:
        """Return what a seek of one partition means."""
        check_name("partition", partition)
        found = await self._sql.rows("resolve_partitions", key.queue_id, [partition])
        ids = [row["partition_id"] for row in found]
        missing = NotFound("Partition not found")
        return await self._sql.row("aim_seek", key.group_id, ids, *aim, missing=missing)

    async def _find(self, queue: str, group: str, creating: Aim | None) -> GroupKey:
        """Look up a group; with an aim one that does not exist is subscribed at it."""
        if creating is None:
            return await find_group(self._sql, queue, group)
        check_name("queue", queue)
        check_name("consumerGroup", group)
        await self._sql.row("find_group", queue, group, missing=NotFound("Queue not found"))
        row = await self._sql.row("provision_group", queue, group, *creating.subscription)
        return GroupKey(row["queue_id"], row["group_id"])


def _refuse_offset(aim: Aim) -> None:
    if aim.to == "offset":
        raise BadRequest("offset means something else in every partition: seek in one partition")


def _checked_offset(field: str, offset: int) -> int:
    if not 0 <= offset <= OFFSET_MAX:
        raise BadRequest(f"{field} must be between 0 and {OFFSET_MAX}, not {offset}")
    return offset
