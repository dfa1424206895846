"""What migrations make of the rows of jobs that are there."""

from pathlib import Path

import skep.db
from skep.db.schema.migrate import migrate
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
