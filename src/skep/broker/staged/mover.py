"""Sequence what applications staged in their own transactions, soon after these commit.

Every process may do it; the database lets one at a time. The process that leads the background work
also listens, and hears of every commit that staged something. The others look now and then, and so
does the leader: for those who told nobody, and for what a process left that did not live to finish.
`StagedPlan` decides when to look, and is pure; `StagedSequencer` is its driver.
"""

import asyncio
import logging
from typing import Final

from skep.broker.cluster.leadership import Leadership
from skep.broker.cluster.wakeups import Announcer
from skep.broker.polling_loop import LookLoop
from skep.broker.staged.store import Moved, StagedMover
from skep.db.access.listening import Listener
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

STAGED_CHANNEL: Final = "skep_staged"
"""Where transactions that staged something tell so."""

PUSHED_CHANNEL: Final = "skep_pushed"
"""Where transactions that pushed by SQL tell so; the payload is the id of the queue."""

IDLE_S: Final = 5.0
"""How often to look when nobody told anything. A look that finds nothing is one cheap call."""

UNTOLD_S: Final = 0.2
"""When to look again after something was found that nobody told of; each time it is in vain the
pause doubles. So those who notify nobody wait less while they are busy."""

PAUSE_S: Final = 0.01
"""The least time between two looks: transactions that commit at about the same time travel
together."""

YIELD_S: Final = 0.04
"""How long to leave the work to another process that is at it."""

RECOVERY_S: Final = 1.0
"""How long to leave alone a database in trouble."""

START_OVER_S: Final = 60.0
"""How often to look at everything that is staged, whatever this process believes to have moved."""

_QUEUE_ID_MAX: Final = (1 << 31) - 1


class StagedPlan:
    """When to look for staged messages. Times are those of the event loop's clock."""

    def __init__(self, now: float) -> None:
        self._earliest = now
        self._idle_at = now
        self._interval_s = IDLE_S
        self._start_over_at = now + START_OVER_S
        self._is_told = False
        self._was_told = False

    def next_look(self) -> float:
        """Return when to look next."""
        return self._earliest if self._is_told else self._idle_at

    def hear(self) -> bool:
        """Take note that something was staged; return whether the next look is earlier now."""
        before = self.next_look()
        self._is_told = True
        return self.next_look() < before

    def begin(self, now: float) -> bool:
        """A look begins; return whether it should look at everything."""
        self._was_told, self._is_told = self._is_told, False
        if now < self._start_over_at:
            return False
        self._start_over_at = now + START_OVER_S
        return True

    def looked(self, now: float, moved: Moved) -> None:
        """A look ended."""
        self._earliest = now + PAUSE_S
        if moved.found and not self._was_told:
            self._interval_s = UNTOLD_S
        else:
            self._interval_s = min(2 * self._interval_s, IDLE_S)
        if not moved.is_whole:
            self._again_at(now + YIELD_S)
        elif moved.has_more:
            self._again_at(now)
        self._idle_at = now + self._interval_s

    def failed(self, now: float) -> None:
        """A look failed: try again, but not at once, and then look at everything."""
        self._start_over_at = now
        self._again_at(now + RECOVERY_S)

    def _again_at(self, moment: float) -> None:
        self._earliest = moment
        self._is_told = True


class StagedSequencer:
    """Looks for staged messages, in a task of its own."""

    def __init__(
        self, mover: StagedMover, announcer: Announcer, leadership: Leadership, dsn: str
    ) -> None:
        self._mover: Final = mover
        self._announcer: Final = announcer
        self._leadership: Final = leadership
        self._listener: Final = Listener(
            dsn,
            {STAGED_CHANNEL: lambda _: self.hear(), PUSHED_CHANNEL: self._hear_of_push},
            on_connect=self.hear,
        )
        self._loop: Final = asyncio.get_running_loop()
        self._plan: Final = StagedPlan(self._loop.time())
        self._looks: Final = LookLoop(self._look, self._plan.next_look)
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look, and to listen when this process leads."""
        self._looks.start()
        self._listening = self._loop.create_task(self._listen())

    async def stop(self) -> None:
        """Stop listening and looking."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        await self._looks.stop()

    def hear(self) -> None:
        """Hear that something may have been staged."""
        if self._plan.hear():
            self._looks.hurry()

    def _hear_of_push(self, payload: str) -> None:
        # Anybody may notify on the channel; what is no id of a queue is nobody's business.
        if payload.isascii() and payload.isdecimal() and int(payload[:20]) <= _QUEUE_ID_MAX:
            self._announcer.announce(int(payload), 1)

    async def _listen(self) -> None:
        while True:
            await self._leadership.wait_until_leader()
            await self._listener.listen_while(lambda: self._leadership.is_leader)
            await asyncio.sleep(PAUSE_S)  # for the end of leadership to be noticed everywhere

    async def _look(self) -> None:
        if self._plan.begin(self._loop.time()):
            self._mover.start_over()
        try:
            moved = await self._mover.move()
        except SkepError as error:
            _log.warning("staged messages could not be moved: %s", error)
            self._plan.failed(self._loop.time())
            return
        self._plan.looked(self._loop.time(), moved)
