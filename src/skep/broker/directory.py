"""A cache of the ids of partitions and groups, by (queue, partition) and (queue, group).

The facts do not change while a queue exists. `provision_partitions` and `provision_group` fill the
cache; a call that finds an id gone drops the entry. Lookups never wait: an unknown name is
provisioned through the engine like any other operation, so that many new names share one call and
one bad name fails alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec

from skep.broker.push.rules import QueueRules, RuleBook
from skep.db.access.slots import Caller
from skep.engine.driver import Work
from skep.model.errors import NotFound, SkepError, Unavailable
from skep.model.ids import message_id_head, partition_uuid
from skep.telemetry.meters import Meters

PROVISION_TRIES: Final = 5

ENTRIES_MAX: Final = 200_000
"""Names cached of each kind. Beyond that the oldest tenth is dropped; a partition costs about half
a kilobyte."""

_BEING_DELETED: Final = "the queue is being deleted"

QueueLabels: TypeAlias = Mapping[str, tuple[str | None, str | None]]
"""Namespace and task, by queue, of those to be created that do not get them by their names."""

CONTESTED_PUSHES: Final = 64
"""A push that finds its guarantee outdated costs a call; one that expects others, a look-up."""

_encode = msgspec.json.encode

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Partition:
    """A partition as the hot path needs it: its id, and its names as they stand in answers."""

    __slots__ = (
        "__weakref__",
        "contested_pushes",
        "head",
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
        self.contested_pushes = 0
        """For how many more pushes of this process others are expected to push into it as well."""
        self.head = 0
        """The highest offset that pushes of this process have met."""
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

    def note_pushed(self, *, is_shared: bool) -> None:
        """Note whether others have pushed into it between the last two pushes of this process."""
        self.contested_pushes = CONTESTED_PUSHES if is_shared else max(0, self.contested_pushes - 1)


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
        self._dropped: WeakValueDictionary[tuple[str, str], Partition] = WeakValueDictionary()
        """Those that are not known any more, for as long as something is under way to them."""

    def queue_name(self, queue_id: int) -> str | None:
        """Return the name of a queue, if anything of it was ever known here."""
        return self._queue_names.get(queue_id)

    def learn_partition(self, partition: Partition) -> None:
        """Remember a partition."""
        self._dropped.update(_make_room(self.partitions))
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
            self._drop(partition)

    def _drop(self, partition: Partition) -> None:
        self._dropped[partition.key] = self.partitions.pop(partition.key)

    def under_way(self, key: tuple[str, str]) -> list[Partition]:
        """Return the partitions of a name to which something may be under way."""
        found = (self.partitions.get(key), self._dropped.get(key))
        return [partition for partition in found if partition is not None]

    def forget_group(self, group: Group) -> None:
        """Drop a group that was removed."""
        self.groups.pop(group.key, None)

    def forget_queue(self, queue_id: int) -> None:
        """Drop everything cached of a deleted queue."""
        for partition in [each for each in self.partitions.values() if each.queue_id == queue_id]:
            self._drop(partition)
        for group in [each for each in self.groups.values() if each.queue_id == queue_id]:
            del self.groups[group.key]


def _make_room(entries: dict[_Key, _Value]) -> dict[_Key, _Value]:
    """Return what was dropped."""
    if len(entries) < ENTRIES_MAX:
        return {}
    return {key: entries.pop(key) for key in list(entries)[: ENTRIES_MAX // 10]}


class PartitionListener(Protocol):
    """Prepares for a partition before the first push into it."""

    async def prepare(
        self,
        created: Sequence[Partition],
        found: Sequence[Partition],
        on_ready: Callable[[Sequence[Partition]], None],
    ) -> None:
        """Take partitions new to this process, just created or older; tell which are ready."""
        ...


@dataclass(slots=True, eq=False)
class _ProvisionRequest(Work):
    """A request to make names known, and the callback for its end."""

    on_done: Callable[[SkepError | None], None] = field(kw_only=True)

    def succeed(self) -> None:
        self.on_done(None)
        self.is_settled = True

    def fail(self, error: SkepError) -> None:
        self.is_settled = True
        self.on_done(error)


@dataclass(slots=True, eq=False)
class PartitionRequest(_ProvisionRequest):
    """A request to make partitions known; by default those that do not exist are created."""

    keys: Sequence[tuple[str, str]]
    creates: bool = True
    labels: QueueLabels = field(default_factory=dict[str, tuple[str | None, str | None]])


@dataclass(slots=True, eq=False, frozen=True)
class PartitionProvisioner:
    """Executor of the operation `provision`."""

    caller: Caller
    directory: Directory
    rule_book: RuleBook
    listener: PartitionListener
    meters: Meters = field(default_factory=Meters)

    async def execute(self, batch: Sequence[PartitionRequest], *, is_repeated: bool) -> None:
        """Provision the partitions of all requests; repeating it is harmless."""
        del is_repeated
        wishes = [request for request in batch if request.creates and not request.is_settled]

        def answer_complete() -> None:
            for request in wishes:
                if not request.is_settled and not self._unknown(request.keys):
                    request.succeed()

        await self._try_to_provide(
            {key for request in wishes for key in request.keys},
            {queue: each for request in batch for queue, each in request.labels.items()},
            on_known=answer_complete,
        )
        wanted = {key for request in batch if not request.creates for key in request.keys}
        if unknown := self._unknown(wanted):
            await self._provide_missing(sorted(unknown), {}, creates=False)
        for request in batch:
            if request.is_settled:
                continue
            missing = self._unknown(request.keys)
            if not missing:
                request.succeed()
            elif request.creates:
                request.fail(Unavailable(_BEING_DELETED))
            else:
                queue, partition = min(missing)
                request.fail(NotFound(f"queue {queue} has no partition {partition}"))

    async def provide(self, keys: set[tuple[str, str]], labels: QueueLabels | None = None) -> None:
        """Make these partitions known, creating those that do not exist."""
        if await self._try_to_provide(keys, labels or {}):
            raise Unavailable(_BEING_DELETED)

    async def _try_to_provide(
        self,
        keys: set[tuple[str, str]],
        labels: QueueLabels,
        on_known: Callable[[], None] = lambda: None,
    ) -> set[tuple[str, str]]:
        """Make partitions known, and return those that could not be."""
        missing = self._unknown(keys)
        for _ in range(PROVISION_TRIES):
            if not missing:
                break
            await self._provide_missing(sorted(missing), labels, on_known)
            # A queue that is being deleted has no partitions: try again.
            missing = self._unknown(keys)
        return missing

    def _unknown(self, keys: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        return {key for key in keys if key not in self.directory.partitions}

    async def _provide_missing(
        self,
        missing: Sequence[tuple[str, str]],
        labels: QueueLabels,
        on_known: Callable[[], None] = lambda: None,
        *,
        creates: bool = True,
    ) -> None:
        rows = await self.caller.call(
            "select * from skep.provision_partitions($1, $2, $3, $4, $5)",
            [queue for queue, _ in missing],
            [name for _, name in missing],
            creates,
            [labels.get(queue, (None, None))[0] for queue, _ in missing],
            [labels.get(queue, (None, None))[1] for queue, _ in missing],
        )
        rules = await self.rule_book.read_new(row["queue_id"] for row in rows)
        partitions = [
            (
                Partition(
                    row["queue_name"],
                    row["partition_name"],
                    row["queue_id"],
                    row["partition_id"],
                    rules[row["queue_id"]],
                ),
                row["created"],
            )
            for row in rows
        ]
        for partition, is_created in partitions:
            self.meters.queues.of(partition.key[0]).partitions_created += is_created

        def learn(ready: Sequence[Partition]) -> None:
            for partition in ready:
                self.directory.learn_partition(partition)
            on_known()

        await self.listener.prepare(
            [partition for partition, is_created in partitions if is_created],
            [partition for partition, is_created in partitions if not is_created],
            learn,
        )


@dataclass(slots=True, eq=False)
class GroupRequest(_ProvisionRequest):
    """A request to subscribe a group, and perhaps to let it conflate from now on."""

    key: tuple[str, str]
    subscription: Subscription
    conflation: bool | None = None
    creates: bool = True
    """Whether a queue that does not exist is created."""


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
                rows = await self._caller.call(
                    "select * from skep.provision_group($1, $2, $3, $4, $5, $6)",
                    queue,
                    group,
                    request.subscription.mode,
                    request.subscription.start,
                    request.conflation,
                    request.creates,
                )
                if not rows:
                    request.fail(NotFound(f"there is no queue {queue}"))
                    continue
                (row,) = rows
                self._directory.learn_group(
                    Group(queue, group, row["queue_id"], row["group_id"], row["conflation"])
                )
            request.succeed()
