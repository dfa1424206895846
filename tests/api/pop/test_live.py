"""Messages over a WebSocket: a real client, a real broker."""

import asyncio
import json
from contextlib import AsyncExitStack
from urllib.parse import quote

import pytest
from websockets.asyncio.client import connect

from tests.sql.support.waiting import eventually
from tests.support.broker import ack_item, payloads

PATIENCE_S = 60


class LiveClient:
    """One WebSocket, in the frames of the wire."""

    def __init__(self, socket):
        self.socket = socket

    async def send(self, type_, **members):
        await self.socket.send(json.dumps({"type": type_, **members}))

    async def hear(self, type_):
        """Return the next frame, which must be of this type."""
        async with asyncio.timeout(PATIENCE_S):
            frame = json.loads(await self.socket.recv())
        assert frame["type"] == type_, frame
        return frame

    async def messages(self):
        return (await self.hear("messages"))["messages"]

    async def ask(self, type_, answer, **members):
        await self.send(type_, **members)
        return await self.hear(answer)

    async def ack(self, *messages, status="completed"):
        items = [ack_item(message, status) for message in messages]
        return (await self.ask("ack", "acked", acknowledgments=items))["results"]

    async def close_code(self):
        """Wait until the server closes, and return its code."""
        async with asyncio.timeout(PATIENCE_S):
            await self.socket.wait_closed()
        return self.socket.close_code

    async def nothing_comes(self):
        """Ask for a sign of life and hear that nothing was sent before it."""
        await self.ask("ping", "pong")


def live_url(broker, queue):
    return f"ws://127.0.0.1:{broker.port}/api/v1/stream/queue/{quote(queue, safe='')}"


LOCK_CURSORS = """
select from skep.cursor c join skep.queue q on q.id = c.queue_id where q.name = $1 for update of c
"""
ENDING = """
select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query like '%end_leases%'
"""


@pytest.fixture
def open_live(broker, arun):
    """Open sockets to the broker; they are closed after the test."""
    stack = AsyncExitStack()

    async def open_live(queue, *, at=broker, **subscription):
        socket = await stack.enter_async_context(connect(live_url(at, queue), proxy=None))
        live = LiveClient(socket)
        if subscription:
            await live.send("subscribe", **subscription)
        return live

    yield open_live
    arun(stack.aclose())


async def test_messages_are_pushed_to_the_subscriber_as_a_pop_would_answer(
    client, queue, open_live
):
    (pushed,) = await client.push({"queue": queue, "partition": "p", "payload": {"n": 1}})
    live = await open_live(queue, consumerGroup="g", batch=10)

    frame = await live.hear("messages")

    (message,) = frame["messages"]
    assert [frame["success"], frame["queue"], frame["consumerGroup"]] == [True, queue, "g"]
    assert message["id"] == pushed["message_id"]
    assert [message["data"], message["partition"], message["leaseId"]] == [
        {"n": 1},
        "p",
        frame["leaseId"],
    ]


async def test_a_message_that_comes_later_is_delivered_when_it_comes(client, queue, open_live):
    live = await open_live(queue, batch=10)
    await live.nothing_comes()

    await client.push_payloads(queue, "later")

    assert payloads(await live.messages()) == ["later"]


async def test_a_subscriber_may_ask_that_no_queue_is_created(client, queue, open_live):
    live = await open_live(queue, create=False)

    assert queue in (await live.hear("error"))["error"]
    assert (await client.call("GET", f"/api/v1/queues/{quote(queue)}/config")).status == 404


async def test_acknowledged_messages_are_done(client, queue, open_live):
    await client.push_payloads(queue, 1, 2)
    live = await open_live(queue, batch=2)

    results = await live.ack(*await live.messages())

    assert [(result["success"], result["leaseReleased"]) for result in results] == [
        (True, True),
        (True, True),
    ]
    assert await client.pop(queue) == []


async def test_an_ack_that_names_no_lease_is_under_the_socket_s_own(client, queue, open_live):
    await client.push_payloads(queue, 1)
    live = await open_live(queue, consumerGroup="g", batch=1)
    (message,) = await live.messages()
    item = {name: message[name] for name in ("transactionId", "partitionId")}

    frame = await live.ask("ack", "acked", acknowledgments=[item])

    assert frame["results"][0]["leaseReleased"] is True


async def test_never_more_messages_come_than_there_are_credits(client, queue, open_live):
    await client.push_payloads(queue, *range(10))
    live = await open_live(queue, batch=100, credits=3, autoAck=True)

    assert payloads(await live.messages()) == [0, 1, 2]
    await live.nothing_comes()
    await live.send("credit", messages=1)
    assert payloads(await live.messages()) == [3]
    await live.nothing_comes()
    await live.send("credit", messages=2)
    assert payloads(await live.messages()) == [4, 5]


