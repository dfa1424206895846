"""The same handlers behind plain ASGI, and the application around them, without a socket."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest

from skep.broker.queues.configure import Configured
from skep.broker.traces import NewTrace
from skep.model import stream_wire, wire
from skep.model.errors import Defect, NotFound, Unavailable
from skep.model.queue_options import QueueOptions
from skep.server.api_document import shapes
from skep.server.api_document.openapi import merge_document, operations_served
from skep.server.api_document.operations import HOT_OPERATIONS
from skep.server.app import build_cold_app
from skep.server.auth.guard import Guard
from skep.server.auth.scopes import Scopes
from skep.server.hot.asgi import HotGate
from skep.server.hot.exchange import HotRoutes
from skep.server.routes.health import Vitals
from skep.server.routes.queues import configure_route
from tests.api.support.edge import Desk, echo

BODY_BYTES_MAX = 1000


class FakeProbe:
    def __init__(self):
        self.is_database_connected = True
        self.reason = None

    async def vitals(self):
        return Vitals(
            is_database_connected=self.is_database_connected,
            server="here",
            worker_id=3,
            version="1.2.3",
            shared_state={"enabled": False},
        )

    async def why_not_ready(self):
        return self.reason


class FakeConfigure:
    async def configure_queue(self, queue, *, options, **_):
        if queue == "broken":
            raise ValueError("a secret")
        if queue == "away":
            raise Unavailable
        return Configured(
            queue_id="q",
            partition_id="p",
            queue=queue,
            namespace="",
            task="",
            options=QueueOptions(retry_limit=options.get("retryLimit", 3)),
        )


def hot_routes(desk):
    routes = HotRoutes()
    routes.add(b"POST", b"/api/v1/push", echo)
    routes.add(b"POST", b"/api/v1/ack", desk)
    routes.add(b"POST", b"/api/v1/ack/batch", desk)
    routes.add_prefix(b"GET", b"/api/v1/pop/queue/", echo)
    routes.add_prefix(b"POST", b"/api/v1/lease/", desk, suffix=b"/extend")
    return routes


@asynccontextmanager
async def client(*, desk=None, probe=None, routes=None):
    routes = routes or hot_routes(desk or Desk())
    cold = build_cold_app(
        routes,
        probe=probe or FakeProbe(),
        guard=Guard(Scopes(None)),
        body_bytes_max=BODY_BYTES_MAX,
        version="1.2.3",
        further_routes=configure_route(FakeConfigure()),
    )
    transport = httpx.ASGITransport(HotGate(routes, cold, body_bytes_max=BODY_BYTES_MAX))
    async with httpx.AsyncClient(transport=transport, base_url="http://skep") as http:
        yield http


# Exchanges


async def test_a_handler_answers_at_once():
    async with client() as http:
        answer = await http.post("/api/v1/push", content=b"{}")

        assert (answer.status_code, answer.content) == (200, b"POST /api/v1/push {}")
        assert answer.headers["content-type"] == "application/json"


async def test_a_handler_answers_later_with_headers_of_its_own():
    desk = Desk()
    async with client(desk=desk) as http:
        asking = asyncio.create_task(http.post("/api/v1/ack?a=1", headers={"X-Token": "s"}))
        exchange = await desk.next()
        assert exchange.head.query == b"a=1"
        assert exchange.header(b"x-token") == b"s"
        assert exchange.header(b"x-absent") is None
        assert exchange.respond(503, b"{}", headers=b"retry-after: 7\r\nx-more: a: b\r\n")
        answer = await asking

        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "7"
        assert answer.headers["x-more"] == "a: b"


async def test_204_has_no_length():
    desk = Desk()
    async with client(desk=desk) as http:
        asking = asyncio.create_task(http.post("/api/v1/ack"))
        (await desk.next()).respond(204)
        answer = await asking

        assert answer.status_code == 204
        assert "content-length" not in answer.headers


async def test_a_handler_sees_the_path_as_it_was_sent():
    async with client() as http:
        answer = await http.get("/api/v1/pop/queue/a%2Fb")

        assert answer.content == b"GET /api/v1/pop/queue/a%2Fb "


async def test_an_error_raised_by_a_handler_is_answered_from_the_table():
    def refuse(exchange):
        raise NotFound("no such thing")

    async with client(desk=refuse) as http:
        answer = await http.post("/api/v1/ack")

        assert answer.status_code == 404
        assert answer.json() == {"error": "no such thing", "code": "not_found"}


async def test_answering_twice_is_a_defect():
    desk = Desk()
    async with client(desk=desk) as http:
        asking = asyncio.create_task(http.post("/api/v1/ack"))
        exchange = await desk.next()
        exchange.respond(200)
        with pytest.raises(Defect):
            exchange.respond(200)
        await asking


async def test_too_large_a_body_is_refused():
    async with client() as http:
        answer = await http.post("/api/v1/push", content=b"x" * (BODY_BYTES_MAX + 1))

        assert answer.status_code == 413
        assert answer.json()["code"] == "payload_too_large"


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "DELETE"])
async def test_another_method_on_a_hot_path_is_not_allowed(method):
    async with client() as http:
        answer = await http.request(method, "/api/v1/lease/x/extend")

        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"
        assert answer.json()["code"] == "method_not_allowed"


class AsgiServer:
    """The server's side of one ASGI request."""

    def __init__(self, *events):
        self._events = asyncio.Queue()
        for event in events:
            self._events.put_nowait(event)
        self.sent = []

    async def receive(self):
        return await self._events.get()

    async def send(self, message):
        self.sent.append(message)

    def disconnect(self):
        self._events.put_nowait({"type": "http.disconnect"})


SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/api/v1/ack",
    "query_string": b"",
    "headers": [],
}


def call(server, desk):
    gate = HotGate(hot_routes(desk), None, body_bytes_max=BODY_BYTES_MAX)
    return asyncio.create_task(gate(SCOPE, server.receive, server.send))


async def test_a_client_that_hangs_up_aborts_its_exchange_once():
    desk, calls = Desk(), []
    server = AsgiServer(
        {"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request"}
    )
    serving = call(server, desk)
    exchange = await desk.next()
    exchange.when_aborted(lambda: calls.append("aborted"))

    server.disconnect()
    await serving

    assert exchange.body == b"a"
    assert calls == ["aborted"]
    assert exchange.respond(200) is False
    exchange.when_aborted(lambda: calls.append("late"))
    assert calls == ["aborted", "late"]
    assert server.sent == []


async def test_an_answered_exchange_is_not_aborted():
    desk, calls = Desk(), []
    server = AsgiServer({"type": "http.request"})
    serving = call(server, desk)
    exchange = await desk.next()
    exchange.when_aborted(lambda: calls.append("aborted"))

    assert exchange.respond(200)
    await serving

    assert calls == []
    assert server.sent[0]["status"] == 200


async def test_a_cancelled_request_aborts_its_exchange():
    desk, calls = Desk(), []
    serving = call(AsgiServer({"type": "http.request"}), desk)
    exchange = await desk.next()
    exchange.when_aborted(lambda: calls.append("aborted"))

    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving

    assert calls == ["aborted"]


async def test_a_client_that_hangs_up_within_its_body_reaches_no_handler():
    desk = Desk()
    server = AsgiServer({"type": "http.request", "body": b"a", "more_body": True})
    server.disconnect()
    await call(server, desk)

    assert desk.is_empty


# The application


async def test_health_has_queens_shape():
    async with client() as http:
        answer = await http.get("/health")

        assert answer.status_code == 200
        assert answer.json() == {
            "status": "healthy",
            "database": "connected",
            "server": "here",
            "worker_id": 3,
            "version": "1.2.3",
            "shared_state": {"enabled": False},
            "queen": {"worker_id": 3, "status": "active"},
        }


async def test_health_without_a_database_is_503():
    probe = FakeProbe()
    probe.is_database_connected = False
    async with client(probe=probe) as http:
        answer = await http.get("/health")

        assert answer.status_code == 503
        assert (answer.json()["status"], answer.json()["database"]) == ("unhealthy", "disconnected")


async def test_an_instance_that_wants_no_traffic_is_alive_but_not_ready():
    probe = FakeProbe()
    async with client(probe=probe) as http:
        assert (await http.get("/readyz")).status_code == 200

        probe.reason = "draining"
        answer = await http.get("/readyz")

        assert answer.status_code == 503
        assert answer.json() == {"status": "not_ready", "error": "draining"}
        assert (await http.get("/livez")).json() == {"status": "alive"}


async def test_configure_passes_the_request_on_and_answers_201():
    async with client() as http:
        body = {"queue": "orders", "options": {"retryLimit": 5, "unknown": 1}}
        answer = await http.post("/api/v1/configure", json=body)

        assert answer.status_code == 201
        assert answer.json()["configured"] is True
        assert answer.json()["options"]["retryLimit"] == 5
        assert answer.json()["options"]["leaseTime"] == 300


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{}", "queue is required"),
        (b'{"queue":1}', "Expected `str`"),
        (b'{"queue', "JSON"),
        (b"", "empty"),
    ],
)
async def test_a_configuration_that_cannot_be_read_is_a_400_that_says_why(body, text):
    async with client() as http:
        answer = await http.post("/api/v1/configure", content=body)

        assert answer.status_code == 400
        assert answer.json()["code"] == "bad_request"
        assert text in answer.json()["error"]


async def test_too_large_a_configuration_is_refused():
    async with client() as http:
        answer = await http.post("/api/v1/configure", content=b"x" * (BODY_BYTES_MAX + 1))

        assert answer.status_code == 413
        assert answer.json()["code"] == "payload_too_large"


async def test_an_error_of_ours_is_answered_from_the_table():
    async with client() as http:
        answer = await http.post("/api/v1/configure", json={"queue": "away"})

        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["code"] == "unavailable"


