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
    └── ChainFailed, ChainCancelled, ResultTimeout    instead of a result

`Reschedule` and `Fail` are not errors: a handler raises them to end its attempt.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from skep.model.errors import BadRequest, NotFound, Refused, SkepError


class InvalidInput(BadRequest):
    """The input is not of the type that the job declares."""

    code = "invalid_input"


class InvalidOutput(BadRequest):
    """The output is not of the type that the job declares."""

    code = "invalid_output"


class UnknownJobType(BadRequest):
    """No job of that name is declared here."""

    code = "unknown_job_type"


class JobTypeMismatch(BadRequest):
    """The job or chain is of another type than expected."""

    code = "job_type_mismatch"


class DuplicateBlocker(BadRequest):
    """A job names the same chain twice among those it waits for."""

    code = "duplicate_blocker"


class SelfBlocked(BadRequest):
    """A job cannot wait for its own chain."""

    code = "self_blocked"


class ChainNotFound(NotFound):
    """There is no such chain."""

    code = "chain_not_found"


class JobNotFound(NotFound):
    """There is no such job."""

    code = "job_not_found"


class NoSuchJobType(NotFound):
    """No job of that name was ever started or run."""

    code = "no_such_job_type"


class ScheduleNotFound(NotFound):
    """There is no such schedule."""

    code = "schedule_not_found"


class BlockerMissing(NotFound):
    """A chain to wait for does not exist."""

    code = "blocker_missing"


class ChainExists(Refused):
    """There is a chain with this id already."""

    code = "chain_exists"


class ChainClosed(Refused):
    """The chain has ended."""

    code = "chain_closed"


class CyclicBlockers(Refused):
    """A chain to wait for waits for this one."""

    code = "cyclic_blockers"


class NotRetryable(Refused):
    """Only failed and cancelled chains can be retried."""

    code = "not_retryable"


class NotTriggerable(Refused):
    """Only scheduled and ready jobs can be triggered."""

    code = "not_triggerable"


class OwnershipLost(Refused):
    """The job does not belong to this worker any more."""

    code = "ownership_lost"


class ChainReferenced(Refused):
    """A job of another chain still needs the chain; nothing was deleted."""

    code = "chain_referenced"

    def __init__(
        self, message: str | None = None, *, references: Mapping[UUID, list[UUID]] | None = None
    ) -> None:
        super().__init__(message)
        self.references = references or {}
        """The jobs that need each chain."""


class ChainFailed(SkepError):
    """The chain failed."""

    code = "chain_failed"


class ChainCancelled(SkepError):
    """The chain was cancelled."""

    code = "chain_cancelled"


class ResultTimeout(SkepError):
    """The chain did not end in time; it goes on."""

    code = "result_timeout"


class Reschedule(Exception):
    """Raised by a handler: run this job again later. It does not count as a failure."""

    def __init__(self, *, after: timedelta | None = None, at: datetime | None = None) -> None:
        super().__init__("the job asks to run again later")
        self.after = after
        self.at = at


class Fail(Exception):
    """Raised by a handler: give up, even if attempts are left."""
