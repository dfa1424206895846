"""Many pushers, groups and readers of the same partitions, without any fault but each other."""

import asyncio
import json
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from random import Random
from uuid import uuid4

import pytest

from skep.broker.dead_letters.letters import LetterGone, Target
from skep.model.errors import Unavailable
from tests.faults.support.clock import make_movable
from tests.faults.support.in_process import item, running
from tests.faults.support.instances import well_ending_instance
from tests.faults.support.ledger import (
    Ack,
    Attempt,
    Delivery,
    Ledger,
    RolledBack,
    Stored,
    complaints,
    require_good,
)
from tests.faults.support.load import GROUP, load_on, now
from tests.support.broker import ack_item

LEASE_S = 60


async def consume_all(ledger, client, queue, group=GROUP, *, idle_ms=300):
    """Take and complete messages until nothing comes any more."""
    while True:
        asked_at = now()
        messages = await client.pop(
            queue,
            consumerGroup=group,
            batch=500,
            partitions=100,
            wait=True,
            timeout=idle_ms,
            leaseSeconds=LEASE_S,
        )
        if not messages:
            return
        received_at = now()
        for message in messages:
            place = message["partition"], message["id"], message["transactionId"]
            ledger.deliveries.append(
                Delivery(group, *place, message["leaseId"], LEASE_S, asked_at, received_at)
            )
        await complete(ledger, client, group, messages)


async def complete(ledger, client, group, messages):
    sent_at = now()
    results = await client.ack_batch(*map(ack_item, messages), consumerGroup=group)
    for message, result in zip(messages, results, strict=True):
        ledger.acks.append(
            Ack(
                group,
                message["partition"],
                message["transactionId"],
                message["leaseId"],
                "completed",
                sent_at,
                now(),
                is_success=result["success"],
            )
        )


async def test_scenario_02_ten_pushers_into_one_partition_leave_no_gap(database_url, sql, queue):
    async with running(database_url) as one, running(database_url) as other:

        async def push_all(number):
            for sequence in range(50):
                await (one, other)[number % 2].push(item(queue, f"{number}-{sequence}"))

        await asyncio.gather(*map(push_all, range(10)))
        delivered = []
        while messages := await one.pop(queue, batch=100, auto_ack=True):
            delivered += [message["transactionId"] for message in messages]
    query = 'select transaction_id, "offset" from skep.message where queue = $1 order by "offset"'
    stored = await sql.fetch(query, queue)

    assert [row[1] for row in stored] == list(range(1, 501))
    assert delivered == [row[0] for row in stored]
    for number in range(10):
        own = [name for name in delivered if name.startswith(f"{number}-")]
        assert own == [f"{number}-{sequence}" for sequence in range(50)]


class Undecided:
    """A producer of which every fifth push is rolled back."""

    def __init__(self, ledger, queue, number, seed):
        self._ledger = ledger
        self._queue = queue
        self._number = number
        self._random = Random(f"{seed} producer {number}")
        self._sequences = Counter()

    async def run(self, client, pushes):
        for turn in range(pushes):
            partition = f"partition {self._random.randrange(1_000)}"
            size = self._random.randint(1, 5)
            if self._random.random() < 0.2:
                await self._roll_back(client, partition, turn, size)
            else:
                await self._store(client, partition, size)

    async def _roll_back(self, client, partition, turn, size):
        names = [f"{self._number}-undone-{turn}-{n}" for n in range(size)]
        pushing = {"type": "push", "items": [self._item(partition, name) for name in names]}
        # The condition fails after everything else was done.
        body = {"operations": [pushing], "requiredLeases": [str(uuid4())]}
        answer = json.loads((await client.post("/api/v1/transaction", body)).body)
        assert not answer["success"]
        for name in names:
            self._ledger.attempts.append(Attempt(partition, name, f"undone {name}", 1))
            self._ledger.rolled_back.append(RolledBack(partition, name))

    async def _store(self, client, partition, size):
        items = []
        for _ in range(size):
            self._sequences[partition] += 1
            sequence = self._sequences[partition]
            name = f"{self._number}-{partition}-{sequence}"
            self._ledger.attempts.append(Attempt(partition, name, str(self._number), sequence))
            items.append(self._item(partition, name))
        for result in await client.push(*items):
            name, message_id = result["transaction_id"], result["message_id"]
            self._ledger.stored.append(Stored(partition, name, message_id))

    def _item(self, partition, name):
        return {
            "queue": self._queue,
            "partition": partition,
            "transactionId": name,
            "payload": {"name": name},
        }


