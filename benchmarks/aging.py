"""How a broker ages: hours of duplicate window, retention and vacuum in minutes.

    python -m benchmarks.aging

One load for as long as it takes, on a broker with little memory for duplicates, a short window and
a short retention, so that all of them turn over many times; PostgreSQL vacuums every few seconds.
Every interval is a line. The goal is that a message of the last minute costs no more than 1.3 times
one of the first. What was pushed inside the window is pushed once more in samples, at the end and
around a restart: anything but `duplicate` is a failure, as is a refused request. A missed goal is a
result.
"""

import asyncio
import dataclasses
import json
import os
import random
import stat
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import uvloop
from rich.console import Console
from rich.text import Text

from benchmarks import wire
from benchmarks.against import packages_here, packages_of
from benchmarks.bench import Bench, Sizes, Window, outcome_of
from benchmarks.connection import connect
from benchmarks.errors import BenchmarkError, ScenarioFailed
from benchmarks.load import Load, running
from benchmarks.machine import machine_facts, source_commit
from benchmarks.meter import Meter, Usage, read_processes, tree_of
from benchmarks.plan import PopRole, PushRole
from benchmarks.stack import (
    DEFAULT_SERVER_COMMAND,
    POSTGRES_PARAMETERS,
    Layout,
    Stack,
    own_brokers,
    own_database,
)
from benchmarks.stats import per
from skep.model.errors import SkepError

GOAL: Final = 1.3
"""How many times the cost of the first minute that of the last may be."""
RESTART_GOAL_S: Final = 30.0
"""How soon after a restart a message has to cost no more than that again."""
QUEUE: Final = "bench-aging"
_RESULTS: Final = Path(__file__).parent / "results"
_MINUTE_S: Final = 60.0
# A minute of this is an hour of PostgreSQL's defaults.
_PARAMETERS: Final = {
    **POSTGRES_PARAMETERS,
    "autovacuum_naptime": "2s",
    "checkpoint_timeout": "30s",
}
_LONG_POLL_MS: Final = 30_000
_AFTER_RESTART_INTERVAL_S: Final = 2.0
_SAMPLED_REQUESTS: Final = 100
# A broker that has aged badly takes a second for each of them.
_SAMPLE_S_MAX: Final = 10.0
# What was sent this long before the window's end is not asked for: it may run out meanwhile.
_WINDOW_MARGIN_S: Final = 15.0
_SIZES: Final = """
  select s.relname as name, s.n_dead_tup as dead_rows, s.n_live_tup as live_rows,
         pg_catalog.pg_table_size(s.relid) as table_bytes,
         pg_catalog.pg_indexes_size(s.relid) as index_bytes
  from pg_catalog.pg_stat_user_tables s where s.schemaname = 'skep'
"""


@dataclass(frozen=True, slots=True)
class Interval:
    """What one stretch of the load cost, and what lay in the database at its end."""

    began_s: float
    seconds: float
    messages: int
    delivered: int
    cpu_us: float
    broker_us: float
    postgres_us: float
    p50_ms: float | None
    p99_ms: float | None
    worker_rss_mib: float
    hidden_files_mib: float
    dead_rows: int
    table_mib: float
    index_mib: float
    tables: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    @property
    def line(self) -> str:
        return (
            f"{self.began_s + self.seconds:6.0f} s {self.messages / self.seconds:9,.0f} msg/s "
            f"{self.cpu_us:7.1f} us ({self.broker_us:.1f} + {self.postgres_us:.1f}) "
            f"p99 {self.p99_ms or 0:6.1f} ms, worker {self.worker_rss_mib:4.0f} MiB "
            f"+ {self.hidden_files_mib:.0f} on disk, {self.dead_rows:7,} dead rows, "
            f"tables {self.table_mib:6.0f} MiB, indexes {self.index_mib:5.0f} MiB"
        )


def cost(intervals: Sequence[Interval]) -> float:
    """Return the CPU per message over intervals, each weighted by its messages."""
    messages = sum(each.messages for each in intervals)
    return sum(each.cpu_us * each.messages for each in intervals) / messages


def first_and_last(
    intervals: Sequence[Interval], span_s: float
) -> tuple[list[Interval], list[Interval]]:
    """Return the intervals that began in the first `span_s` and those that ended in the last.

    At least one each, and none in both unless there is only one.
    """
    begin_s, end_s = intervals[0].began_s, intervals[-1].began_s + intervals[-1].seconds
    span_s = min(span_s, (end_s - begin_s) / 2)
    first = [each for each in intervals if each.began_s + each.seconds <= begin_s + span_s]
    last = [each for each in intervals if each.began_s >= end_s - span_s]
    return first or [intervals[0]], last or [intervals[-1]]


