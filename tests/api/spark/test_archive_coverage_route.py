"""Which time of which queue is in the archive, over HTTP."""

import json

import pytest


async def test_a_queue_that_wants_an_archive_is_listed(client, queue):
    await client.configure(queue, archiveAfterSeconds=3600)
    await client.push_payloads(queue, 1)

    answer = await client.call("GET", "/api/v1/archive?limit=1000")

    page = json.loads(answer.body)
    (found,) = [each for each in page["queues"] if each["queue"] == queue]
    assert (found["isWanted"], found["messages"], found["coveredTo"]) == (True, 0, None)
    assert found["liveFrom"].endswith("Z")
    assert page["total"] >= 1


async def test_a_page_beyond_the_end_still_knows_the_total(client, queue):
    await client.configure(queue, archiveAfterSeconds=3600)

    answer = await client.call("GET", "/api/v1/archive?offset=100000")

    page = json.loads(answer.body)
    assert (page["queues"], page["total"] >= 1) == ([], True)


@pytest.mark.parametrize("query", ["limit=-1", "limit=1001", "offset=-1"])
async def test_a_page_of_the_archive_that_cannot_be_is_refused(client, query):
    assert (await client.call("GET", f"/api/v1/archive?{query}")).status == 400
