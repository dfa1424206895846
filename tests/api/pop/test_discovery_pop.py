"""Polls by namespace and task over HTTP: which queues serve them, and what they wait for."""

import json
from urllib.parse import quote, urlencode

import pytest

from tests.sql.support.waiting import eventually
from tests.support.broker import ack_item, elapsed, payloads

WAIT = {"wait": "true", "timeout": 20_000}


@pytest.fixture
def namespace(queue):
    """A namespace that no other test knows."""
    return f"space of {queue}"


@pytest.fixture
def create(client, queue, namespace):
    """Create a queue of the namespace; return its name."""

    async def create(suffix, *, task="", **options):
        name = f"{queue}-{suffix}"
        await client.configure(name, {"namespace": namespace, "task": task}, **options)
        return name

    return create


def discover_path(**parameters):
    return f"/api/v1/pop?{urlencode(parameters)}"


async def discover(client, **parameters):
    """Return the messages that a poll by namespace and task brings."""
    client.request("GET", discover_path(**parameters))
    return await client.popped()


@pytest.mark.parametrize("parameters", [{}, {"namespace": "", "task": ""}, {"batch": 5}])
async def test_a_namespace_or_a_task_is_required(client, parameters):
    answer = await client.call("GET", discover_path(**parameters))

    assert answer.status == 400
    assert "namespace or task is required" in json.loads(answer.body)["error"]


async def test_a_queue_may_be_named_in_the_query_instead_of_the_path(client, queue):
    await client.push_payloads(queue, 1, partition="a")
    await client.push_payloads(queue, 2, partition="b")

    only = await client.call("GET", discover_path(queue=queue, partition="b", autoAck="true"))
    rest = await client.call("GET", discover_path(queue=queue, batch=5, consumerGroup="g"))

    assert payloads(json.loads(only.body)["messages"]) == [2]
    assert json.loads(rest.body)["queue"] == queue
    assert json.loads(rest.body)["consumerGroup"] == "g"


async def test_a_queue_named_in_the_query_is_checked_as_one_in_the_path(client):
    answer = await client.call("GET", discover_path(queue="q" * 256))

    assert answer.status == 400
    assert json.loads(answer.body)["error"] == "queue is longer than 255 characters"


@pytest.mark.parametrize("name", ["namespace", "task"])
async def test_names_that_cannot_be_stored_are_refused(client, name):
    answer = await client.call("GET", discover_path(**{name: "x" * 256}))

    assert answer.status == 400


async def test_messages_name_their_queue_and_the_answer_names_none(client, create, namespace):
    queue = await create("a")
    await client.push_payloads(queue, "here", partition="p")

    answer = await client.call("GET", discover_path(namespace=namespace))
    body = json.loads(answer.body)
    (message,) = body["messages"]

    assert (answer.status, body["queue"], body["partition"]) == (200, "", "p")
    assert (message["queue"], message["data"]) == (queue, "here")
    assert (await client.ack(message))["success"] is True


async def test_only_queues_of_the_task_are_served(client, create, namespace):
    await client.push_payloads(await create("a", task="bill"), "bill")
    await client.push_payloads(await create("b", task="mail"), "mail")

    found = [
        payloads(await discover(client, namespace=namespace, task=task, autoAck="true"))
        for task in ("mail", "bill", "none")
    ]

    assert found == [["mail"], ["bill"], []]


async def test_a_namespace_without_queues_or_messages_is_empty(client, create, namespace):
    assert await discover(client, namespace=namespace) == []
    await create("a")
    assert await discover(client, namespace=namespace) == []


async def test_the_queue_of_the_highest_priority_is_served_first(client, create, namespace):
    names = [await create(str(priority), priority=priority) for priority in (1, 9, 5)]
    for name in names:
        await client.push_payloads(name, name)

    found = [
        payloads(await discover(client, namespace=namespace, autoAck="true")) for _ in range(4)
    ]

    assert found == [[names[1]], [names[2]], [names[0]], []]


async def test_queues_of_one_priority_are_served_by_turns(client, create, namespace):
    names = [await create(suffix) for suffix in "ab"]
    for name in names:
        await client.push_payloads(name, *[name] * 10)

    found = [
        payloads(await discover(client, namespace=namespace, autoAck="true"))[0] for _ in range(6)
    ]

    assert sorted(found) == sorted(names * 3)


