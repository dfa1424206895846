"""Remember which messages went out under which lease, to find the offset an ack speaks of.

The memory only saves a search: the database resolves an ack whose lease is not remembered (served
by another process, or long ago), or whose key several messages under the lease have. It keeps the
16-byte keys as stored in the segments, not an object per message, and forgets the oldest leases
beyond its bound.
"""

from collections import OrderedDict
from typing import Final

KEY_BYTES: Final = 16
_SCAN_BYTES_MAX: Final = 32 * KEY_BYTES
"""A range up to this length is searched as bytes; more gets an index when first searched."""

_LEASE_BYTES: Final = 600
"""About what a lease costs beside its keys."""


class LeasedPartition:
    """The messages of one partition under a lease, by their keys: ranges of offsets."""

    __slots__ = ("_index", "_ranges", "last", "weight")

    def __init__(self) -> None:
        self._ranges: Final[list[tuple[int, bytes]]] = []
        self._index: dict[bytes, int | None] | None = None
        self.last = 0
        """The highest offset under the lease."""
        self.weight = 0

    def add(self, first: int, keys: bytes) -> None:
        """Add consecutive messages."""
        self._ranges.append((first, keys))
        self._index = None
        self.last = max(self.last, first + len(keys) // KEY_BYTES - 1)
        self.weight += len(keys)

    def find(self, key: bytes) -> int | None:
        """Return the offset of a key; None if it is not here, or more than once."""
        if self._index is None:
            if self.weight <= _SCAN_BYTES_MAX and len(self._ranges) == 1:
                return _scan(*self._ranges[0], key)
            self._index = self._indexed()
        return self._index.get(key)

    def _indexed(self) -> dict[bytes, int | None]:
        index: dict[bytes, int | None] = {}
        for first, keys in self._ranges:
            for offset, at in enumerate(range(0, len(keys), KEY_BYTES), first):
                key = keys[at : at + KEY_BYTES]
                index[key] = None if key in index else offset
        return index


def _scan(first: int, keys: bytes, key: bytes) -> int | None:
    at = _aligned(keys, key, 0)
    if at < 0 or _aligned(keys, key, at + KEY_BYTES) >= 0:
        return None
    return first + at // KEY_BYTES


def _aligned(keys: bytes, key: bytes, start: int) -> int:
    """Return where a key is, not counting what lies across two; -1 if nowhere."""
    at = keys.find(key, start)
    while at >= 0 and at % KEY_BYTES:
        at = keys.find(key, at + 1)
    return at


class LeaseMemory:
    """The ranges under each lease this process gave out."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max: Final = bytes_max
        self._bytes = 0
        self._leases: OrderedDict[str, dict[int, LeasedPartition]] = OrderedDict()
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
        leased = partitions.get(partition_id)
        if leased is None:
            leased = partitions[partition_id] = LeasedPartition()
        leased.add(first, keys)
        self._bytes += len(keys)
        while self._bytes > self._bytes_max and len(self._leases) > 1:
            oldest, forgotten = self._leases.popitem(last=False)
            self._individual.discard(oldest)
            self._bytes -= _LEASE_BYTES + sum(leased.weight for leased in forgotten.values())

    def find(self, lease_id: str, partition_id: int, key: bytes) -> int | None:
        """Return the offset of a message under a lease, or None when only the database can tell."""
        partitions = self._leases.get(lease_id)
        leased = None if partitions is None else partitions.get(partition_id)
        return None if leased is None else leased.find(key)

    def is_cumulative(self, lease_id: str, partition_id: int, offset: int) -> bool:
        """Tell whether an ack of this offset certainly covers the messages before it."""
        partitions = self._leases.get(lease_id)
        leased = None if partitions is None else partitions.get(partition_id)
        return leased is not None and offset <= leased.last and lease_id not in self._individual

    def forget(self, lease_id: str, partition_id: int) -> None:
        """Drop a partition of a lease that has ended."""
        partitions = self._leases.get(lease_id)
        if partitions is None:
            return
        leased = partitions.pop(partition_id, None)
        self._bytes -= leased.weight if leased is not None else 0
        if not partitions:
            del self._leases[lease_id]
            self._individual.discard(lease_id)
            self._bytes -= _LEASE_BYTES
