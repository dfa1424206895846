"""Accept polls: requests for messages under a lease, or acknowledged at once.

A poll that finds nothing waits among the long polls, holding no connection, if its client is ready
to wait. When a client disconnects, what was claimed for its poll is given back at once, including
the lease and the count of deliveries.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID, uuid4

import msgspec

from skep.broker.directory import (
    Directory,
    Group,
    GroupRequest,
    Partition,
    PartitionRequest,
    Subscription,
)
from skep.broker.overload.fallback import Fallback
from skep.broker.overload.waiting_line import Turn
from skep.broker.pop.deadlines import Deadlines
from skep.engine.driver import Engine, Work
from skep.model.errors import Overloaded, SkepError, Unavailable
from skep.model.priorities import Priority

if TYPE_CHECKING:
    from skep.broker.pop.long_poll import LongPolls
    from skep.engine.fusion import WorkUnit

_log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
"""Pause before a poll that waits asks again for a group that could not be provided."""

_WEIGHT: Final = 512
_LINE_WEIGHT: Final = 2_048
"""What a poll weighs that stands in line for room."""

Deliver: TypeAlias = Callable[[bytes | None], bool]
"""Answer a poll: the body, or None when there is nothing. False when the client is gone."""


class PollOptions(msgspec.Struct, frozen=True, gc=False):
    """What a client asks for."""

    queue: str
    group: str
    partition: str | None
    batch: int
    partitions: int
    auto_ack: bool
    lease_s: int
    """Length of the lease; 0 for the queue's own."""
    subscription: Subscription
    extra: bytes = b""
    """Further members of the answer, rendered, each ending in a comma."""
    conflation: bool | None = None
    """Whether only the newest message of each partition is wanted; None leaves it to the group."""
    is_discovered: bool = False
    """The client named no queue, so the answer as a whole names none either."""
    creates: bool = True
    """Whether the queue and the partition are created if they do not exist."""


@dataclass(slots=True, eq=False)
class Poll(Work):
    """One client's request for messages."""

    may_go_on = True  # it is parked, or tries again

    options: PollOptions
    deadline: float
    answer: Deliver
    refuse: Callable[[SkepError], None]
    group: Group | None = None
    partition: Partition | None = None
    lease_id: UUID = field(default_factory=uuid4)
    unit: "WorkUnit[Any] | None" = None
    waits: bool = False
    """Its client waits until the deadline, and is told then that there is nothing."""
    pop: "Pop | None" = None
    """Where it was accepted."""
    long_polls: "LongPolls | None" = None
    undo_claim: "Callable[[Poll], None] | None" = None
    """Set while it is unknown whether the claim was made; called if the poll ends meanwhile."""
    tried_at: float = 0.0
    fruitless_claims: int = 0

    def deliver(self, body: bytes | None) -> bool:
        """Answer; False when the client is gone and nothing was sent."""
        self.end()
        if body is None and self.group is not None:
            body = empty_body(self.group, self.options)
        return self.answer(body)

    def end(self) -> None:
        """Let nothing more be done for it, except to give back what it may have claimed."""
        self.is_settled = True
        if self.pop is not None:
            self.pop.deadlines.end(self)
        if self.undo_claim is not None:
            undo, self.undo_claim = self.undo_claim, None
            undo(self)

    def fail(self, error: SkepError) -> None:
        """Refuse the poll, unless it can wait until the error has passed.

        Consumers give up after a few errors; a poll that waits survives a restart of the database.
        """
        long_polls = self.long_polls
        if long_polls is not None:
            if isinstance(error, Unavailable | Overloaded) and long_polls.keep_waiting(self):
                return
            long_polls.leave(self)
        if self.waits and isinstance(error, Unavailable):
            self.deliver(None)
            return
        self.end()
        self.refuse(error)

    def run_out(self) -> None:
        """Answer it although it is still trying: its time is over."""
        if self.pop is not None and not self.is_settled:
            self.pop.withdraw(self)
            self.fail(Unavailable())


@dataclass(slots=True, eq=False)
class UnwantedClaim(Work):
    """A claim to give back; no client waits for the answer."""

    group: Group
    lease_id: UUID
    partition_ids: Collection[int]
    """The partitions claimed; none if it is unknown whether any were."""
    answer: Callable[[SkepError | None], None]

    def finish(self) -> None:
        """Note that it was given back."""
        self.is_settled = True
        self.answer(None)

    def fail(self, error: SkepError) -> None:
        """Note that it was not."""
        self.is_settled = True
        self.answer(error)


