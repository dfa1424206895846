"""What becomes of delivered messages, and the acknowledgments that say so. Pure.

`Verdict` is the result of one message, `verdict_of` reads it from what a handler returned or
raised, and `BatchProgress` says which message of a batch comes next and which are open.

Once a message of a partition did not succeed, nothing more of that partition is handled from the
same batch: its messages come again, in order, and the lease that covered them is gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from skep.model.wire import QUEUE_MODE

Status: TypeAlias = Literal["completed", "failed", "retry", "dlq"]

ERROR_CHARS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a message, and why."""

    status: Status
    error: str | None = None

    @property
    def is_success(self) -> bool:
        """Whether the message counts as done: completed, or buried on purpose."""
        return self.status in {"completed", "dlq"}


COMPLETED: Final = Verdict("completed")
RETRY: Final = Verdict("retry")
"""Deliver it again at once; it does not count as a failure."""


def failed(error: str) -> Verdict:
    """Try again after the queue's pause, or give up when it failed too often."""
    return Verdict("failed", error[:ERROR_CHARS_MAX])


def dead_letter(error: str) -> Verdict:
    """Do not try again: bury it."""
    return Verdict("dlq", error[:ERROR_CHARS_MAX])


class RetryMessage(Exception):
    """Raised by a handler: deliver the message again at once, without counting a failure."""


class DeadLetterMessage(Exception):
    """Raised by a handler: this message will never succeed. The text is kept with it."""


def verdict_of(returned: object = None, raised: BaseException | None = None) -> Verdict:
    """Read what a handler did: nothing or a verdict returned, or an exception raised."""
    match raised:
        case None:
            return returned if isinstance(returned, Verdict) else COMPLETED
        case RetryMessage():
            return RETRY
        case DeadLetterMessage():
            return dead_letter(str(raised) or "given up by its handler")
        case _:
            return failed(f"{type(raised).__name__}: {raised}")


class _Handled(Protocol):
    """What is said of a message in the log."""

    @property
    def id(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def partition(self) -> str: ...
    @property
    def consumer_group(self) -> str: ...
    @property
    def delivery_attempt(self) -> int: ...


def failure_of(failed: _Handled | Sequence[_Handled], verdict: Verdict) -> tuple[str, str]:
    """Return where a handler failed, and on what: a message, or a batch of one queue."""
    first = failed[0] if isinstance(failed, Sequence) else failed
    what = f"message {first.id}"
    if isinstance(failed, Sequence) and len(failed) > 1:
        what = f"a batch of {len(failed)} from message {first.id} on"
    group = first.consumer_group
    where = f"queue {first.queue}, {'default group' if group == QUEUE_MODE else 'group ' + group}"
    return where, (
        f"Handler failed on {what} of {where}, partition {first.partition}, attempt "
        f"{first.delivery_attempt} ({verdict.status})"
    )


class BatchProgress:
    """How far a consumer is with the messages of one pop, which go by their places.

    As long as they are completed one after the other only a number is kept; this is the inner loop
    of every consumer. All that matters of a message is its partition.
    """

    __slots__ = (
        "_partitions",
        "_settled",
        "_stopped_partitions",
        "_taken_to",
        "completed_to",
        "is_plain",
    )

    def __init__(self, partitions: Sequence[str]) -> None:
        self._partitions: Final = partitions
        self.completed_to = 0
        """How many were completed one after the other, from the first; the consumer's loop counts
        on by itself what `complete_next` would."""
        self._taken_to = 0
        self._settled: Final[set[int]] = set()
        self._stopped_partitions: Final[set[str]] = set()
        self.is_plain = True
        """Whether nothing happened but the completion of one message after the other."""

    def is_open(self, place: int) -> bool:
        """Whether this message may be handled: it has no result yet, and its partition goes on."""
        return (
            not self.is_settled(place) and self._partitions[place] not in self._stopped_partitions
        )

    def is_settled(self, place: int) -> bool:
        """Whether there is a verdict on this message."""
        return place < self.completed_to if self.is_plain else place in self._settled

    def complete_next(self, place: int) -> bool:
        """Complete a message if it is next in line and all before it are; return whether it was.

        Those completed so are told by `take_completed`.
        """
        if not self.is_plain or place != self.completed_to:
            return False
        self.completed_to = place + 1
        return True

    def complete_rest(self) -> bool:
        """Complete everything that is left, if nothing else happened; return whether it was so."""
        if self.is_plain:
            self.completed_to = len(self._partitions)
        return self.is_plain

    def take_completed(self) -> range:
        """Return the messages completed in line since this was last asked."""
        taken = range(self._taken_to, self.completed_to)
        self._taken_to = self.completed_to
        return taken

    def settle(self, place: int, verdict: Verdict) -> bool:
        """Note the verdict on a message; the first one counts. Return whether it is this one."""
        if self.is_plain:
            self.is_plain = False
            self._settled.update(range(self.completed_to))
        if place in self._settled:
            return False
        self._settled.add(place)
        if not verdict.is_success:
            self._stopped_partitions.add(self._partitions[place])
        return True

    @property
    def is_complete(self) -> bool:
        """Whether there is a verdict on every message."""
        count = self.completed_to if self.is_plain else len(self._settled)
        return count == len(self._partitions)

    def open_places(self) -> list[int]:
        """Return the messages that may still be handled, in their order."""
        return [place for place in range(len(self._partitions)) if self.is_open(place)]

    def places_to_give_back(self) -> list[int]:
        """Return the lowest open message of each partition: giving it back frees the partition."""
        lowest: dict[str, int] = {}
        for place in self.open_places():
            lowest.setdefault(self._partitions[place], place)
        return list(lowest.values())


class AckItem(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """An acknowledgment, as it is sent."""

    message_id: str
    transaction_id: str
    partition_id: str
    status: str
    lease_id: str
    error: str | None = None


class Named(Protocol):
    """A message as an acknowledgment names it.

    The message id alone decides; the others are for brokers that do not know it yet.
    """

    id: str
    transaction_id: str
    partition_id: str
    lease_id: str


_encode: Final = msgspec.json.Encoder().encode


def ack_text(message: Named, verdict: Verdict) -> bytes:
    """Return the acknowledgment of one message."""
    return _encode(
        AckItem(
            message.id,
            message.transaction_id,
            message.partition_id,
            verdict.status,
            message.lease_id,
            verdict.error,
        )
    )


def completed_text(messages: Sequence[Named]) -> bytes:
    """Return the acknowledgments of completed messages of one lease, separated by commas.

    Most messages are completed, and only their ids differ: putting these into the rest of the text
    costs a third of encoding each.
    """
    lease_json = _encode(messages[0].lease_id).decode()
    closing = f'","status":"completed","leaseId":{lease_json}}}'
    names = [message.transaction_id for message in messages]
    joined = "".join(names)
    # As long as before, but for its quotation marks: then nothing in them is spelled otherwise.
    if len(_encode(joined)) != len(joined) + 2:
        names = [_encode(name)[1:-1].decode() for name in names]
    return ",".join(
        [
            f'{{"messageId":"{message.id}","transactionId":"{name}",'
            f'"partitionId":"{message.partition_id}{closing}'
            for message, name in zip(messages, names, strict=True)
        ]
    ).encode()


def ack_body(items: bytes, group: str) -> bytes:
    """Return the body of a request with these acknowledgments, all of one group."""
    return b'{"acknowledgments":[%b],"consumerGroup":%b}' % (items, _encode(group))
