"""Tokens over HTTP: who is let in on each way, and whose name messages carry."""

import asyncio
import json
import time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.tokens import (
    SECRET,
    claims,
    private_key,
    public_pem,
    sign,
    spelled,
)

PATIENCE_S = 60
FROM_A_PAGE = "Origin: http://test\r\n"
EMPTY_PUSH = b'{"items":[]}'


@pytest.fixture(scope="module")
def broker(start_broker):
    settings = {
        "jwt_enabled": "true",
        "jwt_algorithm": "auto",
        "jwt_secret": SECRET,
        "jwt_public_key": public_pem("RS256"),
        "jwt_issuer": "us",
        "jwt_audience": "skep",
        "jwt_clock_skew_s": 0,
        "log_level": "debug",
        "body_bytes_max": 1 << 20,
    }
    with start_broker("--workers", "1", **settings) as broker:
        yield broker


def good(role="admin", **members):
    """Return claims that this broker accepts."""
    return claims(role, **{"iss": "us", "aud": "skep", **members})


def authorization(text):
    return f"Authorization: Bearer {text}\r\n"


def of(role="admin", **members):
    return authorization(sign(good(role, **members)))


REFUSED = {
    "forged": sign(good(), key="x" * 40),
    "expired": sign(good(lives_s=-5)),
    "not yet valid": sign(good(nbf=int(time.time()) + 600)),
    "without a signature": spelled({"alg": "none"}, good()),
    "for another audience": sign(good(aud="others")),
    "of another issuer": sign(good(iss="them")),
    "signed with the public key": spelled({"alg": "HS256"}, good(), public_pem("RS256").encode()),
    "of another algorithm": sign(good(), "RS512", private_key("RS256")),
    "without an end": sign(good(exp=None)),
    "oversized": sign(good(padding="x" * 9_000)),
    "garbage": "garbage",
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize(
    ("method", "path", "way"),
    [
        ("POST", "/api/v1/push", ""),
        ("POST", "/api/v1/push", FROM_A_PAGE),
        ("GET", "/api/v1/resources/queues", ""),
    ],
    ids=["fast path", "asgi", "cold"],
)
async def test_a_token_that_cannot_be_believed_is_refused(client, method, path, way, refused):
    answer = await client.call(method, path, EMPTY_PUSH, authorization(refused) + way)

    assert answer.status == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="skep", error="invalid_token"'
    assert refused.encode() not in answer.body


@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/traces"])
async def test_a_caller_without_a_token_is_told_how_to_authenticate(client, path):
    answer = await client.call("POST", path, EMPTY_PUSH)

    assert answer.status == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="skep"'
    assert json.loads(answer.body) == {
        "error": "Authentication required.",
        "code": "unauthenticated",
    }


@pytest.mark.parametrize("way", ["", FROM_A_PAGE], ids=["fast path", "asgi"])
async def test_tokens_of_both_kinds_of_key_are_accepted(client, way):
    by_secret = sign(good())
    by_key = sign(good(), "RS256", private_key("RS256"))
    for text in (by_secret, by_key):
        answer = await client.call("POST", "/api/v1/push", EMPTY_PUSH, authorization(text) + way)
        assert answer.status == 201


async def test_a_token_without_a_role_may_do_nothing(client):
    answer = await client.call("GET", "/api/v1/resources/queues", b"", of(role=None))

    assert answer.status == 403


async def test_a_long_body_is_refused_before_it_is_sent(broker, open_client):
    client = await open_client()
    head = "POST /api/v1/push HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\n"
    client.send(head.encode() + b"x" * 1000)

    answer = await client.answer()

    assert answer.status == 401


class TestPublic:
    @pytest.mark.parametrize("path", ["/health", "/livez", "/readyz", "/docs", "/openapi.json"])
    async def test_what_is_public_needs_no_token(self, client, path):
        assert (await client.call("GET", path)).status == 200

    async def test_a_path_that_does_not_exist_is_no_secret(self, client):
        assert (await client.call("GET", "/api/v1/nothing")).status == 404


class TestProducer:
    """Who pushed a message is told by the server, whatever its producer says."""

    async def stored(self, client, queue):
        path = f"/api/v1/pop/queue/{queue}?autoAck=true&wait=true"
        answer = await client.call("GET", path, b"", of())
        assert answer.status == 200, answer
        (message,) = json.loads(answer.body)["messages"]
        return message["producerSub"]

    async def post(self, client, path, body, subject="alice"):
        headers = of("read-write", sub=subject)
        answer = await client.call("POST", path, json.dumps(body).encode(), headers)
        assert answer.status in {200, 201}, answer
        return json.loads(answer.body)

    @pytest.mark.parametrize("way", ["plain", "headers"])
    async def test_of_a_push(self, client, queue, way):
        item = {"queue": queue, "payload": 1, "producerSub": "mallory"}
        if way == "headers":
            item["headers"] = {"producerSub": "mallory"}
        await self.post(client, "/api/v1/push", {"items": [item]})

        assert await self.stored(client, queue) == "alice"

    async def test_of_a_transaction(self, client, queue):
        push = {
            "type": "push",
            "items": [{"queue": queue, "payload": 1, "producerSub": "mallory"}],
        }
        await self.post(client, "/api/v1/transaction", {"operations": [push]})

        assert await self.stored(client, queue) == "alice"

    async def test_of_a_stream_cycle(self, client, queue):
        pushed = await self.post(
            client, "/api/v1/push", {"items": [{"queue": f"{queue}-in", "payload": 1}]}
        )
        query = {"name": queue, "source_queue": f"{queue}-in", "config_hash": "h"}
        query_id = (await self.post(client, "/streams/v1/queries", query))["query_id"]
        cycle = {
            "query_id": query_id,
            "partition_id": pushed[0]["partition_id"],
            "push_items": [{"queue": queue, "payload": 1, "producerSub": "mallory"}],
        }
        assert (await self.post(client, "/streams/v1/cycle", cycle, subject="bob"))["success"]

        assert await self.stored(client, queue) == "bob"

    async def test_of_a_message_for_later(self, client, queue):
        item = {"queue": queue, "payload": 1, "delaySeconds": 3600, "producerSub": "mallory"}
        (result,) = await self.post(client, "/api/v1/push", {"items": [item]})
        path = f"/api/v1/scheduled/{result['scheduledId']}/deliver"
        await self.post(client, path, {}, subject="bob")

        assert await self.stored(client, queue) == "alice"

    async def test_of_a_dead_letter_that_was_put_back(self, client, queue):
        await self.post(client, "/api/v1/push", {"items": [{"queue": queue, "payload": 1}]})
        answer = await client.call("GET", f"/api/v1/pop/queue/{queue}", b"", of())
        (message,) = json.loads(answer.body)["messages"]
        place = f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}"
        await self.post(client, f"{place}/dlq", {}, subject="bob")
        await self.post(client, f"{place}/retry", {}, subject="bob")

        assert await self.stored(client, queue) == "alice"

    async def test_of_nobody_is_null(self, client, queue):
        headers = of("read-write", sub=None)
        body = json.dumps({"items": [{"queue": queue, "payload": 1}]}).encode()
        assert (await client.call("POST", "/api/v1/push", body, headers)).status == 201

        assert await self.stored(client, queue) is None


