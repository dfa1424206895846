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
from itertools import count
from typing import Final
from uuid import uuid4
from zlib import crc32

from skep.broker.cluster.wakeups import Announcer
from skep.broker.kv.accept import Kv
from skep.broker.locks.decide import Line, Pulses, View
from skep.broker.locks.hold import LockResult, Permits
from skep.broker.locks.operations import LockOperation
from skep.model.errors import SkepError

LOOK_S: Final = 1.0
"""How often the first waiter of a process looks when nothing tells it to."""

LOOK_S_MIN: Final = 0.02
SILENCE_S: Final = 3.0
"""After so long without a beat the tickets of a process are removed."""

LINE_MAX: Final = 500
"""Tickets of a line, which has to fit into a value."""

_MARK: Final = 1 << 31
"""Tells announcements of locks from those of queues, whose ids are below."""


def announced_id(name: str) -> int:
    """Return the number by which a release is announced."""
    return _MARK | crc32(name.encode())


def is_of_lock(announced: int) -> bool:
    """Tell whether an announcement is about a lock."""
    return announced >= _MARK


def pause_s(view: View, utc_now: datetime) -> float:
    """Return when the first waiter looks again: when a permit that it saw expires.

    Permits expire by the clock of the database. One that outlives its end by the clock here is
    looked at the less often the longer it does.
    """
    ends = [each.expires_at for each in view.permits.values() if each.expires_at is not None]
    if not ends:
        return LOOK_S
    left_s = (min(ends) - utc_now).total_seconds()
    return min(max(abs(left_s), LOOK_S_MIN), LOOK_S)


