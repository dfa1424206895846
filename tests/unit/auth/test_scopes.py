"""Callers that are restricted to namespaces, while the database that knows these is away."""

import asyncio

import pytest

from skep.broker.queues.ownership import AWAY_S, NAMESPACE_KNOWN_FOR_S, Ownership
from skep.model.errors import Forbidden, Unavailable
from skep.server.auth.access import Level
from skep.server.auth.identity import Identity, parse_grants
from skep.server.auth.scopes import Scopes
from tests.support.virtual_time import VirtualTimeLoop

GRANTS = parse_grants({"namespaces": ["hives"]}, ceiling=Level.READ_WRITE)
BEEKEEPER = Identity("beekeeper", Level.READ_WRITE, GRANTS)
NAMESPACES = {"swarm": "hives", "moths": "nights"}
PATIENCE_S = 10.0


@pytest.fixture
def arun():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield runner.run


class Database:
    """Lets calls wait for its return for as long as a pool of connections does."""

    is_away = False
    is_silent_after_s = None
    """After so many seconds it is known that it is away; until then calls wait."""

    async def call(self, statement, *arguments):
        if self.is_silent_after_s is not None:
            await asyncio.sleep(self.is_silent_after_s)
            self.is_away = True
        if self.is_away:
            await asyncio.sleep(PATIENCE_S)
            raise Unavailable
        (asked,) = arguments
        return [{"queue": each, "namespace": NAMESPACES[each]} for each in asked]


@pytest.fixture
def database():
    return Database()


@pytest.fixture
def scopes(arun, database):
    """What has heard of all queues for the last time long ago."""

    async def scopes():
        now = asyncio.get_running_loop().time
        scopes = Scopes(Ownership(database, now=now, is_away=lambda: database.is_away))
        assert await scopes.permitted(BEEKEEPER, Level.READ_WRITE, NAMESPACES) == {"swarm"}
        await asyncio.sleep(NAMESPACE_KNOWN_FOR_S)
        return scopes

    return arun(scopes())


def allow_now(scopes, queue):
    return scopes.allow_now(BEEKEEPER, Level.READ_WRITE, queues={queue})


def test_while_the_database_is_there_a_namespace_is_asked_for_again(scopes):
    assert not allow_now(scopes, "swarm")


def test_while_the_database_is_away_what_it_said_last_decides(scopes, database):
    database.is_away = True

    assert allow_now(scopes, "swarm")
    with pytest.raises(Forbidden):
        allow_now(scopes, "moths")


async def test_a_queue_that_is_not_known_is_not_waited_for_while_the_database_is_away(
    scopes, database
):
    database.is_away = True
    loop = asyncio.get_running_loop()
    began_at = loop.time()

    with pytest.raises(Unavailable):
        await scopes.require(BEEKEEPER, Level.READ_WRITE, queues={"new"})

    assert loop.time() - began_at == pytest.approx(AWAY_S)


async def test_of_a_database_that_falls_silent_counts_what_it_said_last(scopes, database):
    database.is_silent_after_s = 1.25
    loop = asyncio.get_running_loop()
    began_at = loop.time()

    permitted = await scopes.permitted(BEEKEEPER, Level.READ_WRITE, NAMESPACES)

    assert permitted == {"swarm"}
    assert loop.time() - began_at < 2
