"""`skep timers`: messages for later, under keys of the caller's own."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from skep.cli.shared.connection import with_client
from skep.cli.shared.declare import listing
from skep.cli.shared.help import Commands
from skep.cli.shared.options import json_argument
from skep.cli.shared.output import Output, print_record
from skep.model.errors import NotFound

if TYPE_CHECKING:
    from skep.client import Client

timers_app: Final = Commands("timers", "Schedule, show, list and cancel timers.")

Queue = Annotated[str, Argument(help="Queue name.")]
TimerKey = Annotated[str, Argument(metavar="KEY", help="Key of the timer.")]

_COLUMNS: Final = (
    "timerKey as key",
    "partition",
    "deliverAt as due",
    "txn as transaction",
)


@timers_app.command("list")
@listing(_COLUMNS, empty="no timer of {queue} waits", cursor="cursor")
def list_timers(client: "Client", limit: int, cursor: str | None, queue: Queue) -> Any:
    """List the timers of a queue."""
    page = client.timers.find(queue, after=cursor, limit=limit)
    return page.rows, page.next_after


@timers_app.command("get")
@with_client
def get_timer(client: "Client", queue: Queue, key: TimerKey, *, output: Output = "table") -> None:
    """Show a timer, with its payload."""
    timer = client.timers.get(queue, key)
    if timer is None:
        raise NotFound(f"no timer {key} of {queue} waits")
    print_record(timer, output)


@timers_app.command("schedule")
@with_client
def schedule_timer(
    client: "Client",
    queue: Queue,
    key: TimerKey,
    payload: Annotated[str, Argument(help="JSON.")],
    *,
    delay: Annotated[float, Option(min=0, help="Deliver after (seconds).")],
    partition: Annotated[str | None, Option(help="Partition; Default unless given.")] = None,
) -> None:
    """Schedule a message, replacing what waits under its key."""
    changed = client.timers.schedule(
        queue, key, json_argument("payload", payload), delay_s=delay, partition=partition
    )
    typer.echo(f"{changed.status.capitalize()} {key} of {queue} for {changed.deliver_at}")


@timers_app.command("cancel")
@with_client
def cancel_timer(client: "Client", queue: Queue, key: TimerKey) -> None:
    """Cancel a timer."""
    if not client.timers.cancel(queue, key):
        raise NotFound(f"no timer {key} of {queue} waits: it fired, or was cancelled")
    typer.echo(f"Cancelled {key} of {queue}")
