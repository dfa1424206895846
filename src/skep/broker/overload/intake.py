"""Take requests of the hot routes in, also when there is no room for them.

Nearly every request goes straight to the part that serves it. One that finds the engine full, or
operations waiting in its partition, is either accepted as operations and answered 202, if its
client or its queue wants that, or stands in line until there is room or its time is over.
"""

from typing import Final

from skep.broker.overload.ack_attempt import AckIntake
from skep.broker.overload.fallback import Client, Relief, is_passing
from skep.broker.overload.push_attempt import PushIntake
from skep.broker.overload.waiting_line import Turn
from skep.broker.pop.accept import Poll, Pop
from skep.broker.transaction.transaction import Transaction
from skep.model.errors import Overloaded, SkepError
from skep.model.priorities import Priority
from skep.model.wire import TransactionBody

_OPERATION_WEIGHT: Final = 512
_POLL_WEIGHT: Final = 2_048


class Intake:
    """Where the hot routes hand over what clients send."""

    def __init__(
        self,
        relief: Relief,
        *,
        push: PushIntake,
        ack: AckIntake,
        pop: Pop,
        transaction: Transaction,
    ) -> None:
        self.push: Final = push.push
        self.ack: Final = ack.ack
        self._relief: Final = relief
        self._pop: Final = pop
        self._transaction: Final = transaction

    def pop(self, poll: Poll, *, waits: bool) -> None:
        """Serve a poll; it is answered once, unless it is aborted first.

        One that waits for messages also waits for room, and hears that there is nothing when its
        time is over: a consumer goes on polling after that, and may end at an error.
        """
        if self._relief.is_idle or self._relief.waited_for(Priority.POP) is None:
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

        self._relief.stand(
            Priority.POP,
            Turn(attempt, refuse),
            weight=_POLL_WEIGHT,
            deadline=poll.deadline if waits else self._relief.deadline(),
        )

    def commit(self, body: TransactionBody, client: Client, *, producer: str | None = None) -> None:
        """Do a transaction; the client is answered once.

        Raises:
            BadRequest: The request makes no sense.
        """
        deadline = self._relief.deadline()

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
            self._relief.stand(
                Priority.PUSH,
                Turn(attempt, client.refuse),
                weight=_OPERATION_WEIGHT * (1 + len(body.operations)),
                deadline=deadline,
            )

        if self._relief.waited_for(Priority.PUSH) is not None:
            stand()
            return
        try:
            attempt()
        except Overloaded:
            stand()
