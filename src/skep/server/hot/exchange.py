"""One request of a hot route and its one answer, which may come later; and the table of the routes.

A connection of the parser fast path makes an `Exchange`, and so does the ASGI twin. Its handler is
a plain function that returns at once; `respond` sends the answer later, from the event loop's
thread. Nothing here awaits or allocates an asyncio object.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from skep.model.errors import BadRequest, Defect, SkepError
from skep.server.problems import HEADER, Problem, id_line, problem_of, request_id
from skep.telemetry.meters import RouteMeter

log = logging.getLogger(__name__)

Answer: TypeAlias = tuple[int, bytes, bytes]
"""Status, body, additional header lines."""

HotHandler: TypeAlias = Callable[["Exchange"], None]
"""Answers an exchange. A raised `SkepError` is answered from the problems table; any other
exception is a bug, logged with its stack and answered 500."""

Traced: TypeAlias = Callable[[int, bytes, str | None], None]
"""Called with the status and body of an answer, and the code of its error if it is one."""

_RESPOND_ASYNC = b"respond-async"


class Connection(Protocol):
    """Where the answer of an exchange goes."""

    def take_answer(self, exchange: "Exchange", answer: Answer) -> bool:
        """Send an answer, now or in its turn. False if the client disconnected."""
        ...


class Head(Struct, eq=False):
    """What the head of a request says, and what serves it."""

    method: bytes
    path: bytes
    """Raw, still percent-encoded; so is the query."""
    query: bytes
    """Without its question mark."""
    headers: list[tuple[bytes, bytes]]
    handler: HotHandler | None
    keep_alive: bool = True
    """Whether the connection stays open after the answer."""
    reading: Any = None
    """What the handler read out of path and query, for requests whose head is the same."""


class Exchange(Struct, eq=False):
    """One request and its one answer. A Struct because every request makes one."""

    connection: Connection | None
    """None when it is lost."""
    head: Head
    handler: HotHandler | None
    """What serves it; None once it was called."""
    body: bytes = b""
    is_answered: bool = False
    held_answer: Answer | None = None
    """The answer until its turn."""
    meter: RouteMeter | None = None
    began: float = 0.0
    """When its route was called, for the meter."""
    traced: Traced | None = None
    abort_callback: Callable[[], None] | None = None

    def run(self) -> None:
        """Call the handler, and answer for it if it raises."""
        handler, self.handler = self.handler, None
        if handler is None:
            return
        try:
            handler(self)
        except Exception as error:  # noqa: BLE001 (the parser would take it for a malformed request)
            self.refuse(error)

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header. `name` is given in lower case."""
        for its_name, value in self.head.headers:
            if its_name.lower() == name:
                return value
        return None

    @property
    def prefers_async(self) -> bool:
        """Whether the client sent `Prefer: respond-async`, possibly among other preferences."""
        preferences = self.header(b"prefer") or b""
        names = (each.partition(b";")[0].strip().lower() for each in preferences.split(b","))
        return _RESPOND_ASYNC in names

    def respond(self, status: int, body: bytes = b"", *, headers: bytes = b"") -> bool:
        r"""Answer, exactly once, at any later time, from the event loop's thread.

        A body is sent as JSON. `headers` are additional raw lines, each `name: value\r\n`.

        Returns:
            False if the client disconnected and nothing was written.
        """
        if self.is_answered:
            raise Defect("An exchange was answered twice.")
        self.is_answered = True
        # Break the reference cycle: the cycle collector's pauses would delay every other request.
        self.abort_callback = None
        if self.meter is not None:
            self.meter.note(status, self.began)
        connection = self.connection
        is_sent = connection is not None and connection.take_answer(self, (status, body, headers))
        if self.traced is not None:
            self.traced(status, body, None)
        return is_sent

    def refuse(self, error: BaseException) -> None:
        """Answer with the problem of an error, unless it was answered already; log a bug."""
        answer = problem_of(error)
        if answer.status == 500:
            name = request_id(self.header(HEADER.encode()))
            fields = {"request_id": name}
            log.error("hot route %r failed", self.head.path, exc_info=error, extra=fields)
            answer = answer._replace(headers=answer.headers + id_line(name))
        if self.is_answered:
            return
        traced, self.traced = self.traced, None
        self.respond(answer.status, answer.body, headers=answer.headers)
        if traced is not None:
            traced(answer.status, b"", error.code if isinstance(error, SkepError) else Defect.code)

    def when_aborted(self, callback: Callable[[], None]) -> None:
        """Call `callback` once if the client disconnects before the answer, or already has.

        An exchange keeps one callback.
        """
        if self.connection is None:
            callback()
        else:
            self.abort_callback = callback

    def abort(self) -> None:
        """End the exchange: the connection is lost."""
        self.connection = None
        callback, self.abort_callback = self.abort_callback, None
        if callback is None or self.is_answered:
            return
        try:
            callback()
        except Exception:
            # The other exchanges of this connection must be aborted, too.
            log.exception("abort callback failed for %r", self.head.path)


