"""Instances of `skep serve` that a test may kill, stop, starve and start again."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random

from tests.support.broker import Broker

MEMORY_PAUSE_S = 0.2


@contextmanager
def instance(database_url, *flags, **settings):
    """Run an instance in a process group of its own; how it ends is the test's business."""
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
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Broker(process, log, database_url)
        finally:
            kill_instance(process)


@contextmanager
def well_ending_instance(database_url, *flags, **settings):
    """Run an instance that must end well, and without a stack trace."""
    with instance(database_url, *flags, **settings) as broker:
        yield broker
        end_well(broker)


def end_well(broker):
    assert broker.stop() == 0, broker.log()
    assert "Traceback" not in broker.log(), broker.log()


def kill_instance(process):
    """Kill every process of an instance at once, as a machine does that loses power."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def worker_pids(broker):
    """Return the worker processes of a broker, not its other children."""
    supervisor = broker.process.pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in _command_of(pid)]


def _command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def resident_mib(pid):
    """Return how much memory a process has in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class MemoryWatch:
    """How much memory any worker of some brokers had in use at most."""

    def __init__(self, living):
        self.highest_mib = 0.0
        self._living = living

    def look(self):
        for broker in self._living():
            # A worker may end, or its whole broker, between being listed and being looked at.
            with suppress(FileNotFoundError, ProcessLookupError):
                for pid in worker_pids(broker):
                    self.highest_mib = max(self.highest_mib, resident_mib(pid))

    async def run(self):
        while True:
            self.look()
            await asyncio.sleep(MEMORY_PAUSE_S)


@asynccontextmanager
async def memory_watched(living):
    """Watch the memory of the brokers that `living` returns."""
    watch = MemoryWatch(living)
    task = asyncio.ensure_future(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Fleet:
    """Instances on one database, of which any may be killed; clients go to one that lives."""

    def __init__(self, database_url, size, seed, *flags, **settings):
        self._database_url = database_url
        self._flags = flags
        self._settings = settings
        self._random = Random(f"{seed} fleet")
        self._stacks = [AsyncExitStack() for _ in range(size)]
        self._brokers = [None] * size

    async def start(self, position):
        """Start the instance at this place, and return once it serves."""
        running = instance(self._database_url, *self._flags, **self._settings)
        self._brokers[position] = await asyncio.to_thread(running.__enter__)
        self._stacks[position].callback(running.__exit__, None, None, None)

    async def kill(self, position):
        """Kill the instance at this place without a warning."""
        self._brokers[position] = None
        await self._stacks[position].aclose()

    def connect(self):
        """Open a connection to an instance that lives."""
        alive = self.living()
        if not alive:
            raise ConnectionRefusedError("no instance lives")
        return self._random.choice(alive).connect()

    def living(self):
        """Return the instances that were not killed."""
        return [broker for broker in self._brokers if broker is not None]

    async def close(self):
        for stack in self._stacks:
            await stack.aclose()


@asynccontextmanager
async def fleet_of(size, database_url, seed, *flags, **settings):
    """Run a fleet."""
    fleet = Fleet(database_url, size, seed, *flags, **settings)
    try:
        await asyncio.gather(*(fleet.start(position) for position in range(size)))
        yield fleet
    finally:
        await fleet.close()
