"""Let reads by offset into the engine, and keep those that wait for messages.

A read that found too little waits in memory, without a connection. A wake-up of one of its queues,
as polls get it, lets it read on behind what it has; so does a look every few seconds, because a
wake-up of another process may be lost. A wake-up that comes while it reads counts when it has read.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final

from skep.broker.fetch.request import (
    CALL_BYTES_MAX,
    ENTRY_BYTES_MAX,
    WAIT_BYTES_MAX,
    WAIT_MS_MAX,
    FetchBody,
    FetchEntry,
    check_address,
    check_count,
    check_offset,
    clamped,
)
from skep.engine.driver import Engine, Work
from skep.model.errors import BadRequest, SkepError
from skep.telemetry.defects import error_of

PAUSE_S: Final = 0.01
"""Between two looks of a read that waits, so that a busy queue is not read for every push."""

PAUSE_S_MAX: Final = 0.25
"""The same after looks that found nothing: the pushes are into other partitions of the queue."""

CHECK_S: Final = 2.0
"""How often a read that waits looks without a wake-up."""

_REQUEST_WEIGHT: Final = 512
_ENTRY_WEIGHT: Final = 256


@dataclass(slots=True, eq=False)
class Reading:
    """How far a request has come with one of its entries."""

    queue: str
    partition: str
    at: int
    """The next offset to read."""
    left: int
    """How many bytes it may still return; 0 when the next message has no room."""
    head: int = 0
    tail: int = 0
    error: str = ""
    records: list[bytes] = field(default_factory=list[bytes])

    @property
    def is_behind(self) -> bool:
        """Whether there is more, and room for it."""
        return not self.error and self.left > 0 and self.at <= self.head


@dataclass(slots=True, eq=False)
class Fetch(Work):
    """One client's read."""

    may_go_on: ClassVar[bool] = True

    readings: list[Reading]
    wait_s: float
    wanted: int
    """Bytes that it waits for."""
    left: int
    """How many bytes it may still return."""
    answer: Callable[["Fetch"], object]
    refuse: Callable[[SkepError], None]
    deadline: float = 0.0
    size: int = 0
    """Bytes read."""
    come: int = -1
    """The sum of its offsets when it last went on."""
    queue_ids: set[int] = field(default_factory=set[int])
    tried_at: float = 0.0
    fruitless: int = 0
    """Looks that brought nothing, each soon after the one before."""
    timer: asyncio.TimerHandle | None = None
    ended: Callable[["Fetch"], None] | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it holds on to before it is read."""
        return _REQUEST_WEIGHT + _ENTRY_WEIGHT * len(self.readings)

    @property
    def is_served(self) -> bool:
        """Whether waiting could not make the answer better, or need not."""
        return self.size >= self.wanted or any(
            each.error or each.left <= 0 for each in self.readings
        )

    def finish(self) -> None:
        """Answer with what was read."""
        self.answer(self)
        self._end()

    def fail(self, error: SkepError) -> None:
        """Answer that it could not be read."""
        self._end()
        self.refuse(error)

    def _end(self) -> None:
        self.is_settled = True
        if self.ended is not None:
            self.ended(self)


def planned(
    body: FetchBody, *, answer: Callable[[Fetch], object], refuse: Callable[[SkepError], None]
) -> Fetch:
    """Return the read that a body asks for.

    Raises:
        BadRequest: There are too many entries, or one of them is malformed.
    """
    check_count(body.entries)
    if body.max_wait_ms < 0:
        raise BadRequest(f"Invalid maxWaitMs: {body.max_wait_ms}. Use 0 to {WAIT_MS_MAX}")
    ceiling = clamped(body.max_bytes, CALL_BYTES_MAX)
    return Fetch(
        [_reading(each) for each in body.entries],
        wait_s=min(body.max_wait_ms, WAIT_MS_MAX) / 1000 if body.min_bytes > 0 else 0.0,
        wanted=clamped(body.min_bytes, min(ceiling, WAIT_BYTES_MAX)),
        left=ceiling,
        answer=answer,
        refuse=refuse,
    )


def _reading(entry: FetchEntry) -> Reading:
    queue, partition = check_address(entry)
    # Offsets begin at 1. Readers that know nothing of a log begin at 0.
    at = max(check_offset(entry), 1)
    return Reading(queue, partition, at, clamped(entry.max_bytes, ENTRY_BYTES_MAX))


class Fetches:
    """The reads of one process."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine
        self._loop: Final = asyncio.get_running_loop()
        self._trying: Final[set[Fetch]] = set()
        self._woken_at: Final[dict[int, float]] = {}
        """By queue, while there are reads under way."""
        self._waiting: Final[dict[int, set[Fetch]]] = {}
        self._waiting_count = 0
        self._is_stopped = False

    def __len__(self) -> int:
        """Count the reads that wait for messages."""
        return self._waiting_count

    def fetch(self, fetch: Fetch) -> None:
        """Carry out a read; it is answered once, later or now.

        Raises:
            Overloaded: There is no room; it is not answered.
        """
        if not fetch.readings:
            fetch.finish()
            return
        self._engine.submit("fetch", None, fetch.weight, fetch)
        fetch.deadline = self._loop.time() + fetch.wait_s
        fetch.ended = self._forget
        self._begin(fetch)

    def abort(self, fetch: Fetch) -> None:
        """Forget a read whose client is gone."""
        fetch.is_settled = True
        self._forget(fetch)

    def go_on(self, fetch: Fetch) -> None:
        """Answer a read, let it wait or let it read on, after it has read what it could."""
        self._trying.discard(fetch)
        now = self._loop.time()
        come = sum(reading.at for reading in fetch.readings)
        has_come_on, fetch.come = come > fetch.come, come
        if has_come_on:
            fetch.fruitless = 0
        if fetch.is_served:
            fetch.finish()
        elif has_come_on and any(reading.is_behind for reading in fetch.readings):
            self._try(fetch)  # it had no share left, or met deleted messages only
        elif now >= fetch.deadline or self._is_stopped:
            fetch.finish()
        else:
            self._wait(fetch, now)
        if not self._trying:
            self._woken_at.clear()

    def wake(self, queue_id: int) -> None:
        """Let the reads that wait for a queue read on."""
        now = self._loop.time()
        if self._trying:
            self._woken_at[queue_id] = now
        for fetch in self._waiting.get(queue_id, ()):
            self._set_timer(fetch, _soonest(fetch))

    def stop(self) -> None:
        """Answer every read that waits with what it has, and let no more wait."""
        self._is_stopped = True
        for fetch in {each for waiting in self._waiting.values() for each in waiting}:
            error_of(fetch.finish)

    def _begin(self, fetch: Fetch) -> None:
        now = self._loop.time()
        is_soon = now - fetch.tried_at < 2 * PAUSE_S_MAX
        fetch.fruitless = fetch.fruitless + 1 if is_soon else 0
        fetch.tried_at = now
        self._trying.add(fetch)

    def _try(self, fetch: Fetch) -> None:
        self._stop_waiting(fetch)
        self._engine.submit("fetch", None, fetch.weight, fetch, is_admitted=True)
        self._begin(fetch)

    def _wait(self, fetch: Fetch, now: float) -> None:
        for queue_id in fetch.queue_ids:
            self._waiting.setdefault(queue_id, set()).add(fetch)
        self._waiting_count += 1
        is_woken = any(
            self._woken_at.get(queue_id, -1.0) >= fetch.tried_at for queue_id in fetch.queue_ids
        )
        at = _soonest(fetch) if is_woken else now + CHECK_S
        self._set_timer(fetch, min(fetch.deadline, at))

    def _set_timer(self, fetch: Fetch, at: float) -> None:
        if fetch.timer is not None:
            if fetch.timer.when() <= at:
                return
            fetch.timer.cancel()
        fetch.timer = self._loop.call_at(at, partial(self._try, fetch))

    def _stop_waiting(self, fetch: Fetch) -> None:
        if fetch.timer is None:
            return
        fetch.timer.cancel()
        fetch.timer = None
        self._waiting_count -= 1
        for queue_id in fetch.queue_ids:
            waiting = self._waiting[queue_id]
            waiting.discard(fetch)
            if not waiting:
                del self._waiting[queue_id]

    def _forget(self, fetch: Fetch) -> None:
        self._trying.discard(fetch)
        self._stop_waiting(fetch)


def _soonest(fetch: Fetch) -> float:
    """Return when a read that is woken may look again."""
    return fetch.tried_at + min(PAUSE_S * 2 ** min(fetch.fruitless, 5), PAUSE_S_MAX)


def shares(fetches: Sequence[Fetch], bytes_max: int, *, least: int) -> list[int]:
    """Return how many bytes each of these may read in one call."""
    share = max(bytes_max // len(fetches), least)
    return [min(each.left, share) for each in fetches]
