"""What can go wrong with jobs and chains, by name.

    SkepError
    ├── BadRequest
    │   ├── InvalidInput, InvalidOutput      a value is not of the declared type, or too large
    │   ├── UnknownJobType, JobTypeMismatch  an undeclared name, or another one than expected
    │   └── DuplicateBlocker, SelfBlocked    a chain to wait for is named twice, or is the own one
    ├── Refused
    │   ├── NotFound: ChainNotFound, JobNotFound, BlockerMissing, NoSuchJobType, ScheduleNotFound
    │   ├── ChainExists, ChainClosed, ChainReferenced, CyclicBlockers, NotRetryable, NotTriggerable
    │   └── OwnershipLost                    the job is not this worker's any more
    ├── ProcessEnded                         the process of a handler ended before it did
    └── ChainFailed, ChainCancelled, ResultTimeout    instead of a result

`Reschedule` and `Fail` are not errors: a handler raises them to end its attempt.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from skep.model.errors import BadRequest, NotFound, Refused, SkepError


class InvalidInput(BadRequest):
    """The input is not of the type that the job declares."""


class InvalidOutput(BadRequest):
    """The output is not of the type that the job declares."""


class UnknownJobType(BadRequest):
    """No job of that name is declared here."""


class JobTypeMismatch(BadRequest):
    """The job or chain is of another type than expected."""


class DuplicateBlocker(BadRequest):
    """A job names the same chain twice among those it waits for."""


class SelfBlocked(BadRequest):
    """A job cannot wait for its own chain."""


class ChainNotFound(NotFound):
    """There is no such chain."""


class JobNotFound(NotFound):
    """There is no such job."""


class NoSuchJobType(NotFound):
    """No job of that name was ever started or run."""


class ScheduleNotFound(NotFound):
    """There is no such schedule."""


class BlockerMissing(NotFound):
    """A chain to wait for does not exist."""


class ChainExists(Refused):
    """There is a chain with this id already."""


class ChainClosed(Refused):
    """The chain has ended."""


class CyclicBlockers(Refused):
    """A chain to wait for waits for this one."""


class NotRetryable(Refused):
    """Only failed and cancelled chains can be retried."""


class NotTriggerable(Refused):
    """Only scheduled and ready jobs can be triggered."""


class OwnershipLost(Refused):
    """The job does not belong to this worker any more."""


class ChainReferenced(Refused):
    """A job of another chain still needs the chain; nothing was deleted."""

    def __init__(
        self, message: str | None = None, *, references: Mapping[UUID, list[UUID]] | None = None
    ) -> None:
        super().__init__(message)
        self.references = references or {}
        """The jobs that need each chain."""


class ProcessEnded(SkepError):
    """The process that ran a handler ended; the attempt failed, and is tried again by policy."""


class ChainFailed(SkepError):
    """The chain failed."""


class ChainCancelled(SkepError):
    """The chain was cancelled."""


class ResultTimeout(SkepError):
    """The chain did not end in time; it goes on."""


class Reschedule(Exception):
    """Raised by a handler: run this job again later. It does not count as a failure."""

    def __init__(self, *, after: timedelta | None = None, at: datetime | None = None) -> None:
        super().__init__("the job asks to run again later")
        self.after = after
        self.at = at

    def __reduce__(self) -> "tuple[Callable[[], Reschedule], tuple[()]]":
        return partial(Reschedule, after=self.after, at=self.at), ()  # from a process of its own


class Fail(Exception):
    """Raised by a handler: give up, even if attempts are left."""
