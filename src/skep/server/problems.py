"""How an error becomes an HTTP answer.

The one table from Skep's errors to status codes. Every error body is `{"error": text, "code":
slug}`: `error` is what Queen's clients raise, `code` is stable and meant for programs. Whatever is
full answers 429 with Retry-After; 503 says that the database is away. Where older clients of Queen
must be spared a 429, which they take as final, overload is `Congested`, a 503 (ADR 0017).

A defect shows its stack in the log and nothing of itself to the client.
"""

import re
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec

from skep.model.errors import (
    BadRequest,
    Congested,
    Forbidden,
    ForgedNotice,
    InvalidToken,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    Refused,
    SkepError,
    Unauthenticated,
    Unavailable,
)

STATUS_BY_ERROR: Final[dict[type[BaseException], int]] = {
    BadRequest: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    PayloadTooLarge: 413,
    Refused: 409,
    NotFound: 404,
    ForgedNotice: 403,
    Overloaded: 429,
    Congested: 503,
    Unavailable: 503,
}

UNAVAILABLE_RETRY_AFTER_S: Final = 1
"""PostgreSQL restarts and failovers take seconds; a client that asks each second notices soon."""


class Problem(NamedTuple):
    """An answer that says no. `headers` are raw `name: value` lines, each ending in CR LF."""

    status: int
    body: bytes
    headers: bytes = b""


class _Body(msgspec.Struct):
    error: str
    code: str


def problem(status: int, code: str, text: str, *, headers: bytes = b"") -> Problem:
    """Word a problem that has no exception of its own, such as an unknown path."""
    return Problem(status, msgspec.json.encode(_Body(error=text, code=code)), headers)


def problem_of(error: BaseException) -> Problem:
    """Choose the answer for an error. What is not a `SkepError` is a bug and is answered as one."""
    for cls in type(error).__mro__:
        status = STATUS_BY_ERROR.get(cls)
        if status is not None and isinstance(error, SkepError):
            return problem(status, error.code, error.message, headers=_headers_of(error))
    return problem(500, "defect", "Internal error; the server's log has the details.")


def _headers_of(error: SkepError) -> bytes:
    """Say when to try again, or how to say who one is."""
    if isinstance(error, Overloaded):
        return b"retry-after: %d\r\n" % error.retry_after_s
    if isinstance(error, Unavailable):
        return b"retry-after: %d\r\n" % UNAVAILABLE_RETRY_AFTER_S
    if isinstance(error, Unauthenticated):
        reason = b', error="invalid_token"' if isinstance(error, InvalidToken) else b""
        return b'www-authenticate: Bearer realm="skep"%b\r\n' % reason
    if isinstance(error, Forbidden):
        return b'www-authenticate: Bearer realm="skep", error="insufficient_scope"\r\n'
    return b""


HEADER: Final = "x-request-id"
_HARMLESS: Final = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}")


def request_id(given: bytes | None) -> str:
    """Return the id a client gave, or a new one."""
    if given is not None and _HARMLESS.fullmatch(given):
        return given.decode()
    return uuid4().hex


def id_line(name: str) -> bytes:
    """Spell the header of an answer."""
    return f"{HEADER}: {name}\r\n".encode()
