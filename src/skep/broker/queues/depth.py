"""How deep a queue is: what waits in it, by partition.

The figures are those of the listings of queues and of the lag of groups; here they have the shape
that newer clients of Queen ask for. Times are left out: who wants the lag in seconds asks for that.
"""

from typing import Final

import msgspec

from skep.broker.groups.groups import Groups
from skep.broker.paging import Page
from skep.broker.queues.catalog import QueueCatalog


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
    """Measures queues."""

    def __init__(self, groups: Groups, catalog: QueueCatalog) -> None:
        self._groups: Final = groups
        self._catalog: Final = catalog

    async def of_group(self, queue: str, group: str, page: Page) -> QueueDepth:
        """Measure what one group has yet to finish.

        Raises:
            NotFound: There is no such queue, or it has no such group.
        """
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
        """Measure what the slowest reader of each partition has yet to finish.

        Raises:
            NotFound: There is no such queue.
        """
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
