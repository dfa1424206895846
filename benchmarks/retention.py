"""What a retention run costs those who push and pop meanwhile. `python -m benchmarks.retention`.

Two windows on the same queue under the same full load: one in which nothing is deleted, and one in
which retention deletes a backlog and, behind it, what the load itself pushed some seconds ago. The
goal is that the p99 of a pop no more than doubles. As with all benchmarks a missed goal is a
result; the exit code tells only whether it could be measured.
"""

import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.bench import Bench, Sizes, Window
from benchmarks.errors import BenchmarkError, ScenarioFailed
from benchmarks.meter import Meter
from benchmarks.plan import PopRole, Role
from benchmarks.stack import Stack, own_stack
from skep.model.errors import SkepError

GOAL: Final = 2.0
"""How many times the p99 without retention the p99 of a pop may be."""
PARTITIONS: Final = 100
KEEP_S: Final = 5
_SERVER_COMMAND: Final = (
    "env SKEP_RETENTION_INTERVAL_S=0.5 {skep} serve --port {port} --database-url {database_url}"
)
_ENABLE: Final = "select skep.configure_queue($1, null, null, $2)"
_REMOVED: Final = """
  select coalesce(sum(h.messages), 0)::bigint from skep.retention_history h
  join skep.queue q on q.id = h.queue_id where q.name = $1
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One round: the same load without and with retention at work."""

    quiet: Window
    busy: Window
    deleted_per_s: float

    def ratio(self, role: str) -> float:
        """Return how many times longer the p99 of a role was."""
        without, with_retention = (
            window.latency_ms(role, 99) for window in (self.quiet, self.busy)
        )
        if not without or with_retention is None:
            raise ScenarioFailed(f"no request of {role} was answered")
        return with_retention / without


def main(
    seconds: Annotated[float, typer.Option(min=1, max=600, help="Length of a window.")] = 10.0,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="The median counts.")] = 1,
    backlog: Annotated[
        int, typer.Option(min=10_000, help="Messages that lie in the queue and are consumed.")
    ] = 400_000,
    connections: Annotated[int, typer.Option(min=2, max=150, help="Half push, half pop.")] = 64,
    postgres_bin: Annotated[
        Path | None, typer.Option(help="Directory of another PostgreSQL's programs.")
    ] = None,
) -> None:
    """Compare the latency of pops with and without retention at work."""
    console = Console(highlight=False)
    sizes = Sizes(seconds=seconds, connections=connections, deep_backlog=backlog)
    try:
        with own_stack(_SERVER_COMMAND, postgres_bin=postgres_bin) as stack:
            compared = uvloop.run(_run_rounds(stack, sizes, rounds, console))
    except (BenchmarkError, SkepError) as error:
        console.print(Text(str(error), style="red"))
        raise typer.Exit(1) from error
    _print(compared, console)


async def _run_rounds(
    stack: Stack, sizes: Sizes, rounds: int, console: Console
) -> list[Comparison]:
    meter = await Meter.connect(stack.database_url, broker_pids=stack.broker_pids)
    try:
        bench = Bench(stack.target, meter, sizes, run_id=secrets.token_hex(4), say=console.print)
        return [await _compare(bench) for _ in range(rounds)]
    finally:
        await meter.close()


async def _compare(bench: Bench) -> Comparison:
    queue, sql = bench.new_queue("retention"), bench.meter.connection
    await bench.fill(
        bench.pusher(
            queue,
            partitions=PARTITIONS,
            items=100,
            request_limit=bench.sizes.deep_backlog // 100,
        )
    )
    drain = PopRole("drain", connections=8, queue=queue, batch=1_000, partitions=10)
    await bench.drain(drain, bench.sizes.deep_backlog // 100 * 100)

    quiet = await bench.measure(_full_load(bench, queue))
    await sql.execute(_ENABLE, queue, f'{{"retention_enabled": true, "retention_s": {KEEP_S}}}')
    before: int = await sql.fetchval(_REMOVED, queue)
    busy = await bench.measure(_full_load(bench, queue))
    deleted: int = await sql.fetchval(_REMOVED, queue) - before
    if not deleted:
        raise ScenarioFailed("retention deleted nothing in the window that measures it")
    for window in (quiet, busy):
        if window.errors:
            raise ScenarioFailed(f"requests failed: {window.errors}; {window.examples}")
    span_s = bench.sizes.warmup_s + busy.usage.seconds
    return Comparison(quiet, busy, deleted / span_s)


def _full_load(bench: Bench, queue: str) -> Sequence[Role]:
    """Return a push and a pop role. Pops do not park: waiting for a push is no cost of a pop."""
    half = bench.sizes.connections // 2
    consumers = PopRole(
        name="consume",
        connections=half,
        queue=queue,
        batch=100,
        partitions=10,
        auto_ack=False,
    )
    return [consumers, bench.pusher(queue, partitions=PARTITIONS, items=10, connections=half)]


def _print(compared: Sequence[Comparison], console: Console) -> None:
    table = Table("round", "", "without", "with retention", "times")
    for number, comparison in enumerate(compared, start=1):
        for role, title in (("consume", "pop p99 ms"), ("push", "push p99 ms")):
            table.add_row(
                str(number),
                title,
                *(
                    f"{window.latency_ms(role, 99):.1f}"
                    for window in (comparison.quiet, comparison.busy)
                ),
                f"{comparison.ratio(role):.2f}",
            )
        messages = (window.messages("consume") for window in (comparison.quiet, comparison.busy))
        table.add_row(str(number), "messages consumed", *(f"{count:,}" for count in messages), "")
        table.add_row(
            str(number), "messages deleted per second", "0", f"{comparison.deleted_per_s:,.0f}", ""
        )
    console.print(table)
    median = statistics.median(comparison.ratio("consume") for comparison in compared)
    verdict = "met" if median <= GOAL else "missed"
    console.print(f"The p99 of pops is {median:.2f} times that without; goal {GOAL:g}: {verdict}.")


if __name__ == "__main__":
    typer.run(main)
