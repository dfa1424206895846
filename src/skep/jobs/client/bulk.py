"""Change all chains or jobs that match a filter: cancel, retry, delete, trigger.

The filter is that of the listings. Matches are changed from the newest to the oldest, some hundred
per transaction, so that locks are short and chains started meanwhile are not met. Stopping and
starting again is always safe: changed chains do not match any more, or are passed over. A chain
that cannot be changed is refused alone, for a reason that is counted:

    unavailable   another transaction holds it, or it was changed or deleted since it was found
    needed        a job of a chain that stays waits or waited for it, so it cannot be deleted
    key_taken     another chain has the key under which it would go on
    open, ...     the state it is in now, if that is not the one that was asked for
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypedDict, Unpack
from uuid import UUID

import msgspec

from skep.db.access.slots import Caller
from skep.jobs import store
from skep.jobs.client.control import closed_signals, ready_signals
from skep.jobs.client.inspection import ChainFilter, ChainState, JobFilter
from skep.jobs.signals import Announcements, Signals
from skep.model.errors import BadRequest

BATCH: Final = 500
"""Chains or jobs per transaction."""
MATCHES_BOUND: Final = 1_000_000
"""Counted exactly up to here."""
EXAMPLES_MAX: Final = 20
_UNAVAILABLE: Final = "unavailable"


class Refusal(msgspec.Struct, frozen=True):
    """A chain or job that was not changed, and why."""

    id: UUID
    reason: str


class Matches(msgspec.Struct, frozen=True, rename="camel"):
    """How many there are; more than that if it is not exact."""

    count: int
    is_exact: bool


class Sweep(msgspec.Struct, rename="camel"):
    """What became of the matches.

    Attributes:
        seen: how many were found.
        done: how many were changed, with those that a cascade changed.
        refused: how many were not, by reason.
        examples: the first of these.
        after: where to go on; None at the end.
    """

    seen: int = 0
    done: int = 0
    refused: dict[str, int] = {}
    examples: list[Refusal] = []
    after: UUID | None = None

    def add(self, ids: Sequence[UUID], refusals: Mapping[UUID, str | None]) -> None:
        """Count a batch."""
        self.seen += len(ids)
        self.done += sum(reason is None for reason in refusals.values())
        for each in ids:
            if (reason := refusals.get(each, _UNAVAILABLE)) is not None:
                self.refused[reason] = self.refused.get(reason, 0) + 1
                if len(self.examples) < EXAMPLES_MAX:
                    self.examples.append(Refusal(each, reason))


Told: TypeAlias = Callable[[Sweep], None]


class Portion(TypedDict, total=False):
    """How far a call goes, and what is told of its progress."""

    after: UUID | None
    limit: int | None
    told: Told | None


@dataclass(frozen=True, slots=True)
class Bulk:
    """Changes all chains or jobs that match.

    Each method goes on to the end, or with `limit` until it has seen so many: then `after` of the
    answer is where the next call goes on. `told` is called with the progress after each
    transaction.
    """

    caller: Caller
    announcements: Announcements

    async def count(self, which: ChainFilter | JobFilter) -> Matches:
        """Count what matches, without changing any."""
        call = (
            store.CHAIN_MATCHES_CALL if isinstance(which, ChainFilter) else store.JOB_MATCHES_CALL
        )
        ((count,),) = await self.caller.call(call, *which.arguments(), MATCHES_BOUND + 1)
        return Matches(min(count, MATCHES_BOUND), count <= MATCHES_BOUND)

    async def cancel(
        self,
        which: ChainFilter,
        *,
        cascade: bool = False,
        reason: str | None = None,
        **portion: Unpack[Portion],
    ) -> Sweep:
        """Cancel the open chains that match, with `cascade` also those that wait for them.

        Raises:
            BadRequest: the filter asks for chains that have ended.
        """
        change = _Change(store.CANCEL_FREE_CALL, (cascade, reason), "cancelled", closed_signals)
        return await self._sweep(cancellable(which), change, **portion)

    async def retry(self, which: ChainFilter, **portion: Unpack[Portion]) -> Sweep:
        """Let the failed chains that match go on, or the cancelled ones if the filter says so.

        Raises:
            BadRequest: the filter asks for chains that are open or completed.
        """
        change = _Change(store.RETRY_FREE_CALL, (), "retried", ready_signals)
        return await self._sweep(retryable(which), change, **portion)

    async def delete(self, which: ChainFilter, **portion: Unpack[Portion]) -> Sweep:
        """Delete the chains that match with their jobs.

        A chain that another one needs stays. Where that one goes as well, but later, a second call
        finds it free.
        """
        change = _Change(store.DISCARD_CALL, (which.state,), "deleted", closed_signals)
        return await self._sweep(which, change, **portion)

    async def trigger(self, which: JobFilter, **portion: Unpack[Portion]) -> Sweep:
        """Let the scheduled jobs that match run now.

        Raises:
            BadRequest: the filter asks for jobs in another state.
        """
        change = _Change(store.HASTEN_CALL, (), "triggered", ready_signals)
        return await self._sweep(triggerable(which), change, **portion)

    async def _sweep(
        self,
        which: ChainFilter | JobFilter,
        change: "_Change",
        *,
        after: UUID | None = None,
        limit: int | None = None,
        told: Told | None = None,
    ) -> Sweep:
        find = store.FIND_CHAINS_CALL if isinstance(which, ChainFilter) else store.FIND_JOBS_CALL
        sweep = Sweep(after=after)
        while limit is None or sweep.seen < limit:
            room = BATCH if limit is None else min(BATCH, limit - sweep.seen)
            rows = await self.caller.call(find, *which.arguments(), sweep.after, room)
            ids: list[UUID] = [row[0] for row in rows]
            sweep.add(ids, await self._change(ids, change) if ids else {})
            sweep.after = ids[-1] if len(ids) == room else None
            if told is not None:
                told(sweep)
            if sweep.after is None:
                break
        return sweep

    async def _change(self, ids: Sequence[UUID], change: "_Change") -> dict[UUID, str | None]:
        """Return for each that was available why it was refused, None if it was changed."""
        rows = await self.caller.call(change.call, ids, *change.arguments)
        self.announcements.add(change.signals(rows))
        return {each: None if outcome == change.done else outcome for each, outcome, _ in rows}


@dataclass(frozen=True, slots=True)
class _Change:
    """How a batch is changed."""

    call: str
    arguments: tuple[object, ...]
    done: str
    """The outcome of what was changed."""
    signals: Callable[[Sequence[Any]], Signals]


def cancellable(which: ChainFilter) -> ChainFilter:
    """Return the filter of the chains that can be cancelled; BadRequest if none can."""
    return _in_state(which, "open", ("open",), "cancelled")


def retryable(which: ChainFilter) -> ChainFilter:
    """Return the filter of the chains that can be retried; BadRequest if none can."""
    return _in_state(which, "failed", ("failed", "cancelled"), "retried")


def triggerable(which: JobFilter) -> JobFilter:
    """Return the filter of the jobs that can be triggered; BadRequest if none can."""
    if which.state not in (None, "scheduled"):
        raise BadRequest(f"{which.state} jobs cannot be triggered: use the state scheduled")
    return replace(which, state="scheduled")


def _in_state(
    which: ChainFilter, default: ChainState, states: Sequence[str], done: str
) -> ChainFilter:
    if which.state is None:
        return replace(which, state=default)
    if which.state not in states:
        raise BadRequest(f"{which.state} chains cannot be {done}: use {' or '.join(states)}")
    return which
