"""Subscriptions of consumer groups: delete, start elsewhere, pause, resume.

The first poll creates a group. Deleting one forgets its progress in small steps; whether its
subscription is deleted too decides where it starts next: a kept subscription by its stored rule, a
deleted one by what the next poll asks for. Waiting polls of a deleted group are woken and subscribe
again. `removed_group_sweep` finishes interrupted deletions.
"""

from contextlib import suppress
from typing import Final

import msgspec

from skep.broker.cluster.housekeeping import CallDuty, Duty
from skep.broker.cluster.wakeups import Announcer
from skep.broker.groups.progress import GroupKey, find_group
from skep.broker.timestamps import parse_moment, spell_moment
from skep.db.access.functions import Functions, statement_of
from skep.db.access.slots import Caller
from skep.model.errors import NotFound
from skep.model.names import check_name

FORGET_PARTITIONS_CALL: Final = "select * from skep.forget_partitions($1, $2, true, $3, $4)"

PARTITIONS_PER_STEP: Final = 1_000
"""Cursors locked at once while a whole queue is worked through."""

ALL_POLLS: Final = 1_000_000
"""As many partitions as to wake every poll that waits for the queue."""

_SUBSCRIPTIONS_MAX: Final = 2**31 - 1


class ChangedGroup(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Something was changed about a group."""

    success: bool = True
    consumer_group: str


class ChangedOnQueue(ChangedGroup, frozen=True, kw_only=True):
    """Something was changed about a group on one queue."""

    queue_name: str


class DeletedGroup(ChangedGroup, frozen=True, kw_only=True):
    """A group was deleted from all queues."""

    deleted_partitions: int
    """Partitions in which its progress was forgotten."""
    metadata_deleted: bool
    """Whether its subscription was forgotten, too."""


class DeletedFromQueue(ChangedOnQueue, frozen=True, kw_only=True):
    """A group was deleted from one queue."""

    deleted_partitions: int
    metadata_deleted: bool


class ChangedSubscription(ChangedGroup, frozen=True, kw_only=True):
    """A group starts elsewhere when its progress is forgotten."""

    new_timestamp: str
    rows_updated: int
    """Queues the group subscribes to."""


class PausedGroup(ChangedOnQueue, frozen=True, kw_only=True):
    """Whether a group gets messages now."""

    is_paused: bool


class Subscriptions:
    """Changes the subscriptions of consumer groups."""

    def __init__(self, caller: Caller, announcer: Announcer) -> None:
        self._sql: Final = Functions(caller)
        self._announcer: Final = announcer

    async def delete_group(self, group: str, *, forget_subscription: bool) -> DeletedGroup:
        """Delete a group from every queue it subscribes to; one that is gone already is fine."""
        check_name("consumerGroup", group)
        partitions = 0
        for row in await self._sql.rows("list_groups", group, None, _SUBSCRIPTIONS_MAX, 0):
            if row["group_id"] is None:
                continue  # the row that only tells how many there are
            key = GroupKey(row["queue_id"], row["group_id"])
            partitions += await self._forget(key, forget_subscription=forget_subscription)
        return DeletedGroup(
            consumer_group=group,
            deleted_partitions=partitions,
            metadata_deleted=forget_subscription,
        )

    async def delete_from_queue(
        self, group: str, queue: str, *, forget_subscription: bool
    ) -> DeletedFromQueue:
        """Delete a group from one queue; one that is gone already is fine."""
        partitions = 0
        with suppress(NotFound):
            key = await find_group(self._sql, queue, group)
            partitions = await self._forget(key, forget_subscription=forget_subscription)
        return DeletedFromQueue(
            consumer_group=group,
            queue_name=queue,
            deleted_partitions=partitions,
            metadata_deleted=forget_subscription,
        )

    async def change_start(self, group: str, timestamp: str) -> ChangedSubscription:
        """Let a group start at a time, on all its queues, when its progress is forgotten."""
        check_name("consumerGroup", group)
        moment = parse_moment("subscriptionTimestamp", timestamp)
        changed = await self._sql.value(
            "change_subscription", group, moment, missing=NotFound("Consumer group not found")
        )
        return ChangedSubscription(
            consumer_group=group, new_timestamp=spell_moment(moment), rows_updated=changed
        )

    async def set_paused(self, group: str, queue: str, *, is_paused: bool) -> PausedGroup:
        """Stop or resume the delivery to a group."""
        key = await find_group(self._sql, queue, group)
        await self._sql.rows("pause_group", key.group_id, is_paused)
        if not is_paused:
            self._announcer.announce(key.queue_id, ALL_POLLS)
        return PausedGroup(consumer_group=group, queue_name=queue, is_paused=is_paused)

    async def _forget(self, key: GroupKey, *, forget_subscription: bool) -> int:
        """Forget a group's progress; return in how many partitions."""
        partitions = await (self._remove(key) if forget_subscription else self._reset(key))
        self._announcer.announce(key.queue_id, ALL_POLLS)
        return partitions

    async def _remove(self, key: GroupKey) -> int:
        await self._sql.rows("forget_group", key.group_id)
        partitions = 0
        has_more = True
        while has_more:
            swept, has_more = await self._sql.row(
                "sweep_removed_group", key.group_id, PARTITIONS_PER_STEP
            )
            partitions += swept
        return partitions

    async def _reset(self, key: GroupKey) -> int:
        partitions = 0
        next_name: str | None = ""
        while next_name is not None:
            ((reset, next_name),) = await self._sql.call(
                FORGET_PARTITIONS_CALL, key.queue_id, key.group_id, next_name, PARTITIONS_PER_STEP
            )
            partitions += reset
        return partitions


def removed_group_sweep(caller: Caller) -> Duty:
    """Return the duty that sweeps what deleted groups have left behind."""
    sweep, arguments = statement_of("sweep_removed_group", 2), (None, PARTITIONS_PER_STEP)
    return CallDuty("sweep removed groups", 60.0, caller, sweep, arguments, again_from=True)
