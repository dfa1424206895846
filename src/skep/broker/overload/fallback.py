"""What can be done for a request that there is no room for: let it stand in line, or defer it.

The attempts of pushes, acks and polls share this; each decides for itself which of the two it wants
and what is left to do when its turn comes.
"""

from collections.abc import Hashable, Iterable
from typing import Final, Protocol

from skep.broker.overload.deferral import PendingDeferral
from skep.broker.overload.shares import PartitionOrder
from skep.broker.overload.waiting_line import (
    DEFERRAL,
    Kind,
    Line,
    PartitionKey,
    PartitionWatch,
    Turn,
)
from skep.engine.driver import Engine
from skep.model.errors import Overloaded, PartitionDeferred, QueueFull, SkepError
from skep.model.priorities import Priority
from skep.model.queue_options import Deferral


class Client(Protocol):
    """Whoever sent a request."""

    @property
    def prefers_async(self) -> bool:
        """Whether it asked for a 202 when there is no room."""
        ...

    def respond(self, status: int, body: bytes = b"", *, headers: bytes = b"") -> bool:
        """Answer; see `skep.server.hot.exchange.Exchange.respond`."""
        ...

    def refuse(self, error: SkepError) -> None:
        """Answer with an error."""
        ...


class Relief:
    """The line of one process, the partitions it knows to be waiting, and the way to defer."""

    def __init__(
        self, engine: Engine, line: Line, watch: PartitionWatch, *, deferral: Deferral
    ) -> None:
        self._engine: Final = engine
        self._line: Final = line
        self._watch: Final = watch
        self._deferral: Final[Deferral] = deferral
        self.is_idle = True
        """Nobody waits. A look at this saves every request a look at all there is to wait for;
        where it is false, `is_needed` knows better."""
        self.order: Final = PartitionOrder()
        """Of pushes; partitions are named by queue and partition."""

    def is_needed(self) -> bool:
        """Tell whether anybody waits, or any partition is known to be waiting."""
        self.is_idle = not (self._line or self._watch or self.order)
        return not self.is_idle

    @property
    def load(self) -> float:
        """How full the engine is."""
        return self._engine.load

    def deadline(self) -> float:
        """Return until when a request that comes now is held back."""
        return self._line.deadline()

    def waited_for(
        self, priority: Priority, type_: str = "", partition_ids: Iterable[int] = ()
    ) -> Kind | None:
        """Return what others wait for and a request of this priority for these partitions needs.

        Whoever waits there must not be overtaken.
        """
        for partition_id in partition_ids:
            partition = PartitionKey(type_, partition_id)
            if self._line.has(partition) or self._watch.is_deferred(partition):
                return partition
        return priority if self._line.has(priority) else None

    def is_under_way(self, operation: str, partition: Hashable) -> bool:
        """Tell whether requests of a partition are in the engine."""
        return self._engine.is_under_way(operation, partition)

    def stand(self, kind: Kind, turn: Turn, *, weight: int, deadline: float) -> None:
        """Let a request stand in line; it is tried again, or refused when its time is over."""
        self.is_idle = False
        if isinstance(kind, PartitionKey) and kind.type != DEFERRAL:
            self._watch.note(kind)
        self._line.stand(kind, turn, weight=weight, deadline=deadline)

    def may_defer(self, client: Client, wishes: set[Deferral]) -> bool:
        """Decide whether a client gets a 202.

        Args:
            client: It may have asked for one.
            wishes: The options of the queues it speaks of: none may say never.
        """
        if self._deferral == "never" or "never" in wishes:
            return False
        return self._deferral == "always" or wishes == {"always"} or client.prefers_async

    def defer(self, pending: PendingDeferral, weight: int) -> None:
        """Accept a request to be done later; its answer is called in any case."""
        self.is_idle = False
        try:
            self._engine.submit("defer", None, weight, pending)
        except Overloaded as error:
            # Its frames hold the request that will hold it, and cycles are collected rarely.
            pending.fail(error.with_traceback(None))


def is_passing(error: SkepError | None) -> bool:
    """Tell whether an error says that there is no room now, for reasons of the broker."""
    return isinstance(error, Overloaded) and not isinstance(error, QueueFull)


def kind_of(error: SkepError | None, priority: Priority, type_: str) -> Kind:
    """Return what to wait for after such an error."""
    if isinstance(error, PartitionDeferred):
        return PartitionKey(type_, error.partition_id)
    return priority


def renumber(result: bytes, position: int) -> bytes:
    """Return a rendered result as that of another position; they begin with their index."""
    return b'{"index":%d%b' % (position, result[result.index(b",") :])
