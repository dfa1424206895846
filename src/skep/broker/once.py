"""Carry out clients' calls that change rows: many in one transaction, each exactly once.

Every topic says how its calls become arguments and what an answer means; what they share is here.
An execution records its answers under an id in its own transaction. After a lost connection they
are read from the record, and only calls that are not on record are carried out again. A call that
waits too long for a row which another transaction holds is repeated apart from the others.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID, uuid4

from skep.db.access.errors import LockTimeout
from skep.db.access.slots import Caller
from skep.engine.driver import Work
from skep.model.errors import SkepError

PATIENCE_MS: Final = 200
"""How long calls that share an execution wait for a row that another transaction has locked."""

PlanT = TypeVar("PlanT")
OutcomeT = TypeVar("OutcomeT")


class Attempt(NamedTuple):
    """Where the steps of a call are in the execution that carried them."""

    id: UUID
    start: int


@dataclass(slots=True, eq=False)
class OnceCall(Work, Generic[PlanT, OutcomeT]):
    """One client's call."""

    plan: PlanT
    answer: Callable[[OutcomeT], object]
    refuse: Callable[[SkepError], None]
    attempt: Attempt | None = None
    """The last execution that carried it."""

    @property
    @abstractmethod
    def step_count(self) -> int:
        """How many rows of arguments it is."""

    @property
    def stands_alone(self) -> bool:
        """Whether it needs an execution of its own."""
        return False

    def finish(self, outcome: OutcomeT) -> None:
        """Answer with what became of it."""
        self.answer(outcome)
        self.is_settled = True

    def fail(self, error: SkepError) -> None:
        """Answer that it was refused, or that it is not known what became of it."""
        self.is_settled = True
        self.refuse(self.refusal_of(error))

    @abstractmethod
    def refusal_of(self, error: SkepError) -> SkepError:
        """Return an error with the code that clients of the topic know."""


CallT = TypeVar("CallT", bound=OnceCall[Any, Any])


class OnceExecutor(Generic[CallT]):
    """Executor of calls that change rows."""

    settled_call: str
    """Returns the answers on record, with their ids."""

    def __init__(self, caller: Caller) -> None:
        self.caller: Final = caller

    async def write(self, batch: Sequence[CallT], *, is_repeated: bool) -> None:
        """Carry out calls, each entirely or not at all."""
        if is_repeated:
            batch = await self._settled(batch)
        batch = await self.prepare(batch)
        together = [call for call in batch if not call.stands_alone]
        stuck = [call for call in batch if call.stands_alone]
        if together:
            await self._commit_apart(together, stuck)
        for call in stuck:
            await self._commit([call], None)

    async def prepare(self, batch: Sequence[CallT]) -> Sequence[CallT]:
        """Refuse what can be refused before, and return the other calls."""
        return batch

    @abstractmethod
    async def send(self, id_: UUID, patience_ms: int | None, batch: Sequence[CallT]) -> Any:
        """Carry out calls in one transaction and return its answer, a row of columns."""

    @abstractmethod
    def finish(self, call: CallT, steps: slice, row: Any) -> None:
        """Answer a call from its part of an answer."""

    async def _settled(self, batch: Sequence[CallT]) -> Sequence[CallT]:
        """Answer what an earlier attempt did, and return the calls that were not carried out."""
        ids = {call.attempt.id for call in batch if call.attempt is not None}
        rows = {row["id"]: row for row in await self.caller.call(self.settled_call, list(ids))}
        for call in batch:
            if call.attempt is not None and call.attempt.id in rows:
                self._finish(call, rows[call.attempt.id])
        return [call for call in batch if not call.is_settled]

    async def _commit_apart(self, batch: list[CallT], stuck: list[CallT]) -> None:
        """Carry out calls together, but for those whose row is locked for long: these get stuck."""
        try:
            await self._commit(batch, PATIENCE_MS)
        except LockTimeout:
            if len(batch) == 1:
                stuck.append(batch[0])
                return
            middle = len(batch) // 2
            await self._commit_apart(batch[:middle], stuck)
            await self._commit_apart(batch[middle:], stuck)

    async def _commit(self, batch: Sequence[CallT], patience_ms: int | None) -> None:
        id_, start = uuid4(), 0
        for call in batch:
            call.attempt = Attempt(id_, start)
            start += call.step_count
        row = await self.send(id_, patience_ms, batch)
        for call in batch:
            self._finish(call, row)

    def _finish(self, call: CallT, row: Any) -> None:
        assert call.attempt is not None
        start = call.attempt.start
        self.finish(call, slice(start, start + call.step_count), row)


def call_numbers(batch: Sequence[OnceCall[Any, Any]]) -> list[int]:
    """Return, for each step of an execution, the number of its call."""
    return [number for number, call in enumerate(batch) for _ in range(call.step_count)]


def columns(rows: Iterable[Sequence[object]]) -> list[list[object]]:
    """Return rows of arguments as arrays; there must be some."""
    return [list(column) for column in zip(*rows, strict=True)]


async def answered(
    carry_out: Callable[[Callable[[OutcomeT], object], Callable[[SkepError], None]], None],
) -> OutcomeT:
    """Return what a call is answered with, which is given the two functions that answer it.

    Raises:
        SkepError: It was refused, or it is not known what became of it.
    """
    future: asyncio.Future[OutcomeT] = asyncio.get_running_loop().create_future()

    def answer(outcome: OutcomeT) -> None:
        if not future.done():
            future.set_result(outcome)

    def refuse(error: SkepError) -> None:
        if not future.done():
            future.set_exception(error)

    carry_out(answer, refuse)
    return await future
