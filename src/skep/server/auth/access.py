"""What an operation demands of whoever asks for it.

Every operation declares its access where it is declared itself: hot ones in
`skep.server.api_document.operations`, all others by `opt=needs(...)` at their handler. It has two
parts: the level, which the caller's role must reach, and the reach, which says how to find the
queues an operation is about. Callers whose token restricts them to some queues may only do what
names them.

Pure data. Who is asking is `skep.server.auth.identity`; deciding is the door's business.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal, TypeAlias

ACCESS: Final = "access"
"""The key of an `Access` among the options of a handler."""


class Level(IntEnum):
    """Roles and what operations need of them. Each includes those before it."""

    NONE = 0
    """As a need: public. As a role: a token that names none of ours."""
    READ_ONLY = 1
    READ_WRITE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """How tokens and pages spell it."""
        return "public" if self is Level.NONE else self.name.lower().replace("_", "-")


LEVEL_BY_WORD: Final = {level.word: level for level in Level if level is not Level.NONE}

Kind: TypeAlias = Literal["nothing", "broker", "queue", "partition", "filter", "body"]


@dataclass(frozen=True, slots=True)
class Reach:
    """How to find out which queues an operation is about."""

    kind: Kind
    queue: str = ""
    """The parameter that names the queue, or of a partition its id."""
    namespace: str = ""
    """The parameter of the query that narrows a list to a namespace."""


NOTHING: Final = Reach("nothing")
"""No queue is concerned."""

WHOLE_BROKER: Final = Reach("broker")
"""It may be about any queue: refused to callers who are restricted to some."""

QUEUE: Final = Reach("queue", queue="queue")
"""The path names the queue."""

PARTITION: Final = Reach("partition", queue="partition_id")
"""The path names a partition of it."""

BODY: Final = Reach("body")
"""The body names them; the handler asks its visitor once it has read it."""


def listed_by(*, queue: str = "", namespace: str = "") -> Reach:
    """A list that covers the whole broker unless one of these parameters narrows it."""
    return Reach("filter", queue, namespace)


@dataclass(frozen=True, slots=True)
class Access:
    """What an operation demands."""

    level: Level
    reach: Reach = field(default=WHOLE_BROKER)


PUBLIC: Final = Access(Level.NONE, NOTHING)
READ_WRITE_BY_BODY: Final = Access(Level.READ_WRITE, BODY)
READ_WRITE_OF_QUEUE: Final = Access(Level.READ_WRITE, QUEUE)

UNDECLARED: Final = Access(Level.ADMIN, WHOLE_BROKER)
"""What a route needs that declares nothing: all there is, so that forgetting it opens nothing."""


def needs(level: Level, reach: Reach = WHOLE_BROKER) -> dict[str, Any]:
    """Return the options of a handler that declare its access."""
    return {ACCESS: Access(level, reach)}
