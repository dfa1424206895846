"""`skep top`: a broker at work, as a page in the terminal that refreshes itself."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from skep.cli.connection import with_client
from skep.model.errors import SkepError, Unavailable

if TYPE_CHECKING:
    from skep.cli.top_figures import Reading
    from skep.client import Client

QUEUES_READ: Final = 200
"""Queues and groups that are asked for at each look; of more, the first ones by name."""

WaitForKey = Callable[[float], str | None]
"""Waits so many seconds for a key; returns it, or None."""


@with_client
def top(
    client: "Client",
    *,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one page, after one interval, and end.")
    ] = False,
    rows: Annotated[int, typer.Option(min=1, max=200, help="Rows of each table.")] = 12,
) -> None:
    """Watch throughput, lag, latency, waiting consumers and instances; `q` ends it.

    Rates, latency and parked polls are of the instance that answers, the rest is of all.
    """
    from rich.console import Console

    from skep.cli.top_figures import frame_between
    from skep.cli.top_view import render_frame

    url = ", ".join(client.urls)
    before = read_broker(client)
    if once:
        time.sleep(interval)
        frame = frame_between(before, read_broker(client))
        Console(highlight=False).print(render_frame(frame, url=url, rows=rows))
        return
    _watch(client, before, url=url, interval=interval, rows=rows)


def read_broker(client: "Client") -> "Reading":
    """Ask a broker for everything that a page shows."""
    from skep.cli.exposition_reader import read_exposition
    from skep.cli.top_figures import NAMES, Reading

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
