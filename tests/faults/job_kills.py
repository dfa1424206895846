"""Kill workers with signal 9 while they run chains, and see that every chain ends exactly once.

    python -m tests.faults.job_kills --chains 10000 --seconds 300

Chains have three steps, the first of which waits for two other chains. Each step writes a row of
its own: `part` and `pack` in the transaction of their completion, `send` in atomic mode. They are
started in transactions of the user, of which some roll back. Every second some are started and one
worker is killed while jobs run; another takes its place. At the end the rows must match the chains
exactly, and no job may wait for chains that are all done. The tests run the short form.

Workers are killed once they work: one that is still starting loses nothing by it.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import asyncpg

from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import migrate
from skep.jobs import Continue, Ctx, JobClient, JobTypes, Ref, Retry, Start, WorkerApp

ROOT = Path(__file__).parents[2]
PARTS = 2
BATCH = 20
ROLLBACKS = 0.1
LEASE_S = 2.0
CONCURRENCY = 10
STUBBORN = Retry(max_attempts=10_000, initial_s=0.05, cap_s=0.2)

TABLES = """
create table ordered (chain_id uuid primary key);
create table done (chain_id uuid not null, step text not null)
"""
STEP_DONE = "insert into done values ($1, $2)"
BUSY_WORKERS = "select count(distinct worker_id) from skep.open_job where worker_id is not null"

STRANDED = """
select o.job_id from skep.open_job o
where o.open_blockers <> (
  select count(*) from skep.blocker b join skep.chain c on c.id = b.chain_id
  where b.job_id = o.job_id and c.state <> 'completed')
