"""What a call about jobs reads depends on the jobs it is about, not on how many wait.

What changes jobs is metered when hardly anything waits and again when very much does, in the
session that planned it before: PostgreSQL keeps a plan, and the worst is the one of an empty table.
Listings are planned anew each time, by their filters. Completed jobs are not among them: they are
looked for from the newest on, as the rule is that nearly all are completed.
"""

from contextlib import asynccontextmanager

import pytest

from skep.db.access.slots import ONE_OFF
from tests.sql.model.test_plans import MeteredLog
from tests.sql.support.chains import Chains
from tests.support.sizes import sized

WAITING = sized(40_000, large=1_000_000)
BATCH = 20
PAGE = 10
RUNS = 6
"""PostgreSQL considers a plan for all arguments after five runs."""

FILL = """
with new as (
  select gen_random_uuid() as id, $1::integer as type_id, n from generate_series(1, $2::integer) n
), chains as (
  insert into skep.chain (id, type_id, last_job_id, created_at)
  select id, type_id, id, skep.now() from new
), jobs as (
  insert into skep.job (id, chain_id, position, type_id, priority, max_attempts, input, created_at)
  select id, id, 0, type_id, 0, 20, '7', skep.now() from new
)
insert into skep.open_job (job_id, chain_id, type_id, priority, due_at, max_attempts)
select id, id, type_id, 0, skep.now() + case when n % 100 = 0 then interval '1 day' else '0' end, 20
from new
"""


class MeteredChains(Chains):
    """Chains whose calls say how many rows they read, in tables and indexes."""

    read = 0

    async def rows(self, query, *arguments):
        async with self.connection.transaction():
            before = await MeteredLog._counters(self)
            rows = await super().rows(query, *arguments)
            after = await MeteredLog._counters(self)
        self.read = after[0] - before[0]
        return rows


@pytest.fixture
def metered(arun, chains, connect):
    async def open_metered():
        metered = await MeteredChains.open(await connect())
        for name, value in ONE_OFF.items():
            await metered.connection.execute(f"set {name} = {value}")
        for table in ("chain", "job", "open_job"):
            off = f"alter table skep.{table} set (autovacuum_enabled = off)"
            await metered.connection.execute(off)
        return metered

    metered = arun(open_metered())
    yield metered
    for table in ("chain", "job", "open_job"):
        arun(metered.connection.execute(f"alter table skep.{table} reset (autovacuum_enabled)"))


@asynccontextmanager
async def rolled_back(chains):
    transaction = chains.connection.transaction()
    await transaction.start()
    yield
    await transaction.rollback()


async def prepare(chains):
    """Return what the calls are about: a worker, what it runs, and chains to be changed."""
    worker = await chains.enroll()
    failed = [await chains.start("ending") for _ in range(BATCH)]
    await chains.run(worker, "ending", outcome="failed", error="x")
    await chains.start_all(*({"type": "taken"} for _ in range(BATCH)))
    taken = await chains.claim(worker, "taken", limit=BATCH)
    await chains.start_all(*({} for _ in range(BATCH * 2)))
    scheduled = [await chains.start("late", delay_s=600) for _ in range(BATCH)]
    await chains.start("late", blockers=[failed[0]])
    return worker, taken, failed, scheduled


def calls(chains, worker, taken, failed, scheduled):
    """Return calls by what they do."""
    some = [job["job_id"] for job in taken]
    attempts = [job["attempt"] for job in taken]

    def ended(outcome, **item):
        settled = [
            {"job_id": job["job_id"], "attempt": job["attempt"], "outcome": outcome, **item}
            for job in taken
        ]
        return lambda: chains.settle_all(worker, *settled)

    def call(query, *arguments):
        return lambda: chains.rows(f"select * from skep.{query}", *arguments)

    return {
        "start": lambda: chains.start_all(*({} for _ in range(BATCH))),
        "start behind a blocker": lambda: chains.start_all({"blockers": [failed[0]]}),
        "claim": lambda: chains.claim_rows(worker, limit=BATCH),
        "claim of several types": lambda: chains.claim_rows(worker, "work", "late", limit=BATCH),
        "claim of nothing": lambda: chains.claim_rows(worker, "late", limit=BATCH),
        "complete": ended("completed"),
        "complete one": call("job_complete($1, $2, $2, $3, '7')", worker, some[0], attempts[0]),
        "continue": ended("continued", next_type="work"),
        "again": ended("retry", error="x", delay_s=1),
        "fail": ended("failed", error="x"),
        "renew": call("job_renew($1, 30, $2, $3)", worker, some, attempts),
        "keep": call("job_hold($1, $2, $3, $4)", some[0], some[0], worker, attempts[0]),
        "reap": call("job_reap(100)"),
        "expire": call("chain_expire(100)"),
        "cancel": call("chain_cancel($1, false, null)", scheduled),
        "retry": call("chain_retry($1)", failed),
        "delete": call("chain_delete($1, false)", scheduled),
        "discard": call("chain_discard($1, null)", scheduled),
        "trigger": call("job_trigger($1)", scheduled),
        "hasten": call("job_hasten($1)", scheduled),
    }


