"""Parked polls: long polls that found nothing wait in memory, holding no connection.

Polls park by *scope*, the consumer group they take from; a scope belongs to a *topic*, the queue
that is pushed to. This is the pure half of long polling: it decides which polls try again and when,
and never awaits or reads a clock. Its driver says what happened and asks for what is due:

* `take_attempts`: scopes where something may have arrived (a push, a released lease, an alarm),
  each with the polls that should try to pop together. The oldest go first, as many as there may
  be work for; while all of them come back served, twice as many follow.
* `take_for`: polls of a scope to which something is handed over without an attempt.
* `take_sweep`: scopes without news for a while. A wake-up of another instance may have been lost,
  so the database is asked about all of them in one query: at growing intervals, and in step when
  they have been idle for long.
* `take_expired`: polls that have waited as long as they wanted.

Promises the broker builds on:

* Every poll ends once: it is handed out and not returned, or it expires, or it leaves.
* No wake-up is lost. One that comes while polls of the scope are out leads to another attempt
  when they return; one that comes between a poll's own empty attempt and its parking leads to an
  attempt at once.
* `next_due` never names the present without something being due.
* What ended leaves nothing behind. Steps cost O(log n) at most, and a wake-up of a topic O(1) for
  each of its scopes that has polls parked.

Not here on purpose: what a pop does, and how the database is asked.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import floor
from typing import Final, Generic, TypeVar

from skep.broker.timetable import Timetable

S = TypeVar("S", bound=Hashable)
P = TypeVar("P")

_SCOPES_LOOKED_AT: Final = 8
"""Of a topic, to find one whose polls get what is pushed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPolicy:
    """How often the database is asked about a scope without news."""

    interval_s_min: float = 0.1
    """Before each of the first checks after a scope began to wait or was woken."""

    checks_at_min: int = 3
    """So many checks are that close. After each further one the interval doubles ..."""

    interval_s_max: float = 1.0
    """... up to this."""

    slack_s: float = 0.2
    """A sweep takes along the scopes that would be due this soon after it."""

    def __post_init__(self) -> None:
        """Refuse intervals that are out of order."""
        if not 0 < self.interval_s_min <= self.interval_s_max:
            raise ValueError("the first interval must be positive and not above the longest")
        if not 0 < self.slack_s <= self.interval_s_max / 2:
            raise ValueError("the slack must be positive and at most half of the longest interval")

    def next_check_at(self, checks: int, now: float) -> float:
        """Return when to ask about a scope after so many checks in vain.

        At the longest interval the answer is the next beat of a clock that all scopes share, so
        that a thousand idle scopes end up in one sweep and not in one each. The beat is shorter
        than the interval by the slack: a scope that joined a sweep ahead of its beat skips it.
        """
        doublings = min(max(checks - self.checks_at_min + 1, 0), 32)
        interval_s = self.interval_s_min * 2**doublings
        if interval_s < self.interval_s_max:
            return now + interval_s
        beat_s = self.interval_s_max - self.slack_s
        return (floor((now + self.slack_s) / beat_s) + 1) * beat_s


@dataclass(slots=True, eq=False)
class Ticket(Generic[S, P]):
    """A poll's place in the parking; `deadline` is when the poll gives up."""

    scope: S
    poll: P
    deadline: float


