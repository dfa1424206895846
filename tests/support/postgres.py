"""A real PostgreSQL for tests: one server per run, one copy of a migrated database per test.

The variable SKEP_TEST_POSTGRES_BIN names the directory of the PostgreSQL programs to test on,
say those of another version; without it the embedded ones are used. SKEP_TEST_SCHEMA names the
schema to test in (see `schema_switch`); without it that is the default.
"""

import asyncio
import os
import shutil
import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import migrate
from skep.model.schema_name import DEFAULT_SCHEMA, with_schema

# The role is called like the schema and would find it without its name; other roles would not.
DURABLE = {"shared_buffers": "64MB", "search_path": "public"}
# Ordinary tests lose nothing when the machine crashes.
FORGETFUL = {**DURABLE, "fsync": "off", "full_page_writes": "off", "max_connections": "300"}
MEMORY_DISK = Path("/dev/shm")
MEMORY_DISK_BYTES_MIN = 6 << 30
TEMPLATE = "skep_template"
CHOSEN_SCHEMA = os.environ.get("SKEP_TEST_SCHEMA", DEFAULT_SCHEMA)


def chosen_binaries():
    chosen = os.environ.get("SKEP_TEST_POSTGRES_BIN")
    return Path(chosen) if chosen else None


def make_reachable_directory(parent=None):
    # pytest's own temporary directories are closed to everyone but their owner; when root runs
    # the tests, another account runs PostgreSQL and must be able to pass.
    directory = Path(tempfile.mkdtemp(prefix="skep-test-", dir=parent))
    directory.chmod(0o711)
    return directory


def memory_disk():
    """Return a directory in memory, where a database is copied three times as fast; or None."""
    if MEMORY_DISK.is_dir() and shutil.disk_usage(MEMORY_DISK).free > MEMORY_DISK_BYTES_MIN:
        return MEMORY_DISK
    return None


def with_database(url, name):
    return urlsplit(url)._replace(path=f"/{name}").geturl()


class Server:
    """The server that ordinary tests share, and the one who makes databases on it."""

    def __init__(self, url, run):
        self._url = url
        self._run = run
        self._connection = run(asyncpg.connect(with_database(url, "postgres")))
        self._numbers = count(1)
        # Copying files takes half as long as logging pages, where no crash has to be survived.
        has_strategies = self._connection.get_server_version().major >= 15
        self._strategy = "strategy file_copy" if has_strategies else ""

    def create_database(self, template="template1"):
        name = f"test_{next(self._numbers)}"
        self.execute(f"create database {name} template {template} {self._strategy}")
        return with_schema(with_database(self._url, name), CHOSEN_SCHEMA)

    def create_template(self):
        self.execute(f"create database {TEMPLATE}")
        self._run(migrate(with_schema(with_database(self._url, TEMPLATE), CHOSEN_SCHEMA)))

    def drop_database(self, url):
        self.execute(f"drop database {urlsplit(url).path[1:]} with (force)")

    def execute(self, command):
        self._run(self._connection.execute(command))

    def close(self):
        self._run(self._connection.close())


@pytest.fixture(scope="session", autouse=True)
def chosen_schema():
    """The schema that the tests' databases have: the default, unless SKEP_TEST_SCHEMA names one."""
    if CHOSEN_SCHEMA == DEFAULT_SCHEMA:
        yield
        return
    from tests.support.schema_switch import use_schema

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SKEP_TEST_SCHEMA")  # no setting of the programs that tests start
        use_schema(patch, CHOSEN_SCHEMA)
        yield


@pytest.fixture
def postgres_dir():
    """A directory that the account that runs PostgreSQL can reach."""
    directory = make_reachable_directory()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def durable_postgres(postgres_dir):
    """Build servers that survive a crash; `name` tells the data directories apart."""
    with ExitStack() as servers:

        def build(name="pg", *, port=0, **parameters):
            server = EmbeddedPostgres(
                postgres_dir / name,
                port=port,
                parameters={**DURABLE, **parameters},
                binaries=chosen_binaries(),
            )
            servers.callback(server.stop)
            return server

        yield build


@pytest.fixture(scope="session")
def postgres_server():
    directory = make_reachable_directory(memory_disk())
    embedded = EmbeddedPostgres(directory / "pg", parameters=FORGETFUL, binaries=chosen_binaries())
    with asyncio.Runner() as runner, embedded:
        server = Server(embedded.dsn, runner.run)
        yield server
        server.close()
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def migrated_template(postgres_server):
    postgres_server.create_template()
    return TEMPLATE


@pytest.fixture
def empty_database_url(postgres_server):
    """The URL of a database without Skep's schema."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def database_url(postgres_server, migrated_template):
    """The URL of a fresh, migrated database."""
    url = postgres_server.create_database(migrated_template)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def connect(request, arun):
    """Open connections to this test's database; those still open are closed after the test."""
    has_empty = "empty_database_url" in request.fixturenames
    default_url = request.getfixturevalue("empty_database_url" if has_empty else "database_url")
    connections = []

    async def connect(url=default_url, **options):
        connections.append(await asyncpg.connect(url, **options))
        return connections[-1]

    async def close_all():
        for connection in connections:
            await connection.close(timeout=5)

    yield connect
    arun(close_all())
