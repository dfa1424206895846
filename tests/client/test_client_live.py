"""Consuming by WebSocket: the same promises as by polls."""

import asyncio
import sys
import threading
from functools import partial

import pytest

from skep.client import AsyncClient, BadRequest, Client, DeadLetterMessage
from skep.client.aio.live import ANSWER_S_MAX
from skep.client.live_link import LinkRefused, LiveLink
from tests.client.support.scripted import scripted
from tests.client.test_client_faults import until
from tests.sql.support.waiting import eventually
from tests.support.ports import free_port


async def lag(client, queue, group="g"):
    return (await client.groups.lag(group, queue)).offset_lag


def polled(monkeypatch, client):
    """Return the paths that a client asks for from now on."""
    paths = []
    request = client.session.request

    async def noting(method, path, *arguments, **options):
        paths.append(path.partition("?")[0])
        return await request(method, path, *arguments, **options)

    monkeypatch.setattr(client.session, "request", noting)
    return paths


async def test_messages_come_in_order_and_are_done_without_a_request(monkeypatch, queen, queue):
    await queen.push_many(queue, range(250), partition="one")
    paths = polled(monkeypatch, queen)

    consumption = queen.consume(queue, group="g", batch=100, limit=250, delivery="websocket")
    seen = [message.data async for message in consumption]

    assert seen == list(range(250))
    assert paths == []
    assert await lag(queen, queue) == 0


async def test_a_message_that_comes_later_is_delivered_when_it_comes(queen, queue):
    seen, news = [], asyncio.Event()
    consumption = queen.consume(queue, group="g", delivery="websocket")

    async def consume():
        async for message in consumption:
            seen.append(message.data)
            news.set()

    consuming = asyncio.ensure_future(consume())
    await queen.push(queue, "first")
    await until(news, lambda: seen == ["first"])
    await queen.push(queue, "second")
    await until(news, lambda: seen == ["first", "second"])
    consumption.stop()

    async with asyncio.timeout(10):
        await consuming
    assert await lag(queen, queue) == 0


async def test_verdicts_are_those_of_a_poll(queen, queue):
    await queen.queues.configure(queue, retryDelay=0, retryLimit=3)
    for word in ("fine", "fails", "poison"):
        await queen.push(queue, word, partition=word)
    calls = []

    @queen.worker(queue, group="g", idle_s=0.5, delivery="websocket")
    async def handle(message):
        calls.append(message.data)
        if message.data == "poison":
            raise DeadLetterMessage("never")
        if message.data == "fails" and calls.count("fails") == 1:
            raise ValueError("once")

    await handle.run()

    assert sorted(calls) == ["fails", "fails", "fine", "poison"]
    assert [letter.data for letter in (await queen.dead_letters.find(queue=queue)).messages] == [
        "poison"
    ]
    assert await lag(queen, queue) == 0


async def test_leaving_the_loop_gives_back_the_rest_at_once(queen, queue):
    await queen.push_many(queue, range(10), partition="one")

    async with queen.consume(queue, group="g", lease_s=3_600, delivery="websocket") as messages:
        async for message in messages:
            if message.data == 3:
                break
    again = await queen.pop(queue, group="g", batch=10, wait_s=10)

    assert [message.data for message in again] == list(range(4, 10))


async def test_what_is_given_back_does_not_come_again_before_the_socket_closes(
    monkeypatch, queen, queue
):
    await queen.push_many(queue, range(3), partition="one")
    taken_elsewhere, close = [], LiveLink.close

    def close_after_others_asked(link):
        with Client(queen.session.options.urls) as other:
            taken_elsewhere.extend(other.pop(queue, group="g", batch=10, wait_s=10))
        close(link)

    monkeypatch.setattr(LiveLink, "close", close_after_others_asked)
    consumption = queen.consume(queue, group="g", batch=10, lease_s=3_600, delivery="websocket")
    async with consumption as messages:
        async for _ in messages:
            break

    assert [(message.data, message.delivery_attempt) for message in taken_elsewhere] == [
        (1, 2),
        (2, 2),
    ]


def has_batch_of(partition, texts):
    return any(f'"{partition}"'.encode() in text for text in texts)


async def test_what_arrived_behind_the_batch_at_hand_is_given_back_too(broker, queen, queue):
    await queen.push(queue, 1, partition="a")
    consumption = queen.consume(
        queue, group="g", batch=10, partitions=1, lease_s=3_600, delivery="websocket"
    )

    async with consumption as messages:
        async for message in messages:
            await queen.push(queue, 2, partition="b")
            arrived = message.settlement._acknowledger._batches._texts
            await eventually(partial(has_batch_of, "b", arrived))
            break
    async with broker.sql() as sql:

        async def counts_for_nothing():
            """Whether no delivery counts towards the dead letters."""
            return (
                await sql.fetchval(
                    "select max(c.unanswered) from skep.cursor c "
                    "join skep.partition p on p.id = c.partition_id "
                    "join skep.queue q on q.id = p.queue_id where q.name = $1",
                    queue,
                )
                == 0
            )

        await eventually(counts_for_nothing)  # the broker reads what the client sent last
    (again,) = await queen.pop(queue, group="g", batch=10, partitions=10, wait_s=10)

    assert again.data == 2
    assert len(consumption._keeper._renewals) == 0


