"""What a buffer of pushes decides and counts, without waiting: for both kinds of client."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from skep.client.errors import PushFailed, Stopped
from skep.client.pushes import BufferLimits, Item, Outbox, TransactionIds, encode
from skep.client.tracing import Telemetry
from skep.client.values import PushCounts, PushResult, PushResults

if TYPE_CHECKING:
    from skep.model.errors import SkepError

FAILURES_MAX: Final = 1_000
"""Refused items remembered for the end, if there is no `on_failure`."""


class BufferBase:
    """Items on their way to the broker, and what became of those that were answered."""

    def __init__(
        self,
        ids: TransactionIds,
        telemetry: Telemetry,
        limits: BufferLimits,
        on_failure: Callable[[PushResult], None] | None,
    ) -> None:
        self._ids: Final = ids
        self._telemetry: Final = telemetry
        self._outbox: Final = Outbox(limits)
        self._on_failure: Final = on_failure
        self._in_flight = 0
        self._flush_wanted = False
        self._is_closing = False
        self._failures: Final[list[PushResult]] = []
        self._error: SkepError | None = None
        self.counts: Final = PushCounts()
        """What became of the items that were answered so far."""

    @property
    def waiting(self) -> int:
        """Items taken that are not known to be stored."""
        return len(self._outbox) + self._in_flight

    def _encode(self, item: Item) -> bytes:
        self._telemetry.inject([item])
        self._ids.complete([item])
        return encode(item)

    def _due_in_s(self, now_s: float) -> float | None:
        """Return when the next request is due: 0 is now, None is when something happens."""
        due_in_s = self._outbox.due_in_s(now_s)
        if due_in_s is None:
            self._flush_wanted = False
        return 0.0 if self._is_closing or self._flush_wanted else due_in_s

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closing:
            raise Stopped("the buffer is closed: it takes no more items")

    def _raise_failures(self) -> None:
        if self._error is not None:
            raise self._error
        if self._failures:
            failures = self._failures.copy()
            self._failures.clear()
            raise PushFailed.of(failures)

    def _note_answer(self, body: bytes, item_count: int) -> None:
        results = PushResults([body], item_count=item_count)
        self.counts.add(results.counts)
        for result in results.failures:
            self._note_failure(result)

    def _note_failure(self, result: PushResult) -> None:
        if self._on_failure is not None:
            self._on_failure(result)
        elif len(self._failures) < FAILURES_MAX:
            self._failures.append(result)
