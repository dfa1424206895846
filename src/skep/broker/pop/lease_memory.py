"""Remember which messages went out under which lease, to find the offset an ack speaks of.

The memory only saves a search: the database resolves an ack whose lease is not remembered (served
by another process, or long ago). It keeps the 16-byte keys as stored in the segments, not an object
per message, and forgets the oldest leases beyond its bound.
"""

from collections import OrderedDict
from typing import Final

KEY_BYTES: Final = 16
_SCAN_BYTES_MAX: Final = 256 * KEY_BYTES
"""Ranges up to this length are searched as bytes; longer ones get an index when first searched."""

_LEASE_BYTES: Final = 600
"""About what a lease costs beside its keys."""


class LeasedRange:
    """Consecutive messages of one partition, by their keys."""

    __slots__ = ("_index", "first", "keys")

    def __init__(self, first: int, keys: bytes) -> None:
        self.first = first
        self.keys = keys
        self._index: dict[bytes, int] | None = None

    def find(self, key: bytes) -> int | None:
        """Return the offset of a key, the first one if it occurs twice."""
        if len(self.keys) <= _SCAN_BYTES_MAX:
            return self._scan(key)
        if self._index is None:
            keys = self.keys
            starts = range(len(keys) - KEY_BYTES, -1, -KEY_BYTES)
            self._index = {keys[at : at + KEY_BYTES]: at // KEY_BYTES for at in starts}
        place = self._index.get(key)
        return None if place is None else self.first + place

    def _scan(self, key: bytes) -> int | None:
        at = self.keys.find(key)
        while at >= 0 and at % KEY_BYTES:
            at = self.keys.find(key, at + 1)
        return None if at < 0 else self.first + at // KEY_BYTES


class LeaseMemory:
    """The ranges under each lease this process gave out."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max: Final = bytes_max
        self._bytes = 0
        self._leases: OrderedDict[str, dict[int, list[LeasedRange]]] = OrderedDict()
        self._individual: Final[set[str]] = set()

    def __len__(self) -> int:
        """Count the leases remembered."""
        return len(self._leases)

    def remember(
        self,
        lease_id: str,
        partition_id: int,
        first: int,
        keys: bytes,
        *,
        is_individual: bool = False,
    ) -> None:
        """Add messages to a lease; individual ones are acknowledged one by one."""
        if is_individual:
            self._individual.add(lease_id)
        partitions = self._leases.get(lease_id)
        if partitions is None:
            partitions = self._leases[lease_id] = {}
            self._bytes += _LEASE_BYTES
        partitions.setdefault(partition_id, []).append(LeasedRange(first, keys))
        self._bytes += len(keys)
        while self._bytes > self._bytes_max and len(self._leases) > 1:
            oldest, forgotten = self._leases.popitem(last=False)
            self._individual.discard(oldest)
            self._bytes -= _LEASE_BYTES + sum(map(_weight, forgotten.values()))

    def find(self, lease_id: str, partition_id: int, key: bytes) -> int | None:
        """Return the offset of a message under a lease, or None when it is not remembered."""
        partitions = self._leases.get(lease_id)
        if partitions is None:
            return None
        for leased in partitions.get(partition_id, ()):
            offset = leased.find(key)
            if offset is not None:
                return offset
        return None

    def is_individual(self, lease_id: str) -> bool:
        """Tell whether an ack under this lease covers its own message only."""
        return lease_id in self._individual

    def forget(self, lease_id: str, partition_id: int) -> None:
        """Drop a partition of a lease that has ended."""
        partitions = self._leases.get(lease_id)
        if partitions is None:
            return
        self._bytes -= _weight(partitions.pop(partition_id, []))
        if not partitions:
            del self._leases[lease_id]
            self._individual.discard(lease_id)
            self._bytes -= _LEASE_BYTES


def _weight(ranges: list[LeasedRange]) -> int:
    return sum(len(leased.keys) for leased in ranges)
