"""`skep context`: saved broker connections."""

import sys
from typing import Annotated, Final

import typer
from typer import Argument, Option

from skep.cli.shared.connection import complete_context, find_server, with_connection
from skep.cli.shared.contexts import ContextBook
from skep.cli.shared.help import Commands
from skep.cli.shared.options import Yes, confirm
from skep.cli.shared.output import Output, print_record, print_rows
from skep.settings.connection import ConnectionChoice

context_app: Final = Commands("context", "Manage saved broker connections.")

Name = Annotated[str, Argument(help="Context name.", autocompletion=complete_context)]


@context_app.command()
def add(
    name: Annotated[str, Argument(help="Context name.")],
    url: Annotated[str, Argument(help="Broker URL; separate several instances by commas.")],
    *,
    token: Annotated[str | None, Option(help="Access token; `-` reads it from stdin.")] = None,
    use: Annotated[bool, Option("--use", help="Make it the current context.")] = False,
) -> None:
    """Save a broker connection. The token goes to the keyring, or to a file only you may read."""
    given = sys.stdin.readline().strip() if token == "-" else token  # noqa: S105 (stands for stdin)
    book = ContextBook()
    context = book.add(name, url, given)
    if use:
        book.use(name)
    stored = f"; its token is in the {context.token_in}" if context.token_in else ""
    typer.echo(f"Added context {name}: {url}{stored}")


@context_app.command("list")
def list_contexts(*, output: Output = "table") -> None:
    """List the contexts."""
    book = ContextBook()
    rows = [
        {
            "name": context.name,
            "url": context.url,
            "tokenIn": context.token_in,
            "current": context == book.current,
        }
        for context in book.all()
    ]
    print_rows(rows, ("name as context", "url", "tokenIn as token", "current"), output)


@context_app.command()
def use(name: Name) -> None:
    """Make a context the current one."""
    ContextBook().use(name)
    typer.echo(f"Using context {name}")


@context_app.command()
@with_connection
def show(choice: ConnectionChoice, *, output: Output = "table") -> None:
    """Show which broker commands connect to, and why. The token is not shown."""
    server = find_server(choice)
    shown = {
        "urls": ",".join(server.urls),
        "from": server.origin,
        "token": "none" if server.token_origin is None else f"from {server.token_origin}",
    }
    print_record(shown, output)


@context_app.command()
def remove(name: Name, *, yes: Yes = False) -> None:
    """Delete a context and its token."""
    book = ContextBook()
    book.find(name)
    confirm(f"Delete context {name} and its token?", is_answered=yes)
    book.remove(name)
    typer.echo(f"Deleted context {name}")