async def test_every_queue_has_the_group_as_its_own(client, create, namespace):
    a, b = await create("a", priority=1), await create("b")
    await client.push_payloads(a, "a")
    await client.push_payloads(b, "b")
    parameters = {"namespace": namespace, "consumerGroup": "g", "subscriptionMode": "all"}

    found = [await discover(client, **parameters) for _ in range(3)]

    assert [payloads(messages) for messages in found] == [["a"], ["b"], []]
    results = [await client.ack(messages[0], consumerGroup="g") for messages in found[:2]]
    assert [result["queueName"] for result in results] == [a, b]


@pytest.mark.parametrize("suffix", ["a", "b"])
async def test_a_waiting_poll_is_answered_by_whichever_queue_gets_something(
    open_client, client, create, namespace, suffix
):
    names = {each: await create(each) for each in "ab"}
    parked = await open_client()
    parked.request("GET", discover_path(namespace=namespace, **WAIT))
    assert await discover(client, namespace=namespace) == []

    await client.push_payloads(names[suffix], "here")

    assert payloads(await parked.popped()) == ["here"]


async def test_a_queue_that_appears_while_a_poll_waits_is_noticed(
    open_client, client, create, namespace
):
    parked = await open_client()
    parked.request("GET", discover_path(namespace=namespace, **WAIT))
    assert await discover(client, namespace=namespace) == []

    await client.push_payloads(await create("new"), "here")

    assert payloads(await parked.popped()) == ["here"]


async def test_a_queue_that_is_deleted_while_a_poll_waits_is_not_created_again(
    broker, client, open_client, create, namespace
):
    doomed, other = await create("doomed"), await create("other")
    consumer = await open_client()
    consumer.request("GET", discover_path(namespace=namespace, **WAIT))
    async with broker.sql() as sql:

        async def is_awaited():
            query = """
                select count(*) = 2
                from skep.consumer_group g join skep.queue q on q.id = g.queue_id
                where q.name = any($1::text[]) and g.first_polled_at is not null"""
            return await sql.fetchval(query, [doomed, other])

        await eventually(is_awaited)
        assert (
            await client.call("DELETE", f"/api/v1/resources/queues/{quote(doomed)}")
        ).status == 200
        await client.push_payloads(other, 1)

        assert payloads(await consumer.popped()) == [1]
        assert await sql.fetchval("select count(*) from skep.queue where name = $1", doomed) == 0


async def test_a_waiting_poll_gives_up_in_time(client, create, namespace):
    await create("a")

    with elapsed() as waited:
        messages = await discover(client, namespace=namespace, wait="true", timeout=300)

    assert messages == []
    assert waited.seconds >= 0.25


async def test_what_another_queue_gets_while_a_poll_is_answered_stays_there(
    open_client, client, create, namespace
):
    names = [await create(suffix) for suffix in "ab"]
    parked = await open_client()
    parked.request("GET", discover_path(namespace=namespace, **WAIT))
    assert await discover(client, namespace=namespace) == []

    await client.push(*({"queue": name, "payload": name} for name in names))
    first = await parked.popped()
    second = await discover(client, namespace=namespace, **WAIT)

    assert sorted(payloads(first + second)) == sorted(names)
    assert [message["deliveryAttempt"] for message in first + second] == [1, 1]


async def test_a_client_that_left_takes_nothing(open_client, client, create, namespace):
    queue = await create("a")
    parked = await open_client()
    parked.request("GET", discover_path(namespace=namespace, **WAIT))
    assert await discover(client, namespace=namespace) == []
    parked.hang_up()

    await client.push_payloads(queue, "here")

    assert payloads(await client.pop(queue, wait=True, timeout=20_000)) == ["here"]


async def test_a_conflating_group_is_told_so_also_when_nothing_is_there(client, create, namespace):
    await create("a")
    parameters = {"namespace": namespace, "consumerGroup": "g", "conflation": "true"}

    answer = await client.call("GET", discover_path(**parameters))
    body = json.loads(answer.body)

    assert (body["conflation"], body["queue"], body["messages"]) == (True, "", [])


async def test_a_batch_of_one_queue_is_acked_as_usual(client, create, namespace):
    queue = await create("a")
    await client.push_payloads(queue, 1, 2, 3)

    messages = await discover(client, namespace=namespace, batch=10)
    results = await client.ack_batch(*map(ack_item, messages))

    assert [result["success"] for result in results] == [True] * 3
    assert await discover(client, namespace=namespace) == []


async def test_a_broker_that_stops_answers_those_who_wait(broker_to_stop):
    async with broker_to_stop.connect() as parked, broker_to_stop.connect() as client:
        await client.configure("q", {"namespace": "n"})
        parked.request("GET", discover_path(namespace="n", **WAIT))
        assert await discover(client, namespace="n") == []

        broker_to_stop.process.terminate()

        assert (await parked.answer()).status == 204
