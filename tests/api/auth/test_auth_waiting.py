"""Tokens at a broker that waits for its database: pushes are stored on disk, for those who may."""

import json

import pytest

from tests.faults.support.instances import well_ending_instance
from tests.support.ports import free_port
from tests.support.tokens import SECRET, bearer

WAYS = pytest.mark.parametrize("way", ["", "Origin: http://test\r\n"], ids=["fast path", "asgi"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {
        "jwt_enabled": "true",
        "jwt_secret": SECRET,
        "start_without_database": "always",
        "spill_dir": tmp_path_factory.mktemp("spill"),
        "body_bytes_max": 1 << 20,
    }
    away = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"
    with well_ending_instance(away, "--workers", "1", **settings) as broker:
        yield broker


@WAYS
async def test_a_long_body_without_a_token_is_refused_before_it_is_sent(client, way):
    head = f"POST /api/v1/push HTTP/1.1\r\nhost: test\r\n{way}content-length: 1000000\r\n\r\n"
    client.send(head.encode() + b"x" * 1000)

    assert (await client.answer()).status == 401


@WAYS
async def test_a_push_is_stored_on_disk_for_those_who_may(client, queue, way):
    body = json.dumps({"items": [{"queue": queue, "payload": 1}]}).encode()
    answers = [
        await client.call("POST", "/api/v1/push", body, bearer(role) + way)
        for role in ("read-only", "read-write")
    ]

    assert [answer.status for answer in answers] == [403, 201]
    assert json.loads(answers[1].body)[0]["status"] == "buffered"
