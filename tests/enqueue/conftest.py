"""A database that these tests share, and a look at what was enqueued in it.

Tests keep apart by the names of their queues.
"""

import asyncpg
import pytest


@pytest.fixture(scope="session")
def enqueue_url(postgres_server, migrated_template):
    url = postgres_server.create_database(migrated_template)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def sql(arun, enqueue_url):
    """A connection that sees what was committed."""
    connection = arun(asyncpg.connect(enqueue_url))
    yield connection
    arun(connection.close(timeout=5))


@pytest.fixture
def staged(sql, queue):
    """Ask for the staged messages of the test's queue."""

    async def staged():
        return await sql.fetch("select * from skep.staged where queue = $1 order by id", queue)

    return staged


@pytest.fixture
def stored(sql, queue):
    """Ask for the messages in the log of the test's queue."""

    async def stored():
        return await sql.fetch(
            'select * from skep.message where queue = $1 order by partition, "offset"', queue
        )

    return stored