class ParkedPolls(Generic[S, P]):
    """The parked polls of one broker process."""

    def __init__(self, policy: SweepPolicy | None = None, *, wake_memory_s: float = 10.0) -> None:
        """Start empty.

        `wake_memory_s` is how long a wake-up is remembered for polls on their way to park: longer
        than the pop that found nothing for them can have taken.
        """
        self._policy: Final = policy or SweepPolicy()
        self._scopes: Final[dict[S, _Scope[S, P]]] = {}
        self._by_topic: Final[dict[Hashable, dict[S, _Scope[S, P]]]] = {}
        self._due: dict[S, _Scope[S, P]] = {}
        self._checks: Final[Timetable[S]] = Timetable()
        self._alarms: Final[Timetable[S]] = Timetable()
        self._deadlines: Final[Timetable[Ticket[S, P]]] = Timetable()
        self._topic_wakes: Final = _RecentWakes(wake_memory_s)
        self._scope_wakes: Final = _RecentWakes(wake_memory_s)

    def __len__(self) -> int:
        """Count the polls parked; those that are out do not count."""
        return len(self._deadlines)

    def park(
        self,
        scope: S,
        topic: Hashable,
        poll: P,
        *,
        deadline: float,
        now: float,
        tried_at: float | None = None,
    ) -> Ticket[S, P]:
        """Let a poll wait behind the others of its scope, which always has the same topic.

        `tried_at` is when its own attempt, which found nothing, began. A wake-up since then may
        have come too late for that attempt, so another is due at once.
        """
        waiting = self._scopes.get(scope)
        if waiting is None:
            waiting = self._open(scope, topic, now)
        assert waiting.topic == topic, "a scope belongs to one topic"
        ticket = Ticket(scope, poll, deadline)
        waiting.parked[ticket] = None
        self._deadlines.set(ticket, deadline)
        if tried_at is not None and (
            self._topic_wakes.has_since(topic, tried_at)
            or self._scope_wakes.has_since(scope, tried_at)
        ):
            self._wake(waiting, 1)
        return ticket

    def may_join(self, scope: S) -> bool:
        """Tell whether a further poll of a scope would find nothing, like those that wait there.

        Then it parks without an attempt of its own. Partitions that were announced beyond the polls
        that waited are worth an attempt each.
        """
        waiting = self._scopes.get(scope)
        if waiting is None or waiting.wanted:
            return False
        if waiting.surplus:
            waiting.surplus -= 1
            return False
        return True

    def leave(self, ticket: Ticket[S, P]) -> bool:
        """Let go of a poll whose client is gone.

        False if it was not parked: it has ended, or it is out. In that case it will not be taken
        back, and what its attempt may bring is for the driver to give up.
        """
        waiting = self._scopes.get(ticket.scope)
        if waiting is None:
            return False
        if ticket in waiting.parked:
            self._deadlines.cancel(ticket)
            self._remove(waiting, ticket)
            return True
        if waiting.out is not None:
            waiting.out.discard(ticket)
        return False

    def wake(self, topic: Hashable, hint: int, now: float) -> None:
        """Let all scopes of a topic try: a push landed in `hint` of its partitions."""
        self._topic_wakes.note(topic, now)
        for waiting in self._by_topic.get(topic, {}).values():
            self._wake(waiting, hint)

    def wake_scope(self, scope: S, hint: int, now: float) -> None:
        """Let one scope try: `hint` partitions became available to it."""
        self._scope_wakes.note(scope, now)
        waiting = self._scopes.get(scope)
        if waiting is not None:
            self._wake(waiting, hint)

    def set_alarm(self, scope: S, at: float | None) -> None:
        """Let one poll of the scope try at a time at which something becomes available to it.

        The latest call counts; None means that nothing is known to come. If the poll then finds
        nothing (a lease was renewed, another poll was quicker, or clocks differ), the next check
        is close, and may set another alarm.
        """
        waiting = self._scopes.get(scope)
        if waiting is None:
            return
        waiting.alarm_at = at
        if waiting.out is None and scope not in self._due:
            self._set_alarm(waiting)

    def take_attempts(self, now: float) -> list[tuple[S, list[Ticket[S, P]]]]:
        """Hand out the polls that should try now, by scope, oldest first.

        They are out until `returned`, and do not expire meanwhile.
        """
        for scope in self._alarms.take_until(now):
            waiting = self._scopes[scope]
            waiting.wanted = 1
            waiting.checks = min(waiting.checks, self._policy.checks_at_min - 1)
            self._make_due(waiting)
        due, self._due = self._due, {}
        return [(waiting.scope, self._send_out(waiting, now)) for waiting in due.values()]

    def take_for(
        self,
        topic: Hashable,
        count: int,
        *,
        fits: Callable[[S], bool],
        may_get: Callable[[P], bool],
    ) -> list[P]:
        """Let go of the oldest polls of a scope of a topic, for what is being pushed into it.

        At most `count`, of the oldest `count`; none of a scope that has a reason to try. Those that
        do not get it after all park again.
        """
        for waiting in islice(self._by_topic.get(topic, {}).values(), _SCOPES_LOOKED_AT):
            if waiting.parked and not waiting.wanted and fits(waiting.scope):
                oldest = islice(waiting.parked, count)
                if tickets := [ticket for ticket in oldest if may_get(ticket.poll)]:
                    for ticket in tickets:
                        self.leave(ticket)
                    return [ticket.poll for ticket in tickets]
        return []

    def returned(
        self, scope: S, unserved: Sequence[Ticket[S, P]], *, served: int, now: float
    ) -> None:
        """End an attempt.

        `unserved` are the polls that found nothing, in the order they were handed out. They wait
        again, before all others. `served` is how many got something; a poll that failed and was
        told so counts for neither.
        """
        waiting = self._scopes[scope]
        out, waiting.out = waiting.out, None
        assert out is not None, "an attempt ends once"
        for ticket in reversed(unserved):
            if ticket in out:
                waiting.put_first(ticket)
                self._deadlines.set(ticket, ticket.deadline)
        if served:
            waiting.checks = 0
        if unserved:
            waiting.surplus = 0
        # No poll came back with nothing, so there may be more. That also holds if all of them
        # left: what they were sent for is still there.
        if not unserved and served >= len(out):
            waiting.wanted = max(waiting.wanted, 2 * waiting.out_count)
        self._settle_down(waiting, now)

    def take_sweep(self, now: float) -> list[S]:
        """Return the scopes to ask the database about: when is each of them next available?

        The answer is told by `wake_scope` or `set_alarm`; no answer counts as nothing.
        """
        first_at = self._checks.next_at()
        if first_at is None or first_at > now:
            return []
        scopes = self._checks.take_until(now + self._policy.slack_s)
        for scope in scopes:
            waiting = self._scopes[scope]
            waiting.checks += 1
            self._checks.set(scope, self._policy.next_check_at(waiting.checks, now))
        return scopes

    def take_expired(self, now: float) -> list[P]:
        """Return the polls whose deadline has come; they are no longer parked."""
        expired = self._deadlines.take_until(now)
        for ticket in expired:
            self._remove(self._scopes[ticket.scope], ticket)
        return [ticket.poll for ticket in expired]

    def next_due(self, now: float) -> float | None:
        """Return when an attempt, a sweep or an expiry is next due if nothing else happens."""
        if self._due:
            return now
        timetables = (self._checks, self._alarms, self._deadlines)
        due = [at for timetable in timetables if (at := timetable.next_at()) is not None]
        return max(now, min(due)) if due else None

    def _open(self, scope: S, topic: Hashable, now: float) -> "_Scope[S, P]":
        waiting: _Scope[S, P] = _Scope(scope, topic, OrderedDict())
        self._scopes[scope] = waiting
        self._by_topic.setdefault(topic, {})[scope] = waiting
        self._checks.set(scope, self._policy.next_check_at(0, now))
        return waiting

    def _remove(self, waiting: "_Scope[S, P]", ticket: Ticket[S, P]) -> None:
        del waiting.parked[ticket]
        if not waiting.parked and waiting.out is None:
            self._forget(waiting)

    def _forget(self, waiting: "_Scope[S, P]") -> None:
        scope = waiting.scope
        del self._scopes[scope]
        del self._by_topic[waiting.topic][scope]
        if not self._by_topic[waiting.topic]:
            del self._by_topic[waiting.topic]
        self._due.pop(scope, None)
        self._checks.cancel(scope)
        self._alarms.cancel(scope)

    def _wake(self, waiting: "_Scope[S, P]", hint: int) -> None:
        # Hints add up: two pushes into one partition each may have been two partitions.
        waiting.wanted += max(hint, 1)
        waiting.checks = 0
        if waiting.out is None:
            self._make_due(waiting)

    def _make_due(self, waiting: "_Scope[S, P]") -> None:
        scope = waiting.scope
        if scope not in self._due:
            self._due[scope] = waiting
            self._checks.cancel(scope)
            self._alarms.cancel(scope)

    def _send_out(self, waiting: "_Scope[S, P]", now: float) -> list[Ticket[S, P]]:
        waiting.out_count = min(waiting.wanted, len(waiting.parked))
        waiting.surplus = waiting.wanted - waiting.out_count
        waiting.wanted = 0
        if waiting.alarm_at is not None and waiting.alarm_at <= now:
            waiting.alarm_at = None
        tickets = [waiting.parked.popitem(last=False)[0] for _ in range(waiting.out_count)]
        for ticket in tickets:
            self._deadlines.cancel(ticket)
        waiting.out = set(tickets)
        return tickets

    def _settle_down(self, waiting: "_Scope[S, P]", now: float) -> None:
        if not waiting.parked:
            self._forget(waiting)
        elif waiting.wanted:
            self._make_due(waiting)
        else:
            next_check_at = self._policy.next_check_at(waiting.checks, now)
            self._checks.set(waiting.scope, next_check_at)
            self._set_alarm(waiting)

    def _set_alarm(self, waiting: "_Scope[S, P]") -> None:
        if waiting.alarm_at is None:
            self._alarms.cancel(waiting.scope)
        else:
            self._alarms.set(waiting.scope, waiting.alarm_at)


