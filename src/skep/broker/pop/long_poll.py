"""Long polls: let the polls that wait in this process try again, answer them when time is up.

`ParkedPolls` (pure) makes every decision. This module drives it: it starts attempts through the
engine, and asks the database in one query about all scopes that it heard nothing of. A scope is a
consumer group, or one partition of it for polls that name their partition; its topic is the queue.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from skep.broker.pop.accept import Poll
from skep.broker.pop.parking import ParkedPolls, SweepPolicy, Ticket
from skep.db.access.slots import Caller
from skep.model.errors import SkepError
from skep.telemetry.defects import error_of
from skep.telemetry.meters import Meters

_log = logging.getLogger(__name__)

SWEEP_CALL: Final = "select * from skep.next_available($1, $2)"

ALARM_MARGIN_S: Final = 0.005
"""How much later than the database said an alarm goes off. The event loop's time is when its
round began, in whole milliseconds: without the margin an alarm may come before the lease has ended,
find nothing, and leave the poll to the next sweep."""

Scope: TypeAlias = tuple[int, int]
"""Group id, and partition id or 0 for any."""

_Ticket: TypeAlias = Ticket[Scope, Poll]


class _Attempt:
    """Polls of a scope that are trying together."""

    __slots__ = ("pending", "served", "tickets", "unserved")

    def __init__(self, tickets: Sequence[_Ticket]) -> None:
        self.tickets = tickets
        self.pending = {ticket.poll for ticket in tickets}
        self.unserved: set[_Ticket] = set()
        self.served = 0


class LongPolls:
    """The polls of one process that wait."""

    def __init__(
        self, caller: Caller, policy: SweepPolicy, *, meters: Meters | None = None
    ) -> None:
        self._caller: Final = caller
        self._queues: Final = (meters or Meters()).queues
        self._parked: Final[ParkedPolls[Scope, Poll]] = ParkedPolls(policy)
        self._tickets: Final[dict[Poll, _Ticket]] = {}
        self._attempts: Final[dict[Scope, _Attempt]] = {}
        self._loop: Final = asyncio.get_running_loop()
        self._attempt: Callable[[Poll], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._sweep: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Count the polls that wait."""
        return len(self._parked)

    @property
    def is_stopped(self) -> bool:
        """Whether no poll may wait (any more): the broker is about to end."""
        return self._attempt is None

    def count_by_group(self) -> Counter[tuple[str, str]]:
        """Count the polls that wait, by queue and consumer group."""
        return Counter(poll.group.key for poll in self._tickets if poll.group is not None)

    def start(self, attempt: Callable[[Poll], None]) -> None:
        """Begin to let polls try again, by `Pop.attempt`."""
        self._attempt = attempt

    def stop(self) -> None:
        """Answer every parked poll that there is nothing, and let no more wait."""
        self._attempt = None
        if self._timer is not None:
            self._timer.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
        for poll, ticket in tuple(self._tickets.items()):
            self._parked.leave(ticket)
            if not poll.is_settled:
                error_of(partial(poll.deliver, None))
        self._tickets.clear()

    def wake(self, queue_id: int, partition_count: int) -> None:
        """Let the polls of a queue try again: about so many partitions became available."""
        self._parked.wake(queue_id, partition_count, self._loop.time())
        self._schedule()

    def take_for(self, queue_id: int, count: int) -> list[Poll]:
        """Take up to `count` polls of one group out, to hand over what is pushed into the queue.

        Each is answered, or parked again.
        """
        polls = self._parked.take_for(
            queue_id, count, fits=_is_of_any_partition, may_get=_has_a_lease_to_fill
        )
        now = self._loop.time()
        for poll in polls:
            del self._tickets[poll]
            poll.tried_at = now
        return polls

    def join(self, poll: Poll) -> bool:
        """Let a poll wait without an attempt if others like it wait for the same in vain."""
        if self._attempt is None or not self._parked.may_join(_scope_of(poll)):
            return False
        self._begin_wait(poll, tried_at=None)
        return True

    def park(self, poll: Poll) -> None:
        """Let a poll whose attempt found nothing wait (again)."""
        ticket = self._end_watch(poll)
        if ticket is not None:
            self._end_attempt(poll, ticket, is_unserved=True, is_served=False)
        else:
            self._begin_wait(poll, tried_at=poll.tried_at)

    def end_wait(self, poll: Poll) -> None:
        """Note that a poll was answered."""
        ticket = self._end_watch(poll)
        if ticket is not None:
            self._end_attempt(poll, ticket, is_unserved=False, is_served=True)

    def keep_waiting(self, poll: Poll) -> bool:
        """Let a poll wait that could not try; False when its time is over."""
        if poll.is_settled or poll.deadline <= self._loop.time() or self._attempt is None:
            return False
        self.park(poll)
        ticket = self._tickets.get(poll)
        if poll.undo_claim is not None and ticket is not None:
            # What it may have claimed looks taken to other polls; only its next attempt undoes it.
            self._parked.wake_scope(ticket.scope, len(self._tickets), self._loop.time())
            self._schedule()
        return True

    def leave(self, poll: Poll) -> None:
        """Remove a poll that failed or whose client is gone."""
        ticket = self._tickets.pop(poll, None)
        if ticket is None:
            return
        self._parked.leave(ticket)
        self._end_attempt(poll, ticket, is_unserved=False, is_served=False)
        self._schedule()

    def _end_watch(self, poll: Poll) -> _Ticket | None:
        if poll.pop is not None:
            poll.pop.deadlines.end(poll)
        return self._tickets.get(poll)

    def _begin_wait(self, poll: Poll, *, tried_at: float | None) -> None:
        if self._attempt is None:
            poll.deliver(None)
            return
        assert poll.group is not None
        self._tickets[poll] = self._parked.park(
            _scope_of(poll),
            poll.group.queue_id,
            poll,
            deadline=poll.deadline,
            now=self._loop.time(),
            tried_at=tried_at,
        )
        self._schedule()

    def _end_attempt(
        self, poll: Poll, ticket: _Ticket, *, is_unserved: bool, is_served: bool
    ) -> None:
        attempt = self._attempts.get(ticket.scope)
        if attempt is None or poll not in attempt.pending:
            return
        attempt.pending.remove(poll)
        if is_unserved:
            attempt.unserved.add(ticket)
        elif is_served:
            attempt.served += 1
            self._tickets.pop(poll, None)
        if not attempt.pending:
            del self._attempts[ticket.scope]
            self._parked.returned(
                ticket.scope,
                [each for each in attempt.tickets if each in attempt.unserved],
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
        if due_at is not None and self._attempt is not None:
            self._timer_at = due_at
            self._timer = self._loop.call_at(due_at, self._run)

    def _run(self) -> None:
        self._timer = None
        now = self._loop.time()
        for poll in self._parked.take_expired(now):
            self._tickets.pop(poll, None)
            self._queues.of(poll.options.queue).pop_empty += 1
            # One that cannot be answered does not keep the others waiting.
            error_of(partial(poll.deliver, None))
        for scope, tickets in self._parked.take_attempts(now):
            self._start_attempt(scope, tickets)
        # Taken even while a sweep is under way: what is left due would be due again at once, and
        # this would run without a pause for as long as the database does not answer.
        scopes = self._parked.take_sweep(now)
        if scopes and self._sweep is None:
            self._sweep = self._loop.create_task(self._ask(scopes))
        self._schedule()

    def _start_attempt(self, scope: Scope, tickets: Sequence[_Ticket]) -> None:
        assert self._attempt is not None
        self._attempts[scope] = _Attempt(tickets)
        for ticket in tickets:
            if error_of(partial(self._attempt, ticket.poll)):  # the engine is full: wait on
                self.park(ticket.poll)

    async def _ask(self, scopes: Sequence[Scope]) -> None:
        """Ask the database when these scopes are next available."""
        try:
            rows = await self._caller.call(
                SWEEP_CALL,
                [group_id for group_id, _ in scopes],
                [partition_id for _, partition_id in scopes],
            )
        except SkepError as error:
            _log.warning("parked polls could not be checked: %s", error)
            return
        finally:
            self._sweep = None
        now = self._loop.time()
        wait_s_by_item: dict[int, float] = dict(rows)
        for item, scope in enumerate(scopes, start=1):
            wait_s = wait_s_by_item.get(item)
            if wait_s is not None and wait_s <= 0:
                self._parked.wake_scope(scope, 1, now)
            else:
                at = None if wait_s is None else now + wait_s + ALARM_MARGIN_S
                self._parked.set_alarm(scope, at)
        self._schedule()


def _is_of_any_partition(scope: Scope) -> bool:
    return not scope[1]


def _has_a_lease_to_fill(poll: Poll) -> bool:
    """Tell whether a claim for the poll can be given back later without a loss.

    One with autoAck leaves nothing behind that fences it: the next claim of the partition would
    bury it. One that may have claimed something already has to undo that first.
    """
    return not poll.options.auto_ack and poll.undo_claim is None


def _scope_of(poll: Poll) -> Scope:
    assert poll.group is not None
    return poll.group.group_id, poll.partition.partition_id if poll.partition else 0
