"""Two instances on one database.

They look for themselves only once a minute here, so a poll that is answered sooner was woken by
the other instance: by datagram, or by request. Without peers they work together all the same.
"""

import asyncio
import json
import socket
from contextlib import AsyncExitStack, contextmanager

import pytest

from tests.sql.support.waiting import eventually
from tests.support.broker import elapsed, payloads
from tests.support.ports import free_ports

WOKEN_S = 10
OWN_LOOK_MS = 60_000
SECRET = "shared by both"
NOTIFY = "/internal/api/notify"
PATIENCE_S = 60
IS_SUBSCRIBED = "select exists (select from skep.consumer_group where name = $1)"
STATS = "/internal/api/inter-instance/stats"


@pytest.fixture(scope="module")
def start_pair(start_broker):
    """Start two instances, the second with two workers and on the database of the first."""

    @contextmanager
    def start_pair(*, by, look_ms=OWN_LOOK_MS, **settings):
        udp, tcp = free_ports(2, socket.SOCK_DGRAM), free_ports(2)
        peers = {
            "datagram": [f"127.0.0.1:{port}" for port in udp],
            "request": [f"http://127.0.0.1:{port}" for port in tcp],
            "nothing": [],
        }[by]
        looks = {"poll_interval_ms": look_ms, "poll_interval_ms_max": look_ms}
        common = {**looks, "peers": ",".join(peers), **settings}
        one = ("--workers", "1", "--port", str(tcp[0]))
        two = ("--workers", "2", "--port", str(tcp[1]))
        with (
            start_broker(*one, **common, peer_port=udp[0]) as here,
            start_broker(*two, beside=here, **common, peer_port=udp[1]) as there,
        ):
            here.peer_port, there.peer_port = udp
            here.worker_count, there.worker_count = 1, 2
            yield here, there

    return start_pair


@pytest.fixture(scope="module", params=["datagram", "request"])
def pair(request, start_pair):
    with start_pair(by=request.param, peer_secret=SECRET) as pair:
        yield pair


async def park_at_every_worker(broker, queue, stack):
    """Leave a poll waiting at each worker, each of a group of its own; return the connections."""
    parked = {}
    async with asyncio.timeout(PATIENCE_S):
        while len(parked) < broker.worker_count:
            client = await stack.enter_async_context(broker.connect())
            worker = json.loads((await client.call("GET", "/health")).body)["worker_id"]
            if worker not in parked:
                parked[worker] = client
                client.send_poll(
                    queue, consumerGroup=f"readers-{worker}", wait=True, timeout=15_000
                )
    async with broker.sql() as sql:
        for worker in parked:
            await eventually(lambda worker=worker: sql.fetchval(IS_SUBSCRIBED, f"readers-{worker}"))
    return list(parked.values())


async def report(client):
    return json.loads((await client.call("GET", STATS)).body)


# Wake-ups


@pytest.mark.parametrize("direction", ["forth", "back"])
async def test_a_push_at_one_instance_answers_polls_at_every_worker_of_the_other(
    pair, queue, direction
):
    pushes_at, waits_at = pair if direction == "forth" else reversed(pair)
    async with AsyncExitStack() as stack, pushes_at.connect() as producer:
        consumers = await park_at_every_worker(waits_at, queue, stack)
        with elapsed() as waited:
            await producer.push_payloads(queue, "news")
            messages = [await consumer.popped() for consumer in consumers]

    assert [payloads(each) for each in messages] == [["news"]] * waits_at.worker_count
    assert waited.seconds < WOKEN_S


async def test_a_seek_at_one_instance_answers_a_poll_at_the_other(pair, queue):
    there, here = pair
    async with AsyncExitStack() as stack, here.connect() as admin:
        await admin.push_payloads(queue, "again")
        await admin.pop(queue, consumerGroup="readers-0", autoAck=True)
        (consumer,) = await park_at_every_worker(there, queue, stack)
        with elapsed() as waited:
            path = f"/api/v1/consumer-groups/readers-0/queues/{queue}/seek"
            answer = await admin.post(path, {"timestamp": "2000-01-01T00:00:00Z"})
            messages = await consumer.popped()

    assert answer.status == 200
    assert payloads(messages) == ["again"]
    assert waited.seconds < WOKEN_S


LOOK_MS = 400


@pytest.fixture(scope="module")
def strangers(start_pair):
    """Two instances that do not know of each other."""
    with start_pair(by="nothing", look_ms=LOOK_MS) as pair:
        yield pair


async def test_without_peers_polls_find_the_others_message_by_their_own_looks(strangers, queue):
    here, there = strangers
    async with AsyncExitStack() as stack, here.connect() as producer:
        consumers = await park_at_every_worker(there, queue, stack)
        with elapsed() as waited:
            await producer.push_payloads(queue, "news")
            messages = [await consumer.popped() for consumer in consumers]

    assert [payloads(each) for each in messages] == [["news"]] * 2
    assert waited.seconds < WOKEN_S


async def test_a_lease_given_out_by_one_instance_expires_for_a_poll_at_the_other(strangers, queue):
    here, there = strangers
    async with here.connect() as holder, there.connect() as waiting:
        await holder.push_payloads(queue, 1)
        await holder.pop(queue, leaseSeconds=1)
        with elapsed() as since_lease:
            (again,) = await waiting.pop(queue, wait=True, timeout=20_000)

    assert again["deliveryAttempt"] == 2
    assert since_lease.seconds < 1 + WOKEN_S


