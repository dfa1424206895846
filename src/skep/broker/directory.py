"""A cache of the ids of partitions and groups, by (queue, partition) and (queue, group).

The facts do not change while a queue exists. `provision_partitions` and `provision_group` fill the
cache; a call that finds an id gone drops the entry. Lookups never wait: an unknown name is
provisioned through the engine like any other operation, so that many new names share one call and
one bad name fails alone.
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
"""Names cached of each kind. Beyond that the oldest tenth is dropped; a partition costs about half
a kilobyte."""

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
        """It changes after 2**48 messages, which no partition reaches."""
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
        """Drop a partition that was removed, unless another took its name since."""
        if self.partitions.get(partition.key) is partition:
            del self.partitions[partition.key]

    def forget_group(self, group: Group) -> None:
        """Drop a group that was removed."""
        self.groups.pop(group.key, None)

    def forget_queue(self, queue_id: int) -> None:
        """Drop everything cached of a deleted queue."""
        for partition in [each for each in self.partitions.values() if each.queue_id == queue_id]:
            del self.partitions[partition.key]
        for group in [each for each in self.groups.values() if each.queue_id == queue_id]:
            del self.groups[group.key]


def _make_room(entries: dict[Any, Any]) -> None:
    if len(entries) >= ENTRIES_MAX:
        for key in list(entries)[: ENTRIES_MAX // 10]:
            del entries[key]


class PartitionListener(Protocol):
    """Prepares for a partition before the first push into it."""

    async def prepare(self, created: Sequence[Partition], found: Sequence[Partition]) -> None:
        """Take partitions new to this process: just created, or older."""
        ...


class _ProvisionRequest(Work):
    """A request to make names known, and the callback for its end."""

    __slots__ = ("_on_done",)

    def __init__(self, on_done: Callable[[SkepError | None], None]) -> None:
        super().__init__()
        self._on_done = on_done

    def succeed(self) -> None:
        """Report that the names are known."""
        self._on_done(None)
        self.is_settled = True

    def fail(self, error: SkepError) -> None:
        """Report that the names could not be provisioned."""
        self.is_settled = True
        self._on_done(error)


class PartitionRequest(_ProvisionRequest):
    """A request to make partitions known."""

    __slots__ = ("keys",)

    def __init__(
        self, keys: Sequence[tuple[str, str]], on_done: Callable[[SkepError | None], None]
    ) -> None:
        super().__init__(on_done)
        self.keys = keys


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

    async def execute(self, batch: Sequence[PartitionRequest], *, is_repeated: bool) -> None:
        """Provision the partitions of all requests; repeating it is harmless."""
        del is_repeated
        await self.provide({key for request in batch for key in request.keys})
        for request in batch:
            if not request.is_settled:
                request.succeed()

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
            # A queue that is being deleted has no partitions: try again.
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
        await self._rule_book.read_new(row["queue_id"] for row in rows)
        partitions = [
            (
                Partition(
                    row["queue_name"],
                    row["partition_name"],
                    row["queue_id"],
                    row["partition_id"],
                    self._rule_book.of(row["queue_id"]),
                ),
                row["created"],
            )
            for row in rows
        ]
        await self._listener.prepare(
            [partition for partition, is_created in partitions if is_created],
            [partition for partition, is_created in partitions if not is_created],
        )
        for partition, is_created in partitions:
            self._directory.learn_partition(partition)
            self._queues.of(partition.key[0]).partitions_created += is_created


class GroupRequest(_ProvisionRequest):
    """A request to subscribe a group, and perhaps to let it conflate from now on."""

    __slots__ = ("conflation", "key", "subscription")

    def __init__(
        self,
        key: tuple[str, str],
        subscription: Subscription,
        on_done: Callable[[SkepError | None], None],
        *,
        conflation: bool | None = None,
    ) -> None:
        super().__init__(on_done)
        self.key = key
        self.conflation = conflation
        self.subscription = subscription


class GroupProvisioner:
    """Executor of the operation `subscribe`."""

    def __init__(self, caller: Caller, directory: Directory) -> None:
        self._caller: Final = caller
        self._directory: Final = directory

    async def execute(self, batch: Sequence[GroupRequest], *, is_repeated: bool) -> None:
        """Subscribe the groups of all requests; repeating it is harmless."""
        del is_repeated
        for request in batch:
            if request.is_settled:
                continue
            known = self._directory.groups.get(request.key)
            if known is None or (request.conflation is not None and known.conflation is None):
                queue, group = request.key
                (row,) = await self._caller.call(
                    "select * from skep.provision_group($1, $2, $3, $4, $5)",
                    queue,
                    group,
                    request.subscription.mode,
                    request.subscription.start,
                    request.conflation,
                )
                self._directory.learn_group(
                    Group(queue, group, row["queue_id"], row["group_id"], row["conflation"])
                )
            request.succeed()
