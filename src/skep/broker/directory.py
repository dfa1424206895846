"""Remember what names mean: (queue, partition) and (queue, group) to their ids.

The directory is a cache of facts that do not change while a queue exists; `provision_partitions`
and `provision_group` fill it, a call that finds an id gone empties the entry. Looking up never
waits: a name that is not known is provisioned through the engine like any other operation, so that
many new names share one call and one bad name fails alone.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from skep.broker.push.rules import QueueRules, RuleBook
from skep.db.access.slots import Caller
from skep.engine.driver import Work
from skep.model.errors import SkepError, Unavailable
from skep.model.ids import message_id_head, partition_uuid
from skep.telemetry.meters import Meters

PROVISION_TRIES: Final = 5

ENTRIES_MAX: Final = 200_000
"""Names remembered of each kind. Beyond that the oldest tenth is forgotten and looked up again
when needed; a partition costs about half a kilobyte."""

_encode = msgspec.json.encode


class Partition:
    """A partition as the hot path needs it: its id, and its names as they stand in answers."""

    __slots__ = (
        "is_contested",
        "key",
        "message_id_head",
        "partition_id",
        "queue_id",
        "queue_json",
        "result_end",
        "rules",
        "uuid",
    )

    def __init__(
        self, queue: str, partition: str, queue_id: int, partition_id: int, rules: QueueRules
    ) -> None:
        self.key = (queue, partition)
        self.queue_id = queue_id
        self.rules = rules
        self.is_contested = False
        """Another process pushed into it between the last two pushes of this one."""
        self.partition_id = partition_id
        self.uuid = partition_uuid(partition_id).encode()
        self.queue_json = _encode(queue)
        self.message_id_head = message_id_head(partition_id, 1)
        """Of all messages that anybody will see: it changes after 2**48 of them."""
        self.result_end = b'","partition_id":"%b","trace_id":null,"queueName":%b}' % (
            self.uuid,
            self.queue_json,
        )
        """What follows the message id in the result of a push without a trace id."""


class Group:
    """A consumer group of a queue."""

    __slots__ = ("conflation", "group_id", "group_json", "key", "queue_id", "queue_json")

    def __init__(
        self,
        queue: str,
        group: str,
        queue_id: int,
        group_id: int,
        conflation: bool | None = None,
    ) -> None:
        self.key = (queue, group)
        self.conflation = conflation
        """Whether it gets only the newest message of each partition; None until a poll says."""
        self.queue_id = queue_id
        self.group_id = group_id
        self.queue_json = _encode(queue)
        self.group_json = _encode(group)


class Subscription(msgspec.Struct, frozen=True):
    """How a new group starts: 'all', 'new', or from a time."""

    mode: str = "all"
    start: datetime | None = None


class Directory:
    """Known partitions and groups."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, str], Partition] = {}
        self.groups: dict[tuple[str, str], Group] = {}
        self._queue_names: dict[int, str] = {}

    def queue_name(self, queue_id: int) -> str | None:
        """Return the name of a queue, if anything of it was ever known here."""
        return self._queue_names.get(queue_id)

    def learn_partition(self, partition: Partition) -> None:
        """Remember a partition."""
        _make_room(self.partitions)
        self.partitions[partition.key] = partition
        self._learn_queue(partition.queue_id, partition.key[0])

    def learn_group(self, group: Group) -> None:
        """Remember a consumer group."""
        _make_room(self.groups)
        self.groups[group.key] = group
        self._learn_queue(group.queue_id, group.key[0])

    def _learn_queue(self, queue_id: int, name: str) -> None:
        _make_room(self._queue_names)
        self._queue_names[queue_id] = name

    def forget_partition(self, partition: Partition) -> None:
        """Drop a partition that turned out to be gone, unless another took its name since."""
        if self.partitions.get(partition.key) is partition:
            del self.partitions[partition.key]

    def forget_group(self, group: Group) -> None:
        """Drop a group that turned out to be gone."""
        self.groups.pop(group.key, None)

    def forget_queue(self, queue_id: int) -> None:
        """Drop everything that is remembered of a queue that was deleted."""
        for partition in [each for each in self.partitions.values() if each.queue_id == queue_id]:
            del self.partitions[partition.key]
        for group in [each for each in self.groups.values() if each.queue_id == queue_id]:
            del self.groups[group.key]


