"""Many clients that do little: parked polls, and connections that push now and then.

    python -m benchmarks.crowd --polls 30000 --connections 10000

Two generator processes connect from addresses of their own on the loopback, because an address has
ports for 28,000 connections. What is reported: memory per parked poll, what parked polls cost while
nothing happens and what a message costs that wakes one of them; and what a push costs that comes
from one of many connections, against the same rate from a few.
"""

import os
import resource
from typing import Annotated, Any

import typer
import uvloop

from benchmarks.bench import Bench, Sizes, Window
from benchmarks.meter import Meter
from benchmarks.plan import PopRole
from benchmarks.stack import DEFAULT_SERVER_COMMAND, Layout, Stack, own_stack
from benchmarks.stats import per

_GENERATORS = 2
_QUEUES = 10
_FEW = 64
_RATE = 200.0
_FURTHER_FILES = 4_096
# Longer than the run: none of them is to time out and come again.
_POLL_MS = 600_000
_SETTLE_S = 5.0


async def measure(stack: Stack, polls: int, connections: int, seconds: float) -> None:
    meter = await Meter.connect(stack.database_url, broker_pids=stack.broker_pids)
    sizes = Sizes(seconds=seconds, generators=_GENERATORS)
    bench = Bench(stack.target, meter, sizes, run_id=str(os.getpid()), say=lambda _: None)
    await _park(bench, polls)
    for count in (_FEW, connections):
        queue = bench.new_queue("crowd-push")
        push = bench.pusher(queue, partitions=100, items=1, connections=count, rate=1_000.0)
        window = await bench.measure([push], warmup_s=_SETTLE_S)
        _show(f"push of 1 at 1,000/s from {count:,} connections", window, "push")
    await meter.close()


async def _park(bench: Bench, polls: int) -> None:
    """Park polls of ten queues, look, then push into one of them."""
    queues = [bench.new_queue("crowd") for _ in range(_QUEUES)]
    for queue in queues:
        await bench.fill(bench.pusher(queue, partitions=100, items=100, request_limit=1))
        drain = PopRole("drain", connections=4, queue=queue, batch=100, partitions=100)
        await bench.drain(drain, 100)
    empty = (await bench.meter.read()).broker_rss_bytes or 0
    parked = [
        PopRole(
            f"parked-{index}",
            connections=polls // _QUEUES,
            queue=queue,
            batch=1,
            wait_ms=_POLL_MS,
            is_stamped=True,
        )
        for index, queue in enumerate(queues)
    ]
    window = await bench.measure(parked, warmup_s=_SETTLE_S)
    full = window.usage.broker_rss_bytes or 0
    typer.echo(
        f"{polls:,} parked polls: {per(full - empty, polls):,.0f} bytes each"
        f" ({empty / 2**20:.0f} -> {full / 2**20:.0f} MiB);"
        f" idle {_core_percent(window):.1f} % of a core,"
        f" {window.usage.statements / window.usage.seconds:.1f} SQL calls/s"
    )
    push = bench.pusher(
        queues[0], partitions=100, items=1, connections=16, is_stamped=True, rate=_RATE
    )
    window = await bench.measure([*parked, push], warmup_s=_SETTLE_S)
    _show(f"{_RATE:g} messages/s that each wake one of them", window, "parked-0")


def _show(what: str, window: Window, role: str) -> None:
    usage, messages = window.usage, window.messages(role)
    figures: dict[str, Any] = {
        "broker us": per((usage.broker_cpu_s or 0) * 1e6, messages),
        "PostgreSQL us": per((usage.postgres_cpu_s or 0) * 1e6, messages),
        "p50 ms": window.latency_ms(role, 50),
        "p99 ms": window.latency_ms(role, 99),
        "RSS MiB": per(usage.broker_rss_bytes, 1 << 20),
    }
    shown = ", ".join(f"{name} {value or 0:,.1f}" for name, value in figures.items())
    rate = messages / usage.seconds
    typer.echo(f"{what}: {rate:,.0f} msg/s, {shown} {window.errors or ''}")


def _core_percent(window: Window) -> float:
    return 100 * (window.usage.cpu_s or 0) / window.usage.seconds


def main(
    polls: Annotated[int, typer.Option(help="Long polls that are parked.")] = 30_000,
    connections: Annotated[int, typer.Option(help="Connections that push now and then.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=1, help="Length of a window.")] = 5.0,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1,
) -> None:
    """Measure what a crowd of clients costs that do little."""
    files = max(polls, connections) + _FURTHER_FILES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < files / workers:
        raise typer.BadParameter(f"a process may open {hard:,} files; take more --workers")
    command = f"env SKEP_CLIENT_CONNECTIONS_MAX={files} {DEFAULT_SERVER_COMMAND}"
    with own_stack(command, layout=Layout(workers)) as stack:
        uvloop.run(measure(stack, polls, connections, seconds))


if __name__ == "__main__":
    typer.run(main)
