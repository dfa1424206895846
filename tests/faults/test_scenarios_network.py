"""The network delays, truncates, cuts and swallows; clients repeat what nobody answered."""

import asyncio
import json
from contextlib import suppress
from random import Random

import msgspec
import pytest

from skep.model.wire import TransactionBody
from tests.faults.in_process import item, running
from tests.faults.instances import well_ending_instance
from tests.faults.ledger import require_good
from tests.faults.load import GONE, GROUP, load_on
from tests.faults.network import CLEAN, Treatment, network_to
from tests.faults.storms import treat_badly
from tests.fixtures.broker import ack_item

MESSAGES = 300


@pytest.mark.slow
async def test_scenario_13_a_bad_network_makes_nothing_lost_or_twice(
    database_url, sql, queue, seed
):
    with well_ending_instance(database_url, "--workers", "1") as broker:
        async with network_to(broker.port) as network:
            random = Random(f"{seed} network")
            network.treat = lambda: treat_badly(random)
            async with load_on(network, queue, seed, call_s=1.5) as load:
                await load.until_done(MESSAGES)
                network.treat = lambda: CLEAN
                network.cut_all()
                await load.drain()
    query = "select partition, transaction_id from skep.message where queue = $1"
    stored = [tuple(row) for row in await sql.fetch(query, queue)]

    require_good(load.ledger, [GROUP])
    assert len(stored) == len(set(stored))
    assert network.treated > 10


@pytest.mark.parametrize(
    "treatment",
    [
        Treatment(latency_s=0.5),
        Treatment(answer_bytes=100),
        Treatment(is_half_open=True),
        Treatment(pause_s=1),
        Treatment(question_bytes=150),
    ],
    ids=["latency", "reset", "half-open", "a byte a second", "truncated request"],
)
async def test_scenario_13_a_push_of_unknown_outcome_sent_again_is_one_message(
    broker, queue, treatment
):
    push = {"items": [{"queue": queue, "transactionId": "once", "payload": "x" * 200}]}
    treatments = iter([treatment])
    async with network_to(broker.port, lambda: next(treatments, CLEAN)) as network:
        results = None
        for _ in range(2):
            with suppress(*GONE):
                results = await push_through(network, push)
                break

        async with network.connect() as client:
            messages = await client.pop(queue, batch=10)

    assert results is not None
    assert [message["transactionId"] for message in messages] == ["once"]
    assert [result["message_id"] for result in results] == [messages[0]["id"]]


async def push_through(network, push):
    async with asyncio.timeout(2), network.connect() as client:
        answer = await client.post("/api/v1/push", push)
    return json.loads(answer.body)


# Scenario 14: the answer is dropped, and the client sends the same again


async def lose_answer(network, method, path, body):
    """Send a request whose answer gets lost."""
    lost = network.lose_next_answer(f"{method} {path}".encode())
    with suppress(*GONE):
        async with network.connect() as client:
            await client.post(path, body)
    assert lost.is_set()


async def test_scenario_14_a_push_whose_answer_was_dropped_is_a_duplicate(broker, client, queue):
    push = {"items": [{"queue": queue, "transactionId": "once", "payload": 1}]}
    async with network_to(broker.port) as network:
        await lose_answer(network, "POST", "/api/v1/push", push)

    (result,) = await client.push(*push["items"])
    (message,) = await client.pop(queue, batch=10)

    assert result["status"] == "duplicate"
    assert result["message_id"] == message["id"]


async def test_scenario_14_an_ack_whose_answer_was_dropped_is_done_already(broker, client, queue):
    await client.push_payloads(queue, 1, 2)
    (message,) = await client.pop(queue)
    async with network_to(broker.port) as network:
        await lose_answer(network, "POST", "/api/v1/ack", ack_item(message))

    again = await client.ack(message)

    assert again["success"]
    assert [each["data"] for each in await client.pop(queue, batch=10)] == [2]


