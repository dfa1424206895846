"""Server-sent events: the log of a queue as it grows, read by a real client."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import NamedTuple
from urllib.parse import quote, urlencode

import httpx
import pytest

PATIENCE_S = 60


class Event(NamedTuple):
    type: str
    id: str
    data: str

    @property
    def message(self):
        return json.loads(self.data)


class EventSource:
    """One stream of events, read as browsers do."""

    def __init__(self, response):
        self._lines = response.aiter_lines()
        self.last_id = ""

    async def next(self):
        """Return the next event; a position without data is remembered and passed over."""
        type_, data = "message", []
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "id":
                    self.last_id = value
                elif name == "event":
                    type_ = value
                elif name == "data":
                    data.append(value)
                elif not line and data:
                    return Event(type_, self.last_id, "\n".join(data))
        raise EOFError

    async def messages(self, count):
        return [(await self.next()).message["data"] for _ in range(count)]

    async def started(self):
        """Wait for the first position, which says that the stream follows from now on."""
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._lines:
                if line.startswith("id: "):
                    self.last_id = line[4:]
                    return


def events_url(broker, queue, **parameters):
    return (
        f"{broker.url}/api/v1/stream/queue/{quote(queue, safe='')}/events?{urlencode(parameters)}"
    )


@pytest.fixture
def http(arun):
    client = httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S)
    yield client
    arun(client.aclose())


@pytest.fixture
def watch(broker, http, arun):
    """Open streams of events; they are closed after the test."""
    stack = AsyncExitStack()

    async def watch(queue, *, at=broker, last_id=None, **parameters):
        headers = {} if last_id is None else {"last-event-id": last_id}
        url = events_url(at, queue, **parameters)
        response = await stack.enter_async_context(http.stream("GET", url, headers=headers))
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        return EventSource(response)

    yield watch
    arun(stack.aclose())


async def test_what_is_pushed_from_now_on_arrives_as_events(client, queue, watch):
    await client.push_payloads(queue, "before")
    source = await watch(queue)
    await source.started()
    (pushed,) = await client.push(
        {"queue": queue, "partition": "p", "payload": {"n": 1}, "transactionId": "t"}
    )

    event = await source.next()

    message = event.message
    assert event.type == "message"
    assert message.pop("createdAt").endswith("Z")
    assert message == {
        "id": pushed["message_id"],
        "queue": queue,
        "partition": "p",
        "partitionId": pushed["partition_id"],
        "transactionId": "t",
        "traceId": None,
        "producerSub": None,
        "data": {"n": 1},
    }


async def test_from_the_start_everything_arrives_in_order_within_each_partition(
    client, queue, watch
):
    for number in range(40):
        await client.push_payloads(queue, [number % 2, number], partition=str(number % 2))
    await client.push_payloads(queue, *([0, number] for number in range(40, 60)), partition="0")
    source = await watch(queue, **{"from": "start"})

    seen = await source.messages(60)

    assert [n for partition, n in seen if partition == 0] == [*range(0, 40, 2), *range(40, 60)]
    assert [n for partition, n in seen if partition == 1] == list(range(1, 40, 2))


async def test_from_a_time_what_is_older_is_left_out(client, queue, watch):
    await client.push_payloads(queue, "old")
    await client.push_payloads(queue, "new")
    source = await watch(queue, **{"from": "start"})
    await source.next()
    newer = (await source.next()).message

    since = await watch(queue, **{"from": newer["createdAt"]})

    assert await since.messages(1) == ["new"]


async def test_only_messages_with_the_wanted_contents_arrive(client, queue, watch):
    for tenant, number in (("acme", 1), ("bees", 1), ("acme", 2), ("acme", 1)):
        item = {
            "queue": queue,
            "headers": {"tenant": tenant},
            "payload": {"n": number, "t": tenant},
        }
        await client.push(item)
    source = await watch(queue, **{"from": "start", "header": "tenant=acme", "payload": "$.n = 1"})

    assert await source.messages(2) == [{"n": 1, "t": "acme"}] * 2


async def test_nothing_is_claimed_or_counted_as_delivered(client, queue, watch):
    await client.push_payloads(queue, 1)
    source = await watch(queue, **{"from": "start"})
    await source.next()

    (message,) = await client.pop(queue)

    assert message["deliveryAttempt"] == 1


@pytest.mark.parametrize("seen", [1, 3, 5])
async def test_a_client_that_comes_back_goes_on_behind_what_it_saw(client, queue, watch, seen):
    await client.push_payloads(queue, 0, 1, 2)
    source = await watch(queue, **{"from": "start"})
    first = await source.messages(1)
    await client.push_payloads(queue, 3)
    await client.push_payloads(queue, 4, partition="other")
    first += await source.messages(seen - 1)
    await client.push_payloads(queue, 5)

    again = await watch(queue, last_id=source.last_id)

    assert sorted(first + await again.messages(6 - seen)) == [0, 1, 2, 3, 4, 5]


async def test_a_client_that_saw_nothing_yet_misses_nothing_either(client, queue, watch):
    await client.push_payloads(queue, "before")
    source = await watch(queue)
    await source.started()
    await client.push_payloads(queue, "between")

    again = await watch(queue, last_id=source.last_id)

    assert await again.messages(1) == ["between"]


async def test_a_payload_on_several_lines_arrives_whole(client, queue, watch):
    body = '{"items":[{"queue":"' + queue + '","payload":{\r\n "a":\r[1,\n2]}}]}'
    assert (await client.call("POST", "/api/v1/push", body.encode())).status == 201
    source = await watch(queue, **{"from": "start"})

    assert await source.messages(1) == [{"a": [1, 2]}]


async def test_long_partitions_and_many_partitions_are_read_to_their_end(client, queue, watch):
    for number in range(40):
        await client.push_payloads(queue, number, partition="long")
    wide = [{"queue": queue, "partition": f"p{n}", "payload": 100 + n} for n in range(300)]
    await client.push(*wide)
    source = await watch(queue, **{"from": "start"})

    seen = await source.messages(340)

    assert [number for number in seen if number < 100] == list(range(40))
    assert sorted(seen) == [*range(40), *range(100, 400)]


@pytest.mark.parametrize(
    ("parameters", "headers", "error"),
    [
        ({"from": "soon"}, {}, "from must be 'now', 'start' or an ISO 8601 timestamp"),
        ({}, {"last-event-id": "x"}, "the last event id is not one of this stream"),
        ({}, {"last-event-id": "9:3:~9:3:~0~0"}, "the last event id is not one of this stream"),
    ],
    ids=str,
)
async def test_a_beginning_that_cannot_be_is_a_400(
    broker, client, http, queue, parameters, headers, error
):
    await client.push_payloads(queue, 1)

    answer = await http.get(events_url(broker, queue, **parameters), headers=headers)

    assert answer.status_code == 400
    assert answer.json()["error"] == error


async def test_a_queue_that_does_not_exist_is_a_404(broker, http, queue):
    answer = await http.get(events_url(broker, queue))

    assert answer.status_code == 404
    assert answer.json() == {"error": "Queue not found", "code": "not_found"}


async def test_the_stream_of_a_queue_that_is_deleted_ends_and_says_so(client, queue, watch):
    await client.push_payloads(queue, "gone")
    events = await watch(queue)
    await events.started()

    assert (await client.call("DELETE", f"/api/v1/resources/queues/{queue}")).status == 200

    event = await events.next()
    assert (event.type, event.message["error"]) == ("error", "Queue not found")
    with pytest.raises(EOFError):
        await events.next()


async def test_a_name_that_cannot_be_is_a_400(broker, http):
    assert (await http.get(events_url(broker, "q" * 256))).status_code == 400


@pytest.fixture
def narrow_broker(start_broker):
    with start_broker("--workers", "1", live_connections_max=1) as narrow_broker:
        yield narrow_broker


async def test_one_stream_too_many_is_a_429(narrow_broker, http, queue, watch):
    async with narrow_broker.connect() as client:
        await client.push_payloads(queue, 1)
    source = await watch(queue, at=narrow_broker)
    await source.started()

    answer = await http.get(events_url(narrow_broker, queue))

    assert answer.status_code == 429
    assert answer.json()["error"] == "more than 1 live connections"


async def test_a_stream_ends_when_the_broker_stops(broker_to_stop, queue, watch):
    async with broker_to_stop.connect() as client:
        await client.push_payloads(queue, 1)
    source = await watch(queue, at=broker_to_stop)
    await source.started()

    broker_to_stop.process.terminate()

    with pytest.raises(EOFError):
        await source.next()
