"""Sequence what applications staged in their own transactions, soon after these commit.

Every process does it; the database lets one at a time. The leader of the background work also
listens, and hears of every commit that notified. All processes poll now and then, for commits that
did not notify and for what processes that died left behind. `StagedPlan` (pure) decides when;
`StagedSequencer` drives it.
"""

import asyncio
import logging
from typing import Final

from skep.broker.cluster.leadership import Leadership
from skep.broker.cluster.wakeups import Announcer
from skep.broker.polling_loop import PollingLoop
from skep.broker.staged.move import Moved, StagedMover
from skep.db.access.listening import Listener
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

STAGED_CHANNEL: Final = "skep_staged"
"""Notified by transactions that staged something."""

PUSHED_CHANNEL: Final = "skep_pushed"
"""Notified by transactions that pushed by SQL; the payload is the id of the queue."""

IDLE_S: Final = 5.0
"""How often to poll without a notification. A poll that finds nothing is one cheap call."""

UNNOTIFIED_S: Final = 0.2
"""When to poll again after finding something without a notification; the pause doubles with each
poll in vain. So applications that do not notify wait less while they are busy."""

PAUSE_S: Final = 0.01
"""The least time between two polls: transactions that commit at about the same time are moved
together."""

YIELD_S: Final = 0.04
"""How long to wait while another process moves messages."""

RECOVERY_S: Final = 1.0
"""How long to leave alone a database in trouble."""

START_OVER_S: Final = 60.0
"""How often to read everything that is staged, also what this process believes to have moved."""

_QUEUE_ID_MAX: Final = (1 << 31) - 1


class StagedPlan:
    """When to poll for staged messages. Times are those of the event loop's clock."""

    def __init__(self, now: float) -> None:
        self._earliest = now
        self._idle_at = now
        self._interval_s = IDLE_S
        self._start_over_at = now + START_OVER_S
        self._is_notified = False
        self._was_notified = False

    def next_poll_at(self) -> float:
        """Return when to poll next."""
        return self._earliest if self._is_notified else self._idle_at

    def hear(self) -> bool:
        """Note that something was staged; return whether that makes the next poll sooner."""
        before = self.next_poll_at()
        self._is_notified = True
        return self.next_poll_at() < before

    def begin(self, now: float) -> bool:
        """A poll begins; return whether it should read everything."""
        self._was_notified, self._is_notified = self._is_notified, False
        if now < self._start_over_at:
            return False
        self._start_over_at = now + START_OVER_S
        return True

    def polled(self, now: float, moved: Moved) -> None:
        """A poll ended."""
        self._earliest = now + PAUSE_S
        if moved.found and not self._was_notified:
            self._interval_s = UNNOTIFIED_S
        else:
            self._interval_s = min(2 * self._interval_s, IDLE_S)
        if not moved.is_whole:
            self._again_at(now + YIELD_S)
        elif moved.has_more:
            self._again_at(now)
        self._idle_at = now + self._interval_s

    def failed(self, now: float) -> None:
        """A poll failed: try again, but not at once, and then read everything."""
        self._start_over_at = now
        self._again_at(now + RECOVERY_S)

    def _again_at(self, moment: float) -> None:
        self._earliest = moment
        self._is_notified = True


class StagedSequencer(PollingLoop):
    """Moves staged messages, in a task of its own."""

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
        self._plan: Final = StagedPlan(asyncio.get_running_loop().time())
        super().__init__(self._move, self._plan.next_poll_at)
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to poll, and to listen when this process leads."""
        super().start()
        self._listening = self._loop.create_task(self._listen())

    async def stop(self) -> None:
        """Stop listening and polling."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        await super().stop()

    def hear(self) -> None:
        """Hear that something may have been staged."""
        if self._plan.hear():
            self.poll_sooner()

    def _hear_of_push(self, payload: str) -> None:
        # Any session may notify on the channel; a payload that is no queue id is ignored.
        if payload.isascii() and payload.isdecimal() and int(payload[:20]) <= _QUEUE_ID_MAX:
            self._announcer.announce(int(payload), 1)

    async def _listen(self) -> None:
        while True:
            await self._leadership.wait_until_leader()
            await self._listener.listen_while(lambda: self._leadership.is_leader)
            await asyncio.sleep(PAUSE_S)  # for the end of leadership to be noticed everywhere

    async def _move(self) -> None:
        if self._plan.begin(self._loop.time()):
            self._mover.start_over()
        try:
            moved = await self._mover.move()
        except SkepError as error:
            _log.warning("staged messages could not be moved: %s", error)
            self._plan.failed(self._loop.time())
            return
        self._plan.polled(self._loop.time(), moved)
