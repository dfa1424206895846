"""The pulse: figures of the whole broker for the dashboard, sampled once for all watchers.

Without watchers nothing is sampled. The pace follows the cost: a sample that takes long, because
there are very many partitions, is followed by a pause many times as long, so that watching never
costs more than `1 / PAUSE_PER_COST` of a core.

Counts come from the database and cover the installation. Rates come from the meters, as the
difference between two samples, and cover the instance that answers.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import asdict

from skep.broker.paging import from_row
from skep.broker.queues.catalog import QueueCatalog
from skep.broker.queues.resources import Lag, MessageCounts
from skep.telemetry.snapshots import Snapshot, sum_counts, sum_distributions

INTERVAL_S: Final = 2.0
PAUSE_PER_COST: Final = 100
BEAT_S: Final = 2.0
"""After so long without a sample followers get a beat."""

TakeSample: TypeAlias = Callable[[], Awaitable[bytes]]


class Pulse:
    """Hands the newest sample to all followers."""

    def __init__(self, take_sample: TakeSample) -> None:
        self._take_sample: Final = take_sample
        self._watchers = 0
        self._sampling: _Sampling | None = None
        self._is_stopped = False

    async def follow(self) -> AsyncGenerator[bytes | None, None]:
        """Yield samples until the pulse stops, at once the newest if there is one.

        None is a beat without a sample: expensive samples are rare, and followers also check other
        things at each beat.

        Raises:
            SkepError: A sample could not be taken. The next follower tries again.
        """
        if self._is_stopped:
            return
        if self._sampling is None or self._sampling.has_ended:
            self._sampling, self._watchers = _Sampling(self._take_sample), 0
        sampling = self._sampling
        self._watchers += 1
        try:
            if sampling.latest is not None:
                yield sampling.latest
            while True:
                told = sampling.next
                if not (await asyncio.wait([told], timeout=BEAT_S))[0]:
                    yield None
                    continue
                sample = told.result()
                if sample is None:
                    return
                yield sample
        finally:
            if sampling is self._sampling:
                self._watchers -= 1
                if not self._watchers:
                    sampling.end()

    def stop(self) -> None:
        """End all followers, and those that come later."""
        self._is_stopped = True
        if self._sampling is not None:
            self._sampling.end()


class _Sampling:
    """The samples taken from the first follower to the last."""

    def __init__(self, take_sample: TakeSample) -> None:
        self.latest: bytes | None = None
        self.next = self._future()
        self._take_sample: Final = take_sample
        self._task: Final = asyncio.create_task(self._run())

    @property
    def has_ended(self) -> bool:
        return self.next.done()

    def end(self) -> None:
        """Take no more samples, and tell that there will be none."""
        self._task.cancel()
        if not self.next.done():
            self.next.set_result(None)

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            try:
                self._publish(await self._take_sample())
            except Exception as error:  # noqa: BLE001 (the followers raise it)
                self.next.set_exception(error)
                return
            await asyncio.sleep(max(INTERVAL_S, (now() - began) * PAUSE_PER_COST))

    def _publish(self, sample: bytes) -> None:
        self.latest = sample
        told, self.next = self.next, self._future()
        told.set_result(sample)

    @staticmethod
    def _future() -> asyncio.Future[bytes | None]:
        return asyncio.get_running_loop().create_future()


class PulseSample(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The installation now, and what the instance did since the previous sample."""

    timestamp: datetime
    queues: int
    partitions: int
    messages: MessageCounts
    estimated: bool
    """Whether the counts come from a sample of the partitions."""
    lag: Lag
    pushed_per_second: float | None
    """Null, like the other rates, until there is a sample to compare with."""
    popped_per_second: float | None
    acked_per_second: float | None
    messages_per_commit: float | None
    """Messages that one call stored; null when nothing was pushed."""
    parked_polls: int


class Activity(msgspec.Struct, frozen=True):
    """What the workers of an instance have done since they started."""

    at: float
    pushed: float
    popped: float
    acked: float
    calls: float
    """Calls that stored messages."""
    stored: float
    """Messages that they stored."""
    parked: int

    def per_second(self, before: "Activity | None", name: str) -> float | None:
        """Return how fast a count grew; None without an earlier one."""
        if before is None or self.at <= before.at:
            return None
        grown = getattr(self, name) - getattr(before, name)
        return round(max(grown, 0.0) / (self.at - before.at), 3)

    def per_call(self, before: "Activity | None") -> float | None:
        """Return the messages of an average call since then."""
        if before is None or self.calls <= before.calls:
            return None
        return round((self.stored - before.stored) / (self.calls - before.calls), 2)


def activity_of(snapshots: Sequence[Snapshot], *, at: float) -> Activity:
    """Add up the meters of all workers."""
    counters = sum_counts(each.counters for each in snapshots)
    gauges = sum_counts(each.gauges for each in snapshots)
    calls = sum_distributions(each.histograms for each in snapshots)
    # The counts by size come first, the sum of all values last.
    *by_size, stored = calls.get("skep_engine_call_messages", {}).get(("push",), [0.0])

    def total(family: str) -> float:
        return sum(counters.get(family, {}).values())

    return Activity(
        at=at,
        pushed=total("skep_pushed_messages"),
        popped=total("skep_popped_messages"),
        acked=total("skep_acked_messages"),
        calls=sum(by_size),
        stored=stored,
        parked=int(sum(gauges.get("skep_parked_polls", {}).values())),
    )


@dataclass(slots=True, eq=False)
class PulseFigures:
    """Takes samples, and remembers the last one to compare with."""

    catalog: QueueCatalog
    gather: Callable[[], Sequence[Snapshot]]
    now: Callable[[], float]
    before: Activity | None = None

    async def take(self) -> bytes:
        """Return a sample as JSON."""
        overview = await self.catalog.overview()
        activity = activity_of(self.gather(), at=self.now())
        before, self.before = self.before, activity
        return msgspec.json.encode(
            from_row(
                PulseSample,
                asdict(overview),
                pushed_per_second=activity.per_second(before, "pushed"),
                popped_per_second=activity.per_second(before, "popped"),
                acked_per_second=activity.per_second(before, "acked"),
                messages_per_commit=activity.per_call(before),
                parked_polls=activity.parked,
            )
        )
