"""Archive queues: copy what is old enough to the lake, run by run.

A run is a closed range of transactions of one queue. It is planned in the database, copied by
tasks into files that no snapshot refers to, and committed in one transaction: the files to the
catalog, the watermark of the queue, and the deletion of what no group waits for in the live log. A
failure before that leaves a planned run; the next process takes it over with the same bounds and
removes the files of earlier attempts. Nothing here cleans up after a failure, because after a crash
nothing would.

One process archives at a time, by a lock that ends with its connection. SQL decides what may be
copied and deleted: `skep.begin_archive`, `skep.delete_archived`.

`archive_repeatedly` repeats rounds for as long as a process lives. A round that lost its database
has done no harm: it is logged and repeated after a pause, longer each time up to a bound. The
service ends on request, and for every failure that retrying cannot fix. Every round leaves files
and a snapshot, and every commit goes through all snapshots, so the service also compacts.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyiceberg.table import Table
from sqlalchemy import Connection, text

from skep.model.errors import NotFound, Refused, SkepError, Unavailable
from skep.spark.archive.copy_task import Copied, CopyTask, copy_split
from skep.spark.archive.lake import FOREIGN, ForeignArchive, Lake
from skep.spark.archive.typed_table import ensure_typed_table, find_typed_table, layout_of
from skep.spark.runtime.tasks import OnProgress, RunTasks
from skep.spark.source.message_log import MessageLog, Partitions
from skep.spark.source.options import ReadOptions, Subscription
from skep.spark.source.positions import Snapshot, Span

MESSAGES_PER_RUN: Final = 1_000_000
SEGMENTS_PER_RUN: Final = 50_000
"""Bounds how long the partitions of a run are locked while their segments go."""
MESSAGES_PER_TASK: Final = 250_000
SEGMENTS_PER_SWEEP: Final = 1_000
EVERYTHING: Final = 2**31 - 1

WORK: Final = "select * from skep.archive_work(:queues)"
BEGIN: Final = (
    "select run_id::text, attempt, since, upto "
    "from skep.begin_archive(:queue_id, :messages, :segments)"
)
FINISH: Final = "select skep.finish_archive(:run_id, :attempt, :messages)"
DELETE: Final = "select * from skep.delete_archived(:run_id, :queue_id, :after, :limit)"

OnStep = Callable[[str], None]
"""Is told what has just been done: planned, copied, finished, added, deleted, committed, swept."""


OnRun = Callable[[str, int], None]
"""Is told the queue of a run that begins, and about how many messages it is."""


class ArchiveBusy(Refused):
    """Another process is archiving this database."""


class ArchiveRun(NamedTuple):
    """A run as it was planned."""

    queue_id: int
    queue: str
    is_typed: bool
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


@dataclass(frozen=True, slots=True, eq=False)
class Archiver:
    """Archives the queues of one database."""

    lake: Lake
    plan: ArchivePlan
    run_tasks: RunTasks
    on_run: OnRun = lambda _queue, _messages: None
    on_progress: OnProgress = lambda _messages, _bytes: None
    on_step: OnStep = lambda _step: None

    def archive(self) -> Archived:
        """Copy everything that is old enough now, and delete what no group waits for.

        Raises `ArchiveBusy`, `ForeignArchive`, or `NotFound` if a queue that was named does not
        exist or has no archive.
        """
        done = Archived()
        with archive_lock(self.lake) as connection:
            work = self._work(connection)
            if not work:
                return done
            self.lake.ensure_table(self.plan.warehouse)
            for row in work:
                self._archive_queue(connection, row, done)
        return done

    def _work(self, connection: Connection) -> Sequence[Any]:
        names = list(self.plan.queues) or None
        work = connection.execute(text(WORK), {"queues": names}).all()
        if missing := sorted(set(self.plan.queues) - {row.queue for row in work}):
            raise NotFound(
                f"queue {', '.join(missing)} does not exist or has no archive: set its option "
                "archiveAfterSeconds"
            )
        if any(row.is_foreign for row in work):
            raise ForeignArchive(FOREIGN)
        return work

    def _archive_queue(self, connection: Connection, work: Any, done: Archived) -> None:
        plan, queue_id, queue = self.plan, work.queue_id, work.queue
        if work.is_typed:
            ensure_typed_table(self.lake, queue, work.json_schema)
        limits = {"messages": plan.messages_per_run, "segments": plan.segments_per_run}
        while row := connection.execute(text(BEGIN), {"queue_id": queue_id, **limits}).first():
            run = ArchiveRun(queue_id, queue, work.is_typed, *row)
            self.on_step("planned")
            copied = self._copy(run)
            self.on_step("copied")
            done.deleted += self._commit(run, copied)
            self.on_step("committed")
            done.runs += 1
            done.files += sum(len(each.files) for each in copied)
            done.messages += sum(each.messages for each in copied)
            done.bytes += sum(each.bytes for each in copied)
            if queue not in done.queues:
                done.queues.append(queue)
        done.deleted += self._sweep(connection, queue_id)
        self.on_step("swept")

    def _copy(self, run: ArchiveRun) -> list[Copied]:
        table, storage = self._table(run), self.lake.storage
        if run.attempt > 1:
            # The option may have changed since.
            for each in self.lake.tables():
                storage.remove(storage.list(_directory(each, run)))
        layout = layout_of(table)
        tasks = [
            CopyTask(
                url=self.plan.url,
                storage=storage.properties,
                run_id=run.run_id,
                attempt=run.attempt,
                address=f"{_directory(table, run)}/{run.attempt}/{number:05d}",
                queue_id=run.queue_id,
                span=span,
                layout=layout,
            )
            for number, span in enumerate(self._splits(run))
        ]
        return self.run_tasks(tasks, copy_split, self.on_progress)

    def _table(self, run: ArchiveRun) -> Table:
        typed = find_typed_table(self.lake, run.queue) if run.is_typed else None
        return typed or self.lake.table()

    def _splits(self, run: ArchiveRun) -> Iterable[Span]:
        whole = Span(Snapshot(run.since), Snapshot(run.upto))
        log = MessageLog(ReadOptions(url=self.plan.url, subscription=Subscription((run.queue,))))
        partitions = Partitions((run.queue_id,), (run.queue,), None)
        sizes = log.divide(whole, partitions, None, share=self.plan.messages_per_task)
        self.on_run(run.queue, sum(size.messages for size in sizes))
        return whole.parts(size.last for size in sizes)

    def _commit(self, run: ArchiveRun, copied: list[Copied]) -> int:
        files = [file for each in copied for file in each.files]
        messages = sum(each.messages for each in copied)
        finish = {"run_id": run.run_id, "attempt": run.attempt, "messages": messages}
        with self.lake.transaction() as connection:
            if not connection.scalar(text(FINISH), finish):
                raise ArchiveBusy(
                    f"archive run {run.run_id} is not ours any more: another process has taken it "
                    "over, or its queue was deleted"
                )
            self.on_step("finished")
            self.lake.add(self._table(run), files, {"skep.run": run.run_id})
            self.on_step("added")
            # Last, because pushes into the partitions wait from here to the end of the transaction.
            deleted = _delete(connection, run.run_id, run.queue_id, run.since - 1, EVERYTHING)
            self.on_step("deleted")
        return deleted.messages

    def _sweep(self, connection: Connection, queue_id: int) -> int:
        """Delete what was archived earlier and has been read since."""
        messages, after, is_done, run_id = 0, 0, False, str(uuid4())
        while not is_done:
            row = _delete(connection, run_id, queue_id, after, SEGMENTS_PER_SWEEP)
            messages, after, is_done = messages + row.messages, row.reached, row.is_done
        return messages


def _directory(table: Table, run: ArchiveRun) -> str:
    return f"{table.location()}/data/{run.run_id}"


def _delete(connection: Connection, run_id: str, queue_id: int, after: int, limit: int) -> Any:
    """Delete archived messages that no group waits for, from transactions after one."""
    place = {"run_id": run_id, "queue_id": queue_id, "after": after, "limit": limit}
    return connection.execute(text(DELETE), place).one()


def archive_status(lake: Lake, queues: Sequence[str]) -> list[dict[str, Any]]:
    """Return how far queues are archived; all that have an archive if none is named."""
    with lake.connect() as connection:
        rows = connection.execute(text(WORK), {"queues": list(queues) or None}).all()
    return [
        {
            "queue": row.queue,
            "messages": row.messages,
            "archivedAt": row.archived_at,
            "state": _state(row),
        }
        for row in rows
    ]


def _state(row: Any) -> str:
    if row.is_foreign:
        return "of another server"
    if row.is_open:
        return "run not finished"
    return "" if row.is_wanted else "off"


def archive_lock(lake: Lake) -> AbstractContextManager[Connection]:
    """Be the only process that changes the lake; raise `ArchiveBusy` if another one does."""
    busy = ArchiveBusy("another process is archiving this database; wait for its end")
    return lake.locked("archive", busy)


_log: Final = logging.getLogger(__name__)


def archive_repeatedly(
    archive: Callable[[], None],
    stop: threading.Event,
    *,
    every_s: float,
    before_waiting: Callable[[], None],
    compact: Callable[[], None] | None = None,
    compact_every_s: float = 86_400.0,
    compact_again_s: float = 3_600.0,
    pause_first_s: float = 1.0,
    pause_max_s: float = 30.0,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Archive until `stop` is set; a round that is under way is brought to its end.

    `archive` raises Unavailable when the database is away; then `before_waiting` is called, which
    raises if waiting is in vain. The pause after a failure doubles. However `compact` fails, it is
    logged and tried again later: archiving does not depend on it.
    """
    failures, compact_at = 0, clock()
    while True:
        try:
            archive()
            if compact is not None and clock() >= compact_at:
                again_s = min(compact_again_s, compact_every_s)
                compact_at = clock() + (compact_every_s if _has_compacted(compact) else again_s)
        except (Unavailable, ArchiveBusy) as error:
            # After a failure it is the lock of the connection that was lost: the server has yet to
            # notice.
            if isinstance(error, ArchiveBusy) and not failures:
                raise
            before_waiting()
            pause_s = min(pause_max_s, pause_first_s * 2**failures)
            failures += 1
            _log.warning(
                "a round of the archive was cut short: %s. The archive is whole; trying again in "
                "%g s",
                error.message,
                pause_s,
            )
        else:
            if failures:
                _log.warning("the database is back: archived what had become old meanwhile")
            failures, pause_s = 0, every_s
        if stop.wait(pause_s):
            return


def _has_compacted(compact: Callable[[], None]) -> bool:
    try:
        compact()
    except Exception as error:  # noqa: BLE001 (drivers, file systems and Spark raise what they like)
        _log.warning(
            "Compaction failed and will be tried again: %s. The archive is whole, and archiving "
            "goes on",
            error.message if isinstance(error, SkepError) else f"{type(error).__name__}: {error}",
        )
        return False
    return True