async def test_scenario_03_sixty_four_producers_roll_back_a_fifth_and_none_of_it_is_read(
    broker, queue, seed
):
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(broker.connect()) for _ in range(64)]
        await asyncio.gather(
            *(
                Undecided(ledger, queue, number, seed).run(client, 8)
                for number, client in enumerate(clients)
            )
        )
        await asyncio.gather(*(consume_all(ledger, client, queue) for client in clients[:4]))

    require_good(ledger, [GROUP])
    assert len(ledger.rolled_back) > 50


async def test_scenario_22_sessions_never_wait_in_a_circle(database_url, sql, queue, seed):
    random = Random(f"{seed} turmoil")
    statuses = Counter()
    with well_ending_instance(database_url, "--workers", "2") as broker:
        async with load_on(broker, queue, seed) as load, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(broker.connect()) for _ in range(4)]
            await load.until_done(50)

            async def stir(client):
                for _ in range(15):
                    partitions = random.sample(range(12), 8)
                    answer = await client.post(
                        "/api/v1/push",
                        {
                            "items": [
                                {
                                    "queue": f"{queue}-crowd",
                                    "partition": f"{partition}",
                                    "payload": 1,
                                }
                                for partition in partitions
                            ]
                        },
                    )
                    statuses[answer.status] += 1
                    group = random.choice(["a", "b"])
                    await client.pop(
                        f"{queue}-crowd", consumerGroup=group, batch=50, partitions=8, autoAck=True
                    )
                    seek = f"/api/v1/consumer-groups/{group}/queues/{queue}-crowd/seek"
                    answer = await client.post(seek, {"toEnd": random.random() < 0.5})
                    statuses[answer.status] += 1

            async def retain(client):
                await client.configure(f"{queue}-crowd", retentionEnabled=True, retentionSeconds=1)
                for _ in range(8):
                    answer = await client.call("POST", "/api/v1/retention/run")
                    statuses[answer.status] += answer.status != 409  # another run is under way

            await asyncio.gather(*map(stir, clients[:3]), retain(clients[3]))
            await load.drain()

    require_good(load.ledger, [GROUP])
    # The sessions of the broker have ended, so their counts are in.
    query = "select deadlocks from pg_stat_database where datname = current_database()"
    assert await sql.fetchval(query) == 0
    assert {status for status, count in statuses.items() if count} <= {200, 201, 400}


async def test_scenario_24_the_same_id_at_two_brokers_at_once_is_stored_once(
    database_url, sql, queue
):
    async with running(database_url) as one, running(database_url) as other:
        await asyncio.gather(one.push(item(queue, "warm")), other.push(item(queue, "up")))
        pairs = [
            await asyncio.gather(
                one.push(item(queue, f"{number}")), other.push(item(queue, f"{number}"))
            )
            for number in range(30)
        ]
    query = "select transaction_id from skep.message where queue = $1"
    stored = Counter(row[0] for row in await sql.fetch(query, queue))

    assert set(stored.values()) == {1}
    for (first,), (second,) in pairs:
        assert sorted([first["status"], second["status"]]) == ["duplicate", "queued"]
        assert first["message_id"] == second["message_id"]


async def test_scenario_24_at_the_edge_of_its_window_an_id_is_one_message_and_then_another(
    database_url, sql, queue
):
    clock = await make_movable(sql)
    statuses = []
    async with running(database_url) as one, running(database_url) as other:
        await one.configure(queue, dedupWindowSeconds=100)
        (original,) = await one.push(item(queue, "x"))
        for broker, seconds in ((other, 50), (one, 49), (other, 2), (one, 1)):
            await clock.move(seconds)
            (result,) = await broker.push(item(queue, "x"))
            statuses.append(result["status"])

    assert original["status"] == "queued"
    # After 50 and 99 seconds it is known; after 101 it is a new message, which is known again.
    assert statuses == ["duplicate", "duplicate", "queued", "duplicate"]


