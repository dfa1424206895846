"""What the pulse carries: the figures that the overview of the dashboard shows live."""

from datetime import datetime
from typing import Final

import msgspec

from skep.broker.queue_catalog import QueueCatalog
from skep.broker.resources import Lag, MessageCounts


class PulseSample(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The whole installation at one moment."""

    timestamp: datetime
    queues: int
    partitions: int
    messages: MessageCounts
    estimated: bool
    """Whether the counts come from a sample of the partitions."""
    lag: Lag
    ingested_per_second: float
    """Messages pushed, over the last minutes."""


class PulseFigures:
    """Takes samples."""

    def __init__(self, catalog: QueueCatalog) -> None:
        self._catalog: Final = catalog

    async def take(self) -> bytes:
        """Return a sample as JSON."""
        overview = await self._catalog.overview()
        return msgspec.json.encode(
            PulseSample(
                timestamp=overview.timestamp,
                queues=overview.queues,
                partitions=overview.partitions,
                messages=overview.messages,
                estimated=overview.estimated,
                lag=overview.lag,
                ingested_per_second=overview.throughput.ingested_per_second,
            )
        )
