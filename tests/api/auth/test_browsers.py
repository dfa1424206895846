"""What browsers are told, and what other people's pages may not do."""

import json
import re

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

LISTED = "https://app.example.com"
FOREIGN = "https://evil.example.org"
PUSH = ("POST", "/api/v1/push", b'{"items":[]}')
LIST = ("GET", "/api/v1/resources/queues", b"")
DELETE = ("DELETE", "/api/v1/resources/queues/nothing", b"")


def origin(text, further=""):
    return f"Origin: {text}\r\n{further}"


@pytest.fixture(scope="module")
def cors_broker(start_broker):
    with start_broker("--workers", "1", cors_origins=LISTED) as broker:
        yield broker


@pytest.mark.parametrize("call", [PUSH, LIST, DELETE], ids=lambda call: call[1])
async def test_defect_51_pages_of_others_may_not_call_the_broker(client, call):
    answer = await client.call(*call, origin(FOREIGN))

    assert answer.status == 403
    assert json.loads(answer.body)["code"] == "foreign_origin"
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("path", [PUSH[1], DELETE[1]])
async def test_defect_51_a_preflight_of_others_is_refused(client, path):
    asking = "Access-Control-Request-Method: POST\r\n"
    answer = await client.call("OPTIONS", path, b"", origin(FOREIGN, asking))

    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("call", [PUSH, LIST, DELETE], ids=lambda call: call[1])
async def test_programs_and_our_own_pages_notice_nothing(client, call):
    for headers in ("", origin("http://test")):
        answer = await client.call(*call, headers)
        assert answer.status in {200, 201}
        assert "access-control-allow-origin" not in answer.headers


async def test_a_listed_page_may_ask_and_call(cors_broker):
    async with cors_broker.connect() as client:
        asking = "Access-Control-Request-Method: POST\r\n"
        preflight = await client.call("OPTIONS", PUSH[1], b"", origin(LISTED, asking))
        answers = [await client.call(*call, origin(LISTED)) for call in (PUSH, LIST)]
        foreign = await client.call(*PUSH, origin(FOREIGN))

    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == LISTED
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in preflight.headers
    for answer in answers:
        assert answer.status in {200, 201}
        assert answer.headers["access-control-allow-origin"] == LISTED
        assert answer.headers["vary"] == "origin"
    assert foreign.status == 403


BROWSER = "User-Agent: Mozilla/5.0 (X11)\r\nAccept-Language: en\r\n"
PICTURE = "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n"
NODE = "accept-language: *\r\nsec-fetch-mode: cors\r\nuser-agent: node\r\n"


@pytest.mark.parametrize(
    ("headers", "status"),
    [(BROWSER, 403), (PICTURE, 403), (PICTURE.upper(), 403), (NODE, 200), ("", 200)],
    ids=["silent browser", "picture", "in capitals", "Node", "program"],
)
async def test_a_message_is_not_for_the_pages_of_others(client, queue, headers, status):
    await client.push_payloads(queue, "kept")
    path = f"/api/v1/pop/queue/{queue}?autoAck=true"
    answer = await client.call("GET", path, b"", headers)
    left = await client.pop(queue)

    assert answer.status == status
    assert len(left) == (status == 403)
    if status == 403:
        assert json.loads(answer.body)["code"] == "cross_site"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("call", [PUSH, LIST], ids=lambda call: call[1])
async def test_a_page_whose_name_became_ours_may_not_call(open_client, broker, call):
    method, path, body = call
    client = await open_client()
    lines = f"Host: evil.org\r\ncontent-length: {len(body)}\r\n"
    for said in ("Origin: http://evil.org\r\n", BROWSER):
        client.send(f"{method} {path} HTTP/1.1\r\n{lines}{said}\r\n".encode() + body)
        answer = await client.answer()

        assert answer.status == 403
        assert "allowed_hosts" in json.loads(answer.body)["error"]

    client.send(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    assert (await client.answer()).status in {200, 201}


async def test_a_foreign_page_cannot_open_a_socket(broker, queue):
    url = f"ws://127.0.0.1:{broker.port}/api/v1/stream/queue/{queue}"
    with pytest.raises(InvalidStatus) as refusal:
        async with connect(url, proxy=None, origin=FOREIGN):
            pass

    assert refusal.value.response.status_code == 403


async def test_a_socket_of_our_own_page_is_opened(broker, queue):
    url = f"ws://127.0.0.1:{broker.port}/api/v1/stream/queue/{queue}"
    async with connect(url, proxy=None, origin=f"http://127.0.0.1:{broker.port}") as socket:
        await socket.send('{"type":"ping"}')
        assert json.loads(await socket.recv()) == {"type": "pong"}


async def test_answers_tell_browsers_to_trust_nothing(client):
    for path in ("/docs", "/openapi.json", "/api/v1/resources/queues"):
        headers = (await client.call("GET", path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_the_page_of_the_documents_runs_its_own_script_and_no_other(client):
    policy = (await client.call("GET", "/docs")).headers["content-security-policy"]

    assert "unsafe-inline" not in policy
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}';", policy)
    assert re.search(r"style-src 'sha256-[A-Za-z0-9+/=]{44}';", policy)
