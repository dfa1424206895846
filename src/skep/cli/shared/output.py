"""What commands print: tables for people; JSON, NDJSON and YAML for programs; progress bars.

The machine formats have everything that is known of a row, under the names of the wire, without
colour; a table has the columns that a command chose, as `skep.cli.shared.spelling` spells them. In
a terminal empty columns are left out and long texts are cut to its width; in a pipe all is there.
`-o wide` is the table with exact times and sizes.

Listings are fetched page by page as they are printed. A table and NDJSON appear page by page; JSON
and YAML are one document and wait for the last page.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import chain, compress
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer
from typer import Option

from skep.cli.shared.spelling import Cell, heading, last_line, spell

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Format: TypeAlias = Literal["table", "wide", "json", "ndjson", "yaml"]
_is_exact: Final = ContextVar("is_exact", default=False)


def is_exact() -> bool:
    """Whether a table has exact times and sizes, uncut."""
    return _is_exact.get()


def _note_exactness(chosen: Format) -> Format:
    """Let commands know one kind of table only."""
    _is_exact.set(chosen == "wide")
    return "table" if chosen == "wide" else chosen


Output = Annotated[
    Format,
    Option(
        "--output",
        "-o",
        callback=_note_exactness,
        help="Output format; `wide` is the table with exact times and sizes.",
    ),
]
Limit = Annotated[int, Option(min=1, help="Maximum number of rows.")]
Everything = Annotated[bool, Option("--all", help="Print all rows.")]
Offset = Annotated[int, Option(min=0, help="Number of rows to skip.")]

PAGE_ROWS: Final = 1000
"""The most rows that a broker puts into one answer."""
_GAP: Final = "  "
_CUT_CHARS_MIN: Final = 16
"""Texts are cut to no less, even if the row is longer than a line then."""
_UNCUT: Final = re.compile(r"(?i).*(id|name|queue|partition|group)|id|type|key|setting")
"""Names of what people copy, and of what tells rows apart."""

FetchPage: TypeAlias = Callable[[int, str | None], tuple[Sequence[Any], str | None]]
"""Takes a number of rows and a cursor; returns rows and the next cursor, None at the end."""


def print_rows(rows: Iterable[Any], columns: Sequence[str], output: Format) -> None:
    """Print rows: mappings, or structs as the client returns them.

    A table shows the members that `columns` has by their names on the wire; `a.b` is member b of a,
    and `a as text` has its own heading.
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
        members = {heading(name): _spelled(name, value) for name, value in _plain(record).items()}
        print_members({name: cell for name, cell in members.items() if cell.text})
    else:
        _print_whole(record, output)


def print_members(members: Mapping[str, Cell | str]) -> None:
    """Print names with their values, one per line and further lines of a value below its first."""
    from rich.console import Console
    from rich.text import Text

    width = max(map(len, members), default=0)
    console = Console(highlight=False, soft_wrap=True)
    for name, value in members.items():
        text, style = (value, "") if isinstance(value, str) else (value.text, value.style)
        indented = text.rstrip().replace("\n", "\n" + " " * width + _GAP)
        console.print(Text.assemble((name.ljust(width) + _GAP, "dim"), (indented, style)))


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
    """Print a listing; `empty` is what to tell a person if there are no rows.

    `more` is the option that takes the cursor of the next page.
    """
    if output == "table":
        for page in pages:
            print_rows(page, columns, output)
    else:
        print_rows(chain.from_iterable(pages), columns, output)
    if not pages.row_count and output == "table":
        typer.echo(empty[:1].upper() + empty[1:], err=True)
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
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    is_cut = console.is_terminal and not is_exact()
    paths = [column.partition(" as ")[0] for column in columns]
    if is_cut:
        is_known = [any(_member(row, path) is not None for row in rows) for path in paths]
        columns = [*compress(columns, is_known)]
        paths = [*compress(paths, is_known)]
    lines = [
        [_one_line(_spelled(path, _member(row, path)), is_cut) for path in paths] for row in rows
    ]
    titles = [Cell(heading(column), "bold") for column in columns]
    widths = [
        max(cell_len(each.text) for each in column) for column in zip(titles, *lines, strict=True)
    ]
    if is_cut:
        _cut(
            widths,
            [not _UNCUT.fullmatch(path.rpartition(".")[2]) for path in paths],
            lines,
            console.width,
        )
    is_right = [any(cell.is_number for cell in column) for column in zip(*lines, strict=True)]
    for cells in [titles, *lines] if lines else ():
        line = Text()
        for cell, width, on_right in zip(cells, widths, is_right, strict=True):
            text = cell.text
            if cell_len(text) > width:
                text = set_cell_size(text, width - 1) + "…"
            padding = " " * (width - cell_len(text))
            line.append(padding + text if on_right else text + padding, style=cell.style)
            line.append(_GAP)
        line.rstrip()
        console.print(line)


def _cut(
    widths: list[int], may_cut: list[bool], lines: Sequence[Sequence[Cell]], width: int
) -> None:
    """Narrow the widest columns of text until a row fits."""
    texts = [
        index
        for index, cells in enumerate(zip(*lines, strict=True))
        if may_cut[index] and not any(cell.is_number for cell in cells)
    ]
    while texts and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        widest = max(texts, key=lambda index: widths[index])
        if widths[widest] <= _CUT_CHARS_MIN:
            return
        widths[widest] -= 1


def _one_line(cell: Cell, is_cut: bool) -> Cell:
    """Return a cell whose text is one line; where people read it, the line that says most."""
    text = last_line(cell.text) if is_cut else " ".join(cell.text.split())
    return cell._replace(text=text) if "\n" in cell.text else cell


def _spelled(name: str, value: Any) -> Cell:
    return spell(name, value, is_exact=is_exact(), now=datetime.now(UTC))


def _member(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = None if value is None else value.get(name)
    return value


def to_json(value: Any) -> str:
    """Return a value as JSON."""
    import msgspec

    return msgspec.json.encode(value).decode()


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(value))
