"""Do background work while this process leads: named duties, each at its own pace.

A `Duty` does one bounded step per `run` and says whether there is more. `Pace` (pure) decides when
it runs again: after a pause in proportion to the time the step took, so that bulk work leaves the
database to messages; after its interval when nothing is left; with growing pauses while it fails.
An error in a duty ends neither its loop nor another duty. Duties run concurrently, bounded by the
connections they are given.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from skep.broker.cluster.leadership import Leadership
from skep.db.access.errors import LeadershipLost
from skep.db.access.slots import Caller
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

REST_PER_WORK: Final = 2.0
"""A duty with much to do works a third of the time."""
REST_S_MIN: Final = 0.01
JITTER: Final = 0.1
"""Intervals vary by this share, so that duties (and installations) do not march in step."""
FIRST_SHARE: Final = 0.1
"""A new leader runs each duty within this share of its interval."""
FIRST_S_MAX: Final = 5.0
BACKOFF_S_MIN: Final = 1.0
BACKOFF_S_MAX: Final = 60.0
GIVE_WAY_S: Final = 1.0
"""How long a duty rests when it gives way to messages."""
GIVE_WAY_MAX: Final = 60
"""How often in a row: an overload that lasts must not keep anything from being cleaned up."""
STOP_S: Final = 2.0
"""How long a step under way may take to end when the process stops."""


class Duty(Protocol):
    """Work that one process of the installation repeats."""

    @property
    def name(self) -> str:
        """Its name in logs."""
        ...

    @property
    def interval_s(self) -> float:
        """How long to wait when nothing is left to do."""
        ...

    async def run(self) -> bool:
        """Do a bounded step; return whether there is more."""
        ...


class CallDuty(NamedTuple):
    """A duty of one statement, which tells in its last column whether to run it again."""

    name: str
    interval_s: float
    caller: Caller
    statement: str
    arguments: tuple[object, ...]
    again_from: float
    """The least value that means there is more: a full batch, or true."""

    async def run(self) -> bool:
        """Run the statement once."""
        (row,) = await self.caller.call(self.statement, *self.arguments)
        return row[-1] >= self.again_from


class Pace:
    """When a duty runs next."""

    def __init__(self, interval_s: float, chance: random.Random) -> None:
        self._interval_s: Final = interval_s
        self._chance: Final = chance
        self._failures = 0
        self._times_given_way = 0

    def give_way(self) -> float | None:
        """How long to rest before a step that should give way; None when it did so for long."""
        self._times_given_way += 1
        return GIVE_WAY_S if self._times_given_way <= GIVE_WAY_MAX else None

    def at_first(self) -> float:
        """How long to wait before the first run."""
        return self._chance.random() * min(self._interval_s * FIRST_SHARE, FIRST_S_MAX)

    def after_success(self, spent_s: float, *, has_more: bool) -> float:
        """How long to rest after a step that took so long."""
        self._failures = 0
        self._times_given_way = 0
        if has_more:
            return max(REST_S_MIN, spent_s * REST_PER_WORK)
        return self._interval_s * self._chance.uniform(1 - JITTER, 1 + JITTER)

    def after_failure(self) -> float:
        """How long to wait after a step that failed: twice as long each time."""
        longest_s = max(BACKOFF_S_MIN, min(self._interval_s, BACKOFF_S_MAX))
        wait_s = min(BACKOFF_S_MIN * 2.0 ** min(self._failures, 30), longest_s)
        self._failures += 1
        self._times_given_way = 0
        return wait_s * self._chance.uniform(1 - JITTER, 1 + JITTER)


@dataclass(slots=True, eq=False)
class Housekeeper:
    """Runs duties while this process leads."""

    leadership: Leadership
    duties: Sequence[Duty]
    chance: random.Random = field(default_factory=random.Random)
    gives_way: Callable[[], bool] = lambda: False
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])
    _at_work: set[asyncio.Task[None] | None] = field(
        default_factory=set["asyncio.Task[None] | None"]
    )
    _is_stopping: bool = False

    def start(self) -> None:
        """Begin to ask for the lease, and to work when it is granted."""
        self.leadership.start()
        self._tasks = [self._loop.create_task(self._attend_to(duty)) for duty in self.duties]

    async def stop(self) -> None:
        """Let steps under way end, then let another process lead."""
        self._is_stopping = True
        for task in self._tasks:
            if task not in self._at_work:
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self.leadership.stop()

    async def _attend_to(self, duty: Duty) -> None:
        pace = Pace(duty.interval_s, self.chance)
        while not self._is_stopping:
            if self.leadership.is_leader:
                rest_s = pace.give_way() if self.gives_way() else None
                rest_s = rest_s or await self._run(duty, pace)
            else:
                await self.leadership.wait_until_leader()
                rest_s = pace.at_first()
            if not self._is_stopping:
                await asyncio.sleep(rest_s)

    async def _run(self, duty: Duty, pace: Pace) -> float:
        """Do one step; return how long to rest."""
        began_s = self._loop.time()
        task = asyncio.current_task()
        self._at_work.add(task)
        try:
            has_more = await duty.run()
        except LeadershipLost:
            _log.info("%s stopped: another process leads", duty.name)
            return pace.after_success(0, has_more=False)
        except SkepError as error:
            _log.warning("%s failed and will be tried again: %s", duty.name, error)
            return pace.after_failure()
        except Exception:  # noqa: BLE001 (a bug in one duty must not end the others)
            _log.exception("%s failed and will be tried again", duty.name)
            return pace.after_failure()
        finally:
            self._at_work.discard(task)
        return pace.after_success(self._loop.time() - began_s, has_more=has_more)
