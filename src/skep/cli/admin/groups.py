"""`skep groups`: the progress of consumer groups; seek, pause and delete them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Option

from skep.cli.shared import output as out
from skep.cli.shared.connection import GroupName, OnlyPartition, OnlyQueue, QueueName, with_client
from skep.cli.shared.declare import action, listing
from skep.cli.shared.help import Commands
from skep.cli.shared.options import Yes, confirm, examples, time_option
from skep.cli.shared.spelling import spell_seconds
from skep.model.errors import BadRequest, NotFound
from skep.model.plurals import counted

if TYPE_CHECKING:
    from skep.client import Client

groups_app: Final = Commands(
    "groups", "Show the progress of consumer groups; seek, pause and delete."
)

_COLUMNS: Final = (
    *(
        "name as group",
        "queueName as queue",
        "condition",
        "totalLag as lag",
        "maxTimeLag as oldest",
    ),
    *("partitionsWithLag as behind", "partitionCount as partitions", "isPaused"),
)
_PROGRESS_COLUMNS: Final = (
    *("queue", "partition", "totalConsumed as done", "offsetLag as lag"),
    *("timeLagSeconds as oldest", "leaseActive as leased"),
)
_PARTITION_COLUMNS: Final = (
    *("partition", "offsetLag as lag", "timeLagSeconds as oldest", "leased", "failing"),
)
_LAGGING_COLUMNS: Final = (
    *("consumer_group as group", "queue_name as queue", "partition_name as partition"),
    *("offset_lag as lag", "time_lag_seconds as oldest", "oldest_unconsumed_at as since"),
)


@groups_app.command("list")
@listing(_COLUMNS, empty="no group matches")
def list_groups(client: "Client", limit: int, offset: int, *, queue: OnlyQueue = None) -> Any:
    """List groups by queue, with their lag."""
    return client.groups.find(queue=queue, limit=limit, offset=offset)


@groups_app.command("show")
@listing(_PROGRESS_COLUMNS, empty="group {group} has no partitions")
def show_group(
    client: "Client", limit: int, offset: int, group: GroupName, *, queue: OnlyQueue = None
) -> Any:
    """Show the progress of a group in each partition of its queues."""
    from skep.client.endpoints import path_of

    path = path_of("consumer-groups", group, queue=queue, limit=limit, offset=offset)
    return [
        {"queue": name, **partition}
        for name, of in client.request("GET", path).items()
        for partition in of["partitions"]
    ]


@groups_app.command("lag")
@with_client
def show_lag(
    client: "Client",
    group: GroupName,
    queue: QueueName,
    *,
    limit: out.Limit = 100,
    offset: out.Offset = 0,
    everything: out.Everything = False,
    output: out.Output = "table",
) -> None:
    """Show how far a group is behind on a queue, by partition."""
    if output != "table":
        out.print_record(
            client.groups.lag(group, queue, limit=min(limit, out.PAGE_ROWS), offset=offset), output
        )
        return
    lag = client.groups.lag(group, queue, limit=1)
    about = " (estimated)" if lag.estimated else ""
    typer.echo(
        f"{group} on {queue}: {lag.condition}, {counted(lag.offset_lag, 'message')}{about} behind, "
        f"the oldest for {spell_seconds(lag.time_lag_seconds)}, "
        f"in {lag.partitions_with_lag:,} of {counted(lag.partition_count, 'partition')}"
    )

    def fetch(rows: int, start: int) -> Any:
        return client.groups.lag(group, queue, limit=rows, offset=start).partitions

    pages = out.Pages(out.by_offset(fetch), limit=None if everything else limit, start=str(offset))
    out.print_pages(pages, _PARTITION_COLUMNS, output, empty="no partition")


@groups_app.command("lagging")
@with_client
def list_lagging(
    client: "Client",
    *,
    min_lag: Annotated[
        int, Option(min=0, help="Minimum age of the oldest unread message, in seconds.")
    ] = 3600,
    limit: Annotated[int, Option(min=1, max=1000, help="Maximum number of rows.")] = 100,
    output: out.Output = "table",
) -> None:
    """List the partitions with the oldest unread messages."""
    found = client.groups.lagging(min_lag_s=min_lag, limit=limit)
    said = f"no partition is {spell_seconds(min_lag)} behind"
    out.print_found(found, _LAGGING_COLUMNS, output, empty=said)


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
    to_start: Annotated[bool, Option("--to-start", help="To the oldest stored message.")] = False,
    to_end: Annotated[bool, Option("--to-end", help="Past the newest message.")] = False,
    to_time: Annotated[
        datetime | None,
        time_option(
            "--to-time", summary="To the first message stored at or after: ISO 8601, or `2h`."
        ),
    ] = None,
    offset: Annotated[
        int | None, Option(min=1, help="To this message; requires --partition.")
    ] = None,
    partition: OnlyPartition = None,
    create: Annotated[bool, Option("--create", help="Create the group if it is missing.")] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only show what it would skip and repeat.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Move a group. Shows what it would skip and repeat, then asks."""
    target = _target(to_start=to_start, to_end=to_end, to_time=to_time, offset=offset)
    if offset is not None and partition is None:
        raise BadRequest("--offset requires --partition: offsets count within one partition")
    typer.echo(_preview(client, group, queue, target, partition, is_creating=create))
    if dry_run:
        return
    confirm(f"Move group {group} on {queue}?", is_answered=yes)
    moved = client.groups.seek(group, queue, target, partition=partition, create=create)
    if partition is None:
        typer.echo(f"Moved group {group} in {counted(moved['partitionsUpdated'], 'partition')}")
    else:
        typer.echo(f"Moved group {group} in {partition}: done up to offset {moved['acked']:,}")


