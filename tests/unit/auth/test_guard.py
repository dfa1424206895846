"""The guard: what becomes of a request that waits until its caller is known."""

import asyncio

import pytest

from skep.model.errors import Unavailable
from skep.server.auth.access import Level
from skep.server.auth.guard import Guard
from skep.server.auth.identity import ANYONE
from skep.server.auth.scopes import Scopes
from skep.server.hot.exchange import Exchange, Head


class Client:
    """Remembers the statuses it is answered."""

    def __init__(self):
        self.statuses = []
        self.is_answered = asyncio.Event()

    def take_answer(self, exchange, answer):
        self.statuses.append(answer[0])
        self.is_answered.set()
        return True


class SlowAuthenticator:
    """Does not know a caller at once, and then says what the test says."""

    def __init__(self):
        self.known = asyncio.get_running_loop().create_future()

    def identify(self, header):
        return None

    async def identify_patiently(self, header):
        return await self.known


class Stage:
    def __init__(self):
        self.authenticator = SlowAuthenticator()
        self.guard = Guard(Scopes(None), authenticator=self.authenticator)
        self.client = Client()
        self.exchange = Exchange(self.client, Head(b"GET", b"/", b"", [], None), None)
        self.guard.wrap(Level.READ_ONLY, self.serve)(self.exchange)

    def serve(self, exchange, identity):
        exchange.respond(204)

    async def status(self):
        async with asyncio.timeout(10):
            await self.client.is_answered.wait()
        (status,) = self.client.statuses
        return status


async def test_a_request_goes_on_when_its_caller_is_known():
    stage = Stage()

    stage.authenticator.known.set_result(ANYONE)

    assert await stage.status() == 204


@pytest.mark.parametrize(
    ("error", "status"), [(Unavailable(), 503), (RuntimeError("a bug"), 500)], ids=str
)
async def test_a_caller_that_cannot_be_known_is_answered_whatever_the_reason(error, status):
    stage = Stage()

    stage.authenticator.known.set_exception(error)

    assert await stage.status() == status


async def test_a_request_that_waits_is_answered_when_the_broker_stops():
    stage = Stage()
    await asyncio.sleep(0)

    await stage.guard.stop()

    assert await stage.status() == 503


async def test_nothing_is_done_for_a_client_that_disconnected_meanwhile():
    stage = Stage()
    stage.exchange.abort()

    stage.authenticator.known.set_result(ANYONE)
    await asyncio.sleep(0)
    await stage.guard.stop()

    assert stage.client.statuses == []
