"""Answer hot routes from the HTTP parser's callbacks; pass every other request to the ASGI app.

A subclass of uvicorn's httptools protocol. A hot request costs no task, no future, no ASGI scope
and one write. Both kinds share a port and may alternate on one connection; `pipelining` keeps their
answers in order. Hot answers are not in uvicorn's access log.

A connection promises:

* Everything is bounded: connections, head, body, bytes spent on one request, requests waiting for
  their turn, the time a request may take to arrive and an answer to be read. Reading stops while
  too many requests wait or the client does not read its answers.
* A request that cannot be read (400, 408, 413, 431) is answered in its turn and is the last of its
  connection. Further input is dropped for a moment, because closing a socket with unread input
  resets it and can destroy the answer on its way.
* A request of HTTP/1.1 has exactly one `Host`.
* A request of a browser goes to the application, which judges browsers, whatever its route; so does
  one with a `Content-Encoding`, which the application decodes.
* A disconnect ends every exchange of the connection, once. Half-closed counts as disconnected.
* At shutdown idle connections close, busy ones close with their last answer.

Not supported: HTTP/1.0 keep-alive (such answers close) and trailers, which are dropped. The parser
accepts ASCII request targets only; one with raw UTF-8 is escaped for the client if its first line
arrives whole at the start of a read, and is a 400 otherwise.
"""

import logging
import re
from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable
from typing import Any, ClassVar, Final, NoReturn

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from skep.model.errors import Overloaded, PayloadTooLarge
from skep.server.edge.limits import (
    CHUNK_LINE_BYTES_MAX,
    READ_BYTES_MAX,
    ConnectionLimits,
    Edge,
    ReadGate,
    announced_bytes,
)
from skep.server.edge.pipelining import AsgiTurn, TurnQueue
from skep.server.edge.repetition import KnownHeads
from skep.server.hot.exchange import Answer, Exchange, Head, HotRoutes
from skep.server.problems import Problem, problem, problem_of

log = logging.getLogger(__name__)

BODY_PROGRESS_BYTES: Final = 32 * 1024
"""A body that grew by this much within the read timeout gets another."""

TICK_S_MIN: Final = 0.05
"""Minimum interval of a connection's timer."""

_HOST: Final = b"host"
_LANGUAGE: Final = b"accept-language"
_MODE: Final = b"sec-fetch-mode"
_SPECIAL: Final = frozenset({b"origin", b"sec-fetch-site", b"content-encoding"})
"""Headers of requests that only the application understands."""

_LENGTHS: Final = frozenset(len(name) for name in (_HOST, _LANGUAGE, _MODE, *_SPECIAL))

_NON_ASCII: Final = re.compile(rb"[\x80-\xff]")

_NO_CHUNK: Final = -1

# The part of a request that is being read.
_NOTHING, _HEAD, _BODY = range(3)


def build_protocol(
    routes: HotRoutes, limits: ConnectionLimits, *, on_drain: Callable[[], None] | None = None
) -> type["FastPathProtocol"]:
    """Return the class for `uvicorn.Config(http=...)`, one per server.

    `on_drain` is called once, on the event loop, when uvicorn shuts down. It should answer every
    waiting exchange; uvicorn waits for their connections.
    """
    return type("BoundFastPath", (FastPathProtocol,), {"edge": Edge(routes, limits, on_drain)})


class _StopParsing(Exception):
    """Raised in a parser callback to ignore the rest of the input."""


