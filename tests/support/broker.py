"""A real `skep serve` in processes of its own, and connections that speak to it.

Starting a broker takes a second, so tests share one and keep apart by the names of their queues.
A module that needs another kind overrides the fixture `broker`; the connections follow it.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count
from threading import Timer
from urllib.parse import quote, urlencode

import asyncpg
import pytest

from tests.api.support.edge import Client
from tests.sql.support.waiting import eventually

STARTUP_S = 100
SHUTDOWN_S = 60
LOG_LINES_SHOWN = 60
END_LEASES = """
select skep.end_leases(
  array_agg(c.partition_id), array_agg(c.group_id), array_agg(c.lease_id))
from skep.cursor c join skep.queue q on q.id = c.queue_id
where q.name = $1 and c.leased is not null
"""


class Broker:
    """A running `skep serve`."""

    def __init__(self, process, log, database_url):
        self.process = process
        self.database_url = database_url
        self._log = log
        self.url = self._read_url()
        self.port = int(self.url.rpartition(":")[2])

    def _read_url(self):
        """Wait for the greeting, which comes when every worker listens."""
        giving_up = Timer(STARTUP_S, self.process.kill)
        giving_up.start()
        try:
            for line in self.process.stdout:
                if found := re.search(r"listens on (https?://\S+)", line):
                    return found[1]
        finally:
            giving_up.cancel()
        return pytest.fail(f"skep serve ended or did not start in time:\n{self.log()}")

    def log(self):
        # By position: reading as usual would move the offset at which the broker writes.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode()

    def stop(self):
        """Ask it to end, as an operator does, and return its exit code."""
        self.process.terminate()
        return self.process.wait(SHUTDOWN_S)

    @asynccontextmanager
    async def connect(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Connection(reader, writer)
        finally:
            writer.transport.abort()

    @asynccontextmanager
    async def sql(self):
        """Open a connection to the broker's database."""
        connection = await asyncpg.connect(self.database_url)
        try:
            yield connection
        finally:
            await connection.close(timeout=5)

    async def end_leases(self, queue):
        """Let the time of all leases of a queue be over, so that no test has to wait for that."""
        async with self.sql() as sql:
            await sql.fetchval(END_LEASES, queue)


class Connection(Client):
    """One keep-alive connection. The operations in short expect success and return what it says."""

    async def call(self, method, path, body=b"", headers=""):
        self.request(method, path, body, headers)
        return await self.answer()

    async def post(self, path, members):
        return await self.call("POST", path, json.dumps(members).encode())

    async def push(self, *items):
        """Push items; return their results."""
        return _expect(201, await self.post("/api/v1/push", {"items": items}))

    async def push_payloads(self, queue, *payloads, partition="Default"):
        return await self.push(
            *({"queue": queue, "partition": partition, "payload": payload} for payload in payloads)
        )

    def send_poll(self, queue, partition=None, **parameters):
        """Send a poll whose answer is awaited elsewhere."""
        self.request("GET", pop_path(queue, partition, **parameters))

    async def popped(self):
        """Return the messages that the answer to a poll brings; none when it is empty."""
        answer = await self.answer()
        return [] if answer.status == 204 else _expect(200, answer)["messages"]

    async def pop(self, queue, partition=None, **parameters):
        self.send_poll(queue, partition, **parameters)
        return await self.popped()

    async def ack(self, message, status="completed", **members):
        """Acknowledge one message; return its result."""
        (result,) = _expect(200, await self.post("/api/v1/ack", ack_item(message, status, members)))
        return result

    async def ack_batch(self, *items, **members):
        """Acknowledge by items of `ack_item`; return their results."""
        body = {"acknowledgments": items, **members}
        return _expect(200, await self.post("/api/v1/ack/batch", body))

    async def extend(self, lease_id, body=b"{}"):
        return _expect(200, await self.call("POST", f"/api/v1/lease/{lease_id}/extend", body))

    async def configure(self, queue, members=None, **options):
        body = {"queue": queue, "options": options, **(members or {})}
        return _expect(201, await self.post("/api/v1/configure", body))


