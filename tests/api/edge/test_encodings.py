"""Compressed request bodies, on hot routes and others: taken, refused, and never too large."""

import gzip
import json
import runpy
import sys

import pytest
import zstandard

from skep.server.edge import encodings
from tests.support.broker import payloads

BODY_BYTES_MAX = 1 << 20
PUSH, CONFIGURE = "/api/v1/push", "/api/v1/configure"
PACK = {"gzip": gzip.compress, "x-gzip": gzip.compress, "zstd": zstandard.compress}


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1", body_bytes_max=BODY_BYTES_MAX) as broker:
        yield broker


def encoding(name):
    return f"Content-Encoding: {name}\r\n"


def spelled(queue, payload="packed"):
    return json.dumps({"queue": queue, "items": [{"queue": queue, "payload": payload}]}).encode()


def chunked(path, data, headers, size=100):
    """Return a request whose body comes in chunks, of which none is whole in itself."""
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])
    head = f"POST {path} HTTP/1.1\r\nhost: test\r\n{headers}transfer-encoding: chunked\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("name", PACK)
async def test_a_compressed_body_is_taken(client, queue, name):
    packed = PACK[name](spelled(queue))
    pushed = await client.call("POST", PUSH, packed, encoding(name.upper()))
    configured = await client.call("POST", CONFIGURE, packed, encoding(name))

    assert (pushed.status, configured.status) == (201, 201)
    assert payloads(await client.pop(queue)) == ["packed"]


@pytest.mark.parametrize("name", ["gzip", "zstd"])
async def test_a_compressed_body_may_come_in_chunks(client, queue, name):
    text = "".join(f"{number:x}" for number in range(100_000))
    client.send(chunked(PUSH, PACK[name](spelled(queue, text)), encoding(name)))

    assert (await client.answer()).status == 201
    assert payloads(await client.pop(queue)) == [text]


async def test_a_body_that_is_said_not_to_be_compressed_is_taken(client, queue):
    answer = await client.call("POST", PUSH, spelled(queue), encoding("identity"))

    assert answer.status == 201


@pytest.mark.parametrize("path", [PUSH, CONFIGURE])
@pytest.mark.parametrize("name", ["br", "deflate", "gzip, zstd", "bee"])
async def test_an_encoding_that_we_do_not_speak_is_refused_by_name(client, queue, path, name):
    answer = await client.call("POST", path, spelled(queue), encoding(name))

    assert answer.status == 415
    assert answer.headers["accept-encoding"] == "gzip, zstd"
    assert json.loads(answer.body)["code"] == "unsupported_encoding"


@pytest.mark.parametrize("path", [PUSH, CONFIGURE])
@pytest.mark.parametrize("name", ["gzip", "zstd"])
async def test_a_small_body_that_becomes_too_large_is_refused(client, path, name):
    bomb = PACK[name](bytes(100 * BODY_BYTES_MAX))
    assert len(bomb) < BODY_BYTES_MAX

    answer = await client.call("POST", path, bomb, encoding(name))

    assert answer.status == 413
    assert json.loads(answer.body)["code"] == "payload_too_large"


@pytest.mark.parametrize("path", [PUSH, CONFIGURE])
@pytest.mark.parametrize("name", ["gzip", "zstd"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda packed: packed[:-3], "ends in the middle"),
        (lambda packed: packed + b"more", "goes on after"),
        (lambda packed: packed * 2, "goes on after"),
        (lambda packed: b"{" + packed, "is not valid"),
    ],
    ids=["cut", "followed", "twice", "damaged"],
)
async def test_a_damaged_body_is_refused(client, queue, path, name, damage, reason):
    body = damage(PACK[name](spelled(queue)))
    answer = await client.call("POST", path, body, encoding(name))

    assert answer.status == 400
    assert reason in json.loads(answer.body)["error"]


async def test_a_request_without_a_body_may_name_an_encoding(client):
    answer = await client.call("GET", "/api/v1/resources/queues", b"", encoding("gzip"))

    assert answer.status == 200


def test_without_its_package_zstd_is_not_among_the_encodings(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)

    assert runpy.run_path(encodings.__file__)["ACCEPTED"] == "gzip"
