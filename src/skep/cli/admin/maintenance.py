"""`skep maintenance`: keep pushes on disk, or deliver nothing, on all instances."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from skep.cli.shared.connection import with_client
from skep.cli.shared.output import Output, print_record
from skep.cli.shared.prompts import Yes, confirm

if TYPE_CHECKING:
    from skep.client import Client

maintenance_app: Final = typer.Typer(
    name="maintenance",
    help="Keep pushes on disk, or deliver nothing, on all instances.",
    no_args_is_help=True,
)

Mode: TypeAlias = Annotated[
    Literal["push", "pop"],
    typer.Option(
        "--mode",
        help="`push`: pushes wait on the disks of the brokers. `pop`: nothing is delivered.",
    ),
]

_PATHS: Final = {"push": "/api/v1/system/maintenance", "pop": "/api/v1/system/maintenance/pop"}
_EFFECTS: Final = {
    "push": "Keep all pushes on disk instead of storing them",
    "pop": "Deliver nothing to any consumer",
}


@maintenance_app.command("status")
@with_client
def show_status(client: "Client", *, output: Output = "table") -> None:
    """Show the modes, and what waits on the disk of the broker."""
    found = client.request("GET", _PATHS["push"])
    if output == "table":
        stats: dict[str, Any] = found.pop("bufferStats")
        found |= {name: stats[name] for name in ("pendingBytes", "failedCount", "dbHealthy")}
    print_record(found, output)


@maintenance_app.command("on")
@with_client
def switch_on(client: "Client", *, mode: Mode = "push", yes: Yes = False) -> None:
    """Switch a mode on, for all instances."""
    confirm(f"{_EFFECTS[mode]}, on all instances?", is_answered=yes)
    _switch(client, mode, is_on=True)


@maintenance_app.command("off")
@with_client
def switch_off(client: "Client", *, mode: Mode = "push") -> None:
    """Switch a mode off, for all instances. What waited on disk is then stored, in order."""
    _switch(client, mode, is_on=False)


def _switch(client: "Client", mode: str, *, is_on: bool) -> None:
    answer = client.request("POST", _PATHS[mode], {"enabled": is_on})
    waiting = answer.get("bufferedMessages")
    typer.echo(answer["message"] + (f" {waiting:,} messages wait on disk." if waiting else ""))
