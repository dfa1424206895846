"""HEAD: answered wherever GET is, unless that would consume messages."""

import pytest

PATHS = (
    "/health",
    "/livez",
    "/openapi.json",
    "/docs",
    "/metrics/prometheus",
    "/api/v1/resources/queues",
    "/api/v1/status",
    "/api/v1/messages/of-nothing",
    "/no/such/path",
)


async def head_of(broker, path):
    """Return status and headers; the answer is the last, so a body would show."""
    async with broker.connect() as client:
        client.request("HEAD", path, headers="connection: close\r\n")
        head, end, body = (await client.rest()).decode().partition("\r\n\r\n")
    assert (end, body) == ("\r\n\r\n", "")
    first, *lines = head.split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines)


@pytest.mark.parametrize("path", PATHS)
async def test_head_is_answered_like_get_without_the_body(broker, client, path):
    answer = await client.call("GET", path)
    status, headers = await head_of(broker, path)

    assert status == answer.status
    assert headers["content-type"] == answer.headers["content-type"].lower()
    assert int(headers["content-length"]) > 0


async def test_head_of_an_event_stream_ends(broker, client, queue):
    await client.configure(queue)
    status, headers = await head_of(broker, f"/api/v1/stream/queue/{queue}/events")

    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")


async def test_a_connection_goes_on_after_head(broker):
    async with broker.connect() as client:
        client.request("HEAD", "/livez")
        client.request("GET", "/livez", headers="connection: close\r\n")
        answers = (await client.rest()).split(b"HTTP/1.1 ")[1:]

    assert [answer[:3] for answer in answers] == [b"200", b"200"]
    assert answers[0].endswith(b"\r\n\r\n")


@pytest.mark.parametrize("path", ["/api/v1/pop/queue/{}", "/api/v1/pop?namespace={}"])
async def test_head_consumes_no_message(broker, client, queue, path):
    await client.push_payloads(queue, "kept")
    status, headers = await head_of(broker, path.format(queue) + "&autoAck=true")

    assert (status, headers["allow"]) == (405, "get")
    assert len(await client.pop(queue)) == 1


async def test_a_path_without_get_has_no_head(broker):
    status, headers = await head_of(broker, "/api/v1/configure")

    assert status == 405
    assert "post" in headers["allow"]


async def test_a_path_with_get_says_that_it_has_head(client):
    answer = await client.call("DELETE", "/health")

    assert answer.status == 405
    assert {"GET", "HEAD"} <= {each.strip() for each in answer.headers["allow"].split(",")}
