"""What a call of the client can raise.

The broker's own errors come back as the classes of `skep.model.errors`: who catches `NotFound` or
`QueueFull` catches what the broker raised. Beside them stand those that only a client can know:

    SkepError
    ├── Refused
    │   ├── LeaseLost            another consumer has the message, or will get it
    │   ├── TransactionFailed    nothing of the transaction happened
    │   ├── PushFailed           items of a push were refused, one by one
    │   └── OffsetOutOfRange     the log does not reach to this offset, or no longer
    ├── AccessDenied             401 or 403
    ├── Unavailable
    │   └── Unreachable          no broker answered (`NotSent`: not even a connection)
    ├── OutcomeUnknown           the answer was lost, and asking again could not settle it
    ├── UnexpectedAnswer         a status that belongs to no error of the broker
    └── Stopped                  the caller asked for an end while this was waiting
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from skep.client.http import Answer
from skep.model import errors

GATEWAY_STATUSES: Final = frozenset({502, 503, 504})
"""The outcome is unknown, and every request may be repeated, as without an answer."""


class Unreachable(errors.Unavailable):
    """No broker answered; the outcome is unknown and the request safe to repeat."""

    code = "unreachable"


class NotSent(Unreachable):
    """No broker listens; the request was not sent."""

    code = "not_sent"


class OutcomeUnknown(errors.SkepError):
    """The answer was lost, and asking again could not tell what had happened."""

    code = "answer_lost"


class AccessDenied(errors.SkepError):
    """The token is missing, not valid, or does not allow this."""

    code = "access_denied"


class LeaseLost(errors.Refused):
    """The lease is over: the message will be delivered again, or already was."""

    code = "lease_lost"


class TransactionFailed(errors.Refused):
    """Nothing of the transaction happened."""

    code = "transaction_failed"


class PushFailed(errors.Refused):
    """Items of a push were refused.

    Attributes:
        failures: The results that say why, of those that failed.
    """

    code = "push_failed"

    failures: Sequence[Any] = ()

    @classmethod
    def of(cls, failures: Sequence[Any]) -> "PushFailed":
        """Make the error of these results."""
        first = failures[0].error if failures else None
        error = cls(f"{len(failures)} items were refused, the first because: {first}")
        error.failures = list(failures)
        return error


class OffsetOutOfRange(errors.Refused):
    """Messages from this offset on were removed, or the log ends before it.

    Attributes:
        log_start_offset: The first offset that is kept.
        high_watermark: The next offset that will be given out.
    """

    code = "offset_out_of_range"

    log_start_offset = 0
    high_watermark = 0

    @classmethod
    def of(cls, where: str, *, high_watermark: int, log_start_offset: int) -> "OffsetOutOfRange":
        """Make the error of a partition, named by its path."""
        error = cls(
            f"the offset is not in {where}, which has those from {log_start_offset} to before "
            f"{high_watermark}"
        )
        error.high_watermark = high_watermark
        error.log_start_offset = log_start_offset
        return error


class UnexpectedAnswer(errors.SkepError):
    """The answer is none that a broker gives."""

    code = "unexpected_answer"


class Stopped(errors.SkepError):
    """The client was asked to stop while this was waiting."""

    code = "stopped"


class _Problem(msgspec.Struct):
    error: str = ""
    code: str = ""
    reason: str = ""
    detail: str = ""
    """The text, where `error` is a code."""


_decode_problem = msgspec.json.Decoder(_Problem).decode


def error_of(answer: Answer) -> errors.SkepError:
    """Return the error that an answer outside 2xx stands for.

    The stable code decides; a code of a newer broker falls back to what the status says.
    """
    problem = _problem_of(answer)
    text = problem.detail or problem.error or f"the broker answered {answer.status}"
    by_status = _BY_STATUS.get(answer.status, UnexpectedAnswer)
    error = _BY_CODE.get(problem.code, by_status)(text)
    error.reason = problem.reason
    return error


def _problem_of(answer: Answer) -> _Problem:
    try:
        return _decode_problem(answer.body)
    except msgspec.MsgspecError:
        return _Problem(error=answer.body[:200].decode(errors="replace").strip())


_BY_STATUS: Final[dict[int, type[errors.SkepError]]] = {
    400: errors.BadRequest,
    401: AccessDenied,
    403: AccessDenied,
    404: errors.NotFound,
    409: errors.Refused,
    413: errors.PayloadTooLarge,
    422: errors.BadRequest,
    429: errors.Overloaded,
    500: errors.Defect,
    **dict.fromkeys(GATEWAY_STATUSES, errors.Unavailable),
}


def _broker_errors(cls: type[errors.SkepError]) -> Iterator[type[errors.SkepError]]:
    yield cls
    for child in cls.__subclasses__():
        if child.__module__ == errors.SkepError.__module__:
            yield from _broker_errors(child)


_BY_CODE: Final = {cls.code: cls for cls in _broker_errors(errors.SkepError)}
