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
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from skep.db.access.slots import ONE_OFF, Caller, Slots
from skep.jobs import store
from skep.jobs.schedules import Scheduler
from skep.jobs.signals import Announcements, Signals
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

RENEWALS_PER_LEASE: Final = 3
REAP_BATCH: Final = 500
RECOVERY_S: Final = 1.0
STOP_S: Final = 2.0
JOIN_S: Final = 10.0


@dataclass(slots=True, eq=False)
class Upkeep:
    """The thread."""

    dsn: str
    worker_id: Callable[[], UUID]
    lease_s: float
    claims: Callable[[], Mapping[UUID, int]]
    """The job ids and attempts it works on; safe to call from another thread."""
    on_lost: Callable[[dict[UUID, str]], None]
    on_lease_lost: Callable[[str], None]
    uses_notify: bool
    thread: threading.Thread = field(init=False)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        """Start the thread."""
        self.thread = threading.Thread(target=self._run, name="skep-upkeep", daemon=True)
        self.thread.start()

    async def stop(self) -> None:
        """Let it end; the lease is not renewed any more."""
        self.loop.call_soon_threadsafe(self.stopping.set)
        await asyncio.to_thread(self.thread.join, JOIN_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        slots = Slots(
            self.dsn,
            size=1,
            server_settings=ONE_OFF,
            statement_timeout_s=self.lease_s,
            patience_s=self.lease_s,
            application_name="skep-jobs-upkeep",
        )
        work = self.loop.create_task(self._keep_up(slots))
        await self.stopping.wait()
        # A step under way may end; one that waits for the database may not.
        await asyncio.wait([work], timeout=STOP_S)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await slots.close()

    async def _keep_up(self, slots: Slots) -> None:
        await self._connect(slots)
        announcements = Announcements(slots, is_silent=not self.uses_notify)
        scheduler = Scheduler(slots)
        renewed_at = self.loop.time()
        renewal_due_at = renewed_at
        while not self.stopping.is_set():
            if self.loop.time() >= renewal_due_at:
                renewal_due_at = self.loop.time() + self.lease_s / RENEWALS_PER_LEASE
                renewed_at = await self._renew(slots, renewed_at)
            try:
                await recover(slots, announcements)
                await scheduler.run_due()
            except SkepError as error:
                _log.warning("Job upkeep failed, trying again: %s", error)
            await self._rest(min(RECOVERY_S, max(renewal_due_at - self.loop.time(), 0.01)))
        await announcements.flush()

    async def _connect(self, slots: Slots) -> None:
        while not self.stopping.is_set():
            try:
                await slots.open()
            except SkepError as error:
                _log.warning("Job upkeep could not connect, trying again: %s", error)
                await self._rest(RECOVERY_S)
            else:
                return

    async def _renew(self, slots: Slots, renewed_at: float) -> float:
        """Renew the lease; return when it was renewed last, as this side can be sure of."""
        asked_at = self.loop.time()
        claims = self.claims()
        try:
            lease = (self.worker_id(), self.lease_s)
            rows = await slots.call(store.RENEW_CALL, *lease, list(claims), list(claims.values()))
        except SkepError as error:
            _log.warning("Could not renew the lease of this worker: %s", error)
            if self.loop.time() - renewed_at > self.lease_s:
                self.on_lease_lost("lease_expired")
                return self.loop.time()
            return renewed_at
        lost = {row["job_id"]: row["reason"] for row in rows}
        if None in lost:
            self.on_lease_lost("worker_lost")
        elif lost:
            self.on_lost(lost)
        return asked_at

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()


async def recover(caller: Caller, announcements: Announcements) -> None:
    """Take jobs back from dead workers, and end chains whose deadline has passed."""
    has_more = True
    while has_more:
        rows = await caller.call(store.REAP_CALL, REAP_BATCH)
        has_more = bool(rows) and rows[0]["has_more"]
        for row in rows:
            _log.log(
                logging.ERROR if row["is_failed"] else logging.WARNING,
                "Job %s (%s) of chain %s failed in attempt %d%s: worker %s was lost",
                row["job_id"],
                row["type"],
                row["chain_id"],
                row["attempt"],
                ", the last" if row["is_failed"] else ", retrying",
                row["worker_id"],
            )
        names, lost = [row["type"] for row in rows], [row["job_id"] for row in rows]
        announcements.add(Signals(types_ready=names, jobs_lost=lost))
    rows = await caller.call(store.EXPIRE_CALL, REAP_BATCH)
    for row in rows:
        reason = "its deadline has passed" if row["is_late"] else "a chain that it waits for failed"
        _log.error("Chain %s (%s) failed: %s", row["chain_id"], row["type"], reason)
    lost = [row["job_id"] for row in rows if row["job_id"] is not None]
    announcements.add(Signals(chains_closed=[row["chain_id"] for row in rows], jobs_lost=lost))
