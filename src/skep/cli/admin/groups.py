"""`skep groups`: where consumer groups stand, and moving, pausing and forgetting them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from skep.cli.shared.completion import QueueName, ask_quietly, complete_queue
from skep.cli.shared.connection import with_client
from skep.cli.shared.examples import examples
from skep.cli.shared.output import Output, print_record
from skep.cli.shared.pages import (
    PAGE_ROWS,
    Everything,
    Limit,
    Offset,
    Pages,
    by_offset,
    one_page,
    print_pages,
)
from skep.cli.shared.prompts import Yes, confirm
from skep.cli.shared.times import read_moment
from skep.model.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from skep.client import Client

groups_app: Final = typer.Typer(
    name="groups",
    help="Where consumer groups stand; move, pause and forget them.",
    no_args_is_help=True,
)


def _complete_group(context: typer.Context, incomplete: str) -> list[str]:
    def ask(client: "Client") -> list[str]:
        names = {group.name for group in client.groups.find()}
        return sorted(name for name in names if name.startswith(incomplete))

    return ask_quietly(context, ask)


GroupName: TypeAlias = Annotated[
    str, typer.Argument(help="The name of a consumer group.", autocompletion=_complete_group)
]
OnlyQueue: TypeAlias = Annotated[
    str | None, typer.Option("--queue", help="Only of this queue.", autocompletion=complete_queue)
]

_COLUMNS: Final = (
    "name",
    "queueName",
    "state",
    "totalLag",
    "maxTimeLag",
    "partitionsWithLag",
    "partition_count",
    "isPaused",
)
_PROGRESS_COLUMNS: Final = (
    "queue",
    "partition",
    "totalConsumed",
    "offsetLag",
    "timeLagSeconds",
    "leaseActive",
)
_PARTITION_COLUMNS: Final = ("partition", "offsetLag", "timeLagSeconds", "leased", "failing")
_LAGGING_COLUMNS: Final = (
    "consumer_group",
    "queue_name",
    "partition_name",
    "offset_lag",
    "time_lag_seconds",
    "oldest_unconsumed_at",
)


@groups_app.command("list")
@with_client
def list_groups(
    client: "Client",
    *,
    queue: OnlyQueue = None,
    limit: Limit = 100,
    offset: Offset = 0,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """List groups by queue, with how far each is behind."""

    def fetch(rows: int, start: int) -> Any:
        return client.groups.find(queue=queue, limit=rows, offset=start)

    pages = Pages(by_offset(fetch), limit=None if everything else limit, start=str(offset))
    print_pages(pages, _COLUMNS, output, what="group matches")


@groups_app.command("show")
@with_client
def show_group(
    client: "Client",
    group: GroupName,
    *,
    queue: OnlyQueue = None,
    limit: Limit = 100,
    offset: Offset = 0,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """Show how far a group is in each partition of its queues."""
    from skep.client.endpoints import path_of

    def fetch(rows: int, start: int) -> Any:
        path = path_of("consumer-groups", group, queue=queue, limit=rows, offset=start)
        found = client.request("GET", path)
        return [
            {"queue": name, **partition}
            for name, of in found.items()
            for partition in of["partitions"]
        ]

    pages = Pages(by_offset(fetch), limit=None if everything else limit, start=str(offset))
    print_pages(pages, _PROGRESS_COLUMNS, output, what="partition is known to it")


@groups_app.command("lag")
@with_client
def show_lag(
    client: "Client",
    group: GroupName,
    queue: QueueName,
    *,
    limit: Limit = 100,
    offset: Offset = 0,
    everything: Everything = False,
    output: Output = "table",
) -> None:
    """Show how far a group is behind on a queue, by partition."""
    if output != "table":
        print_record(
            client.groups.lag(group, queue, limit=min(limit, PAGE_ROWS), offset=offset), output
        )
        return
    lag = client.groups.lag(group, queue, limit=1)
    about = " (about)" if lag.estimated else ""
    typer.echo(
        f"{group} on {queue}: {lag.state}, {lag.offset_lag:,} messages{about} behind, "
        f"the oldest for {lag.time_lag_seconds:,} s, "
        f"in {lag.partitions_with_lag:,} of {lag.partition_count:,} partitions"
    )

    def fetch(rows: int, start: int) -> Any:
        return client.groups.lag(group, queue, limit=rows, offset=start).partitions

    pages = Pages(by_offset(fetch), limit=None if everything else limit, start=str(offset))
    print_pages(pages, _PARTITION_COLUMNS, output, what="partition")


@groups_app.command("lagging")
@with_client
def list_lagging(
    client: "Client",
    *,
    min_lag: Annotated[
        int, typer.Option(min=0, help="The least age of the first unread message, in seconds.")
    ] = 3600,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Rows at most.")] = 100,
    output: Output = "table",
) -> None:
    """List the partitions whose unread messages are oldest."""
    pages = one_page(client.groups.lagging(min_lag_s=min_lag, limit=limit))
    print_pages(pages, _LAGGING_COLUMNS, output, what=f"partition is {min_lag} s behind")


@groups_app.command(
    "seek",
    epilog=examples(
        "skep groups seek billing orders --to-time 2h",
        "skep groups seek billing orders --offset 1200 --partition customer-7",
    ),
)
@with_client
def seek_group(
    client: "Client",
    group: GroupName,
    queue: QueueName,
    *,
    to_start: Annotated[
        bool, typer.Option("--to-start", help="To the oldest message kept.")
    ] = False,
    to_end: Annotated[bool, typer.Option("--to-end", help="Behind the newest message.")] = False,
    to_time: Annotated[
        datetime | None,
        typer.Option(
            parser=read_moment,
            metavar="TIME",
            help="To the first message stored then or later: ISO 8601, or `2h` for how long ago.",
        ),
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=1, help="To this message; needs --partition.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Only in this partition.")] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Subscribe the group if it does not exist.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would skip and repeat.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Move a group: shows what it would skip and repeat, and asks."""
    aim = _aim(to_start=to_start, to_end=to_end, to_time=to_time, offset=offset)
    if offset is not None and partition is None:
        raise BadRequest("an offset means something in one partition only: name it by --partition")
    typer.echo(_preview(client, group, queue, aim, partition, is_creating=create))
    if dry_run:
        return
    confirm(f"Move {group} on {queue}?", is_answered=yes)
    moved = client.groups.seek(group, queue, aim, partition=partition, create=create)
    if partition is None:
        typer.echo(f"{group} was moved in {moved['partitionsUpdated']:,} partitions")
    else:
        typer.echo(f"{group} has done {partition} up to offset {moved['acked']:,}")


