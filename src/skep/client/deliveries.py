"""Delivered messages and the verdicts on them, until they are sent: for both kinds of client.

The client on asyncio and the blocking one add the sending (`aio.message`, `blocking.message`).
"""

import logging
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, Final, Generic, TypeVar, overload

import msgspec

from skep.client.endpoints import affinity_of
from skep.client.leases import UNLEASED, KeptLease, LeaseKeeper
from skep.client.values import AckResult
from skep.client.verdicts import COMPLETED, RETRY, BatchProgress, Verdict, ack_text, completed_text
from skep.model.wire import QUEUE_MODE

_log = logging.getLogger("skep.client")

T = TypeVar("T")

_decode_payload: Final = msgspec.json.Decoder().decode
decode_acked: Final = msgspec.json.Decoder(list[AckResult]).decode


class Delivered(msgspec.Struct, rename="camel", kw_only=True, gc=False, eq=False):
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
    def is_settled(self) -> bool:
        """Whether there is a verdict on this message."""
        return bool(self.settlement.progress.is_settled(self.place))


class Gathered:
    """The verdicts on the messages of one pop, gathered; and the lease they are given under."""

    def __init__(
        self,
        messages: Sequence[Delivered],
        *,
        lease: KeptLease,
        keeper: LeaseKeeper | None,
        ack_every_s: float,
    ) -> None:
        self.lease: Final = lease
        """What the messages are held by; `UNLEASED` if it is not kept."""
        self._group: Final = messages[0].consumer_group
        self._affinity: Final = affinity_of(messages[0].queue, self._group)
        self._keeper: Final = keeper
        self._is_released = False
        self._ack_every_s: Final = ack_every_s
        self._unsent_texts: list[bytes] = []
        self._unsent_count = 0
        # Messages know their settlement. If it always knew them too, such circles would be left
        # for the garbage collector with every pop; a batch holds them here until it is finished.
        self._held: Sequence[Delivered] = ()
        self._flush_at_s = monotonic() + ack_every_s
        self.catch_up_at_s = 0.0
        """When to catch up: verdicts have waited for long, or the lease may have ended."""
        self._plan_catch_up()
        self.progress: Final = BatchProgress([message.partition_id for message in messages])

    def hold(self, messages: Sequence[Delivered]) -> None:
        """Remember the messages, so that they can be completed in line."""
        self._held = messages

    def adopt(self, messages: Sequence[Delivered]) -> None:
        """Tell all messages where verdicts on them go, before the user sees them."""
        for place, message in enumerate(messages):
            message.settlement = self
            message.place = place

    @property
    def is_lost(self) -> bool:
        """Whether the lease ended before the work: the messages come again, maybe elsewhere."""
        return self.lease.is_lost or self.lease.ends_at_s <= monotonic()

    def is_next(self, message: Delivered) -> bool:
        """Whether to handle this message: it is open, and the lease is held."""
        return not self.is_lost and self.progress.is_open(message.place)

    def complete(self, message: Delivered) -> bool:
        """Note that a message was handled; return whether to catch up before the next.

        That is when verdicts wait for long, when the lease may have ended, and always after
        anything but the completion of one message after the other.
        """
        is_next = self.progress.complete_next(message.place)
        return not is_next or monotonic() >= self.catch_up_at_s or self.lease.is_lost

    def _plan_catch_up(self) -> None:
        self.catch_up_at_s = min(self._flush_at_s, self.lease.ends_at_s)

    def settle(self, message: Delivered, verdict: Verdict) -> bool:
        """Note a verdict, to be sent with others; return whether it is the first."""
        self._gather()
        is_first = self.progress.settle(message.place, verdict)
        if is_first and message.lease_id:  # without a lease the delivery itself completed it
            self._unsent_texts.append(ack_text(message, verdict))
            self._unsent_count += 1
        return is_first

    def _gather(self) -> None:
        """Make acknowledgments of the messages that were completed in line."""
        completed = self.progress.take_completed()
        if self.lease is UNLEASED or not completed:  # the delivery itself completed them
            return
        messages = self._held[completed.start : completed.stop]
        self._unsent_texts.append(completed_text(messages))
        self._unsent_count += len(completed)

    def _gather_rest(self) -> None:
        """Give back what was not handled, and gather what was."""
        if not self.progress.is_complete:
            self.adopt(self._held)
            for place in self.progress.places_to_give_back():
                self.settle(self._held[place], RETRY)
        self._gather()

    def _release(self) -> None:
        """Keep the lease no longer."""
        if self._keeper is not None and not self._is_released:
            self._is_released = True
            self._keeper.forget(self.lease.id)

    def _take_unsent(self) -> tuple[int, bytes]:
        """Return how many verdicts are to be sent, and their text."""
        self._gather()
        unsent = self._unsent_count, b",".join(self._unsent_texts)
        self._unsent_texts, self._unsent_count = [], 0
        return unsent


M = TypeVar("M", bound=Delivered)
G = TypeVar("G", bound=Gathered)


def report_late(body: bytes, count: int) -> None:
    """Log the verdicts that came too late."""
    # Counting is much cheaper than decoding, and most answers report only success.
    if body.count(_ACKED) == count:
        return
    late = [result for result in decode_acked(body) if not result.success]
    if late:
        _log.warning("%d of %d messages will come again: %s", len(late), count, late[0].error)


_ACKED: Final = b'","success":true,"error":null,"queueName"'
"""How most results read; text of users cannot, because its quotation marks are escaped."""


class BatchOf(Sequence[M], Generic[M, G]):
    """The messages of one pop, under one lease."""

    def __init__(self, messages: Sequence[M], settlement: G) -> None:
        self._messages: Final = messages
        self._is_seen = False
        self.settlement: Final = settlement
        settlement.hold(messages)

    @property
    def unseen(self) -> Sequence[M]:
        """The messages as they are before they know their settlement (`Gathered.adopt`)."""
        return self._messages

    def _shown(self) -> Sequence[M]:
        # A handler of whole batches may never look at a message, and need not pay for it.
        if not self._is_seen:
            self._is_seen = True
            self.settlement.adopt(self._messages)
        return self._messages

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[M]: ...
    def __getitem__(self, index: int | slice) -> M | Sequence[M]:
        return self._shown()[index]

    def __iter__(self) -> Iterator[M]:
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
