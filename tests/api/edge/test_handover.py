"""Connections that go from one worker to another, here two servers in one loop."""

import asyncio
import socket
from contextlib import asynccontextmanager
from functools import partial

import pytest
import uvloop

from skep.app.processes.handover import Handover
from skep.server.edge.placement import Move
from tests.api.support.edge import Desk, request, serving

pytestmark = pytest.mark.usefixtures("arun")

TO_THE_OTHER = Move(1, 100)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def arun(request):
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@asynccontextmanager
async def sharing(**options):
    """Run two servers that hand connections to each other; return them with their handovers."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
    async with serving(**options) as here, serving(**options) as there:
        handovers = [
            handover(index, edge, own, [sending for sending, _ in pairs])
            for index, (edge, (_, own)) in enumerate(zip((here, there), pairs, strict=True))
        ]
        try:
            await until(lambda: handovers[0].hears(1))
            yield here, there, handovers[0]
        finally:
            for each in handovers:
                each.stop()
            for each in (socket for pair in pairs for socket in pair):
                each.close()


def handover(index, edge, own, others):
    server = edge.server
    protocol = server.config.http_protocol_class
    return Handover(
        index,
        own,
        others,
        edge=protocol.edge,
        build=partial(protocol, server.config, server.server_state, {}),
        connections=server.server_state.connections,
    )


async def until(condition):
    """Wait for something that happens in this very loop and tells nobody."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def asked(client, body):
    client.request("POST", "/hot", body)
    return (await client.answer()).body


async def test_a_connection_goes_over_after_an_answer_and_its_client_sees_nothing():
    async with sharing() as (here, there, handover), here.client() as client:
        assert await asked(client, b"1") == b"POST /hot 1"

        handover.begin(TO_THE_OTHER)
        assert await asked(client, b"2") == b"POST /hot 2"
        await until(lambda: there.connections and not here.connections)

        assert await asked(client, b"3") == b"POST /hot 3"
        assert (len(here.connections), len(there.connections)) == (0, 1)


async def test_only_as_many_go_as_shall():
    async with (
        sharing() as (here, there, handover),
        here.client() as one,
        here.client() as two,
        here.client() as three,
    ):
        handover.begin(Move(1, 2))
        for client in (one, two, three) * 3:
            await asked(client, b"x")

        await until(lambda: len(there.connections) == 2)
        assert len(here.connections) == 1


async def test_a_connection_whose_request_waits_stays_until_it_is_answered():
    async with sharing() as (here, there, handover), here.client() as client:
        handover.begin(TO_THE_OTHER)
        client.request("GET", "/later")
        waiting = await here.desk.next()
        async with here.client() as other:
            await asked(other, b"x")
            await until(lambda: there.connections)
        assert len(here.connections) == 1

        waiting.respond(200, b"now")

        assert (await client.answer()).body == b"now"
        await until(lambda: not here.connections)
        assert await asked(client, b"1") == b"POST /hot 1"


async def test_a_request_that_is_half_read_is_answered_where_it_began():
    async with sharing() as (here, there, handover), here.client() as client:
        handover.begin(TO_THE_OTHER)
        head = request("POST", "/hot", b"12345")
        client.send(request("POST", "/hot", b"first") + head[:-2])
        assert (await client.answer()).body == b"POST /hot first"
        assert not there.connections

        client.send(head[-2:])

        assert (await client.answer()).body == b"POST /hot 12345"
        await until(lambda: there.connections)


async def test_to_a_worker_that_cannot_take_more_nothing_goes():
    desk = Desk()
    async with sharing(desk=desk) as (here, there, handover), here.client() as client:
        handover.begin(Move(0, 100))  # of itself it hears nothing: it is not there
        await asked(client, b"1")
        handover.begin(None)

        assert await asked(client, b"2") == b"POST /hot 2"
        assert (len(here.connections), len(there.connections)) == (1, 0)
