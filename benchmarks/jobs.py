"""What job chains cost: starting them and running them. `python -m benchmarks.jobs`.

One process is client and worker; a PostgreSQL of its own is started for the run. The CPU of both is
counted, all threads and backends. Jobs are run at two backlogs, and the goal is that the second, a
thousand times the first, slows nothing down. As with all benchmarks a missed goal is a result; the
exit code tells only whether it could be measured.

A backlog of n means that at least n jobs wait whenever one is claimed: what is measured is run on
top of it.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import asyncpg
import typer
import uvloop
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.errors import BenchmarkError, ScenarioFailed
from benchmarks.machine import machine_facts, software_versions, source_commit
from benchmarks.meter import Meter, Usage
from benchmarks.stack import POSTGRES_PARAMETERS
from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import migrate
from skep.jobs import Ctx, Job, JobClient, JobTypes, Start, Worker
from skep.jobs.declare.declaration import TOGETHER_MAX
from skep.model.errors import SkepError

Mode = Literal[
    "staged", "atomic", "atomic, together", "row, together", "row, atomic", "row, completing"
]
"""How a job runs: without a transaction, in a shared one, or in its own; those with a row write one
of the user's."""

CPU_GOAL_US: Final = 200.0
"""CPU of the worker and of PostgreSQL for one trivial job that was waiting."""
FLATNESS_GOAL: Final = 0.9
"""The rate at the large backlog, as a share of that at the small one."""
QUEUERT_JOBS_PER_S: Final = 766
START_BATCH: Final = 500
STARTERS: Final = 16
CONCURRENCY: Final[dict[Mode, int]] = {
    "staged": 500,
    "atomic": 500,
    "atomic, together": 500,
    "row, together": 500,
    "row, atomic": 32,
    "row, completing": 32,
}
TRANSACTIONS: Final = 32
TRIVIAL: Final = ("run, staged", "run, atomic", "run, atomic, together")
"""What the goal of CPU is about: handlers that only return."""
WINDOW_S_MAX: Final = 300.0
FILL_PORTION: Final = 50_000
NOTE: Final = "insert into bench_note values ($1)"
_RESULTS: Final = Path(__file__).parent / "results"

_FILL: Final = """
with type as (select id from skep.job_type where name = $1),
new as (
  select ('0190' || lpad(to_hex($2::integer), 4, '0') || '-0000-7000-8000-'
          || lpad(to_hex(n), 12, '0'))::uuid as id, type.id as type_id
  from type, generate_series(1, $3::integer) n
),
chains as (
  insert into skep.chain (id, type_id, last_job_id, created_at)
  select id, type_id, id, skep.now() from new
),
jobs as (
  insert into skep.job (id, chain_id, position, type_id, priority, max_attempts, input, created_at)
  select id, id, 0, type_id, 0, 20, '7', skep.now() from new
)
insert into skep.open_job (job_id, chain_id, type_id, priority, due_at, max_attempts)
select id, id, type_id, 0, skep.now(), 20 from new
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a scenario cost per chain or job."""

    scenario: str
    backlog: int | None
    count: int
    per_s: float
    cpu_us: float
    client_cpu_us: float
    postgres_cpu_us: float
    wal_bytes: float
    commits: float


class Bench:
    """One database, and windows in which something is done with it."""

    def __init__(self, dsn: str, meter: Meter) -> None:
        self.dsn: Final = dsn
        self.sql: Final = meter.connection
        self._meter: Final = meter
        self._fills = 0

    async def fill_up(self, job: Job[Any, Any], count: int) -> None:
        """Let so many jobs wait, written as starting them would, and settle the tables."""
        rows = await self.sql.fetch("select id from skep.job_type_ensure($1)", [job.name])
        waiting = "select count(*) from skep.open_job where type_id = $1"
        missing = count - await self.sql.fetchval(waiting, rows[0][0], timeout=WINDOW_S_MAX)
        while missing > 0:
            self._fills += 1
            portion = min(missing, FILL_PORTION)
            await self.sql.execute(_FILL, job.name, self._fills, portion, timeout=WINDOW_S_MAX)
            missing -= portion
        for table in ("chain", "job", "open_job"):
            await self.sql.execute(f"vacuum analyze skep.{table}", timeout=WINDOW_S_MAX)
        await self.sql.execute("checkpoint", timeout=WINDOW_S_MAX)

    async def measure(
        self, scenario: str, backlog: int | None, count: int, work: Callable[[], Awaitable[None]]
    ) -> Figures:
        """Do something that handles `count` chains, and say what each of them cost."""
        before, cpu_before = await self._meter.read(), time.process_time()
        async with asyncio.timeout(WINDOW_S_MAX):
            await work()
        cpu_s = time.process_time() - cpu_before
        usage = Usage.between(before, await self._meter.read())
        if usage.postgres_cpu_s is None:
            raise ScenarioFailed("the CPU of PostgreSQL cannot be seen here")
        return Figures(
            scenario=scenario,
            backlog=backlog,
            count=count,
            per_s=count / usage.seconds,
            cpu_us=(cpu_s + usage.postgres_cpu_s) / count * 1e6,
            client_cpu_us=cpu_s / count * 1e6,
            postgres_cpu_us=usage.postgres_cpu_s / count * 1e6,
            wal_bytes=usage.wal_bytes / count,
            commits=usage.commits / count,
        )


