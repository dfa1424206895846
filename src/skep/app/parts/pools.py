"""The connections of one process, in pools that do not wait for each other."""

from typing import Final

from skep.app.processes.assignment import WorkerAssignment
from skep.broker.ack.accept import ACK_CALL
from skep.broker.pop.execute import POP_CALL, POP_PARTITION_CALL
from skep.broker.push.accept import PUSH_CALL, PUSH_GUARANTEED_CALL
from skep.broker.transaction.streams import CYCLE_CALL
from skep.broker.transaction.transaction import TRANSACT_CALL
from skep.db.access.slots import HOT_PATH, ONE_OFF, Slots
from skep.telemetry.meters import Meters
from skep.telemetry.slow_calls import CallWatch


class Pools:
    """Connections for messages, for questions of people, and for what is done in the background."""

    def __init__(self, assignment: WorkerAssignment, meters: Meters, *, patience_s: float) -> None:
        settings = assignment.settings
        watch = CallWatch(meters, slow_s=settings.slow_call_s)
        self.hot: Final = Slots(
            assignment.dsn,
            size=settings.connections,
            server_settings=HOT_PATH,
            statement_timeout_s=settings.statement_timeout_s,
            lock_timeout_s=settings.lock_timeout_s,
            patience_s=patience_s,
            application_name=f"skep worker {assignment.index}",
            prepare=(
                PUSH_CALL,
                PUSH_GUARANTEED_CALL,
                POP_CALL,
                POP_PARTITION_CALL,
                ACK_CALL,
                TRANSACT_CALL,
                CYCLE_CALL,
            ),
            watch=watch,
        )
        self.query: Final = Slots(
            assignment.dsn,
            size=settings.query_connections,
            server_settings=ONE_OFF,
            statement_timeout_s=settings.statement_timeout_s,
            lock_timeout_s=settings.lock_timeout_s,
            application_name=f"skep worker {assignment.index} queries",
            watch=watch,
        )
        # One connection for all background work: it is done in turn, and no listing waits for it.
        self.housekeeping: Final = Slots(
            assignment.dsn,
            size=1,
            server_settings=HOT_PATH,
            statement_timeout_s=settings.statement_timeout_s,
            lock_timeout_s=settings.lock_timeout_s,
            application_name=f"skep worker {assignment.index} housekeeping",
            watch=watch,
        )

    async def open(self) -> None:
        """Connect all of them.

        Raises:
            Unavailable: The database cannot be reached.
        """
        await self.hot.open()
        await self.query.open()
        await self.housekeeping.open()

    async def close(self) -> None:
        """Finish what is under way, and disconnect."""
        await self.housekeeping.close()
        await self.hot.close()
        await self.query.close()
