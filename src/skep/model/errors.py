"""The errors of Skep, one tree.

    SkepError
    ├── BadRequest        the request must change: malformed, too large, unknown name
    │   ├── KvBadRequest  ... an operation on keys; `reason` says which rule
    │   ├── TimersBadRequest  ... or on timers
    │   └── LocksBadRequest  ... or on locks
    ├── Refused           the request is well formed but not allowed in the current state
    │   ├── NotFound      the resource does not exist
    │   ├── TimerHorizonExceeded  too far ahead
    │   └── ForgedNotice  not signed by another instance
    ├── Unauthenticated   no token
    │   └── InvalidToken  ... or an invalid one
    ├── Forbidden         the caller lacks the permission
    ├── Overloaded        retry after `retry_after_s`: the engine is full
    │   ├── QueueFull     ... the queue is full until consumers acknowledge messages
    │   ├── PartitionDeferred  ... deferred operations wait for the same partition
    │   └── Congested     ... as 503, for clients that give up at any 4xx
    ├── Unavailable       retry: PostgreSQL is unreachable, or this instance is shutting down
    │   ├── KvUnavailable ... with the code that clients of keys know
    │   └── TimersUnavailable  ... or that of timers
    └── Defect            a bug: a broken invariant; logged with its stack, answered 500

A failed item is data (an outcome); a failed request is one of these. The docstring of a class is
its default message, `code` is a stable slug (the class's name in snake case, unless it is given),
`retryable` says whether repeating the same request can help.
"""

import re
from typing import ClassVar


class SkepError(Exception):
    """The request failed."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls) and not cls.__name__.startswith("_"):
            cls.code = re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, message: str | None = None, *, reason: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        self.reason = reason
        """A finer code, where the wire has one."""

    @property
    def message(self) -> str:
        """What went wrong, for the person who sent the request."""
        return str(self.args[0])


class BadRequest(SkepError):
    """The request is malformed."""

    code = "bad_request"


class InvalidPayload(BadRequest):
    """The payload does not match the JSON Schema of its queue."""

    code = "invalid_payload"


class PayloadTooLarge(BadRequest):
    """The request body is larger than this broker accepts."""

    code = "payload_too_large"


class KvBadRequest(BadRequest):
    """The operation on keys is malformed."""

    code = "kv_bad_request"


class TimersBadRequest(BadRequest):
    """The operation on timers is malformed."""

    code = "timers_bad_request"


class LocksBadRequest(BadRequest):
    """The operation on locks is malformed."""

    code = "locks_bad_request"


class Refused(SkepError):
    """The request is not allowed in the current state."""

    code = "refused"


class NotFound(Refused):
    """The resource does not exist."""

    code = "not_found"


class TimerHorizonExceeded(Refused):
    """The timer is too far ahead."""

    code = "timer_horizon_exceeded"


class Unauthenticated(SkepError):
    """Authentication required."""

    code = "unauthenticated"


class InvalidToken(Unauthenticated):
    """The token is invalid."""

    code = "invalid_token"


class Forbidden(SkepError):
    """Insufficient permissions."""

    code = "forbidden"


class ForgedNotice(Refused):
    """The notice is not signed with the shared secret of this installation."""

    code = "forged_notice"


class Overloaded(SkepError):
    """The broker is overloaded; retry shortly."""

    code = "overloaded"
    retryable = True

    def __init__(
        self, message: str | None = None, *, retry_after_s: int = 1, queue_depth: int = 0
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.queue_depth = queue_depth
        """How many requests, operations or messages wait where there is no room."""


class QueueFull(Overloaded):
    """The queue is full: it accepts messages again when consumers have acknowledged some."""

    code = "queue_full"


class PartitionDeferred(Overloaded):
    """Deferred operations wait for the partition; retry when they are done."""

    code = "partition_deferred"

    def __init__(
        self, message: str | None = None, *, partition_id: int = 0, operation_type: str = "push"
    ) -> None:
        super().__init__(message)
        self.partition_id = partition_id
        self.operation_type = operation_type


class Congested(Overloaded):
    """The broker is overloaded; retry shortly."""

    code = "congested"


class Unavailable(SkepError):
    """The database is unreachable; the outcome is unknown and the request is safe to retry."""

    code = "unavailable"
    retryable = True


class KvUnavailable(Unavailable):
    """The database is unreachable; the outcome is unknown and the call is safe to retry."""

    code = "kv_unavailable"


class TimersUnavailable(Unavailable):
    """The database is unreachable; the outcome is unknown and the call is safe to retry."""

    code = "timers_unavailable"


class Defect(SkepError):
    """An internal invariant is broken."""

    code = "defect"
