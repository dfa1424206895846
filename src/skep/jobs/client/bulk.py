"""Change all chains or jobs that match a filter: cancel, retry, delete, let run now.

The filter is that of the listings. What matches is worked off from the newest to the oldest, some
hundred per transaction, so that nobody waits long for a lock and what is started meanwhile is not
met. To stop and to begin again is always safe: what was done does not match any more, or is passed
over. A chain that cannot be changed is refused by itself, for a reason that is counted:

    unavailable   another transaction holds it, or it was changed or deleted since it was found
    needed        a job of a chain that stays waits or waited for it, so it cannot be deleted
    key_taken     another chain has the key under which it would go on
    open, ...     the state it is in now, if that is not the one that was asked for
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from skep.db.access.slots import Caller
from skep.jobs.client.inspection import ChainFilter, ChainState, JobFilter
from skep.jobs.signals import Announcements, Signals
from skep.jobs.store import (
    CANCEL_FREE_CALL,
    CHAIN_MATCHES_CALL,
    DISCARD_CALL,
    FIND_CHAINS_CALL,
    FIND_JOBS_CALL,
    HASTEN_CALL,
    JOB_MATCHES_CALL,
    RETRY_FREE_CALL,
)
from skep.model.errors import BadRequest

BATCH: Final = 500
"""In one transaction."""
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
    """What became of those that matched.

    Attributes:
        seen: how many were looked at.
        done: how many were changed, with those that fell with them.
        refused: how many were not, by reason.
        examples: the first of these.
        after: where to go on; None when there is nothing left.
    """

    seen: int = 0
    done: int = 0
    refused: dict[str, int] = {}
    examples: list[Refusal] = []
    after: UUID | None = None

    def refuse(self, which: UUID, reason: str) -> None:
        """Note one that was not changed."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(Refusal(which, reason))


_Find: TypeAlias = Callable[[UUID | None, int], Awaitable[Sequence[UUID]]]
_Act: TypeAlias = Callable[[Sequence[UUID]], Awaitable[dict[UUID, str | None]]]
"""Changes some; says of each that could be had why it was refused, None if it was not."""
Told: TypeAlias = Callable[[Sweep], None]


class Bulk:
    """What can be done with all chains or jobs that match.

    Each method goes on to the end, or with `limit` until it has seen so many: then `after` of the
    answer is where the next call goes on. `told` hears after each transaction how far it got.
    """

    def __init__(self, caller: Caller, announcements: Announcements) -> None:
        self._caller: Final = caller
        self._announcements: Final = announcements

    async def count_chains(self, which: ChainFilter) -> Matches:
        """Count the chains that match, without changing any."""
        ((count,),) = await self._caller.call(CHAIN_MATCHES_CALL, *_chain(which), MATCHES_BOUND + 1)
        return _matches(count)

    async def count_jobs(self, which: JobFilter) -> Matches:
        """Count the jobs that match, without changing any."""
        ((count,),) = await self._caller.call(JOB_MATCHES_CALL, *_job(which), MATCHES_BOUND + 1)
        return _matches(count)

    async def cancel(
        self,
        which: ChainFilter,
        *,
        cascade: bool = False,
        reason: str | None = None,
        after: UUID | None = None,
        limit: int | None = None,
        told: Told | None = None,
    ) -> Sweep:
        """Cancel the open chains that match, with `cascade` also those that wait for them.

        Raises:
            BadRequest: the filter asks for chains that have ended.
        """

        async def act(ids: Sequence[UUID]) -> dict[UUID, str | None]:
            rows = await self._caller.call(CANCEL_FREE_CALL, ids, cascade, reason)
            closed = [row[0] for row in rows if row[1] == "cancelled"]
            lost = [row[2] for row in rows if row[2] is not None]
            self._announcements.add(Signals(chains_closed=closed, jobs_lost=lost))
            return _refusals(rows, "cancelled")

        find = self._finding(cancellable(which))
        return await _sweep(find, act, after=after, limit=limit, told=told)

    async def retry(
        self,
        which: ChainFilter,
        *,
        after: UUID | None = None,
        limit: int | None = None,
        told: Told | None = None,
    ) -> Sweep:
        """Let the failed chains that match go on, or the cancelled ones if the filter says so.

        Raises:
            BadRequest: the filter asks for chains that are open or completed.
        """

        async def act(ids: Sequence[UUID]) -> dict[UUID, str | None]:
            rows = await self._caller.call(RETRY_FREE_CALL, ids)
            names = [row[2] for row in rows if row[1] == "retried"]
            self._announcements.add(Signals(types_ready=names))
            return _refusals(rows, "retried")

        find = self._finding(retryable(which))
        return await _sweep(find, act, after=after, limit=limit, told=told)

    async def delete(
        self,
        which: ChainFilter,
        *,
        after: UUID | None = None,
        limit: int | None = None,
        told: Told | None = None,
    ) -> Sweep:
        """Delete the chains that match with their jobs.

        A chain that another one needs stays. Where that one goes as well, but later, a second call
        finds it free.
        """

        async def act(ids: Sequence[UUID]) -> dict[UUID, str | None]:
            rows = await self._caller.call(DISCARD_CALL, ids, which.state)
            gone = [row[0] for row in rows if row[1] == "deleted"]
            self._announcements.add(Signals(chains_closed=gone))
            return _refusals(rows, "deleted")

        find = self._finding(which)
        return await _sweep(find, act, after=after, limit=limit, told=told)

    async def trigger(
        self,
        which: JobFilter,
        *,
        after: UUID | None = None,
        limit: int | None = None,
        told: Told | None = None,
    ) -> Sweep:
        """Let the scheduled jobs that match run now.

        Raises:
            BadRequest: the filter asks for jobs in another state.
        """
        scheduled = triggerable(which)

        async def find(after: UUID | None, count: int) -> Sequence[UUID]:
            rows = await self._caller.call(FIND_JOBS_CALL, *_job(scheduled), after, count)
            return [row[0] for row in rows]

        async def act(ids: Sequence[UUID]) -> dict[UUID, str | None]:
            rows = await self._caller.call(HASTEN_CALL, ids)
            self._announcements.add(Signals(types_ready=[row[1] for row in rows]))
            return {row[0]: None for row in rows}

        return await _sweep(find, act, after=after, limit=limit, told=told)

    def _finding(self, which: ChainFilter) -> _Find:
        async def find(after: UUID | None, count: int) -> Sequence[UUID]:
            rows = await self._caller.call(FIND_CHAINS_CALL, *_chain(which), after, count)
            return [row[0] for row in rows]

        return find


