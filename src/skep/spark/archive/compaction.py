"""Keep the lake in good shape: few large files instead of many small ones, and no old snapshots.

Every archive run leaves a file for each task and day. Small files of the same queue and day are
merged in the order of addresses, and replaced in one commit. Readers that planned before still find
the old files, until the snapshots that know them are older than `keep_s`; then snapshots and files
go. So do files that no snapshot ever knew, left by a process that died.

It runs under the lock of the archive. Should that lock be lost, with its connection, the lock of
`Lake.transaction` still keeps it from files that another process is about to commit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from pyiceberg.manifest import DataFile

from skep.spark.archive.archiver import archive_lock
from skep.spark.archive.copy_task import Copied, FileWriter
from skep.spark.archive.lake import Lake, described
from skep.spark.archive.read import batches_of
from skep.spark.archive.schema import ARROW_SCHEMA, parquet
from skep.spark.archive.storage import Storage
from skep.spark.runtime.tasks import OnProgress, RunTasks

TARGET_MESSAGES: Final = 1_000_000
TARGET_BYTES: Final = 128 << 20
SMALL: Final = 0.5
"""A file is small below this share of the target."""
KEEP_S: Final = 86_400.0
"""How long readers find what compaction has replaced."""


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
    files: tuple[str, ...]
    address: str


def merge_files(task: MergeTask) -> Copied:
    """Put files together into one, with a row group in memory at a time.

    Each lies in the order of addresses, and no two of a queue overlap: what one run or task copied
    ends before the next begins. So one behind the other they are in order again.
    """
    storage = Storage(task.storage)
    with storage.create(task.address) as stream:
        writer = FileWriter(task.address, stream)
        for address in task.files:
            with storage.read(address) as opened, parquet.ParquetFile(opened) as file:
                for rows in batches_of(file, range(file.num_row_groups), ARROW_SCHEMA.names):
                    writer.add(rows.cast(ARROW_SCHEMA))
        writer.finish()
    return Copied((task.address,), writer.messages, writer.bytes)


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

    Raises `ArchiveBusy`, or `NotFound` if there is no archive.
    """
    done = Compacted()
    with archive_lock(lake):
        # First: what earlier failures left behind.
        done.removed += lake.remove_unreferenced()
        table = lake.table()
        files = (task.file for task in table.scan().plan_files())
        groups = list(small_groups(files, plan))
        directory = f"{table.location()}/data/merged-{uuid4()}"
        tasks = [
            MergeTask(
                lake.storage.properties,
                tuple(file.file_path for file in group),
                f"{directory}/{number:05d}.parquet",
            )
            for number, group in enumerate(groups)
        ]
        if tasks:
            merged = run_tasks(tasks, merge_files, on_progress)
            on_step("written")
            old = [file for group in groups for file in group]
            with lake.transaction():
                lake.replace(lake.table(), old, [task.address for task in tasks])
                on_step("replaced")
            done.files_before, done.files_after = len(old), len(tasks)
            done.messages = sum(each.messages for each in merged)
        on_step("merged")
        with lake.transaction():
            oldest = now() - timedelta(seconds=plan.keep_s)
            done.snapshots = lake.expire(lake.table(), oldest)
        on_step("expired")
        done.removed += lake.remove_unreferenced()
    return done


def small_groups(files: Iterable[DataFile], plan: CompactionPlan) -> Iterator[tuple[DataFile, ...]]:
    """Yield files that should become one: small ones, of the same queue and day."""
    by_place: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in files:
        is_small = (
            file.record_count < plan.target_messages * SMALL
            and file.file_size_in_bytes < plan.target_bytes * SMALL
        )
        if is_small:
            by_place.setdefault((file.partition[0], file.partition[1]), []).append(file)
    for _, group in sorted(by_place.items()):
        yield from _packed(sorted(group, key=lambda file: described(file).order), plan)


def _packed(files: list[DataFile], plan: CompactionPlan) -> Iterator[tuple[DataFile, ...]]:
    group: list[DataFile] = []
    for file in files:
        is_full = (
            sum(each.record_count for each in [*group, file]) > plan.target_messages
            or sum(each.file_size_in_bytes for each in [*group, file]) > plan.target_bytes
        )
        if is_full:
            yield from [tuple(group)] if len(group) > 1 else []
            group = []
        group.append(file)
    if len(group) > 1:
        yield tuple(group)
