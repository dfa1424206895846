"""`skep locks`: who holds locks and semaphores."""

from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from skep.cli.shared.connection import with_client
from skep.cli.shared.help import Commands
from skep.cli.shared.output import Output, print_found
from skep.model.errors import NotFound

if TYPE_CHECKING:
    from skep.client import Client

locks_app: Final = Commands("locks", "Show who holds a lock or semaphore, and take it back.")

Name = Annotated[str, Argument(help="Name of the lock.")]

_COLUMNS: Final = ("slot", "owner", "token", "since", "expiresAt as expires")


@locks_app.command("get")
@with_client
def show_lock(client: "Client", name: Name, *, output: Output = "table") -> None:
    """Show who holds a lock."""
    print_found(client.locks.holders(name), _COLUMNS, output, empty=f"the lock {name} is free")


@locks_app.command("release")
@with_client
def release_lock(
    client: "Client",
    name: Name,
    *,
    slot: Annotated[int, Option(min=0, help="Which permit of a semaphore.")] = 0,
) -> None:
    """Take a permit from a holder that hangs."""
    held = [each for each in client.locks.holders(name) if each.slot == slot]
    if not held or not client.locks.release(name, held[0].token, slot=slot):
        raise NotFound(f"the lock {name} is free")
    typer.echo(f"Released {name} of {held[0].owner or 'an unknown owner'}")
