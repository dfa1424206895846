"""Carry out what the fusion core decides: run calls, and find the failing unit when one fails.

The driver gathers everything submitted in one turn of the event loop, asks the core what may leave,
and runs each call as a task, by the executor that `skep.app.parts` named for the operation. When a
call fails:

* refused data, or a bug: the call is halved until the failing unit is alone; only that one fails;
* not executed (deadlock, timeout, no connection): the same call is run again, with growing pauses;
* outcome unknown (the connection broke): the executor is told that this is a repetition and finds
  out what the first attempt did, so that nothing is done twice.

Repeating ends at `patience_s` after the call left; what is still undone then fails as unavailable.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from skep.db.access.errors import NotExecuted, OutcomeUnknown
from skep.engine.fusion import Call, FusionCore, WorkUnit
from skep.model.errors import Defect, SkepError, Unavailable
from skep.telemetry.defects import error_of
from skep.telemetry.meters import Meters

_log = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 0.02
RETRY_PAUSE_S_MAX: Final = 0.5


@dataclass(slots=True, eq=False)
class Work(ABC):
    """What a unit carries: a request, or a part of some, that waits for an answer."""

    may_go_on: ClassVar[bool] = False
    """It may stay without an answer at the end of its call, because something else holds it."""

    is_settled: bool = field(default=False, init=False)
    """It was answered, or its client is gone."""

    @abstractmethod
    def fail(self, error: SkepError) -> None:
        """Answer that it could not be done."""

    def split(self) -> Sequence["Work"]:
        """Return smaller works that together are this one; none if it is one client's."""
        return ()


class Execute(Protocol):
    """Runs one call of an operation for a batch, in its order, and answers each work in it.

    `is_repeated` says that an earlier attempt of the same batch may have been executed. When it
    raises, the works that are not settled were not answered. When it returns, all are settled but
    those that may go on.
    """

    async def __call__(self, batch: Sequence[Any], *, is_repeated: bool) -> None:
        """Run one call."""
        ...