@dataclass(slots=True, eq=False)
class _Waiter:
    ticket: str
    woken: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class _Room:
    """The waiters of this process for one lock."""

    waiters: list[_Waiter] = field(default_factory=list[_Waiter])
    """In the order in which they entered the line."""
    line: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the line is changed here, so that only other processes can be in the way."""
    beaten_at: float = 0.0

    def move_to_end(self, waiter: _Waiter) -> None:
        """Note that a waiter entered the line; another that is the first now looks."""
        first = self.waiters[0]
        self.waiters.sort(key=lambda each: each is waiter)
        if self.waiters[0] is not first:
            self.wake_first()

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
        self._beats: Final = count(1)
        self._pulses: Final = Pulses(SILENCE_S)
        self._rooms: Final[dict[int, dict[str, _Room]]] = {}
        """By the number by which a release is announced, and by name."""
        self._is_stopping = False
        self.counts: Final[dict[tuple[str, ...], float]] = {}
        """Operations by what became of them."""

    @property
    def waiting_count(self) -> int:
        """How many acquirers wait here."""
        return sum(len(room.waiters) for rooms in self._rooms.values() for room in rooms.values())

    async def carry_out(self, operations: Sequence[LockOperation]) -> list[LockResult]:
        """Carry out operations, each for itself; return their results in order.

        Raises:
            SkepError: One was refused, or it is not known what became of it.
        """
        tasks = [asyncio.ensure_future(self._one(each)) for each in operations]
        try:
            results = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.shield(self._take_back(operations, tasks))
            raise
        return [
            {"index": index, "op": each.op, "name": each.name, **result}
            for index, (each, result) in enumerate(zip(operations, results, strict=True))
        ]

    def wake(self, announced: int) -> None:
        """Let those look who wait for what an announcement is about."""
        for room in self._rooms.get(announced, {}).values():
            room.wake_first()

    def stop_waiting(self) -> None:
        """Answer those who wait that the lock is held."""
        self._is_stopping = True
        for rooms in self._rooms.values():
            for room in rooms.values():
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

    async def _take_back(
        self, operations: Sequence[LockOperation], tasks: Sequence[asyncio.Task[LockResult]]
    ) -> None:
        """Release what was acquired by a call that is not answered, for no one knows the token."""
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for asked, result in zip(operations, results, strict=True):
            if isinstance(result, dict) and result.get("acquired") and asked.owner is None:
                await self._permits.give_back(asked, result["slot"], result["token"])

    def _note_released(self, name: str) -> None:
        self._announcer.announce(announced_id(name), 1)

    async def _acquire(self, asked: LockOperation) -> LockResult:
        result, _ = await self._permits.acquire(asked)
        if result["acquired"] or not asked.wait_ms or self._is_stopping:
            return result
        loop = asyncio.get_running_loop()
        deadline = loop.time() + asked.wait_ms / 1000
        announced = announced_id(asked.name)
        room = self._rooms.setdefault(announced, {}).setdefault(asked.name, _Room())
        waiter = _Waiter(str(uuid4()))
        room.waiters.append(waiter)
        try:
            return await self._stand(asked, room, waiter, result, deadline)
        finally:
            room.waiters.remove(waiter)
            if not room.waiters:
                del self._rooms[announced][asked.name]
                if not self._rooms[announced]:
                    del self._rooms[announced]
            room.wake_first()

    async def _stand(
        self,
        asked: LockOperation,
        room: _Room,
        waiter: _Waiter,
        result: LockResult,
        deadline: float,
    ) -> LockResult:
        """Wait in line until there is a permit, or no more time; do not wait if it is full."""
        loop = asyncio.get_running_loop()
        is_in_line = True
        try:
            if not await self._enter(asked, room, waiter):
                return result
            while True:
                waiter.woken.clear()
                result, view = await self._permits.acquire(asked, waiter.ticket)
                if result["acquired"]:
                    is_in_line = "already" in result
                    return result
                left_s = deadline - loop.time()
                if left_s <= 0 or self._is_stopping:
                    return result
                # It is lost if no one beat for the line, or this process was slow.
                is_lost = view.line.place(waiter.ticket) is None
                if is_lost and not await self._enter(asked, room, waiter):
                    return result
                await self._keep(asked, room, waiter)
                is_first = room.waiters[0] is waiter
                wait_s = min(pause_s(view, self._utc_now()), left_s) if is_first else left_s
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await waiter.woken.wait()
        finally:
            if is_in_line:
                await asyncio.shield(self._leave(asked, room, waiter))

    async def _enter(self, asked: LockOperation, room: _Room, waiter: _Waiter) -> bool:
        """Stand at the end of the line, unless it is full; return whether it does.

        It is entered to the end though the waiter hangs up: who leaves must find the ticket.
        """
        return await asyncio.shield(self._entered(asked, room, waiter))

    async def _entered(self, asked: LockOperation, room: _Room, waiter: _Waiter) -> bool:
        def enter(line: Line) -> Line:
            line = self._swept(asked.name, room, line)
            if len(line.tickets) >= LINE_MAX or line.place(waiter.ticket) is not None:
                return line
            return line.with_ticket(waiter.ticket, self._process, next(self._beats))

        async with room.line:
            line = await self._change(asked, enter)
            if line.place(waiter.ticket) is None:
                return False
            room.move_to_end(waiter)
            return True

    async def _leave(self, asked: LockOperation, room: _Room, waiter: _Waiter) -> None:
        with suppress(SkepError):  # the line forgets it later
            async with room.line:
                await self._change(asked, lambda line: line.without(waiter.ticket))

    async def _keep(self, asked: LockOperation, room: _Room, waiter: _Waiter) -> None:
        """As the first of this process, show that it lives, and remove who does not."""

        def keep(line: Line) -> Line:
            if line.place(waiter.ticket) is None:
                return line
            return self._swept(asked.name, room, line).beaten(self._process, next(self._beats))

        now = asyncio.get_running_loop().time()
        if room.waiters[0] is waiter and now >= room.beaten_at + LOOK_S * 0.9:
            async with room.line:
                await self._change(asked, keep)
            room.beaten_at = now

    async def _change(self, asked: LockOperation, change: Callable[[Line], Line]) -> Line:
        """Change the line and return it; if tickets are removed, the next may be the first."""
        while True:
            view = await self._permits.look(asked)
            line = change(view.line)
            if line == view.line:
                return line
            if await self._permits.change_line(asked.name, view, line):
                if not set(view.line.tickets) <= set(line.tickets):
                    self._note_released(asked.name)
                return line

    def _swept(self, name: str, room: _Room, line: Line) -> Line:
        """Return a line without tickets of processes that do not live, and of no waiter here."""
        now = asyncio.get_running_loop().time()
        line = line.without_processes(self._pulses.silent(name, line, now) - {self._process})
        here = {each.ticket for each in room.waiters}
        for ticket, process in line.tickets:
            if process == self._process and ticket not in here:
                line = line.without(ticket)  # its answer was lost
        return line
