"""What commands print: a table for people, or JSON, NDJSON and YAML for programs.

The machine formats have everything that is known of a row, under the names of the wire, without
colour and never cut; a table has the columns that a command chose.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import typer

Format: TypeAlias = Literal["table", "json", "ndjson", "yaml"]
Output: TypeAlias = Annotated[Format, typer.Option("--output", "-o", help="How to print it.")]

_PIPE_WIDTH: Final = 10_000
"""Rows of a table that no terminal limits stand on one line each."""


def print_rows(rows: Iterable[Any], columns: Sequence[str], output: Format) -> None:
    """Print rows: mappings, or structs as the client returns them.

    Args:
        rows: Each with the same members.
        columns: Which members a table shows, by their name on the wire; `a.b` is member b of
            a, and its heading is b.
        output: How.
    """
    if output == "ndjson":
        for row in rows:
            typer.echo(_json(row))
    elif output == "table":
        _print_table([_plain(row) for row in rows], columns)
    else:
        _print_whole(list(rows), output)


def print_record(record: Any, output: Format) -> None:
    """Print one thing: in a table each member has a line of its own."""
    if output == "ndjson":
        typer.echo(_json(record))
    elif output == "table":
        for name, value in _plain(record).items():
            typer.echo(f"{name:<24} {cell(value)}".rstrip())
    else:
        _print_whole(record, output)


def cell(value: Any) -> str:
    """Return how a table shows a value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return value if isinstance(value, str) else _json(value)


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


def _json(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _plain(value: Any) -> Any:
    """Return a value as the wire has it, whatever struct it came in."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(value))
