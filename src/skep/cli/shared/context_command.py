"""`skep context`: brokers that one speaks to, by name."""

import sys
from typing import Annotated, Final, TypeAlias

import typer

from skep.cli.shared.completion import complete_context
from skep.cli.shared.connection import ContextName, Token, Url, find_server
from skep.cli.shared.contexts import ContextBook
from skep.cli.shared.output import Output, print_record, print_rows
from skep.cli.shared.prompts import Yes, confirm
from skep.settings.connection import ConnectionChoice

context_app: Final = typer.Typer(
    name="context", help="Brokers that one speaks to, by name.", no_args_is_help=True
)

Name: TypeAlias = Annotated[
    str, typer.Argument(help="The name of a context.", autocompletion=complete_context)
]


@context_app.command()
def add(
    name: Annotated[str, typer.Argument(help="How it shall be called.")],
    url: Annotated[str, typer.Argument(help="Of the broker; of several with commas between them.")],
    *,
    token: Annotated[
        str | None, typer.Option(help="What says who is calling; `-` reads it from stdin.")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the current one.")] = False,
) -> None:
    """Keep a broker under a name. A token goes to the keyring, or to a file only you may read."""
    given = sys.stdin.readline().strip() if token == "-" else token  # noqa: S105 (stands for stdin)
    book = ContextBook()
    context = book.add(name, url, given)
    if use:
        book.use(name)
    kept = f"; its token is in the {context.token_in}" if context.token_in else ""
    typer.echo(f"context {name}: {url}{kept}")


@context_app.command("list")
def list_contexts(*, output: Output = "table") -> None:
    """List the contexts."""
    book = ContextBook()
    current = book.current
    rows = [
        {
            "name": context.name,
            "url": context.url,
            "tokenIn": context.token_in,
            "current": context == current,
        }
        for context in book.all()
    ]
    print_rows(rows, ("name", "url", "tokenIn", "current"), output)


@context_app.command()
def use(name: Name) -> None:
    """Make a context the current one."""
    ContextBook().use(name)


@context_app.command()
def show(
    *, url: Url = None, token: Token = None, context: ContextName = None, output: Output = "table"
) -> None:
    """Show which broker commands speak to, and why. The token is not shown."""
    server = find_server(ConnectionChoice(url=url, token=token, context=context))
    shown = {
        "urls": ",".join(server.urls),
        "from": server.origin,
        "token": "none" if server.token_origin is None else f"from {server.token_origin}",
    }
    print_record(shown, output)


@context_app.command()
def remove(name: Name, *, yes: Yes = False) -> None:
    """Forget a context and its token."""
    book = ContextBook()
    book.find(name)
    confirm(f"Forget the context {name} and its token?", is_answered=yes)
    book.remove(name)