async def test_a_lease_is_renewed_while_a_handler_holds_up_the_event_loop(queen, queue):
    await queen.push(queue, 1)
    others, released = [], threading.Event()

    def look_from_outside():
        with Client(queen.session.options.urls) as other:
            others.extend(other.pop(queue, group="g", wait_s=2.5))
        released.set()

    async for message in queen.consume(queue, group="g", lease_s=1, limit=1, delivery="websocket"):
        threading.Thread(target=look_from_outside).start()
        assert released.wait(20)
        await message.ack()

    assert others == []
    assert await lag(queen, queue) == 0


async def test_acknowledging_on_delivery_needs_no_verdict(queen, queue):
    await queen.push_many(queue, range(3))

    consumption = queen.consume(queue, auto_ack=True, idle_s=0.5, delivery="websocket")
    seen = [message.data async for message in consumption]

    assert seen == [0, 1, 2]
    assert await lag(queen, queue, "__QUEUE_MODE__") == 0


async def test_it_is_not_over_before_a_poll_says_so(queen, queue):
    await queen.push_many(queue, range(3))

    consumption = queen.consume(queue, group="g", idle_s=0, delivery="websocket")

    assert [message.data async for message in consumption] == [0, 1, 2]


@pytest.mark.parametrize("what", [{"partition": "p"}, {"conflation": False}], ids=str)
async def test_what_a_subscription_cannot_say_is_polled_for(monkeypatch, queen, queue, what):
    await queen.push(queue, 1, partition="p")
    paths = polled(monkeypatch, queen)

    consumption = queen.consume(queue, group="g", limit=1, delivery="websocket", **what)

    assert [message.data async for message in consumption] == [1]
    assert paths[0].startswith("/api/v1/pop/")


async def test_a_server_without_websockets_is_polled():
    popped = {
        "success": True,
        "messages": [
            {
                "id": "i",
                "transactionId": "t",
                "partitionId": "p",
                "partition": "one",
                "leaseId": "l",
                "createdAt": "2026-01-01T00:00:00Z",
                "data": 1,
            }
        ],
    }
    refusal, acked = (404, {"error": "no"}), (200, [{"transactionId": "t", "success": True}])
    async with scripted(refusal, (200, popped), acked) as broker, AsyncClient(broker.url) as client:
        consumption = client.consume("q", limit=1, delivery="websocket")
        assert [message.data async for message in consumption] == [1]

    assert [path.partition("?")[0] for path in broker.paths] == [
        "/api/v1/stream/queue/q",
        "/api/v1/pop/queue/q",
        "/api/v1/ack/batch",
    ]


async def test_a_server_that_is_busy_is_asked_for_a_socket_again(monkeypatch):
    monkeypatch.setattr("skep.client.aio.live.REOPEN_S", 0.0)
    busy, nothing = (503, {"error": "starting"}), (204, None)
    async with scripted(busy, nothing, busy, nothing) as broker, AsyncClient(broker.url) as client:
        consumption = client.consume("q", idle_s=0.5, wait_s=0.01, delivery="websocket")
        assert [message async for message in consumption] == []

    asked = [path.partition("?")[0] for path in broker.paths]
    assert asked[:3] == [
        "/api/v1/stream/queue/q",
        "/api/v1/pop/queue/q",
        "/api/v1/stream/queue/q",
    ]


async def test_another_broker_is_polled_and_subscribed_to_when_one_is_down(broker, queue):
    dead = f"http://127.0.0.1:{free_port()}"
    async with AsyncClient([dead, broker.url], retries=1) as client:
        await client.push_many(queue, range(3), partition=str)
        for group in ("a", "b", "c", "d"):
            seen = [
                message.data
                async for message in client.consume(
                    queue, group=group, limit=3, partitions=3, delivery="websocket"
                )
            ]
            assert sorted(seen) == [0, 1, 2]


async def test_a_socket_that_breaks_is_replaced_and_nothing_is_lost(queen, queue):
    await queen.push_many(queue, range(50), partition=lambda number: str(number % 5))
    seen, cut_feeds = set(), []

    consumption = queen.consume(
        queue, group="g", batch=10, partitions=2, wait_s=0.2, delivery="websocket"
    )
    async for message in consumption:
        seen.add(message.data)
        feed = message.settlement._acknowledger
        # A socket that was cut may be closed by now: each is cut once.
        if feed is not None and feed not in cut_feeds and len(cut_feeds) < 2:
            cut_feeds.append(feed)
            feed._link._connection.shutdown(2)
        if seen == set(range(50)):
            break
        if len(cut_feeds) == 1:
            consumption._live._open_at_s = 0.0

    assert cut_feeds
    assert seen == set(range(50))


