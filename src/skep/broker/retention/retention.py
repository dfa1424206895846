"""Delete expired messages, evict those that waited too long, remove what is idle or left behind.

A run goes through the queues with work to do, in steps. Each step is one call of a function that
checks the lease it runs under, reads a bounded number of rows and writes the history in the same
transaction. `StepSize` (pure) keeps steps near the same length; the housekeeper pauses between
them. SQL decides what may be deleted, under the locks of the partitions.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from skep.broker.cluster.leadership import RESIGN_CALL, TAKE_CALL, Term
from skep.db.access.errors import LeadershipLost
from skep.db.access.slots import Caller
from skep.model.errors import Refused
from skep.telemetry.meters import NoteLetters

WORK_CALL: Final = "select queue_id, kind from skep.retention_work()"
RETAIN_CALL: Final = "select * from skep.apply_retention($1, $2, $3, $4, $5, $6, $7)"
EVICT_CALL: Final = "select * from skep.evict_waiting($1, $2, $3, $4, $5, $6, $7, $8, $9)"
CLEAN_CALL: Final = "select * from skep.remove_idle_partitions($1, $2, $3, $4, $5, $6)"
PURGE_LETTERS_CALL: Final = "select skep.purge_dead_letters($1, $2, $3, $4, $5)"
PURGE_HISTORY_CALL: Final = "select skep.purge_history($1, $2, $3, $4)"
PURGE_REDRIVES_CALL: Final = "select skep.purge_redrives($1, $2, $3, $4)"
NOW_CALL: Final = "select skep.now()"
SWEEP_STAGING_CALL: Final = "select skep.sweep_staging(skep.now() - $1::interval, $2)"

STEP_S: Final = 0.05
"""How long a step should take: pushes into the partitions it works on wait for it."""
STEP_SIZE_FIRST: Final = 100
STEP_SIZE_MIN: Final = 10
SLICE_S: Final = 0.1
"""Quick steps of a run, over queues with nothing to do, follow one another for so long."""
SCOUT_SEGMENTS_MAX: Final = 100_000
"""Old segments kept by a lagging group that a run checks in a queue. The next run goes on there."""
PARTITIONS_PER_STEP: Final = 2_000
"""Partitions that the search for idle ones checks."""
PURGE_BATCH: Final = 1_000
PURGE_INTERVAL_S: Final = 300.0
REDRIVE_KEEP_DAYS: Final = 30
"""How long the outcome of a redrive can be queried."""
CLEANUP_INTERVAL_S: Final = 10.0
"""Between two steps over some partitions: a hundred thousand take ten minutes."""
DAY_S: Final = 86_400

REQUESTED_SERVICE: Final = "retention by request"
REQUESTED_S_MAX: Final = 10.0
"""How long a requested run may take."""

STAGING_KEEP: Final = timedelta(days=1)
"""A Spark write that takes longer from its first row to its commit is refused, and starts again."""
STAGING_STEP: Final = 500
"""Rows of each table; a staged segment is up to a hundred kilobytes."""
STAGING_INTERVAL_S: Final = 600.0

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StepSize:
    """How many rows a step processes, so that it ends in time."""

    __slots__ = ("_largest", "current")

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self.current = min(STEP_SIZE_FIRST, largest)

    def adapt(self, spent_s: float) -> None:
        """Halve after a long step, double after a short one."""
        if spent_s > STEP_S:
            self.current = max(min(STEP_SIZE_MIN, self._largest), self.current // 2)
        elif spent_s < STEP_S / 2:
            self.current = min(self._largest, self.current * 2)


class Limits(NamedTuple):
    """The most a step may process."""

    segments: int
    messages: int


class EvictionStop(NamedTuple):
    """Where a step of eviction stopped: a group, and a place among its ready partitions."""

    group_id: int = 0
    after_at: datetime = _EPOCH
    after_id: int = 0


class RetentionRun:
    """One pass through the queues with messages to delete or evict."""

    def __init__(
        self,
        caller: Caller,
        term: Term,
        limits: Limits,
        *,
        resume: dict[int, int],
        note_letters: NoteLetters,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a run under a lease.

        `resume` is, by queue, where the search for completed segments goes on; kept up to date.
        """
        self.run_id: Final = uuid4()
        self.removed: Final[Counter[str]] = Counter()
        """Messages removed so far, by kind."""
        self._caller: Final = caller
        self._term: Final = term
        self._resume: Final = resume
        self._note_letters: Final = note_letters
        self._now: Final = now
        self._segments: Final = StepSize(limits.segments)
        self._messages: Final = StepSize(limits.messages)
        self._work: deque[tuple[int, str]] = deque()
        self._reached = 0
        self._scouted = 0
        self._stop = EvictionStop()
        self._began_at = _EPOCH

    async def begin(self, kinds: Sequence[str]) -> None:
        """Find out what there is to do, of these kinds."""
        rows = await self._caller.call(WORK_CALL)
        self._work = deque((queue_id, kind) for queue_id, kind in rows if kind in kinds)
        (self._began_at,) = (await self._caller.call(NOW_CALL))[0]
        self._turn_to_next()

    async def work_for(self, seconds: float) -> bool:
        """Do steps for so long; return whether there is more."""
        until = self._now() + seconds
        while self._work and self._now() < until:
            await self._step()
        return bool(self._work)

    async def _step(self) -> None:
        queue_id, kind = self._work[0]
        size = self._messages if kind == "eviction" else self._segments
        began = self._now()
        try:
            if kind == "eviction":
                is_done = await self._evict(queue_id, size.current)
            else:
                is_done = await self._retain(queue_id, kind, size.current)
        except Exception:
            # A queue that fails must not block the others.
            self._finish_queue()
            raise
        size.adapt(self._now() - began)
        if is_done:
            self._finish_queue()

    async def _retain(self, queue_id: int, kind: str, size: int) -> bool:
        rows = await self._caller.call(
            RETAIN_CALL, *self._term, self.run_id, queue_id, kind, self._reached, size
        )
        if not rows:
            return True
        messages, segments, _, self._reached, is_done = rows[0]
        self.removed[kind] += messages
        self._scouted = 0 if segments else self._scouted + size
        if kind == "completed":
            self._resume[queue_id] = 0 if is_done else self._reached
        return is_done or self._scouted >= SCOUT_SEGMENTS_MAX

    async def _evict(self, queue_id: int, size: int) -> bool:
        rows = await self._caller.call(
            EVICT_CALL, *self._term, self.run_id, queue_id, *self._stop, self._began_at, size
        )
        if not rows:
            return True
        messages, _, group_id, after_at, after_id, is_done, queue, letters = rows[0]
        self._note_letters(queue, letters)
        self.removed["eviction"] += messages
        self._stop = EvictionStop(group_id, after_at, after_id)
        return is_done

    def _finish_queue(self) -> None:
        self._work.popleft()
        self._turn_to_next()

    def _turn_to_next(self) -> None:
        self._scouted = 0
        self._stop = EvictionStop()
        self._reached = 0
        if self._work and self._work[0][1] == "completed":
            self._reached = self._resume.get(self._work[0][0], 0)