def _target(*, to_start: bool, to_end: bool, to_time: datetime | None, offset: int | None) -> Any:
    given: list[Any] = [
        *(["start"] if to_start else []),
        *(["end"] if to_end else []),
        *(target for target in (to_time, offset) if target is not None),
    ]
    if len(given) != 1:
        raise BadRequest("pass one of --to-start, --to-end, --to-time and --offset")
    return given[0]


def _preview(
    client: "Client",
    group: str,
    queue: str,
    target: Any,
    partition: str | None,
    *,
    is_creating: bool,
) -> str:
    try:
        found = client.groups.preview_seek(group, queue, target, partition=partition)
    except NotFound:
        if is_creating:
            return f"Group {group} does not exist on {queue} and will be created"
        raise
    about = "about " if found.estimated else ""
    place = f"partition {partition}" if partition else counted(found.partitions, "partition")
    return (
        f"In {place} of {queue}: skips {about}{counted(found.skipped, 'unfinished message')}, "
        f"repeats {about}{found.replayed:,} finished"
    )


@groups_app.command("pause")
@action("Paused group {group} on {queue}")
def pause_group(client: "Client", group: GroupName, queue: QueueName) -> None:
    """Stop delivering to a group; other groups continue."""
    client.groups.pause(group, queue)


@groups_app.command("resume")
@action("Resumed group {group} on {queue}")
def resume_group(client: "Client", group: GroupName, queue: QueueName) -> None:
    """Deliver to a paused group again."""
    client.groups.resume(group, queue)


def _ask_to_delete(_client: "Client", group: str, queue: str | None) -> str:
    return f"Delete the progress of group {group} on {queue or 'all its queues'}?"


def _tell_deleted(result: Any, group: str, **_: Any) -> str:
    return f"Deleted group {group} from {counted(result['deletedPartitions'], 'partition')}"


@groups_app.command("delete")
@action(_tell_deleted, question=_ask_to_delete)
def delete_group(client: "Client", group: GroupName, *, queue: OnlyQueue = None) -> Any:
    """Delete the progress of a group, on one queue or on all."""
    return client.groups.delete(group, queue)