@dataclass(slots=True, eq=False, frozen=True)
class Pop:
    """Accept polls."""

    engine: Engine
    directory: Directory
    long_polls: "LongPolls"
    fallback: Fallback
    deadlines: Deadlines
    now: Callable[[], float]
    unfenced: dict[int, set[UUID]] = field(default_factory=dict[int, set[UUID]])
    """Claims under way back, by group, of messages that were acknowledged on delivery. No lease
    keeps others from the partition, and the next claim of it would bury them."""

    def pop(self, poll: Poll, *, waits: bool) -> None:
        """Serve a poll, unless it is aborted first.

        One that waits for messages also waits for room, and is told that there is nothing when its
        time is over: a consumer goes on polling after that, and may end at an error.
        """
        poll.waits = waits
        fallback = self.fallback
        if fallback.is_idle or fallback.waited_for(Priority.POP) is None:
            try:
                self.pop_messages(poll)
            except Overloaded:
                pass
            else:
                return

        def attempt() -> None:
            if not poll.is_settled:
                self.pop_messages(poll)

        def refuse(error: SkepError) -> None:
            if poll.is_settled:
                return
            if waits:
                poll.deliver(None)
            else:
                poll.fail(error)

        deadline = poll.deadline if waits else fallback.deadline()
        turn = Turn(attempt, refuse)
        self.watch(poll, has_own_end=True)
        fallback.stand(Priority.POP, turn, weight=_LINE_WEIGHT, deadline=deadline)

    def pop_messages(self, poll: Poll, *, is_admitted: bool = False) -> None:
        """Serve a poll; its answer is called once, unless it is aborted first.

        One that was admitted before and goes on is not refused for lack of room.

        Raises:
            Overloaded: The engine is full.
        """
        options = poll.options
        group = self.directory.groups.get((options.queue, options.group))
        if group is None or (options.conflation is not None and group.conflation is None):
            wish = GroupRequest(
                (options.queue, options.group),
                options.subscription,
                options.conflation,
                options.creates,
                on_done=self._resume(poll),
            )
            self.engine.submit("subscribe", None, _WEIGHT, wish, is_admitted=is_admitted)
            self.watch(poll)
            return
        poll.group = group
        if options.partition is not None:
            partition = self.directory.partitions.get((options.queue, options.partition))
            if partition is None:
                key = (options.queue, options.partition)
                wished = PartitionRequest([key], options.creates, on_done=self._resume(poll))
                self.engine.submit("provision", None, _WEIGHT, wished, is_admitted=is_admitted)
                self.watch(poll)
                return
            poll.partition = partition
        if poll.waits and poll.deadline > self.now() and self.long_polls.join(poll):
            poll.pop, poll.long_polls = self, self.long_polls
            self.deadlines.end(poll)
            return
        self.attempt(poll, is_admitted=is_admitted)

    def attempt(self, poll: Poll, *, is_admitted: bool = False) -> None:
        """Let a poll try to claim messages."""
        assert poll.group is not None
        poll.long_polls = self.long_polls
        poll.tried_at = self.now()
        operation = "pop" if poll.partition is None else "pop_partition"
        poll.unit = self.engine.submit(
            operation, poll.group.group_id, _WEIGHT, poll, is_admitted=is_admitted
        )
        self.watch(poll)  # only one that the engine took

    def attempt_again(self, poll: Poll) -> None:
        """Let a poll make another claim, under a new lease."""
        if poll.is_settled:
            return
        poll.lease_id = uuid4()
        try:
            self.attempt(poll)
        except SkepError as error:
            poll.fail(error)

    def abort(self, poll: Poll) -> None:
        """Stop working for a poll whose client is gone.

        A claim under way cannot be stopped; it is given back when it returns.
        """
        if poll.is_settled:
            return
        self.withdraw(poll)
        poll.end()
        self.long_polls.leave(poll)

    def withdraw(self, poll: Poll) -> None:
        """Take a poll out of the engine, unless its call is under way."""
        if poll.unit is not None:
            self.engine.withdraw(poll.unit)

    def give_back(
        self, group: Group, lease_id: UUID, partition_ids: set[int], *, is_fenced: bool = True
    ) -> None:
        """Release a claim whose messages no client will receive."""
        self._return(group, lease_id, partition_ids, is_fenced=is_fenced)

    def undo_claim(self, group: Group, lease_id: UUID, *, is_fenced: bool = True) -> None:
        """Undo a claim of which it is unknown whether it was made; its poll has ended."""
        self._return(group, lease_id, (), is_fenced=is_fenced)

    def undo_claim_of(self, poll: Poll) -> None:
        """Undo what a poll that has ended may have claimed."""
        assert poll.group is not None
        self.undo_claim(poll.group, poll.lease_id, is_fenced=not poll.options.auto_ack)

    def _return(
        self, group: Group, lease_id: UUID, partition_ids: Collection[int], *, is_fenced: bool
    ) -> None:
        """Give a claim back, however full the engine is: other polls wait for the partitions.

        While the database does not answer it is tried again: the lease may be a long one.
        """
        unfenced = self.unfenced
        if not is_fenced:
            unfenced.setdefault(group.group_id, set()).add(lease_id)

        def submit() -> None:
            claim = UnwantedClaim(group, lease_id, partition_ids, answer)
            operation = "release" if partition_ids else "undo"
            self.engine.submit(operation, None, _WEIGHT, claim, is_admitted=True)

        def submit_again() -> None:
            if not self.long_polls.is_stopped:
                submit()

        def answer(error: SkepError | None) -> None:
            if isinstance(error, Unavailable):
                asyncio.get_running_loop().call_later(RETRY_S, submit_again)
                return
            if error is not None:
                _log.warning("a claim could not be given back: %s", error)
            if not is_fenced:
                unfenced[group.group_id].discard(lease_id)
                if not unfenced[group.group_id]:
                    del unfenced[group.group_id]

        submit()

    def subscribe_again(self, group: Group, polls: Sequence[Poll]) -> None:
        """Start the polls of a deleted group over."""
        self.directory.forget_group(group)
        for poll in polls:
            self._start_over(poll)

    def find_partition_again(self, poll: Poll) -> None:
        """Start a poll of a deleted partition over with the one that has its name now.

        It keeps the old one until then: should it have to wait, its next attempt comes here again.
        """
        if poll.partition is not None:
            self.directory.forget_partition(poll.partition)
        self._start_over(poll)

    def watch(self, poll: Poll, *, has_own_end: bool = False) -> None:
        """Answer a poll that tries when its time is over, should the database not answer."""
        poll.pop = self
        self.deadlines.begin(poll, has_own_end=has_own_end)

    def _start_over(self, poll: Poll) -> None:
        if not poll.is_settled:
            self.long_polls.leave(poll)  # it waits in the scope of what is gone
            self._resume(poll)(None)

    def _resume(self, poll: Poll) -> Callable[[SkepError | None], None]:
        def resume(error: SkepError | None) -> None:
            if poll.is_settled:
                return
            try:
                if error is not None:
                    raise error
                self.pop_messages(poll, is_admitted=True)
            except SkepError as refusal:
                left_s = poll.deadline - self.now()
                may_wait = poll.waits and left_s > 0 and not self.long_polls.is_stopped
                if may_wait and isinstance(refusal, Unavailable):
                    loop = asyncio.get_running_loop()
                    loop.call_later(min(RETRY_S, left_s), resume, None)
                else:
                    poll.fail(refusal)

        return resume


def conflation_echo(group: Group, options: PollOptions) -> bytes:
    """Render that only the newest messages are delivered, or that the group disagrees."""
    if options.conflation is not None and options.conflation != bool(group.conflation):
        return b'"conflationConflict":true,'
    return b'"conflation":true,' if group.conflation else b""


def empty_body(group: Group, options: PollOptions) -> bytes | None:
    """Render an answer without messages; None when a bare status says it all."""
    echo = conflation_echo(group, options)
    if not echo:
        return None
    return (
        b'{"success":true,%b%b"queue":%b,"partition":"","partitionId":null,"leaseId":null,'
        b'"consumerGroup":%b,"messages":[]}'
    ) % (
        options.extra,
        echo,
        b'""' if options.is_discovered else group.queue_json,
        group.group_json,
    )
