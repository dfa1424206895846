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
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from skep.broker.cluster.housekeeping import CallDuty, Duty
from skep.broker.cluster.leadership import Term
from skep.db.access.errors import LeadershipLost
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import Refused
from skep.telemetry.meters import NoteLetters

WORK_CALL: Final = "select queue_id, kind from skep.retention_work()"
RETAIN_CALL: Final = "select * from skep.apply_retention($1, $2, $3, $4, $5, $6, $7)"
NOW_CALL: Final = "select skep.now()"
SWEEP_STAGING_CALL: Final = "select skep.sweep_staging(skep.now() - $1::interval, $2)"
NOTE_SNAPSHOT_CALL: Final = "select skep.note_snapshot($1, $2)"

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

SNAPSHOT_EVERY: Final = timedelta(hours=1)
SNAPSHOT_KEEP: Final = timedelta(days=400)
SNAPSHOT_INTERVAL_S: Final = 600.0

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


@dataclass(eq=False)
class RetentionRun:
    """One pass under a lease through the queues with messages to delete or evict."""

    sql: Functions
    term: Term
    limits: InitVar[Limits]
    note_letters: NoteLetters
    resume: dict[int, int]
    """By queue, where the search for completed segments goes on; kept up to date."""
    now: Callable[[], float] = time.monotonic
    run_id: UUID = field(default_factory=uuid4)
    removed: Counter[str] = field(default_factory=Counter[str])
    """Messages removed so far, by kind."""

    def __post_init__(self, limits: Limits) -> None:
        self._segments = StepSize(limits.segments)
        self._messages = StepSize(limits.messages)
        self._work: deque[tuple[int, str]] = deque()
        self._began_at = _EPOCH

    async def begin(self, kinds: Sequence[str]) -> None:
        """Find out what there is to do, of these kinds."""
        rows = await self.sql.call(WORK_CALL)
        self._work = deque((queue_id, kind) for queue_id, kind in rows if kind in kinds)
        (self._began_at,) = (await self.sql.call(NOW_CALL))[0]
        self._turn_to_next()

    async def work_for(self, seconds: float) -> bool:
        """Do steps for so long; return whether there is more."""
        until = self.now() + seconds
        while self._work and self.now() < until:
            await self._step()
        return bool(self._work)

    async def _step(self) -> None:
        queue_id, kind = self._work[0]
        size = self._messages if kind == "eviction" else self._segments
        began = self.now()
        try:
            if kind == "eviction":
                is_done = await self._evict(queue_id, size.current)
            else:
                is_done = await self._retain(queue_id, kind, size.current)
        except Exception:
            # A queue that fails must not block the others.
            self._finish_queue()
            raise
        size.adapt(self.now() - began)
        if is_done:
            self._finish_queue()

    async def _retain(self, queue_id: int, kind: str, size: int) -> bool:
        rows = await self.sql.call(
            RETAIN_CALL, *self.term, self.run_id, queue_id, kind, self._reached, size
        )
        if not rows:
            return True
        messages, segments, _, self._reached, is_done = rows[0]
        self.removed[kind] += messages
        self._scouted = 0 if segments else self._scouted + size
        if kind == "completed":
            self.resume[queue_id] = 0 if is_done else self._reached
        return is_done or self._scouted >= SCOUT_SEGMENTS_MAX

    async def _evict(self, queue_id: int, size: int) -> bool:
        rows = await self.sql.rows(
            "evict_waiting", *self.term, self.run_id, queue_id, *self._stop, self._began_at, size
        )
        if not rows:
            return True
        messages, _, group_id, after_at, after_id, is_done, queue, letters = rows[0]
        self.note_letters(queue, letters)
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
            self._reached = self.resume.get(self._work[0][0], 0)


@dataclass(slots=True, eq=False, kw_only=True)
class RetentionDuty:
    """Runs retention again and again, for some kinds of work."""

    name: str
    interval_s: float
    kinds: Sequence[str]
    sql: Functions
    term: Term
    limits: Limits
    note_letters: NoteLetters
    _resume: dict[int, int] = field(default_factory=dict[int, int])
    _run: RetentionRun | None = None

    async def run(self) -> bool:
        """Begin a run or go on with it."""
        if self._run is None:
            run = RetentionRun(self.sql, self.term, self.limits, self.note_letters, self._resume)
            await run.begin(self.kinds)
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
        self._sql: Final = Functions(caller)
        self._term: Final = term
        self._idle_s: Final = idle_days * DAY_S
        self._reached = 0

    async def run(self) -> bool:
        """Check some partitions; never more before the next interval."""
        place = (self._reached, PARTITIONS_PER_STEP)
        _, reached, is_done = await self._sql.row(
            "remove_idle_partitions", *self._term, uuid4(), *place, self._idle_s
        )
        self._reached = 0 if is_done else reached
        return False


@dataclass(slots=True, eq=False)
class PurgeDuty:
    """Deletes dead letters, records of redrives and history that were kept long enough."""

    sql: Functions
    term: Term
    dead_letter_s: int
    history_days: int
    name: str = "purge of dead letters, redrives and history"
    interval_s: float = PURGE_INTERVAL_S
    _run_id: UUID | None = None

    async def run(self) -> bool:
        """Delete a batch of each."""
        self._run_id = self._run_id or uuid4()
        has_more = await self._purge("purge_history", self.history_days * DAY_S)
        has_more |= await self._purge("purge_redrives", REDRIVE_KEEP_DAYS * DAY_S)
        if self.dead_letter_s:
            has_more |= await self._purge("purge_dead_letters", self._run_id, self.dead_letter_s)
        if not has_more:
            self._run_id = None
        return has_more

    async def _purge(self, function: str, *arguments: object) -> bool:
        count = await self.sql.value(function, *self.term, *arguments, PURGE_BATCH)
        return count >= PURGE_BATCH


def staging_sweep(caller: Caller) -> Duty:
    """Return the duty that removes what writers on Spark left behind, a step at a time."""
    return CallDuty(
        "sweep of staging",
        STAGING_INTERVAL_S,
        caller,
        SWEEP_STAGING_CALL,
        (STAGING_KEEP, STAGING_STEP),
        again_from=STAGING_STEP,
    )


def snapshot_notes(caller: Caller) -> Duty:
    """Return the duty that notes for readers on Spark which transactions have ended when."""
    return CallDuty(
        "notes of past snapshots",
        SNAPSHOT_INTERVAL_S,
        caller,
        NOTE_SNAPSHOT_CALL,
        (SNAPSHOT_EVERY, SNAPSHOT_KEEP),
        again_from=inf,
    )


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
        self._sql: Final = Functions(caller)
        self._limits: Final = limits
        self._note_letters: Final = note_letters

    async def run(self) -> RequestedRun:
        """Run to the end, or for `REQUESTED_S_MAX`."""
        term = Term(REQUESTED_SERVICE, uuid4())
        busy = Refused("another requested retention run is under way; try again later")
        await self._sql.value("take_leadership", *term, 3 * REQUESTED_S_MAX, missing=busy)
        try:
            run = RetentionRun(self._sql, term, self._limits, self._note_letters, resume={})
            await run.begin(("retention", "completed", "eviction"))
            until = time.monotonic() + REQUESTED_S_MAX
            has_more = True
            while has_more and time.monotonic() < until:
                has_more = await run.work_for(SLICE_S)
                await asyncio.sleep(SLICE_S if has_more else 0)
        finally:
            await self._sql.rows("resign_leadership", *term)
        return RequestedRun(run.run_id, run.removed, not has_more)
