"""Encrypted messages over HTTP: shown in clear to those who may read, and never by accident."""

import json

import httpx
import pytest

from skep.model.encryption import KeyRing
from skep.model.encryption_key import EncryptionKey

KEY = EncryptionKey("new", bytes(range(32)))
OLD_KEY = EncryptionKey("old", bytes(range(32, 64)))
LOST_KEY = EncryptionKey("lost", bytes(range(64, 96)))


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker with a key, and the one before it."""
    keys = ",".join(f"{key.id}:{key.secret.hex()}" for key in (KEY, OLD_KEY))
    with start_broker("--workers", "1", encryption_keys=keys) as broker:
        yield broker
        log = broker.log()
    assert not [key.id for key in (KEY, OLD_KEY) if key.secret.hex() in log]


async def pushed_and_sealed(broker, client, queue, key):
    """Push a message, trace it, and seal it where it lies; return what the push answered."""
    (message,) = await client.push({"queue": queue, "payload": {"card": 4111}})
    answer = await client.post(
        "/api/v1/traces",
        {
            "transactionId": message["transaction_id"],
            "partitionId": message["partition_id"],
            "data": 1,
            "traceNames": [queue],
        },
    )
    assert answer.status == 201
    async with broker.sql() as sql:
        body = "from skep.segment s join skep.queue q on q.id = s.queue_id where q.name = $1"
        envelope = (await sql.fetchval(f"select s.body {body}", queue))[1:-1]
        sealed = b"[%b]" % KeyRing([key]).seal_envelope(envelope)
        await sql.execute(
            "update skep.segment s set body = $2 from skep.queue q "
            "where q.id = s.queue_id and q.name = $1",
            queue,
            sealed,
        )
    return message


async def traced(client, queue):
    answer = await client.call("GET", f"/api/v1/traces/by-name/{queue}")
    [trace] = json.loads(answer.body)["traces"]
    return trace["message_payload"], trace["payload_error"]


async def watched(broker, queue):
    """Return the first message that a stream of events shows."""
    url = f"{broker.url}/api/v1/stream/queue/{queue}/events?from=start"
    async with (
        httpx.AsyncClient(trust_env=False, timeout=20) as http,
        http.stream("GET", url) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
    return None


@pytest.mark.parametrize("key", [KEY, OLD_KEY], ids=lambda key: key.id)
async def test_traces_and_streams_show_the_payload_in_clear(broker, client, queue, key):
    await pushed_and_sealed(broker, client, queue, key)

    assert await traced(client, queue) == ({"card": 4111}, None)
    message = await watched(broker, queue)
    assert message["data"] == {"card": 4111}
    assert "enc" not in message


async def test_a_message_under_a_key_that_is_lost_says_so(broker, client, queue):
    await pushed_and_sealed(broker, client, queue, LOST_KEY)

    reason = "the message is encrypted with key 'lost', which this instance does not have"
    assert await traced(client, queue) == (None, reason)
    message = await watched(broker, queue)
    assert [message["data"], message["error"]] == [None, reason]


async def test_a_message_that_was_altered_says_so(broker, client, queue):
    await pushed_and_sealed(broker, client, queue, EncryptionKey("new", LOST_KEY.secret))

    payload, reason = await traced(client, queue)

    assert payload is None
    assert reason.startswith("the message does not open with key 'new'")
