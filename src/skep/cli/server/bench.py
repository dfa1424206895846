"""`skep bench`: a load test of any broker that speaks Queen's wire."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from typer import Argument, Option

from skep.cli.shared.connection import ContextName, Token, find_server
from skep.cli.shared.output import Output, print_record, print_rows, progress_bar
from skep.model.errors import BadRequest
from skep.model.plurals import counted
from skep.settings.connection import ConnectionChoice

if TYPE_CHECKING:
    from skep.cli.server.bench_load import Plan, Tally
    from skep.cli.shared.connection import Server

BUSY_SHARE = 0.9
"""Of a core: above, this client is the bottleneck."""


def bench(
    url: Annotated[
        str | None, Argument(help="URL of a Skep or Queen broker; default: the current context.")
    ] = None,
    *,
    producers: Annotated[int, Option(min=0, help="Number of producers.")] = 4,
    consumers: Annotated[int, Option(min=0, help="Number of consumers.")] = 4,
    batch: Annotated[
        int, Option(min=1, max=1000, help="Messages per push, and at most per pop.")
    ] = 100,
    partitions: Annotated[int, Option(min=1, help="Number of partitions.")] = 10,
    size: Annotated[int, Option(min=64, help="Payload size in bytes.")] = 256,
    duration: Annotated[float, Option(min=0.1, help="Seconds to push.")] = 10.0,
    queue: Annotated[
        str | None, Option(help="Use this queue and keep it; default: a temporary one.")
    ] = None,
    token: Token = None,
    context: ContextName = None,
    output: Output = "table",
) -> None:
    """Push and consume as fast as a broker allows.

    One process on one core generates the load. If that core is busy, run several with one --queue.
    """
    from skep.cli.server.bench_load import Plan

    if not producers and not consumers:
        raise BadRequest("nothing to do: --producers and --consumers are both 0")
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
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    from skep.cli.server.bench_load import Load
    from skep.client import AsyncClient

    async def run() -> "Tally":
        async with AsyncClient(server.urls, token=server.token) as client:
            return await Load(client, plan).run(show)

    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with progress_bar(*columns) as progress:
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
        typer.echo(f"\nNot consumed in time: {counted(report['left'], 'message')}", err=True)
    if report["clientCpuShare"] >= BUSY_SHARE:
        share = f"{report['clientCpuShare']:.0%}"
        typer.echo(f"\nthis client used {share} of a core: it may be the bottleneck", err=True)
