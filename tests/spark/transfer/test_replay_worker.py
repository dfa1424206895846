"""Replays that are ordered over HTTP and run on Spark by the worker that is made for it."""

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest

from skep.jobs.service.replays import REPLAY_JOB
from skep.model.errors import BadRequest
from skep.replay_worker import app
from skep.spark.transfer.conditions import check_condition
from skep.spark.transfer.replay import Replay
from tests.api.support.job_calls import Asking, replay_of_last_hour
from tests.spark.support.replay_orders import (
    COMMITTING,
    HOLD_TARGET,
    HOLD_TASKS,
    STAGING,
    ended_replay,
    start_replay,
    start_replay_worker,
    until_found,
)

pytestmark = pytest.mark.slow

STORED = """
  select p.name, p.head from skep.partition p join skep.queue q on q.id = p.queue_id
  where q.name = $1 and p.head > 0 order by p.name
"""


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1") as broker:
        yield broker


@pytest.fixture
def ask(client):
    return Asking(client)


@pytest.fixture
def run_worker(arun, broker, spark):
    """Start a worker as `skep worker` does; return it."""
    stack = AsyncExitStack()

    async def run_worker():
        return await start_replay_worker(stack, broker, spark)

    yield run_worker
    arun(stack.aclose())


@pytest.fixture
def order(queue, client, arun):
    """Three messages in each of two partitions, and the order to replay them."""
    for partition in ("a", "b"):
        arun(client.push_payloads(queue, 1, 2, 3, partition=partition))
    return replay_of_last_hour(queue)


async def stored(broker, queue):
    async with broker.sql() as sql:
        return [(row["name"], row["head"]) for row in await sql.fetch(STORED, queue)]


async def test_what_was_ordered_over_http_is_replayed_and_told(
    ask, broker, client, run_worker, order
):
    replay_id = await start_replay(ask, order)
    await run_worker()

    done = await ended_replay(ask, replay_id)

    assert done["error"] is None, done["error"]
    assert done["state"] == "completed"
    assert done["result"]["messages"] == 6
    assert not done["result"]["isRepeated"]
    assert await stored(broker, order["into"]) == [("a", 3), ("b", 3)]
    popped = await client.pop(order["into"], "a", batch=10)
    assert [message["data"] for message in popped] == [1, 2, 3]


async def test_the_same_replay_ordered_again_adds_nothing(ask, broker, run_worker, order):
    await run_worker()
    first = await ended_replay(ask, await start_replay(ask, order))

    again = await ended_replay(ask, await start_replay(ask, order))

    assert again["id"] != first["id"]
    assert again["result"] == {**first["result"], "isRepeated": True}
    assert await stored(broker, order["into"]) == [("a", 3), ("b", 3)]


async def test_a_partition_and_a_condition_choose_what_is_replayed(ask, broker, run_worker, order):
    await run_worker()

    done = await ended_replay(
        ask, await start_replay(ask, order, partition="b", where="int(payload) >= 2")
    )

    assert done["result"]["messages"] == 2, done
    assert await stored(broker, order["into"]) == [("b", 2)]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"where": "no_such_column = 1"}, "no_such_column"),
        ({"where": "payload ==="}, "Syntax error"),
        (
            {"where": "reflect('java.lang.System', 'getenv', 'HOME') = '/root'"},
            "cannot call reflect",
        ),
    ],
)
async def test_what_can_never_be_done_fails_at_once_and_says_why(
    ask, broker, run_worker, order, members, words
):
    await run_worker()

    failed = await ended_replay(ask, await start_replay(ask, order, **members))

    assert (failed["state"], failed["attempts"]) == ("failed", 1), failed
    assert words in failed["error"]
    assert await stored(broker, order["into"]) == []


