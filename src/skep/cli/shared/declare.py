"""Commands declared by what differs: a listing, and an action that may ask for confirmation."""

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from skep.cli.shared import output as out
from skep.cli.shared.connection import with_client
from skep.cli.shared.options import Yes, confirm, declare_options

if TYPE_CHECKING:
    from skep.client import Client

Cursor = Annotated[str | None, Option(help="Continue here: the cursor that the last page printed.")]


def listing(
    columns: Sequence[str], *, empty: str, limit: int = 100, cursor: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a command of a function that fetches one page.

    The function takes a client, a number of rows, where to start, and the command's own arguments.
    It returns rows; with a cursor, rows and the next cursor.

    Args:
        columns: Of a table.
        empty: The error if there are no rows, formatted with the command's arguments.
        limit: The number of rows by default.
        cursor: The name of the option that takes a cursor; by default pages go by `--offset`.
    """
    start = cursor or "offset"

    def decorate(fetch: Callable[..., Any]) -> Callable[..., None]:
        def run(
            client: "Client", *, limit: int, everything: bool, output: out.Format, **arguments: Any
        ) -> None:
            begin = arguments.pop(start)

            def fetch_page(rows: int, place: Any) -> Any:
                return fetch(client, rows, place, **arguments)

            pages = out.Pages(
                fetch_page if cursor else out.by_offset(fetch_page),
                limit=None if everything else limit,
                start=None if begin is None else str(begin),
            )
            said = empty.format(**arguments)
            out.print_pages(pages, columns, output, empty=said, more=f"--{start}")

        options = {
            "limit": out.Limit,
            start: Cursor if cursor else out.Offset,
            "everything": out.Everything,
            "output": out.Output,
        }
        defaults = {"limit": limit, "everything": False, "output": "table"}
        if cursor is None:
            defaults[start] = 0
        names = list(inspect.signature(fetch).parameters)
        declare_options(run, fetch, options, defaults=defaults, hidden=(names[1], names[2]))
        return with_client(run)

    return decorate


def action(
    done: str | Callable[..., str], *, question: str | Callable[..., str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a command of a function that changes something.

    The function takes a client and the command's own arguments.

    Args:
        done: What to print afterwards, formatted with the arguments and the function's `result`, or
            made by a function of them.
        question: What to ask before, formatted with the arguments, or made by a function of the
            client and the arguments. Adds `--yes`.
    """

    def decorate(change: Callable[..., Any]) -> Callable[..., None]:
        def run(client: "Client", *, yes: bool = False, **arguments: Any) -> None:
            if callable(question):
                confirm(question(client, **arguments), is_answered=yes)
            elif question is not None:
                confirm(question.format(**arguments), is_answered=yes)
            result = change(client, **arguments)
            tell = done if callable(done) else done.format
            typer.echo(tell(result=result, **arguments))

        options = {} if question is None else {"yes": Yes}
        declare_options(run, change, options, defaults={"yes": False}, hidden=())
        return with_client(run)

    return decorate
