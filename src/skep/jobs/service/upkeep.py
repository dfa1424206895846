"""What the leading broker does for jobs: upkeep where no worker runs, and pruning.

Workers do the upkeep themselves, each second. Without any worker schedules still start their
chains, deadlines still pass and the jobs of a dead worker still become ready, some seconds later.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.jobs import store
from skep.jobs.client.control import CLOSED_STATES, PRUNE_BATCH
from skep.jobs.schedules import Scheduler
from skep.jobs.signals import Announcements
from skep.jobs.worker.upkeep import recover

_log = logging.getLogger(__name__)

UPKEEP_S: Final = 5.0
PRUNE_S: Final = 600.0


class JobUpkeep:
    """Takes jobs back from dead workers, ends late chains, runs schedules that are due."""

    name = "the upkeep of jobs"
    interval_s = UPKEEP_S

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller
        self._announcements: Final = Announcements(caller)
        self._scheduler: Final = Scheduler(caller)

    async def run(self) -> bool:
        """Run once."""
        await recover(self._caller, self._announcements)
        await self._scheduler.run_due()
        await self._announcements.flush()
        return False


class ChainPrune:
    """Deletes chains that ended long ago, a batch at a time."""

    name = "the removal of old chains"
    interval_s = PRUNE_S

    def __init__(self, caller: Caller, *, keep: timedelta) -> None:
        self._sql: Final = Functions(caller)
        self._keep: Final = keep
        self._place: tuple[datetime | None, object] = (None, None)

    async def run(self) -> bool:
        """Delete a batch; go on behind it the next time, and from the front after the last."""
        now = await self._sql.value("now")
        ((deleted, at, chain_id),) = await self._sql.call(
            store.PRUNE_CALL, now - self._keep, list(CLOSED_STATES), PRUNE_BATCH, *self._place
        )
        self._place = (at, chain_id)
        if deleted:
            _log.debug("Deleted %d old chains", deleted)
        return chain_id is not None