async def test_scenario_14_a_transaction_whose_answer_was_dropped_is_applied_once(
    broker, client, queue
):
    await client.push_payloads(queue, 1, 2)
    (message,) = await client.pop(queue)
    sink = f"{queue}-sink"
    pushing = {"type": "push", "items": [{"queue": sink, "transactionId": "x", "payload": 1}]}
    body = {"operations": [{"type": "ack", **ack_item(message)}, pushing]}
    async with network_to(broker.port) as network:
        await lose_answer(network, "POST", "/api/v1/transaction", body)

    again = json.loads((await client.post("/api/v1/transaction", body)).body)

    assert again["success"], again
    assert [each["transactionId"] for each in await client.pop(sink, batch=10)] == ["x"]
    assert [each["data"] for each in await client.pop(queue, batch=10)] == [2]


# Scenario 15: a transaction and the session that dies in it

POINTS = {
    "when a partition is locked": ("partition", "update"),
    "when messages are stored": ("segment", "insert"),
    "when the cursor moves": ("cursor", "update"),
    "when it is put on record": ("settled_transaction", "insert"),
}
KILLER = """
create sequence if not exists public.kills;
select setval('public.kills', 1000);
create table public.user_row (id uuid primary key);
create function public.die() returns trigger language plpgsql as $$
begin
  if nextval('public.kills') = 1 then
    perform pg_terminate_backend(pg_backend_pid());
  end if;
  return null;
end $$;
create function public.note() returns trigger language plpgsql as $$
begin
  insert into public.user_row values (new.id);
  return null;
end $$;
create trigger note after insert on skep.settled_transaction
  for each row execute function public.note();
"""


async def plant_death(sql, point):
    await sql.execute(KILLER)
    if point == "at the commit":
        await sql.execute("""
            create constraint trigger die after insert on public.user_row
            deferrable initially deferred for each row execute function public.die()""")
    elif point in POINTS:
        table, event = POINTS[point]
        await sql.execute(
            f"create trigger die after {event} on skep.{table} "
            "for each row execute function public.die()"
        )


@pytest.mark.parametrize("point", [*POINTS, "at the commit", "after the commit"])
async def test_scenario_15_a_transaction_is_all_or_nothing_wherever_its_session_dies(
    proxy, sql, queue, point
):
    await plant_death(sql, point)
    await transact_repeatedly(proxy, sql, queue, point, times=3)


async def transact_repeatedly(proxy, sql, queue, point, *, times):
    """Acknowledge, push three and write a row of the user; each time the session dies once."""
    sink = f"{queue}-sink"
    async with running(proxy.url) as broker:
        await broker.push(*(item(queue, f"{n}") for n in range(times)))
        for number in range(times):
            (message,) = await broker.pop(queue)
            await sql.execute("select setval('public.kills', 1, false)")
            if point == "after the commit":
                await sql.execute("select setval('public.kills', 1)")
                proxy.at_next("skep.transact(", "after")
            answer = await commit(broker, message, sink, number)
            assert answer["success"], answer
            assert await sql.fetchval("select is_called from public.kills"), "nobody died"
        assert proxy.fault_for("skep.transact(") is None, "nobody died"
        nothing = await broker.pop(queue)
    query = 'select transaction_id from skep.message where queue = $1 order by "offset"'

    assert nothing == []
    names = [f"{number}-{part}" for number in range(times) for part in range(3)]
    assert [row[0] for row in await sql.fetch(query, sink)] == names
    assert await sql.fetchval("select count(*) from public.user_row") == times


async def commit(broker, message, sink, number):
    items = [
        {"queue": sink, "transactionId": f"{number}-{part}", "payload": part} for part in range(3)
    ]
    operations = [{"type": "ack", **ack_item(message)}, {"type": "push", "items": items}]
    answered = asyncio.get_running_loop().create_future()
    body = msgspec.json.decode(
        msgspec.json.encode({"operations": operations}), type=TransactionBody
    )
    broker.broker.transaction.commit(body, answered.set_result)
    async with asyncio.timeout(20):
        return json.loads(await answered)