def seconds_until(intervals: Sequence[Interval], cost_max: float, from_s: float) -> float | None:
    """Return how long after `from_s` the first interval ended that cost no more than that."""
    for each in intervals:
        if each.messages and each.cpu_us <= cost_max:
            return each.began_s + each.seconds - from_s
    return None


@dataclass(frozen=True, slots=True)
class Settings:
    """What ages, and how fast."""

    seconds: float
    interval_s: float
    messages_max: int | None
    partitions: int
    items: int
    connections: int
    consumers: int
    window_s: int
    retention_s: int
    dedup_memory_mib: int
    layout: Layout
    seed: int

    @property
    def options(self) -> dict[str, int | bool]:
        """The options of the queue: everything is deleted, consumed or not."""
        return {
            "dedupWindowSeconds": self.window_s,
            "retentionEnabled": True,
            "retentionSeconds": self.retention_s,
            "completedRetentionSeconds": self.retention_s,
        }

    @property
    def server_command(self) -> str:
        environment = f"SKEP_DEDUP_MEMORY_MIB={self.dedup_memory_mib} SKEP_RETENTION_INTERVAL_S=2"
        return f"env {environment} {DEFAULT_SERVER_COMMAND}"


class Pushed:
    """Which requests of a role had been answered when, so that old ones can be sent once more."""

    def __init__(self, role: PushRole) -> None:
        self.role = role
        self._counts: list[tuple[float, int]] = []

    def note(self, at_s: float, answered: int) -> None:
        self._counts.append((at_s, answered))

    def within(self, since_s: float) -> range:
        """Return the requests that were surely sent after `since_s` and surely answered by now."""
        if not self._counts:
            return range(0)
        # As many may be ahead of the count as there are connections.
        spare = self.role.connections
        begin = next((count for at_s, count in self._counts if at_s >= since_s), None)
        if begin is None:
            return range(0)
        return range(begin + spare, max(begin + spare, self._counts[-1][1] - spare))


@dataclass(slots=True)
class Life:
    """Everything that is known of a run so far."""

    settings: Settings
    say: Callable[[str], None]
    began_s: float = field(default_factory=time.monotonic)
    intervals: list[Interval] = field(default_factory=list[Interval])
    pushed: list[Pushed] = field(default_factory=list[Pushed])
    sampled: int = 0
    stored_again: int = 0
    errors: dict[str, int] = field(default_factory=dict[str, int])
    rss_at_start_mib: float | None = None
    restarted_at_s: float | None = None
    start_took_s: float | None = None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began_s

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.intervals)

    def is_over(self, share: float) -> bool:
        """Return whether this share of the life has passed."""
        messages_max = self.settings.messages_max
        if messages_max is not None and self.messages >= messages_max * share:
            return True
        return sum(each.seconds for each in self.intervals) >= self.settings.seconds * share


async def live(stack: Stack, life: Life, until_share: float) -> None:
    """Put the load on the brokers until this share of the life has passed."""
    settings = life.settings
    meter = await Meter.connect(stack.database_url, broker_pids=stack.broker_pids)
    try:
        # Far apart: roles whose seeds are neighbours share templates, and with them ids.
        seed = settings.seed + 1_000_003 * len(life.pushed)
        sizes = Sizes(connections=settings.connections, seed=seed)
        bench = Bench(stack.target, meter, sizes, run_id="aging", say=life.say)
        usage = Usage.between(await meter.read(), await meter.read())
        if life.rss_at_start_mib is None:
            life.rss_at_start_mib = per(usage.largest_rss_bytes, 1 << 20)
            await _prepare(bench, settings)
        push = bench.pusher(QUEUE, partitions=settings.partitions, items=settings.items)
        consume = PopRole(
            name="consume",
            connections=settings.consumers,
            queue=QUEUE,
            batch=1_000,
            partitions=100,
            wait_ms=_LONG_POLL_MS,
        )
        life.pushed.append(Pushed(push))
        roles = [push, consume] if settings.consumers else [push]
        async with running(stack.target, roles) as load:
            sampling = asyncio.create_task(_sample(stack, life))
            try:
                await _run_intervals(load, meter, stack, life, until_share)
                await sampling
            finally:
                sampling.cancel()
            last = await load.stop()
            for kind, count in last.errors.items():
                life.errors[kind] = life.errors.get(kind, 0) + count
        await _sample(stack, life)
    finally:
        await meter.close()


async def _prepare(bench: Bench, settings: Settings) -> None:
    async with connect(bench.target) as connection:
        body = {"queue": QUEUE, "options": settings.options}
        await connection.post("/api/v1/configure", body)
    items = min(settings.partitions, 1_000)
    await bench.fill(
        bench.pusher(
            QUEUE,
            partitions=settings.partitions,
            items=items,
            connections=1,
            is_shuffled=False,
            request_limit=settings.partitions // items,
        )
    )


