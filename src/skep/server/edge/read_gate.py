"""When a connection may read.

Three parties may object: uvicorn while an ASGI application has not consumed its body, the queue of
unanswered requests while it is full, and the transport while the client does not take its answers.
uvicorn's own flow control knows one flag, so that any of them would overrule the others.

The price of not reading: a client that hangs up meanwhile is noticed only afterwards.
"""

from asyncio import Transport

from uvicorn.protocols.http.flow_control import FlowControl


class ReadGate(FlowControl):
    """Reading goes on while nobody objects."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._is_body_unread = False
        self._is_queue_full = False

    def pause_reading(self) -> None:
        """Stop until the ASGI application has consumed what there is of its body."""
        self._is_body_unread = True
        self._apply()

    def resume_reading(self) -> None:
        """Go on with the ASGI body."""
        self._is_body_unread = False
        self._apply()

    def note_queue(self, *, is_full: bool) -> None:
        """Stop or go on because of the number of unanswered requests."""
        if is_full is not self._is_queue_full:
            self._is_queue_full = is_full
            self._apply()

    def pause_writing(self) -> None:
        """Stop until the client takes its answers."""
        super().pause_writing()
        self._apply()

    def resume_writing(self) -> None:
        """Go on: the client has taken its answers."""
        super().resume_writing()
        self._apply()

    def _apply(self) -> None:
        if self._is_body_unread or self._is_queue_full or self.write_paused:
            super().pause_reading()
        else:
            super().resume_reading()
