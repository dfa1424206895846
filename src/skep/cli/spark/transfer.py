"""`skep import`, `skep export` and `skep replay`: between queues and files, or other queues."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from typer import Option

from skep.cli.shared.connection import OnlyPartition
from skep.cli.shared.options import DatabaseFlags, Since, Until, time_option, with_database_flags
from skep.cli.spark.options import Master, StorageText, counting_bar, session
from skep.model.errors import BadRequest
from skep.model.plurals import counted
from skep.spark.runtime.encryption_keys import key_options

if TYPE_CHECKING:
    from skep.spark.transfer.single_write import Outcome, Reached

Where = Annotated[
    str | None,
    Option(
        help="Only messages that satisfy this Spark SQL condition: "
        "`get_json_object(payload, '$.total') > 100`."
    ),
]
Name = Annotated[str | None, Option(help="Idempotency key: a repeated key is not executed again.")]
OnError = Annotated[
    Literal["fail", "dead-letter"], Option(help="What to do with rows that cannot be stored.")
]
Decrypt = Annotated[
    bool, Option("--decrypt", help="Allow encrypted messages to be written in plain text.")
]

_SUFFIXES: Final = {".parquet": "parquet", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv"}


@with_database_flags
def import_rows(
    flags: DatabaseFlags,
    source: Annotated[
        str, Option("--from", help="File or directory; with `--format queue`, a queue.")
    ],
    *,
    queue: Annotated[str, Option(help="Target queue; created if missing.")],
    format_: Annotated[
        Literal["parquet", "ndjson", "csv", "queue"] | None,
        Option("--format", help="Input format; default: by the file name."),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        Option(
            "--map",
            help="Message column and its Spark SQL expression: "
            "`partition=string(customer_id)`, `payload=struct(id, total)`. Repeatable.",
        ),
    ] = None,
    lines: Annotated[
        bool, Option("--lines", help="Take each NDJSON line as a payload, as it is.")
    ] = False,
    source_url: Annotated[
        str | None, Option(help="Database of the source queue; default: the same.")
    ] = None,
    name: Name = None,
    decrypt: Decrypt = False,
    on_error: OnError = "fail",
    master: Master = None,
) -> None:
    """Import rows of files, or messages of a queue, into a queue.

    All of them are stored, exactly once, or none.
    """
    from skep.app.processes.database import join_database
    from skep.spark.transfer.import_export import ImportPlan, run_import
    from skep.spark.transfer.small_files import import_small

    settings = flags.settings()
    chosen: Any = format_ or _format_of(source)
    with join_database(settings) as database, _bar(f"{source} to {queue}") as bar:
        plan = ImportPlan(
            url=database.dsn,
            queue=queue,
            source=source,
            format=chosen,
            mapping=dict(_pair(text) for text in mapping or ()),
            whole_lines=lines,
            source_url=source_url,
            name=name,
            may_decrypt=decrypt,
            on_error=on_error,
            keys=key_options(settings),
        )
        done = None if master else import_small(plan, bar)
        done = done or run_import(lambda: session("skep import", master), plan, bar)
    typer.echo(_summary(done, "Imported"))


@with_database_flags
def export_messages(
    flags: DatabaseFlags,
    path: Annotated[str, Option("--to", help="Output directory; must not exist.")],
    *,
    queue: Annotated[str, Option(help="Queue to export, including its archive.")],
    format_: Annotated[
        Literal["parquet", "ndjson", "csv"] | None,
        Option("--format", help="Output format; default: by the file name."),
    ] = None,
    since: Since = None,
    until: Until = None,
    partition: OnlyPartition = None,
    where: Where = None,
    column: Annotated[
        list[str] | None,
        Option(
            help="Column to write, in Spark SQL: `partition`, "
            "`get_json_object(payload, '$.id') as id`. Repeatable; default: all columns."
        ),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace existing files.")] = False,
    decrypt: Decrypt = False,
    master: Master = None,
    storage: StorageText = None,
) -> None:
    """Export the messages of a queue to files."""
    from skep.app.processes.database import join_database
    from skep.spark.transfer.import_export import ExportPlan, run_export
    from skep.spark.transfer.small_files import export_small

    settings = flags.settings(archive_storage=storage)
    chosen: Any = format_ or _format_of(path)
    with join_database(settings) as database:
        plan = ExportPlan(
            url=database.dsn,
            queue=queue,
            path=path,
            format=chosen,
            since=since,
            until=until,
            where=where,
            partition=partition,
            columns=tuple(column or ()),
            overwrites=overwrite,
            may_decrypt=decrypt,
            storage=settings.archive_storage,
            keys=key_options(settings),
        )
        messages = None if master else export_small(plan)
        if messages is None:
            with _bar(f"{queue} to {path}") as bar:
                messages = run_export(lambda: session("skep export", master), plan, bar)
    typer.echo(f"Exported {counted(messages, 'message')} to {path}")


@with_database_flags
def replay(
    flags: DatabaseFlags,
    *,
    queue: Annotated[str, Option(help="Source queue.")],
    since: Annotated[
        datetime,
        time_option("--from", summary="Start: ISO 8601, UTC without a zone.", fixed=True),
    ],
    until: Annotated[
        datetime,
        time_option("--to", summary="End, exclusive; must be in the past.", fixed=True),
    ],
    into: Annotated[str, Option(help="Target queue; created if missing.")],
    where: Where = None,
    partition: OnlyPartition = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Count the messages; write nothing.")
    ] = False,
    keep_ids: Annotated[
        bool,
        Option("--keep-ids", help="Keep transaction ids; the target skips duplicates."),
    ] = False,
    name: Name = None,
    decrypt: Decrypt = False,
    on_error: OnError = "fail",
    master: Master = None,
    storage: StorageText = None,
) -> None:
    """Push the messages that a queue stored in a period again.

    Reads the archive, too. All of them are stored, exactly once, or none.
    """
    from skep.app.processes.database import join_database
    from skep.spark.transfer.replay import Replay, ReplayPlan

    settings = flags.settings(archive_storage=storage)
    with join_database(settings) as database:
        plan = ReplayPlan(
            url=database.dsn,
            queue=queue,
            into=into,
            since=since,
            until=until,
            where=where,
            partition=partition,
            name=name,
            keeps_ids=keep_ids,
            may_decrypt=decrypt,
            on_error=on_error,
            storage=settings.archive_storage,
            keys=key_options(settings),
        )
        job = Replay(lambda: session("skep replay", master), plan)
        if dry_run:
            found = job.count()
            typer.echo(
                f"Would replay {counted(found.messages, 'message')} of "
                f"{counted(found.partitions, 'partition')}"
                + (f", {found.first} to {found.last}" if found.messages else "")
            )
            return
        with _bar(f"{queue} to {into}") as bar:
            done = job.run(bar)
    typer.echo(_summary(done, "Replayed"))


def _summary(done: "Outcome", verb: str) -> str:
    if done.is_repeated and done.committed_at is not None:
        return (
            f"Nothing to do: {verb.lower()} at {done.committed_at.isoformat()}, "
            f"{counted(done.messages, 'message')}; pass another --name to repeat it"
        )
    said = f"{verb} {counted(done.messages, 'message')}"
    if done.duplicates:
        said += f"; left out: {counted(done.duplicates, 'duplicate')}"
    if done.rejected:
        said += f"; not stored: {counted(done.rejected, 'dead letter')}"
    return said


@contextmanager
def _bar(title: str) -> Generator[Callable[["Reached"], None]]:
    """Yield what shows the progress of a job: its tasks, and the messages written so far."""
    begun_at = time.monotonic()
    with counting_bar(title, "starting Spark") as show_count:

        def show(reached: "Reached") -> None:
            rate = reached.messages / max(time.monotonic() - begun_at, 0.001)
            said = f"{counted(reached.messages, 'message')}, {rate:,.0f}/s"
            said = f"tasks, {said if reached.messages else 'reading'}"
            show_count(reached.tasks_done, reached.tasks, said)

        yield show


def _format_of(path: str) -> str:
    try:
        return _SUFFIXES[PurePath(path).suffix.lower()]
    except KeyError:
        raise BadRequest(f"unknown format of {path}: pass --format") from None


def _pair(text: str) -> tuple[str, str]:
    name, is_there, expression = text.partition("=")
    if not is_there or not expression.strip():
        raise BadRequest(f"--map must be COLUMN=EXPRESSION, not {text!r}")
    return name.strip(), expression.strip()
