"""Two installations in one database, each in a schema of its own: they share nothing else."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from skep import enqueue
from skep.db.schema.migrate import MigrationFailed, migrate, schema_state
from skep.db.schema.server import vacuum_tables
from skep.jobs import ChainFilter, Ctx, JobClient, JobTypes, Worker, consume
from skep.jobs.signals import CHAIN_CLOSED, JOB_READY
from skep.jobs.store import TABLES
from skep.model.schema_name import Schema, with_schema
from tests.sql.support.waiting import eventually
from tests.support.broker import payloads
from tests.support.sql_source import sql_source

OTHER = "billing"
WAIT_MS = 20_000
PUSH_MODE = "/api/v1/system/maintenance"
CHANNELS = ("skep_staged", "skep_pushed", JOB_READY, CHAIN_CLOSED)

ours, theirs = JobTypes("ours"), JobTypes("theirs")


@ours.job("double")
async def double(ctx: Ctx[int, int]) -> int:
    return ctx.input * 2


@theirs.job("double", mode="atomic")
async def double_and_tell(ctx: Ctx[int, int]) -> int:
    await enqueue.stage(ctx.connection, "doubled", ctx.input * 20, schema=OTHER)
    return ctx.input * 20


@pytest.fixture(scope="module")
def broker(start_broker):
    """The installation in the default schema."""
    with start_broker("--workers", "1") as broker:
        yield broker


@pytest.fixture(scope="module")
def other_broker(start_broker, broker):
    """The one in another schema of the same database."""
    flags = ("--workers", "1", "--migrate", "always", "--database-schema", OTHER)
    with start_broker(*flags, beside=broker) as other:
        yield other


@pytest.fixture
def url(broker, other_broker):
    return broker.database_url


@pytest.fixture
def other_url(url):
    return with_schema(url, OTHER)


@pytest.fixture
def other(arun, other_broker):
    """A connection to the broker of the other installation."""
    stack = AsyncExitStack()
    yield arun(stack.enter_async_context(other_broker.connect()))
    arun(stack.aclose())


@pytest.fixture
def sql(arun, url):
    """A session of an application with the database that both share."""
    connection = arun(asyncpg.connect(url))
    yield connection
    arun(connection.close(timeout=5))


@pytest.fixture
def heard(arun, url):
    """What was notified, as (channel, payload), on the channels of both installations."""
    heard = []
    listener = arun(asyncpg.connect(url))

    def hear(_, __, channel, payload):
        heard.append((channel, payload))

    for schema in (Schema(), Schema(OTHER)):
        for channel in CHANNELS:
            arun(listener.add_listener(schema.called(channel), hear))
    yield heard
    arun(listener.close(timeout=5))


async def test_messages_of_one_queue_name_stay_in_their_installation(client, other, queue):
    await client.push_payloads(queue, "mine")
    await other.push_payloads(queue, "theirs")
    await other.push_payloads(queue, "also theirs")

    assert payloads(await other.pop(queue, batch=10, autoAck=True)) == ["theirs", "also theirs"]
    assert payloads(await client.pop(queue, batch=10, autoAck=True)) == ["mine"]
    assert await other.pop(queue) == await client.pop(queue) == []


async def test_a_transaction_id_names_a_message_of_one_installation(client, other, queue):
    item = {"queue": queue, "transactionId": "the same", "payload": 1}

    answers = [(await each.push(item))[0]["status"] for each in (client, other, client)]

    assert answers == ["queued", "queued", "duplicate"]


async def test_messages_of_a_users_transaction_go_where_he_says(client, other, sql, heard, queue):
    async with sql.transaction():
        await enqueue.stage(sql, queue, "staged here")
        await enqueue.stage(sql, queue, "staged there", schema=OTHER)
        await enqueue.push(sql, queue, "pushed there", partition="p", schema=OTHER)

    assert payloads(await client.pop(queue, wait=True, timeout=WAIT_MS)) == ["staged here"]
    found = []
    while len(found) < 2:
        found += payloads(await other.pop(queue, batch=10, wait=True, timeout=WAIT_MS))
    assert sorted(found) == ["pushed there", "staged there"]
    # A transaction that stages in both tells both: neither takes the other's word for its own.
    assert sorted(channel for channel, _ in heard) == [
        "billing_pushed",
        "billing_staged",
        "skep_staged",
    ]


async def test_a_step_consumes_from_the_installation_that_it_names(other, sql, client, queue):
    await other.push_payloads(queue, {"n": 1})
    await client.push_payloads(queue, {"n": 2})

    async with sql.transaction():
        (message,) = await consume(sql, queue, group="g", schema=OTHER)

    assert message.payload == {"n": 1}


async def test_each_installation_has_leaders_of_its_own(url, sql, broker, other_broker):
    async def leaders(schema):
        rows = await sql.fetch(f"select service, holder from {schema}.leadership")
        return {row["holder"] for row in rows}

    here = await eventually(lambda: leaders("skep"))
    there = await eventually(lambda: leaders(OTHER))

    assert here
    assert there
    assert not here & there


async def test_maintenance_of_one_is_not_that_of_the_other(client, other, queue):
    assert (await client.post(PUSH_MODE, {"enabled": True})).status == 200
    try:
        assert (await client.push_payloads(queue, 1))[0]["status"] == "buffered"
        answer = json.loads((await other.call("GET", PUSH_MODE)).body)
        stored = await other.push_payloads(queue, 2)
    finally:
        await client.post(PUSH_MODE, {"enabled": False})

    assert answer["maintenanceMode"] is False
    assert stored[0]["status"] == "queued"
    assert payloads(await client.pop(queue, wait=True, timeout=WAIT_MS)) == [1]


async def test_statistics_are_of_the_schema_of_the_installation(other):
    answer = json.loads((await other.call("GET", "/api/v1/analytics/postgres-stats")).body)

    schemas = {table["schema"] for table in answer["tableCache"]}
    assert schemas == {OTHER}


@asynccontextmanager
async def working(types, dsn, **options):
    """Run a worker; its client."""
    async with JobClient(dsn, types=[types], **options) as client:
        worker = Worker(client, [types], poll_s=60, concurrency=2)
        await worker.start()
        try:
            yield client
        finally:
            await worker.stop(grace_s=5)


async def test_chains_run_where_they_were_started(url, other, heard):
    async with (
        working(ours, url) as here,
        working(theirs, url, schema=OTHER) as there,
        asyncio.timeout(60),
    ):
        mine, its = await here.start(double, 1), await there.start(double_and_tell, 1)

        # Nobody looks by himself within this time: the signals arrive, each where it belongs.
        assert (await mine.result(), await its.result()) == (2, 20)
        assert [c.id for c in (await here.inspection.chains(ChainFilter())).items] == [mine.id]
        assert [c.id for c in (await there.inspection.chains(ChainFilter())).items] == [its.id]

    assert ("skep_chain_closed", str(mine.id)) in heard
    assert ("billing_chain_closed", str(its.id)) in heard
    assert ("skep_chain_closed", str(its.id)) not in heard
    found = payloads(await other.pop("doubled", wait=True, timeout=WAIT_MS))
    assert found == [20]


async def test_chains_start_and_end_in_a_users_transaction_of_the_other_schema(url, sql):
    async with JobClient(url, types=[theirs], schema=OTHER) as client:
        async with sql.transaction():
            chain = await client.start(double_and_tell, 3, tx=sql)
            cancelled = await client.start(double_and_tell, 4, tx=sql)
            await client.cancel(cancelled.id, tx=sql)
        async with client.resolve(chain.id, double_and_tell) as pending:
            pending.finish(33)

        assert await chain.result(timeout=10) == 33


async def test_a_job_client_takes_the_schema_from_its_url_as_well(other_url):
    async with JobClient(other_url, types=[theirs]) as client:
        assert client.schema == Schema(OTHER)
        await client.pause("double")
        await client.resume("double")


def skep(*arguments, code=0, **variables):
    """Run a command in a process of its own, as an operator does; return what it said."""
    ended = subprocess.run(
        [sys.executable, "-m", "skep", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


def test_the_doctor_looks_at_the_schema_that_is_named(url, other_broker):
    there = ("--database-url", url, "--database-schema", OTHER)
    findings = json.loads(skep("doctor", *there, "--url", other_broker.url, "-o", "json"))
    nowhere = skep("doctor", "--database-url", url, "--database-schema", "nobody", code=2)

    state = {finding["topic"]: finding["state"] for finding in findings}
    assert (state["migrations"], state["permissions"]) == ("ok", "ok")
    assert "run `skep migrate`" in " ".join(nowhere.split())


def test_commands_find_the_schema_in_flag_variable_and_url(url, other_url):
    by_flag = skep("migrate", "--check", "--database-url", url, "--database-schema", OTHER)
    by_variable = skep("migrate", "--check", SKEP_DATABASE_URL=url, SKEP_DATABASE_SCHEMA=OTHER)
    by_url = skep("migrate", "--check", "--database-url", other_url)

    assert by_flag == by_variable == by_url == "the schema is current\n"
    assert "the schema is behind" in skep(
        "migrate", "--check", "--database-url", url, "--database-schema", "nobody", code=3
    )


def test_a_job_is_started_in_the_installation_of_the_broker_that_is_asked(broker, other_broker):
    skep("jobs", "start", "halve", "4", "--url", other_broker.url)

    assert "halve" in skep("jobs", "types", "--url", other_broker.url)
    assert "halve" not in skep("jobs", "types", "--url", broker.url)


def test_a_schema_that_cannot_be_called_that_is_refused_in_one_line():
    ended = subprocess.run(
        [sys.executable, "-m", "skep", "migrate", "--database-schema", "Public"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith("skep: database_schema: the schema must be a plain name")
    assert len(ended.stderr.splitlines()) == 1


async def test_tables_of_the_other_installation_are_vacuumed(other_url):
    assert (await vacuum_tables(other_url, TABLES)).keys() == set(TABLES)


async def test_installations_are_migrated_at_the_same_time_and_apart(empty_database_url):
    urls = [with_schema(empty_database_url, name) for name in ("skep", "one", "skep_two")]

    first, second, third = await asyncio.gather(*map(migrate, urls))

    assert first == second == third
    assert [(await schema_state(url)).verdict for url in urls] == ["current"] * 3
    connection = await asyncpg.connect(empty_database_url)
    try:
        await connection.execute("update one.code_object set checksum = '' where name = 'now'")
        again = [await migrate(url) for url in urls]
        schemas = await connection.fetch(
            "select nspname from pg_namespace where nspname ~ 'skep|one' order by nspname"
        )
    finally:
        await connection.close(timeout=5)
    assert [report.has_changes for report in again] == [False, True, False]
    assert [row[0] for row in schemas] == [
        "one",
        "one_lake",
        "skep",
        "skep_lake",
        "skep_two",
        "skep_two_lake",
    ]


async def test_the_script_for_another_schema_leaves_the_runner_nothing_to_do(empty_database_url):
    script = skep("migrate", "--sql", "--database-schema", "one")
    connection = await asyncpg.connect(empty_database_url)
    try:
        await connection.execute(script)
    finally:
        await connection.close(timeout=5)

    assert not (await migrate(with_schema(empty_database_url, "one"))).has_changes


async def test_an_error_in_a_file_is_told_by_its_own_line(empty_database_url):
    broken = "create table skep.a ();\ncreate table skep.b ();\n\n\n\nselect no_such_column;\n\n\n"
    source = sql_source({"migrations/0001_a.sql": broken})

    with pytest.raises(MigrationFailed, match="line 6:"):
        await migrate(with_schema(empty_database_url, "a_name_of_some_length"), source=source)


async def test_a_role_is_told_which_schema_it_must_own(empty_database_url):
    connection = await asyncpg.connect(empty_database_url)
    try:
        await connection.execute("create role poor login password 'x'")
        poor = empty_database_url.replace(
            empty_database_url.partition("://")[2].partition("@")[0], "poor:x"
        )
        with pytest.raises(MigrationFailed, match="must own schema one"):
            await migrate(with_schema(poor, "one"))
        await connection.execute("drop role poor")
    finally:
        await connection.close(timeout=5)
