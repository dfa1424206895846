"""What every part of a broker shares: connections, engine, meters, keys, other processes."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from skep.app.parts.cluster import Neighbours
from skep.app.parts.engine import engine_core
from skep.app.processes.assignment import WorkerAssignment
from skep.broker.ack.execute import ACK_CALL
from skep.broker.cluster.leadership import Leadership
from skep.broker.directory import Directory
from skep.broker.fetch.execute import FETCH_CALL
from skep.broker.kv.execute import KV_COMMIT_CALL, KV_READ_CALL
from skep.broker.pop.execute import POP_CALL, POP_PARTITION_CALL
from skep.broker.push.execute import (
    HAND_OVER_CALL,
    PUSH_CALL,
    PUSH_GUARANTEED_CALL,
    PUSH_TO_POLL_CALL,
)
from skep.broker.streams import CYCLE_CALL
from skep.broker.transaction.transaction import TRANSACT_CALL
from skep.db.access.reach import Reach
from skep.db.access.slots import HOT_PATH, ONE_OFF, Slots
from skep.engine.driver import Engine
from skep.model.encryption import KeyRing
from skep.settings.keys import encryption_keys
from skep.telemetry.meters import Meters
from skep.telemetry.slow_calls import CallWatch

MIB: Final = 1024 * 1024
HOUSEKEEPING: Final = "housekeeping"
"""The background work that one process of the installation leads."""

PATIENCE_S: Final = 10.0
"""How long a request waits for an unreachable database before it is answered as unavailable."""

_HOT_CALLS: Final = (
    PUSH_CALL,
    PUSH_GUARANTEED_CALL,
    HAND_OVER_CALL,
    PUSH_TO_POLL_CALL,
    POP_CALL,
    POP_PARTITION_CALL,
    ACK_CALL,
    TRANSACT_CALL,
    CYCLE_CALL,
    KV_READ_CALL,
    KV_COMMIT_CALL,
    FETCH_CALL,
)


def utc_now() -> datetime:
    """Return the time, to be compared with times of the database."""
    return datetime.now(UTC)


class Core:
    """Shared objects of one process. `hash_seed` is set when the parts are wired."""

    def __init__(self, assignment: WorkerAssignment, *, wake: Callable[[int, int], None]) -> None:
        settings = assignment.settings
        self.settings: Final = settings
        self.dsn: Final = assignment.dsn
        self.hash_seed = 0
        self.now: Final = asyncio.get_running_loop().time
        self.meters: Final = Meters(queues_exposed=settings.metrics_queues_max)
        connect = partial(
            Slots,
            assignment.dsn,
            statement_timeout_s=settings.statement_timeout_s,
            lock_timeout_s=settings.lock_timeout_s,
            watch=CallWatch(self.meters, slow_s=settings.slow_call_s),
        )
        name = f"skep worker {assignment.index}"
        # Separate pools: neither listings nor background work delays messages, nor the short calls
        # on which deliveries, pushes into limited queues, the leader and health checks depend,
        # which never wait for a lock that clients hold.
        self.hot: Final = connect(
            size=settings.connections,
            server_settings=HOT_PATH,
            patience_s=PATIENCE_S,
            application_name=name,
            prepare=_HOT_CALLS,
        )
        self.query: Final = connect(
            size=settings.query_connections,
            server_settings=ONE_OFF,
            application_name=f"{name} queries",
        )
        self.vital: Final = connect(
            size=1, server_settings=ONE_OFF, application_name=f"{name} vital"
        )
        self.housekeeping: Final = connect(
            size=1, server_settings=HOT_PATH, application_name=f"{name} housekeeping"
        )
        self._pools: Final = {
            "hot": self.hot,
            "query": self.query,
            "vital": self.vital,
            "housekeeping": self.housekeeping,
        }
        self.reach: Final = Reach(tuple(self._pools.values()), self.vital)
        self.engine: Final = Engine(
            engine_core(settings), patience_s=PATIENCE_S, meters=self.meters
        )
        self.directory: Final = Directory()
        self.key_ring: Final = KeyRing(encryption_keys(settings))
        self.neighbours: Final = Neighbours(assignment, self.vital, self.meters, wake=wake)
        self.announcer: Final = self.neighbours.wakeups
        self.changes: Final = self.neighbours.changes
        self.leadership: Final = Leadership(self.vital, HOUSEKEEPING)
        self._show_load()

    async def open(self) -> None:
        """Connect, and read the seed of the keys; `Unavailable` without the database."""
        for pool in self._pools.values():
            await pool.open()
        (row,) = await self.vital.call("select hash_seed from skep.installation")
        self.hash_seed = row["hash_seed"]
        self.reach.start()

    def hurry(self) -> None:
        """Wait no longer for a database that is away."""
        for pool in self._pools.values():
            pool.hurry()

    async def close(self) -> None:
        """Finish the calls under way, and disconnect."""
        self.reach.stop()
        for pool in self._pools.values():
            await pool.close()

    def _show_load(self) -> None:
        pools = self._pools
        self.meters.watch("skep_engine_weight_bytes", lambda: self.engine.weight)
        self.meters.gauges["skep_db_connections"] = lambda: {
            labels: count
            for name, slots in pools.items()
            for labels, count in (
                ((name, "busy"), slots.busy_count),
                ((name, "idle"), slots.connected_count - slots.busy_count),
            )
        }
        self.meters.gauges["skep_db_waiting_calls"] = lambda: {
            (name,): slots.waiting_count for name, slots in pools.items()
        }
