"""The connection to the database breaks around a call: exactly one effect, and the right answer.

Each test breaks it at one of two points: before the call reached the server, or after the server
had committed but before the answer came back. The broker cannot tell them apart; its clients must
not have to.
"""

import asyncio

import pytest

from skep.model.ids import message_id
from tests.faults.support.in_process import item, running
from tests.sql.support.waiting import eventually

POINTS = ["before", "after"]
LEASED_OR_NOT = pytest.mark.parametrize("auto_ack", [False, True], ids=["leased", "auto-acked"])
PUSH = "skep.push_"
POP = "skep.pop_messages("
POP_PARTITION = "skep.pop_partitions("
ACK = "skep.ack_messages("
HAND_OVER = "skep.push_to_poll("


@pytest.fixture(scope="module")
def database_url(postgres_server, migrated_template):
    """One database for all of these tests, which keep apart by their queues."""
    url = postgres_server.create_database(migrated_template)
    yield url
    postgres_server.drop_database(url)


async def stored(sql, queue):
    """Return (partition, offset, transaction id) of every message of a queue."""
    query = """
        select partition, "offset", transaction_id from skep.message
        where queue = $1 order by partition, "offset" """
    return [tuple(row) for row in await sql.fetch(query, queue)]


async def cursors(sql, queue):
    """Return the cursors of a queue in its partition `a`."""
    query = """
        select c.* from skep.cursor c
        join skep.partition p on p.id = c.partition_id join skep.queue q on q.id = p.queue_id
        where q.name = $1 and p.name = 'a'"""
    return await sql.fetch(query, queue)


def statuses(results):
    return [result["status"] for result in results]


def names(messages):
    return [message["transactionId"] for message in messages]


# Push


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("window_s", [3600, 0])
@pytest.mark.parametrize("ids", [["b", "c"], [None, None]], ids=["named", "unnamed"])
async def test_a_push_is_stored_once_and_answered_as_queued(
    proxy, sql, point, window_s, ids, queue
):
    async with running(proxy.url) as broker:
        await broker.configure(queue, dedupWindowSeconds=window_s)
        await broker.push(item(queue, "a"))
        fault = proxy.at_next(PUSH, point)

        results = await broker.push(*(item(queue, each) for each in ids))
        messages = await broker.pop(queue, batch=10)

    assert fault.struck.is_set()
    assert statuses(results) == ["queued", "queued"]
    assert [r["transaction_id"] for r in results] == names(messages)[1:]
    assert [r["message_id"] for r in results] == [message["id"] for message in messages[1:]]
    assert len(await stored(sql, queue)) == 3


@pytest.mark.parametrize("window_s", [3600, 0])
async def test_a_push_survives_one_break_after_the_other(proxy, sql, window_s, queue):
    async with running(proxy.url) as broker:
        await broker.configure(queue, dedupWindowSeconds=window_s)
        await broker.push(item(queue, "a"))
        faults = [proxy.at_next(PUSH, point) for point in ("before", "after", "after", "before")]

        results = await broker.push(item(queue, "b"), item(queue, "c"))

    assert all(fault.struck.is_set() for fault in faults)
    assert statuses(results) == ["queued", "queued"]
    assert await stored(sql, queue) == [("a", 1, "a"), ("a", 2, "b"), ("a", 3, "c")]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("window_s", [3600, 0])
async def test_all_pushes_that_share_the_broken_call_are_stored_once(
    proxy, sql, point, window_s, queue
):
    partitions = ["a", "b", "c"]
    async with running(proxy.url) as broker:
        await broker.configure(queue, dedupWindowSeconds=window_s)
        await broker.push(*(item(queue, "0", partition=name) for name in partitions))
        proxy.at_next(PUSH, point)

        answers = await asyncio.gather(
            *(
                broker.push(item(queue, f"{number}", partition=partitions[number % 3]))
                for number in range(1, 31)
            )
        )

    assert [statuses(results) for results in answers] == [["queued"]] * 30
    expected = [
        (name, offset, f"{number}")
        for first, name in enumerate(partitions)
        for offset, number in enumerate([0, *range(first or 3, 31, 3)], start=1)
    ]
    assert await stored(sql, queue) == expected
    by_number = {results[0]["transaction_id"]: results[0]["message_id"] for results in answers}
    ids = await partition_ids(sql, queue)
    assert by_number == {
        number: message_id(ids[name], offset) for name, offset, number in expected if number != "0"
    }


