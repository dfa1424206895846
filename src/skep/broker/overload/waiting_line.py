"""Requests without room stand in line: tried again when there is some, refused or deferred in time.

A request joins the line under what it waits for: a kind of work (a `Priority`), or a partition in
which operations wait (a `PartitionKey`). Later requests that need the same join behind it, so none
is overtaken. Kinds are tried whenever the engine has finished a call, the more important ones
first, and every `RETRY_S`; partitions when `PartitionWatch` finds them free.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeAlias

from skep.broker.overload.shares import WaitingLine
from skep.broker.polling_loop import end_task
from skep.db.access.slots import Caller
from skep.engine.driver import Engine
from skep.model.errors import Congested, Overloaded, SkepError
from skep.model.priorities import Priority
from skep.telemetry.defects import error_of

_log = logging.getLogger(__name__)

PARTITIONS_CALL: Final = "select * from skep.deferred_partitions($1, $2)"

RETRY_S: Final = 0.1
"""How often the line is tried without a finished call: room may come from elsewhere."""

PROBE_S: Final = 0.05
"""How often partitions are checked for operations, while requests wait for them."""

PARTITIONS_WATCHED_MAX: Final = 10_000
"""Partitions remembered to have operations. For others, the database refuses the call."""

DEFERRABLE_WAIT_S: Final = 0.25
"""How long a request that may be deferred waits for the operations of its partition first. Without
it, clients that send their next request upon a 202 keep the partition in operations for ever."""

DEFERRAL: Final = "deferral"
"""Type of a `PartitionKey` under which requests wait to be deferred, behind earlier requests of
their partition; they are tried like those that wait for room."""

STOPPING: Final = "this instance is shutting down"


class OutOfTurn(Overloaded):
    """Requests of the same partition that came before are still on their way."""

    code = "out_of_turn"


class PartitionKey(NamedTuple):
    """A partition of operations."""

    type: str
    partition_id: int


class Turn(NamedTuple):
    """What to do with a request in line."""

    attempt: Callable[[], None]
    """Tries it again. Raises `Overloaded` when there is still no room, and `OutOfTurn` when there
    may be, but not for this one yet."""
    refuse: Callable[[SkepError], None]
    """Answers that there was no room in time."""
    defer: Callable[[], None] | None = None
    """What to do when there was no room in time, if it is not refused then."""


Kind: TypeAlias = Priority | PartitionKey


class Line:
    """The requests of one process that found no room."""

    def __init__(
        self, engine: Engine, *, wait_s: float, weight_max: int, is_congestion: bool = False
    ) -> None:
        """Begin with an empty line, which is tried when the engine has finished a call.

        Requests beyond `weight_max` are refused at once; with `is_congestion` as `Congested`, for
        clients that give up at a 429.
        """
        self._book: Final[WaitingLine[Turn]] = WaitingLine(weight_max)
        self._wait_s: Final = wait_s
        self._refusal: Final = Congested if is_congestion else Overloaded
        self._loop: Final = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.held_count = 0
        self.refused_count = 0
        engine.when_relieved(self.relieve)

    def __len__(self) -> int:
        return len(self._book)

    def deadline(self, at_most_s: float = inf) -> float:
        """Return until when a request that comes now is held back."""
        return self._loop.time() + min(self._wait_s, at_most_s)

    def has(self, kind: Hashable) -> bool:
        """Tell whether requests wait for this."""
        return self._book.has(kind)

    def stand(self, kind: Kind, turn: Turn, *, weight: int, deadline: float) -> None:
        """Let a request wait, or end that when its time is over or the line too long."""
        is_late = deadline <= self._loop.time()
        if is_late or self._book.join(kind, turn, weight=weight, deadline=deadline) is None:
            self._end_wait(turn)
            return
        self.held_count += 1
        self._set_timer()

    def relieve(self) -> None:
        """Try the requests that wait for room in the engine, by priority."""
        if not self._book:
            return
        for priority in Priority:
            self._try(priority)
        for key in self._book.waited_for():
            if isinstance(key, PartitionKey) and key.type == DEFERRAL:
                self._try(key)
        self._set_timer()

    def free(self, partition: PartitionKey) -> bool:
        """Try the requests that wait for a partition; tell whether none is left."""
        self._try(partition)
        self._set_timer()
        return not self._book.has(partition)

    def stop(self) -> None:
        """Refuse all requests."""
        for place in self._book.take_expired(float("inf")):
            _tell(place.entry, self._refusal(STOPPING))
        self._set_timer()

    def _try(self, kind: Kind) -> None:
        """Try the requests in line, each once, until there is no room."""
        book = self._book
        for place in book.places(kind):
            if place.is_left:
                continue
            error = error_of(place.entry.attempt)
            if isinstance(error, OutOfTurn):
                continue
            if isinstance(error, Overloaded):
                return
            if error is not None:
                _tell(place.entry, error)
            book.leave(place)

    def _on_timer(self) -> None:
        self._timer = None
        for place in self._book.take_expired(self._loop.time()):
            self._end_wait(place.entry)
        self.relieve()
        self._set_timer()

    def _end_wait(self, turn: Turn) -> None:
        """There was no room in time."""
        if turn.defer is not None:
            if error := error_of(turn.defer):
                _tell(turn, error)
            return
        self.refused_count += 1
        _tell(turn, self._refusal(queue_depth=len(self._book) + 1))

    def _set_timer(self) -> None:
        if not self._book:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is None:
            deadline = self._book.next_deadline()
            assert deadline is not None
            at = min(deadline, self._loop.time() + RETRY_S)
            self._timer = self._loop.call_at(at, self._on_timer)


def _tell(turn: Turn, error: SkepError) -> None:
    """Refuse a request. One that cannot be answered does not keep those behind it waiting."""
    error_of(partial(turn.refuse, error))


class PartitionWatch:
    """The partitions in which operations wait, as far as this process has met them."""

    def __init__(self, caller: Caller, when_free: Callable[[PartitionKey], bool]) -> None:
        """Begin with none; `when_free` is called until it returns that no request waits for it."""
        self._caller: Final = caller
        self._when_free: Final = when_free
        self._partitions: Final[set[PartitionKey]] = set()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._partitions)

    def is_deferred(self, partition: PartitionKey) -> bool:
        """Tell whether operations waited in a partition when it was last checked."""
        return partition in self._partitions

    def note(self, partition: PartitionKey) -> None:
        """Remember that operations wait in a partition, and check until they do not."""
        if len(self._partitions) < PARTITIONS_WATCHED_MAX:
            self._partitions.add(partition)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Stop checking."""
        await end_task(self._task)

    async def _watch(self) -> None:
        try:
            while self._partitions:
                await asyncio.sleep(PROBE_S)
                for type_ in ("push", "ack_batch"):
                    await self._check(type_)
        finally:
            self._task = None

    async def _check(self, type_: str) -> None:
        asked = [partition for partition in self._partitions if partition.type == type_]
        if not asked:
            return
        try:
            rows = await self._caller.call(
                PARTITIONS_CALL, [partition.partition_id for partition in asked], type_
            )
        except SkepError as error:
            _log.debug("cannot check partitions for waiting operations: %s", error)
            return
        still = {row[0] for row in rows}
        for partition in asked:
            if partition.partition_id not in still and self._when_free(partition):
                self._partitions.discard(partition)
