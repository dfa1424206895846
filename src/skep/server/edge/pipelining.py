"""The order of answers on one connection.

HTTP/1.1 clients may send requests before the answers to earlier ones; the answers must keep the
order of the requests. `TurnQueue` holds the unanswered requests of a connection. Hot requests run
as soon as they are read, and their answers are held back until their turn. An ASGI request writes
its answer itself, so it runs only in its turn, and later requests wait until it has finished.

The connection reads, writes and closes, and limits the queue by `note_queue_length`.
"""

import logging
from asyncio import Transport
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from skep.model.errors import Defect
from skep.server.hot.exchange import HotHandler, run_handler

if TYPE_CHECKING:
    from skep.telemetry.meters import RouteMeter

log = logging.getLogger(__name__)

Answer: TypeAlias = tuple[int, bytes, bytes]
"""Status, body, additional header lines."""


class Connection(Protocol):
    """The connection of a queue."""

    transport: Transport

    def write_answer(self, answer: Answer, *, keep_alive: bool) -> None:
        """Write an answer whose turn has come."""
        ...

    def start_asgi(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Run an ASGI request whose turn has come."""
        ...

    def note_queue_length(self, length: int) -> None:
        """Pause or resume reading, and start the keep-alive timer at zero."""
        ...


class HotExchange:
    """The `Exchange` of a fast-path connection."""

    __slots__ = (
        "_abort_callback",
        "_turns",
        "body",
        "handler",
        "headers",
        "held_answer",
        "is_answered",
        "keep_alive",
        "method",
        "path",
        "query",
        "timing",
    )

    def __init__(
        self,
        turns: "TurnQueue",
        method: bytes,
        path: bytes,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        handler: HotHandler | None,
        *,
        keep_alive: bool,
    ) -> None:
        self._turns: TurnQueue | None = turns
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.handler = handler  # None once it was called
        self.keep_alive = keep_alive
        self.body = b""
        self.is_answered = False
        self.held_answer: Answer | None = None
        self.timing: tuple[RouteMeter, float] | None = None
        self._abort_callback: Callable[[], None] | None = None

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header. `name` is given in lower case."""
        for its_name, value in self.headers:
            if its_name.lower() == name:
                return value
        return None

    def respond(self, status: int, body: bytes = b"", *, headers: bytes = b"") -> bool:
        """Answer; see `Exchange.respond`."""
        if self.is_answered:
            raise Defect("An exchange was answered twice.")
        self.is_answered = True
        # Break the reference cycle: the cycle collector's pauses would delay every other request.
        self._abort_callback = None
        if self.timing is not None:
            self.timing[0].note(status, self.timing[1])
        turns = self._turns
        return turns is not None and turns.take_answer(self, (status, body, headers))

    def when_aborted(self, callback: Callable[[], None]) -> None:
        """Register a callback; see `Exchange.when_aborted`."""
        if self._turns is None:
            callback()
        else:
            self._abort_callback = callback

    def abort(self) -> None:
        """End the exchange: the connection is lost."""
        self._turns = None
        callback, self._abort_callback = self._abort_callback, None
        if callback is None or self.is_answered:
            return
        try:
            callback()
        except Exception:
            # The other exchanges of this connection must be aborted, too.
            log.exception("abort callback failed for %r", self.path)


class AsgiTurn:
    """An ASGI request that waits for its turn, or has it."""

    __slots__ = ("app", "cycle")

    def __init__(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.cycle = cycle
        self.app: ASGI3Application | None = app  # None once it was started

    def abort(self) -> None:
        """Tell the application that its client disconnected."""
        if not self.cycle.response_complete:
            self.cycle.disconnected = True
        self.cycle.message_event.set()


class TurnQueue:
    """The unanswered requests of a connection, oldest first."""

    __slots__ = ("_asgi_count", "_connection", "_turns")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._turns: deque[HotExchange | AsgiTurn] = deque()
        self._asgi_count = 0

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def last(self) -> HotExchange | AsgiTurn | None:
        """The request that was read last."""
        return self._turns[-1] if self._turns else None

    def add_hot(self, exchange: HotExchange) -> None:
        """Queue a complete hot request, and run it unless it is behind an ASGI request."""
        turns = self._turns
        turns.append(exchange)
        if self._asgi_count == 0:
            _start(exchange)
        if len(turns) > 1:
            self._connection.note_queue_length(len(turns))

    def add_asgi(self, turn: AsgiTurn) -> None:
        """Queue an ASGI request whose head was read, and start it if it is first."""
        self._turns.append(turn)
        self._asgi_count += 1
        self._advance()

    def add_answered(self, answer: Answer) -> None:
        """Queue the answer to a request that cannot run; it is the last of the connection."""
        refusal = HotExchange(self, b"", b"", b"", [], None, keep_alive=False)
        refusal.is_answered = True
        refusal.held_answer = answer
        self._turns.append(refusal)
        self._advance()

    def withdraw_asgi(self) -> bool:
        """Take back the ASGI request that was read last, unless it was started."""
        turn = self.last
        if not isinstance(turn, AsgiTurn) or turn.app is None:
            return False
        self._turns.pop()
        self._asgi_count -= 1
        return True

    def take_answer(self, exchange: HotExchange, answer: Answer) -> bool:
        """Write an answer, or hold it until its turn. False if the client disconnected."""
        if self._connection.transport.is_closing():
            return False
        turns = self._turns
        if turns[0] is not exchange:
            exchange.held_answer = answer
            return True
        turns.popleft()
        self._connection.write_answer(answer, keep_alive=exchange.keep_alive)
        if turns:
            self._advance()
        else:
            self._connection.note_queue_length(0)
        return True

    def finish_asgi(self) -> None:
        """Continue after the ASGI request at the front has been answered."""
        turn = self._turns.popleft()
        assert isinstance(turn, AsgiTurn), "only the request at the front may write"
        self._asgi_count -= 1
        for behind in list(self._turns):
            if isinstance(behind, AsgiTurn):
                break
            _start(behind)
        self._advance()

    def abort(self) -> None:
        """End every request: the client disconnected."""
        turns = list(self._turns)
        self._turns.clear()
        for turn in turns:
            turn.abort()

    def _advance(self) -> None:
        """Write the answers whose turn has come; start the ASGI request that comes next."""
        turns = self._turns
        while turns and not self._connection.transport.is_closing():
            turn = turns[0]
            if isinstance(turn, AsgiTurn):
                if turn.app is not None:
                    app, turn.app = turn.app, None
                    self._connection.start_asgi(turn.cycle, app)
                break
            if turn.held_answer is None:
                break
            turns.popleft()
            self._connection.write_answer(turn.held_answer, keep_alive=turn.keep_alive)
        self._connection.note_queue_length(len(turns))


def _start(exchange: HotExchange) -> None:
    handler, exchange.handler = exchange.handler, None
    if handler is not None:
        run_handler(handler, exchange)
