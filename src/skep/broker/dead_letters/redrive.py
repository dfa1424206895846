"""Redrive: move many dead letters, as a job that outlives the process that began it.

A job is a row: which letters, where to, how far it got. Its batches are transactions that move
letters and its progress together, so it can stop and resume anywhere. The process that accepted it
works on it; a job without progress for a minute is taken over, by any process. Letters that die
after the start are not part of a job.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID, uuid4

import msgspec

from skep.broker.dead_letters.letters import Batch, DeadLetters, Letter, LetterFilter, Target
from skep.broker.paging import from_row
from skep.broker.polling_loop import repeat
from skep.db.access.errors import NotExecuted
from skep.db.access.functions import Functions
from skep.model.errors import NotFound, Refused, SkepError, Unavailable

BATCH: Final = 500
"""Letters in one transaction: their partitions are held until it commits."""

COUNT_MAX: Final = 1_000_000
"""The total of a job is exact up to here: it is counted once, and progress is measured by it."""

IDLE_S: Final = 60
"""After so long without progress another process takes a job over."""

TAKE_OVER_INTERVAL_S: Final = 30.0
BATCH_TRIES: Final = 3

_log = logging.getLogger(__name__)

_filter_decoder: Final = msgspec.json.Decoder(LetterFilter)
_target_decoder: Final = msgspec.json.Decoder(Target)


class Redrive(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A redrive and how far it got."""

    id: str
    state: Literal["running", "done", "cancelled", "failed"]
    filter: msgspec.Raw
    target: msgspec.Raw
    limit: int | None
    total: int
    total_is_estimate: bool
    """There are more than `total`."""
    moved: int
    duplicates: int
    """Letters kept because their target holds the message already."""
    error: str | None
    created_at: datetime
    progressed_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, eq=False)
class Redrives:
    """The redrive jobs of one process, and what one can ask of all of them."""

    sql: Functions
    letters: DeadLetters
    batch: int = BATCH
    owner: UUID = field(default_factory=uuid4, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"], init=False)

    def start(self) -> None:
        """Start to look for abandoned jobs."""
        what = "look for abandoned redrives"
        self._spawn(repeat(self.take_over, what, pause_s=TAKE_OVER_INTERVAL_S))

    async def stop(self) -> None:
        """Leave the jobs to other processes; a batch in flight may still commit."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def begin(
        self,
        chosen: LetterFilter,
        target: Target,
        *,
        limit: int | None = None,
        job_id: UUID | None = None,
        again: bool = False,
    ) -> Redrive:
        """Start a job and return it; with the id of a job that exists, return that one.

        Raises:
            AlreadyRedriven: Letters that are named were redriven, unless `again`.
        """
        target.check()
        if job_id is not None and await self.sql.rows("list_redrives", job_id, 1, 0):
            return await self.describe(job_id)
        chosen = await self.letters.require_dead(chosen, again=again)
        total, is_estimate = await self.letters.count(chosen, COUNT_MAX)
        job_id = job_id or uuid4()
        is_new = await self.sql.value(
            "start_redrive",
            job_id,
            msgspec.json.encode(chosen).decode(),
            msgspec.json.encode(target).decode(),
            limit,
            total if limit is None else min(total, limit),
            is_estimate and (limit is None or limit > total),
            self.owner,
        )
        if is_new:
            self._spawn(self.work_off(job_id))
        return await self.describe(job_id)

    async def describe(self, job_id: UUID) -> Redrive:
        """Return a job."""
        missing = NotFound(f"there is no redrive {job_id}")
        return _redrive(await self.sql.row("list_redrives", job_id, 1, 0, missing=missing))

    async def list_jobs(self, limit: int, offset: int) -> list[Redrive]:
        """Return jobs, the newest first."""
        rows = await self.sql.rows("list_redrives", None, limit, offset)
        return [_redrive(row) for row in rows]

    async def cancel(self, job_id: UUID) -> Redrive:
        """End a job after the batch it is at."""
        was_running = await self.sql.value("finish_redrive", job_id, None, "cancelled", None)
        job = await self.describe(job_id)
        if not was_running and job.state != "cancelled":
            raise Refused(f"redrive {job_id} has ended already: {job.state}")
        return job

    async def take_over(self) -> Sequence[UUID]:
        """Take over jobs without progress, and return them."""
        rows = await self.sql.rows("take_over_redrives", self.owner, IDLE_S)
        job_ids = [row["id"] for row in rows]
        for job_id in job_ids:
            self._spawn(self.work_off(job_id))
        return job_ids

    async def work_off(self, job_id: UUID) -> None:
        """Move what a job of this process asks for, batch by batch, until it ends."""
        try:
            while await self._move_batch(job_id):
                pass
        except Unavailable as error:
            _log.warning("redrive %s paused: %s", job_id, error.message)
        except SkepError as error:
            _log.warning("redrive %s failed: %s", job_id, error.message)
            with suppress(Unavailable):  # the next owner will fail it
                await self.sql.rows("finish_redrive", job_id, self.owner, "failed", error.message)

    async def _move_batch(self, job_id: UUID) -> bool:
        """Move one batch; return whether there may be another."""
        for _ in range(BATCH_TRIES - 1):
            try:
                return await self._try_batch(job_id)
            except NotExecuted:  # another process took a letter of it: look again
                continue
        return await self._try_batch(job_id)

    async def _try_batch(self, job_id: UUID) -> bool:
        rows = await self.sql.rows("list_redrives", job_id, 1, 0)
        if not rows or rows[0]["state"] != "running" or rows[0]["owner"] != self.owner:
            return False
        job = rows[0]
        letters = await self._next_letters(job)
        if not letters:
            await self.sql.rows("finish_redrive", job_id, self.owner, "done", None)
            return False
        batch = Batch(str(job_id), str(self.owner), letters[-1].id)
        moved = await self.letters.move(letters, _target_decoder.decode(job["target"]), batch)
        return bool(moved)

    async def _next_letters(self, job: Any) -> list[Letter]:
        size = self.batch
        if job["letters_max"] is not None:
            size = min(size, job["letters_max"] - job["moved"] - job["duplicates"])
        if size <= 0:
            return []
        chosen = _filter_decoder.decode(job["filter"])
        rows = await self.sql.rows(
            "next_letters", *chosen.arguments(), job["position"], job["last_letter_id"], size
        )
        return [Letter.of(row) for row in rows]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _redrive(row: Any) -> Redrive:
    return from_row(
        Redrive,
        row,
        id=str(row["id"]),
        filter=msgspec.Raw(row["filter"].encode()),
        target=msgspec.Raw(row["target"].encode()),
        limit=row["letters_max"],
        total_is_estimate=row["is_total_estimate"],
    )
