"""`skep replay`: put what a queue stored in a span of time into a queue once more."""

from datetime import datetime
from typing import Annotated

import typer

from skep.cli.shared.options import DatabaseFlags, with_database_flags
from skep.cli.shared.times import read_fixed_moment
from skep.cli.spark.options import Master, StorageText, session
from skep.cli.spark.transfer_options import (
    Decrypt,
    Name,
    OnError,
    Where,
    summary,
    transfer_bar,
)
from skep.spark.runtime.encryption_keys import key_options


@with_database_flags
def replay(
    flags: DatabaseFlags,
    *,
    queue: Annotated[str, typer.Option(help="The queue whose messages are replayed.")],
    since: Annotated[
        datetime,
        typer.Option(
            "--from",
            parser=read_fixed_moment,
            metavar="TIME",
            help="From this time on: ISO 8601, UTC if bare.",
        ),
    ],
    until: Annotated[
        datetime,
        typer.Option(
            "--to",
            parser=read_fixed_moment,
            metavar="TIME",
            help="Before this time, which must be past.",
        ),
    ],
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
    storage: StorageText = None,
) -> None:
    """Put what a queue stored in a span of time into a queue again.

    The archive is read, too. All of it is stored, once, or nothing.
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
            counted = job.count()
            typer.echo(
                f"would replay {counted.messages:,} messages of {counted.partitions:,} partitions"
                + (f", {counted.first} to {counted.last}" if counted.messages else "")
            )
            return
        with transfer_bar(f"{queue} to {into}") as bar:
            done = job.run(bar.reach)
    typer.echo(summary(done, "replayed"))
