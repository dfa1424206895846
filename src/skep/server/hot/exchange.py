"""HTTP for hot routes: one request, and one answer that may come later.

An `Exchange` hides its server: the parser fast path or any ASGI server. Its handler is a plain
function that returns at once; `respond` sends the answer later, from the event loop's thread.
Nothing here awaits or allocates an asyncio object. Both servers find handlers in `HotRoutes`.
"""

import logging
from collections.abc import Callable
from typing import Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from skep.model.errors import BadRequest, SkepError
from skep.server.problems import HEADER, Problem, id_line, problem_of, request_id
from skep.telemetry.meters import RouteMeter

log = logging.getLogger(__name__)


class Exchange(Protocol):
    """One request and its one answer."""

    method: bytes
    path: bytes
    """Raw: still percent-encoded, without the query."""
    query: bytes
    """Raw, without the question mark."""
    body: bytes
    timing: tuple[RouteMeter, float] | None
    """The meter of the route and when the request began; None if it is not counted."""

    @property
    def is_answered(self) -> bool:
        """Whether `respond` was called."""
        ...

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header. `name` is given in lower case."""
        ...

    def respond(self, status: int, body: bytes = b"", *, headers: bytes = b"") -> bool:
        r"""Answer, exactly once, at any later time, from the event loop's thread.

        A body is sent as JSON. `headers` are additional raw lines, each `name: value\r\n`.

        Returns:
            False if the client disconnected and nothing was written.

        Raises:
            Defect: The exchange was answered before.
        """
        ...

    def when_aborted(self, callback: Callable[[], None]) -> None:
        """Call `callback` once if the client disconnects before the answer, or already has.

        An exchange keeps one callback.
        """
        ...


HotHandler: TypeAlias = Callable[[Exchange], None]
"""Answers an exchange. A raised `SkepError` is answered from the problems table; any other
exception is a bug, logged with its stack and answered 500."""


class HotRoutes:
    """The handlers of the hot routes, by method and path."""

    def __init__(self, *, preview: HotHandler | None = None) -> None:
        """`preview` may refuse a request by its head, before a long body is read."""
        self._preview = preview
        self._exact: dict[tuple[bytes, bytes], HotHandler] = {}
        self._prefixed: list[tuple[bytes, bytes, bytes, HotHandler]] = []

    def add(self, method: bytes, path: bytes, handler: HotHandler) -> None:
        """Serve exactly this path."""
        self._exact[method, path] = handler

    def add_prefix(
        self, method: bytes, prefix: bytes, handler: HotHandler, *, suffix: bytes = b""
    ) -> None:
        """Serve every path that starts and ends so. Exact paths and earlier prefixes go first."""
        self._prefixed.append((method, prefix, suffix, handler))

    def find(self, method: bytes, path: bytes) -> HotHandler | None:
        """Return the handler of a request, or None when the ASGI application serves it."""
        handler = self._exact.get((method, path))
        if handler is not None:
            return handler
        for its_method, prefix, suffix, handler in self._prefixed:
            if path.startswith(prefix) and method == its_method and _ends(path, prefix, suffix):
                return handler
        return None

    def wrap_each(self, wrap: Callable[[HotHandler], HotHandler]) -> None:
        """Wrap every handler."""
        self._exact = {key: wrap(handler) for key, handler in self._exact.items()}
        self._prefixed = [
            (method, prefix, suffix, wrap(handler))
            for method, prefix, suffix, handler in self._prefixed
        ]

    def refusal_of(self, exchange: Exchange) -> Problem | None:
        """Return the refusal of a request by its head alone."""
        if self._preview is None:
            return None
        try:
            self._preview(exchange)
        except SkepError as error:
            return problem_of(error)
        return None

    def methods(self, path: bytes) -> list[bytes]:
        """Return the methods this path is hot for, in the order they were added."""
        exact = [method for method, its_path in self._exact if its_path == path]
        prefixed = [
            method
            for method, prefix, suffix, _ in self._prefixed
            if path.startswith(prefix) and _ends(path, prefix, suffix)
        ]
        return list(dict.fromkeys(exact + prefixed))


def _ends(path: bytes, prefix: bytes, suffix: bytes) -> bool:
    # The lengths keep "/lease/extend" from matching "/lease/" + "/extend" with a shared slash.
    return not suffix or (path.endswith(suffix) and len(path) >= len(prefix) + len(suffix))


def run_handler(handler: HotHandler, exchange: Exchange) -> None:
    """Call a handler and answer for it if it raises."""
    try:
        handler(exchange)
    except Exception as error:  # noqa: BLE001 (the parser would take it for a malformed request)
        respond_error(exchange, error)


def respond_error(exchange: Exchange, error: BaseException) -> None:
    """Answer with the problem of an error; log the error if it is a bug."""
    answer = problem_of(error)
    if answer.status == 500:
        name = request_id(exchange.header(HEADER.encode()))
        fields = {"request_id": name}
        log.error("hot route %r failed", exchange.path, exc_info=error, extra=fields)
        answer = answer._replace(headers=answer.headers + id_line(name))
    _respond_problem(exchange, answer)


def _respond_problem(exchange: Exchange, answer: Problem) -> None:
    if not exchange.is_answered:
        exchange.respond(answer.status, answer.body, headers=answer.headers)


def decode_segment(raw: bytes) -> str:
    """Decode one segment of a path, percent-encoded or not.

    Raises:
        BadRequest: The bytes behind the escapes are not UTF-8.
    """
    return _decode(unquote_to_bytes(raw) if b"%" in raw else raw)


def parse_query(raw: bytes) -> dict[str, str]:
    """Parse a query string. Of a repeated name the first value counts, as in Queen.

    Raises:
        BadRequest: The bytes behind the escapes are not UTF-8.
    """
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
