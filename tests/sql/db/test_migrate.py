import asyncio
from pathlib import Path

import pytest

from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import (
    MigrationFailed,
    SchemaState,
    migrate,
    migration_script,
    schema_state,
)
from skep.db.schema.plan import MigrationChanged, SchemaTooNew
from skep.model.errors import Unavailable
from tests.support.sql_source import sql_source

GREET = "create function skep.greet() returns text language sql as $$ select 'hello' $$;"
HIVE = {
    "migrations/0001_hive.sql": "create table skep.hive (id int);",
    "migrations/0002_bee.sql": "create table skep.bee (id int);",
    "functions/greet.sql": GREET,
    "views/greeting.sql": "create view skep.greeting as select skep.greet() as text;",
}
POSTGRES_15 = Path("/usr/lib/postgresql/15/bin")


def bee_count(connection):
    return connection.fetchval("select count(*) from skep.bee")


async def test_an_empty_database_gets_everything_in_order(empty_database_url, connect):
    report = await migrate(empty_database_url, source=sql_source(HIVE))

    assert report.applied == ("migrations/0001_hive.sql", "migrations/0002_bee.sql")
    assert report.created == ("functions/greet.sql", "views/greeting.sql")
    connection = await connect()
    assert await connection.fetchval("select text from skep.greeting") == "hello"


async def test_a_second_run_has_nothing_to_do(empty_database_url):
    await migrate(empty_database_url, source=sql_source(HIVE))

    report = await migrate(empty_database_url, source=sql_source(HIVE))

    assert not report.has_changes


async def test_a_later_migration_keeps_the_rows_of_the_earlier(empty_database_url, connect):
    await migrate(empty_database_url, source=sql_source(HIVE))
    connection = await connect()
    await connection.execute("insert into skep.bee values (1)")

    more = {**HIVE, "migrations/0003_name.sql": "alter table skep.bee add name text;"}
    report = await migrate(empty_database_url, source=sql_source(more))

    assert report.applied == ("migrations/0003_name.sql",)
    assert await bee_count(connection) == 1


async def test_of_two_runners_at_once_one_does_the_work(empty_database_url):
    source = sql_source(HIVE)

    reports = await asyncio.gather(*(migrate(empty_database_url, source=source) for _ in range(2)))

    assert sorted(report.has_changes for report in reports) == [False, True]


async def test_steps_are_told_before_they_happen(empty_database_url):
    steps = []

    await migrate(empty_database_url, source=sql_source(HIVE), on_step=steps.append)

    assert steps == [
        "apply migrations/0001_hive.sql",
        "apply migrations/0002_bee.sql",
        "create functions/greet.sql",
        "create views/greeting.sql",
    ]


async def test_a_changed_function_may_return_another_type(empty_database_url, connect):
    await migrate(empty_database_url, source=sql_source(HIVE))

    changed = GREET.replace("returns text", "returns int").replace("'hello'", "42")
    await migrate(empty_database_url, source=sql_source({**HIVE, "functions/greet.sql": changed}))

    connection = await connect()
    assert await connection.fetchval("select text from skep.greeting") == 42


async def test_a_changed_function_leaves_no_overload_behind(empty_database_url, connect):
    await migrate(empty_database_url, source=sql_source(HIVE))

    changed = GREET.replace("greet()", "greet(loudly bool = false)")
    await migrate(empty_database_url, source=sql_source({**HIVE, "functions/greet.sql": changed}))

    connection = await connect()
    arguments = await connection.fetch(
        "select pg_get_function_arguments(oid) from pg_proc where proname = 'greet'"
    )
    assert [row[0] for row in arguments] == ["loudly boolean DEFAULT false"]


async def test_a_function_may_call_one_that_is_created_after_it(empty_database_url, connect):
    caller = GREET.replace("greet", "a_caller").replace("'hello'", "skep.greet()")

    await migrate(empty_database_url, source=sql_source({**HIVE, "functions/a_caller.sql": caller}))

    connection = await connect()
    assert await connection.fetchval("select skep.a_caller()") == "hello"


async def test_unchanged_functions_are_left_alone(empty_database_url, connect):
    await migrate(empty_database_url, source=sql_source(HIVE))
    connection = await connect()
    oid = await connection.fetchval("select 'skep.greet'::regproc::oid")

    view = "create view skep.greeting as select upper(skep.greet()) as text;"
    await migrate(empty_database_url, source=sql_source({**HIVE, "views/greeting.sql": view}))

    assert await connection.fetchval("select 'skep.greet'::regproc::oid") == oid


async def test_objects_without_a_file_are_dropped(empty_database_url, connect):
    await migrate(empty_database_url, source=sql_source(HIVE))

    tables_only = {path: text for path, text in HIVE.items() if path.startswith("migrations")}
    report = await migrate(empty_database_url, source=sql_source(tables_only))

    assert report.dropped == ("functions/greet.sql", "views/greeting.sql")
    connection = await connect()
    assert await connection.fetchval("select to_regproc('skep.greet')") is None
    assert await connection.fetchval("select to_regclass('skep.greeting')") is None


async def test_what_a_user_built_on_a_view_is_never_dropped_with_it(empty_database_url, connect):
    await migrate(empty_database_url, source=sql_source(HIVE))
    connection = await connect()
    await connection.execute("create view public.mine as select * from skep.greeting")

    with pytest.raises(MigrationFailed, match=r"view public\.mine|view mine"):
        await migrate(
            empty_database_url, source=sql_source({**HIVE, "functions/greet.sql": GREET + "\n"})
        )

    assert await connection.fetchval("select text from public.mine") == "hello"


async def test_a_file_that_creates_another_object_than_its_name_is_refused(empty_database_url):
    source = sql_source({**HIVE, "functions/wave.sql": GREET.replace("greet", "shout")})

    with pytest.raises(MigrationFailed, match=r"functions/wave\.sql"):
        await migrate(empty_database_url, source=source)


