"""What is staged for a queue that encrypts is stored encrypted, or not as a message."""

import json

import asyncpg
import pytest

from skep import enqueue
from tests.faults.support.in_process import running
from tests.sql.support.waiting import eventually

KEY = f"k1:{bytes(range(32)).hex()}"


@pytest.fixture
def sql(arun, connect):
    return arun(connect())


async def stage_secret(sql, queue):
    await sql.execute("select skep.ensure_queue($1)", queue)
    await sql.execute("update skep.queue set encryption_enabled = true where name = $1", queue)
    async with sql.transaction():
        await enqueue.stage(sql, queue, "secret")


async def is_moved(sql):
    return not await sql.fetchval("select exists (select from skep.staged)")


async def test_the_payload_is_encrypted_in_the_log_and_clear_for_consumers(
    database_url, sql, queue
):
    await stage_secret(sql, queue)
    async with running(database_url, encryption_keys=KEY) as broker:
        [message] = await broker.pop(queue, wait_s=20)

    [envelope] = json.loads(await sql.fetchval("select body from skep.segment"))
    assert message["data"] == "secret"
    assert envelope["enc"] == "k1"
    assert "secret" not in str(envelope)


async def test_without_a_key_it_becomes_a_dead_letter_that_says_so(database_url, sql, queue):
    await stage_secret(sql, queue)
    async with running(database_url):
        await eventually(lambda: is_moved(sql))

    [(error, envelope)] = await sql.fetch("select error, envelope from skep.dead_letter")
    assert "no encryption key" in error
    assert json.loads(envelope)["data"] == "secret"
    assert await sql.fetchval("select count(*) from skep.message") == 0


async def test_what_a_schema_refuses_is_encrypted_in_its_dead_letter(database_url, sql, queue):
    await stage_secret(sql, queue)
    await sql.execute("""update skep.queue set json_schema = '{"type": "object"}'""")
    async with running(database_url, encryption_keys=KEY):
        await eventually(lambda: is_moved(sql))

    [(error, envelope)] = await sql.fetch("select error, envelope from skep.dead_letter")
    assert "object" in error
    assert json.loads(envelope)["enc"] == "k1"


async def test_sql_cannot_push_it(sql, queue):
    await stage_secret(sql, queue)

    with pytest.raises(asyncpg.PostgresError, match=r"use skep\.stage"):
        await sql.fetch("select skep.push($1, null, '1')", queue)
