"""`skep top`: live figures of a broker in the terminal."""

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from typer import Option

from skep.cli.admin.top_keys import View, sorted_groups, sorted_queues
from skep.cli.shared.connection import with_client
from skep.model.errors import Unavailable
from skep.model.wire import QUEUE_MODE

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skep.cli.admin.top_figures import Frame, Reading
    from skep.client import Client

QUEUES_READ: Final = 200
"""Queues and groups read each time: the newest queues, the first groups by name."""
PARTITIONS_SHOWN: Final = 20
PIPE_WIDTH: Final = 120
_KEY: Final = re.compile(r"\x1b[\[O][A-Z]|.", re.DOTALL)
"""An arrow is a sequence of three characters."""

WaitForKey: TypeAlias = Callable[[float], str | None]
"""Waits up to so many seconds for a key."""


@with_client
def top(
    client: "Client",
    *,
    interval: Annotated[float, Option(min=0.1, max=3600, help="Seconds between pages.")] = 2.0,
    once: Annotated[bool, Option("--once", help="Print one page after one interval.")] = False,
    rows: Annotated[int, Option(min=1, max=200, help="Maximum rows of each table.")] = 12,
) -> None:
    """Watch throughput, lag, latency and instances; `?` for help.

    Rates, latencies and parked polls are of the instance that answers, the rest is of all. Groups
    whose lag grows are red.
    """
    from rich.console import Console

    from skep.cli.admin.top_figures import frame_between
    from skep.cli.admin.top_view import render_frame

    url = ", ".join(client.urls)
    before = read_broker(client)
    if once:
        time.sleep(interval)
        frame = frame_between(before, read_broker(client))
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(width=PIPE_WIDTH, highlight=False)
        console.print(render_frame(frame, url=url, rows=rows))
        return
    _watch(client, before, url=url, interval=interval, rows=rows)


def read_broker(client: "Client") -> "Reading":
    """Read everything that a page shows."""
    from skep.cli.admin.top_figures import NAMES, Reading, read_exposition

    text = client.download("/metrics/prometheus").decode()
    return Reading(
        at=time.monotonic(),
        moment=datetime.now(UTC),
        metrics=read_exposition(text, NAMES),
        overview=client.overview(),
        queues=client.queues.find(limit=QUEUES_READ).queues,
        groups=client.groups.find(limit=QUEUES_READ),
        instances=_instances(client),
    )


def _instances(client: "Client") -> "list[dict[str, Any]] | None":
    """Return the instances; None if the caller may not see them."""
    from skep.client import AccessDenied
    from skep.model.errors import Forbidden

    try:
        return client.request("GET", "/api/v1/system/shared-state")["instances"]
    except (AccessDenied, Forbidden):
        return None


def _watch(client: "Client", before: "Reading", *, url: str, interval: float, rows: int) -> None:
    """Show a page after each interval and each key until `q`. A broker may go and come back."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from skep.cli.admin.top_figures import Trail, frame_between
    from skep.cli.admin.top_view import render_frame

    waiting = Text(f"skep top {url}: first page in {interval:g} s; q quits", style="dim")
    console = Console(highlight=False)
    trail, frame, view = Trail(), None, View()
    read_at = time.monotonic() + interval
    with (
        suppress(KeyboardInterrupt),
        keys() as wait_for_key,
        Live(waiting, console=console, screen=console.is_terminal, auto_refresh=False) as live,
    ):
        live.refresh()
        while True:
            key = wait_for_key(max(read_at - time.monotonic(), 0))
            if key is not None:
                shown = (frame.queues, frame.groups)[view.table == "groups"] if frame else ()
                pressed = view.press(key, len(shown))
                if pressed is None:
                    return
                view = pressed
            try:
                if time.monotonic() >= read_at:
                    read_at = time.monotonic() + interval
                    now = read_broker(client)
                    frame, before = frame_between(before, now, trail), now
                if frame is None:
                    continue
                detail = _read_detail(client, frame, view) if view.is_open else None
            except Unavailable as error:
                said = Text(f"skep top {url}: {error.message}", style="bold red")
                live.update(said, refresh=True)
                continue
            page = render_frame(frame, url=url, rows=rows, view=view, detail=detail)
            live.update(page, refresh=True)


def _read_detail(client: "Client", frame: "Frame", view: View) -> "list[RenderableType]":
    """Return what is known of the chosen queue or group."""
    from skep.cli.admin.top_view import group_detail, queue_detail

    if view.table == "queues":
        queues = sorted_queues(frame, view)
        return queue_detail(frame, queues[min(view.row, len(queues) - 1)])
    groups = sorted_groups(frame, view)
    group = groups[min(view.row, len(groups) - 1)]
    name = QUEUE_MODE if group.name == "default group" else group.name
    found = client.groups.lag(name, group.queue, limit=QUEUES_READ).partitions
    behind = [each for each in found if each.offset_lag or each.failing]
    behind.sort(key=lambda each: (-each.failing, -each.offset_lag))
    return group_detail(group, behind[:PARTITIONS_SHOWN])


@contextmanager
def keys() -> Generator[WaitForKey]:
    """Let single keys be read without echo; a pipe has none."""
    if not sys.stdin.isatty():
        yield time.sleep
        return
    import os
    import select
    import termios
    import tty

    terminal = sys.stdin.fileno()
    saved = termios.tcgetattr(terminal)
    pressed: deque[str] = deque()

    def wait_for_key(seconds: float) -> str | None:
        if not pressed and select.select([terminal], [], [], seconds)[0]:
            pressed.extend(_KEY.findall(os.read(terminal, 1024).decode(errors="replace")))
        return pressed.popleft() if pressed else None

    try:
        tty.setcbreak(terminal)
        yield wait_for_key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, saved)
