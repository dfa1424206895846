# Generated from skep/client/aio/message.py by tools/generate_blocking_client.py; edit that.
"""A delivered message, the batch it came with, and the verdicts on them.

Verdicts that the consumer loop reaches by itself are gathered and sent together; those of the user
(`message.ack()`) are sent at once, with all that were gathered.
"""

import logging
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from skep.client.blocking.session import Session
from skep.client.deliveries import BatchOf, Delivered, Gathered, decode_acked, report_late
from skep.client.errors import LeaseLost
from skep.client.io_blocking import Stop
from skep.client.leases import UNLEASED, KeptLease, LeaseKeeper
from skep.client.requests import queued_operation
from skep.client.verdicts import COMPLETED, RETRY, Verdict, ack_body, dead_letter, failed
from skep.model.errors import Overloaded, Unavailable

if TYPE_CHECKING:
    from skep.client.blocking.live import Feed

_log = logging.getLogger("skep.client")


class Message(Delivered, kw_only=True, gc=False, eq=False):
    """One delivered message.

    Its verdicts raise `LeaseLost` if another consumer has the message, or will.
    """

    @property
    def _settlement(self) -> "Settlement":
        return self.settlement

    def ack(self) -> None:
        """Complete it; it is done when this returns."""
        self._settlement.settle_now(self, COMPLETED)

    def fail(self, error: str) -> None:
        """Fail it: it comes again after the queue's pause, or becomes a dead letter."""
        self._settlement.settle_now(self, failed(error))

    def retry(self) -> None:
        """Let it be delivered again at once; this does not count as a failure."""
        self._settlement.settle_now(self, RETRY)

    def dead_letter(self, error: str) -> None:
        """Give it up: it becomes a dead letter."""
        self._settlement.settle_now(self, dead_letter(error))


class _Popped(msgspec.Struct, rename="camel"):
    """The body of an answered pop."""

    messages: list[Message]


_decode_popped: Final = msgspec.json.Decoder(_Popped).decode


def decode_popped(body: bytes) -> list[Message]:
    """Return the messages of an answered pop."""
    return _decode_popped(body).messages


def send_acks(session: Session, items: bytes, group: str, affinity: str) -> bytes:
    """Send acknowledgments of one group; return the answer."""
    body = ack_body(items, group)
    answer = session.request("POST", "/api/v1/ack/batch", body, affinity=affinity)
    queued = queued_operation(answer)
    return answer.body if queued is None else session.wait_for(queued)


class Settlement(Gathered):
    """The verdicts on the messages of one pop, gathered and sent."""

    def __init__(
        self,
        session: Session,
        messages: Sequence[Message],
        *,
        lease: KeptLease = UNLEASED,
        keeper: LeaseKeeper | None = None,
        ack_every_s: float = 1.0,
        stop: Stop | None = None,
        acknowledger: "Feed | None" = None,
    ) -> None:
        super().__init__(messages, lease=lease, keeper=keeper, ack_every_s=ack_every_s)
        self._session: Final = session
        self._acknowledger: Final = acknowledger
        self._stop: Final = stop

    def catch_up(self, message: Message) -> None:
        """Complete a message that was handled out of line; send verdicts that waited for long."""
        if not self.progress.is_settled(message.place):
            self.settle(message, COMPLETED)
        if monotonic() >= self._flush_at_s:
            self.flush()
        self._plan_catch_up()

    def settle_now(self, message: Message, verdict: Verdict) -> None:
        """Send a verdict at once, with those gathered.

        Raises:
            LeaseLost: The broker does not take it.
        """
        if not self.settle(message, verdict) or not message.lease_id:
            return
        _, items = self._take_unsent()
        # Results come in the order of the verdicts, and this one is the latest.
        result = decode_acked(self._send(items))[-1]
        if not result.success:
            raise LeaseLost(result.error)

    def flush(self) -> None:
        """Send the verdicts gathered, until they are answered or the lease has ended.

        Those that come too late are only logged: their messages come again.
        """
        count, items = self._take_unsent()
        while count and not self.is_lost:
            try:
                body = self._send(items)
            except (Unavailable, Overloaded) as error:
                _log.info("could not send %d verdicts, trying again: %s", count, error)
                if self._stop is not None and self._stop.is_set:
                    return
            else:
                report_late(body, count)
                return

    def finish(self) -> None:
        """Give back what was not handled, send what is gathered, and let the lease go."""
        try:
            self._gather_rest()
            # All verdicts are encoded, and waiting for an answer is long: memory that is free by
            # then is used again while the caches still have it.
            self._held = ()
            self.flush()
        finally:
            self._held = ()
            self._release()

    def _send(self, items: bytes) -> bytes:
        body = None
        if self._acknowledger is not None:
            body = self._acknowledger.acknowledge(items)
        if body is None:
            body = send_acks(self._session, items, self._group, self._affinity)
        self._flush_at_s = monotonic() + self._ack_every_s
        if self.progress.is_complete:
            self._release()
        return body


class Batch(BatchOf[Message, Settlement]):
    """The messages of one pop, under one lease."""
