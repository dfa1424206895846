"""Every route says who may call it, and what it says can be true."""

import asyncio
import inspect

import pytest
from litestar.routes import HTTPRoute, WebSocketRoute

from skep.app.parts.interface import describe_api, described_interface
from skep.server.api_document.operations import CONFIGURE_OPERATION, HOT_OPERATIONS
from skep.server.auth.access import ACCESS, Level


@pytest.fixture(scope="module")
def handlers():
    """The routes that Litestar serves, but for those of its own."""

    async def collect():
        with described_interface() as (_, app):
            for route in app.routes:
                if isinstance(route, HTTPRoute):
                    for handler in route.route_handlers:
                        if inspect.getmodule(handler.fn).__name__.startswith("skep"):
                            found.append((route.path, handler))
                elif isinstance(route, WebSocketRoute):
                    found.append((route.path, route.route_handler))

    found = []
    asyncio.run(collect())
    return found


@pytest.fixture(scope="module")
def parameters():
    """Names of the parameters of each operation, by where they stand."""
    found = {}
    for item in describe_api()["paths"].values():
        for operation in item.values():
            for each in operation.get("parameters", ()):
                found.setdefault((operation["operationId"], each["in"]), set()).add(each["name"])
    return found


def test_every_route_declares_who_may_call_it(handlers):
    undeclared = [path for path, handler in handlers if ACCESS not in handler.opt]

    assert len(handlers) > 60
    assert undeclared == [], "say opt=needs(...) at the handler; see skep.server.auth.access"


def test_every_operation_has_an_id_by_which_its_access_is_documented(handlers):
    nameless = [
        path
        for path, handler in handlers
        if getattr(handler, "operation_id", "a socket has none") is None and path != "/openapi.json"
    ]

    assert nameless == []


def test_what_names_the_queue_is_a_parameter_of_the_route(handlers):
    for path, handler in handlers:
        reach = handler.opt[ACCESS].reach
        if reach.kind in {"queue", "partition"}:
            assert f"{{{reach.queue}:" in path, path


def test_what_narrows_a_list_is_a_parameter_of_its_query(handlers, parameters):
    for path, handler in handlers:
        reach = handler.opt[ACCESS].reach
        if reach.kind == "filter":
            names = {reach.queue, reach.namespace} - {""}
            assert names <= parameters[handler.operation_id, "query"], path


def test_a_route_whose_body_names_the_queues_asks_its_requester(handlers):
    for path, handler in handlers:
        if handler.opt[ACCESS].reach.kind == "body":
            assert "requester_of(" in inspect.getsource(handler.fn), path


def test_what_changes_something_is_not_for_readers(handlers):
    reading = {"GET", "HEAD", "OPTIONS"}
    # Notices of instances are signed, which their route checks by itself.
    exceptions = {
        *("/streams/v1/state/get", "/api/v1/resources/kv/list"),
        *("/api/v1/fetch/offsets", "/api/v1/partitions/changed"),
        *("/api/logout", "/internal/api/notify"),
    }
    for path, handler in handlers:
        methods = getattr(handler, "http_methods", {"GET"})
        if not methods <= reading and path not in exceptions:
            assert handler.opt[ACCESS].level >= Level.READ_WRITE, path


@pytest.mark.parametrize(
    "operation", [*HOT_OPERATIONS, CONFIGURE_OPERATION], ids=lambda each: each.id
)
def test_defect_50_an_operation_of_the_message_plane_needs_the_role_that_writes(operation):
    consumes_nothing = operation.id == "fetchMessages"

    assert operation.access.level is (Level.READ_ONLY if consumes_nothing else Level.READ_WRITE)


def test_the_document_says_of_every_operation_which_role_it_needs():
    for path, item in describe_api()["paths"].items():
        for method, operation in item.items():
            is_open = operation["x-access"] == "public"
            assert ("security" in operation) is not is_open, (method, path)
            assert ("401" in operation["responses"]) is not is_open, (method, path)
