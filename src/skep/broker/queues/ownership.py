"""Which queue a partition belongs to, and which namespace a queue has.

Used for callers that are restricted to some queues. A partition never changes its queue, so that is
cached for good, within bounds; a namespace can be reconfigured and is read again after some
seconds. While the database is away nothing is reconfigured, so what it said last counts. Names that
do not exist are not cached.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import Unavailable

NAMESPACE_KNOWN_FOR_S: Final = 5.0
AWAY_S: Final = 1.0
"""How long to wait for a database that is away."""
LOOK_S: Final = 0.25
"""How often to look whether it is."""
ENTRIES_MAX: Final = 100_000


def first_namespace(queue: str) -> str:
    """Return the namespace of a queue that a push or a poll creates."""
    return queue.partition(".")[0]


class Ownership:
    """Looks up the queues of partitions and the namespaces of queues."""

    def __init__(
        self, caller: Caller, *, now: Callable[[], float], is_away: Callable[[], bool]
    ) -> None:
        self._sql: Final = Functions(caller)
        self._now: Final = now
        self._is_away: Final = is_away
        self._queue_by_partition: Final[OrderedDict[int, str]] = OrderedDict()
        self._namespaces: Final[OrderedDict[str, tuple[float, str]]] = OrderedDict()

    def known_queue(self, partition_id: int) -> str | None:
        """Return the queue of a partition if that is known already."""
        return self._queue_by_partition.get(partition_id)

    def known_namespace(self, queue: str) -> str | None:
        """Return the namespace of a queue if that is known, and fresh if it may have changed."""
        asked_at, namespace = self._namespaces.get(queue, (float("-inf"), None))
        is_fresh = self._now() - asked_at < NAMESPACE_KNOWN_FOR_S
        return namespace if is_fresh or self._is_away() else None

    async def queues_of(self, partition_ids: Collection[int]) -> Mapping[int, str]:
        """Return the queues of those partitions that exist."""
        known = {each: self._queue_by_partition.get(each) for each in partition_ids}
        unknown = [each for each, queue in known.items() if queue is None]
        if unknown:
            rows = await self._ask("queues_of_partitions", unknown)
            found: dict[int, str] = {row["partition_id"]: row["queue"] for row in rows}
            self._queue_by_partition.update(found)
            known |= found
            _make_room(self._queue_by_partition)
        return {each: queue for each, queue in known.items() if queue is not None}

    async def namespaces_of(self, queues: Collection[str]) -> Mapping[str, str]:
        """Return the namespaces of those queues that exist; empty for a queue without one."""
        known = {queue: self.known_namespace(queue) for queue in queues}
        unknown = [queue for queue, namespace in known.items() if namespace is None]
        if unknown:
            rows: Sequence[Any] = ()
            try:
                rows = await self._ask("namespaces_of_queues", unknown)
            except Unavailable:
                # That it is away may not have been known before.
                known = {queue: self.known_namespace(queue) for queue in queues}
                if None in known.values():
                    raise
            found: dict[str, str] = {row["queue"]: row["namespace"] for row in rows}
            asked_at = self._now()
            for queue, namespace in found.items():
                self._namespaces[queue] = (asked_at, namespace)
                self._namespaces.move_to_end(queue)
            known |= found
            _make_room(self._namespaces)
        return {queue: namespace for queue, namespace in known.items() if namespace is not None}

    async def _ask(self, function: str, subjects: Sequence[object]) -> Sequence[Any]:
        asked_at = self._now()
        asking = asyncio.ensure_future(self._sql.rows(function, subjects))
        try:
            while True:
                if (await asyncio.wait({asking}, timeout=LOOK_S))[0]:
                    return asking.result()
                if self._is_away() and self._now() - asked_at >= AWAY_S:
                    raise Unavailable
        finally:
            asking.cancel()


def _make_room(entries: "OrderedDict[Any, Any]") -> None:
    while len(entries) > ENTRIES_MAX:
        entries.popitem(last=False)
