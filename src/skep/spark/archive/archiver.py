"""Archive queues: copy what is old enough to the lake, run by run.

A run is a closed range of transactions of one queue. It is planned in the database, copied by
tasks into files that no snapshot refers to, and committed in one transaction: the files to the
catalog, the watermark of the queue, and the deletion of what no group waits for in the live log. A
failure before that leaves a planned run; the next process takes it over with the same bounds and
removes the files of earlier attempts. Nothing here cleans up after a failure, because after a crash
nothing would.

One process archives at a time, by a lock that ends with its connection. SQL decides what may be
copied and deleted: `skep.begin_archive`, `skep.delete_archived`.

`ArchiveService` repeats rounds for as long as a process lives. A round that lost its database has
done no harm; the service logs it, waits, longer each time up to a bound, and starts again. It ends
on request, and for every failure that retrying cannot fix. Every round leaves files and a snapshot,
and every commit goes through all snapshots, so the service also compacts.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, text

from skep.model.errors import NotFound, Refused, SkepError, Unavailable
from skep.spark.archive.archive_files import Copied, CopyTask, copy_split
from skep.spark.archive.lake import METADATA, Lake
from skep.spark.runtime.tasks import OnProgress, RunTasks
from skep.spark.source.message_log import MessageLog, Partitions
from skep.spark.source.options import ReadOptions, Subscription
from skep.spark.source.positions import Address, Snapshot, Span

MESSAGES_PER_RUN: Final = 1_000_000
SEGMENTS_PER_RUN: Final = 50_000
"""Bounds how long the partitions of a run are locked while their segments go."""
MESSAGES_PER_TASK: Final = 250_000
SEGMENTS_PER_SWEEP: Final = 1_000
EVERYTHING: Final = 2**31 - 1

WORK: Final = "select * from skep.archive_work(:queues)"
SYSTEM: Final = "select skep.system_identity()"
BEGIN: Final = "select * from skep.begin_archive(:queue_id, :messages, :segments)"
FINISH: Final = "select skep.finish_archive(:run_id, :attempt, :messages)"
DELETE: Final = "select * from skep.delete_archived(:run_id, :queue_id, :after, :limit)"

OnStep = Callable[[str], None]
"""Is told what has just been done: planned, copied, finished, added, deleted, committed, swept."""


OnRun = Callable[[str, int], None]
"""Is told the queue of a run that begins, and about how many messages it is."""


class ArchiveBusy(Refused):
    """Another process is archiving this database."""

    code: ClassVar[str] = "archive_busy"


class ForeignArchive(Refused):
    """The archive belongs to the server from which this database was restored."""

    code: ClassVar[str] = "foreign_archive"


class ArchiveRun(NamedTuple):
    """A run as it was planned."""

    run_id: str
    attempt: int
    since: int
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """What to archive, and how."""

    url: str
    warehouse: str | None = None
    queues: tuple[str, ...] = ()
    """Names; none for every queue that has `archiveAfterSeconds`."""
    statement_timeout_s: float = 300.0
    messages_per_run: int = MESSAGES_PER_RUN
    segments_per_run: int = SEGMENTS_PER_RUN
    messages_per_task: int = MESSAGES_PER_TASK


@dataclass(slots=True)
class Archived:
    """What was done."""

    runs: int = 0
    files: int = 0
    messages: int = 0
    bytes: int = 0
    deleted: int = 0
    """Messages that left the live log."""
    queues: list[str] = field(default_factory=list[str])


class Archiver:
    """Archives the queues of one database."""

    def __init__(
        self,
        lake: Lake,
        plan: ArchivePlan,
        run_tasks: RunTasks,
        *,
        on_run: OnRun = lambda _queue, _messages: None,
        on_progress: OnProgress = lambda _messages, _bytes: None,
        on_step: OnStep = lambda _step: None,
    ) -> None:
        self._lake: Final = lake
        self._plan: Final = plan
        self._run_tasks: Final = run_tasks
        self._on_run: Final = on_run
        self._on_progress: Final = on_progress
        self._on_step: Final = on_step

    def archive(self) -> Archived:
        """Copy everything that is old enough now, and delete what no group waits for.

        Raises:
            ArchiveBusy: Another process is archiving.
            ForeignArchive: The database was restored from a dump.
            NotFound: A queue that was named does not exist, or has no archive.
        """
        done = Archived()
        with archive_lock(self._lake) as connection:
            work = self._work(connection)
            if not work:
                return done
            system = connection.scalar(text(SYSTEM))
            self._lake.ensure_table(self._plan.warehouse, str(system))
            if any(row.is_open for row in work):
                # What a commit that failed wrote about the table.
                self._lake.remove_unreferenced(METADATA)
            for row in work:
                self._archive_queue(connection, row.queue_id, row.queue, done)
        return done

    def _work(self, connection: Connection) -> Sequence[Any]:
        names = list(self._plan.queues) or None
        work = connection.execute(text(WORK), {"queues": names}).all()
        if missing := sorted(set(self._plan.queues) - {row.queue for row in work}):
            raise NotFound(
                f"queue {', '.join(missing)} does not exist or has no archive: set its option "
                "archiveAfterSeconds"
            )
        require_own_archive(work)
        return work

    def _archive_queue(
        self, connection: Connection, queue_id: int, queue: str, done: Archived
    ) -> None:
        while (run := self._begin(connection, queue_id)) is not None:
            self._on_step("planned")
            copied = self._copy(run, queue_id, queue)
            self._on_step("copied")
            done.deleted += self._commit(run, queue_id, copied)
            self._on_step("committed")
            done.runs += 1
            done.files += sum(len(each.files) for each in copied)
            done.messages += sum(each.messages for each in copied)
            done.bytes += sum(each.bytes for each in copied)
            if queue not in done.queues:
                done.queues.append(queue)
        done.deleted += self._sweep(connection, queue_id)
        self._on_step("swept")

    def _begin(self, connection: Connection, queue_id: int) -> ArchiveRun | None:
        plan = self._plan
        limits = {"messages": plan.messages_per_run, "segments": plan.segments_per_run}
        row = connection.execute(text(BEGIN), {"queue_id": queue_id, **limits}).one_or_none()
        return (
            None if row is None else ArchiveRun(str(row.run_id), row.attempt, row.since, row.upto)
        )

    def _copy(self, run: ArchiveRun, queue_id: int, queue: str) -> list[Copied]:
        directory = f"{self._lake.table().location()}/data/{run.run_id}"
        if run.attempt > 1:
            self._lake.storage.remove(self._lake.storage.list(directory))
        tasks = [
            CopyTask(
                url=self._plan.url,
                statement_timeout_s=self._plan.statement_timeout_s,
                storage=self._lake.storage.properties,
                run_id=run.run_id,
                attempt=run.attempt,
                directory=f"{directory}/{run.attempt}",
                number=number,
                queue_id=queue_id,
                queue=queue,
                span=span,
            )
            for number, span in enumerate(self._splits(run, queue_id, queue))
        ]
        return self._run_tasks(tasks, copy_split, self._on_progress)

    def _splits(self, run: ArchiveRun, queue_id: int, queue: str) -> list[Span]:
        plan = self._plan
        options = ReadOptions(
            url=plan.url,
            subscription=Subscription((queue,)),
            statement_timeout_s=plan.statement_timeout_s,
        )
        seen, upto = Snapshot(run.since), Snapshot(run.upto)
        sizes = MessageLog(options).divide(
            Span(seen, upto),
            Partitions((queue_id,), (queue,), None),
            None,
            share=plan.messages_per_task,
        )
        self._on_run(queue, sum(size.messages for size in sizes))
        ends: list[Address | None] = [None, *(size.last for size in sizes)]
        return [Span(seen, upto, after, through) for after, through in pairwise(ends)]

    def _commit(self, run: ArchiveRun, queue_id: int, copied: list[Copied]) -> int:
        files = [file for each in copied for file in each.files]
        with self._lake.transaction() as connection:
            is_ours = connection.scalar(
                text(FINISH),
                {
                    "run_id": run.run_id,
                    "attempt": run.attempt,
                    "messages": sum(each.messages for each in copied),
                },
            )
            if not is_ours:
                raise ArchiveBusy(
                    f"archive run {run.run_id} is not ours any more: another process has taken it "
                    "over, or its queue was deleted"
                )
            self._on_step("finished")
            self._lake.add(self._lake.table(), files, run=run.run_id)
            self._on_step("added")
            # Last, because pushes into the partitions wait from here to the end of the transaction.
            deleted = _delete(connection, run.run_id, queue_id, run.since - 1, EVERYTHING)
            self._on_step("deleted")
        return deleted.messages

    def _sweep(self, connection: Connection, queue_id: int) -> int:
        """Delete what was archived earlier and has been read since."""
        messages, after, is_done, run_id = 0, 0, False, str(uuid4())
        while not is_done:
            row = _delete(connection, run_id, queue_id, after, SEGMENTS_PER_SWEEP)
            messages, after, is_done = messages + row.messages, row.reached, row.is_done
        return messages


def _delete(connection: Connection, run_id: str, queue_id: int, after: int, limit: int) -> Any:
    """Delete archived messages that no group waits for, from transactions after one."""
    place = {"run_id": run_id, "queue_id": queue_id, "after": after, "limit": limit}
    return connection.execute(text(DELETE), place).one()


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """How far a queue is archived."""

    queue: str
    messages: int
    archived_at: datetime | None
    state: str


def archive_status(lake: Lake, queues: tuple[str, ...]) -> list[QueueStatus]:
    """Return how far queues are archived; all that have an archive if none is named."""
    with lake.connect() as connection:
        rows = connection.execute(text(WORK), {"queues": list(queues) or None}).all()
    return [QueueStatus(row.queue, row.messages, row.archived_at, _state(row)) for row in rows]


def _state(row: Any) -> str:
    if row.is_foreign:
        return "of another server"
    if row.is_open:
        return "run not finished"
    return "" if row.is_wanted else "off"


def require_own_archive(work: Sequence[Any]) -> None:
    """Make sure that no watermark comes from another server; raise `ForeignArchive` if one does."""
    if any(row.is_foreign for row in work):
        raise ForeignArchive(
            "this database was restored from a dump, and its archive belongs to the server it "
            "came from. Run `select skep.forget_archive()` in it once to begin a new archive; the "
            "files of the old one stay where they are"
        )


def archive_lock(lake: Lake) -> AbstractContextManager[Connection]:
    """Be the only process that changes the lake; raise `ArchiveBusy` if another one does."""
    busy = ArchiveBusy("another process is archiving this database; wait for its end")
    return lake.locked("archive", busy)


COMPACT_EVERY_S: Final = 86_400.0
PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
_log: Final = logging.getLogger(__name__)


class ArchiveService:
    """Repeats the rounds of one archivist."""

    def __init__(
        self,
        archive: Callable[[], None],
        *,
        every_s: float,
        before_waiting: Callable[[], None],
        compact: Callable[[], None] | None = None,
        compact_every_s: float = COMPACT_EVERY_S,
        pause_first_s: float = PAUSE_FIRST_S,
        pause_max_s: float = PAUSE_MAX_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            archive: One round; it raises Unavailable when the database is away.
            every_s: From the end of a round to the next one.
            before_waiting: Is called when the database is away, and raises if waiting is in vain.
            compact: Merges small files; it raises what `archive` does. None: never.
            compact_every_s: From one compaction to the next.
            pause_first_s: Before the first repetition of a round that failed; it doubles.
            pause_max_s: What the pause does not exceed.
            clock: Monotonic seconds.
        """
        self._archive: Final = archive
        self._every_s: Final = every_s
        self._before_waiting: Final = before_waiting
        self._compact: Final = compact
        self._compact_every_s: Final = compact_every_s
        self._clock: Final = clock
        self._compact_at = clock()
        self._pause_first_s: Final = pause_first_s
        self._pause_max_s: Final = pause_max_s
        self._failures = 0

    def run(self, stop: threading.Event) -> None:
        """Archive until the event is set; a round that is under way is brought to its end."""
        while not stop.wait(self._round()):
            pass

    def _round(self) -> float:
        """Archive once; return how long to wait before the next round."""
        try:
            self._archive()
            self._compact_if_due()
        except Unavailable as error:
            return self._outage(error)
        except ArchiveBusy as error:
            if not self._failures:
                raise
            # The lock of the connection that was lost: the server has yet to notice.
            return self._outage(error)
        if self._failures:
            _log.warning("the database is back: archived what had become old meanwhile")
        self._failures = 0
        return self._every_s

    def _compact_if_due(self) -> None:
        if self._compact is not None and self._clock() >= self._compact_at:
            self._compact()
            self._compact_at = self._clock() + self._compact_every_s

    def _outage(self, error: SkepError) -> float:
        self._before_waiting()
        pause_s = min(self._pause_max_s, self._pause_first_s * 2**self._failures)
        self._failures += 1
        _log.warning(
            "a round of the archive was cut short: %s. The archive is whole; trying again in %g s",
            error.message,
            pause_s,
        )
        return pause_s
