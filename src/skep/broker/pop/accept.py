"""Accept polls: requests for messages under a lease, or acknowledged at once.

A poll that finds nothing waits among the long polls, holding no connection, if its client is ready
to wait. When a client disconnects, what was claimed for its poll is given back at once, including
the lease and the count of deliveries.
"""

import logging
from collections.abc import Callable, Sequence
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
from skep.db.access.errors import GroupGone
from skep.engine.driver import Engine, Work
from skep.model.errors import Overloaded, SkepError, Unavailable

if TYPE_CHECKING:
    from skep.broker.pop.long_poll import LongPolls
    from skep.engine.fusion import WorkUnit

_log = logging.getLogger(__name__)

_WEIGHT: Final = 512

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


class Poll(Work):
    """One client's request for messages."""

    __slots__ = (
        "_deliver",
        "_refuse",
        "deadline",
        "fruitless_claims",
        "group",
        "lease_id",
        "long_polls",
        "options",
        "partition",
        "tried_at",
        "undo_claim",
        "unit",
    )

    def __init__(
        self,
        options: PollOptions,
        *,
        deadline: float,
        deliver: Deliver,
        refuse: Callable[[SkepError], None],
    ) -> None:
        super().__init__()
        self.options = options
        self.deadline = deadline
        self.group: Group | None = None
        self.partition: Partition | None = None
        self.lease_id: UUID = uuid4()
        self.unit: WorkUnit[Any] | None = None
        self.long_polls: LongPolls | None = None
        # Set while it is unknown whether the claim was made; called if the poll ends meanwhile.
        self.undo_claim: Callable[[Poll], None] | None = None
        self.tried_at = 0.0
        self.fruitless_claims = 0
        self._deliver = deliver
        self._refuse = refuse

    def deliver(self, body: bytes | None) -> bool:
        """Answer; False when the client is gone and nothing was sent."""
        self.end()
        if body is None and self.group is not None:
            body = empty_body(self.group, self.options)
        return self._deliver(body)

    def end(self) -> None:
        """Let nothing more be done for it, except to give back what it may have claimed."""
        self.is_settled = True
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
        self.end()
        self._refuse(error)


class UnwantedClaim(Work):
    """A claim to give back; no client waits for the answer."""

    __slots__ = ("group", "lease_id", "partition_ids")

    def __init__(self, group: Group, lease_id: UUID, partition_ids: set[int] | None) -> None:
        """Take the partitions claimed, or None if it is unknown whether any were."""
        super().__init__()
        self.group = group
        self.lease_id = lease_id
        self.partition_ids = partition_ids or set()

    def fail(self, error: SkepError) -> None:
        """Leave the partitions to the end of their lease."""
        self.is_settled = True
        _log.warning("a claim could not be given back: %s", error)


class Pop:
    """Accept polls."""

    def __init__(
        self,
        engine: Engine,
        directory: Directory,
        long_polls: "LongPolls",
        *,
        now: Callable[[], float],
    ) -> None:
        self._engine: Final = engine
        self._directory: Final = directory
        self._long_polls: Final = long_polls
        self._now: Final = now

    def pop_messages(self, poll: Poll) -> None:
        """Serve a poll; its answer is called once, unless it is aborted first.

        Raises:
            Overloaded: The engine is full.
        """
        options = poll.options
        group = self._directory.groups.get((options.queue, options.group))
        if group is None or (options.conflation is not None and group.conflation is None):
            wish = GroupRequest(
                (options.queue, options.group),
                options.subscription,
                self._resume(poll),
                conflation=options.conflation,
            )
            self._engine.submit("subscribe", None, _WEIGHT, wish)
            return
        poll.group = group
        if options.partition is not None:
            partition = self._directory.partitions.get((options.queue, options.partition))
            if partition is None:
                wished = PartitionRequest([(options.queue, options.partition)], self._resume(poll))
                self._engine.submit("provision", None, _WEIGHT, wished)
                return
            poll.partition = partition
        self.attempt(poll)

    def attempt(self, poll: Poll) -> None:
        """Let a poll try to claim messages.

        Raises:
            Overloaded: The engine is full.
        """
        assert poll.group is not None
        poll.long_polls = self._long_polls
        poll.tried_at = self._now()
        operation = "pop" if poll.partition is None else "pop_partition"
        poll.unit = self._engine.submit(operation, poll.group.group_id, _WEIGHT, poll)

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
        if poll.unit is not None:
            self._engine.withdraw(poll.unit)
        poll.end()
        self._long_polls.leave(poll)

    def give_back(self, group: Group, lease_id: UUID, partition_ids: set[int]) -> None:
        """Release a claim whose messages no client will receive."""
        claim = UnwantedClaim(group, lease_id, partition_ids)
        self._engine.submit("release", None, _WEIGHT, claim)

    def undo_claim(self, poll: Poll) -> None:
        """Undo the claim of a poll that ended before it was known whether the claim was made."""
        assert poll.group is not None
        claim = UnwantedClaim(poll.group, poll.lease_id, None)
        self._engine.submit("undo", None, _WEIGHT, claim)

    def subscribe_again(self, group: Group, polls: Sequence[Poll]) -> None:
        """Start the polls of a deleted group over.

        Not those whose queue was discovered: they must not create a queue that was deleted.
        """
        self._directory.forget_group(group)
        for poll in polls:
            if not poll.is_settled and poll.options.is_discovered:
                poll.fail(GroupGone("the consumer group does not exist any more"))
            else:
                self._start_over(poll)

    def find_partition_again(self, poll: Poll) -> None:
        """Start a poll of a deleted partition over with the one that has its name now."""
        if poll.partition is not None:
            self._directory.forget_partition(poll.partition)
            poll.partition = None
        self._start_over(poll)

    def _start_over(self, poll: Poll) -> None:
        if not poll.is_settled:
            self._long_polls.leave(poll)  # it waits in the scope of what is gone
            self._resume(poll)(None)

    def _resume(self, poll: Poll) -> Callable[[SkepError | None], None]:
        def resume(error: SkepError | None) -> None:
            if poll.is_settled:
                return
            try:
                if error is not None:
                    raise error
                self.pop_messages(poll)
            except SkepError as refusal:
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
