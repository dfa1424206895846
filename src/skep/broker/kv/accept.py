"""Accept calls on keys: those that only read wait for readers, the others for writers.

Calls that write one key share a partition of the engine, so that one execution carries all that
wait for a busy key, and a key that an application has locked holds up no more than one.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from skep.broker.kv.operations import Plan, rejected
from skep.db.access.errors import RejectedData
from skep.engine.driver import Engine, Work
from skep.model.errors import KvUnavailable, SkepError, Unavailable

_CALL_WEIGHT: Final = 512
_STEP_WEIGHT: Final = 256


class KeyState(NamedTuple):
    """What became of a step, and the key after it."""

    is_applied: bool
    """Or found."""
    reason: str | None
    value: str | None
    """JSON; null for a put that was applied."""
    version: int
    expires_at: datetime | None
    updated_at: datetime | None


class ListedKey(msgspec.Struct, frozen=True):
    """A row of `kv_list`."""

    list: int
    place: int
    key: str
    value: str | None
    version: int
    expires_at: datetime | None
    updated_at: datetime
    has_room: bool


class Outcome(NamedTuple):
    """What became of a call."""

    states: Sequence[KeyState]
    """By step of the plan."""
    listed: Sequence[Sequence[ListedKey]]
    """By listing of the plan."""
    is_undone: bool = False
    """A required step was not applied: nothing was changed."""


class Attempt(NamedTuple):
    """Where the steps of a call are in the execution that carried them."""

    id: UUID
    start: int


@dataclass(slots=True, eq=False)
class KvCall(Work):
    """One client's call."""

    plan: Plan
    answer: Callable[[Outcome], object]
    refuse: Callable[[SkepError], None]
    attempt: Attempt | None = None
    """The last execution that carried it."""

    @property
    def weight(self) -> int:
        """About how many bytes it holds on to, or reads."""
        limits = sum(listing.limit for listing in self.plan.listings)
        values = sum(len(step.value or "") for step in self.plan.steps)
        return _CALL_WEIGHT + _STEP_WEIGHT * (len(self.plan.steps) + limits) + values

    def finish(self, outcome: Outcome) -> None:
        """Answer with what became of it."""
        self.answer(outcome)
        self.is_settled = True

    def fail(self, error: SkepError) -> None:
        """Answer that it was refused, or that it is not known what became of it."""
        self.is_settled = True
        if isinstance(error, RejectedData):
            error = rejected(error)
        elif isinstance(error, Unavailable):
            error = KvUnavailable()
        self.refuse(error)


class Kv:
    """Lets calls into the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine

    def call(self, call: KvCall) -> None:
        """Carry out a call; it is answered once, later or now.

        Raises:
            Overloaded: There is no room; it is not answered.
        """
        plan = call.plan
        if not plan.operations:
            call.finish(Outcome((), ()))
        elif plan.writes:
            keys = {step.key for step in plan.steps}
            self._engine.submit("kv", keys.pop() if len(keys) == 1 else None, call.weight, call)
        else:
            self._engine.submit("kv_read", None, call.weight, call)

    async def carry_out(self, plan: Plan) -> Outcome:
        """Carry out a call and return what became of it.

        Raises:
            SkepError: It was refused, or it is not known what became of it.
        """
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def answer(outcome: Outcome) -> None:
            if not answered.done():
                answered.set_result(outcome)

        def refuse(error: SkepError) -> None:
            if not answered.done():
                answered.set_exception(error)

        self.call(KvCall(plan, answer, refuse))
        return await answered