def _make_room(entries: dict[Any, Any]) -> None:
    if len(entries) >= ENTRIES_MAX:
        for key in list(entries)[: ENTRIES_MAX // 10]:
            del entries[key]


class PartitionListener(Protocol):
    """Whoever must prepare for a partition before the first push into it."""

    async def prepare(self, created: Sequence[Partition], found: Sequence[Partition]) -> None:
        """Hear of partitions this process did not know: just created, or older."""
        ...


class PartitionWish(Work):
    """Someone waits for partitions to be known."""

    __slots__ = ("keys", "ready")

    def __init__(
        self, keys: Sequence[tuple[str, str]], ready: Callable[[SkepError | None], None]
    ) -> None:
        super().__init__()
        self.keys = keys
        self.ready = ready

    def fail(self, error: SkepError) -> None:
        """Tell that the partitions cannot be had."""
        self.is_settled = True
        self.ready(error)


class PartitionProvisioner:
    """Executor of the operation `provision`."""

    def __init__(
        self,
        caller: Caller,
        directory: Directory,
        rule_book: RuleBook,
        listener: PartitionListener,
        *,
        meters: Meters | None = None,
    ) -> None:
        self._caller: Final = caller
        self._queues: Final = (meters or Meters()).queues
        self._directory: Final = directory
        self._rule_book: Final = rule_book
        self._listener: Final = listener

    async def execute(self, batch: Sequence[PartitionWish], *, is_repeated: bool) -> None:
        """Provision what the wishes name; repeating it is harmless."""
        del is_repeated
        await self.provide({key for wish in batch for key in wish.keys})
        for wish in batch:
            if not wish.is_settled:
                wish.ready(None)
                wish.is_settled = True

    async def provide(self, keys: set[tuple[str, str]]) -> None:
        """Make these partitions known, creating those that do not exist.

        Raises:
            Unavailable: Their queues are deleted as fast as they are created.
        """
        missing = self._unknown(keys)
        for _ in range(PROVISION_TRIES):
            if not missing:
                return
            await self._provide_missing(missing)
            # A queue that is deleted at this very moment has no partitions to tell of: once more
            # then.
            missing = self._unknown(keys)
        if missing:
            raise Unavailable("the queue is being deleted")

    def _unknown(self, keys: set[tuple[str, str]]) -> list[tuple[str, str]]:
        return sorted(key for key in keys if key not in self._directory.partitions)

    async def _provide_missing(self, missing: Sequence[tuple[str, str]]) -> None:
        rows = await self._caller.call(
            "select * from skep.provision_partitions($1, $2)",
            [queue for queue, _ in missing],
            [name for _, name in missing],
        )
        await self._rule_book.read_new(row[2] for row in rows)
        rules = self._rule_book.of
        partitions = [
            (Partition(row[0], row[1], row[2], row[3], rules(row[2])), row[4]) for row in rows
        ]
        await self._listener.prepare(
            [partition for partition, is_created in partitions if is_created],
            [partition for partition, is_created in partitions if not is_created],
        )
        for partition, is_created in partitions:
            self._directory.learn_partition(partition)
            self._queues.of(partition.key[0]).partitions_created += is_created


class GroupWish(Work):
    """Someone waits for a group to be subscribed, and perhaps to conflate from now on."""

    __slots__ = ("conflation", "key", "ready", "subscription")

    def __init__(
        self,
        key: tuple[str, str],
        subscription: Subscription,
        ready: Callable[[SkepError | None], None],
        *,
        conflation: bool | None = None,
    ) -> None:
        super().__init__()
        self.key = key
        self.conflation = conflation
        self.subscription = subscription
        self.ready = ready

    def fail(self, error: SkepError) -> None:
        """Tell that the group cannot be had."""
        self.is_settled = True
        self.ready(error)


class GroupProvisioner:
    """Executor of the operation `subscribe`."""

    def __init__(self, caller: Caller, directory: Directory) -> None:
        self._caller: Final = caller
        self._directory: Final = directory

    async def execute(self, batch: Sequence[GroupWish], *, is_repeated: bool) -> None:
        """Subscribe the groups wished for; repeating it is harmless."""
        del is_repeated
        for wish in batch:
            if wish.is_settled:
                continue
            known = self._directory.groups.get(wish.key)
            if known is None or (wish.conflation is not None and known.conflation is None):
                queue, group = wish.key
                rows = await self._caller.call(
                    "select * from skep.provision_group($1, $2, $3, $4, $5)",
                    queue,
                    group,
                    wish.subscription.mode,
                    wish.subscription.start,
                    wish.conflation,
                )
                self._directory.learn_group(Group(queue, group, *rows[0]))
            wish.ready(None)
            wish.is_settled = True
