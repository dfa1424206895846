"""How deep a queue is, over HTTP."""

import json
from urllib.parse import quote, urlencode

import pytest

from tests.support.broker import pop_path


async def measure(client, queue, status=200, **parameters):
    path = f"/api/v1/resources/queues/{quote(queue, safe='')}/depth?{urlencode(parameters)}"
    answer = await client.call("GET", path)
    assert answer.status == status, answer
    return json.loads(answer.body)


@pytest.fixture
def filled(client, queue, arun):
    """Fill a queue with partitions a and b; a group has read one message of a."""

    async def fill():
        await client.push_payloads(queue, 1, 2, 3, partition="a")
        await client.push_payloads(queue, 4, 5, partition="b")
        (message,) = await client.pop(queue, "a", consumerGroup="bees")
        await client.ack(message)

    arun(fill())
    return queue


async def test_the_depth_for_a_group_is_what_it_has_yet_to_finish(client, filled):
    assert await measure(client, filled, group="bees") == {
        "queue": filled,
        "group": "bees",
        "pending": 4,
        "partitionsPending": 2,
        "conflation": False,
        "effectivePending": 4,
        "estimated": False,
        "partitions": [{"partition": "a", "pending": 2}, {"partition": "b", "pending": 2}],
    }


async def test_the_depth_of_a_queue_is_that_of_its_slowest_readers(client, filled):
    await client.pop(filled, "b", consumerGroup="ants", autoAck=True)

    found = await measure(client, filled)

    assert [found["group"], found["pending"], found["partitionsPending"]] == [None, 5, 2]
    assert found["partitions"] == [
        {"partition": "a", "pending": 3},
        {"partition": "b", "pending": 2},
    ]


async def test_a_group_that_conflates_will_get_one_message_of_each_partition(client, filled):
    await client.call("GET", pop_path(filled, "c", consumerGroup="ants", conflation=True))

    found = await measure(client, filled, group="ants")

    assert [found["conflation"], found["pending"], found["effectivePending"]] == [True, 5, 2]


async def test_partitions_come_in_pages(client, filled):
    found = await measure(client, filled, group="bees", limit=1, offset=1)

    assert [found["pending"], found["partitionsPending"]] == [4, 2]
    assert found["partitions"] == [{"partition": "b", "pending": 2}]


async def test_a_page_of_a_queue_does_not_know_how_many_partitions_wait(client, filled):
    found = await measure(client, filled, limit=1)

    assert [found["pending"], found["partitionsPending"], found["estimated"]] == [4, 1, True]


async def test_what_does_not_exist_is_not_found(client, filled):
    assert (await measure(client, f"{filled}-no", 404))["error"] == "Queue not found"
    assert (await measure(client, f"{filled}-no", 404, group="g"))["error"] == "Queue not found"
    answer = await measure(client, filled, 404, group="wasps")
    assert answer["error"] == "Consumer group not found"


@pytest.mark.parametrize("parameters", [{"limit": -1}, {"limit": 1001}, {"offset": -1}])
async def test_a_bad_page_is_refused(client, filled, parameters):
    await measure(client, filled, 400, **parameters)