async def test_an_attempt_whose_worker_is_gone_is_repeated_with_the_same_result(
    ask, broker, client, run_worker, order
):
    """The first worker loses the job in the midst of its commit, which goes on nevertheless."""
    await client.configure(order["into"])
    async with broker.sql() as sql, broker.sql() as watch:
        async with sql.transaction():
            await sql.execute(HOLD_TARGET, order["into"])
            replay_id = await start_replay(ask, order)
            first = await run_worker()
            await until_found(watch, COMMITTING)
            await first.stop(grace_s=0)
        await run_worker()

        done = await ended_replay(ask, replay_id)

    assert done["error"] is None, done["error"]
    assert done["state"] == "completed"
    assert done["attempts"] == 2
    assert done["result"]["messages"] == 6
    assert await stored(broker, order["into"]) == [("a", 3), ("b", 3)]


async def test_cancelling_the_chain_ends_the_work_on_spark(
    ask, broker, run_worker, order, monkeypatch
):
    over, run = threading.Event(), Replay.run

    def observed(self):
        try:
            return run(self)
        finally:
            over.set()

    monkeypatch.setattr(Replay, "run", observed)
    async with broker.sql() as sql, broker.sql() as watch, sql.transaction():
        await sql.execute(HOLD_TASKS)
        replay_id = await start_replay(ask, order)
        await run_worker()
        await until_found(watch, STAGING)

        await ask("POST", f"/chains/{replay_id}/cancel")

        assert await asyncio.to_thread(over.wait, 60)
    assert (await ask("GET", f"/replays/{replay_id}"))["state"] == "cancelled"
    assert await stored(broker, order["into"]) == []


def test_the_program_of_the_command_runs_replays():
    (types,) = app.registries

    assert [job.name for job in types] == [REPLAY_JOB]


@pytest.mark.parametrize(
    "text",
    [
        "partition = 'a' and offset between 1 and 7 or not transaction_id like 'x%'",
        "get_json_object(payload, '$.total') > 100 and headers['kind'] is not null",
        "case when length(payload) > 3 then true else created_at >= timestamp'2026-01-01' end",
        "partition in ('a', 'b') and offset % 2 = 0 and -offset < 0 and upper(partition) = 'A'",
        "cast(get_json_object(payload, '$.n') as int) <=> 3 or payload is distinct from '1'",
        r"payload rlike r'^\w+-[0-9]{1,5}$' or regexp_like(payload, 'timeout|refused')",
        "payload ilike '%refused%' and payload not like all ('%a', 'b%')",
    ],
)
def test_a_condition_on_the_message_passes(spark, text):
    check_condition(spark, text)


@pytest.mark.parametrize(
    "text",
    [
        "exists(select 1 from text.`/etc/passwd`)",
        "partition in (select value from text.`/etc/passwd`)",
        "(select max(value) from text.`/etc/passwd`) = partition",
        "reflect('java.lang.System', 'getenv', 'HOME') = '/root'",
        "length(java_method('java.lang.System', 'getProperty', 'user.home')) > 0",
        "try_reflect('java.lang.System', 'getenv', 'HOME') = '/root'",
        "system.builtin.reflect('java.lang.System', 'getenv', 'HOME') = '/root'",
        "`reflect`('java.lang.System', 'getenv', 'HOME') = '/root'",
        "case when true then identifier('reflect')('java.lang.System', 'exit', 0) end",
        "count(*) over () > 1",
        "rand() < 0.5",
        "repeat(payload, 1000000) = ''",
        "payload rlike '(a|aa)+$'",
        "not regexp_like(payload, '(a|aa)+$')",
        "payload rlike transaction_id",
        "payload rlike concat('(a|aa)', '+$')",
        "payload like '%a%a%a%b'",
        "payload ilike '%a%a%a%b'",
        "payload like any ('x', '%a%a%a%b')",
        "payload like transaction_id",
    ],
)
def test_a_condition_that_reaches_beyond_the_message_is_refused(spark, text):
    with pytest.raises(BadRequest, match="a condition that is sent to a broker cannot"):
        check_condition(spark, text)