@dataclass(slots=True, eq=False)
class _Scope(Generic[S, P]):
    """The polls of one scope and what is known about it.

    It is idle, asleep until its alarm or its next check; or due for an attempt; or out on one.
    """

    scope: S
    topic: Hashable
    parked: OrderedDict[Ticket[S, P], None]
    out: set[Ticket[S, P]] | None = None
    """The polls of the attempt under way whose clients are still there; None between."""
    out_count: int = 0
    """How many polls the latest attempt was made with."""
    wanted: int = 0
    """How many polls should make the next attempt; zero if there is no reason for one."""
    surplus: int = 0
    """How many more the latest attempt could have been made with, had they been there."""
    checks: int = 0
    """Checks in vain since the last news."""
    alarm_at: float | None = None

    def put_first(self, ticket: Ticket[S, P]) -> None:
        self.parked[ticket] = None
        self.parked.move_to_end(ticket, last=False)


class _RecentWakes:
    """When each key was last woken, as far back as is remembered."""

    __slots__ = ("_at", "_memory_s")

    def __init__(self, memory_s: float) -> None:
        self._memory_s: Final = memory_s
        self._at: Final[OrderedDict[Hashable, float]] = OrderedDict()

    def note(self, key: Hashable, now: float) -> None:
        self._at[key] = now
        self._at.move_to_end(key)
        while next(iter(self._at.values())) < now - self._memory_s:
            self._at.popitem(last=False)

    def has_since(self, key: Hashable, at: float) -> bool:
        return self._at.get(key, float("-inf")) >= at