async def test_no_lease_is_kept_of_what_came_and_nobody_took(queen, queue):
    await queen.push(queue, 1)
    consumption = queen.consume(queue, group="g", lease_s=3_600, delivery="websocket")
    live = consumption._live
    taken = await live.take(10, 10.0, consumption._stop)
    live.feed._hear(b'{"type":"messages","leaseId":"left over","messages":[]}')
    assert "left over" in consumption._keeper._renewals._leases
    live.feed._batches._texts.clear()

    await live.close()

    assert consumption._keeper._renewals._leases.keys() == {taken.lease.id}


async def test_a_broker_that_cannot_unsubscribe_does_not_hold_up_a_client(queen, queue):
    await queen.push(queue, 1)
    consumption = queen.consume(queue, group="g", delivery="websocket")
    live = consumption._live
    await live.take(10, 10.0, consumption._stop)
    live.feed._is_leaving = True  # as if it had been said, and the broker did not know the word
    live.feed._hear(b'{"type":"error","error":"Invalid value"}')

    async with asyncio.timeout(ANSWER_S_MAX / 2):
        await live.close()


async def test_a_client_that_is_closed_ends_a_consumer_on_a_socket(broker, queue):
    client = AsyncClient(broker.url)
    await client.push(queue, 1)
    seen = []

    async for message in client.consume(queue, group="g", delivery="websocket", wait_s=0.1):
        seen.append(message.data)
        await message.ack()
        await client.close()

    assert seen == [1]


async def test_verdicts_that_the_socket_does_not_answer_go_by_request(monkeypatch, queen, queue):
    await queen.push_many(queue, range(2), partition="one")
    paths = polled(monkeypatch, queen)

    async for message in queen.consume(queue, group="g", limit=2, delivery="websocket"):
        message.settlement._acknowledger._hear(b'{"type":"error","error":"of something else"}')
        message.settlement._acknowledger._has_clear_replies = False

    assert paths == ["/api/v1/ack/batch"]
    assert await lag(queen, queue) == 0


async def test_a_broker_killed_while_it_feeds_a_socket_loses_nothing(mortal, queue):
    seen, news = [], asyncio.Event()
    async with AsyncClient(mortal.url, max_retry_delay=0.2, retries=100) as client:
        await client.push_many(queue, range(100), partition=lambda number: str(number % 5))
        consumption = client.consume(
            queue,
            group="g",
            batch=10,
            partitions=2,
            lease_s=2,
            ack_every_s=0.01,
            wait_s=1,
            delivery="websocket",
        )

        async def consume():
            async for message in consumption:
                seen.append((message.partition, message.data))
                news.set()

        consuming = asyncio.ensure_future(consume())
        await until(news, lambda: len(seen) >= 30)
        assert consumption._live.feed is not None
        await asyncio.to_thread(mortal.kill)
        restarting = asyncio.to_thread(mortal.start)
        pushing = client.push_many(queue, range(100, 150), partition=lambda number: str(number % 5))
        await asyncio.gather(restarting, pushing)
        await until(news, lambda: {data for _, data in seen} == set(range(150)))
        consumption.stop()
        await asyncio.wait_for(consuming, 20)
        behind = await lag(client, queue)

    assert behind == 0
    for partition in "01234":
        firsts = list(dict.fromkeys(data for name, data in seen if name == partition))
        assert firsts == sorted(firsts)


def test_the_blocking_client_has_it_too(bee, queue):
    bee.push_many(queue, range(20), partition=lambda number: str(number % 4))

    consumption = bee.consume(queue, group="g", batch=7, limit=20, delivery="websocket")
    seen = [message.data for message in consumption]

    assert sorted(seen) == list(range(20))
    assert bee.groups.lag("g", queue).offset_lag == 0


def test_a_blocking_consumer_that_waits_on_a_socket_can_be_stopped(bee, queue):
    bee.push(queue, 1)
    consumption = bee.consume(queue, group="g", delivery="websocket")
    got_one, ended = threading.Event(), threading.Event()

    def consume():
        for _ in consumption:
            got_one.set()
        ended.set()

    threading.Thread(target=consume, daemon=True).start()
    assert got_one.wait(10)
    consumption.stop()

    assert ended.wait(10)


async def test_another_word_for_the_delivery_is_refused(queen):
    with pytest.raises(BadRequest, match="'pigeon': use one of auto, websocket, poll"):
        queen.consume("q", delivery="pigeon")


async def test_without_the_package_there_is_no_socket(monkeypatch, queen):
    monkeypatch.setitem(sys.modules, "websockets.client", None)
    address = queen.session.endpoints.all[0].address

    with pytest.raises(LinkRefused, match="not installed"):
        LiveLink.open(address, "/", headers={}, tls=None, timeout_s=1)
