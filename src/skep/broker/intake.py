"""Where the hot routes hand over what clients send.

Nearly every request goes straight to the component that serves it. One that finds the engine full,
or operations waiting in its partition, branches off to `fallback`: it is accepted as operations and
answered 202, if its client or its queue wants that, or stands in line until there is room or its
time is over.
"""

from collections.abc import Sequence
from typing import Final

from skep.broker.ack.accept import Ack, AckRequest
from skep.broker.overload.fallback import AckAttempt, Client, Fallback, PushAttempt, is_passing
from skep.broker.overload.waiting_line import Turn
from skep.broker.pop.accept import Poll, Pop
from skep.broker.push.accept import Push
from skep.broker.push.pending_writes import PushRequest
from skep.broker.transaction.transaction import Transaction
from skep.model.errors import Overloaded, SkepError
from skep.model.priorities import Priority
from skep.model.wire import AckItem, PushItem, TransactionBody

_OPERATION_WEIGHT: Final = 512
_POLL_WEIGHT: Final = 2_048


class Intake:
    """Takes requests in, also when there is no room for them; each is answered once."""

    def __init__(
        self, fallback: Fallback, *, push: Push, ack: Ack, pop: Pop, transaction: Transaction
    ) -> None:
        self._fallback: Final = fallback
        self._push: Final = push
        self._ack: Final = ack
        self._pop: Final = pop
        self._transaction: Final = transaction

    def push(
        self, items: Sequence[PushItem], client: Client, *, size: int, producer: str | None = None
    ) -> None:
        """Store the items, now or later.

        Raises:
            BadRequest: The request as a whole is refused and nothing is stored.
        """
        fallback = self._fallback
        kind = None
        if not fallback.is_idle and fallback.is_needed():
            kind = fallback.push_waited_for(items)
        if kind is None:

            def answer(request: PushRequest) -> None:
                if request.error is None:
                    client.respond(201, b"[%b]" % b",".join(request.results))
                else:
                    PushAttempt(fallback, self._push, items, client, size, producer).resume(request)

            try:
                self._push.push_messages(items, answer, size=size, producer=producer)
            except Overloaded:
                kind = Priority.PUSH
            else:
                return
        PushAttempt(fallback, self._push, items, client, size, producer).fall_back(kind)

    def ack(
        self, items: Sequence[AckItem], group: str | None, client: Client, *, is_batch: bool
    ) -> None:
        """Record the items, now or later.

        Raises:
            BadRequest: The request as a whole is refused.
        """
        fallback = self._fallback
        priority = Priority.BATCH_ACK if is_batch else Priority.ACK
        kind = None
        if not fallback.is_idle and fallback.is_needed():
            kind = fallback.ack_waited_for(items, priority)
        if kind is None:

            def answer(request: AckRequest) -> None:
                if request.error is None and not request.deferred:
                    client.respond(200, b"[%b]" % b",".join(request.results))
                else:
                    AckAttempt(fallback, self._ack, items, group, client, priority).resume(request)

            try:
                fallback.check_ack_room(priority)
                self._ack.ack_messages(items, group, answer)
            except Overloaded:
                kind = priority
            else:
                return
        AckAttempt(fallback, self._ack, items, group, client, priority).fall_back(kind)

    def pop(self, poll: Poll, *, waits: bool) -> None:
        """Serve a poll, unless it is aborted first.

        One that waits for messages also waits for room, and is told that there is nothing when its
        time is over: a consumer goes on polling after that, and may end at an error.
        """
        if self._fallback.is_idle or self._fallback.waited_for(Priority.POP) is None:
            try:
                self._pop.pop_messages(poll)
            except Overloaded:
                pass
            else:
                return

        def attempt() -> None:
            if not poll.is_settled:
                self._pop.pop_messages(poll)

        def refuse(error: SkepError) -> None:
            if poll.is_settled:
                return
            if waits:
                poll.deliver(None)
            else:
                poll.fail(error)

        self._fallback.stand(
            Priority.POP,
            Turn(attempt, refuse),
            weight=_POLL_WEIGHT,
            deadline=poll.deadline if waits else self._fallback.deadline(),
        )

    def commit(self, body: TransactionBody, client: Client, *, producer: str | None = None) -> None:
        """Commit a transaction.

        Raises:
            BadRequest: The request is not valid.
        """
        deadline = self._fallback.deadline()

        def answer(result: bytes | SkepError) -> None:
            if isinstance(result, bytes):
                client.respond(200, result)
            elif is_passing(result):
                stand()
            else:
                client.refuse(result)

        def attempt() -> None:
            self._transaction.commit(body, answer, producer=producer)

        def stand() -> None:
            self._fallback.stand(
                Priority.PUSH,
                Turn(attempt, client.refuse),
                weight=_OPERATION_WEIGHT * (1 + len(body.operations)),
                deadline=deadline,
            )

        if self._fallback.waited_for(Priority.PUSH) is not None:
            stand()
            return
        try:
            attempt()
        except Overloaded:
            stand()
