"""`skep import` and `skep export`: between queues and files, or other queues."""

from pathlib import PurePath
from typing import Annotated, Any, Literal

import typer

from skep.cli.shared.options import DatabaseFlags, with_database_flags
from skep.cli.shared.times import Since, Until
from skep.cli.spark.options import Master, StorageText, session
from skep.cli.spark.transfer_options import (
    Decrypt,
    Name,
    OnError,
    Where,
    summary,
    transfer_bar,
)
from skep.model.errors import BadRequest
from skep.spark.runtime.encryption_keys import key_options

_SUFFIXES = {".parquet": "parquet", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv"}


@with_database_flags
def import_rows(
    flags: DatabaseFlags,
    source: Annotated[
        str, typer.Option("--from", help="A file, a directory, or with `--format queue` a queue.")
    ],
    *,
    queue: Annotated[str, typer.Option(help="The queue to import into; made if it is new.")],
    format_: Annotated[
        Literal["parquet", "ndjson", "csv", "queue"] | None,
        typer.Option("--format", help="What it is; by default what the name ends with."),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="A column of the messages and how to make it, in Spark SQL: "
            "`partition=string(customer_id)`, `payload=struct(id, total)`. Repeatable.",
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of NDJSON is a payload, whatever it holds.")
    ] = False,
    source_url: Annotated[
        str | None, typer.Option(help="The database of the other queue; by default the same.")
    ] = None,
    name: Name = None,
    decrypt: Decrypt = False,
    on_error: OnError = "fail",
    master: Master = None,
) -> None:
    """Store rows of files, or messages of a queue, in a queue.

    All of them are stored, once, or none.
    """
    from skep.app.processes.database import join_database
    from skep.spark.transfer.transfer import Import, ImportPlan

    settings = flags.settings()
    chosen: Any = format_ or _format_of(source)
    with join_database(settings) as database, transfer_bar(f"{source} to {queue}") as bar:
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
        done = Import(lambda: session("skep import", master), plan).run(bar.reach)
    typer.echo(summary(done, "imported"))


@with_database_flags
def export_messages(
    flags: DatabaseFlags,
    path: Annotated[str, typer.Option("--to", help="The directory to write; must be new.")],
    *,
    queue: Annotated[str, typer.Option(help="The queue to export, archive included.")],
    format_: Annotated[
        Literal["parquet", "ndjson", "csv"] | None,
        typer.Option("--format", help="What to write; by default what the name ends with."),
    ] = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="A column to write, in Spark SQL: `partition`, "
            "`get_json_object(payload, '$.id') as id`. Repeatable; by default all of a message."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    decrypt: Decrypt = False,
    master: Master = None,
    storage: StorageText = None,
) -> None:
    """Write the messages of a queue to files."""
    from skep.app.processes.database import join_database
    from skep.spark.transfer.transfer import Export, ExportPlan

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
            columns=tuple(column or ()),
            overwrites=overwrite,
            may_decrypt=decrypt,
            storage=settings.archive_storage,
            keys=key_options(settings),
        )
        messages = Export(lambda: session("skep export", master), plan).run()
    typer.echo(f"exported {messages:,} messages to {path}")


def _format_of(path: str) -> str:
    """Tell a format by the end of a name.

    Raises:
        BadRequest: It does not tell.
    """
    try:
        return _SUFFIXES[PurePath(path).suffix.lower()]
    except KeyError:
        raise BadRequest(f"{path} does not end as a known format does: give --format") from None


def _pair(text: str) -> tuple[str, str]:
    name, is_there, expression = text.partition("=")
    if not is_there or not expression.strip():
        raise BadRequest(f"--map must be COLUMN=EXPRESSION, not {text!r}")
    return name.strip(), expression.strip()
