"""What commands print: tables for people; JSON, NDJSON and YAML for programs; progress bars.

The machine formats have everything that is known of a row, under the names of the wire, without
colour and never cut; a table has the columns that a command chose.

Listings are fetched page by page as they are printed. A table and NDJSON appear page by page; JSON
and YAML are one document and wait for the last page.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer
from typer import Option

from skep.cli.shared.exits import Nothing

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Format: TypeAlias = Literal["table", "json", "ndjson", "yaml"]
Output = Annotated[Format, Option("--output", "-o", help="Output format.")]
Limit = Annotated[int, Option(min=1, help="Maximum number of rows.")]
Everything = Annotated[bool, Option("--all", help="Print all rows.")]
Offset = Annotated[int, Option(min=0, help="Number of rows to skip.")]

PAGE_ROWS: Final = 1000
"""The most rows that a broker puts into one answer."""
_PIPE_WIDTH: Final = 10_000
"""Outside of a terminal, each row of a table is one line."""

FetchPage: TypeAlias = Callable[[int, str | None], tuple[Sequence[Any], str | None]]
"""Takes a number of rows and a cursor; returns rows and the next cursor, None at the end."""


def print_rows(rows: Iterable[Any], columns: Sequence[str], output: Format) -> None:
    """Print rows: mappings, or structs as the client returns them.

    A table shows the members that `columns` has by their names on the wire; `a.b` is member b of a,
    with the heading b.
    """
    if output == "ndjson":
        for row in rows:
            typer.echo(to_json(row))
    elif output == "table":
        _print_table([_plain(row) for row in rows], columns)
    else:
        _print_whole(list(rows), output)


def print_record(record: Any, output: Format) -> None:
    """Print one value; in a table each member is one line."""
    if output == "ndjson":
        typer.echo(to_json(record))
    elif output == "table":
        for name, value in _plain(record).items():
            typer.echo(f"{name:<24} {cell(value)}".rstrip())
    else:
        _print_whole(record, output)


def cell(value: Any) -> str:
    """Return the text of a value in a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return value if isinstance(value, str) else to_json(value)


class Pages:
    """The pages of a listing, fetched as they are iterated over."""

    def __init__(self, fetch: FetchPage, *, limit: int | None, start: str | None = None) -> None:
        self._fetch: Final = fetch
        self._limit: Final = limit
        self.rest: str | None = start
        """The cursor of the next page; None at the end."""
        self.row_count = 0

    def __iter__(self) -> Iterator[Sequence[Any]]:
        while self._limit is None or self.row_count < self._limit:
            left = PAGE_ROWS if self._limit is None else self._limit - self.row_count
            rows, self.rest = self._fetch(min(left, PAGE_ROWS), self.rest)
            self.row_count += len(rows)
            if rows:
                yield rows
            if self.rest is None:
                return


def by_offset(fetch: Callable[[int, int], Sequence[Any]]) -> FetchPage:
    """Page by offset; a page that is not full is the last."""

    def fetch_page(limit: int, rest: str | None) -> tuple[Sequence[Any], str | None]:
        offset = int(rest or 0)
        rows = fetch(limit, offset)
        return rows, str(offset + limit) if len(rows) == limit else None

    return fetch_page


def print_pages(
    pages: Pages, columns: Sequence[str], output: Format, *, empty: str, more: str = "--offset"
) -> None:
    """Print a listing; `empty` is the error if there are no rows.

    `more` is the option that takes the cursor of the next page.
    """
    if output == "table":
        for page in pages:
            print_rows(page, columns, output)
    else:
        print_rows(chain.from_iterable(pages), columns, output)
    if not pages.row_count:
        raise Nothing(empty)
    if pages.rest is not None and output == "table":
        typer.echo(f"There may be more rows: pass {more} {pages.rest}, or --all", err=True)


def print_found(rows: Sequence[Any], columns: Sequence[str], output: Format, *, empty: str) -> None:
    """Print rows that were all fetched at once."""
    print_pages(Pages(lambda _limit, _rest: (rows, None), limit=None), columns, output, empty=empty)


@contextmanager
def progress_bar(*columns: "str | ProgressColumn") -> Generator["Progress"]:
    """Show progress on stderr until the end of the block; nothing if that is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield progress


def _print_whole(value: Any, output: Format) -> None:
    import msgspec

    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
        return
    import yaml

    typer.echo(yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True), nl=False)


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_numeric = any(_is_number(_member(row, column)) for row in rows)
        heading = column.rpartition(".")[2]
        table.add_column(heading, justify="right" if is_numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(_member(row, column))) for column in columns))
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(table)
        return
    plain = Console(width=_PIPE_WIDTH, highlight=False)
    with plain.capture() as captured:
        plain.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def _member(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = None if value is None else value.get(name)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_json(value: Any) -> str:
    """Return a value as JSON."""
    import msgspec

    return msgspec.json.encode(value).decode()


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(value))
