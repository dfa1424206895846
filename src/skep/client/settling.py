"""What becomes of delivered messages. Pure: it decides, others send.

`Verdict` is what a consumer says about one message, `verdict_of` reads it from what a handler
returned or raised, and `BatchProgress` says which message of a batch comes next and which are open.

Once a message of a partition did not succeed, nothing more of that partition is handled from the
same batch: its messages come again, in order, and the lease that covered them is gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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


class BatchProgress:
    """How far a consumer is with the messages of one pop, which go by their places.

    Args:
        lanes: The partition of each message.
    """

    __slots__ = ("_lanes", "_next", "_settled", "_stopped_lanes")

    def __init__(self, lanes: Sequence[str]) -> None:
        self._lanes: Final = lanes
        self._next = 0
        self._settled: Final[set[int]] = set()
        self._stopped_lanes: Final[set[str]] = set()

    def take_next(self) -> int | None:
        """Return the place of the next message to handle; None when there is none."""
        while self._next < len(self._lanes):
            place = self._next
            self._next += 1
            if place not in self._settled and self._lanes[place] not in self._stopped_lanes:
                return place
        return None

    def is_settled(self, place: int) -> bool:
        """Whether there is a verdict on this message."""
        return place in self._settled

    def settle(self, place: int, verdict: Verdict) -> bool:
        """Note the verdict on a message; the first one counts. Return whether it is this one."""
        if place in self._settled:
            return False
        self._settled.add(place)
        if not verdict.is_success:
            self._stopped_lanes.add(self._lanes[place])
        return True

    def stop(self) -> None:
        """Handle nothing more: the lease is lost."""
        self._next = len(self._lanes)

    @property
    def is_complete(self) -> bool:
        """Whether there is a verdict on every message."""
        return len(self._settled) == len(self._lanes)

    def open_places(self) -> list[int]:
        """Return the messages that may still be settled, in their order."""
        return [
            place
            for place, lane in enumerate(self._lanes)
            if place not in self._settled and lane not in self._stopped_lanes
        ]

    def places_to_give_back(self) -> list[int]:
        """Return the lowest open message of each lane: giving it back frees the lane."""
        lowest: dict[str, int] = {}
        for place in self.open_places():
            lowest.setdefault(self._lanes[place], place)
        return list(lowest.values())