class Counter:
    """Lets a window begin when the worker runs jobs, and end when it has run so many."""

    def __init__(self) -> None:
        self._left = 0
        self._is_reached = asyncio.Event()

    def expect(self, count: int) -> None:
        """Begin to count."""
        self._left = count
        self._is_reached.clear()

    def count(self) -> None:
        """Hear of one more."""
        self._left -= 1
        if self._left == 0:
            self._is_reached.set()

    async def reached(self) -> None:
        """Return when there were as many as expected."""
        await self._is_reached.wait()


def _declare(types: JobTypes, name: str, mode: Mode, counter: Counter) -> Job[int, int]:
    async def trivial(ctx: Ctx[int, int]) -> int:
        counter.count()
        return ctx.input

    async def completing(ctx: Ctx[int, int]) -> int:
        async with ctx.complete() as connection:
            await connection.execute(NOTE, ctx.input)
        counter.count()
        return ctx.input

    async def atomic(ctx: Ctx[int, int]) -> int:
        await ctx.connection.execute(NOTE, ctx.input)
        counter.count()
        return ctx.input

    match mode:
        case "staged":
            return types.job(name)(trivial)
        case "atomic":
            return types.job(name, mode="atomic")(trivial)
        case "atomic, together":
            return types.job(name, mode="atomic", together=TOGETHER_MAX)(trivial)
        case "row, together":
            return types.job(name, mode="atomic", together=TOGETHER_MAX)(atomic)
        case "row, atomic":
            return types.job(name, mode="atomic")(atomic)
        case "row, completing":
            return types.job(name)(completing)


