"""`skep worker` with replays, killed by signal 9 in the midst of one; another worker takes over."""

import os
import re
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager

import pytest

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
from tests.support.sizes import sized

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400, func_only=True)]

PARTITIONS = ("a", "b", "c", "d")
PAYLOADS = list(range(250))
PAYLOADS_OF = """
  select m.envelope -> 'data' as payload
  from skep.segment s
  join skep.partition p on p.id = s.partition_id
  join skep.queue q on q.id = s.queue_id
  cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
    with ordinality m(envelope, position)
  where q.name = $1 and p.name = $2
  order by s.first, m.position
"""
STORED = """
  select from skep.partition p join skep.queue q on q.id = p.queue_id
  where q.name = '{}' and p.head > 0
"""
SPARKS_OWN = re.compile(r"WARN\b|log4j|SLF4J|NativeCodeLoader|WARNING: |py4j")
LEFT_OVER = """
  select (select count(*) from skep.staged_segment)
    + (select count(*) from skep.segment where partition_id < 0)
"""


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1") as broker:
        yield broker


@pytest.fixture
def ask(client):
    return Asking(client)


@pytest.fixture
def order(queue, client, arun):
    """Some hundred messages in each of several partitions, and the order to replay them."""
    for partition in PARTITIONS:
        arun(client.push_payloads(queue, *PAYLOADS, partition=partition))
    arun(client.configure(f"{queue}-again"))
    return replay_of_last_hour(queue)


@pytest.fixture
def worker_process(broker, tmp_path):
    """Run `skep worker` as an operator does; all of its processes are killed after the block."""

    @contextmanager
    def worker_process():
        with (tmp_path / "printed").open("wb") as printed, running(printed) as process:
            yield process

    @contextmanager
    def running(printed):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "skep", "worker", "skep.replay_worker:app"),
                *("--database-url", broker.database_url, "--lease", "2"),
            ],
            start_new_session=True,
            stdout=printed,
            stderr=printed,
            # Who is killed cannot tidy up.
            env={**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path)},
        )
        try:
            yield process
            assert process.poll() is None, "it ended by itself"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)

    return worker_process


@pytest.fixture
def take_over(open_client, broker, spark):
    """Let another worker end a replay; return what is told of it."""

    async def take_over(replay_id):
        ask = Asking(await open_client())  # the connection of `ask` may have been idle for too long
        async with AsyncExitStack() as stack:
            await start_replay_worker(stack, broker, spark, lease_s=2.0)
            return await ended_replay(ask, replay_id)

    return take_over


async def check_exactness(sql, order, done):
    """All must be there once, in order, and nothing besides."""
    assert (done["state"], done["error"]) == ("completed", None)
    assert done["attempts"] >= 2  # more where a machine is too slow to renew a short lease
    assert done["result"]["messages"] == len(PARTITIONS) * len(PAYLOADS)
    assert done["result"]["duplicates"] == done["result"]["rejected"] == 0
    for partition in PARTITIONS:
        found = await sql.fetch(PAYLOADS_OF, order["into"], partition)
        assert [int(row["payload"]) for row in found] == PAYLOADS
    assert await sql.fetchval(LEFT_OVER) == 0


async def test_killed_while_its_tasks_stage_it_is_repeated_exactly(
    ask, broker, order, worker_process, take_over, tmp_path
):
    replay_id = await start_replay(ask, order)
    async with broker.sql() as sql, broker.sql() as watch:
        async with sql.transaction():
            await sql.execute(HOLD_TASKS)
            with worker_process():
                await until_found(watch, STAGING)

        done = await take_over(replay_id)
        await check_exactness(sql, order, done)

    assert not done["result"]["isRepeated"]
    printed = (tmp_path / "printed").read_text().splitlines()
    assert [line for line in printed if "its log: " in line]
    assert [line for line in printed if SPARKS_OWN.search(line)] == []


@pytest.mark.parametrize("is_committed", sized([True], large=[False, True]))
async def test_killed_while_it_commits_all_is_there_once_whatever_became_of_the_commit(
    ask, broker, order, worker_process, take_over, is_committed
):
    replay_id = await start_replay(ask, order)
    async with broker.sql() as sql, broker.sql() as watch:
        async with sql.transaction():
            await sql.execute(HOLD_TARGET, order["into"])
            with worker_process():
                (committing,) = await until_found(watch, COMMITTING)
            if not is_committed:
                await watch.execute("select pg_terminate_backend($1, 10000)", committing["pid"])
        if is_committed:  # PostgreSQL goes on without its client
            await until_found(watch, STORED.format(order["into"]))

        done = await take_over(replay_id)
        await check_exactness(sql, order, done)

    assert done["result"]["isRepeated"] == is_committed
