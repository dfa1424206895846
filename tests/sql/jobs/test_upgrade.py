"""What migrations make of the rows of jobs that are there, and of callers that run on."""

from pathlib import Path

import skep.db
from skep.db.schema.migrate import migrate
from skep.jobs.identifiers import new_id
from tests.support.sql_source import sql_source

MIGRATIONS = Path(skep.db.__file__).parent / "sql" / "migrations"
BEFORE = """
insert into skep.job_schedule (
  name, type, input, cron, timezone, missed, priority, max_attempts, is_enabled, next_at)
select n, 'x', '1', '0 * * * *', 'UTC', 'once', 0, 1, n = 'on', now()
from unnest(array['on', 'off']) n;
insert into skep.chain_key (type_id, key, chain_id, started_at)
values (1, 'k', gen_random_uuid(), now());
insert into skep.blocker (job_id, position, chain_id, is_fatal)
values (gen_random_uuid(), 1, gen_random_uuid(), true),
       (gen_random_uuid(), 1, gen_random_uuid(), false);
"""


async def test_schedules_stay_off_keys_stay_held_and_policies_stay(empty_database_url, connect):
    files = {f"migrations/{path.name}": path.read_text() for path in MIGRATIONS.glob("*.sql")}
    old = {name: text for name, text in files.items() if name < "migrations/0036"}
    await migrate(empty_database_url, source=sql_source(old))
    connection = await connect()
    await connection.execute(BEFORE)

    await migrate(empty_database_url, source=sql_source(files))

    schedules = await connection.fetch("select name, is_paused from skep.job_schedule order by 1")
    assert [tuple(row) for row in schedules] == [("off", True), ("on", False)]
    assert await connection.fetchval("select held_until = 'infinity' from skep.chain_key")
    policies = await connection.fetch("select on_failure from skep.blocker order by 1")
    assert [row[0] for row in policies] == ["fail", "wait"]


# What applications and workers of the release before call until they are deployed again.

START_BEFORE = (
    "select outcome from skep.chain_start($1::uuid[], array['work'], array['1'],"
    " array[0::smallint], array[null::timestamptz], array[null::double precision], array[3],"
    " array[null::text], array[null::double precision], array[null::uuid], array[null::text],"
    " array[null::text], array[false], array[null::double precision], array[null::uuid],"
    " $2::integer[], $3::uuid[], $4::boolean[], false)"
)
SETTLE_BEFORE = (
    "select outcome from skep.job_settle($1::uuid, $2::uuid[], array[1], array['continued'],"
    " array[null::text], array[null::text], array[null::double precision],"
    " array[null::timestamptz], $3::uuid[], array['work'], array['1'], array[0::smallint],"
    " array[3], array[null::text], array[null::text], array[1], $4::uuid[], $5::boolean[], true)"
)
PUT_BEFORE = (
    "select skep.job_schedule_put('hourly', 'work', '1', '0 * * * *', 'UTC', 'once', 0::smallint,"
    " 3, true, $1)"
)


async def test_an_application_of_the_release_before_starts_chains(chains):
    first, second, blocker = new_id(), new_id(), await chains.start()

    started = [
        await chains.value(START_BEFORE, [first], [], [], []),
        await chains.value(START_BEFORE, [second], [1, 1], [blocker, first], [True, False]),
    ]

    assert started == ["started", "started"]
    assert await _policies(chains, second) == {blocker: "fail", first: "wait"}


async def test_a_worker_of_the_release_before_continues_chains(chains):
    job_id, next_id, blocker = await chains.start(), new_id(), await chains.start("other")
    worker_id = await chains.enroll()
    await chains.claim(worker_id)

    outcome = await chains.value(SETTLE_BEFORE, worker_id, [job_id], [next_id], [blocker], [True])

    assert outcome == "settled"
    assert await _policies(chains, next_id) == {blocker: "fail"}


async def test_a_worker_of_the_release_before_puts_its_schedules(chains):
    await chains.rows(PUT_BEFORE, chains.now)

    (row,) = await chains.rows("select * from skep.job_schedule_list(false, null, null, 10)")
    assert (row["name"], row["is_paused"]) == ("hourly", False)


async def _policies(chains, job_id):
    rows = await chains.rows(
        "select chain_id, on_failure from skep.blocker where job_id = $1", job_id
    )
    return dict(rows)
