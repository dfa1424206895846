"""The driver of parked polls: timers, attempts and sweeps around the pure parking.

Every decision is `ParkedPolls`'; this module asks it what is due, lets polls try through the
engine, and puts one question to the database for all scopes that nothing was heard of. A scope is a
consumer group, or one partition of it for polls that name their partition; its topic is the queue.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from skep.broker.pop.accept import Poll
from skep.broker.pop.parking import ParkedPolls, SweepPolicy, Ticket
from skep.db.access.slots import Caller
from skep.model.errors import SkepError
from skep.telemetry.meters import Meters

_log = logging.getLogger(__name__)

SWEEP_CALL: Final = "select * from skep.next_available($1, $2)"

ALARM_MARGIN_S: Final = 0.005
"""How much later than the database said an alarm goes off. The time of the event loop is when its
round began, in whole milliseconds: by that alone an alarm may come before the lease has ended, find
nothing, and leave the poll to the next sweep."""

Scope: TypeAlias = tuple[int, int]
"""Group id, and partition id or 0 for any."""

_Place: TypeAlias = Ticket[Scope, Poll]


class Retry(Protocol):
    """Whoever lets a poll try again."""

    def attempt(self, poll: Poll) -> None:
        """Submit a poll to the engine."""
        ...


class _Attempt:
    """Polls of a scope that are trying together."""

    __slots__ = ("pending", "served", "unserved")

    def __init__(self, tickets: Sequence[_Place]) -> None:
        self.pending = {ticket.poll: ticket for ticket in tickets}
        self.unserved: set[_Place] = set()
        self.served = 0


class Lounge:
    """Where the polls of one process wait."""

    def __init__(
        self, caller: Caller, policy: SweepPolicy, *, meters: Meters | None = None
    ) -> None:
        self._caller: Final = caller
        self._queues: Final = (meters or Meters()).queues
        self._parked: Final[ParkedPolls[Scope, Poll]] = ParkedPolls(policy)
        self._places: Final[dict[Poll, _Place]] = {}
        self._attempts: Final[dict[Scope, tuple[_Attempt, Sequence[_Place]]]] = {}
        self._loop: Final = asyncio.get_running_loop()
        self._retry: Retry | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._sweep: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Count the polls that wait."""
        return len(self._parked)

    def count_by_queue(self) -> Counter[str]:
        """Count the polls that wait, by queue."""
        return Counter(poll.group.key[0] for poll in self._places if poll.group is not None)

    def start(self, retry: Retry) -> None:
        """Begin to let polls try again."""
        self._retry = retry

    def stop(self) -> None:
        """Answer every parked poll that there is nothing, and let no more wait."""
        self._retry = None
        if self._timer is not None:
            self._timer.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
        for poll, place in tuple(self._places.items()):
            self._parked.leave(place)
            if not poll.is_settled:
                poll.deliver(None)
        self._places.clear()

    def wake(self, queue_id: int, partition_count: int) -> None:
        """Let the polls of a queue look again: about so many partitions became ready."""
        self._parked.wake(queue_id, partition_count, self._loop.time())
        self._schedule()

    def came_back(self, poll: Poll, *, is_served: bool) -> None:
        """Hear how an attempt of a poll ended; one that found nothing waits (again)."""
        place = self._places.get(poll)
        if place is not None:
            self._end_attempt(poll, place, is_unserved=not is_served, is_served=is_served)
        elif not is_served:
            self._park(poll)

    def keep_waiting(self, poll: Poll) -> bool:
        """Let a poll wait that could not try; False when its time is over."""
        if poll.is_settled or poll.deadline <= self._loop.time() or self._retry is None:
            return False
        self.came_back(poll, is_served=False)
        place = self._places.get(poll)
        if poll.doubt is not None and place is not None:
            # What it may have claimed looks taken to everybody; only its own next try undoes that.
            self._parked.wake_scope(place.scope, len(self._parked), self._loop.time())
            self._schedule()
        return True

    def leave(self, poll: Poll) -> None:
        """Let go of a poll that failed or whose client is gone."""
        place = self._places.pop(poll, None)
        if place is None:
            return
        self._parked.leave(place)
        self._end_attempt(poll, place, is_unserved=False, is_served=False)
        self._schedule()

    def _park(self, poll: Poll) -> None:
        if self._retry is None:
            poll.deliver(None)
            return
        assert poll.group is not None
        scope = (poll.group.group_id, poll.partition.partition_id if poll.partition else 0)
        self._places[poll] = self._parked.park(
            scope,
            poll.group.queue_id,
            poll,
            deadline=poll.deadline,
            now=self._loop.time(),
            tried_at=poll.tried_at,
        )
        self._schedule()

    def _end_attempt(
        self, poll: Poll, place: _Place, *, is_unserved: bool, is_served: bool
    ) -> None:
        attempt, tickets = self._attempts.get(place.scope, (None, ()))
        if attempt is None or attempt.pending.pop(poll, None) is None:
            return
        if is_unserved:
            attempt.unserved.add(place)
        elif is_served:
            attempt.served += 1
            self._places.pop(poll, None)
        if not attempt.pending:
            del self._attempts[place.scope]
            self._parked.returned(
                place.scope,
                [ticket for ticket in tickets if ticket in attempt.unserved],
                served=attempt.served,
                now=self._loop.time(),
            )
            self._schedule()

    def _schedule(self) -> None:
        now = self._loop.time()
        due_at = self._parked.next_due(now)
        if self._timer is not None:
            if due_at is not None and due_at >= self._timer_at and not self._timer.cancelled():
                return  # it will run first, and schedule anew
            self._timer.cancel()
            self._timer = None
        if due_at is not None and self._retry is not None:
            self._timer_at = due_at
            self._timer = self._loop.call_at(due_at, self._run)

    def _run(self) -> None:
        self._timer = None
        now = self._loop.time()
        for poll in self._parked.take_expired(now):
            self._places.pop(poll, None)
            self._queues.of(poll.options.queue).pop_empty += 1
            poll.deliver(None)
        for scope, tickets in self._parked.take_attempts(now):
            self._try(scope, tickets)
        # Taken although a sweep may be under way: what is left due would be due again at once, and
        # this would run without a pause for as long as the database is silent.
        scopes = self._parked.take_sweep(now)
        if scopes and self._sweep is None:
            self._sweep = self._loop.create_task(self._ask(scopes))
        self._schedule()

    def _try(self, scope: Scope, tickets: Sequence[_Place]) -> None:
        assert self._retry is not None
        self._attempts[scope] = (_Attempt(tickets), tickets)
        for ticket in tickets:
            try:
                self._retry.attempt(ticket.poll)
            except SkepError:  # the engine is full: wait on
                self.came_back(ticket.poll, is_served=False)

    async def _ask(self, scopes: Sequence[Scope]) -> None:
        """Ask the database when these scopes are next available."""
        try:
            rows = await self._caller.call(
                SWEEP_CALL,
                [group_id for group_id, _ in scopes],
                [partition for _, partition in scopes],
            )
        except SkepError as error:
            _log.warning("parked polls could not be checked: %s", error)
            return
        finally:
            self._sweep = None
        now = self._loop.time()
        seconds_by_item = {row[0]: row[1] for row in rows}
        for item, scope in enumerate(scopes, start=1):
            seconds = seconds_by_item.get(item)
            if seconds is not None and seconds <= 0:
                self._parked.wake_scope(scope, 1, now)
            else:
                at = None if seconds is None else now + seconds + ALARM_MARGIN_S
                self._parked.set_alarm(scope, at)
        self._schedule()