async def test_without_credits_nothing_is_claimed(client, queue, open_live):
    live = await open_live(queue, credits=0)
    await client.push_payloads(queue, 1)
    await live.nothing_comes()

    assert payloads(await client.pop(queue)) == [1]


async def test_batches_follow_each_other_while_there_is_credit(client, queue, open_live):
    await client.push_payloads(queue, *range(5))
    live = await open_live(queue, batch=2, credits=5, autoAck=True)

    seen = [payloads(await live.messages()) for _ in range(3)]

    assert seen == [[0, 1], [2, 3], [4]]


async def test_what_was_not_acknowledged_is_free_as_soon_as_the_socket_closes(
    client, queue, open_live
):
    await client.push_payloads(queue, 1, 2)
    live = await open_live(queue, batch=2, leaseSeconds=3600)
    first, _ = await live.messages()
    await live.ack(first)

    await live.socket.close()
    (message,) = await client.pop(queue, wait=True, timeout=10_000)

    assert [message["data"], message["deliveryAttempt"]] == [2, 2]


async def test_a_connection_that_breaks_frees_its_leases_too(client, queue, open_live):
    await client.push_payloads(queue, 1)
    live = await open_live(queue, leaseSeconds=3600)
    await live.messages()

    live.socket.transport.abort()

    assert payloads(await client.pop(queue, wait=True, timeout=10_000)) == [1]


async def test_what_is_given_back_after_unsubscribing_goes_to_others(client, queue, open_live):
    await client.push_payloads(queue, 1)
    live = await open_live(queue, batch=1, credits=10, leaseSeconds=3600)
    (message,) = await live.messages()

    await live.ask("unsubscribe", "unsubscribed")
    await live.send("credit", messages=10)
    await live.ack(message, status="retry")

    assert payloads(await client.pop(queue, wait=True, timeout=10_000)) == [1]
    await live.nothing_comes()


async def test_a_message_acknowledged_at_once_is_not_delivered_again_after_the_close(
    client, queue, open_live
):
    await client.push_payloads(queue, 1)
    live = await open_live(queue, autoAck=True)
    assert payloads(await live.messages()) == [1]
    await live.socket.close()
    await client.push_payloads(queue, 2)

    assert payloads(await client.pop(queue, wait=True, timeout=10_000)) == [2]


async def test_two_subscribers_of_a_group_share_its_messages(client, queue, open_live):
    first = await open_live(queue, consumerGroup="g")
    second = await open_live(queue, consumerGroup="g")
    await client.push({"queue": queue, "partition": "a", "payload": 1})
    await client.push({"queue": queue, "partition": "b", "payload": 2})

    seen = payloads(await first.messages()) + payloads(await second.messages())

    assert sorted(seen) == [1, 2]


@pytest.mark.parametrize(
    "start", [{"subscriptionMode": "new"}, {"subscriptionFrom": "now"}], ids=str
)
async def test_a_new_group_may_start_at_the_end(broker, client, queue, open_live, start):
    await client.push_payloads(queue, "old")
    live = await open_live(queue, consumerGroup=f"g of {queue}", **start)
    async with broker.sql() as sql:
        exists = "select 1 from skep.consumer_group where name = $1"
        await eventually(lambda: sql.fetchval(exists, f"g of {queue}"))

    await client.push_payloads(queue, "new")

    assert payloads(await live.messages()) == ["new"]


async def test_a_lease_is_renewed_on_the_socket(client, queue, open_live):
    await client.push_payloads(queue, 1)
    live = await open_live(queue, batch=1)
    (message,) = await live.messages()

    renewed = await live.ask("renew", "renewed", leaseId=message["leaseId"], seconds=120)
    unknown = await live.ask("renew", "renewed", leaseId="nobody")

    assert [renewed["success"], renewed["leaseId"]] == [True, message["leaseId"]]
    assert renewed["expiresAt"].endswith("Z")
    assert [unknown["success"], unknown["error"]] == [False, "Lease not found or expired"]


