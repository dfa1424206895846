"""The context of a handler.

`Ctx[I, O]`: the input, the outputs of the chains it waited for, and transactions: `connection` in
atomic mode, `prepare()` and `complete()` in staged mode. `cancelled` and `check()` tell a handler
to stop; an asynchronous one is cancelled as well.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from skep.db.access.connection import Connection
from skep.jobs.declare.codec import Ref
from skep.jobs.errors import BlockerMissing, ChainFailed, OwnershipLost
from skep.model.errors import BadRequest, Refused

I = TypeVar("I")  # noqa: E741 -- input and output, as in Job[I, O]
O = TypeVar("O")  # noqa: E741
T = TypeVar("T")

NOTE_LENGTH_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Which attempt of which job this is."""

    name: str
    job_id: UUID
    chain_id: UUID
    position: int
    attempt: int
    failures: int
    trace: str | None = None
    chain_trace: str | None = None


@dataclass(frozen=True, slots=True)
class BlockerResult:
    """What became of a chain that the job waited for."""

    chain_id: UUID
    type: str
    state: str
    value: Any


class Transactions(Protocol):
    """The ways to the database that an attempt has."""

    @property
    def connection(self) -> Connection:
        """The transaction of an atomic job."""
        ...

    def prepare(self) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that commits at the end of the block."""
        ...

    def complete(self) -> AbstractAsyncContextManager[Connection]:
        """Open the transaction that the job's completion will be part of."""
        ...


class Attendance(Protocol):
    """The worker's side of an attempt: tells the handler to stop, and takes its reports."""

    @property
    def stop_reason(self) -> str | None:
        """Why the handler should stop, or None."""
        ...

    def report(self, share: float | None, note: str | None) -> None:
        """Take a progress report."""
        ...


class Ctx(Generic[I, O]):
    """One attempt of a job that takes an `I`, in a chain that yields an `O`."""

    def __init__(
        self,
        facts: JobFacts,
        value: I,
        blockers: list[BlockerResult],
        transactions: Transactions | None = None,
        attendance: Attendance | None = None,
    ) -> None:
        """Without the last two it is that of a handler in a process of its own."""
        self.facts: Final = facts
        self.job_id: Final = facts.job_id
        """The same in every attempt, so a good key for what must happen once."""
        self.chain_id: Final = facts.chain_id
        self.attempt: Final = facts.attempt
        """The number of this attempt, from 1."""
        self.input: Final = value
        self._blockers: Final = {blocker.chain_id: blocker for blocker in blockers}
        self._worker_transactions: Final = transactions
        self._attendance: Final = attendance

    @property
    def blockers(self) -> list[Ref[Any]]:
        """The chains that the job waited for, in the order in which they were given."""
        return [Ref(chain_id) for chain_id in self._blockers]

    def blocker_results(self) -> list[BlockerResult]:
        """What became of the chains that the job waited for, in the same order."""
        return list(self._blockers.values())

    def value(self, ref: Ref[T]) -> T:
        """Return what a chain that the job waited for yielded.

        Raises:
            BlockerMissing: the job did not wait for that chain.
            ChainFailed: it did not complete, and the job ignores that (`on_blocker_failure`).
        """
        try:
            blocker = self._blockers[ref.id]
        except KeyError:
            raise BlockerMissing(f"the job did not wait for chain {ref.id}") from None
        if blocker.state != "completed":
            raise ChainFailed(f"chain {ref.id} is {blocker.state}")
        result: T = blocker.value
        return result

    @property
    def _transactions(self) -> Transactions:
        if self._worker_transactions is None:
            raise Refused(
                "a handler in a thread or process has no transaction of the worker: open your own"
            )
        return self._worker_transactions

    @property
    def connection(self) -> Connection:
        """The transaction of an atomic job: what it writes is kept if and only if it completes."""
        return self._transactions.connection

    def prepare(self) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that commits at the end of the block, before the long work."""
        return self._transactions.prepare()

    def complete(self) -> AbstractAsyncContextManager[Connection]:
        """Open the transaction that the completion will be part of.

        The job is checked to be still ours, and locked. The transaction commits when the handler
        has returned; an exception, even after the block, undoes everything in it.

        Raises:
            OwnershipLost: the job is not ours any more.
        """
        return self._transactions.complete()

    @property
    def cancelled(self) -> str | None:
        """Why the handler should stop, or None."""
        return None if self._attendance is None else self._attendance.stop_reason

    def check(self) -> None:
        """Raise OwnershipLost if the handler should stop; for handlers that cannot be cancelled."""
        if (reason := self.cancelled) is not None:
            raise OwnershipLost(f"the job should stop: {reason}")

    def report(self, share: float | None = None, note: str | None = None) -> None:
        """Report progress: a share of the work from 0 to 1, a note, or both.

        For people who watch. It is written about once a second, from any thread; reports of a
        handler in a process of its own are ignored.

        Raises:
            BadRequest: the share is not between 0 and 1.
        """
        if share is not None and not 0 <= share <= 1:
            raise BadRequest(f"invalid share {share}: use 0 to 1")
        if self._attendance is not None:
            self._attendance.report(share, None if note is None else note[:NOTE_LENGTH_MAX])