class FastPathProtocol(HttpToolsProtocol):
    """One connection."""

    edge: ClassVar[Edge]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        limits = self.edge.limits
        timeouts_s = (limits.read_timeout_s, limits.write_timeout_s, self.timeout_keep_alive)
        self._tick_s = max(TICK_S_MIN, min(timeouts_s))
        self._turns = TurnQueue(self)
        self._gate: ReadGate
        self._ticker: TimerHandle
        self._since = 0.0  # when the request being read began, or the connection fell idle
        self._stalled_writes: tuple[float, int] | None = None  # since when, at what buffer size
        self._is_draining = self.edge.is_draining
        self._is_deaf = False  # the last request was read or refused: drop all further input

        self._known = KnownHeads(self.edge.routes.version)
        self._reading = _NOTHING
        self._read = b""  # the current one, if it is being parsed
        self._is_first_of_read = False  # whether the request that it completes began it
        self._request_bytes = 0  # of the request being read, counting its first read in full
        self._progress_bytes = 0  # `_request_bytes` when the read timeout was last extended
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._is_last = False  # the client asked to close after the request being read
        self._incoming: Exchange | None = None  # a hot request whose body is being read
        self._body: bytes | bytearray = b""
        self._is_inspected = False  # whether the head of the request being read was searched
        self._chunk_bytes = _NO_CHUNK  # of the chunk being read
        self._unfinished_line = b""  # the end of the last read, where a line may have begun
        self._is_body_awaited = False  # the client waits for "100 Continue"
        self._head_without_upgrade = b""

    # The transport calls these.

    def connection_made(self, transport: Transport) -> None:
        """Start the timer, also for clients that never send a byte."""
        super().connection_made(transport)
        if len(self.connections) > self.edge.limits.connections_max:
            self._is_deaf = True
            text = "The broker has reached its maximum number of connections."
            self.write_answer(
                problem(503, Overloaded.code, text, headers=b"retry-after: 1\r\n"),
                keep_alive=False,
            )
        self.flow = self._gate = ReadGate(transport)
        self._since = self.loop.time()
        self._ticker = self.loop.call_later(self._tick_s, self._tick)

    def connection_lost(self, exc: Exception | None) -> None:
        """End every exchange of this connection."""
        self._ticker.cancel()
        self._turns.abort()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Run a request whose head is known; else feed the parser, whose callbacks do the work."""
        if self._is_deaf:
            return
        is_at_boundary = self._reading == _NOTHING
        if is_at_boundary and (found := self._known.find(data)) is not None:
            head, body = found
            edge = self.edge
            is_current = self._known.routes_version == edge.routes.version
            if is_current and len(body) <= edge.limits.body_bytes_max:
                self._run(Exchange(self, head, head.handler, body))
                return
        self._request_bytes += len(data)
        self._is_first_of_read = is_at_boundary
        while data:
            self._read = data
            data = self._feed(data, is_at_boundary=is_at_boundary)
            is_at_boundary = True
        read, self._read = self._read, b""
        if self._reading != _NOTHING and not self._is_deaf:
            self._inspect_unfinished(read)

    def pause_writing(self) -> None:
        """Note since when the client does not read its answers."""
        self._stalled_writes = self.loop.time(), self.transport.get_write_buffer_size()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._stalled_writes = None
        super().resume_writing()

    def shutdown(self) -> None:
        """Close when idle, else with the last answer. uvicorn calls this on each connection."""
        self._is_draining = True
        self.edge.drain(self.loop)
        last = self._turns[-1] if self._turns else None
        if isinstance(last, AsgiTurn):
            last.cycle.keep_alive = False
        elif last is None and self._incoming is None:
            self.transport.close()

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Begin a request. uvicorn would build an ASGI scope here."""
        if self._is_deaf:
            raise _StopParsing
        self.url = b""
        self._raw_headers = []
        self._reading = _HEAD
        self._request_bytes = len(self._read)
        self._progress_bytes = 0
        self._since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header unchanged; trailers are dropped."""
        if self._reading == _HEAD:
            self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Choose the hot handler or the application."""
        if self._request_bytes > self.edge.limits.head_bytes_max:
            self._check_head_size()
        parser = self.parser
        method = parser.get_method()
        path, _, query = self.url.partition(b"?")
        handler = self.edge.routes.find(method, path)
        if self._is_special():
            handler = None
        if parser.should_upgrade():
            self._consider_upgrade(method)
        elif handler is None:
            self._begin_asgi_request()
        else:
            keep_alive = parser.should_keep_alive() and parser.get_http_version() != "1.0"
            head = Head(method, path, query, self._raw_headers, handler, keep_alive)
            self._incoming = Exchange(self, head, handler)
            self._is_last = not keep_alive
            self._is_body_awaited = False
        self._is_inspected = False
        self._reading = _BODY

    def on_chunk_header(self) -> None:
        """Begin a chunk; the last one is empty."""
        self._chunk_bytes = 0

    def on_chunk_complete(self) -> None:
        """End a chunk."""
        self._chunk_bytes = _NO_CHUNK

    def on_body(self, body: bytes) -> None:
        """Collect a hot request's body, within its limit."""
        if self._chunk_bytes != _NO_CHUNK:
            self._chunk_bytes += len(body)
        if self._incoming is None:
            super().on_body(body)
            return
        if not self._body:
            self._body = body
        elif isinstance(self._body, bytearray):
            self._body += body
        else:
            self._body = bytearray(self._body + body)
        if len(self._body) > self.edge.limits.body_bytes_max:
            self._refuse_and_stop(self._body_too_large())

    def on_message_complete(self) -> None:
        """Run a hot request, or complete the body of an ASGI request."""
        self._reading = _NOTHING
        self._is_deaf = self._is_last
        incoming = self._incoming
        if incoming is not None:
            self._incoming = None
            incoming.body = bytes(self._body)
            self._body = b""
            if self._is_first_of_read and not self._is_last:
                self._learn(incoming)
            self._run(incoming)
        elif not self._head_without_upgrade:
            super().on_message_complete()
        self._is_first_of_read = False

    def _run(self, exchange: Exchange) -> None:
        turns = self._turns
        turns.append(exchange)
        if turns.asgi_count == 0:  # else it runs when the ASGI request before it has finished
            exchange.run()
        if len(turns) > 1:
            self.note_queue_length(len(turns))

    def _learn(self, exchange: Exchange) -> None:
        """Remember the head of a request that the parser has read."""
        version = self.edge.routes.version
        if self._known.routes_version != version:
            self._known = KnownHeads(version)
        self._known.learn(self._read, exchange.head, exchange.body)

    # Exchanges and the turn queue call these.

    def take_answer(self, exchange: Exchange, answer: Answer) -> bool:
        """Write an answer, or hold it until its turn. False if the client disconnected."""
        if self.transport.is_closing():
            return False
        turns = self._turns
        if turns[0] is not exchange:
            exchange.held_answer = answer
            return True
        turns.popleft()
        self.write_answer(answer, keep_alive=exchange.head.keep_alive)
        if turns:
            turns.advance()
        else:
            self.note_queue_length(0)
        return True

    def write_answer(self, answer: Answer, *, keep_alive: bool) -> None:
        """Write a whole answer at once, and close after it if it is the last."""
        status, body, headers = answer
        lines = self.edge.first_lines(status, self.server_state.default_headers)
        if self._is_draining and not self._turns and self._incoming is None:
            keep_alive = False
        if not keep_alive:
            headers += b"connection: close\r\n"
        if body:
            self.transport.write(
                b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
                % (lines, len(body), headers, body)
            )
        elif status == 204:
            self.transport.write(b"%b%b\r\n" % (lines, headers))
        else:
            self.transport.write(b"%bcontent-length: 0\r\n%b\r\n" % (lines, headers))
        self.server_state.total_requests += 1
        if not keep_alive:
            self._close_after_answer()

    def start_asgi(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Run an ASGI request whose turn has come."""
        super()._start_asgi_task(cycle, app)

    def note_queue_length(self, length: int) -> None:
        """Pause or resume reading; with nothing left to answer, start the keep-alive timer."""
        gate = self._gate
        is_full = length >= self.edge.limits.queue_length_max
        if is_full is not gate.is_queue_full:
            gate.note_queue(is_full=is_full)
        if length:
            return
        if self._is_body_awaited:
            self._invite_body()
        if self._reading == _NOTHING:
            self._since = self.loop.time()
            if self._is_draining:
                self.transport.close()
            elif self.edge.departure is not None:
                self.edge.departure(self)

    # Those who hand connections over call these.

    @property
    def is_between_requests(self) -> bool:
        """Whether nothing of a request or of an answer is in this process."""
        return (
            self._reading == _NOTHING
            and not (self._turns or self._is_deaf or self._is_draining)
            and not self.transport.is_closing()
            and self.transport.get_write_buffer_size() == 0
        )

    def was_used_since(self, at: float) -> bool:
        """Tell whether a request began or the last answer was given since then."""
        return self._since >= at

    # uvicorn calls these for ASGI requests.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._turns.add_asgi(AsgiTurn(cycle, app))

    def on_response_complete(self) -> None:
        """Continue after an ASGI answer."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._turns.finish_asgi()

    # Reading.

    def _feed(self, data: bytes, *, is_at_boundary: bool) -> bytes:
        """Parse, and return what is to be parsed next."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._after_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserInvalidURLError:
            return self._with_escaped_target(data if is_at_boundary else b"")
        except httptools.HttpParserError as error:
            self._refuse_malformed(error)
        return b""

    def _begin_asgi_request(self) -> None:
        self._replay_head_to_uvicorn()
        if not httptools.parse_url(self.url).path:
            self._refuse_and_stop(problem(400, "bad_request", "The request target has no path."))
        super().on_headers_complete()
        if self.pipeline:
            # uvicorn queued the request behind an unfinished one and stopped reading; the turn
            # queue does both by its own rules.
            self._start_asgi_task(*self.pipeline.pop())
            self.flow.resume_reading()
        self._is_last = not self.cycle.keep_alive

    def _replay_head_to_uvicorn(self) -> None:
        url = self.url
        super().on_message_begin()
        self.url = url
        for name, value in self._raw_headers:
            super().on_header(name, value)

    def _inspect_unfinished(self, read: bytes) -> None:
        """Check a request that did not arrive in one read, as most do."""
        if self._reading == _HEAD:
            if self._request_bytes > self.edge.limits.head_bytes_max + READ_BYTES_MAX:
                self._refuse(self._head_too_large())
            return
        if self._request_bytes > self.edge.wire_bytes_max or self._is_chunk_too_large(read):
            self._refuse(self._body_too_large())
        elif not self._is_inspected:
            self._is_inspected = True
            self._inspect_head(self._incoming)

    def _is_chunk_too_large(self, read: bytes) -> bool:
        """Whether a chunk was announced that the body has no room for."""
        if self._chunk_bytes == _NO_CHUNK:
            line = self._unfinished_line + read[-CHUNK_LINE_BYTES_MAX:]
            self._unfinished_line = line[-CHUNK_LINE_BYTES_MAX:]
            return False
        begin = len(read) - self._chunk_bytes
        if begin <= 0:  # it was announced in an earlier read
            return False
        line = self._unfinished_line + read[max(0, begin - CHUNK_LINE_BYTES_MAX) : begin]
        self._unfinished_line = b""
        body_bytes = max(0, len(self._body) - self._chunk_bytes) + announced_bytes(line)
        return body_bytes > self.edge.limits.body_bytes_max

    def _is_special(self) -> bool:
        """Whether only the application understands a request; refuse one without its host.

        A language without a mode is that of a browser (see `skep.server.auth.browsers`).
        """
        is_special, has_language, has_mode, hosts = False, False, False, 0
        for name, _ in self._raw_headers:
            if len(name) in _LENGTHS:  # cheaper than to compare the names of all
                lower = name.lower()
                if lower == _HOST:
                    hosts += 1
                elif lower in _SPECIAL:
                    is_special = True
                elif lower == _LANGUAGE:
                    has_language = True
                elif lower == _MODE:
                    has_mode = True
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            text = "The request has more than one Host." if hosts else "The request has no Host."
            self._refuse_and_stop(problem(400, "bad_request", text))
        return is_special or (has_language and not has_mode)

    def _inspect_head(self, incoming: Exchange | None) -> None:
        refusal = None if incoming is None else self.edge.routes.refusal_of(incoming)
        declared = self._header(b"content-length")
        if refusal is not None:
            self._refuse(refusal)
        elif declared is not None and int(declared) > self.edge.limits.body_bytes_max:
            self._refuse(self._body_too_large())
        elif incoming is not None and (self._header(b"expect") or b"").lower() == b"100-continue":
            self._is_body_awaited = True
            if not self._turns:
                self._invite_body()

    def _header(self, name: bytes) -> bytes | None:
        """Return the first value of a header of the request being read."""
        return next((value for each, value in self._raw_headers if each.lower() == name), None)

    def _invite_body(self) -> None:
        self._is_body_awaited = False
        if self._incoming is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_head_size(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self._raw_headers)
        if size > self.edge.limits.head_bytes_max:
            self._refuse_and_stop(self._head_too_large())

    def _with_escaped_target(self, data: bytes) -> bytes:
        escaped = escape_target(data)
        if escaped is None:
            text = "The request target contains characters that must be percent-encoded."
            self._refuse(problem(400, "bad_request", text))
            return b""
        self._renew_parser()
        return escaped

    def _consider_upgrade(self, method: bytes) -> None:
        """Let uvicorn upgrade to a WebSocket; serve any other upgrade request as a plain one.

        After an upgrade request the parser treats all input, even its body, as the other protocol.
        Java's HTTP client requests h2c on every plain connection, so the head is parsed again,
        without the upgrade.
        """
        if method == b"CONNECT":
            self._refuse_and_stop(problem(405, "method_not_allowed", "This is not a proxy."))
        self._is_last = False
        self._replay_head_to_uvicorn()
        if not self._turns and self._should_upgrade():
            super().on_headers_complete()
        else:
            self._head_without_upgrade = spell_without_upgrade(
                method, self.url, self.parser.get_http_version(), self._raw_headers
            )

    def _after_upgrade(self, rest: bytes) -> bytes:
        head, self._head_without_upgrade = self._head_without_upgrade, b""
        if not head:
            self._ticker.cancel()
            self._is_deaf = True  # it is not a connection between two requests any more
            self.handle_websocket_upgrade()
            return b""
        self._renew_parser()
        return head + rest

    def _renew_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    # Refusing and closing.

    def _refuse_malformed(self, error: httptools.HttpParserError) -> None:
        # An exception of a callback is the context of the parser's own error.
        cause = error.__context__ or error
        if isinstance(cause, httptools.HttpParserError):
            self._refuse(problem(400, "bad_request", f"Malformed HTTP request: {cause}"))
        elif not isinstance(cause, _StopParsing):
            log.error("reading a request failed", exc_info=cause)
            self._refuse(problem_of(cause))

    def _refuse(self, refusal: Problem) -> None:
        """Answer the request being read, in its turn, and ignore further input."""
        self._is_deaf = True
        is_asgi = self._reading == _BODY and self._incoming is None
        self._incoming = None
        self._body = b""
        if not is_asgi or self._turns.withdraw_asgi():
            self._turns.add_answered(refusal)
        elif self.cycle.response_started:
            self._close_after_answer()
        else:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.write_answer(refusal, keep_alive=False)

    def _refuse_and_stop(self, refusal: Problem) -> NoReturn:
        self._refuse(refusal)
        raise _StopParsing

    def _body_too_large(self) -> Problem:
        text = f"The request body is larger than {self.edge.limits.body_bytes_max} bytes."
        return problem(413, PayloadTooLarge.code, text)

    def _head_too_large(self) -> Problem:
        text = f"The request head is larger than {self.edge.limits.head_bytes_max} bytes."
        return problem(431, "head_too_large", text)

    def _close_after_answer(self) -> None:
        if not self._is_deaf or self._reading == _NOTHING:
            self.transport.close()
            return
        self._gate.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(self.edge.limits.linger_s, self.transport.close)

    # Time.

    def _tick(self) -> None:
        """Check the timeouts.

        One timer per connection that fires rarely is much cheaper than one per request. It may
        fire up to one period late.
        """
        self._ticker = self.loop.call_later(self._tick_s, self._tick)
        now = self.loop.time()
        if self._stalled_writes is not None or self.transport.is_closing():
            self._check_writes(now)
        elif self._reading == _NOTHING:
            if not self._turns and now - self._since >= self.timeout_keep_alive:
                self.transport.close()
        elif not self._is_deaf:
            self._check_request(now)

    def _check_writes(self, now: float) -> None:
        buffered = self.transport.get_write_buffer_size()
        since, buffered_then = self._stalled_writes or (now, buffered)
        if buffered < buffered_then:
            since = now
        self._stalled_writes = since, buffered
        if now - since >= self.edge.limits.write_timeout_s:
            self.transport.abort()

    def _check_request(self, now: float) -> None:
        if self._gate.read_paused:
            self._since = now
        elif now - self._since >= self.edge.limits.read_timeout_s:
            progress = self._request_bytes - self._progress_bytes
            if self._reading == _BODY and progress >= BODY_PROGRESS_BYTES:
                self._since = now
                self._progress_bytes = self._request_bytes
            else:
                text = "The request took too long to arrive."
                self._refuse(problem(408, "request_timeout", text))


def escape_target(data: bytes) -> bytes | None:
    """Percent-encode raw UTF-8 in the request line that `data` starts with.

    Returns None if the line is incomplete or has nothing to escape.
    """
    line, separator, rest = data.partition(b"\r\n")
    if not separator or line.isascii():
        return None
    return _NON_ASCII.sub(lambda found: b"%%%02X" % found[0][0], line) + separator + rest


def spell_without_upgrade(
    method: bytes, url: bytes, version: str, headers: list[tuple[bytes, bytes]]
) -> bytes:
    """Return a request's head without its upgrade."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    for name, value in headers:
        match name.lower():
            case b"upgrade":
                continue
            case b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                kept = b", ".join(token for token in tokens if token.lower() != b"upgrade")
                lines.append(b"connection: " + kept)
            case _:
                lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
