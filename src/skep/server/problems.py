"""How an error becomes an HTTP answer.

The one table from Skep's errors to status codes. Every error body is `{"error": text, "code":
slug}`: `error` is what Queen's clients raise, `code` is stable and meant for programs. That of an
overload also has `queueDepth`. Where the wire has finer codes (keys, timers), `error` is the code
too, `reason` the finer one and `detail` the text. Overload is 429 with Retry-After, or 503
(`Congested`) for older clients of Queen, which give up at a 429 (ADR 0017); 503 also means that the
database is unreachable.

A defect is logged with its stack and a request id: the client's `X-Request-Id` if it is harmless,
else a new one, which the response repeats. The client learns nothing else of it.
"""

import re
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec

from skep.model import errors
from skep.server.api_document.shapes import ErrorAnswer, RefusalAnswer

STATUS_BY_ERROR: Final[dict[type[BaseException], int]] = {
    errors.BadRequest: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.PayloadTooLarge: 413,
    errors.Refused: 409,
    errors.NotFound: 404,
    errors.ForgedNotice: 403,
    errors.TimerHorizonExceeded: 403,
    errors.Overloaded: 429,
    errors.Congested: 503,
    errors.Unavailable: 503,
}

HEADER: Final = "x-request-id"
_HARMLESS: Final = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}")

UNAVAILABLE_RETRY_AFTER_S: Final = 1
"""PostgreSQL restarts and failovers take seconds."""


class Problem(NamedTuple):
    """An error response. `headers` are raw `name: value` lines, each ending in CR LF."""

    status: int
    body: bytes
    headers: bytes = b""


def split_headers(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Return raw header lines as pairs of name and value."""
    pairs = (line.partition(b": ") for line in lines.splitlines())
    return [(name, value) for name, _, value in pairs]


def problem(
    status: int,
    code: str,
    text: str,
    *,
    headers: bytes = b"",
    queue_depth: int | msgspec.UnsetType = msgspec.UNSET,
) -> Problem:
    """Make the response to an error without an exception, such as an unknown path."""
    answer = ErrorAnswer(error=text, code=code, queue_depth=queue_depth)
    return Problem(status, msgspec.json.encode(answer), headers)


def problem_of(error: BaseException) -> Problem:
    """Return the response to an error. Errors other than `SkepError` are bugs: 500."""
    for cls in type(error).__mro__:
        status = STATUS_BY_ERROR.get(cls)
        if status is not None and isinstance(error, errors.SkepError):
            depth = error.queue_depth if isinstance(error, errors.Overloaded) else msgspec.UNSET
            headers = _headers_of(error)
            if error.reason:
                refusal = RefusalAnswer(error.code, error.code, error.reason, error.message)
                return Problem(status, msgspec.json.encode(refusal), headers)
            return problem(status, error.code, error.message, headers=headers, queue_depth=depth)
    return problem(500, "defect", "Internal error; the server's log has the details.")


def _headers_of(error: errors.SkepError) -> bytes:
    """Say when to retry, or how to authenticate."""
    if isinstance(error, errors.Overloaded):
        return b"retry-after: %d\r\n" % error.retry_after_s
    if isinstance(error, errors.Unavailable):
        return b"retry-after: %d\r\n" % UNAVAILABLE_RETRY_AFTER_S
    if isinstance(error, errors.Unauthenticated):
        reason = b', error="invalid_token"' if isinstance(error, errors.InvalidToken) else b""
        return b'www-authenticate: Bearer realm="skep"%b\r\n' % reason
    if isinstance(error, errors.Forbidden):
        return b'www-authenticate: Bearer realm="skep", error="insufficient_scope"\r\n'
    return b""


def request_id(given: bytes | None) -> str:
    """Return the id a client gave, or a new one."""
    if given is not None and _HARMLESS.fullmatch(given):
        return given.decode()
    return uuid4().hex


def id_line(name: str) -> bytes:
    """Return the header line of a response."""
    return f"{HEADER}: {name}\r\n".encode()
