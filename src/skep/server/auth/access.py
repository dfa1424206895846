"""The access that operations require.

Hot operations declare it in `skep.server.api_document.operations`, all others at their handler, by
`needs(...)` or one of the constants that most of them share. It has two parts: the level, which the
caller's role must reach, and the reach, which says how to find the queues an operation is about: a
token may be restricted to some queues.

Pure data. `skep.server.auth.guard` decides.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal, TypeAlias

ACCESS: Final = "access"
"""The key of an `Access` among the options of a handler."""


class Level(IntEnum):
    """Roles and what operations need of them. Each includes those before it."""

    NONE = 0
    """As a requirement: public. As a role: a token without a known role."""
    READ_ONLY = 1
    READ_WRITE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """Its name in tokens and documents."""
        return "public" if self is Level.NONE else self.name.lower().replace("_", "-")


LEVEL_BY_WORD: Final = {level.word: level for level in Level if level is not Level.NONE}

Kind: TypeAlias = Literal["nothing", "broker", "queue", "partition", "filter", "body"]


@dataclass(frozen=True, slots=True)
class Reach:
    """How to find the queues an operation is about."""

    kind: Kind
    queue: str = ""
    """The parameter with the queue name, or with the partition id."""
    namespace: str = ""
    """The query parameter that limits a list to a namespace."""


NOTHING: Final = Reach("nothing")
"""No queue is concerned."""

WHOLE_BROKER: Final = Reach("broker")
"""Any queue: refused to callers restricted to some queues."""

QUEUE: Final = Reach("queue", queue="queue")
"""The path names the queue."""

PARTITION: Final = Reach("partition", queue="partition_id")
"""The path names a partition of it."""

BODY: Final = Reach("body")
"""The body names them; the handler checks them once it has read it."""


def listed_by(*, queue: str = "", namespace: str = "") -> Reach:
    """A list of the whole broker unless one of these parameters limits it."""
    return Reach("filter", queue, namespace)


@dataclass(frozen=True, slots=True)
class Access:
    """What an operation requires of its caller."""

    level: Level
    reach: Reach = field(default=WHOLE_BROKER)
    signature: str = ""
    """A header that may take the place of a token; the handler verifies it."""


PUBLIC: Final = Access(Level.NONE, NOTHING)
READ_WRITE_BY_BODY: Final = Access(Level.READ_WRITE, BODY)
READ_WRITE_OF_QUEUE: Final = Access(Level.READ_WRITE, QUEUE)

UNDECLARED: Final = Access(Level.ADMIN, WHOLE_BROKER)
"""The access of a route without a declaration, so that a forgotten one opens nothing."""


def needs(level: Level, reach: Reach = WHOLE_BROKER, *, signature: str = "") -> dict[str, Any]:
    """Return the handler options that declare an access."""
    return {ACCESS: Access(level, reach, signature)}


# Those of most routes.

READ: Final = needs(Level.READ_ONLY)
READ_LIST: Final = needs(Level.READ_ONLY, listed_by(queue="queue"))
READ_QUEUES: Final = needs(Level.READ_ONLY, listed_by(namespace="namespace"))
READ_QUEUE: Final = needs(Level.READ_ONLY, QUEUE)
READ_PARTITION: Final = needs(Level.READ_ONLY, PARTITION)
READ_BY_BODY: Final = needs(Level.READ_ONLY, BODY)
WRITE: Final = needs(Level.READ_WRITE)
WRITE_LIST: Final = needs(Level.READ_WRITE, listed_by(queue="queue"))
WRITE_QUEUE: Final = needs(Level.READ_WRITE, QUEUE)
WRITE_PARTITION: Final = needs(Level.READ_WRITE, PARTITION)
WRITE_BY_BODY: Final = needs(Level.READ_WRITE, BODY)
ADMIN: Final = needs(Level.ADMIN)
ADMIN_QUEUE: Final = needs(Level.ADMIN, QUEUE)
ANYONE: Final = {ACCESS: PUBLIC}
