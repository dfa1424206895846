"""How `skep top` renders a page."""

from typing import Any, Final

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from skep.cli.admin.top_figures import SHARES, Frame
from skep.cli.shared.spelling import spell_seconds

ROWS_SHOWN: Final = 12
_FAR_BEHIND_S: Final = 300


def render_frame(frame: Frame, *, url: str, rows: int = ROWS_SHOWN) -> RenderableType:
    """Render a page with at most so many rows in each table."""
    parts: list[RenderableType] = [
        _headline(frame, url),
        *(Text(f"! {text}", style="bold red") for text in frame.warnings),
        Columns(
            [
                Panel(_messages(frame), title="messages", border_style="dim"),
                Panel(_latencies(frame), title="latency", border_style="dim"),
                Panel(_broker(frame), title="broker", border_style="dim"),
            ],
        ),
        _queues(frame, rows),
        _groups(frame, rows),
    ]
    if frame.instances is not None and len(frame.instances) > 1:
        parts.append(_instances(frame, rows))
    return Group(*parts)


def _headline(frame: Frame, url: str) -> RenderableType:
    found = frame.overview
    return Text.assemble(
        ("skep top ", "bold"),
        f"{url}  {frame.moment:%H:%M:%S} UTC  ",
        (f"{found['queues']:,} queues, {found['partitions']:,} partitions", "dim"),
    )


def _grid(rows: list[tuple[str, ...]], *, header: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, show_header=bool(header), header_style="dim", pad_edge=False)
    for index in range(len(rows[0])):
        title = header[index] if header else ""
        table.add_column(title, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _messages(frame: Frame) -> Table:
    counts: dict[str, Any] = frame.overview["messages"]
    about = "~" if frame.overview["estimated"] else ""
    return _grid(
        [
            ("in", f"{frame.rates.pushed:,.0f}/s"),
            ("out", f"{frame.rates.delivered:,.0f}/s"),
            ("acked", f"{frame.rates.acked:,.0f}/s"),
            ("waiting", f"{about}{counts['pending']:,}"),
            ("dead letters", f"{about}{counts['deadLetter']:,}"),
        ]
    )


def _latencies(frame: Frame) -> Table:
    header = ("", *(f"p{share * 100:.0f}" for share in SHARES))
    return _grid(
        [(each.name, *map(spell_seconds, each.values)) for each in frame.latencies],
        header=header,
    )


def _broker(frame: Frame) -> Table:
    lag = frame.overview["lag"]
    alive = sum(each["state"] == "alive" for each in frame.instances or ())
    return _grid(
        [
            ("instances", "?" if frame.instances is None else str(alive)),
            ("parked polls", f"{frame.parked:,}"),
            ("oldest waiting", spell_seconds(lag["time"]["max"])),
            ("connections", f"{frame.busy_connections} of {frame.connections} busy"),
            ("CPU, memory", f"{frame.cpu_share:.0%}, {frame.memory_bytes / 2**20:,.0f} MiB"),
        ]
    )


def _table(title: str, texts: tuple[str, ...], figures: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, expand=True)
    for column in texts:
        table.add_column(column, header_style="dim")
    for column in figures:
        table.add_column(column, justify="right", header_style="dim")
    return table


def _queues(frame: Frame, rows: int) -> Table:
    figures = ("in/s", "out/s", "acked/s", "waiting", "dead letters", "state")
    table = _table("queues", ("name",), figures)
    for row in frame.queues[:rows]:
        table.add_row(
            row.name,
            *(f"{each:,.0f}" if each else "-" for each in row.rates),
            f"{row.pending:,}",
            f"{row.dead_letters:,}",
            "paused" if row.is_paused else "",
            style="" if sum(row.rates) else "dim",
        )
    return table


def _groups(frame: Frame, rows: int) -> Table:
    figures = ("lag", "oldest", "partitions behind", "condition")
    table = _table("consumer groups", ("name", "queue"), figures)
    for group in frame.groups[:rows]:
        is_late = group.max_time_lag >= _FAR_BEHIND_S
        table.add_row(
            group.name,
            group.queue_name,
            f"{group.total_lag or 0:,}",
            spell_seconds(group.max_time_lag) if group.total_lag else "-",
            f"{group.partitions_with_lag:,} of {group.partition_count:,}",
            group.condition,
            style="yellow" if is_late else "",
        )
    return table


def _instances(frame: Frame, rows: int) -> Table:
    table = _table("instances", ("host",), ("workers", "version", "started", "state"))
    for each in (frame.instances or ())[:rows]:
        is_alive = each["state"] == "alive"
        table.add_row(
            f"{each['host']}:{each['port']}",
            str(each["workers"]),
            each["version"],
            each["startedAt"][:19],
            each["state"],
            style="" if is_alive else "red",
        )
    return table