async def test_scenario_25_a_poisonous_partition_is_given_up_and_disturbs_no_other(client, queue):
    retry_limit, partitions = 2, [f"partition {number}" for number in range(10)]
    await client.configure(queue, retryLimit=retry_limit, retryDelay=0)
    await client.push(
        *(
            {"queue": queue, "partition": partition, "payload": n}
            for partition in [*partitions, "poison"]
            for n in (range(5) if partition in partitions else [0])
        )
    )
    seen = defaultdict(list)
    while messages := await client.pop(queue, batch=1, wait=True, timeout=1_500):
        (message,) = messages
        seen[message["partition"]].append(message["data"])
        is_poison = message["partition"] == "poison"
        await client.ack(message, status="failed" if is_poison else "completed")

    listed = json.loads((await client.call("GET", f"/api/v1/dlq?queue={queue}")).body)
    assert seen.pop("poison") == [0] * (retry_limit + 1)
    assert seen == {partition: list(range(5)) for partition in partitions}
    assert [letter["partition"] for letter in listed["messages"]] == ["poison"]


# Scenario 27: a dead letter is put back once


async def dead_letter(client, queue):
    await client.push_payloads(queue, "again")
    (message,) = await client.pop(queue)
    await client.ack(message, status="dlq")
    listed = json.loads((await client.call("GET", f"/api/v1/dlq?queue={queue}")).body)
    return listed["messages"][0]["dlqId"]


async def test_scenario_27_a_dead_letter_replayed_twice_at_once_comes_back_once(open_client, queue):
    clients = [await open_client() for _ in range(4)]
    letter = await dead_letter(clients[0], queue)

    answers = await asyncio.gather(
        *(client.call("POST", f"/api/v1/dlq/{letter}/replay") for client in clients)
    )
    messages = await clients[0].pop(queue, batch=10, autoAck=True)

    assert [message["data"] for message in messages] == ["again"]
    assert {answer.status for answer in answers} <= {200, 404, 409}
    copies = {json.loads(each.body)["replayedAs"] for each in answers if each.status == 200}
    assert len(copies) == 1


@pytest.mark.parametrize("point", ["before", "after"])
async def test_scenario_27_a_replay_that_was_cut_off_comes_back_once(proxy, sql, queue, point):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "again"))
        (message,) = await broker.pop(queue)
        await broker.ack(message, status="dlq")
        letter_id = await sql.fetchval("select id from skep.dead_letter")
        fault = proxy.at_next("skep.redrive_letters(", point)
        letters = broker.broker.stored.dead_letters

        outcomes = [await replay_outcome(letters, letter_id) for _ in range(2)]
        messages = await broker.pop(queue, batch=10)

    assert fault.struck.is_set()
    assert len(messages) == 1, outcomes


async def replay_outcome(letters, letter_id):
    try:
        return await letters.replay(letter_id, Target())
    except (LetterGone, Unavailable) as refusal:
        return refusal


# Scenario 31


async def test_scenario_31_a_group_that_replays_disturbs_no_other(open_client, queue):
    live, replaying, producer = [await open_client() for _ in range(3)]
    ledger = Ledger()

    async def push(first, last):
        for number in range(first, last):
            partition = f"{number % 3}"
            name = f"{number}"
            ledger.attempts.append(Attempt(partition, name, "p", number // 3 + 1))
            (result,) = await producer.push(
                {
                    "queue": queue,
                    "partition": partition,
                    "transactionId": name,
                    "payload": number,
                }
            )
            ledger.stored.append(Stored(partition, name, result["message_id"]))

    await push(0, 30)
    before = Ledger(ledger.attempts, ledger.stored)
    await consume_all(before, replaying, queue, "replays")
    path = f"/api/v1/consumer-groups/replays/queues/{queue}/seek"
    sought = await replaying.post(path, {"toStart": True})
    again = Ledger(ledger.attempts, ledger.stored)
    # One group goes through everything a second time while the other follows what is pushed.
    await asyncio.gather(
        push(30, 60),
        consume_all(ledger, live, queue, "live", idle_ms=1_000),
        consume_all(again, replaying, queue, "replays", idle_ms=1_000),
    )

    assert sought.status == 200, sought
    assert complaints(ledger, ["live"]) == []
    assert complaints(again, ["replays"]) == []
    assert len(before.deliveries) == 30
    assert len(ledger.deliveries) == len(again.deliveries) == 60