def _aim(*, to_start: bool, to_end: bool, to_time: datetime | None, offset: int | None) -> Any:
    given: list[Any] = [
        *(["start"] if to_start else []),
        *(["end"] if to_end else []),
        *(aim for aim in (to_time, offset) if aim is not None),
    ]
    if len(given) != 1:
        raise BadRequest("say where to by one of --to-start, --to-end, --to-time and --offset")
    return given[0]


def _preview(
    client: "Client", group: str, queue: str, aim: Any, partition: str | None, *, is_creating: bool
) -> str:
    try:
        found = client.groups.preview_seek(group, queue, aim, partition=partition)
    except NotFound:
        if is_creating:
            return f"{group} does not exist on {queue} and will be subscribed"
        raise
    about = "about " if found.estimated else ""
    place = f"partition {partition}" if partition else f"{found.partitions:,} partitions"
    return (
        f"in {place} of {queue}: skips {about}{found.skipped:,} messages that are not done, "
        f"repeats {about}{found.replayed:,} that are"
    )


@groups_app.command("pause")
@with_client
def pause_group(client: "Client", group: GroupName, queue: QueueName) -> None:
    """Deliver nothing more to a group; other groups go on."""
    client.groups.pause(group, queue)
    typer.echo(f"{group} is paused on {queue}")


@groups_app.command("resume")
@with_client
def resume_group(client: "Client", group: GroupName, queue: QueueName) -> None:
    """Deliver to a group again."""
    client.groups.resume(group, queue)
    typer.echo(f"{group} gets messages of {queue}")


@groups_app.command("delete")
@with_client
def delete_group(
    client: "Client", group: GroupName, *, queue: OnlyQueue = None, yes: Yes = False
) -> None:
    """Forget the progress of a group, on one queue or on all."""
    confirm(f"Forget the progress of {group} on {queue or 'all its queues'}?", is_answered=yes)
    gone = client.groups.delete(group, queue)
    typer.echo(f"{group} is gone from {gone['deletedPartitions']:,} partitions")