async def partition_ids(sql, queue):
    query = """
        select p.name, p.id from skep.partition p join skep.queue q on q.id = p.queue_id
        where q.name = $1"""
    return dict(map(tuple, await sql.fetch(query, queue)))


@pytest.mark.parametrize("point", POINTS)
async def test_a_real_duplicate_in_the_broken_call_is_still_a_duplicate(proxy, sql, point, queue):
    async with running(proxy.url) as broker:
        (original,) = await broker.push(item(queue, "a"))
        proxy.at_next(PUSH, point)

        duplicate, fresh, twin = await broker.push(*(item(queue, name) for name in "abb"))

    assert statuses([duplicate, fresh, twin]) == ["duplicate", "queued", "duplicate"]
    assert duplicate["message_id"] == original["message_id"]
    assert twin["message_id"] == fresh["message_id"]
    assert await stored(sql, queue) == [("a", 1, "a"), ("a", 2, "b")]


@pytest.mark.parametrize("window_s", [3600, 0])
@pytest.mark.parametrize("point", POINTS)
async def test_what_another_broker_pushed_meanwhile_does_not_confuse(
    proxy, sql, database_url, point, window_s, queue
):
    async with running(proxy.url, connections=1) as broker, running(database_url) as other:
        await broker.configure(queue, dedupWindowSeconds=window_s)
        await broker.push(item(queue, "a"))
        fault = proxy.at_next(PUSH, point)
        proxy.shut_door()
        pushing = asyncio.ensure_future(broker.push(item(queue, "b")))
        await fault.struck.wait()

        await other.push(item(queue, "x"), item(queue, "y"))
        proxy.open_door()
        (result,) = await pushing

    places = {name: offset for _, offset, name in await stored(sql, queue)}
    ids = await partition_ids(sql, queue)
    assert sorted(places) == ["a", "b", "x", "y"]
    assert result["status"] == "queued"
    assert result["message_id"] == message_id(ids["a"], places["b"])


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "statement", ["skep.provision_partitions(", "skep.read_window(", "skep.confirm_duplicates("]
)
async def test_a_break_on_the_way_to_a_push_changes_nothing(
    proxy, sql, database_url, statement, point, queue
):
    async with running(database_url) as other:
        await other.push(item(queue, "a"))
    async with running(proxy.url) as broker:
        fault = proxy.at_next(statement, point)

        first = await broker.push(item(queue, "b"))
        results = await broker.push(item(queue, "a"), item(queue, "b"), item(queue, "c"))

    assert fault.struck.is_set()
    assert statuses(first) == ["queued"]
    assert statuses(results) == ["duplicate", "duplicate", "queued"]
    assert [name for _, _, name in await stored(sql, queue)] == ["a", "b", "c"]


async def test_a_name_used_again_without_a_window_is_not_taken_for_the_lost_push(proxy, sql, queue):
    # The first "a" is an older message: the broken call never arrived, so this is a new one.
    async with running(proxy.url) as broker:
        await broker.configure(queue, dedupWindowSeconds=0)
        await broker.push(item(queue, "a"))
        proxy.at_next(PUSH, "before")

        (result,) = await broker.push(item(queue, "a"))

    assert result["status"] == "queued"
    assert len(await stored(sql, queue)) == 2


async def test_a_partition_the_cache_forgot_keeps_what_is_pushed_again_without_a_window(
    proxy, sql, queue
):
    # 1 MiB guarantees 385 partitions, so those in between push the first one out.
    async with running(proxy.url, dedup_memory_mib=1, dedup_memory_max_mib=1) as broker:
        await broker.configure(queue, dedupWindowSeconds=0)
        await broker.push(item(queue, "a"))
        await broker.push(
            *(item(f"{queue}-crowd", "x", partition=f"{number}") for number in range(500))
        )
        proxy.at_next(PUSH, "before")

        (result,) = await broker.push(item(queue, "a"))

    assert result["status"] == "queued"
    assert len(await stored(sql, queue)) == 2