async def test_a_queue_may_have_a_slash_in_its_name(client, queue, open_live):
    await client.push_payloads(f"{queue}/é %", 1)
    live = await open_live(f"{queue}/é %", batch=1)

    assert payloads(await live.messages()) == [1]


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        ("", "the request body is empty"),
        ("{", "the body is not valid JSON"),
        ("{}", "missing required field `type`"),
        ('{"type":"dance"}', "Invalid value 'dance'"),
        ('{"type":"credit","messages":1}', "send a subscribe frame first"),
        ('{"type":"unsubscribe"}', "send a subscribe frame first"),
        ('{"type":"subscribe","batch":0}', "batch must be at least 1"),
        ('{"type":"subscribe","credits":-1}', "credits must not be negative"),
        ('{"type":"subscribe","consumerGroup":"\\u0000"}', "consumerGroup contains a NUL"),
        ('{"type":"subscribe","subscriptionMode":"odd"}', "Invalid enum value 'odd'"),
        (
            '{"type":"subscribe","consumerGroup":"g","subscriptionFrom":"soon"}',
            "subscriptionFrom must be 'now' or an ISO 8601 timestamp",
        ),
        ('{"type":"ack","acknowledgments":[{"offset":"1"}]}', "Expected `int | null`"),
        ('{"type":"renew","leaseId":"x","seconds":0}', "seconds must be between 1 and"),
    ],
    ids=str,
)
async def test_a_frame_that_cannot_be_obeyed_is_answered_and_changes_nothing(
    client, queue, open_live, frame, error
):
    live = await open_live(queue)

    await live.socket.send(frame)
    answer = await live.hear("error")

    assert error in answer["error"]
    assert answer["code"] == "bad_request"
    await client.push_payloads(queue, 1)
    await live.send("subscribe")
    assert payloads(await live.messages()) == [1]


async def test_a_socket_subscribes_once(queue, open_live):
    live = await open_live(queue, batch=1)

    answer = await live.ask("subscribe", "error")

    assert answer["error"] == "already subscribed: open another socket for another subscription"


async def test_credit_must_be_positive(queue, open_live):
    live = await open_live(queue, batch=1)

    answer = await live.ask("credit", "error", messages=0)

    assert answer["error"] == "messages must be at least 1"


async def test_a_queue_whose_name_cannot_be_is_refused(queue, open_live):
    live = await open_live("q" * 256)

    answer = await live.hear("error")

    assert answer["error"] == "queue is longer than 255 characters"
    assert await live.close_code() == 1008


async def test_leases_that_cannot_end_for_a_lock_hold_up_no_vital_call(
    broker, client, queue, open_live
):
    await client.push_payloads(queue, 1)
    live = await open_live(queue, leaseSeconds=3600)
    await live.messages()
    async with broker.sql() as sql, broker.sql() as observer, sql.transaction():
        await sql.execute(LOCK_CURSORS, queue)
        await live.socket.close()
        await eventually(lambda: observer.fetchval(ENDING))

        assert (await client.call("GET", "/readyz")).status == 200
        assert await observer.fetchval(ENDING) == 1, "the answer came after it had given up"


@pytest.fixture
def small_broker(start_broker):
    """A broker that takes two connections and short frames."""
    with start_broker(
        "--workers", "1", live_connections_max=2, body_bytes_max=4096
    ) as small_broker:
        yield small_broker


async def test_there_is_room_for_so_many_sockets_and_again_when_one_leaves(
    small_broker, open_live, queue
):
    first = await open_live(queue, at=small_broker)
    await open_live(queue, at=small_broker)
    third = await open_live(queue, at=small_broker)

    answer = await third.hear("error")

    assert [answer["code"], answer["error"]] == ["overloaded", "more than 2 live connections"]
    assert await third.close_code() == 1013
    await first.nothing_comes()
    await first.socket.close()
    fourth = await open_live(queue, at=small_broker)
    await fourth.nothing_comes()


async def test_a_frame_that_is_too_long_closes_the_socket(small_broker, open_live, queue):
    live = await open_live(queue, at=small_broker)

    await live.socket.send("x" * 5000)

    assert await live.close_code() == 1009


async def test_a_broker_that_stops_says_goodbye(broker_to_stop, open_live, queue):
    live = await open_live(queue, at=broker_to_stop, batch=1)
    await live.nothing_comes()

    broker_to_stop.process.terminate()

    assert await live.close_code() == 1012


async def test_a_broker_that_stops_leaves_no_lease_of_its_sockets_behind(
    broker_to_stop, open_live, queue
):
    async with broker_to_stop.connect() as client:
        await client.push_payloads(queue, 1)
    live = await open_live(queue, at=broker_to_stop, leaseSeconds=3600)
    await live.messages()

    broker_to_stop.process.terminate()
    await live.close_code()
    broker_to_stop.process.wait(PATIENCE_S)

    async with broker_to_stop.sql() as sql:
        is_leased = "select bool_or(available_at > clock_timestamp()) from skep.cursor"
        assert await sql.fetchval(is_leased) is False


async def test_the_address_of_a_socket_asked_without_an_upgrade_is_refused(client, queue):
    answer = await client.call("GET", f"/api/v1/stream/queue/{queue}")

    assert answer.status == 405
    assert answer.headers["allow"] == "websocket"
