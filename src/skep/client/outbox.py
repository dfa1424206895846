"""What waits to be pushed, and when it leaves. Pure: the caller brings the time.

Items leave when there are enough of them, when they are large enough together, or when the oldest
has waited long enough; always the oldest first, so that order within a partition is kept.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from skep.model.errors import BadRequest
from skep.model.limits import PUSH_ITEMS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    """When buffered items leave.

    Args:
        count: So many leave together at most, and at once when they are there.
        bytes: The same for their size.
        age_s: No item waits longer, unless the broker does not answer.
        backlog_bytes: A push waits for room while so much is buffered: the broker is slower than
            the producer, or away.
    """

    count: int = 500
    bytes: int = 1 << 20
    age_s: float = 0.05
    backlog_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if not 1 <= self.count <= PUSH_ITEMS_MAX:
            raise BadRequest(f"count must be between 1 and {PUSH_ITEMS_MAX}")
        if self.bytes < 1 or self.age_s < 0 or self.backlog_bytes < self.bytes:
            raise BadRequest("the limits of a buffer must be positive, backlog_bytes the largest")


class Outbox:
    """Encoded items in the order in which they came."""

    __slots__ = ("_bytes", "_limits", "_waiting")

    def __init__(self, limits: BufferLimits) -> None:
        self._limits: Final = limits
        self._waiting: Final[deque[tuple[float, bytes]]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether another item may be added now."""
        return self._bytes < self._limits.backlog_bytes

    def add(self, item: bytes, now_s: float) -> None:
        """Add an item at the end."""
        self._waiting.append((now_s, item))
        self._bytes += len(item)

    def due_in_s(self, now_s: float) -> float | None:
        """Return after which time something leaves; 0 is now, None is never, as nothing waits."""
        if not self._waiting:
            return None
        if len(self._waiting) >= self._limits.count or self._bytes >= self._limits.bytes:
            return 0.0
        return max(self._waiting[0][0] + self._limits.age_s - now_s, 0.0)

    def take(self) -> list[bytes]:
        """Remove and return the oldest items, as many as one request may carry; one at least."""
        taken: list[bytes] = []
        size = 0
        while self._waiting and len(taken) < self._limits.count:
            item = self._waiting[0][1]
            if taken and size + len(item) > self._limits.bytes:
                break
            self._waiting.popleft()
            taken.append(item)
            size += len(item)
        self._bytes -= size
        return taken
