"""`skep top`: live figures of a broker in the terminal."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from typer import Option

from skep.cli.shared.connection import with_client
from skep.model.errors import Unavailable

if TYPE_CHECKING:
    from skep.cli.admin.top_figures import Reading
    from skep.client import Client

QUEUES_READ: Final = 200
"""Queues and groups read each time: the newest queues, the first groups by name."""
PIPE_WIDTH: Final = 120

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
    """Watch throughput, lag, latency and instances; `q` quits.

    Rates, latencies and parked polls are of the instance that answers, the rest is of all.
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

    text = client.fetch("/metrics/prometheus").decode()
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
    """Show a page after each interval until `q` or Ctrl-C. A broker may go and come back."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from skep.cli.admin.top_figures import frame_between
    from skep.cli.admin.top_view import render_frame

    waiting = Text(f"skep top {url}: first page in {interval:g} s; q quits", style="dim")
    console = Console(highlight=False)
    with (
        suppress(KeyboardInterrupt),
        keys() as wait_for_key,
        Live(waiting, console=console, screen=console.is_terminal, auto_refresh=False) as live,
    ):
        live.refresh()
        while wait_for_key(interval) not in {"q", "Q", "\x1b"}:
            try:
                now = read_broker(client)
            except Unavailable as error:
                live.update(
                    Text(f"skep top {url}: {error.message}", style="bold red"), refresh=True
                )
                continue
            frame = frame_between(before, now)
            live.update(render_frame(frame, url=url, rows=rows), refresh=True)
            before = now


@contextmanager
def keys() -> Generator[WaitForKey]:
    """Let single keys be read without echo; a pipe has none."""
    if not sys.stdin.isatty():
        yield time.sleep
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    saved = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield _wait_for_key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, saved)


def _wait_for_key(seconds: float) -> str | None:
    import os
    import select

    terminal = sys.stdin.fileno()
    ready, _, _ = select.select([terminal], [], [], seconds)
    return os.read(terminal, 1).decode(errors="replace") if ready else None
