"""Reads by offset."""

from typing import Final

from skep.app.parts.core import Core
from skep.broker.fetch.accept import Fetches
from skep.broker.fetch.execute import FetchExecutor
from skep.broker.fetch.positions import Positions
from skep.db.access.functions import Functions


class FetchParts:
    """Reads logs without leases, and tells positions in them."""

    def __init__(self, core: Core) -> None:
        self.fetches: Final = Fetches(core.engine)
        self.positions: Final = Positions(Functions(core.query))
        executor = FetchExecutor(
            core.hot,
            self.fetches,
            core.key_ring.open_envelope,
            bytes_max=core.settings.pop_bytes_max,
        )
        core.engine.serve("fetch", executor.execute)
        core.meters.watch("skep_waiting_fetches", lambda: len(self.fetches))
        core.meters.counts["skep_fetched_messages"] = lambda: {(): executor.count}
