"""Listings of any length: pages fetched as they are printed, never all at once.

A table and NDJSON appear page by page. JSON and YAML are one document and wait for the last page.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Annotated, Any, Final, TypeAlias

import typer

from skep.cli.shared.exits import Nothing
from skep.cli.shared.output import Format, print_rows

PAGE_ROWS: Final = 1000
"""The most that a broker puts into one answer."""

Limit: TypeAlias = Annotated[int, typer.Option(min=1, help="Rows at most.")]
Everything: TypeAlias = Annotated[bool, typer.Option("--all", help="All rows, however many.")]
Offset: TypeAlias = Annotated[int, typer.Option(min=0, help="Rows to pass over.")]

FetchPage: TypeAlias = Callable[[int, str | None], tuple[Sequence[Any], str | None]]
"""Takes how many rows and where to go on; returns rows and where to go on, None at the end."""


class Pages:
    """The pages of a listing, each fetched when it is asked for."""

    def __init__(self, fetch: FetchPage, *, limit: int | None, start: str | None = None) -> None:
        self._fetch: Final = fetch
        self._limit: Final = limit
        self.rest: str | None = start
        """Where a further listing would go on; None at the end."""
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
    """Page by the number of rows passed over; a page that is not full is the last."""

    def fetch_page(limit: int, rest: str | None) -> tuple[Sequence[Any], str | None]:
        offset = int(rest or 0)
        rows = fetch(limit, offset)
        return rows, str(offset + limit) if len(rows) == limit else None

    return fetch_page


def one_page(rows: Sequence[Any]) -> Pages:
    """Make a listing of rows that are all there already."""

    def fetch_page(limit: int, rest: str | None) -> tuple[Sequence[Any], str | None]:
        del limit, rest  # there is nothing but this page
        return rows, None

    return Pages(fetch_page, limit=None)


def print_pages(
    pages: Pages, columns: Sequence[str], output: Format, *, what: str, go_on: str = "--offset"
) -> None:
    """Print a listing.

    Args:
        pages: What to print.
        columns: Of a table.
        output: How.
        what: What there is none of when there is nothing.
        go_on: The flag that takes where to go on.

    Raises:
        Nothing: The listing is empty.
    """
    if output == "table":
        for page in pages:
            print_rows(page, columns, output)
    else:
        print_rows(chain.from_iterable(pages), columns, output)
    if not pages.row_count:
        raise Nothing(f"no {what}")
    if pages.rest is not None and output == "table":
        typer.echo(f"There may be more: {go_on} {pages.rest}, or --all", err=True)
