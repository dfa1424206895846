"""Sweep what writers on Spark left behind: staging of the dead, records nobody asks for."""

from datetime import timedelta
from typing import Final

from skep.db.access.slots import Caller

SWEEP_CALL: Final = "select skep.sweep_staging(skep.now() - $1::interval, $2)"

KEEP: Final = timedelta(days=1)
"""A write that takes longer from its first row to its commit is refused then, and starts again."""
STEP: Final = 500
"""Rows of each table; a staged segment is up to a hundred kilobytes."""
INTERVAL_S: Final = 600.0


class StagingSweep:
    """The housekeeping duty that removes old staging, a step at a time."""

    def __init__(self, caller: Caller) -> None:
        self.name: Final = "sweep of staging"
        self.interval_s: Final = INTERVAL_S
        self._caller: Final = caller

    async def run(self) -> bool:
        """Remove a step's worth; return whether there may be more."""
        ((count,),) = await self._caller.call(SWEEP_CALL, KEEP, STEP)
        return count >= STEP