async def _run_intervals(
    load: Load, meter: Meter, stack: Stack, life: Life, until_share: float
) -> None:
    is_restarted = life.restarted_at_s is not None
    while not life.is_over(until_share):
        since_restart_s = life.age_s - (life.restarted_at_s or 0)
        is_short = is_restarted and since_restart_s < 2 * RESTART_GOAL_S
        began_s, before, opened = life.age_s, await meter.read(), await load.open_window()
        life.pushed[-1].note(time.monotonic(), opened.roles["push"].requests)
        await asyncio.sleep(_AFTER_RESTART_INTERVAL_S if is_short else life.settings.interval_s)
        closed, after = await load.close_window(), await meter.read()
        life.pushed[-1].note(time.monotonic(), closed.roles["push"].requests)
        window = Window(Usage.between(before, after), opened, closed, {}, [])
        interval = await _interval(window, meter, stack, began_s)
        life.intervals.append(interval)
        life.say(interval.line)
        if closed.errors:
            raise ScenarioFailed(f"requests failed: {closed.errors}; {closed.examples}")


async def _interval(window: Window, meter: Meter, stack: Stack, began_s: float) -> Interval:
    figures = outcome_of(window, "push").figures
    tables = {
        row["name"]: {name: row[name] for name in ("dead_rows", "live_rows")}
        | {name: row[name] for name in ("table_bytes", "index_bytes")}
        for row in await meter.connection.fetch(_SIZES)
    }

    def total(figure: str) -> int:
        return sum(table[figure] for table in tables.values())

    return Interval(
        began_s=began_s,
        seconds=window.usage.seconds,
        messages=window.messages("push"),
        delivered=window.messages("consume") if "consume" in window.closed.roles else 0,
        cpu_us=figures["cpu_us_per_message"] or 0.0,
        broker_us=figures["broker_us_per_message"] or 0.0,
        postgres_us=figures["postgres_us_per_message"] or 0.0,
        p50_ms=figures["p50_ms"],
        p99_ms=figures["p99_ms"],
        worker_rss_mib=figures["largest_rss_mib"] or 0.0,
        hidden_files_mib=hidden_bytes(stack.broker_pids) / (1 << 20),
        dead_rows=total("dead_rows"),
        table_mib=total("table_bytes") / (1 << 20),
        index_mib=total("index_bytes") / (1 << 20),
        tables={name: table for name, table in tables.items() if table["table_bytes"] > 1 << 20},
    )


def hidden_bytes(pids: Sequence[int]) -> int:
    """Return what files without a name hold on disk: key runs are opened and unlinked."""
    processes = read_processes()
    found: dict[tuple[int, int], int] = {}
    for process in (each for pid in pids for each in tree_of(pid, processes)):
        with suppress(OSError):
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                with suppress(OSError):
                    status = descriptor.stat()
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


async def _sample(stack: Stack, life: Life) -> None:
    """Push requests of the window once more; every item has to be answered `duplicate`."""
    chosen = random.Random(life.settings.seed)
    began_s = time.monotonic()
    since_s = began_s - life.settings.window_s + _WINDOW_MARGIN_S
    async with connect(stack.target) as connection:
        for pushed in life.pushed:
            numbers = pushed.within(since_s)
            requests = wire.PushRequests(pushed.role, "benchmark")
            for number in chosen.sample(numbers, min(_SAMPLED_REQUESTS, len(numbers))):
                if time.monotonic() - began_s > _SAMPLE_S_MAX:
                    break
                answer = await connection.exchange(requests.render(number))
                life.sampled += pushed.role.items
                life.stored_again += pushed.role.items - wire.count_duplicates(answer)


