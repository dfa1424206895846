"""Let acquirers wait for a lock in the order in which they came.

A waiter stands in the line of the lock, which is a key in the database, so the order holds across
processes. In each process only the first of its waiters looks: when a release is announced, when a
permit that it saw expires, and every second, when it also shows that its process lives. A ticket
whose process has not shown that for some seconds is removed by the others.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import uuid4
from zlib import crc32

from skep.broker.cluster.wakeups import Announcer
from skep.broker.kv.accept import Kv
from skep.broker.locks.decide import Pulse, View
from skep.broker.locks.hold import LockResult, Permits
from skep.broker.locks.operations import LockOperation
from skep.model.errors import KvUnavailable

LOOK_S: Final = 1.0
"""How often the first waiter of a process looks when nothing tells it to."""

LOOK_S_MIN: Final = 0.02
SILENCE_S: Final = 3.0
"""After so long without a beat the tickets of a process are removed."""

_MARK: Final = 1 << 31
"""Tells announcements of locks from those of queues, whose ids are below."""


def announced_id(name: str) -> int:
    """Return the number by which a release is announced."""
    return _MARK | crc32(name.encode())


def is_of_lock(announced: int) -> bool:
    """Tell whether an announcement is about a lock."""
    return announced >= _MARK


@dataclass(slots=True, eq=False)
class _Waiter:
    ticket: str
    woken: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class _Room:
    """The waiters of this process for one lock."""

    waiters: list[_Waiter] = field(default_factory=list[_Waiter])
    line: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the line is changed here, so that only other processes can be in the way."""
    pulse: Pulse = field(default_factory=lambda: Pulse(SILENCE_S))
    beaten_at: float = 0.0

    def wake_first(self) -> None:
        """Let the first look."""
        if self.waiters:
            self.waiters[0].woken.set()


class Locks:
    """Carries out calls on locks."""

    def __init__(self, kv: Kv, announcer: Announcer, *, utc_now: Callable[[], datetime]) -> None:
        self._announcer: Final = announcer
        self._utc_now: Final = utc_now
        self._permits: Final = Permits(kv, self._note_released)
        self._process: Final = str(uuid4())
        self._rooms: Final[dict[str, _Room]] = {}
        self._is_stopping = False
        self.counts: Final[dict[tuple[str, ...], float]] = {}
        """Operations by what became of them."""

    @property
    def waiting_count(self) -> int:
        """How many acquirers wait here."""
        return sum(len(room.waiters) for room in self._rooms.values())

    async def carry_out(self, operations: Sequence[LockOperation]) -> list[LockResult]:
        """Carry out operations, each for itself; return their results in order.

        Raises:
            SkepError: One was refused, or it is not known what became of it.
        """
        results = await asyncio.gather(*map(self._one, operations))
        return [
            {"index": index, "op": each.op, "name": each.name, **result}
            for index, (each, result) in enumerate(zip(operations, results, strict=True))
        ]

    def wake(self, announced: int) -> None:
        """Let those look who wait for what an announcement is about."""
        for name, room in self._rooms.items():
            if announced_id(name) == announced:
                room.wake_first()

    def stop_waiting(self) -> None:
        """Answer those who wait that the lock is held."""
        self._is_stopping = True
        for room in self._rooms.values():
            for waiter in room.waiters:
                waiter.woken.set()

    async def _one(self, asked: LockOperation) -> LockResult:
        operations = {
            "acquire": self._acquire,
            "renew": self._permits.renew,
            "release": self._permits.release,
            "get": self._permits.get,
        }
        result = await operations[asked.op](asked)
        is_done = result.get("acquired", result.get("renewed", result.get("released", True)))
        label = (asked.op, "done" if is_done else result["reason"])
        self.counts[label] = self.counts.get(label, 0) + 1
        return result

    def _note_released(self, name: str) -> None:
        self._announcer.announce(announced_id(name), 1)

    async def _acquire(self, asked: LockOperation) -> LockResult:
        result, _ = await self._permits.acquire(asked)
        if result["acquired"] or not asked.wait_ms or self._is_stopping:
            return result
        loop = asyncio.get_running_loop()
        deadline = loop.time() + asked.wait_ms / 1000
        room = self._rooms.setdefault(asked.name, _Room())
        waiter = _Waiter(str(uuid4()))
        room.waiters.append(waiter)
        try:
            await self._enter(asked, room, waiter)
            return await self._stand(asked, room, waiter, deadline)
        finally:
            room.waiters.remove(waiter)
            if not room.waiters:
                del self._rooms[asked.name]
            room.wake_first()

    async def _stand(
        self, asked: LockOperation, room: _Room, waiter: _Waiter, deadline: float
    ) -> LockResult:
        """Wait in line until there is a permit, or no more time."""
        loop = asyncio.get_running_loop()
        is_in_line = True
        try:
            while True:
                waiter.woken.clear()
                result, view = await self._permits.acquire(asked, waiter.ticket)
                if result["acquired"]:
                    is_in_line = "already" in result
                    return result
                left_s = deadline - loop.time()
                if left_s <= 0 or self._is_stopping:
                    return result
                if view.line.place(waiter.ticket) is None:  # no one beat for the line, or was slow
                    await self._enter(asked, room, waiter)
                await self._keep(asked, room, waiter)
                pause_s = self._pause_s(view) if room.waiters[0] is waiter else left_s
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(pause_s, left_s)):
                        await waiter.woken.wait()
        finally:
            if is_in_line:
                await asyncio.shield(self._leave(asked, room, waiter))

    def _pause_s(self, view: View) -> float:
        """Return when the first waiter looks again: when a permit that it saw expires."""
        ends = [each.expires_at for each in view.permits.values() if each.expires_at is not None]
        if not ends:
            return LOOK_S
        left_s = (min(ends) - self._utc_now()).total_seconds()
        return min(max(left_s, LOOK_S_MIN), LOOK_S)

    async def _enter(self, asked: LockOperation, room: _Room, waiter: _Waiter) -> None:
        async with room.line:
            while True:
                view = await self._permits.look(asked)
                if view.line.place(waiter.ticket) is not None:
                    return
                line = view.line.with_ticket(waiter.ticket, self._process)
                if await self._permits.change_line(asked.name, view, line):
                    return

    async def _leave(self, asked: LockOperation, room: _Room, waiter: _Waiter) -> None:
        with suppress(KvUnavailable):  # the line forgets a process that does not beat
            async with room.line:
                while True:
                    view = await self._permits.look(asked)
                    if view.line.place(waiter.ticket) is None:
                        return
                    line = view.line.without(waiter.ticket)
                    if await self._permits.change_line(asked.name, view, line):
                        break
            self._note_released(asked.name)  # it may have been the first

    async def _keep(self, asked: LockOperation, room: _Room, waiter: _Waiter) -> None:
        """As the first of this process, show that it lives, and remove who does not."""
        now = asyncio.get_running_loop().time()
        if room.waiters[0] is not waiter or now < room.beaten_at + LOOK_S * 0.9:
            return
        async with room.line:
            room.beaten_at = now
            view = await self._permits.look(asked)
            if view.line.place(waiter.ticket) is None:
                return
            silent = room.pulse.silent(view.line, now) - {self._process}
            here = {each.ticket for each in room.waiters}
            line = view.line.without_processes(silent)
            for ticket, process in view.line.tickets:
                if process == self._process and ticket not in here:
                    line = line.without(ticket)  # its answer was lost
            await self._permits.change_line(asked.name, view, line.beaten(self._process))
