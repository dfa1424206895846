# Generated from skep/client/aio/message.py by tools/generate_blocking_client.py; edit that.
"""A delivered message, the batch it came with, and the verdicts on them.

Verdicts that the consumer loop reaches by itself are gathered and sent together; those of the user
(`message.ack()`) are sent at once, with all that were gathered.
"""

import logging
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, TypeVar, overload

import msgspec

from skep.client.blocking.session import Session, queued_operation
from skep.client.endpoints import affinity_of
from skep.client.errors import LeaseLost
from skep.client.io_blocking import Stop
from skep.client.leases import UNLEASED, KeptLease, LeaseKeeper
from skep.client.values import AckResult
from skep.client.verdicts import (
    COMPLETED,
    RETRY,
    BatchProgress,
    Verdict,
    ack_body,
    ack_text,
    completed_text,
    dead_letter,
    failed,
)
from skep.model.errors import Overloaded, Unavailable
from skep.model.wire import QUEUE_MODE

_log = logging.getLogger("skep.client")

T = TypeVar("T")

_decode_payload: Final = msgspec.json.Decoder().decode


class Message(msgspec.Struct, rename="camel", kw_only=True, gc=False, eq=False):
    """One delivered message."""

    # In the order of the wire: a field that comes where it is expected is decoded sooner.
    id: str
    queue: str = ""
    partition: str
    partition_id: str
    lease_id: str = ""
    """Empty when the message was acknowledged on delivery."""
    consumer_group: str = QUEUE_MODE
    created_at: str
    delivery_attempt: int = 1
    """How often it was delivered, this time included."""
    retry_count: int = 0
    """How often it failed."""
    transaction_id: str
    trace_id: str | None = None
    producer_sub: str | None = None
    headers: dict[str, Any] | None = None
    raw: msgspec.Raw = msgspec.field(name="data")
    """The payload as it was pushed, byte for byte."""
    settlement: Any = msgspec.field(default=None, name="__settlement")
    """Where the verdict on this message goes; set by the client."""
    place: int = msgspec.field(default=0, name="__place")

    @property
    def data(self) -> Any:
        """The payload, decoded."""
        return _decode_payload(self.raw)

    def data_as(self, cls: type[T]) -> T:
        """Return the payload as a value of this type: a struct, a dataclass, anything of msgspec.

        Raises:
            msgspec.ValidationError: It is of another shape.
        """
        return msgspec.json.decode(self.raw, type=cls)

    @property
    def _settlement(self) -> "Settlement":
        return self.settlement

    @property
    def is_settled(self) -> bool:
        """Whether there is a verdict on this message."""
        return self._settlement.progress.is_settled(self.place)

    def ack(self) -> None:
        """Complete it; it is done when this returns.

        Raises:
            LeaseLost: Another consumer has it, or will.
        """
        self._settlement.settle_now(self, COMPLETED)

    def fail(self, error: str) -> None:
        """Fail it: it comes again after the queue's pause, or becomes a dead letter.

        Raises:
            LeaseLost: Another consumer has it, or will.
        """
        self._settlement.settle_now(self, failed(error))

    def retry(self) -> None:
        """Let it be delivered again at once; this does not count as a failure.

        Raises:
            LeaseLost: Another consumer has it, or will.
        """
        self._settlement.settle_now(self, RETRY)

    def dead_letter(self, error: str) -> None:
        """Give it up: it becomes a dead letter.

        Raises:
            LeaseLost: Another consumer has it, or will.
        """
        self._settlement.settle_now(self, dead_letter(error))


class Popped(msgspec.Struct, rename="camel"):
    """The body of an answered pop."""

    messages: list[Message]


decode_popped: Final = msgspec.json.Decoder(Popped).decode
decode_acked: Final = msgspec.json.Decoder(list[AckResult]).decode


def ack_text_of(message: Message, verdict: Verdict) -> bytes:
    """Return the acknowledgment of a message."""
    return ack_text(message.transaction_id, message.partition_id, message.lease_id, verdict)