@pytest.mark.parametrize("change", ["schema", "size"])
async def test_defect_49_without_peers_another_instance_refuses_nothing_by_old_rules(
    strangers, queue, change
):
    here, there = strangers
    old, new = {
        "schema": ({"jsonSchema": {"type": "integer"}}, {"jsonSchema": None}),
        "size": ({"maxSize": 1}, {"maxSize": 100}),
    }[change]
    payload = {"schema": "text", "size": 2}[change]
    async with here.connect() as admin, there.connect() as producer:
        await admin.configure(queue, **old)
        await producer.push_payloads(queue, 1)
        refused = await producer.post(
            "/api/v1/push", {"items": [{"queue": queue, "payload": payload}]}
        )
        await admin.configure(queue, **new)
        (stored,) = await producer.push_payloads(queue, payload)

    assert refused.status in {400, 429}
    assert stored["status"] == "queued"


# What is known of each other


async def test_every_instance_lists_all_instances(pair):
    here, there = pair
    async with here.connect() as client:

        async def has_both():
            found = await report(client)
            return found if len(found["instances"]) == 2 else None

        found = await eventually(has_both)

    by_port = {each["port"]: each for each in found["instances"]}
    assert by_port.keys() == {here.port, there.port}
    assert (by_port[here.port]["workers"], by_port[there.port]["workers"]) == (1, 2)
    assert {each["state"] for each in found["instances"]} == {"alive"}
    assert found["enabled"]
    assert found["peers"]["isAuthenticated"]


async def test_an_instance_alone_says_that_it_is_alone(client):
    found = await report(client)

    assert (found["enabled"], found["reason"]) == (False, "not_initialized")
    health = json.loads((await client.call("GET", "/health")).body)
    assert health["shared_state"] == {"enabled": False}


async def test_changes_are_read_again_at_the_other_instance(pair, queue):
    here, there = pair
    async with here.connect() as admin, there.connect() as producer:
        await producer.push_payloads(queue, 1)
        await admin.configure(queue, jsonSchema={"type": "integer"})
        await producer.push_payloads(queue, 2)
        answer = await producer.post(
            "/api/v1/push", {"items": [{"queue": queue, "payload": "text"}]}
        )
        deleted = await admin.call("DELETE", f"/api/v1/resources/queues/{queue}")
        await producer.push_payloads(queue, "a new queue without a schema")
        messages = await producer.pop(queue, batch=10)

    assert answer.status == 400
    assert deleted.status == 200
    assert payloads(messages) == ["a new queue without a schema"]


async def test_maintenance_begins_and_ends_at_the_other_instance(pair):
    here, there = pair
    path = "/api/v1/system/maintenance/pop"
    async with here.connect() as admin, there.connect() as other:

        async def is_on_there():
            return json.loads((await other.call("GET", path)).body)["popMaintenanceMode"]

        async def is_off_there():
            return not await is_on_there()

        await admin.post(path, {"enabled": True})
        await eventually(is_on_there)
        await admin.post(path, {"enabled": False})
        await eventually(is_off_there)


# Whoever asks


async def test_a_client_wakes_the_polls_of_a_queue_by_its_name(client, queue):
    await client.push_payloads(queue, 1)

    answer = await client.post(NOTIFY, {"queue": queue, "partition": "Default"})

    assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "queue is required"),
        ({"queue": "there is no such queue"}, 404, "Queue not found"),
        ({"queue": "\0"}, 400, "queue"),
        ({"wake": [[1, -1]]}, 400, "not a notice"),
        ({"changed": [["maintenance", 0]]}, 403, "unsigned"),
    ],
)
async def test_a_notification_that_says_nothing_is_refused(client, body, status, text):
    answer = await client.post(NOTIFY, body)

    assert answer.status == status
    assert text in json.loads(answer.body)["error"]


@pytest.mark.parametrize("stamp", ["nonsense", f"1.{'0' * 32}.1.1.{'0' * 64}"])
async def test_defect_49_a_forged_notification_is_refused(pair, stamp):
    here, _ = pair
    body = json.dumps({"changed": [["maintenance", 0]]}).encode()
    async with here.connect() as stranger:
        unsigned = await stranger.call("POST", NOTIFY, body)
        forged = await stranger.call("POST", NOTIFY, body, f"skep-peer-stamp: {stamp}\r\n")

    assert unsigned.status == 403
    assert forged.status in {400, 403}


async def test_a_spoofed_datagram_changes_nothing_and_is_counted(pair):
    here, _ = pair
    async with here.connect() as client:
        before = (await report(client))["peers"]["heard"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"\x01" + b"?" * 100, ("127.0.0.1", here.peer_port))
            stranger.sendto(b"?", ("127.0.0.1", here.peer_port))

        async def has_counted():
            heard = (await report(client))["peers"]["heard"]
            is_counted = all(heard[each] > before[each] for each in ("garbage", "forged"))
            return heard if is_counted else None

        after = await eventually(has_counted)

    assert after["taken"] == before["taken"]
