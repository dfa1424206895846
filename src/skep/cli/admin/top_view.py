"""How `skep top` renders a page."""

from collections.abc import Sequence
from typing import Any, Final

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from skep.cli.admin.top_figures import SHARES, TRAIL_READINGS, Frame, GroupRow, QueueRow
from skep.cli.admin.top_keys import HELP, View, sorted_groups, sorted_queues
from skep.cli.shared.spelling import spell_bytes, spell_seconds, style_of
from skep.model.plurals import counted

ROWS_SHOWN: Final = 12
NAME_CHARS_MAX: Final = 40
_FIRST_VIEW: Final = View()
_BARS: Final = "▁▂▃▄▅▆▇█"


def render_frame(
    frame: Frame,
    *,
    url: str,
    rows: int = ROWS_SHOWN,
    view: View = _FIRST_VIEW,
    detail: Sequence[RenderableType] | None = None,
) -> RenderableType:
    """Render a page with at most so many rows in each table; `detail` stands in their place."""
    parts: list[RenderableType] = [
        _headline(frame, url),
        *(Text(f"! {text}", style="bold red") for text in frame.warnings),
    ]
    if view.has_help:
        keys = _grid([(f" {key} ", what) for key, what in HELP], aligned="left")
        parts.append(Panel(keys, title="keys", border_style="cyan", expand=False))
    if detail is not None:
        return Group(*parts, *detail)
    parts += [
        Columns(
            [
                Panel(_messages(frame), title="messages", border_style="dim"),
                Panel(_latencies(frame), title="latency", border_style="dim"),
                Panel(_broker(frame), title="broker", border_style="dim"),
            ],
        ),
        _queues(sorted_queues(frame, view), rows, view),
        _groups(sorted_groups(frame, view), rows, view),
    ]
    if frame.instances is not None and len(frame.instances) > 1:
        parts.append(_instances(frame, rows))
    return Group(*parts)


def queue_detail(frame: Frame, queue: QueueRow) -> list[RenderableType]:
    """Render all that is known of a queue, and its groups."""
    rates = zip(("in", "out", "acked"), queue.rates, strict=True)
    facts = [
        *((name, f"{rate:,.1f}/s") for name, rate in rates),
        ("waiting", f"{queue.pending:,}"),
        ("dead letters", f"{queue.dead_letters:,}"),
        ("state", "paused" if queue.is_paused else "delivering"),
        ("in and out", sparkline(queue.trail)),
    ]
    groups = [group for group in frame.groups if group.queue == queue.name]
    return [_panel(f"queue {queue.name}", facts), _groups(groups, len(groups), View(row=-1))]


def group_detail(group: GroupRow, partitions: Sequence[Any]) -> list[RenderableType]:
    """Render all that is known of a group on a queue, and its partitions that are behind."""
    drains = group.lag / -group.growth if group.growth < 0 and group.lag else None
    facts = [
        ("condition", group.condition),
        ("lag", f"{group.lag:,}"),
        ("growth", f"{group.growth:+,.1f}/s"),
        ("drained in", spell_seconds(drains)),
        ("oldest", spell_seconds(group.oldest_s)),
        ("partitions behind", f"{group.behind:,} of {group.partitions:,}"),
        ("lag so far", _lag_so_far(group)),
    ]
    table = _table("partitions behind", ("partition",), ("lag", "oldest", "leased", "failing"))
    for each in partitions:
        table.add_row(
            each.partition,
            f"{each.offset_lag:,}",
            spell_seconds(each.time_lag_seconds),
            "yes" if each.leased else "",
            f"{each.failing:,}" if each.failing else "",
            style="red" if each.failing else "",
        )
    return [_panel(f"{group.name} on {group.queue}", facts), table]


def sparkline(values: Sequence[float], *, floor: float = 0) -> str:
    """Return values as bars, the highest full and the floor lowest; blank before the first."""
    height = max(values, default=0) - floor
    places = [
        round((value - floor) / height * (len(_BARS) - 1)) if height else 0 for value in values
    ]
    return "".join(_BARS[place] for place in places).rjust(TRAIL_READINGS)


