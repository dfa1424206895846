"""The partitions that a call writes to, and what a key cache guarantees for them.

Transactions, staged messages and the drain each have a key cache of their own, apart from
that of live pushes. A guarantee holds only for keys looked up since the cache's span last grew.
Here look-up and guarantee are one step without an await, whatever runs at the same time; the push
path relies on having one call in flight per partition instead, and would break if another path let
its spans grow. To each cache the other's pushes look like those of another broker, and are probed
once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from skep.broker.directory import (
    Directory,
    Partition,
    PartitionProvisioner,
    QueueLabels,
)
from skep.broker.push.stored_keys import KeyLoader
from skep.engine.key_cache.cache import NO_GUARANTEE, Guarantee, KeyCache


@dataclass(slots=True, eq=False, frozen=True)
class CachedPartitions:
    """Finds partitions, and keeps a key cache for them."""

    directory: Directory
    provisioner: PartitionProvisioner
    loader: KeyLoader
    cache: KeyCache

    async def find(
        self, keys: set[tuple[str, str]], labels: QueueLabels | None = None
    ) -> dict[tuple[str, str], Partition]:
        """Return partitions by queue and name, creating those that do not exist."""
        await self.provisioner.provide(keys, labels)
        partitions = {key: self.directory.partitions[key] for key in keys}
        if lacking := self.loader.lacking(list(partitions.values())):
            await self.loader.load(lacking)
        return partitions

    def forget(self, partition: Partition) -> None:
        """Drop what is known of a partition that was deleted or whose rules changed."""
        self.directory.forget_partition(partition)
        self.cache.forget(partition.partition_id)

    def guarantee(self, writes: Sequence[tuple[int, bytes]]) -> list[Guarantee]:
        """Return what the cache guarantees for each partition id and its joined keys.

        Nothing where it knows one of the keys.
        """
        suspects = {hit.write for hit in self.cache.find(writes)}
        guarantees = self.cache.guarantee_each([partition_id for partition_id, _ in writes])
        return [
            NO_GUARANTEE if write in suspects or guarantee is None else guarantee
            for write, guarantee in enumerate(guarantees)
        ]


class Keyed(Protocol):
    """A message that duplicates are found by."""

    @property
    def key(self) -> bytes:
        """The hash of its transaction id."""
        ...


M = TypeVar("M", bound=Keyed)

PartitionOutcome: TypeAlias = tuple[
    int, int | None, datetime, int | None, bytes | None, datetime | None
]
"""Of a partition, by its number in the batch: first offset and time of what was stored; first
offset, keys and time of what others stored before (the gap)."""


class KeyedBatch(Generic[M]):
    """The messages of one call by partition, numbered from 1.

    In a queue that looks for duplicates each key is sent once.
    """

    def __init__(self, messages: Sequence[tuple[Partition, M]]) -> None:
        by_id = {partition.partition_id: partition for partition, _ in messages}
        self.partitions: Final = [by_id[partition_id] for partition_id in sorted(by_id)]
        self.sent: Final[list[tuple[int, M]]] = []
        """(number of the partition, message); later messages of the same key are left out."""
        self.places: Final[list[int]] = []
        """Of every message: where in `sent` it is, or the one of the same key before it."""
        numbers = {each.partition_id: number for number, each in enumerate(self.partitions, 1)}
        place_by_key: dict[tuple[int, bytes], int] = {}
        for partition, message in messages:
            number, place = numbers[partition.partition_id], len(self.sent)
            if partition.rules.dedup_window_s:
                place = place_by_key.setdefault((number, message.key), place)
            if place == len(self.sent):
                self.sent.append((number, message))
            self.places.append(place)

    def writes(self) -> list[tuple[int, bytes]]:
        """Return the id and the joined keys of each partition."""
        keys = _joined_keys(self.sent)
        return [
            (partition.partition_id, keys[number])
            for number, partition in enumerate(self.partitions, start=1)
        ]

    def teach(
        self,
        cache: KeyCache,
        outcomes: Iterable[PartitionOutcome],
        stored: Iterable[tuple[int, M]],
    ) -> None:
        """Let the cache learn what this call stored of `sent`, and others before it."""
        keys = _joined_keys(stored)
        for number, first, created_at, gap_first, gap_keys, gap_created_at in outcomes:
            partition_id = self.partitions[number - 1].partition_id
            if gap_keys is not None:
                assert gap_first is not None
                assert gap_created_at is not None
                cache.adopt(partition_id, gap_first, gap_keys, gap_created_at)
            if first is not None:
                cache.record(partition_id, first, keys[number], created_at)


def _joined_keys(sent: Iterable[tuple[int, Keyed]]) -> dict[int, bytes]:
    """Return the joined keys of each partition, by its number."""
    keys: dict[int, list[bytes]] = {}
    for number, message in sent:
        keys.setdefault(number, []).append(message.key)
    return {number: b"".join(each) for number, each in keys.items()}
