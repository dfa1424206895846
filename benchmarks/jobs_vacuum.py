"""What the vacuum settings of the job tables are worth. `python -m benchmarks.jobs_vacuum`.

The same number of chains is started and run twice, in a steady stream with few waiting, once with
the settings that the migrations give the tables and once with PostgreSQL's own. What dead rows are
left shows in the size of `open_job`, in which every row is dead soon, and in what a claim reads.
"""

import asyncio
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import asyncpg
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.meter import Meter, Usage
from benchmarks.stack import POSTGRES_PARAMETERS
from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import migrate
from skep.jobs import Ctx, JobClient, JobTypes, Start, Worker
from skep.jobs.store import TABLES

BATCH: Final = 250
WAITING_MAX: Final = 1_000
OURS, DEFAULTS = "as migrated", "PostgreSQL's"
_OPTION: Final = re.compile(r"^(autovacuum_\w+|vacuum_truncate)=")

types = JobTypes("vacuum")
job = types.declare("pass", int, int)


@dataclass(frozen=True, slots=True)
class Worn:
    """How the tables are after the stream."""

    settings: str
    cpu_us: float
    wal_bytes: float
    open_job_mib: float
    indexes_mib: float
    dead_rows: int
    claim_blocks: int


async def _reset_options(sql: asyncpg.Connection) -> None:
    for table in TABLES:
        options = await sql.fetchval(
            "select reloptions from pg_class where oid = ('skep.' || $1)::regclass", table
        )
        names = [found[1] for each in options or () if (found := _OPTION.match(each))]
        if names:
            await sql.execute(f"alter table skep.{table} reset ({', '.join(names)})")


async def _stream(dsn: str, count: int) -> None:
    """Start chains as fast as they are run."""
    served = JobTypes("served")
    done = asyncio.Semaphore(WAITING_MAX)
    finished = asyncio.Event()
    left = count

    async def handle(ctx: Ctx[int, int]) -> int:
        nonlocal left
        left -= 1
        done.release()
        if left <= 0:
            finished.set()
        return ctx.input

    served.job("pass")(handle)
    async with (
        JobClient(dsn, types=[types]) as client,
        Worker(client, [served], concurrency=200),
    ):
        for _ in range(count // BATCH):
            for _ in range(BATCH):
                await done.acquire()
            await client.start_many([Start(job, 7) for _ in range(BATCH)])
        await finished.wait()


async def _claim_blocks(sql: asyncpg.Connection) -> int:
    """Return how many blocks a claim that finds nothing reads: it passes what is dead."""
    worker = "00000000-0000-7000-8000-000000000001"
    type_id = await sql.fetchval("select id from skep.job_type where name = 'pass'")
    await sql.execute("select skep.job_worker_enroll($1, 'bench', 60)", worker)
    claim = f"select * from skep.job_claim('{worker}', '{{{type_id}}}', 10)"
    await sql.fetch(claim)  # the first in a session also reads what it plans with
    rows = await sql.fetch(f"explain (analyze, buffers) {claim}")
    plan = "\n".join(row[0] for row in rows)
    return sum(int(found) for found in re.findall(r"shared hit=(\d+)", plan)[:1])


async def _wear(dsn: str, settings: str, count: int) -> Worn:
    await migrate(dsn)
    meter = await Meter.connect(dsn, broker_pids=())
    sql = meter.connection
    try:
        if settings == DEFAULTS:
            await _reset_options(sql)
        before = await meter.read()
        await _stream(dsn, count)
        usage = Usage.between(before, await meter.read())
        blocks = await _claim_blocks(sql)
        heap, indexes, dead = await sql.fetchrow(
            "select pg_relation_size('skep.open_job'), pg_indexes_size('skep.open_job'),"
            " coalesce(pg_stat_get_dead_tuples('skep.open_job'::regclass), 0)"
        )
    finally:
        await meter.close()
    postgres_s = usage.postgres_cpu_s or 0.0
    return Worn(
        settings,
        postgres_s / count * 1e6,
        usage.wal_bytes / count,
        heap / 2**20,
        indexes / 2**20,
        dead,
        blocks,
    )


def main(
    count: Annotated[int, typer.Option(min=1_000, help="Jobs in the stream.")] = 100_000,
) -> None:
    """Wear the tables of jobs out with and without our vacuum settings."""
    console = Console(highlight=False)
    table = Table(
        "settings", "CPU us", "WAL B", "MiB", "indexes MiB", "dead rows", "claim reads", box=None
    )
    for settings in (OURS, DEFAULTS):
        with tempfile.TemporaryDirectory(prefix="skep-vacuum-", ignore_cleanup_errors=True) as name:
            home = Path(name)
            home.chmod(0o755)  # as root the server runs under another account
            parameters = {**POSTGRES_PARAMETERS, "autovacuum_naptime": "10s"}
            with EmbeddedPostgres(home / "postgres", parameters=parameters) as postgres:
                worn = uvloop.run(_wear(postgres.dsn, settings, count))
        table.add_row(
            worn.settings,
            f"{worn.cpu_us:.0f}",
            f"{worn.wal_bytes:,.0f}",
            f"{worn.open_job_mib:.1f}",
            f"{worn.indexes_mib:.1f}",
            f"{worn.dead_rows:,}",
            f"{worn.claim_blocks:,}",
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
