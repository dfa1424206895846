"""Keep the lake in good shape: few large files instead of many small ones, and no old snapshots.

Every archive run leaves a file for each task and day, every micro-batch of a pipeline one for each
task. Small files of the same partition are merged in the order of addresses, and replaced in one
commit. Files from which another program
deleted rows are written anew without them, whatever their size. Readers that planned before still
find the old files, until the snapshots that know them are older than `keep_s`; then snapshots and
files go. So do files that no snapshot ever knew, left by a process that died, once they are so old
that no program can be about to commit them.

It runs under the lock of the archive, which other programs do not know: files that they changed
while their rows were merged stay as they are, until the next compaction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import uuid4

from pyiceberg.table import Table

from skep.spark.archive.archiver import archive_lock
from skep.spark.archive.copy_task import Copied, writing
from skep.spark.archive.erasures import Erased, LakeFile, PlannedFile, planned_files
from skep.spark.archive.lake import FOREIGN, ORPHAN_AGE, ForeignArchive, Lake
from skep.spark.archive.read import batches_of
from skep.spark.archive.schema import ARROW_SCHEMA, parquet
from skep.spark.archive.storage import Storage
from skep.spark.runtime.arrow import pa
from skep.spark.runtime.tasks import OnProgress, RunTasks

TARGET_MESSAGES: Final = 1_000_000
TARGET_BYTES: Final = 128 << 20
SMALL: Final = 0.5
"""A file is small below this share of the target."""
KEEP_S: Final = 86_400.0
"""How long readers find what compaction has replaced."""


Group: TypeAlias = tuple[PlannedFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """How large files should be, and how long old ones stay."""

    target_messages: int = TARGET_MESSAGES
    target_bytes: int = TARGET_BYTES
    keep_s: float = KEEP_S


@dataclass(slots=True)
class Compacted:
    """What was done."""

    files_before: int = 0
    files_after: int = 0
    messages: int = 0
    snapshots: int = 0
    """Forgotten."""
    removed: int = 0
    """Files that went."""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Files to put together, and where."""

    storage: Mapping[str, str]
    files: tuple[LakeFile, ...]
    address: str


def merge_files(task: MergeTask) -> Copied:
    """Put files together into one, with a row group in memory at a time.

    Rows that were deleted are left out; if no other is left, there is no file. Each file lies in
    the order of addresses, and no two of a queue overlap: what one run or task copied ends before
    the next begins. So one behind the other they are in order again.
    """
    storage = Storage(task.storage)
    layout = task.files[0].layout
    schema = ARROW_SCHEMA if layout is None else layout.schema
    with writing(storage, layout) as merged:
        for file in task.files:
            erased = Erased(storage, file)
            with storage.read(file.address) as opened, parquet.ParquetFile(opened) as content:
                groups = range(content.num_row_groups)
                for position, rows in batches_of(content, groups, schema.names, file.layout):
                    kept = erased.kept(rows, position)
                    if kept.any():
                        left = rows if kept.all() else rows.filter(pa.array(kept))
                        merged.add(task.address, left.cast(schema))
        return merged.finish()


def compact_lake(
    lake: Lake,
    plan: CompactionPlan,
    run_tasks: RunTasks,
    *,
    on_progress: OnProgress = lambda _messages, _bytes: None,
    on_step: Callable[[str], None] = lambda _step: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Compacted:
    """Merge small files, then forget snapshots and files older than `keep_s`.

    Raises `ArchiveBusy`, `NotFound` if there is no archive, or `ForeignArchive`: the server this
    database was restored from has files that its own catalog knows, and this one does not.
    """
    done = Compacted()
    with archive_lock(lake):
        tables = lake.tables()
        if any(lake.is_foreign(each) for each in tables):
            raise ForeignArchive(FOREIGN)
        for table in tables:
            _merge(lake, table, plan, run_tasks, done, on_progress, on_step)
            with lake.transaction():
                table = lake.catalog.load_table(table.name())  # noqa: PLW2901 (as it is by now)
                expired = lake.expire(table, now() - timedelta(seconds=plan.keep_s))
            lake.storage.remove(expired.files)
            on_step("expired")
            done.snapshots += expired.snapshots
            done.removed += len(expired.files)
        done.removed += lake.remove_unreferenced(now() - ORPHAN_AGE)
    return done


def _merge(
    lake: Lake,
    table: Table,
    plan: CompactionPlan,
    run_tasks: RunTasks,
    done: Compacted,
    on_progress: OnProgress,
    on_step: Callable[[str], None],
) -> None:
    """Merge the files of a table."""
    groups = list(groups_to_merge(planned_files(table), plan))
    directory = f"{table.location()}/data/merged-{uuid4()}"
    tasks = [
        MergeTask(
            lake.storage.properties,
            tuple(each.described() for each in group),
            f"{directory}/{number:05d}.parquet",
        )
        for number, group in enumerate(groups)
    ]
    if tasks:
        merged = run_tasks(tasks, merge_files, on_progress)
        on_step("written")
        with lake.transaction():
            outdated = _replace(lake, table, list(zip(groups, merged, strict=True)), done)
            on_step("replaced")
        lake.storage.remove(outdated)
    on_step("merged")


def _replace(
    lake: Lake, planned: Table, merged: list[tuple[Group, Copied]], done: Compacted
) -> list[str]:
    """Commit merged files instead of those that are as they were when their rows were read.

    Returns the merged files of the others: they have what another program deleted meanwhile.
    """
    table = lake.catalog.load_table(planned.name())
    present = {each.file.file_path: each for each in planned_files(table)}
    unchanged = [
        (group, copied)
        for group, copied in merged
        if all(present.get(each.file.file_path) == each for each in group)
    ]
    old = [each.file for group, _ in unchanged for each in group]
    new = {address for _, copied in unchanged for address in copied.files}
    if old:
        lake.replace(table, old, new)
    done.files_before, done.files_after = done.files_before + len(old), done.files_after + len(new)
    done.messages += sum(copied.messages for _, copied in unchanged)
    return [address for _, copied in merged for address in copied.files if address not in new]


def groups_to_merge(files: Iterable[PlannedFile], plan: CompactionPlan) -> Iterator[Group]:
    """Yield files of the same partition that should become one, such as of a queue and day.

    These are small ones, and those from which rows were deleted.
    """
    by_place: dict[tuple[Any, ...], list[PlannedFile]] = {}
    for each in files:
        file = each.file
        is_small = (
            file.record_count < plan.target_messages * SMALL
            and file.file_size_in_bytes < plan.target_bytes * SMALL
        )
        if is_small or each.erasures:
            place = tuple(file.partition[at] for at in range(len(file.partition)))
            by_place.setdefault((file.spec_id, *place), []).append(each)
    for _, group in sorted(by_place.items(), key=lambda place: str(place[0])):
        packed = _packed(sorted(group, key=lambda each: each.described().order), plan)
        yield from (each for each in packed if len(each) > 1 or any(one.erasures for one in each))


def _packed(files: list[PlannedFile], plan: CompactionPlan) -> Iterator[Group]:
    group: list[PlannedFile] = []
    for each in files:
        together = [*(known.file for known in group), each.file]
        is_full = (
            sum(file.record_count for file in together) > plan.target_messages
            or sum(file.file_size_in_bytes for file in together) > plan.target_bytes
        )
        if is_full and group:
            yield tuple(group)
            group = []
        group.append(each)
    if group:
        yield tuple(group)