def cancellable(which: ChainFilter) -> ChainFilter:
    """Return the filter of those that can be cancelled; BadRequest if none of them can."""
    return _in_state(which, "open", ("open",), "cancelled")


def retryable(which: ChainFilter) -> ChainFilter:
    """Return the filter of those that can be retried; BadRequest if none of them can."""
    return _in_state(which, "failed", ("failed", "cancelled"), "retried")


def triggerable(which: JobFilter) -> JobFilter:
    """Return the filter of those that can be let run now; BadRequest if none of them can."""
    if which.state not in (None, "scheduled"):
        raise BadRequest(f"jobs that are {which.state} do not wait for their time")
    return replace(which, state="scheduled")


def _in_state(
    which: ChainFilter, default: ChainState, states: Sequence[str], done: str
) -> ChainFilter:
    if which.state is None:
        return replace(which, state=default)
    if which.state not in states:
        raise BadRequest(f"chains that are {which.state} cannot be {done}")
    return which


async def _sweep(
    find: _Find, act: _Act, *, after: UUID | None, limit: int | None, told: Told | None
) -> Sweep:
    """Find and change, batch by batch."""
    sweep = Sweep(after=after)
    while limit is None or sweep.seen < limit:
        room = BATCH if limit is None else min(BATCH, limit - sweep.seen)
        ids = await find(sweep.after, room)
        _add(sweep, ids, await act(ids) if ids else {})
        sweep.after = ids[-1] if len(ids) == room else None
        if told is not None:
            told(sweep)
        if sweep.after is None:
            break
    return sweep


def _add(sweep: Sweep, ids: Sequence[UUID], answers: dict[UUID, str | None]) -> None:
    sweep.seen += len(ids)
    sweep.done += sum(refusal is None for refusal in answers.values())
    for each in ids:
        refusal = answers.get(each, _UNAVAILABLE)
        if refusal is not None:
            sweep.refuse(each, refusal)


def _refusals(rows: Sequence[Any], done: str) -> dict[UUID, str | None]:
    return {row[0]: None if row[1] == done else row[1] for row in rows}


def _matches(count: int) -> Matches:
    return Matches(min(count, MATCHES_BOUND), count <= MATCHES_BOUND)


def _chain(which: ChainFilter) -> tuple[object, ...]:
    ids = None if which.ids is None else list(which.ids)
    return (
        *(which.type, which.state, which.parent_job_id, which.key, ids),
        *(which.created_from, which.created_to),
    )


def _job(which: JobFilter) -> tuple[object, ...]:
    ids = None if which.ids is None else list(which.ids)
    return which.type, which.state, which.chain_id, ids, which.blocked_by
