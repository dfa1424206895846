"""The order of answers on one connection.

HTTP/1.1 clients may send requests before the answers to earlier ones; the answers must keep the
order of the requests. `TurnQueue` holds the unanswered requests of a connection. Hot requests run
as soon as they are read, and their answers are held back until their turn. An ASGI request writes
its answer itself, so it runs only in its turn, and later requests wait until it has finished.

With one request at a time, as most clients send them, the connection uses the queue as a plain
deque, and nothing here runs.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from skep.server.hot.exchange import Answer, Exchange, Head

if TYPE_CHECKING:
    from skep.server.edge.protocol import FastPathProtocol


_UNREAD: Final = Head(b"", b"", b"", [], None, keep_alive=False)
"""The head of a request that could not be read."""


@dataclass(slots=True, eq=False)
class AsgiTurn:
    """An ASGI request that waits for its turn, or has it."""

    cycle: RequestResponseCycle
    app: ASGI3Application | None  # None once it was started

    def abort(self) -> None:
        """Tell the application that its client disconnected."""
        if not self.cycle.response_complete:
            self.cycle.disconnected = True
        self.cycle.message_event.set()


class TurnQueue(deque[Exchange | AsgiTurn]):
    """The unanswered requests of a connection, oldest first."""

    __slots__ = ("_connection", "asgi_count")

    def __init__(self, connection: "FastPathProtocol") -> None:
        super().__init__()
        self._connection = connection
        self.asgi_count = 0

    def add_asgi(self, turn: AsgiTurn) -> None:
        """Queue an ASGI request whose head was read, and start it if it is first."""
        self.append(turn)
        self.asgi_count += 1
        self.advance()

    def add_answered(self, answer: Answer) -> None:
        """Queue the answer to a request that cannot run; it is the last of the connection."""
        refusal = Exchange(self._connection, _UNREAD, None, is_answered=True, held_answer=answer)
        self.append(refusal)
        self.advance()

    def withdraw_asgi(self) -> bool:
        """Take back the ASGI request that was read last, unless it was started."""
        turn = self[-1] if self else None
        if not isinstance(turn, AsgiTurn) or turn.app is None:
            return False
        self.pop()
        self.asgi_count -= 1
        return True

    def finish_asgi(self) -> None:
        """Continue after the ASGI request at the front has been answered."""
        turn = self.popleft()
        assert isinstance(turn, AsgiTurn), "only the request at the front may write"
        self.asgi_count -= 1
        for behind in list(self):
            if isinstance(behind, AsgiTurn):
                break
            behind.run()
        self.advance()

    def abort(self) -> None:
        """End every request: the client disconnected."""
        turns = list(self)
        self.clear()
        for turn in turns:
            turn.abort()

    def advance(self) -> None:
        """Write the answers whose turn has come; start the ASGI request that comes next."""
        while self and not self._connection.transport.is_closing():
            turn = self[0]
            if isinstance(turn, AsgiTurn):
                if turn.app is not None:
                    app, turn.app = turn.app, None
                    self._connection.start_asgi(turn.cycle, app)
                break
            if turn.held_answer is None:
                break
            self.popleft()
            self._connection.write_answer(turn.held_answer, keep_alive=turn.head.keep_alive)
        self._connection.note_queue_length(len(self))