class _Trail:
    """A sparkline that gives way to names and figures: it starts later where a line is short."""

    def __init__(self, bars: str) -> None:
        self._bars: Final = bars

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._bars[len(self._bars) - options.max_width :], no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, max(min(len(self._bars), options.max_width), 1))


def _lag_so_far(group: GroupRow) -> str:
    """Return the trail from its lowest value on: a large lag that grows would look level else."""
    low, high = min(group.trail, default=0), max(group.trail, default=0)
    return sparkline(group.trail, floor=low if high > low * 1.01 else 0)


def _headline(frame: Frame, url: str) -> RenderableType:
    found = frame.overview
    queues, partitions = (counted(found[f"{name}s"], name) for name in ("queue", "partition"))
    return Text.assemble(
        ("skep top ", "bold"),
        f"{url}  {frame.moment:%H:%M:%S} UTC  ",
        (f"{queues}, {partitions}  ? help", "dim"),
    )


def _panel(title: str, facts: list[tuple[str, str]]) -> Panel:
    return Panel(_grid(facts, aligned="left"), title=title, border_style="dim", expand=False)


def _grid(
    rows: Sequence[tuple[str, ...]], *, header: tuple[str, ...] = (), aligned: Any = "right"
) -> Table:
    table = Table(box=None, show_header=bool(header), header_style="dim", pad_edge=False)
    for index in range(len(rows[0])):
        title = header[index] if header else ""
        table.add_column(title, justify="left" if index == 0 else aligned, no_wrap=True)
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
            ("CPU, memory", f"{frame.cpu_share:.0%}, {spell_bytes(frame.memory_bytes)}"),
        ]
    )


def _table(title: str, texts: tuple[str, ...], figures: tuple[str, ...], order: str = "") -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        expand=True,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in (*texts, *figures):
        is_text = column in texts
        table.add_column(
            column,
            justify="left" if is_text else "right",
            header_style="bold" if column == order else "dim",
            no_wrap=bool(column),  # what has no title is a trail
            max_width=NAME_CHARS_MAX if is_text else None,
        )
    return table


def _visible(rows: Sequence[Any], count: int, view: View, table: str) -> list[tuple[Any, bool]]:
    """Return the rows around the chosen one, each with whether it is that."""
    chosen = min(view.row, len(rows) - 1) if view.table == table else -1
    first = max(chosen - count + 1, 0)
    places = enumerate(rows[first : first + count], first)
    return [(row, place == chosen) for place, row in places]


def _queues(queues: Sequence[QueueRow], rows: int, view: View) -> Table:
    figures = ("in/s", "out/s", "acked/s", "", "waiting", "dead letters", "state")
    table = _table(f"queues by {view.order_of('queues')}", ("queue",), figures, view.order)
    for row, is_chosen in _visible(queues, rows, view, "queues"):
        style = "" if sum(row.rates) else "dim"
        table.add_row(
            row.name,
            *(f"{each:,.0f}" if each else "-" for each in row.rates),
            _Trail(sparkline(row.trail)),
            f"{row.pending:,}",
            f"{row.dead_letters:,}",
            "paused" if row.is_paused else "",
            style=f"{style} reverse" if is_chosen else style,
        )
    return table


def _groups(groups: Sequence[GroupRow], rows: int, view: View) -> Table:
    figures = ("lag", "growth", "", "oldest", "behind", "condition")
    title = f"consumer groups by {view.order_of('groups')}"
    table = _table(title, ("group", "queue"), figures, view.order)
    for group, is_chosen in _visible(groups, rows, view, "groups"):
        style = "red" if group.is_growing else ""
        table.add_row(
            group.name,
            group.queue,
            f"{group.lag:,}",
            f"{group.growth:+,.0f}/s" if round(group.growth) else "-",
            _Trail(_lag_so_far(group)),
            spell_seconds(group.oldest_s) if group.lag else "-",
            f"{group.behind:,} of {group.partitions:,}",
            Text(group.condition, style=style or style_of(group.condition)),
            style=f"{style} reverse" if is_chosen else style,
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