def _expect(status, answer):
    assert answer.status == status, answer
    return json.loads(answer.body)


def pop_path(queue, partition=None, **parameters):
    path = f"/api/v1/pop/queue/{quote(queue, safe='')}"
    if partition is not None:
        path += f"/partition/{quote(partition, safe='')}"
    spelled = {
        name: str(value).lower() if value is True else value for name, value in parameters.items()
    }
    return f"{path}?{urlencode(spelled)}"


def ack_item(message, status="completed", members=None):
    """Say of a delivered message what became of it."""
    names = ("transactionId", "partitionId", "leaseId", "consumerGroup")
    return {**{name: message[name] for name in names}, "status": status, **(members or {})}


async def until_blocked_by(sql):
    """Return once another session waits for a lock that this one holds."""
    blocked = "select exists (select from pg_stat_activity where $1 = any(pg_blocking_pids(pid)))"
    await eventually(lambda: sql.fetchval(blocked, sql.get_server_pid()))


def payloads(messages):
    return [message["data"] for message in messages]


class Elapsed:
    """How long a block took, once it ended."""

    seconds = None


@contextmanager
def elapsed():
    duration = Elapsed()
    began = time.monotonic()
    yield duration
    duration.seconds = time.monotonic() - began


@pytest.fixture(scope="session", autouse=True)
def spill_root(tmp_path_factory):
    """Keep what brokers spill away from the machine's own directory; each database has a folder."""
    root = tmp_path_factory.mktemp("spill")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKEP_SPILL_DIR", str(root))
        yield root


@pytest.fixture(scope="session")
def start_broker(postgres_server, migrated_template, spill_root):
    """Start a broker on a database of its own; it must end well, and without a stack trace.

    With `beside` it is another instance on the database of that broker.
    """

    @contextmanager
    def start(*flags, beside=None, **settings):
        if beside is None:
            database_url = postgres_server.create_database(migrated_template)
        else:
            database_url = beside.database_url
        command = [sys.executable, "-m", "skep", "serve", "--port", "0", *flags]
        command += ["--database-url", database_url]
        variables = {f"SKEP_{name.upper()}": str(value) for name, value in settings.items()}
        with (
            tempfile.TemporaryFile() as log,
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **variables},
            ) as process,
        ):
            try:
                broker = Broker(process, log, database_url)
                yield broker
                exit_code = broker.stop()
                assert exit_code == 0, broker.log()
                assert "Traceback" not in broker.log(), broker.log()
            finally:
                process.kill()
        if beside is None:
            postgres_server.drop_database(database_url)

    return start


@pytest.fixture(scope="session")
def broker(start_broker):
    """A broker of one worker with default settings."""
    with start_broker("--workers", "1") as broker:
        yield broker


@pytest.fixture
def broker_to_stop(start_broker):
    """A broker for one test, which may ask it to end."""
    with start_broker("--workers", "1") as broker:
        yield broker


@pytest.fixture
def open_client(broker, arun):
    """Open connections to the broker; they are closed after the test."""
    stack = AsyncExitStack()

    async def open_client():
        return await stack.enter_async_context(broker.connect())

    yield open_client
    arun(stack.aclose())


@pytest.fixture
def client(open_client, arun):
    return arun(open_client())


_queue_numbers = count(1)


@pytest.fixture
def queue():
    """A queue that no other test knows."""
    return f"queue-{next(_queue_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show the end of the broker's log with a test that failed."""
    report = yield
    # At teardown the log may be closed already; what fails there quotes it by itself.
    if report.failed and report.when != "teardown":
        for broker in (each for each in item.funcargs.values() if isinstance(each, Broker)):
            lines = broker.log().splitlines()[-LOG_LINES_SHOWN:]
            report.sections.append((f"log of {broker.url}", "\n".join(lines)))
    return report
