"""The errors of Skep, one tree.

    SkepError
    ├── BadRequest        the caller must change the request: malformed, too large, unknown name
    ├── Refused           the request is well formed but not allowed in the present state
    │   ├── NotFound      the thing named does not exist
    │   └── ForgedNotice  not told by an instance of ours
    ├── Unauthenticated   who is asking is not known: there is no token
    │   └── InvalidToken  ... or one that cannot be believed
    ├── Forbidden         who is asking is known, and may not
    ├── Overloaded        try again after `retry_after_s`: the engine is full
    │   ├── QueueFull     ... or the queue is, and its consumers have to make room
    │   ├── PartitionDeferred  ... or operations accepted earlier wait for the same partition
    │   └── Congested     ... the same, said as 503 to clients that give up at any 4xx
    ├── Unavailable       try again: PostgreSQL is away, or this instance is shutting down
    └── Defect            a bug: a broken invariant; logged with its stack, answered 500

Per-item failure is data (an outcome); whole-request failure is one of these. The docstring of a
class is its default message, `code` is a stable slug, `retryable` says whether repeating the very
same request can help.
"""

from typing import ClassVar


class SkepError(Exception):
    """Skep could not do what was asked."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])

    @property
    def message(self) -> str:
        """What went wrong, for the person who sent the request."""
        return str(self.args[0])


class BadRequest(SkepError):
    """The request is malformed."""

    code = "bad_request"


class InvalidPayload(BadRequest):
    """The payload does not follow the schema of its queue."""

    code = "invalid_payload"


class PayloadTooLarge(BadRequest):
    """The request body is larger than this broker accepts."""

    code = "payload_too_large"


class Refused(SkepError):
    """The request is not allowed in the present state."""

    code = "refused"


class NotFound(Refused):
    """The thing named does not exist."""

    code = "not_found"


class Unauthenticated(SkepError):
    """Authentication required."""

    code = "unauthenticated"


class InvalidToken(Unauthenticated):
    """The token cannot be accepted."""

    code = "invalid_token"


class Forbidden(SkepError):
    """Insufficient permissions."""

    code = "forbidden"


class ForgedNotice(Refused):
    """The notice was not sent by an instance that shares our secret."""

    code = "forged_notice"


class Overloaded(SkepError):
    """The broker is at its limit; try again shortly."""

    code = "overloaded"
    retryable = True

    def __init__(self, message: str | None = None, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Overloaded):
    """The queue holds as many messages as it may; its consumers have to make room."""

    code = "queue_full"


class PartitionDeferred(Overloaded):
    """Operations accepted earlier wait for the partition; try again when they are done."""

    code = "partition_deferred"

    def __init__(self, message: str | None = None, *, partition_id: int = 0) -> None:
        super().__init__(message)
        self.partition_id = partition_id


class Congested(Overloaded):
    """The broker is at its limit; try again shortly."""

    code = "congested"


class Unavailable(SkepError):
    """The database is not reachable; the outcome is unknown and the request safe to repeat."""

    code = "unavailable"
    retryable = True


class Defect(SkepError):
    """An internal invariant is broken."""

    code = "defect"
