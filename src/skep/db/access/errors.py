"""What a failed database call means for its caller.

    Unavailable
    ├── NotExecuted       rolled back or never sent: run it again unchanged
    │   └── LockTimeout   another transaction held a row for too long
    └── OutcomeUnknown    the connection broke after the call was sent, and its session has ended:
                          find out what it did before repeating it
    BadRequest
    └── RejectedData      the database refused a value of one request in the call
    NotFound
    └── GroupGone         a remembered consumer group was deleted
    Refused
    ├── LeadershipLost    this process does not lead the background work (any more)
    ├── RulesChanged      a queue was reconfigured: read its rules and prepare the call again
    ├── DuplicateInGap    another process stored a key of this push: nothing was stored, probe it
    └── QueueHeld         a reader still needs messages of the queue that was to be deleted

Errors are told apart by SQLSTATE, never by message text.
"""

import asyncpg

from skep.model.errors import BadRequest, Defect, NotFound, Refused, SkepError, Unavailable


class NotExecuted(Unavailable):
    """The database did not run the call; it is safe to repeat."""

    code = "not_executed"


class LockTimeout(NotExecuted):
    """Another transaction held a row for too long."""

    code = "lock_timeout"


class OutcomeUnknown(Unavailable):
    """The connection to the database broke before the call's outcome was known."""

    code = "outcome_unknown"


class RejectedData(BadRequest):
    """The database refused a value of the request."""

    code = "rejected_data"


class GroupGone(NotFound):
    """The consumer group does not exist any more."""

    code = "group_gone"


class LeadershipLost(Refused):
    """Another process does this background work now."""

    code = "leadership_lost"


class RulesChanged(Refused):
    """The queue was configured while the request was under way."""

    code = "rules_changed"


class DuplicateInGap(Refused):
    """Another process stored one of the messages while the request was under way."""

    code = "duplicate_in_gap"


class QueueHeld(Refused):
    """A hold keeps messages of the queue for a reader."""

    code = "queue_held"


_BY_STATE: dict[str, type[SkepError]] = {
    "SK404": GroupGone,
    "SK423": LeadershipLost,
    "SK409": RulesChanged,
    "SK410": DuplicateInGap,
    "SK411": QueueHeld,
    "40001": NotExecuted,  # serialization failure
    "40P01": NotExecuted,  # deadlock
    "23503": NotExecuted,  # the queue was deleted while something was created on it
    "P0002": NotExecuted,  # ... or between two looks at it
    "55P03": LockTimeout,
    "57014": NotExecuted,  # statement timeout
    "57P01": OutcomeUnknown,  # the server is shutting down: the commit may or may not have won
    "57P02": OutcomeUnknown,
    "57P03": NotExecuted,  # starting up, not accepting connections
    "0A000": NotExecuted,  # cached plan no longer fits: the functions were re-created
    "42883": NotExecuted,  # ... or are just being re-created
    "XX000": NotExecuted,  # ... or were re-created under the call, which looks up a ghost
}

_BY_CLASS: dict[str, type[SkepError]] = {
    "08": OutcomeUnknown,  # connection exceptions
    "22": RejectedData,
    "23": RejectedData,
    "25": NotExecuted,  # read-only transaction: a standby answers during a failover
    "53": NotExecuted,  # disk full, out of memory, too many connections
    "54": RejectedData,  # program limits
    "58": NotExecuted,
}

# asyncpg raises internal errors after an unnoticed end of the session, or on a garbled stream.
_BROKEN = (OSError, EOFError, asyncpg.InterfaceError, asyncpg.InternalClientError)

CONNECTION_FAILURES = (
    OSError,  # includes TimeoutError
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""Everything that using a connection may raise."""


def translate(error: BaseException) -> SkepError:
    """Return what an exception of the driver means for the call that raised it."""
    if isinstance(error, SkepError):
        return error
    if isinstance(error, asyncpg.PostgresError):
        state = str(getattr(error, "sqlstate", None) or "")
        kind = _BY_STATE.get(state) or _BY_CLASS.get(state[:2], Defect)
        return kind(f"{error} (SQLSTATE {state})")
    # What asyncpg cannot encode it reports as an interface error that is a ValueError as well. (The
    # class it exports as DataError is the server's, a PostgresError.) Nothing was sent then.
    is_unsendable = isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    if is_unsendable or isinstance(error, OverflowError | UnicodeEncodeError):
        return RejectedData(str(error))
    if isinstance(error, _BROKEN):
        return OutcomeUnknown(str(error) or type(error).__name__)
    return Defect(f"{type(error).__name__}: {error}")
