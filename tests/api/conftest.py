"""The tests of the wire, over raw connections and through the Python client.

Both in every run for the modules named here, which are the heart of the contract, except for slow
tests. All of them go through the client with `SKEP_TEST_TRANSPORT=client`; tests that send bytes of
their own making are skipped then, and so are those named here with the reason why they cannot go
through it.
"""

import os
from contextlib import AsyncExitStack

import pytest

from tests.api.support.through_client import connected_through_client

THROUGH_CLIENT = {
    "test_ack",
    "test_configure",
    "test_dead_letters",
    "test_delivery_options",
    "test_discovery_pop",
    "test_document",
    "test_lease",
    "test_messages",
    "test_pop",
    "test_push",
    "test_traces",
    "test_transaction",
}


NOT_THROUGH_CLIENT = {
    "test_requests_of_one_connection_keep_their_order_though_only_one_is_deferred": (
        "the client has one request in flight on a connection"
    ),
    "test_the_deepest_payload_that_is_accepted_is_also_delivered_and_buried": (
        "how deep JSON may be read depends on the reader's own stack"
    ),
    **{
        f"test_a_route_is_for_those_whose_role_it_needs[GET /api/v1/dashboard/live-{role}]": (
            "the client waits for the end of an answer, and this one has none"
        )
        for role in ("read-only", "read-write", "admin")
    },
}

FOR_ALL = os.environ.get("SKEP_TEST_TRANSPORT")


def pytest_collection_modifyitems(items):
    for item in items:
        names = (getattr(item, "originalname", ""), item.name)
        reason = next(
            (NOT_THROUGH_CLIENT[name] for name in names if name in NOT_THROUGH_CLIENT), ""
        )
        if FOR_ALL == "client" and reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_generate_tests(metafunc):
    module = metafunc.module.__name__.rpartition(".")[2]
    # What takes its time waits for the broker, and that is the same however one asks.
    is_slow = metafunc.definition.get_closest_marker("slow")
    is_asked_twice = module in THROUGH_CLIENT and not is_slow
    if not FOR_ALL and "transport" in metafunc.fixturenames and is_asked_twice:
        metafunc.parametrize("transport", ["raw", "client"], indirect=True)


@pytest.fixture
def transport(request):
    """How the connections of a test reach the broker."""
    return FOR_ALL or getattr(request, "param", "raw")


@pytest.fixture
def open_client(broker, arun, transport):
    """Open connections to the broker; they are closed after the test."""
    stack = AsyncExitStack()

    async def open_client():
        is_raw = transport == "raw"
        opening = broker.connect() if is_raw else connected_through_client(broker.url)
        return await stack.enter_async_context(opening)

    yield open_client
    arun(stack.aclose())