class RetentionDuty:
    """Runs retention again and again, for some kinds of work."""

    def __init__(
        self,
        caller: Caller,
        term: Term,
        *,
        name: str,
        kinds: Sequence[str],
        interval_s: float,
        limits: Limits,
        note_letters: NoteLetters,
    ) -> None:
        self.name: Final = name
        self.interval_s: Final = interval_s
        self._caller: Final = caller
        self._term: Final = term
        self._kinds: Final = tuple(kinds)
        self._limits: Final = limits
        self._note_letters: Final = note_letters
        self._resume: dict[int, int] = {}
        self._run: RetentionRun | None = None

    async def run(self) -> bool:
        """Begin a run or go on with it."""
        if self._run is None:
            run = RetentionRun(
                self._caller,
                self._term,
                self._limits,
                resume=self._resume,
                note_letters=self._note_letters,
            )
            await run.begin(self._kinds)
            self._run = run
        try:
            has_more = await self._run.work_for(SLICE_S)
        except LeadershipLost:
            self._run = None
            raise
        if not has_more:
            self._run = None
        return has_more


class CleanupDuty:
    """Removes partitions that are idle for long, checking some at a time."""

    def __init__(self, caller: Caller, term: Term, *, idle_days: int) -> None:
        self.name: Final = "partition cleanup"
        self.interval_s: Final = CLEANUP_INTERVAL_S
        self._caller: Final = caller
        self._term: Final = term
        self._idle_s: Final = idle_days * DAY_S
        self._reached = 0

    async def run(self) -> bool:
        """Check some partitions; never more before the next interval."""
        rows = await self._caller.call(
            CLEAN_CALL, *self._term, uuid4(), self._reached, PARTITIONS_PER_STEP, self._idle_s
        )
        _, reached, is_done = rows[0]
        self._reached = 0 if is_done else reached
        return False


