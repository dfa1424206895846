"""The load generator: one process, one event loop, raw protocols on keep-alive connections.

    python -m benchmarks.generator PLAN   (JSON; commands on standard input, answers on output)

It has to stay cheap enough not to be what is measured, and it is bounded: reconnects are limited,
and it ends when its input does, so that it never outlives the runner.
"""

import asyncio
import gc
import signal
import socket
import sys
import time
from collections import Counter
from itertools import cycle

import msgspec
import uvloop

from benchmarks.drivers import Connection, Consumer, Driver, Producer
from benchmarks.plan import Plan, PushRole, Snapshot

_PAUSE_BEFORE_RECONNECT_S = 0.05
_RECONNECTS_MAX = 100
_CONNECTS_AT_ONCE = 50
_DRAIN_S = 2.0
# Leaves the port to `connect`, which takes those again that closed connections still hold;
# Python 3.12 names it.
_IP_BIND_ADDRESS_NO_PORT = 24


class Generator(asyncio.Protocol):
    """Runs a plan and obeys the commands on standard input; ends when that is closed."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        host = f"{plan.host}:{plan.ports[0]}"
        self._ports = cycle(plan.ports)
        self._drivers: dict[str, Driver] = {
            role.name: Producer(role, host, self._reconnect)
            if isinstance(role, PushRole)
            else Consumer(role, host, self._reconnect)
            for role in plan.roles
        }
        self._reconnects_left = _RECONNECTS_MAX
        self._connecting: set[asyncio.Task[None]] = set()
        self._finished = asyncio.Event()

    async def run(self) -> None:
        """Connect everything, say so with a first snapshot, and serve commands until stopped."""
        for driver in self._drivers.values():
            for begin in range(0, driver.connection_count, _CONNECTS_AT_ONCE):
                size = min(_CONNECTS_AT_ONCE, driver.connection_count - begin)
                await asyncio.gather(*(self._connect(driver) for _ in range(size)))
            driver.start()
        self._say(self._snapshot())
        await asyncio.get_running_loop().connect_read_pipe(lambda: self, sys.stdin)
        await self._finished.wait()
        await self._drain()
        self._say(self._snapshot())

    def data_received(self, data: bytes) -> None:
        for command in data.split():
            if command == b"stop":
                self._finished.set()
            else:
                self._obey(command)

    def _obey(self, command: bytes) -> None:
        snapshot = self._snapshot()
        for name, driver in self._drivers.items():
            if command == b"open":
                driver.tally.latencies_us.clear()
            elif command == b"close":
                snapshot.latencies_us[name] = driver.tally.latencies_us
        self._say(snapshot)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        self._finished.set()

    async def _connect(self, driver: Driver) -> None:
        loop = asyncio.get_running_loop()
        port = next(self._ports)
        if self._plan.source is None:
            await loop.create_connection(lambda: Connection(driver), self._plan.host, port)
            return
        connecting = socket.socket()
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        connecting.bind((self._plan.source, 0))
        await loop.sock_connect(connecting, (self._plan.host, port))
        await loop.create_connection(lambda: Connection(driver), sock=connecting)

    def _reconnect(self, driver: Driver) -> None:
        if self._reconnects_left == 0:
            driver.tally.fail("no reconnects left", f"{_RECONNECTS_MAX} connections were lost")
            return
        self._reconnects_left -= 1
        task = asyncio.ensure_future(self._reconnect_soon(driver))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _reconnect_soon(self, driver: Driver) -> None:
        await asyncio.sleep(_PAUSE_BEFORE_RECONNECT_S)
        try:
            await self._connect(driver)
        except OSError as error:
            driver.tally.fail("cannot connect", str(error))
            self._reconnect(driver)

    async def _drain(self) -> None:
        drivers = self._drivers.values()
        for driver in drivers:
            driver.is_stopping = True
        deadline_s = time.monotonic() + _DRAIN_S
        while any(driver.is_busy for driver in drivers) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        for driver in drivers:
            for connection in list(driver.connections):
                connection.close()

    def _snapshot(self) -> Snapshot:
        errors: Counter[str] = Counter()
        for driver in self._drivers.values():
            errors.update(driver.tally.errors)
        return Snapshot(
            at_s=time.monotonic(),
            cpu_s=time.process_time(),
            roles={name: driver.tally.counts for name, driver in self._drivers.items()},
            errors=dict(errors),
            examples=[text for driver in self._drivers.values() for text in driver.tally.examples],
            is_done=all(driver.is_done for driver in self._drivers.values()),
        )

    def _say(self, snapshot: Snapshot) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(snapshot) + b"\n")
        sys.stdout.buffer.flush()


def main() -> None:
    """Run the plan given as the only argument."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    # Ctrl-C reaches us too, but it is the runner that ends the load, by closing our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A collection in the middle of a window would show as latency of the broker.
    gc.disable()
    uvloop.run(Generator(plan).run())


if __name__ == "__main__":
    main()
