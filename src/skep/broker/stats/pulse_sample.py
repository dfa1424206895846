"""What the pulse carries: the figures that the overview of the dashboard shows live.

What there is comes from the database and is of the whole installation. What happens comes from the
meters, as the difference between two samples, and is of the instance that answers.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from skep.broker.queues.catalog import QueueCatalog
from skep.broker.queues.resources import Lag, MessageCounts
from skep.telemetry.snapshots import Snapshot, sum_counts, sum_distributions


class PulseSample(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The installation at one moment, and what the instance did since the sample before."""

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
    """Everything that the workers of an instance did so far."""

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
        """Return how fast a count grew; None without a moment to compare with."""
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


class PulseFigures:
    """Takes samples, and remembers the last one to compare with."""

    def __init__(
        self,
        catalog: QueueCatalog,
        gather: Callable[[], Sequence[Snapshot]],
        *,
        now: Callable[[], float],
    ) -> None:
        self._catalog: Final = catalog
        self._gather: Final = gather
        self._now: Final = now
        self._before: Activity | None = None

    async def take(self) -> bytes:
        """Return a sample as JSON."""
        overview = await self._catalog.overview()
        activity = activity_of(self._gather(), at=self._now())
        before, self._before = self._before, activity
        return msgspec.json.encode(
            PulseSample(
                timestamp=overview.timestamp,
                queues=overview.queues,
                partitions=overview.partitions,
                messages=overview.messages,
                estimated=overview.estimated,
                lag=overview.lag,
                pushed_per_second=activity.per_second(before, "pushed"),
                popped_per_second=activity.per_second(before, "popped"),
                acked_per_second=activity.per_second(before, "acked"),
                messages_per_commit=activity.per_call(before),
                parked_polls=activity.parked,
            )
        )