class Engine:
    """The fusion engine of one process."""

    def __init__(
        self, core: FusionCore, *, patience_s: float, meters: Meters | None = None
    ) -> None:
        self._core: Final = core
        self._operations: Final = (meters or Meters()).operations
        self._execute_by_operation: Final[dict[str, Execute]] = {}
        self._patience_s: Final = patience_s
        self._loop: Final = asyncio.get_running_loop()
        self._calls: set[asyncio.Task[None]] = set()
        self._is_pump_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._relieved: Callable[[], None] | None = None

    @property
    def load(self) -> float:
        """How full the engine is, from 0 to 1; above that only by a single heavy unit."""
        return self._core.load

    def is_under_way(self, operation: str, partition: Hashable) -> bool:
        """Tell whether units of a partition wait or are in flight."""
        return self._core.is_under_way(operation, partition)

    def when_relieved(self, callback: Callable[[], None]) -> None:
        """Have `callback` called whenever a call has come back and left room."""
        self._relieved = callback

    @property
    def weight(self) -> int:
        """What waits and flies, in bytes."""
        return self._core.weight

    def serve(self, operation: str, execute: Execute) -> None:
        """Say what runs the calls of an operation."""
        self._execute_by_operation[operation] = execute

    def admit(self, operation: str, weight: int) -> None:
        """Check that there is room for units of so much weight together.

        Raises:
            Overloaded: The engine holds as much as it may.
        """
        self._core.admit(operation, weight)

    def submit(
        self,
        operation: str,
        partition: Hashable | None,
        weight: int,
        work: Work,
        *,
        is_admitted: bool = False,
    ) -> WorkUnit[Any]:
        """Queue a unit; it leaves at the end of this turn of the loop at the earliest.

        One that is admitted is always accepted: `admit` found room for it, or it ends or continues
        what was accepted before.

        Raises:
            Overloaded: The engine holds as much as it may.
        """
        unit = self._core.offer(
            operation, partition, weight, work, self._loop.time(), is_admitted=is_admitted
        )
        if not self._is_pump_scheduled:
            self._schedule_pump()
        return unit

    def enlarge(self, unit: WorkUnit[Any], weight: int) -> bool:
        """Add weight that was admitted to a unit that waits; False when it has left or is full."""
        if not self._is_pump_scheduled:
            self._schedule_pump()
        return self._core.enlarge(unit, weight)

    def withdraw(self, unit: WorkUnit[Any]) -> bool:
        """Take back a unit whose client is gone; False when it is already under way."""
        return self._core.withdraw(unit)

    async def drain(self) -> None:
        """Wait until nothing waits and nothing flies."""
        while self._core.weight:
            if self._calls:
                await asyncio.wait(self._calls)
            elif self._is_pump_scheduled or self._timer is None:
                await asyncio.sleep(0)
            else:  # something waits for more to leave with it
                await asyncio.sleep(self._timer.when() - self._loop.time())

    def _schedule_pump(self) -> None:
        # At the end of the turn: everything that arrives in it can leave together.
        self._is_pump_scheduled = True
        self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pump_scheduled = False
        now = self._loop.time()
        for call in self._core.take_ready(now):
            task = self._loop.create_task(self._run(call))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_at = self._core.next_due(now)
        if due_at is not None:
            self._timer = self._loop.call_at(due_at, self._pump)

    async def _run(self, call: Call) -> None:
        succeeded = False
        meter = self._operations[call.operation]
        meter.in_flight += 1
        meter.units.observe(len(call.units))
        try:
            batch = [unit.work for unit in call.units]
            succeeded = await self._run_batch(self._execute_by_operation[call.operation], batch)
        finally:
            meter.in_flight -= 1
            meter.failures += not succeeded
            self._core.settle(call, self._loop.time(), succeeded=succeeded)
            if self._relieved is not None:
                self._relieved()
            self._pump()

    async def _run_batch(
        self, execute: Execute, batch: Sequence[Any], *, is_repeated: bool = False
    ) -> bool:
        """Run the batch to its end; tell whether the first attempt succeeded."""
        deadline = self._loop.time() + self._patience_s
        pause_s = RETRY_PAUSE_S
        succeeded = True
        while True:
            try:
                await execute(batch, is_repeated=is_repeated)
            except (NotExecuted, OutcomeUnknown) as error:
                is_repeated = is_repeated or isinstance(error, OutcomeUnknown)
                if self._loop.time() + pause_s > deadline:
                    _fail(batch, error)
                    return False
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_PAUSE_S_MAX)
                succeeded = False
            except Unavailable as error:  # a repetition could not find out what was done
                _fail(batch, error)
                return False
            except Exception as error:  # noqa: BLE001 -- any failure is some unit's; halving finds whose
                # Our own errors mean that nothing was done; a bug may come after the commit.
                is_repeated = is_repeated or not isinstance(error, SkepError)
                await self._isolate(execute, batch, error, is_repeated=is_repeated)
                return False
            else:
                if forgotten := [each for each in batch if not (each.is_settled or each.may_go_on)]:
                    _log.error("a call of %r left units without an answer", execute)
                    _fail(forgotten, Defect())
                return succeeded
            batch = [work for work in batch if not work.is_settled]
            if not batch:
                return False

    async def _isolate(
        self, execute: Execute, batch: Sequence[Any], error: Exception, *, is_repeated: bool
    ) -> None:
        """Fail the only work left, or run each half on its own."""
        batch = [work for work in batch if not work.is_settled]
        if len(batch) == 1:
            batch = batch[0].split() or batch
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._run_batch(execute, batch[:middle], is_repeated=is_repeated)
            await self._run_batch(execute, batch[middle:], is_repeated=is_repeated)
            return
        if not isinstance(error, SkepError) or isinstance(error, Defect):
            _log.error("a defect failed a call", exc_info=error)
        _fail(batch, error if isinstance(error, SkepError) else Defect())


def _fail(batch: Sequence[Any], error: SkepError) -> None:
    is_away = isinstance(error, Unavailable)
    batch = [work for work in batch if not work.is_settled]
    if is_away and batch:
        _log.warning("gave up %d units of a call: %s", len(batch), error)
    for work in batch:
        # An answer that fails must not keep the others from theirs.
        if failure := error_of(partial(work.fail, Unavailable() if is_away else error)):
            _log.error("a unit could not be answered: %s", failure)
