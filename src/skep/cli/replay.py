"""`skep replay`: put what a queue stored in a span of time into a queue once more."""

from typing import Annotated

import typer

from skep.cli.options import (
    ConfigFile,
    DatabaseSchema,
    DatabaseUrl,
    DataDir,
    PostgresBin,
    effective_settings,
)
from skep.cli.transfer_options import (
    Decrypt,
    Master,
    Name,
    OnError,
    StorageText,
    Where,
    moment,
    session,
    summary,
    transfer_bar,
)
from skep.model.errors import Defect
from skep.spark.keys import key_options


def replay(
    *,
    queue: Annotated[str, typer.Option(help="The queue whose messages are replayed.")],
    since: Annotated[str, typer.Option("--from", help="From this time on, as ISO; UTC if bare.")],
    until: Annotated[str, typer.Option("--to", help="Before this time, which must be past.")],
    into: Annotated[str, typer.Option(help="The queue they go into; made if it is new.")],
    where: Where = None,
    partition: Annotated[str | None, typer.Option(help="Only of this partition.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be replayed, and write nothing.")
    ] = False,
    keep_ids: Annotated[
        bool,
        typer.Option(
            "--keep-ids",
            help="Keep the transaction ids; what the target knows by them is left out.",
        ),
    ] = False,
    name: Name = None,
    decrypt: Decrypt = False,
    on_error: OnError = "fail",
    master: Master = None,
    database_url: DatabaseUrl = None,
    database_schema: DatabaseSchema = None,
    data_dir: DataDir = None,
    postgres_bin: PostgresBin = None,
    storage: StorageText = None,
    config_file: ConfigFile = None,
) -> None:
    """Put what a queue stored in a span of time, archive included, into a queue once more."""
    from skep.app.database import open_database
    from skep.spark.replay import Replay, ReplayPlan

    first, end = moment("--from", since), moment("--to", until)
    if first is None or end is None:
        raise Defect("typer lets nobody pass without --from and --to")
    flags = {
        "database_url": database_url,
        "database_schema": database_schema,
        "data_dir": data_dir,
        "postgres_bin": postgres_bin,
    }
    settings = effective_settings(config_file, **flags, archive_storage=storage).settings
    with open_database(settings) as database:
        plan = ReplayPlan(
            url=database.dsn,
            queue=queue,
            into=into,
            since=first,
            until=end,
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
            counted = job.count()
            typer.echo(
                f"would replay {counted.messages:,} messages of {counted.partitions:,} partitions"
                + (f", {counted.first} to {counted.last}" if counted.messages else "")
            )
            return
        with transfer_bar(f"{queue} to {into}") as bar:
            done = job.run(bar.reach)
    typer.echo(summary(done, "replayed"))
