"""A key server that rotates its keys, stalls and goes away, while the broker serves."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.tokens import (
    SECRET,
    bearer,
    claims,
    key_document,
    private_key,
    public_entry,
    sign,
)

PATIENCE_S = 20
EMPTY_PUSH = b'{"items":[]}'


class KeyPlace(ThreadingHTTPServer):
    """Serves a JWKS document, late or not at all if the test says so."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.document = key_document(public_entry("EdDSA", "first", kid="first"))
        self.status = 200
        self.fetches = 0
        self.gate = threading.Event()
        self.gate.set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/keys"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.fetches += 1
        self.server.gate.wait(PATIENCE_S)
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("location", self.server.url + "/elsewhere")
        self.send_header("content-length", str(len(self.server.document)))
        self.end_headers()
        self.wfile.write(self.server.document)

    def log_message(self, *_):
        pass


@pytest.fixture
def place(request):
    """A key server; a test may ask for one that answers so, or that stalls from the start."""
    place = KeyPlace()
    wish = getattr(request, "param", 200)
    if wish == "stalled":
        place.gate.clear()
    else:
        place.status = wish
    yield place
    place.gate.set()
    place.shutdown()
    place.server_close()


@pytest.fixture
def broker(start_broker, place):
    settings = {
        "jwt_enabled": "true",
        "jwt_algorithm": "auto",
        "jwt_secret": SECRET,
        "jwt_jwks_url": place.url,
        "jwt_jwks_timeout_s": PATIENCE_S,
    }
    with start_broker("--workers", "1", **settings) as broker:
        yield broker


def of(name):
    text = sign(claims(), "EdDSA", private_key("EdDSA", name), kid=name)
    return f"Authorization: Bearer {text}\r\n"


async def push(client, headers):
    return await client.call("POST", "/api/v1/push", EMPTY_PUSH, headers)


async def test_a_token_is_verified_with_the_keys_of_the_server(client):
    assert (await push(client, of("first"))).status == 201
    assert (await push(client, of("another"))).status == 401


@pytest.mark.parametrize("place", ["stalled"], indirect=True)
@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/dlq/redrive"], ids=["hot", "cold"])
async def test_defect_50_a_key_server_that_stalls_holds_up_only_those_who_need_it(
    client, open_client, place, path
):
    stranger = await open_client()
    stranger.request("POST", path, EMPTY_PUSH, of("first"))
    for _ in range(20):
        assert (await push(client, bearer())).status == 201

    place.gate.set()
    assert (await stranger.answer()).status in {201, 202}


@pytest.mark.parametrize("place", ["stalled"], indirect=True)
async def test_who_hangs_up_while_keys_are_fetched_is_not_served(client, open_client, place, queue):
    stranger = await open_client()
    body = json.dumps({"items": [{"queue": queue, "payload": "late"}]}).encode()
    stranger.request("POST", "/api/v1/push", body, of("first"))
    await push(client, bearer())
    stranger.hang_up()
    await push(client, bearer())
    place.gate.set()
    assert (await push(client, of("first"))).status == 201

    answer = await client.call("GET", f"/api/v1/pop/queue/{queue}", b"", bearer())
    assert answer.status == 204


@pytest.mark.parametrize("place", [500], indirect=True)
async def test_without_any_key_callers_are_told_to_try_again(client):
    for path in ("/api/v1/push", "/api/v1/traces"):
        answer = await client.call("POST", path, EMPTY_PUSH, of("first"))
        assert answer.status == 503
        assert json.loads(answer.body)["code"] == "unavailable"
        assert int(answer.headers["retry-after"]) >= 1
    assert (await client.call("GET", "/livez")).status == 200


@pytest.mark.parametrize("place", [302], indirect=True)
async def test_a_key_server_is_not_followed_elsewhere(broker, client, place):
    assert (await push(client, of("first"))).status == 503
    assert place.fetches == 1
    assert "302" in broker.log()
