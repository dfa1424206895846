"""Accept calls on timers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from skep.broker.once import OnceCall, answered
from skep.broker.timers.operations import TimerStep
from skep.db.access.errors import RejectedData
from skep.engine.driver import Engine
from skep.model.errors import SkepError, TimersBadRequest, TimersUnavailable, Unavailable

_CALL_WEIGHT: Final = 512
_STEP_WEIGHT: Final = 512


class TimerState(NamedTuple):
    """What became of an operation, and the timer after it, or the cancelled one."""

    status: str
    transaction_id: str | None
    deliver_at: datetime | None
    seconds: float | None


class Prepared(NamedTuple):
    """What the database needs for an operation beside what the client sent."""

    queue_id: int | None
    """None: there is no such queue."""
    key: bytes | None
    envelope: bytes | None
    """None for one that cancels."""


@dataclass(slots=True, eq=False)
class TimerCall(OnceCall[Sequence[TimerStep], Sequence[TimerState]]):
    """One client's call."""

    producer: str | None = None
    prepared: Sequence[Prepared] = field(default=(), init=False)

    @property
    def weight(self) -> int:
        """About how many bytes it holds on to."""
        return _CALL_WEIGHT + sum(_STEP_WEIGHT + len(step.payload) for step in self.plan)

    @property
    def step_count(self) -> int:
        """How many rows of arguments it is."""
        return len(self.plan)

    def refusal_of(self, error: SkepError) -> SkepError:
        """Return an error with the code that clients of timers know."""
        if isinstance(error, RejectedData):
            return TimersBadRequest(error.message, reason="timers_bad_body")
        return TimersUnavailable() if isinstance(error, Unavailable) else error


class Timers:
    """Lets calls into the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine

    async def carry_out(
        self, steps: Sequence[TimerStep], producer: str | None
    ) -> Sequence[TimerState]:
        """Carry out a call in one commit and return what became of its operations.

        Raises:
            SkepError: It was refused, or it is not known what became of it.
        """
        if not steps:
            return ()

        def submit(call: TimerCall) -> None:
            targets = {(step.queue, step.timer_key) for step in steps}
            busy = targets.pop() if len(targets) == 1 else None
            self._engine.submit("timers", busy, call.weight, call)

        return await answered(
            lambda answer, refuse: submit(TimerCall(steps, answer, refuse, producer=producer))
        )