async def test_a_bug_is_logged_and_shows_nothing_of_itself(caplog):
    async with client() as http:
        given = {"x-request-id": "mine"}
        answer = await http.post("/api/v1/configure", json={"queue": "broken"}, headers=given)

        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "a secret" in caplog.text
        (record,) = [each for each in caplog.records if each.name == "skep.server.app"]
        assert answer.headers["x-request-id"] == record.request_id == "mine"


@pytest.mark.parametrize("path", ["/", "/nowhere", "/api/v1/nowhere", "/api/v1/lease/extend"])
async def test_an_unknown_path_is_a_404_in_json(path):
    async with client() as http:
        answer = await http.get(path)

        assert answer.status_code == 404
        assert answer.json() == {"error": f"no such route: GET {path}", "code": "no_such_route"}


async def test_another_method_on_a_cold_path_is_not_allowed():
    async with client() as http:
        answer = await http.delete("/health")

        assert answer.status_code == 405
        assert answer.json()["code"] == "method_not_allowed"
        assert "GET" in answer.headers["allow"]


async def test_other_sites_get_no_permission_to_call():
    async with client() as http:
        answer = await http.get("/health", headers={"origin": "http://elsewhere"})

        assert not [name for name in answer.headers if name.startswith("access-control")]


# The document


async def fetch_document(routes=None):
    async with client(routes=routes) as http:
        return (await http.get("/openapi.json")).json()


def every_ref(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from every_ref(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from every_ref(inner)


async def test_the_document_is_openapi_3_1_and_every_reference_resolves():
    document = await fetch_document()

    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == "1.2.3"
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(every_ref(document["paths"])) | set(every_ref(document["components"])) <= schemas


async def test_every_operation_is_complete():
    document = await fetch_document()

    ids = []
    for path, item in document["paths"].items():
        for operation in item.values():
            ids.append(operation["operationId"])
            assert operation["summary"]
            assert all(answer["description"] for answer in operation["responses"].values())
            named = {
                each["name"] for each in operation.get("parameters", []) if each["in"] == "path"
            }
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
    assert len(ids) == len(set(ids))


async def test_the_document_lists_what_is_served_and_nothing_else():
    document = await fetch_document()

    assert set(document["paths"]) == {
        "/health",
        "/livez",
        "/readyz",
        "/api/me",
        "/api/logout",
        "/api/v1/configure",
        "/api/v1/push",
        "/api/v1/pop/queue/{queue}",
        "/api/v1/pop/queue/{queue}/partition/{partition}",
        "/api/v1/ack",
        "/api/v1/ack/batch",
        "/api/v1/lease/{leaseId}/extend",
    }


async def test_a_route_is_documented_from_the_moment_it_is_in_the_table():
    routes = hot_routes(Desk())
    routes.add(b"POST", b"/api/v1/transaction", echo)
    document = await fetch_document(routes)

    assert "post" in document["paths"]["/api/v1/transaction"]


@pytest.mark.parametrize("operation", HOT_OPERATIONS, ids=lambda each: each.id)
def test_every_hot_operation_documents_its_errors(operation):
    document = merge_document({"paths": {}, "components": {}}, [operation], {})
    responses = document["paths"][operation.path][operation.method]["responses"]

    assert {"400", "500", "503"} <= set(responses)
    assert ("413" in responses) == (operation.request is not None)
    for status in ("400", "503"):
        schema = responses[status]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}


async def test_bodies_are_described_by_their_wire_names():
    document = await fetch_document()
    schemas = document["components"]["schemas"]

    assert "leaseTime" in schemas["QueueOptions"]["properties"]
    assert {"transaction_id", "queueName"} <= set(schemas["PushResult"]["properties"])


@pytest.mark.parametrize(
    ("documented", "decoded"),
    [
        (shapes.PushItem, wire.PushItem),
        (shapes.PushBody, wire.PushBody),
        (shapes.TransactionPush, wire.TransactionPush),
        (shapes.TraceBody, NewTrace),
        (shapes.StateChange, stream_wire.StateOperation),
        (shapes.CycleBody, stream_wire.CycleBody),
    ],
    ids=lambda each: each.__name__,
)
def test_a_request_is_documented_as_it_is_decoded(documented, decoded):
    assert documented.__struct_encode_fields__ == decoded.__struct_encode_fields__


@pytest.mark.parametrize(("path", "shape"), [("/health", "HealthReport"), ("/readyz", "Readiness")])
async def test_a_probe_documents_the_shape_of_its_503(path, shape):
    document = await fetch_document()
    answer = document["paths"][path]["get"]["responses"]["503"]

    assert answer["content"]["application/json"]["schema"]["$ref"].endswith(shape)


def test_an_empty_table_leaves_only_configure():
    assert [each.id for each in operations_served(HotRoutes())] == ["configureQueue"]


async def test_the_page_for_people_asks_nobody_but_this_server():
    async with client() as http:
        answer = await http.get("/docs")

        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/html")
        assert "//" not in answer.text.replace("// A schema", "")


async def test_both_addresses_of_the_document_serve_the_same():
    async with client() as http:
        one, other = await http.get("/openapi.json"), await http.get("/docs/openapi.json")

        assert json.loads(one.content) == json.loads(other.content)
