"""Operations on one database of several brokers, and of brokers that die."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.api.support.overload import (
    BOUND_S,
    PREFER,
    TIGHT,
    accepted,
    ended,
    overload,
    push,
    read,
    standstill,
)
from tests.support.broker import payloads, until_blocked_by

HASTY = {"operation_timeout_s": 1}


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1", **TIGHT) as broker:
        yield broker


@pytest.fixture(scope="module")
def other_broker(start_broker, broker):
    with start_broker("--workers", "1", beside=broker, **TIGHT) as other:
        yield other


async def test_a_partition_keeps_its_order_whichever_broker_is_asked(
    broker, other_broker, client, queue
):
    await client.push_payloads(queue, 0)
    async with other_broker.connect() as other:
        async with standstill(broker):
            async with overload(broker, queue):
                first = await accepted(client, queue, 1)
            second = await accepted(other, queue, 2)
            third = await accepted(client, queue, 3)
            refused = await push(other, queue, "overtaking", headers="")
            fourth = await accepted(other, queue, 4)
        await ended(other, fourth["operationId"])
        assert (await push(other, queue, 5, headers="")).status == 201

    positions = [each["queuePosition"] for each in (first, second, third, fourth)]
    assert positions == [1, 2, 3, 4]
    assert refused.status == 429
    assert payloads(await client.pop(queue, batch=10)) == [0, 1, 2, 3, 4, 5]


async def test_what_of_a_request_was_stored_is_not_accepted_once_more(
    broker, other_broker, client, queue
):
    items = [
        {"queue": queue, "partition": partition, "payload": value}
        for partition, value in (("b", 2), ("a", 3), ("b", 4))
    ]
    async with other_broker.connect() as other:
        async with standstill(broker):
            async with overload(broker, queue):
                await accepted(client, queue, 1, partition="a")
            body = json.dumps({"items": items}).encode()
            answer = await other.call("POST", "/api/v1/push", body, PREFER)
        said = json.loads(answer.body)

    assert answer.status == 202
    assert [each["partition"] for each in said["operations"]] == ["a"]
    known = [(each["index"], each["status"]) for each in said["results"]]
    assert known == [(0, "queued"), (2, "queued")]
    (late,) = (await ended(client, said["operationId"]))["answer"]
    assert [late["index"], late["status"]] == [1, "queued"]
    assert payloads(await client.pop(queue, "a", batch=10)) == [1, 3]
    assert payloads(await client.pop(queue, "b", batch=10)) == [2, 4]


async def test_what_of_a_request_is_held_back_in_vain_fails_alone(
    broker, other_broker, client, queue
):
    async with other_broker.connect() as other, standstill(broker):
        async with overload(broker, queue):
            await accepted(client, queue, 1, partition="a")
        results = await other.push(
            {"queue": queue, "partition": "b", "payload": 2},
            {"queue": queue, "partition": "a", "payload": 3, "transactionId": "late"},
        )

    assert [(each["index"], each["status"]) for each in results] == [(0, "queued"), (1, "failed")]
    assert [results[1]["transaction_id"], results[1]["queueName"]] == ["late", queue]


async def test_any_broker_carries_out_what_another_accepted(broker, other_broker, client, queue):
    async with standstill(broker):
        async with overload(broker, queue):
            body = await accepted(client, queue, 1)
        async with other_broker.connect() as other:
            seen = await read(other, f"/{body['operationId']}")

    assert seen["status"] == "waiting"
    assert (await ended(client, body["operationId"]))["status"] == "completed"


@pytest.fixture
def doomed_broker(start_broker):
    """A broker whose worker may be killed; what it leaves behind is taken over soon."""
    with start_broker("--workers", "1", **TIGHT, **HASTY) as broker:
        yield broker


@pytest.mark.parametrize("ends_session", [False, True], ids=["session lives on", "session ends"])
async def test_an_operation_is_done_once_although_its_processor_is_killed(
    doomed_broker, queue, ends_session
):
    async with doomed_broker.connect() as client, doomed_broker.sql() as sql:
        async with standstill(doomed_broker):
            async with overload(doomed_broker, queue):
                bodies = [await accepted(client, queue, number) for number in range(3)]
            await sql.execute("begin; lock table skep.segment in share row exclusive mode")
        await until_blocked_by(sql)
        blocked = await sql.fetchval(
            "select pid from pg_stat_activity where $1 = any(pg_blocking_pids(pid))",
            sql.get_server_pid(),
        )
        os.kill(worker_of(doomed_broker), signal.SIGKILL)
        if ends_session:
            await sql.execute(f"select pg_terminate_backend({blocked})")
        await sql.execute("commit")

    async with asyncio.timeout(BOUND_S), doomed_broker.connect() as client:
        done = [await ended(client, body["operationId"]) for body in bodies]
        assert [each["status"] for each in done] == ["completed"] * 3
        assert payloads(await client.pop(queue, batch=10)) == [0, 1, 2]
        assert await client.pop(queue) == []


def worker_of(broker):
    """Return the worker process of a broker, not its other children."""
    supervisor = broker.process.pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    (worker,) = (
        int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return worker