def listings(chains, failed):
    """Return listings and look-ups by filters, by what they are about."""

    def of_chains(name=None, state=None, parent=None, key=None, ids=None):
        return lambda: chains.rows(
            "select * from skep.chain_list($1, $2, $3, $4, $5, null, null, true, null, $6)",
            *(name, state, parent, key, ids, PAGE),
        )

    def of_jobs(name=None, state=None, chain=None, blocked_by=None):
        return lambda: chains.rows(
            "select * from skep.job_list($1, $2, $3, null, $4, null, null, true, null, $5)",
            *(name, state, chain, blocked_by, PAGE),
        )

    return {
        "chains": of_chains(),
        "chains of a type": of_chains("late"),
        "chains of a type with very many": of_chains("work"),
        "open chains": of_chains(state="open"),
        "failed chains": of_chains(state="failed"),
        "failed chains of a type": of_chains("ending", "failed"),
        "cancelled chains": of_chains(state="cancelled"),
        "chains of a key": of_chains(key="k"),
        "chains of a parent": of_chains(parent=failed[0]),
        "chains by id": of_chains(ids=failed),
        "jobs": of_jobs(),
        "jobs of a type": of_jobs("late"),
        "jobs of a chain": of_jobs(chain=failed[0]),
        "jobs behind a chain": of_jobs(blocked_by=failed[0]),
        "ready jobs": of_jobs(state="ready"),
        "running jobs": of_jobs(state="running"),
        "running jobs of a type": of_jobs("taken", "running"),
        "blocked jobs": of_jobs(state="blocked"),
        "blocked jobs of a type": of_jobs("late", "blocked"),
        "scheduled jobs of a type": of_jobs("late", "scheduled"),
        "failed jobs": of_jobs(state="failed"),
        "cancelled jobs of a type": of_jobs("work", "cancelled"),
        "found by a filter": lambda: chains.rows(
            "select * from skep.chain_find('ending', 'failed', null, null, null, null, null, null,"
            " $1)",
            PAGE,
        ),
        "found scheduled": lambda: chains.rows(
            "select * from skep.job_find('late', 'scheduled', null, null, null, null, null, null,"
            " $1)",
            PAGE,
        ),
        "throughput": lambda: chains.rows("select * from skep.job_throughput(60, 1000)"),
    }


async def costs(chains, some_calls):
    found = {}
    for name, call in some_calls.items():
        for _ in range(RUNS):
            async with rolled_back(chains):
                await call()
        found[name] = chains.read
    return found


async def let_very_many_wait(chains):
    (type_id,) = await chains.type_ids("work")
    await chains.connection.execute(FILL, type_id, WAITING, timeout=300)


@pytest.mark.slow
async def test_case_26_defect_v01_changing_jobs_costs_the_same_whatever_waits(metered):
    about = await prepare(metered)
    before = await costs(metered, calls(metered, *about))
    await let_very_many_wait(metered)

    after = await costs(metered, calls(metered, *about))

    assert max(before.values()) < BATCH * 60
    assert {name: after[name] for name in after if after[name] > before[name] * 2 + 20} == {}


@pytest.mark.slow
async def test_case_26_a_plan_made_when_little_ran_serves_when_much_does(metered):
    await let_very_many_wait(metered)
    await metered.connection.execute("vacuum analyze skep.open_job, skep.chain, skep.job")
    about = await prepare(metered)
    wanted = calls(metered, *about)
    some = {name: wanted[name] for name in ("claim", "complete", "complete one", "keep", "again")}
    before = await costs(metered, some)
    running = """
        update skep.open_job set worker_id = $1, claimed_at = skep.now() where job_id in (
          select job_id from skep.open_job where worker_id is null limit 2000)
        """
    await metered.connection.execute(running, await metered.enroll())

    after = await costs(metered, some)

    assert {name: after[name] for name in after if after[name] > before[name] * 2 + 20} == {}


@pytest.mark.slow
async def test_case_35_a_page_of_a_listing_costs_what_is_on_it_whatever_waits(metered):
    _, _, failed, *_ = await prepare(metered)
    await let_very_many_wait(metered)
    await metered.connection.execute("vacuum analyze skep.open_job, skep.chain, skep.job")

    after = await costs(metered, listings(metered, failed))

    assert {name: read for name, read in after.items() if read > PAGE * 30} == {}