def send_acks(session: Session, items: bytes, group: str, affinity: str) -> bytes:
    """Send acknowledgments of one group; return the answer."""
    body = ack_body(items, group)
    answer = session.request("POST", "/api/v1/ack/batch", body, affinity=affinity)
    queued = queued_operation(answer)
    return answer.body if queued is None else session.wait_for(queued)


class Acknowledger(Protocol):
    """Another way for acknowledgments than a request."""

    def acknowledge(self, items: bytes) -> bytes | None:
        """Send them; return the answer, or None if this way is not open (any more)."""
        ...


class Settlement:
    """The verdicts on the messages of one pop, and the lease they are given under."""

    def __init__(
        self,
        session: Session,
        messages: Sequence[Message],
        *,
        lease: KeptLease = UNLEASED,
        keeper: LeaseKeeper | None = None,
        ack_every_s: float = 1.0,
        stop: Stop | None = None,
        acknowledger: Acknowledger | None = None,
    ) -> None:
        self._session: Final = session
        self._acknowledger: Final = acknowledger
        self._group: Final = messages[0].consumer_group
        self._affinity: Final = affinity_of(messages[0].queue, self._group)
        self.lease: Final = lease
        """What the messages are held by; `UNLEASED` if it is not kept."""
        self._keeper: Final = keeper
        self._ack_every_s: Final = ack_every_s
        self._stop: Final = stop
        self._unsent_texts: list[bytes] = []
        self._unsent_count = 0
        # Messages know their settlement. If it always knew them too, such circles would be left
        # for the garbage collector with every pop; a batch holds them here until it is finished.
        self._held: Sequence[Message] = ()
        self._is_released = False
        self._flush_at_s = monotonic() + ack_every_s
        self.catch_up_at_s = 0.0
        """When to catch up: verdicts have waited for long, or the lease may have ended."""
        self._plan_catch_up()
        self.progress: Final = BatchProgress([message.partition_id for message in messages])

    def hold(self, messages: Sequence[Message]) -> None:
        """Remember the messages, so that they can be completed in line."""
        self._held = messages

    def adopt(self, messages: Sequence[Message]) -> None:
        """Tell all messages where verdicts on them go, before the user sees them."""
        for place, message in enumerate(messages):
            message.settlement = self
            message.place = place

    @property
    def is_lost(self) -> bool:
        """Whether the lease ended before the work: the messages come again, maybe elsewhere."""
        return self.lease.is_lost or self.lease.ends_at_s <= monotonic()

    def is_next(self, message: Message) -> bool:
        """Whether to handle this message: it is open, and the lease is held."""
        return not self.is_lost and self.progress.is_open(message.place)

    def complete(self, message: Message) -> bool:
        """Note that a message was handled; return whether to catch up before the next.

        That is when verdicts wait for long, when the lease may have ended, and always after
        anything but the completion of one message after the other.
        """
        is_next = self.progress.complete_next(message.place)
        return not is_next or monotonic() >= self.catch_up_at_s or self.lease.is_lost

    def catch_up(self, message: Message) -> None:
        """Complete a message that was handled out of line; send verdicts that waited for long."""
        if not self.progress.is_settled(message.place):
            self.settle(message, COMPLETED)
        if monotonic() >= self._flush_at_s:
            self.flush()
        self._plan_catch_up()

    def _plan_catch_up(self) -> None:
        self.catch_up_at_s = min(self._flush_at_s, self.lease.ends_at_s)

    def settle(self, message: Message, verdict: Verdict) -> bool:
        """Note a verdict, to be sent with others; return whether it is the first."""
        self._gather()
        is_first = self.progress.settle(message.place, verdict)
        if is_first and message.lease_id:  # without a lease the delivery itself completed it
            self._unsent_texts.append(ack_text_of(message, verdict))
            self._unsent_count += 1
        return is_first

    def settle_now(self, message: Message, verdict: Verdict) -> None:
        """Send a verdict at once, with those gathered.

        Raises:
            LeaseLost: The broker does not take it.
        """
        if not self.settle(message, verdict) or not message.lease_id:
            return
        unsent = self._take_unsent()
        # Results come in the order of the verdicts, and this one is the latest.
        result = decode_acked(self._send(unsent.items))[-1]
        if not result.success:
            raise LeaseLost(result.error)

    def flush(self) -> None:
        """Send the verdicts gathered, until they are answered or the lease has ended.

        Those that come too late are only logged: their messages come again.
        """
        unsent = self._take_unsent()
        count = unsent.item_count
        while count and not self.is_lost:
            try:
                body = self._send(unsent.items)
            except (Unavailable, Overloaded) as error:
                _log.info("could not send %d verdicts, trying again: %s", count, error)
                if self._stop is not None and self._stop.is_set:
                    return
            else:
                _report_late(body, count)
                return

    def finish(self) -> None:
        """Give back what was not handled, send what is gathered, and let the lease go."""
        try:
            if not self.progress.is_complete:
                self.adopt(self._held)
                for place in self.progress.places_to_give_back():
                    self.settle(self._held[place], RETRY)
            self._gather()
            # All verdicts are encoded, and waiting for an answer is long: memory that is free by
            # then is used again while the caches still have it.
            self._held = ()
            self.flush()
        finally:
            self._held = ()
            self._release()

    def _release(self) -> None:
        if self._keeper is not None and not self._is_released:
            self._is_released = True
            self._keeper.forget(self.lease.id)

    def _gather(self) -> None:
        """Make acknowledgments of the messages that were completed in line."""
        completed = self.progress.take_completed()
        if self.lease is UNLEASED or not completed:  # the delivery itself completed them
            return
        messages = self._held[completed.start : completed.stop]
        names = [message.transaction_id for message in messages]
        partitions = self.progress.partitions_of(completed)
        self._unsent_texts.append(completed_text(names, partitions, messages[0].lease_id))
        self._unsent_count += len(completed)

    def _take_unsent(self) -> "_Unsent":
        self._gather()
        unsent = _Unsent(self._unsent_count, b",".join(self._unsent_texts))
        self._unsent_texts, self._unsent_count = [], 0
        return unsent

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


