"""`skep replays`: replays that a worker with Spark carries out, ordered and watched over HTTP."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import UUID

import typer
from typer import Argument, Option

from skep.cli.jobs.lists import find_page
from skep.cli.shared.connection import OnlyPartition, complete_queue, with_client
from skep.cli.shared.declare import action, listing
from skep.cli.shared.help import Commands
from skep.cli.shared.options import time_option
from skep.cli.shared.output import Output, print_record

if TYPE_CHECKING:
    from skep.client import Client

replays_app: Final = Commands("replays", "Order replays from workers with Spark; list, cancel.")

ReplayId = Annotated[UUID, Argument(help="Replay id.", metavar="ID")]
From = Annotated[datetime, time_option("--from", summary="Start: ISO 8601.", fixed=True)]
To = Annotated[
    datetime, time_option("--to", summary="End, exclusive; must be in the past.", fixed=True)
]


@replays_app.command("list")
@listing(
    (
        *("id", "state", "order.queue", "order.into", "order.from", "order.to as until"),
        *("progress", "result.messages", "error", "hint"),
    ),
    empty="no replay was ordered",
    cursor="after",
)
def list_replays(client: "Client", limit: int, after: str | None) -> Any:
    """List replays, newest first."""
    return find_page(client, "replays", limit=limit, after=after)


@replays_app.command("show")
@with_client
def show_replay(client: "Client", replay: ReplayId, *, output: Output = "table") -> None:
    """Show a replay and its state."""
    found = client.request("GET", f"/api/v1/replays/{replay}")
    if output == "table":
        found |= (found.pop("order") or {}) | (found.pop("result") or {})
    print_record(found, output)


@replays_app.command("start")
@with_client
def start_replay(
    client: "Client",
    *,
    queue: Annotated[str, Option(help="Source queue.", autocompletion=complete_queue)],
    since: From,
    until: To,
    into: Annotated[str, Option(help="Target queue; created if missing.")],
    where: Annotated[
        str | None, Option(help="Only messages that satisfy this Spark SQL condition.")
    ] = None,
    partition: OnlyPartition = None,
    keep_ids: Annotated[
        bool, Option("--keep-ids", help="Keep transaction ids; the target skips duplicates.")
    ] = False,
    key: Annotated[
        str | None, Option(help="Idempotency key: a repeated key starts nothing new.")
    ] = None,
    decrypt: Annotated[
        bool, Option("--decrypt", help="Allow encrypted messages to be written in plain text.")
    ] = False,
    on_error: Annotated[
        Literal["fail", "dead-letter"], Option(help="What to do with rows that cannot be stored.")
    ] = "fail",
) -> None:
    """Order a replay of a period of a queue; print its id."""
    from skep.client.endpoints import spell_time

    order = {"queue": queue, "from": spell_time(since), "to": spell_time(until), "into": into}
    how = {"where": where, "partition": partition, "keepIds": keep_ids, "decrypt": decrypt}
    body = {**order, **how, "onError": on_error, "key": key}
    started = client.request("POST", "/api/v1/replays", body)
    typer.echo(f"{started['id']}{' (already ordered)' if started['isDuplicate'] else ''}")
    typer.echo(f"A worker runs it: {started['worker']}", err=True)


@replays_app.command("cancel")
@action("Cancelled replay {replay}", question="Cancel replay {replay}?")
def cancel_replay(client: "Client", replay: ReplayId) -> None:
    """Cancel a replay; what is not committed is not stored."""
    client.request("GET", f"/api/v1/replays/{replay}")
    client.request("POST", f"/api/v1/chains/{replay}/cancel")