async def _start_in_batches(bench: Bench, client: JobClient, job: Job[int, int], count: int) -> Any:
    async def work() -> None:
        for _ in range(count // START_BATCH):
            await client.start_many([Start(job, 7) for _ in range(START_BATCH)])

    return await bench.measure("start, 500 in a call", None, count, work)


async def _start_singly(bench: Bench, client: JobClient, job: Job[int, int], count: int) -> Any:
    """Start each chain in a transaction of the user's that also writes a row."""
    connections = [await asyncpg.connect(bench.dsn) for _ in range(STARTERS)]

    async def start_some(connection: asyncpg.Connection) -> None:
        for number in range(count // STARTERS):
            async with connection.transaction():
                await connection.execute(NOTE, number)
                await client.start(job, 7, tx=connection)

    async def work() -> None:
        await asyncio.gather(*map(start_some, connections))

    try:
        return await bench.measure(
            "start, one in a user's transaction", None, count // STARTERS * STARTERS, work
        )
    finally:
        for connection in connections:
            await connection.close()


async def _run_jobs(
    bench: Bench, client: JobClient, mode: Mode, *, backlog: int, count: int
) -> Figures:
    types, counter = JobTypes("bench"), Counter()
    job = _declare(types, f"backlog {backlog}", mode, counter)
    warm_up = count // 10
    await bench.fill_up(job, backlog + count + warm_up)
    concurrency = CONCURRENCY[mode]
    counter.expect(warm_up)
    worker = Worker(client, [types], concurrency=concurrency, transactions=TRANSACTIONS)
    await worker.start()
    try:
        await counter.reached()
        counter.expect(count)
        return await bench.measure(f"run, {mode}", backlog, count, counter.reached)
    finally:
        await worker.stop(grace_s=5)


async def _run_all(dsn: str, sizes: Sequence[int], count: int, console: Console) -> list[Figures]:
    await migrate(dsn)
    meter = await Meter.connect(dsn, broker_pids=())
    figures: list[Figures] = []
    try:
        bench = Bench(dsn, meter)
        await bench.sql.execute("create table bench_note (number integer)")
        async with _client(dsn) as (client, job):
            for start in (_start_in_batches, _start_singly):
                console.print("Starting chains ...")
                figures.append(await start(bench, client, job, count))
            for backlog in sizes:
                for mode in get_args(Mode):
                    console.print(f"Running jobs ({mode}), {backlog:,} waiting ...")
                    share = count // 4 if mode in ("row, atomic", "row, completing") else count
                    figures.append(
                        await _run_jobs(bench, client, mode, backlog=backlog, count=share)
                    )
    finally:
        await meter.close()
    return figures


@asynccontextmanager
async def _client(dsn: str) -> AsyncGenerator[tuple[JobClient, Job[int, int]]]:
    types = JobTypes("started")
    job = types.declare("never run", int, int)
    async with JobClient(dsn, types=[types]) as client:
        yield client, job


def _print(figures: Sequence[Figures], console: Console) -> None:
    table = Table(
        "scenario", "backlog", "per s", "CPU us", "worker", "PostgreSQL", "WAL B", box=None
    )
    for each in figures:
        table.add_row(
            each.scenario,
            "" if each.backlog is None else f"{each.backlog:,}",
            f"{each.per_s:,.0f}",
            f"{each.cpu_us:,.0f}",
            f"{each.client_cpu_us:,.0f}",
            f"{each.postgres_cpu_us:,.0f}",
            f"{each.wal_bytes:,.0f}",
        )
    console.print(table)
    for line in verdicts(figures):
        console.print(line)


def verdicts(figures: Sequence[Figures]) -> list[str]:
    """Hold the figures against the goals."""
    runs = [each for each in figures if each.backlog is not None]
    lines = [
        f"CPU of a trivial job ({each.scenario}) at a backlog of {each.backlog:,}: "
        f"{each.cpu_us:.0f} us, goal {CPU_GOAL_US:.0f} us: "
        f"{'met' if each.cpu_us <= CPU_GOAL_US else 'missed'}; "
        f"{each.per_s / QUEUERT_JOBS_PER_S:.1f} times the rate that Queuert publishes"
        for each in runs
        if each.scenario in TRIVIAL
    ]
    for mode in dict.fromkeys(each.scenario for each in runs):
        few, *_, many = [each for each in runs if each.scenario == mode]
        # CPU, not time: others may use the machine as well, and time would be theirs.
        ratio = few.cpu_us / many.cpu_us
        lines.append(
            f"{mode}: {ratio:.2f} of the rate at {few.backlog:,} when {many.backlog:,} wait "
            f"(by CPU; by the clock {many.per_s / few.per_s:.2f}), goal {FLATNESS_GOAL}: "
            f"{'met' if ratio >= FLATNESS_GOAL else 'missed'}"
        )
    return lines


def main(
    backlog: Annotated[
        list[int] | None, typer.Option(min=0, help="Jobs that wait; twice, the small one first.")
    ] = None,
    count: Annotated[int, typer.Option(min=1_000, help="Jobs in a window.")] = 40_000,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small windows, and a backlog of 50,000 at most.")
    ] = False,
    postgres_bin: Annotated[
        Path | None, typer.Option(help="Directory of another PostgreSQL's programs.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")
    ] = None,
) -> None:
    """Measure what starting and running jobs costs, and hold it against the goals."""
    console = Console(highlight=False)
    sizes = backlog or ([1_000, 50_000] if quick else [1_000, 1_000_000])
    count = min(count, 8_000) if quick else count
    began = datetime.now(UTC)
    try:
        with tempfile.TemporaryDirectory(prefix="skep-jobs-", ignore_cleanup_errors=True) as name:
            home = Path(name)
            home.chmod(0o755)  # as root the server runs under another account
            with EmbeddedPostgres(
                home / "postgres", parameters=POSTGRES_PARAMETERS, binaries=postgres_bin
            ) as postgres:
                figures = uvloop.run(_run_all(postgres.dsn, sizes, count, console))
                facts = machine_facts(home)
    except (BenchmarkError, SkepError) as error:
        console.print(Text(str(error), style="red"))
        raise typer.Exit(1) from error
    _print(figures, console)
    path = output or _RESULTS / f"jobs-{began:%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "began_at": began.isoformat(timespec="seconds"),
                "commit": source_commit(),
                "machine": facts,
                "versions": software_versions(),
                "figures": [asdict(each) for each in figures],
                "verdicts": verdicts(figures),
            },
            indent=2,
        )
    )
    console.print(f"Everything measured is in {path}")


if __name__ == "__main__":
    typer.run(main)
