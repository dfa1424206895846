"""Keys that are fetched: ahead of need, not too often, and never in the way of others."""

import asyncio
import threading

import pytest

from skep.model.errors import Unavailable
from skep.server.auth.key_server import PAUSE_S, KeyServer
from tests.support.tokens import key_document, public_entry

OLD = key_document(public_entry("ES256", "old", kid="old"))
NEW = key_document(public_entry("ES256", "new", kid="new"))


class Place:
    """Where the document lies; a gate holds fetches back."""

    def __init__(self, document=OLD):
        self.document = document
        self.fetches = 0
        self.gate = threading.Event()
        self.gate.set()

    def fetch(self):
        self.fetches += 1
        assert self.gate.wait(10)
        if isinstance(self.document, Exception):
            raise self.document
        return self.document


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def changes():
    return []


@pytest.fixture
def serve(clock, changes):
    def serve(place, timeout_s=10.0):
        return KeyServer(
            place.fetch,
            refresh_s=3_600,
            timeout_s=timeout_s,
            on_change=lambda: changes.append("changed"),
            now=clock,
        )

    return serve


def ids(server):
    return [key.id for key in server.keys]


async def test_there_are_no_keys_before_the_first_fetch_and_callers_may_try_again(serve):
    with pytest.raises(Unavailable):
        _ = serve(Place()).keys


async def test_the_keys_are_fetched_at_the_start(serve):
    server = serve(Place())
    server.start()
    async with asyncio.timeout(30):
        await server.fetch_unknown()  # joins the fetch that is under way, or starts it
    await server.stop()

    assert ids(server) == ["old"]


async def test_a_key_that_is_not_known_makes_the_keys_be_fetched_anew(serve, changes, clock):
    place = Place()
    server = serve(place)
    await server.fetch_unknown()
    place.document = NEW
    clock.now += PAUSE_S

    assert await server.fetch_unknown()
    assert ids(server) == ["new"]
    assert changes == ["changed"]


async def test_keys_that_stay_the_same_are_no_change(serve, changes, clock):
    server = serve(Place())
    await server.fetch_unknown()
    clock.now += PAUSE_S
    await server.fetch_unknown()

    assert changes == []


async def test_forged_key_ids_cause_one_fetch_in_a_while(serve, clock):
    place = Place()
    server = serve(place)
    for _ in range(100):
        await server.fetch_unknown()
    assert place.fetches == 1

    clock.now += PAUSE_S
    await server.fetch_unknown()
    assert place.fetches == 2


async def test_all_who_wait_share_one_fetch(serve):
    place = Place()
    server = serve(place)
    place.gate.clear()
    asking = [asyncio.create_task(server.fetch_unknown()) for _ in range(50)]
    await asyncio.sleep(0)
    place.gate.set()

    assert all(await asyncio.gather(*asking))
    assert place.fetches == 1


async def test_defect_50_fetching_does_not_stop_the_loop(serve):
    place = Place()
    place.gate.clear()
    server = serve(place)
    asking = asyncio.create_task(server.fetch_unknown())
    turns = 0
    while place.fetches == 0 or turns < 10:
        await asyncio.sleep(0)
        turns += 1
    assert not asking.done()

    place.gate.set()
    assert await asking


async def test_a_request_does_not_wait_longer_than_it_may(serve):
    place = Place()
    place.gate.clear()
    server = serve(place, timeout_s=0.01)

    assert not await server.fetch_unknown()
    place.gate.set()
    await server.stop()


@pytest.mark.parametrize("trouble", [OSError("away"), b"not found", b'{"keys":[]}'])
async def test_keys_stay_in_force_while_fetching_fails(serve, clock, trouble, caplog):
    place = Place()
    server = serve(place)
    await server.fetch_unknown()
    place.document = trouble
    clock.now += PAUSE_S
    await server.fetch_unknown()

    assert ids(server) == ["old"]
    assert "stay valid" in caplog.text