# Pop


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("partition", [None, "a"], ids=["any partition", "named partition"])
async def test_a_leased_pop_delivers_once_and_no_partition_is_leased_to_nobody(
    proxy, sql, point, partition, queue
):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "1"), item(queue, "2"), item(queue, "3"))
        fault = proxy.at_next(POP_PARTITION if partition else POP, point)

        messages = await broker.pop(queue, partition, batch=2)
        (result,) = await broker.ack(messages[-1])
        rest = await broker.pop(queue, partition, batch=2)
        (rest_result,) = await broker.ack(rest[-1])

    assert fault.struck.is_set()
    assert names(messages) == ["1", "2"]
    assert {message["deliveryAttempt"] for message in messages} == {1}
    assert names(rest) == ["3"]
    assert result["success"]
    assert rest_result["success"]
    assert [cursor["leased"] for cursor in await cursors(sql, queue)] == [None]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("partition", [None, "a"], ids=["any partition", "named partition"])
async def test_messages_acknowledged_at_once_are_delivered(proxy, sql, point, partition, queue):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "1"), item(queue, "2"), item(queue, "3"))
        fault = proxy.at_next(POP_PARTITION if partition else POP, point)

        messages = await broker.pop(queue, partition, batch=2, auto_ack=True)
        rest = await broker.pop(queue, partition, batch=2, auto_ack=True)
        nothing = await broker.pop(queue, partition, auto_ack=True)

    assert fault.struck.is_set()
    assert [names(messages), names(rest), nothing] == [["1", "2"], ["3"], []]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("partition", "call", "auto_ack"),
    [("a", POP_PARTITION, False), ("a", POP_PARTITION, True), (None, HAND_OVER, False)],
    ids=["own-leased", "own-auto-acked", "push"],
)
async def test_a_poll_that_waits_gets_what_a_broken_call_claimed_for_it(
    proxy, sql, point, partition, call, auto_ack, queue
):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "0"))
        await broker.pop(queue, auto_ack=True)
        poll = broker.start_poll(queue, partition, batch=5, wait_s=30, auto_ack=auto_ack)
        await eventually(lambda: len(broker.long_polls) == 1)
        fault = proxy.at_next(call, point)

        results = await broker.push(item(queue, "1"), item(queue, "2"))
        messages = await poll.answered

    assert fault.struck.is_set()
    assert statuses(results) == ["queued", "queued"]
    assert names(messages) == ["1", "2"]
    assert {message["deliveryAttempt"] for message in messages} == {1}


@pytest.mark.parametrize("point", POINTS)
async def test_polls_that_share_the_broken_call_share_the_partitions(proxy, sql, point, queue):
    async with running(proxy.url, connections=1) as broker:
        await broker.push(*(item(queue, f"{n}", partition=f"{n}") for n in range(6)))
        await broker.pop(queue, group="other")
        fault = proxy.at_next(POP, point)

        answers = await asyncio.gather(*(broker.pop(queue, batch=1) for _ in range(6)))
        results = await asyncio.gather(*(broker.ack(*messages) for messages in answers))

    assert fault.struck.is_set()
    assert sorted(name for messages in answers for name in names(messages)) == list("012345")
    assert all(result["success"] for (result,) in results)


async def lose_claim(broker, proxy, queue, **options):
    """Start a poll whose claim is committed and whose answer is lost; the broker cannot repeat it
    until the door is opened."""
    await broker.push(item(queue, "1"), item(queue, "2"))
    await broker.pop(queue, group="warm up")
    fault = proxy.at_next(POP, "after")
    proxy.shut_door()
    poll = broker.start_poll(queue, batch=1, **options)
    await fault.struck.wait()
    return poll


