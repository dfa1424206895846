"""Sessions with a log that is empty when a test begins.

These tests share one database and empty it, because a copy of the template for each of them takes
ten times as long as the test. They share sessions too, and the loop these live on: a new session
compiles every function it calls, which takes longer than most tests.
"""

import asyncio

import asyncpg
import pytest

from tests.sql.support.analyses import Analyses
from tests.sql.support.chains import Chains
from tests.sql.support.log import Log
from tests.sql.support.rollups import Rollups
from tests.sql.support.staging import Staging
from tests.sql.support.trace_log import TraceLog


@pytest.fixture(scope="session")
def log_url(postgres_server, migrated_template):
    url = postgres_server.create_database(migrated_template)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def arun():
    """Run a coroutine to its end, on one loop for all tests here."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="session")
def idle_sessions(arun, log_url):
    """Sessions between two tests, by their settings."""
    idle = {}
    yield idle
    for connections in idle.values():
        for connection in connections:
            arun(connection.close(timeout=5))


@pytest.fixture
def open_log(arun, log_url, idle_sessions):
    """Open further sessions with the log of the fixture `log`."""
    in_use = []

    async def open_log(**settings):
        async def connect(server_settings):
            key = tuple(sorted(server_settings.items()))
            idle = idle_sessions.setdefault(key, [])
            connection = idle.pop() if idle else None
            if connection is None:
                connection = await asyncpg.connect(log_url, server_settings=server_settings)
            in_use.append((key, connection))
            return connection

        return await Log.open(connect, **settings)

    async def release(key, connection):
        if connection.is_closed() or connection.is_in_transaction():
            await connection.close(timeout=5)
        else:
            await connection.reset()
            idle_sessions[key].append(connection)

    async def release_all():
        for key, connection in in_use:
            await release(key, connection)

    yield open_log
    arun(release_all())


@pytest.fixture
def log(arun, open_log):
    """A session with an empty log."""
    log = arun(open_log())
    arun(log.clear())
    return log


@pytest.fixture
def traces(arun, log):
    """The traces of the fixture `log`, none yet."""
    traces = TraceLog(log)
    arun(traces.clear())
    return traces


@pytest.fixture
def staging(arun, log):
    """The staging of a write to the fixture `log`, empty."""
    staging = Staging(log)
    arun(staging.clear())
    return staging


@pytest.fixture
def rollups(arun, log):
    """The rollups of the fixture `log`, none yet."""
    return arun(Rollups.begin(log))


@pytest.fixture
def analyses(arun, log):
    """What is known of the hours of the fixture `log`: nothing yet."""
    return arun(Analyses.begin(log))


@pytest.fixture
def open_chains(arun, log_url):
    """Open further sessions with the chains of the fixture `chains`."""
    connections = []

    async def open_chains():
        connections.append(await asyncpg.connect(log_url))
        return await Chains.open(connections[-1])

    async def close_all():
        for connection in connections:
            await connection.close(timeout=5)

    yield open_chains
    arun(close_all())


@pytest.fixture
def chains(arun, open_chains):
    """A session with a database that has no jobs."""
    chains = arun(open_chains())
    arun(chains.clear())
    return chains


@pytest.fixture
def worker(arun, chains):
    """The id of an enrolled worker."""
    return arun(chains.enroll())
