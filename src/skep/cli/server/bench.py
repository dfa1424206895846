"""`skep bench`: a load test of any broker that speaks Queen's wire."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from skep.cli.shared.connection import ContextName, Token, find_server
from skep.cli.shared.output import Output, print_record, print_rows
from skep.model.errors import BadRequest
from skep.settings.connection import ConnectionChoice

if TYPE_CHECKING:
    from skep.cli.server.bench_figures import Tally
    from skep.cli.server.bench_load import Plan
    from skep.cli.shared.connection import Server

BUSY_SHARE = 0.9
"""Of a core: beyond, this client is what limits the result."""


def bench(
    url: Annotated[
        str | None,
        typer.Argument(help="Of a broker, Skep or Queen; by default that of the context."),
    ] = None,
    *,
    producers: Annotated[int, typer.Option(min=0, help="That push at the same time.")] = 4,
    consumers: Annotated[int, typer.Option(min=0, help="That consume at the same time.")] = 4,
    batch: Annotated[
        int, typer.Option(min=1, max=1000, help="Messages in one push, and in one pop at most.")
    ] = 100,
    partitions: Annotated[int, typer.Option(min=1, help="To spread the messages over.")] = 10,
    size: Annotated[int, typer.Option(min=64, help="Bytes of a payload.")] = 256,
    duration: Annotated[float, typer.Option(min=0.1, help="Seconds to push for.")] = 10.0,
    queue: Annotated[
        str | None,
        typer.Option(
            help="Use this queue and leave it; by default one that is deleted afterwards."
        ),
    ] = None,
    token: Token = None,
    context: ContextName = None,
    output: Output = "table",
) -> None:
    """Push and consume as fast as a broker takes it.

    One process drives it, on one core. When that is busy, run several with one --queue.
    """
    from skep.cli.server.bench_load import Plan

    if not producers and not consumers:
        raise BadRequest("there is nothing to do without producers and consumers")
    server = find_server(ConnectionChoice(url=url, token=token, context=context))
    plan = Plan(
        queue=queue or f"skep-bench-{uuid4().hex[:12]}",
        is_own_queue=queue is None,
        producers=producers,
        consumers=consumers,
        batch=batch,
        partitions=partitions,
        payload_bytes=size,
        duration_s=duration,
    )
    report = {"url": ", ".join(server.urls), "queue": plan.queue, **_run(server, plan)}
    if output == "table":
        _print_report(report)
    else:
        print_record(report, output)


def _run(server: "Server", plan: "Plan") -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from skep.cli.server.bench_load import Load
    from skep.client import AsyncClient

    console = Console(stderr=True)
    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))

    async def run() -> "Tally":
        async with AsyncClient(server.urls, token=server.token) as client:
            return await Load(client, plan).run(show)

    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task("", total=plan.duration_s)

        def show(tally: "Tally") -> None:
            text = f"{tally.pushed.messages:,} pushed, {tally.acked.messages:,} consumed"
            elapsed = progress.tasks[0].elapsed or 0.0
            progress.update(bar, completed=min(elapsed, plan.duration_s), description=text)

        return asyncio.run(run()).report(plan.payload_bytes)


def _print_report(report: dict[str, Any]) -> None:
    rows = [{"": name, **report[name]} for name in ("push", "consume")]
    columns = ("", "messages", "requests", "messagesPerSecond", "megabytesPerSecond")
    print_rows(rows, columns, "table")
    typer.echo()
    latencies = [{"milliseconds": name, **of} for name, of in report["latencyMs"].items()]
    print_rows(latencies, ("milliseconds", "p50", "p95", "p99", "p999", "max"), "table")
    if report["left"] > 0:
        typer.echo(f"\n{report['left']:,} messages were not consumed in time", err=True)
    if report["clientCpuShare"] >= BUSY_SHARE:
        share = f"{report['clientCpuShare']:.0%}"
        typer.echo(f"\nthis client used {share} of a core: it may be what limits", err=True)
