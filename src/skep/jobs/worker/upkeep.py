"""Keep a worker's lease, and recover the jobs of dead workers, even if handlers block.

This runs in a thread with an event loop and a connection of its own: a handler that blocks the
worker's loop for a minute must not cost it its jobs. Every third of a lease it renews the lease,
which also tells which jobs are lost; in between it takes jobs back from dead workers, ends chains
whose deadline has passed, and runs the schedules that are due.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from skep.db.access.slots import ONE_OFF, Caller, Slots
from skep.jobs.schedules import Scheduler
from skep.jobs.signals import Announcements, Signals
from skep.jobs.store import EXPIRE_CALL, REAP_CALL, RENEW_CALL
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

RENEWALS_PER_LEASE: Final = 3
REAP_BATCH: Final = 500
RECOVERY_S: Final = 1.0
STOP_S: Final = 2.0
JOIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Lease:
    """What is renewed: the worker's id, for how long, and the claims it works on."""

    worker_id: Callable[[], UUID]
    seconds: float
    claims: Callable[[], Mapping[UUID, int]]
    """Job ids and attempts; must be safe to call from another thread."""


class Upkeep:
    """The thread."""

    def __init__(
        self,
        dsn: str,
        lease: Lease,
        on_lost: Callable[[dict[UUID, str]], None],
        on_lease_lost: Callable[[str], None],
        *,
        uses_notify: bool,
    ) -> None:
        self._dsn: Final = dsn
        self._lease: Final = lease
        self._on_lost: Final = on_lost
        self._on_lease_lost: Final = on_lease_lost
        self._uses_notify: Final = uses_notify
        self._thread: Final = threading.Thread(target=self._run, name="skep-upkeep", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_ready: Final = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self._is_ready.wait(JOIN_S)

    async def stop(self) -> None:
        """Let it end; the lease is not renewed any more."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(self._thread.join, JOIN_S)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._is_ready.set()
        slots = Slots(
            self._dsn,
            size=1,
            server_settings=ONE_OFF,
            statement_timeout_s=self._lease.seconds,
            patience_s=self._lease.seconds,
            application_name="skep-jobs-upkeep",
        )
        work = self._loop.create_task(self._keep_up(slots))
        await self._stopping.wait()
        # A step under way may end; one that waits for the database may not.
        await asyncio.wait([work], timeout=STOP_S)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await slots.close()

    async def _keep_up(self, slots: Slots) -> None:
        assert self._loop is not None
        assert self._stopping is not None
        await self._connect(slots)
        announcements = Announcements(slots, is_silent=not self._uses_notify)
        scheduler = Scheduler(slots)
        renewed_at = self._loop.time()
        renewal_due_at = renewed_at
        while not self._stopping.is_set():
            if self._loop.time() >= renewal_due_at:
                renewal_due_at = self._loop.time() + self._lease.seconds / RENEWALS_PER_LEASE
                renewed_at = await self._renew(slots, renewed_at)
            try:
                await recover(slots, announcements)
                await scheduler.run_due()
            except SkepError as error:
                _log.warning("Job upkeep failed, trying again: %s", error)
            await self._rest(min(RECOVERY_S, max(renewal_due_at - self._loop.time(), 0.01)))
        await announcements.flush()

    async def _connect(self, slots: Slots) -> None:
        assert self._stopping is not None
        while not self._stopping.is_set():
            try:
                await slots.open()
            except SkepError as error:
                _log.warning("Job upkeep could not connect, trying again: %s", error)
                await self._rest(RECOVERY_S)
            else:
                return

    async def _renew(self, slots: Slots, renewed_at: float) -> float:
        """Renew the lease; return when it was renewed last, as this side can be sure of."""
        assert self._loop is not None
        asked_at = self._loop.time()
        claims = self._lease.claims()
        try:
            rows = await slots.call(
                RENEW_CALL,
                self._lease.worker_id(),
                self._lease.seconds,
                list(claims.keys()),
                list(claims.values()),
            )
        except SkepError as error:
            _log.warning("Could not renew the lease of this worker: %s", error)
            if self._loop.time() - renewed_at > self._lease.seconds:
                self._on_lease_lost("lease_expired")
                return self._loop.time()
            return renewed_at
        lost = {row["job_id"]: row["reason"] for row in rows}
        if None in lost:
            self._on_lease_lost("worker_lost")
        elif lost:
            self._on_lost(lost)
        return asked_at

    async def _rest(self, seconds: float) -> None:
        assert self._stopping is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


async def recover(caller: Caller, announcements: Announcements) -> None:
    """Take jobs back from dead workers, and end chains whose deadline has passed."""
    has_more = True
    while has_more:
        rows = await caller.call(REAP_CALL, REAP_BATCH)
        has_more = bool(rows) and rows[0]["has_more"]
        if rows:
            _log.info("Took %d jobs back from dead workers", len(rows))
        names, lost = [row["type"] for row in rows], [row["job_id"] for row in rows]
        announcements.add(Signals(types_ready=names, jobs_lost=lost))
    rows = await caller.call(EXPIRE_CALL, REAP_BATCH)
    lost = [row["job_id"] for row in rows if row["job_id"] is not None]
    announcements.add(Signals(chains_closed=[row["chain_id"] for row in rows], jobs_lost=lost))