class _Unsent(NamedTuple):
    """Verdicts to be sent: so many, as text."""

    item_count: int
    items: bytes


def _report_late(body: bytes, count: int) -> None:
    # Counting is much cheaper than decoding, and most answers report only success.
    if body.count(_ACKED) == count:
        return
    late = [result for result in decode_acked(body) if not result.success]
    if late:
        _log.warning("%d of %d messages will come again: %s", len(late), count, late[0].error)


_ACKED: Final = b'","success":true,"error":null,"queueName"'
"""How most results read; text of users cannot, because its quotation marks are escaped."""


class Batch(Sequence[Message]):
    """The messages of one pop, under one lease."""

    def __init__(self, messages: Sequence[Message], settlement: Settlement) -> None:
        self._messages: Final = messages
        self._is_seen = False
        self.settlement: Final = settlement
        settlement.hold(messages)

    @property
    def unseen(self) -> Sequence[Message]:
        """The messages as they are before they know their settlement (`Settlement.adopt`)."""
        return self._messages

    def _shown(self) -> Sequence[Message]:
        # A handler of whole batches may never look at a message, and need not pay for it.
        if not self._is_seen:
            self._is_seen = True
            self.settlement.adopt(self._messages)
        return self._messages

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._shown()[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._shown())

    @property
    def is_lost(self) -> bool:
        """Whether the lease ended before the work: the messages come again, maybe elsewhere."""
        return self.settlement.is_lost

    def settle_open(self, verdict: Verdict) -> None:
        """Give every message without a verdict this one."""
        if verdict is COMPLETED and self.settlement.progress.complete_rest():
            return
        for place in self.settlement.progress.open_places():
            self.settlement.settle(self._shown()[place], verdict)