class HotRoutes:
    """The handlers of the hot routes, by method and path."""

    def __init__(self, *, preview: HotHandler | None = None) -> None:
        """`preview` may refuse a request by its head, before a long body is read."""
        self.preview = preview
        self.version = 0
        self.exact: dict[tuple[bytes, bytes], HotHandler] = {}
        self.prefixed: list[tuple[bytes, bytes, bytes, HotHandler]] = []

    def add(self, method: bytes, path: bytes, handler: HotHandler) -> None:
        """Serve exactly this path."""
        self.exact[method, path] = handler

    def add_prefix(
        self, method: bytes, prefix: bytes, handler: HotHandler, *, suffix: bytes = b""
    ) -> None:
        """Serve every path that starts and ends so. Exact paths and earlier prefixes go first."""
        self.prefixed.append((method, prefix, suffix, handler))

    def find(self, method: bytes, path: bytes) -> HotHandler | None:
        """Return the handler of a request, or None when the ASGI application serves it."""
        handler = self.exact.get((method, path))
        if handler is not None:
            return handler
        for its_method, prefix, suffix, handler in self.prefixed:
            if path.startswith(prefix) and method == its_method and _ends(path, prefix, suffix):
                return handler
        return None

    def replace(self, routes: "HotRoutes") -> None:
        """Serve the routes of another table from now on."""
        self.preview = routes.preview
        self.version += 1
        self.exact = routes.exact
        self.prefixed = routes.prefixed

    def refusal_of(self, exchange: Exchange) -> Problem | None:
        """Return the refusal of a request by its head alone."""
        if self.preview is None:
            return None
        try:
            self.preview(exchange)
        except SkepError as error:
            return problem_of(error)
        return None

    def methods(self, path: bytes) -> list[bytes]:
        """Return the methods this path is hot for, in the order they were added."""
        exact = [method for method, its_path in self.exact if its_path == path]
        prefixed = [
            method
            for method, prefix, suffix, _ in self.prefixed
            if path.startswith(prefix) and _ends(path, prefix, suffix)
        ]
        return list(dict.fromkeys(exact + prefixed))


def _ends(path: bytes, prefix: bytes, suffix: bytes) -> bool:
    # The lengths keep "/lease/extend" from matching "/lease/" + "/extend" with a shared slash.
    return not suffix or (path.endswith(suffix) and len(path) >= len(prefix) + len(suffix))


def decode_segment(raw: bytes) -> str:
    """Decode one segment of a path, percent-encoded or not."""
    return _decode(unquote_to_bytes(raw) if b"%" in raw else raw)


def parse_query(raw: bytes) -> dict[str, str]:
    """Parse a query string. Of a repeated name the first value counts, as in Queen."""
    parameters: dict[str, str] = {}
    if b"%" in raw or b"+" in raw:
        for pair in filter(None, raw.replace(b"+", b" ").split(b"&")):
            encoded_name, _, encoded_value = pair.partition(b"=")
            parameters.setdefault(decode_segment(encoded_name), decode_segment(encoded_value))
    else:
        for pair in filter(None, _decode(raw).split("&")):
            name, _, value = pair.partition("=")
            parameters.setdefault(name, value)
    return parameters


def _decode(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("A name or parameter in the URL is not UTF-8.") from error