def main(
    minutes: Annotated[float, typer.Option(min=0.2, max=600, help="How long it lives.")] = 10.0,
    messages: Annotated[
        int | None, typer.Option(min=100_000, help="End after as many messages, if earlier.")
    ] = None,
    interval: Annotated[float, typer.Option(min=1, max=60, help="Seconds to a line.")] = 10.0,
    dedup_memory_mib: Annotated[
        int, typer.Option(min=1, help="Memory for duplicates, per worker.")
    ] = 1,
    window: Annotated[int, typer.Option(min=30, help="The duplicate window, in seconds.")] = 90,
    retention: Annotated[int, typer.Option(min=10, help="Messages live this long, seconds.")] = 120,
    partitions: Annotated[int, typer.Option(min=1, max=100_000)] = 100,
    items: Annotated[int, typer.Option(min=1, max=1_000, help="Messages per request.")] = 100,
    connections: Annotated[int, typer.Option(min=1, max=150)] = 64,
    consumers: Annotated[
        int, typer.Option(min=0, max=150, help="0 leaves everything to retention.")
    ] = 8,
    workers: Annotated[int, typer.Option(min=1, max=64)] = 1,
    instances: Annotated[int, typer.Option(min=1, max=16)] = 1,
    restart: Annotated[
        bool, typer.Option("--restart", help="Stop and start the brokers in the middle.")
    ] = False,
    of: Annotated[
        str | None, typer.Option(help="A commit or a checkout's folder to age instead of this.")
    ] = None,
    postgres_bin: Annotated[
        Path | None, typer.Option(help="Directory of another PostgreSQL's programs.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides payloads, ids and partitions.")] = 1,
    output: Annotated[
        Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")
    ] = None,
) -> None:
    """Show what a message costs as a broker ages, and hold the last minute against the first."""
    console = Console(highlight=False, width=200)
    began = datetime.now(UTC)
    settings = Settings(
        seconds=minutes * 60,
        interval_s=interval,
        messages_max=messages,
        partitions=partitions,
        items=items,
        connections=connections,
        consumers=consumers,
        window_s=window,
        retention_s=retention,
        dedup_memory_mib=dedup_memory_mib,
        layout=Layout(workers, instances),
        seed=seed,
    )
    life = Life(settings, console.print)
    try:
        with packages_of(of or str(packages_here().parent)) as source:
            _live_through(life, source, postgres_bin, is_restarted=restart)
    except (BenchmarkError, SkepError) as error:
        console.print(Text(str(error), style="red"))
        raise typer.Exit(1) from error
    summary = summary_of(life)
    for name, value in summary.items():
        console.print(f"{name}: {value}")
    path = output or _RESULTS / f"aging-{began:%Y%m%d-%H%M%S}.json"
    facts = {"of": of, "commit": source_commit(), "machine": machine_facts(None)}
    _write(life, facts | {"began_at": began.isoformat(timespec="seconds")}, summary, path)
    console.print(f"Everything measured is in {path}")
    raise typer.Exit(1 if life.stored_again or life.errors else 0)


def _live_through(
    life: Life, source: Path, postgres_bin: Path | None, *, is_restarted: bool
) -> None:
    settings = life.settings
    with own_database(_PARAMETERS, postgres_bin) as database:
        for share in (0.5, 1.0) if is_restarted else (1.0,):
            stopped_at_s = life.age_s
            with own_brokers(
                database, settings.server_command, layout=settings.layout, source=source
            ) as stack:
                if share == 1.0 and is_restarted:
                    life.restarted_at_s = life.age_s
                    life.start_took_s = life.age_s - stopped_at_s
                    life.say(f"restarted, ready after {life.start_took_s:.1f} s")
                uvloop.run(live(stack, life, share))


def summary_of(life: Life) -> dict[str, Any]:
    """Return what a reader wants to know first."""
    first, last = first_and_last(life.intervals, _MINUTE_S)
    ratio = cost(last) / cost(first)
    summary: dict[str, Any] = {
        "messages": f"{life.messages:,} in {life.age_s:.0f} s",
        "us per message, first minute, last minute": f"{cost(first):.1f}, {cost(last):.1f}",
        "last minute : first minute": f"{ratio:.2f} (goal {GOAL}: {_verdict(ratio <= GOAL)})",
        "last minute : first interval": f"{cost(last) / life.intervals[0].cpu_us:.2f}",
        "p99 ms, first minute, last minute": ", ".join(
            f"{statistics.median(each.p99_ms or 0 for each in part):.1f}" for part in (first, last)
        ),
        "worker MiB at start, first interval, at the end": ", ".join(
            f"{rss:.0f}"
            for rss in (
                life.rss_at_start_mib or 0,
                life.intervals[0].worker_rss_mib,
                life.intervals[-1].worker_rss_mib,
            )
        ),
        "pushed once more, stored again": f"{life.sampled:,}, {life.stored_again:,}",
    }
    if life.restarted_at_s is not None:
        before = [each for each in life.intervals if each.began_s < life.restarted_at_s]
        after = [each for each in life.intervals if each.began_s >= life.restarted_at_s]
        cost_max = cost(first_and_last(before, _MINUTE_S)[1]) * GOAL
        took_s = seconds_until(after, cost_max, life.restarted_at_s)
        is_met = took_s is not None and took_s <= RESTART_GOAL_S
        summary["seconds until back to speed after the restart"] = (
            f"{'never' if took_s is None else round(took_s, 1)} "
            f"(goal {RESTART_GOAL_S:g}: {_verdict(is_met)})"
        )
    return summary


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _write(life: Life, facts: dict[str, Any], summary: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        **facts,
        "settings": dataclasses.asdict(life.settings),
        "summary": summary,
        "intervals": [dataclasses.asdict(each) for each in life.intervals],
    }
    path.write_text(json.dumps(content, indent=1) + os.linesep)


if __name__ == "__main__":
    typer.run(main)