@LEASED_OR_NOT
async def test_a_claim_is_given_back_when_its_client_hangs_up_before_it_is_found(
    proxy, sql, auto_ack, queue
):
    async with running(proxy.url, connections=1) as broker:
        poll = await lose_claim(broker, proxy, queue, auto_ack=auto_ack)

        broker.broker.pop.pop.abort(poll)
        proxy.open_door()
        await broker.broker.core.engine.drain()
        messages = await broker.pop(queue, batch=2)

    assert names(messages) == ["1", "2"]


@LEASED_OR_NOT
async def test_a_poll_that_outlasts_the_patience_finds_its_own_claim(
    proxy, sql, auto_ack, monkeypatch, queue
):
    monkeypatch.setattr("skep.app.parts.core.PATIENCE_S", 1.0)
    async with running(proxy.url, connections=1) as broker:
        poll = await lose_claim(broker, proxy, queue, auto_ack=auto_ack, wait_s=10)
        tried_at = poll.tried_at
        await eventually(lambda: poll.tried_at > tried_at)

        proxy.open_door()
        messages = await poll.answered

    assert names(messages) == ["1"]


async def test_a_claim_overtaken_by_another_poll_is_not_taken_back_from_it(
    proxy, sql, database_url, queue
):
    async with running(proxy.url, connections=1) as broker, running(database_url) as other:
        poll = await lose_claim(broker, proxy, queue, auto_ack=True)

        overtaking = await other.pop(queue, auto_ack=True)
        proxy.open_door()
        messages = await poll.answered

    # What is acknowledged at once is delivered at most once; here nobody gets it twice.
    assert names(overtaking) == ["2"]
    assert names(messages) == []


# Ack


@pytest.mark.parametrize("point", POINTS)
async def test_completed_messages_are_completed_once(proxy, sql, point, queue):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "1"), item(queue, "2"), item(queue, "3"))
        messages = await broker.pop(queue, batch=2)
        fault = proxy.at_next(ACK, point)

        results = await broker.ack(*messages)
        rest = await broker.pop(queue, batch=5)

    assert fault.struck.is_set()
    assert [result["success"] for result in results] == [True, True]
    assert names(rest) == ["3"]


@pytest.mark.parametrize("point", POINTS)
async def test_an_ack_of_the_first_part_leaves_the_rest_under_lease(proxy, sql, point, queue):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "1"), item(queue, "2"))
        messages = await broker.pop(queue, batch=2)
        proxy.at_next(ACK, point)

        (first,) = await broker.ack(messages[0])
        while_leased = await broker.pop(queue)
        (second,) = await broker.ack(messages[1])

    assert (first["success"], second["success"]) == (True, True)
    assert while_leased == []


@pytest.mark.parametrize(
    ("point", "is_fenced"),
    [
        ("before", True),
        ("after", True),
        ("before", False),
    ],
)
async def test_a_failure_is_counted_once(proxy, sql, point, is_fenced, queue):
    async with running(proxy.url) as broker:
        await broker.configure(queue, retryLimit=1, retryDelay=0)
        await broker.push(item(queue, "1"))
        messages = await broker.pop(queue)
        fault = proxy.at_next(ACK, point)

        await broker.ack(*messages, status="failed", is_fenced=is_fenced)
        again = await broker.pop(queue)

    assert fault.struck.is_set()
    assert names(again) == ["1"]
    assert again[0]["deliveryAttempt"] == 2
    assert [cursor["failed_count"] for cursor in await cursors(sql, queue)] == [[1]]


@pytest.mark.parametrize("point", POINTS)
async def test_a_message_is_buried_once(proxy, sql, point, queue):
    async with running(proxy.url) as broker:
        await broker.push(item(queue, "1"), item(queue, "2"))
        messages = await broker.pop(queue, batch=1)
        fault = proxy.at_next(ACK, point)

        await broker.ack(*messages, status="dlq")
        rest = await broker.pop(queue, batch=5)

    assert fault.struck.is_set()
    (cursor,) = await cursors(sql, queue)
    query = "select transaction_id from skep.dead_letter where partition_id = $1"
    assert [tuple(row) for row in await sql.fetch(query, cursor["partition_id"])] == [("1",)]
    assert names(rest) == ["2"]