class TestAccount:
    async def test_a_caller_is_told_who_it_is(self, client):
        expires_at = int(time.time()) + 500
        headers = of("read-only", sub="alice", exp=expires_at)
        answer = await client.call("GET", "/api/me", b"", headers)

        account = json.loads(answer.body)
        assert account["authenticated"]
        assert account["user"] == {"username": "alice", "role": "read-only"}
        assert not account["isRestricted"]
        assert account["expiresAt"].endswith("Z")

    async def test_logging_out_leaves_the_token_as_it_is(self, client):
        headers = of("read-only")
        assert (await client.call("POST", "/api/logout", b"", headers)).status == 200
        assert (await client.call("GET", "/api/me", b"", headers)).status == 200


class TestSocket:
    def url(self, broker, queue):
        return f"ws://127.0.0.1:{broker.port}/api/v1/stream/queue/{queue}"

    def connect(self, broker, queue, text=None, **options):
        headers = {"Authorization": f"Bearer {text}"} if text else {}
        return connect(self.url(broker, queue), proxy=None, additional_headers=headers, **options)

    async def refusal(self, connecting):
        with pytest.raises(InvalidStatus) as refusal:
            async with connecting:
                pass
        return refusal.value.response

    async def test_a_socket_needs_a_token(self, broker, queue):
        answer = await self.refusal(self.connect(broker, queue))

        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="skep"'

    async def test_a_token_that_cannot_be_believed_is_refused(self, broker, queue):
        answer = await self.refusal(self.connect(broker, queue, REFUSED["forged"]))

        assert answer.status_code == 401
        assert json.loads(answer.body)["error"] == "Invalid token signature"

    async def test_a_reader_may_not_consume(self, broker, queue):
        answer = await self.refusal(self.connect(broker, queue, sign(good("read-only"))))

        assert answer.status_code == 403

    async def test_a_browser_offers_its_token_as_a_subprotocol(self, broker, queue):
        offered = ["skep", f"bearer.{sign(good('read-write'))}"]
        async with self.connect(broker, queue, subprotocols=offered) as socket:
            assert socket.subprotocol == "skep"
            await socket.send('{"type":"ping"}')
            async with asyncio.timeout(PATIENCE_S):
                assert json.loads(await socket.recv()) == {"type": "pong"}

    async def test_a_socket_closes_when_its_token_expires(self, broker, queue):
        async with self.connect(broker, queue, sign(good("read-write", lives_s=4))) as socket:
            async with asyncio.timeout(PATIENCE_S):
                told = json.loads(await socket.recv())
                await socket.wait_closed()

        assert (told["type"], told["error"]) == ("error", "Token has expired")
        assert socket.close_code == 1008


async def test_defect_50_what_administrators_do_is_on_record_and_tokens_are_not(
    broker, client, queue
):
    secret = of("admin", sub="alice")
    path = f"/api/v1/resources/queues/{queue}"
    assert (await client.call("DELETE", path, b"", secret)).status == 200
    await client.call("POST", "/api/v1/push", b"{", secret)

    log = broker.log()
    assert "subject='alice' method='DELETE'" in log
    assert path in log
    assert SECRET not in log
    assert secret.split()[2] not in log
    assert public_pem("RS256").splitlines()[1] not in log
