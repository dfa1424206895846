"""Join the parts of one process to a broker.

Each module of this package makes the objects of one topic. Those that need the seed of the keys are
made by `wire`, once the database has told the seed; until then `skep.app.processes.waiting` serves.
"""

from typing import Final

from skep.app.parts.background import BackgroundParts
from skep.app.parts.core import Core
from skep.app.parts.failover import FailoverParts
from skep.app.parts.fetch import FetchParts
from skep.app.parts.kv import KvParts
from skep.app.parts.messages import MessageParts
from skep.app.parts.observation import Observation
from skep.app.parts.overload import OverloadParts
from skep.app.parts.pop import PopParts
from skep.app.parts.push import PushParts
from skep.app.parts.security import Security
from skep.app.parts.transaction import TransactionParts
from skep.app.processes.assignment import WorkerAssignment
from skep.broker.locks.wait import is_of_lock
from skep.broker.overload.shares import is_shed
from skep.broker.queues.configure import Configure
from skep.db.access.functions import Functions
from skep.jobs.service.service import JobService
from skep.model.errors import Overloaded
from skep.model.priorities import Priority
from skep.settings.reload import SettingsInForce


class Broker:
    """Everything one process needs to serve messages."""

    def __init__(self, assignment: WorkerAssignment) -> None:
        self.worker_index: Final = assignment.index
        self.core: Final = Core(assignment, wake=self._wake)
        core = self.core
        self.security: Final = Security(
            core.settings, core.vital, now=core.now, is_away=lambda: core.reach.is_away(core.vital)
        )
        self.settings_in_force: Final = SettingsInForce(core.settings, assignment.origins)
        self.failover: Final = FailoverParts(core)
        self.overload: Final = OverloadParts(core)
        self.push: Final = PushParts(core)
        self.pop: Final = PopParts(core, self.overload.fallback)
        self.kv: Final = KvParts(core)
        self.fetch: Final = FetchParts(core)
        self.background: Final = BackgroundParts(core)
        self.configure: Final = Configure(
            Functions(core.query),
            can_encrypt=lambda: core.key_ring.can_encrypt,
            changes=core.changes,
        )
        self.job_service: Final = JobService(core.query, now=core.now)
        self.observation: Final = Observation(assignment, core, self.pop.long_polls)

    def wire(self) -> None:
        """Make the parts that need the seed. Nothing is connected or started."""
        fallback = self.overload.fallback
        self.pop.wire(self.failover)
        self.push.wire(self.failover, fallback, self.pop.hand_overs)
        self.transaction = TransactionParts(self.core, self.push, self.pop, self.failover, fallback)
        self.overload.wire(self.push, self.pop, self.transaction)
        self.failover.wire(self.push)
        self.stored = MessageParts(self.core)

    async def start(self) -> None:
        """Connect and start serving.

        Raises:
            Unavailable: The database cannot be reached.
        """
        self.failover.open_spill()
        await self.core.open()
        self.wire()
        await self.core.neighbours.start()
        self.pop.long_polls.start(self.pop.pop.attempt)
        self.background.housekeeper.start()
        self.stored.redrives.start()
        self.push.sequencer.start()
        self.push.staged.start()
        self.overload.processor.start()
        self.observation.start()
        self.security.start()
        await self.failover.start()

    def wait_for_database(self) -> None:
        """Store pushes on disk until `start` has succeeded."""
        self.failover.open_spill()
        self.failover.outage.begin()
        self.security.start()
        self.wire()  # the seed is still unknown; pushes to disk do not need it

    def drain(self) -> None:
        """Answer the requests that wait for something to happen, such as the database's return."""
        self.core.hurry()
        self.pop.stop_waiting()
        self.kv.locks.stop_waiting()
        self.fetch.fetches.stop()
        self.observation.pulse.stop()

    async def stop(self) -> None:
        """Finish the work under way and release everything."""
        self.drain()
        await self.security.stop()
        await self.pop.live.finish()
        await self.job_service.stop()
        await self.background.housekeeper.stop()
        await self.stored.redrives.stop()
        await self.push.sequencer.stop()
        await self.push.staged.stop()
        await self.overload.stop()
        await self.failover.stop()
        await self.core.engine.drain()
        await self.push.gate.settle()
        await self.observation.stop()
        await self.core.neighbours.stop()
        await self.core.close()
        await self.failover.close()

    async def stop_waiting(self) -> None:
        """Release the parts that serve without a database."""
        await self.security.stop()
        await self.failover.close()

    def check_analytics(self) -> None:
        """Make sure that there is capacity for analytics."""
        if is_shed(Priority.ANALYTICS, self.core.engine.load):
            raise Overloaded("the broker is busy with messages; retry shortly")

    def _wake(self, queue_id: int, partition_count: int) -> None:
        if is_of_lock(queue_id):
            self.kv.locks.wake(queue_id)
        else:
            self.pop.wake(queue_id, partition_count)
        self.fetch.fetches.wake(queue_id)
