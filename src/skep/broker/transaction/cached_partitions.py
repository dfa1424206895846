"""The partitions that a call writes to, and what a duplicate cache guarantees for them.

Transactions and staged messages each have a duplicate cache of their own, apart from that of live
pushes. A guarantee holds only for keys looked up since the cache's span last grew. Here look-up and
guarantee are one step without an await, whatever runs at the same time; the push path relies on
having one call in flight per partition instead, and would break if another path let its spans grow.
To each cache the other's pushes look like those of another broker, and are probed once.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from skep.broker.directory import Directory, Partition, PartitionListener, PartitionProvisioner
from skep.engine.dedup.cache import DedupCache, Guarantee

_NO_GUARANTEE: Final[Guarantee] = (0, datetime.max.replace(tzinfo=UTC))


class CachedPartitions:
    """Finds partitions, and keeps a duplicate cache for them."""

    def __init__(
        self,
        directory: Directory,
        provisioner: PartitionProvisioner,
        listener: PartitionListener,
        cache: DedupCache,
    ) -> None:
        """Take what is needed; the `listener` fills the `cache`."""
        self._directory: Final = directory
        self._provisioner: Final = provisioner
        self._listener: Final = listener
        self.cache: Final = cache

    async def find(self, keys: set[tuple[str, str]]) -> dict[tuple[str, str], Partition]:
        """Return partitions by queue and name, creating those that do not exist."""
        await self._provisioner.provide(keys)
        partitions = {key: self._directory.partitions[key] for key in keys}
        uncached = [
            partition
            for partition in partitions.values()
            if not self.cache.guarantee(partition.partition_id)
        ]
        if uncached:
            await self._listener.prepare((), uncached)
        return partitions

    def forget(self, partition: Partition) -> None:
        """Drop what is known of a partition that was deleted or whose rules changed."""
        self._directory.forget_partition(partition)
        self.cache.forget(partition.partition_id)

    def guarantee(self, writes: Sequence[tuple[int, bytes]]) -> list[Guarantee]:
        """Return what the cache guarantees for each partition id and its joined keys.

        Nothing where it knows one of the keys.
        """
        suspects = {hit.write for hit in self.cache.find(writes)}
        guarantees = self.cache.guarantee_each([partition_id for partition_id, _ in writes])
        return [
            _NO_GUARANTEE if write in suspects or guarantee is None else guarantee
            for write, guarantee in enumerate(guarantees)
        ]