class PurgeDuty:
    """Deletes dead letters, records of redrives and history that were kept long enough."""

    def __init__(
        self, caller: Caller, term: Term, *, dead_letter_s: int, history_days: int
    ) -> None:
        self.name: Final = "purge of dead letters, redrives and history"
        self.interval_s: Final = PURGE_INTERVAL_S
        self._caller: Final = caller
        self._term: Final = term
        self._dead_letter_s: Final = dead_letter_s
        self._history_s: Final = history_days * DAY_S
        self._run_id: UUID | None = None

    async def run(self) -> bool:
        """Delete a batch of each."""
        self._run_id = self._run_id or uuid4()
        has_more = await self._purge(PURGE_HISTORY_CALL, self._history_s)
        has_more |= await self._purge(PURGE_REDRIVES_CALL, REDRIVE_KEEP_DAYS * DAY_S)
        if self._dead_letter_s:
            has_more |= await self._purge(PURGE_LETTERS_CALL, self._run_id, self._dead_letter_s)
        if not has_more:
            self._run_id = None
        return has_more

    async def _purge(self, call: str, *arguments: object) -> bool:
        ((count,),) = await self._caller.call(call, *self._term, *arguments, PURGE_BATCH)
        return count >= PURGE_BATCH


class StagingSweep:
    """Removes what writers on Spark left behind, a step at a time."""

    def __init__(self, caller: Caller) -> None:
        self.name: Final = "sweep of staging"
        self.interval_s: Final = STAGING_INTERVAL_S
        self._caller: Final = caller

    async def run(self) -> bool:
        """Remove a step's worth; return whether there may be more."""
        ((count,),) = await self._caller.call(SWEEP_STAGING_CALL, STAGING_KEEP, STAGING_STEP)
        return count >= STAGING_STEP


class RequestedRun(NamedTuple):
    """What a requested run did."""

    run_id: UUID
    removed: Counter[str]
    is_complete: bool
    """False when it ran out of time; the leader or another request goes on."""


class RetentionOnRequest:
    """Runs retention on request, in the process that got the request.

    The run has a lease of its own, so it needs no leader and two cannot overlap. It may run beside
    one of the leader: both lock the partitions they delete from.
    """

    def __init__(self, caller: Caller, limits: Limits, note_letters: NoteLetters) -> None:
        self._caller: Final = caller
        self._limits: Final = limits
        self._note_letters: Final = note_letters

    async def run(self) -> RequestedRun:
        """Run to the end, or for `REQUESTED_S_MAX`.

        Raises:
            Refused: Another such run is under way.
        """
        term = Term(REQUESTED_SERVICE, uuid4())
        rows = await self._caller.call(TAKE_CALL, *term, 3 * REQUESTED_S_MAX)
        if not rows[0][0]:
            raise Refused("another requested retention run is under way; try again later")
        try:
            run = RetentionRun(
                self._caller, term, self._limits, resume={}, note_letters=self._note_letters
            )
            await run.begin(("retention", "completed", "eviction"))
            until = time.monotonic() + REQUESTED_S_MAX
            has_more = True
            while has_more and time.monotonic() < until:
                has_more = await run.work_for(SLICE_S)
                await asyncio.sleep(SLICE_S if has_more else 0)
        finally:
            await self._caller.call(RESIGN_CALL, *term)
        return RequestedRun(run.run_id, run.removed, not has_more)
