"""Hand connections from worker to worker of an instance.

Every worker has a socket of its own; the others send it reports of their load, and connections: the
descriptor of a connection between two requests, which goes on at the other worker as if nothing had
happened. Its client sees nothing of it. The supervisor keeps the sockets open, so a connection that
is sent to a worker which ends meanwhile is served by its successor.

Which ones go where, `skep.server.edge.placement` decides. TLS connections stay where they are:
their keys are in the process.
"""

import asyncio
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

from skep.server.edge.limits import Edge
from skep.server.edge.placement import LIGHT, Load, Move, Placement
from skep.server.edge.protocol import FastPathProtocol

INTERVAL_S: Final = 0.5

_REPORT: Final = struct.Struct(">Hfi")
_TOGETHER_MAX: Final = 64
"""Connections in one datagram; the kernel allows 253."""

_FILES_KEPT: Final = 256
"""Files that a worker opens for other things. A descriptor that finds no room is lost."""

_STAT: Final = Path("/proc/stat")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Handover:
    """One worker's end: what it reports, hands over and takes in."""

    def __init__(
        self,
        index: int,
        own: socket.socket,
        others: Sequence[socket.socket],
        *,
        edge: Edge,
        build: Callable[[], asyncio.BaseProtocol],
        connections: Set[object],
    ) -> None:
        """Begin. `build` makes the protocol of a connection; `connections` are those there are."""
        self._index: Final = index
        self._own: Final = own
        self._sockets: Final = others
        self._edge: Final = edge
        self._build: Final = build
        self._connections: Final = connections
        files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = sys.maxsize if files_max == resource.RLIM_INFINITY else files_max - _FILES_KEPT
        self._connections_max: Final = min(edge.limits.connections_max, room)
        self._placement: Final = Placement(index)
        self._loop: Final = asyncio.get_running_loop()
        self._clock: Final = _Clock()
        self._busy = 0.0
        self._move: Move | None = None
        self._leaving: dict[FastPathProtocol, None] = {}
        self._adopting: set[asyncio.Task[object]] = set()

        for each in (own, *others):
            each.setblocking(False)
        self._loop.add_reader(own.fileno(), self._receive)
        self._timer = self._loop.call_later(INTERVAL_S, self._look)
        self._report(0.0, room=self._room)

    @property
    def _room(self) -> int:
        return self._connections_max - len(self._connections)

    def stop(self) -> None:
        """Keep the connections that are here, and take in no more."""
        self._timer.cancel()
        self._edge.departure = None
        self._report(0.0, room=0)
        self._loop.remove_reader(self._own.fileno())

    def _look(self) -> None:
        """Tell the others how busy this worker is, and decide what it hands over."""
        self._timer = self._loop.call_later(INTERVAL_S, self._look)
        busy, idle_cores = self._clock.read()
        self._busy, busy = busy, (self._busy + busy) / 2
        self._report(busy, room=self._room)
        now = self._loop.time()
        since = now - INTERVAL_S
        active = 0
        if busy >= LIGHT:
            active = sum(
                isinstance(each, FastPathProtocol) and each.was_used_since(since)
                for each in self._connections
            )
        self.begin(self._placement.decide(busy, idle_cores=idle_cores, active=active, now=now))

    def hears(self, worker: int) -> bool:
        """Tell whether a worker has reported of late, and takes connections."""
        return self._placement.is_there(worker, self._loop.time())

    def begin(self, move: Move | None) -> None:
        """Hand over what this says, connection by connection as each is answered."""
        self._move = move
        self._edge.departure = None if move is None else self._offer

    def _report(self, busy: float, *, room: int) -> None:
        report = _REPORT.pack(self._index, busy, room)
        for worker, other in enumerate(self._sockets):
            if worker != self._index:
                with suppress(OSError):  # its queue is full: it is not there at the moment
                    other.send(report)

    def _offer(self, connection: FastPathProtocol) -> None:
        """Take a connection whose answer was just written; it is sent once that has left."""
        if not self._leaving:
            self._loop.call_soon(self._send)
        self._leaving[connection] = None

    def _send(self) -> None:
        leaving, self._leaving = self._leaving, {}
        move = self._move
        if move is None or not self.hears(move.worker):
            return
        going = [each for each in leaving if each.is_between_requests][: move.connections]
        for start in range(0, len(going), _TOGETHER_MAX):
            part = going[start : start + _TOGETHER_MAX]
            descriptors = [each.transport.get_extra_info("socket").fileno() for each in part]
            try:
                socket.send_fds(self._sockets[move.worker], [b"\0"], descriptors)
            except OSError:  # its queue is full: they stay, until their next answer
                break
            for each in part:
                each.transport.abort()  # closes our descriptor, not the connection
            move = Move(move.worker, move.connections - len(part))
        self._move = move if move.connections else None
        if self._move is None:
            self._edge.departure = None

    def _receive(self) -> None:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._own, _REPORT.size, _TOGETHER_MAX)
            except BlockingIOError:
                return
            if descriptors:
                for descriptor in descriptors:
                    self._adopt(socket.socket(fileno=descriptor))
            elif len(data) == _REPORT.size:
                worker, busy, room = _REPORT.unpack(data)
                self._placement.hear(worker, Load(busy, room), self._loop.time())

    def _adopt(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._build, connection))
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)


class _Clock:
    """What the event loop used since the last look, and how much of the machine was idle."""

    def __init__(self) -> None:
        self._last = self._now()

    def read(self) -> tuple[float, float]:
        """Return the share of a core that this thread used, and how many cores were idle."""
        last, self._last = self._last, self._now()
        at_s, used_s, idle_s = (new - old for new, old in zip(self._last, last, strict=True))
        return used_s / at_s, idle_s / at_s

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), time.thread_time(), _idle_s()


def _idle_s() -> float:
    """Return for how long cores of the machine have been idle; where unknown, one always was."""
    try:
        fields = _STAT.read_bytes().split(None, 6)
    except OSError:
        return time.monotonic()
    return (int(fields[4]) + int(fields[5])) / _TICKS_PER_S  # idle, and waiting for the disk