async def test_a_migration_edited_after_it_was_applied_is_refused(empty_database_url):
    await migrate(empty_database_url, source=sql_source(HIVE))
    edited = {**HIVE, "migrations/0002_bee.sql": "create table skep.bee (id bigint);"}

    with pytest.raises(MigrationChanged, match=r"migrations/0002_bee\.sql"):
        await migrate(empty_database_url, source=sql_source(edited))


async def test_a_schema_newer_than_the_code_is_refused(empty_database_url):
    newer = {**HIVE, "migrations/0003_swarm.sql": "create table skep.swarm (id int);"}
    await migrate(empty_database_url, source=sql_source(newer))

    with pytest.raises(SchemaTooNew, match="0003_swarm: upgrade skep"):
        await migrate(empty_database_url, source=sql_source(HIVE))


async def test_a_failed_migration_leaves_nothing_of_itself(empty_database_url, connect):
    broken = "create table skep.swarm (id int);\nselect no_such_column;"
    source = sql_source({**HIVE, "migrations/0002_bee.sql": broken})

    with pytest.raises(
        MigrationFailed, match=r"migrations/0002_bee\.sql, line 2: .*no_such_column"
    ):
        await migrate(empty_database_url, source=source)

    connection = await connect()
    applied = await connection.fetch("select name from skep.migration")
    assert [row["name"] for row in applied] == ["0001_hive"]
    assert await connection.fetchval("select to_regclass('skep.swarm')") is None


async def test_code_that_fails_leaves_the_old_code_in_place(empty_database_url, connect):
    await migrate(empty_database_url, source=sql_source(HIVE))
    broken = {**HIVE, "functions/greet.sql": GREET.replace("text", "int"), "views/bad.sql": "oops"}

    with pytest.raises(MigrationFailed, match=r"views/bad\.sql, line 1"):
        await migrate(empty_database_url, source=sql_source(broken))

    connection = await connect()
    assert await connection.fetchval("select text from skep.greeting") == "hello"


@pytest.mark.slow
async def test_a_migration_gives_way_to_live_traffic_and_comes_back(empty_database_url, connect):
    await migrate(empty_database_url, source=sql_source(HIVE))
    owner, observer = await connect(), await connect()
    traffic = owner.transaction()
    await traffic.start()
    await owner.execute("lock table skep.bee in row exclusive mode")
    more = {**HIVE, "migrations/0003_name.sql": "alter table skep.bee add name text;"}

    migration = asyncio.ensure_future(migrate(empty_database_url, source=sql_source(more)))
    await until(migration, observer, waits_for_lock=True)
    await until(migration, observer, waits_for_lock=False)
    readable = await bee_count(observer)
    await traffic.rollback()

    assert (await migration).applied == ("migrations/0003_name.sql",)
    assert readable == 0


async def until(migration, observer, *, waits_for_lock):
    """Return once the migration waits for a lock, or waits no more, or has ended."""
    while not migration.done() and waits_for_lock != await observer.fetchval(
        """
        select exists (
          select from pg_stat_activity
          where datname = current_database() and wait_event = 'relation'
        )
        from pg_sleep(0.01)
        """
    ):
        pass


async def test_the_state_of_an_empty_database_is_behind_by_every_file(empty_database_url):
    assert await schema_state(empty_database_url, source=sql_source(HIVE)) == SchemaState(
        "behind", tuple(HIVE)
    )


async def test_the_state_of_a_migrated_database_is_current(empty_database_url):
    await migrate(empty_database_url, source=sql_source(HIVE))

    state = await schema_state(empty_database_url, source=sql_source(HIVE))

    assert state == SchemaState("current")


async def test_the_state_of_a_newer_database_is_ahead(empty_database_url):
    await migrate(empty_database_url, source=sql_source(HIVE))

    state = await schema_state(empty_database_url, source=sql_source({}))

    assert state == SchemaState("ahead", ("0001_hive", "0002_bee"))


async def test_the_script_leaves_the_runner_nothing_to_do(empty_database_url, connect):
    connection = await connect()

    await connection.execute(migration_script(sql_source(HIVE)))

    assert not (await migrate(empty_database_url, source=sql_source(HIVE))).has_changes


async def test_the_bundled_script_leaves_the_runner_nothing_to_do(empty_database_url, connect):
    connection = await connect()

    await connection.execute(migration_script())

    assert not (await migrate(empty_database_url)).has_changes


async def test_the_bundled_schema_is_current_after_migration(database_url):
    assert await schema_state(database_url) == SchemaState("current")


async def test_a_database_that_is_away_is_unavailable():
    with pytest.raises(Unavailable, match="cannot connect"):
        await migrate("postgresql://skep@127.0.0.1:1/skep")


async def test_a_role_without_rights_is_told_which_it_needs(empty_database_url, connect):
    connection = await connect()
    await connection.execute("create role nobody_special login password 'x'")
    url = empty_database_url.replace(
        empty_database_url.split("@")[0], "postgresql://nobody_special:x"
    )

    try:
        with pytest.raises(MigrationFailed, match="must own schema skep"):
            await migrate(url)
    finally:
        await connection.execute("drop role nobody_special")


@pytest.mark.slow
@pytest.mark.skipif(not POSTGRES_15.is_dir(), reason="needs Debian's PostgreSQL 15")
def test_the_bundled_schema_works_on_postgres_15(postgres_dir, arun):
    with EmbeddedPostgres(postgres_dir / "pg", binaries=POSTGRES_15) as server:
        report = arun(migrate(server.dsn))

        assert report.applied
        assert arun(schema_state(server.dsn)) == SchemaState("current")