"""
"""Jobs whose count of open blockers is wrong: those would wait for ever, or run too early."""

COMPLAINTS = {
    "stranded jobs": f"select count(*) from ({STRANDED}) s",
    "chains that have not completed": (
        "select count(*) from skep.chain where state <> 'completed'"
    ),
    "open jobs of completed chains": "select count(*) from skep.open_job",
    "orders without a chain": """
        select count(*) from ordered o
        where not exists (select from skep.chain c where c.id = o.chain_id)""",
    "chains of rolled back orders": """
        select count(*) from skep.chain c join skep.job_type t on t.id = c.type_id
        where t.name = 'collect' and not exists (select from ordered o where o.chain_id = c.id)""",
    "orders whose steps were not done exactly once": """
        select count(*) from ordered o
        where (select array_agg(d.step order by d.step) from done d where d.chain_id = o.chain_id)
          is distinct from '{collect,pack,send}'""",
    "parts that were not done exactly once": """
        select count(*) from skep.chain c join skep.job_type t on t.id = c.type_id
        where t.name = 'part'
          and (select count(*) from done d where d.chain_id = c.id and d.step = 'part') <> 1""",
    "rows of chains that do not exist": """
        select count(*) from done d
        where not exists (select from skep.chain c where c.id = d.chain_id)""",
    "chains whose jobs are not three in a row": """
        select count(*) from ordered o
        where (select array_agg(j.position || j.state order by j.position) from skep.job j
               where j.chain_id = o.chain_id)
          is distinct from '{0continued,1continued,2completed}'""",
}

types = JobTypes("campaign")
app = WorkerApp([types])


@dataclass
class Order:
    number: int
    parts: list[Ref[int]]


@types.job("part", retry=STUBBORN)
async def part(ctx: Ctx[int, int]) -> int:
    await asyncio.sleep(0.02)  # work that takes so long can be interrupted
    async with ctx.complete() as connection:
        await connection.execute(STEP_DONE, ctx.chain_id, "part")
    return ctx.input


@types.job("send", retry=STUBBORN, mode="atomic")
async def send(ctx: Ctx[int, int]) -> int:
    await ctx.connection.execute(STEP_DONE, ctx.chain_id, "send")
    return ctx.input


@types.job("pack", retry=STUBBORN)
async def pack(ctx: Ctx[int, int]) -> int | Continue[int]:
    async with ctx.complete() as connection:
        await connection.execute(STEP_DONE, ctx.chain_id, "pack")
        return Continue(send, ctx.input)


@types.job("collect", retry=STUBBORN)
async def collect(ctx: Ctx[Order, int]) -> int | Continue[int]:
    total = sum(ctx.value(each) for each in ctx.input.parts)
    async with ctx.complete() as connection:
        await connection.execute(STEP_DONE, ctx.chain_id, "collect")
        return Continue(pack, total)


@dataclass
class Outcome:
    """What a campaign came to."""

    chains: int
    kills: int = 0
    seconds: float = 0.0
    rolled_back: int = 0
    lost_attempts: int = 0
    complaints: dict[str, int] = field(default_factory=dict)


class WorkerProcess:
    """A worker in a process of its own; `is_at_work` once it has said so."""

    def __init__(self, dsn, log):
        command = [sys.executable, "-m", "skep", "worker", "tests.faults.job_kills:app"]
        options = ["--concurrency", str(CONCURRENCY), "--lease", str(LEASE_S), "--poll", "1"]
        environment = {**os.environ, "SKEP_DATABASE_URL": dsn, "SKEP_LOG_LEVEL": "error"}
        self._process = subprocess.Popen(
            [*command, *options], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log
        )
        os.set_blocking(self._process.stdout.fileno(), False)
        self._is_at_work = False

    @property
    def is_at_work(self):
        self._is_at_work = self._is_at_work or bool(self._process.stdout.read())
        return self._is_at_work

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def terminate(self):
        self._process.terminate()

    def end(self):
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Workers:
    """Worker processes, of which one can be killed and replaced."""

    def __init__(self, dsn, count, log, chance):
        self._dsn = dsn
        self._log = log
        self._chance = chance
        self._processes = [WorkerProcess(dsn, log) for _ in range(count)]

    async def until_at_work(self):
        """Return when the first of them works."""
        while not any(process.is_at_work for process in self._processes):
            await asyncio.sleep(0.1)

    def kill_one(self):
        """Kill a worker that works, if one does; another takes its place."""
        at_work = [n for n, process in enumerate(self._processes) if process.is_at_work]
        if not at_work:
            return False
        place = self._chance.choice(at_work)
        self._processes[place].kill()
        self._processes[place] = WorkerProcess(self._dsn, self._log)
        return True

    def stop(self):
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.end()


async def start_orders(client, connection, count, chance):
    """Start chains in transactions of the user; return how many were rolled back."""
    rolled_back = started = 0
    while started < count:
        batch = min(BATCH, count - started)
        transaction = connection.transaction()
        await transaction.start()
        parts = await client.start_many(
            [Start(part, n) for n in range(batch * PARTS)], tx=connection
        )
        refs = [parts[n * PARTS : n * PARTS + PARTS] for n in range(batch)]
        orders = await client.start_many(
            [Start(collect, Order(n, [each.ref for each in refs[n]])) for n in range(batch)],
            tx=connection,
        )
        await connection.executemany(
            "insert into ordered values ($1)", [(order.id,) for order in orders]
        )
        if chance.random() < ROLLBACKS:
            await transaction.rollback()
            rolled_back += batch
        else:
            await transaction.commit()
            started += batch
    return rolled_back


async def run_campaign(dsn, *, chains, seconds, workers, patience_s, log, seed=1):
    """Run one; return what it came to."""
    chance = random.Random(seed)
    outcome = Outcome(chains)
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    async with JobClient(dsn, types=[types]) as client:
        processes = Workers(dsn, workers, log, chance)
        try:
            await processes.until_at_work()
            began = time.monotonic()
            rounds = max(1, round(seconds))
            for number in range(rounds):
                count = chains * (number + 1) // rounds - chains * number // rounds
                outcome.rolled_back += await start_orders(client, connection, count, chance)
                await until_busy(connection)
                outcome.kills += await asyncio.to_thread(processes.kill_one)
                await asyncio.sleep(max(0, began + number + 1 - time.monotonic()))
            await all_ended(client, connection, patience_s)
        finally:
            await asyncio.to_thread(processes.stop)
    outcome.seconds = round(time.monotonic() - began, 1)
    outcome.lost_attempts = await connection.fetchval(
        "select count(*) from skep.job_attempt where outcome = 'lost'"
    )
    await connection.execute("create index on done (chain_id); analyze")
    for complaint, query in COMPLAINTS.items():
        if count := await connection.fetchval(query):
            outcome.complaints[complaint] = count
    await connection.close()
    return outcome


async def until_busy(connection):
    """Return when several workers run jobs, or soon: what was started may be done already."""
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            while await connection.fetchval(BUSY_WORKERS) < 2:
                await asyncio.sleep(0)


async def all_ended(client, connection, patience_s):
    """Wait for each chain; what does not end in time is left to the complaints."""
    ids = await connection.fetch("select chain_id from ordered")
    waiting = (client.chain(collect, row[0]).result() for row in ids)
    try:
        async with asyncio.timeout(patience_s):
            await asyncio.gather(*waiting)
    except TimeoutError:
        pass


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience-s", type=float, default=900)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="skep-kills-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)  # as root the server runs under another account
        parameters = {"max_connections": "400"}  # sessions of the killed take a while to end
        with EmbeddedPostgres(Path(name) / "postgres", parameters=parameters) as postgres:
            asyncio.run(migrate(postgres.dsn))
            outcome = asyncio.run(run_campaign(postgres.dsn, **vars(options), log=sys.stderr))
    print(json.dumps(asdict(outcome), indent=2))  # noqa: T201 -- the result of the program
    sys.exit(1 if outcome.complaints else 0)


if __name__ == "__main__":
    main()
