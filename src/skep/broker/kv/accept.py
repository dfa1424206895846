"""Accept calls on keys: those that only read wait for readers, the others for writers.

Calls that write one key share a partition of the engine, so that one execution carries all that
wait for a busy key, and a key that an application has locked holds up no more than one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from skep.broker.kv.operations import Plan, rejected
from skep.broker.once import OnceCall, answered
from skep.db.access.errors import RejectedData
from skep.engine.driver import Engine
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


@dataclass(slots=True, eq=False)
class KvCall(OnceCall[Plan, Outcome]):
    """One client's call."""

    @property
    def weight(self) -> int:
        """About how many bytes it holds on to, or reads."""
        limits = sum(listing.limit for listing in self.plan.listings)
        values = sum(len(step.value or "") for step in self.plan.steps)
        return _CALL_WEIGHT + _STEP_WEIGHT * (len(self.plan.steps) + limits) + values

    @property
    def step_count(self) -> int:
        """How many rows of arguments it is."""
        return len(self.plan.steps)

    @property
    def stands_alone(self) -> bool:
        """A list has to be of the instant behind the writes of its call."""
        return bool(self.plan.listings)

    def refusal_of(self, error: SkepError) -> SkepError:
        """Return an error with the code that clients of keys know."""
        if isinstance(error, RejectedData):
            return rejected(error)
        return KvUnavailable() if isinstance(error, Unavailable) else error


class Kv:
    """Lets calls into the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine

    def call(self, call: KvCall, busy: tuple[str, str] | None = None) -> None:
        """Carry out a call; it is answered once, later or now.

        One that writes several keys may name the one that is busy: as many calls about it as there
        are then take one place in the engine, as those do that write no other key.

        Raises:
            Overloaded: There is no room; it is not answered.
        """
        plan = call.plan
        if not plan.operations:
            call.finish(Outcome((), ()))
        elif plan.writes:
            keys = {step.key for step in plan.steps}
            if busy is None and len(keys) == 1:
                busy = keys.pop()
            self._engine.submit("kv", busy, call.weight, call)
        else:
            self._engine.submit("kv_read", None, call.weight, call)

    async def carry_out(self, plan: Plan, busy: tuple[str, str] | None = None) -> Outcome:
        """Carry out a call, see `call`, and return what became of it.

        Raises:
            SkepError: It was refused, or it is not known what became of it.
        """
        return await answered(lambda answer, refuse: self.call(KvCall(plan, answer, refuse), busy))
