"""HTTP/1.1 as bytes: requests rendered, answers cut out of what arrives.

Nothing here touches a socket; `io_async` and `io_blocking` do, and share this. It knows what a
broker and the proxies before one send: a length, chunks, or everything until the connection ends.
Bodies are never compressed, because none is asked for. Why there is no HTTP library: ADR 0024.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

_HEAD_END: Final = b"\r\n\r\n"
HEAD_BYTES_MAX: Final = 64 * 1024
"""A head larger than this is not one of a broker."""


class BadAnswer(ConnectionError):
    """What arrived is not an HTTP answer; the connection cannot be used any more."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One response."""

    status: int
    head: bytes
    """Status line and header lines, as they came."""
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks to wait, if it names a number of seconds."""
        text = _value(self.head, b"\r\nretry-after:")
        try:
            seconds = float(text) if text else None
        except ValueError:
            return None
        return seconds if seconds is not None and 0 <= seconds < float("inf") else None


def render_request(
    method: str, target: str, *, host: str, headers: bytes, body: bytes | None
) -> bytes:
    """Return the bytes of a request; `headers` are further lines, each ending in CR LF."""
    opening = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n".encode()
    if body is None:
        return b"%b%b\r\n" % (opening, headers)
    return b"%b%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        opening,
        headers,
        len(body),
        body,
    )


def render_header(name: str, value: str) -> bytes:
    """Return a header line.

    Raises:
        ValueError: The value would break out of its line.
    """
    if "\r" in value or "\n" in value:
        raise ValueError(f"the header {name} contains a line break")
    return f"{name}: {value}\r\n".encode("latin-1")


class Head(NamedTuple):
    """The beginning of an answer, understood."""

    text: bytes
    """As it came."""
    status: int
    body_bytes: int | None
    """How long the body is; None if it is as long as it turns out to be."""
    is_chunked: bool
    is_reusable: bool
    """Whether the connection may carry another request after this answer."""


# Answers of equal length and second begin alike, and most of them come as many.
@lru_cache(maxsize=32)
def read_head(head: bytes) -> Head:
    """Understand status line and header lines.

    Raises:
        BadAnswer: They are none.
    """
    status = head[9:12]
    if not head.startswith(b"HTTP/1."):
        raise BadAnswer("the answer is not HTTP/1")
    if not status.isdigit():
        raise BadAnswer("the answer has no status")
    is_chunked = _says(head, b"transfer-encoding", b"chunked")
    body_bytes = None if is_chunked else _body_bytes(head, status)
    is_reusable = (
        head.startswith(b"HTTP/1.1")
        and not _says(head, b"connection", b"close")
        and (is_chunked or body_bytes is not None)
    )
    return Head(head, int(status), body_bytes, is_chunked, is_reusable)


def _body_bytes(head: bytes, status: bytes) -> int | None:
    text = _value(head, b"\r\ncontent-length:")
    if text is None:
        # Only these have no body without saying so; others last until the connection ends.
        return 0 if status in {b"204", b"304"} else None
    if not text.isdigit():
        raise BadAnswer(f"content-length is {text.decode('latin-1')}")
    return int(text)


class AnswerReader:
    """Puts together one answer at a time from the bytes of a keep-alive connection."""

    __slots__ = ("_chunks", "_head", "_parts", "_received", "_wanted", "is_reusable")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._received = 0
        self._wanted: int | None = None
        self._head: Head | None = None
        self._chunks: _ChunkReader | None = None
        self.is_reusable = True
        """Whether the connection may carry another request after this answer."""

    def feed(self, data: bytes) -> Answer | None:
        """Take what arrived; return the answer once it is complete.

        Raises:
            BadAnswer: It is none, or more arrived than was asked for.
        """
        if self._head is None:
            data = self._read_head(data)
            if self._head is None:
                return None
            if len(data) == self._wanted:  # as most answers come: in one piece
                return self._finish(data)
        if self._chunks is not None:
            body = self._chunks.feed(data)
            return None if body is None else self._finish(body)
        self._parts.append(data)
        self._received += len(data)
        if self._wanted is None or self._received < self._wanted:
            return None
        if self._received > self._wanted:
            raise BadAnswer("more arrived than the answer's length")
        return self._finish(b"".join(self._parts))

    def end(self) -> Answer | None:
        """Say that the connection ended; it completes an answer that has no length."""
        if self._head is None or self._chunks is not None or self._wanted is not None:
            return None
        return self._finish(b"".join(self._parts))

    def _read_head(self, data: bytes) -> bytes:
        if self._parts:
            data = b"".join(self._parts) + data
        length = data.find(_HEAD_END)
        if length < 0:
            if len(data) > HEAD_BYTES_MAX:
                raise BadAnswer("the head of the answer does not end")
            self._parts = [data]
            return b""
        self._parts = []
        self._head = head = read_head(data[:length])
        self._wanted = head.body_bytes
        self.is_reusable = head.is_reusable
        if head.is_chunked:
            self._chunks = _ChunkReader()
        return data[length + 4 :]

    def _finish(self, body: bytes) -> Answer:
        head = self._head
        assert head is not None
        self._parts = []
        self._received = 0
        self._wanted = None
        self._head = None
        self._chunks = None
        return Answer(head.status, head.text, body)


class _ChunkReader:
    """Joins the chunks of a body whose length was not known when it began."""

    __slots__ = ("_chunks", "_pending")

    def __init__(self) -> None:
        self._pending = b""
        self._chunks: list[bytes] = []

    def feed(self, data: bytes) -> bytes | None:
        self._pending += data
        while (line_end := self._pending.find(b"\r\n")) >= 0:
            size = _chunk_size(self._pending[:line_end])
            end = line_end + 2 + size
            if size == 0:
                return self._end_of_trailers(line_end)
            if len(self._pending) < end + 2:
                return None
            self._chunks.append(self._pending[line_end + 2 : end])
            self._pending = self._pending[end + 2 :]
        return None

    def _end_of_trailers(self, line_end: int) -> bytes | None:
        """Return the body once the empty line behind the last chunk is there."""
        rest = self._pending[line_end:]
        if not rest.endswith(_HEAD_END):
            return None
        return b"".join(self._chunks)


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.split(b";")[0], 16)
    except ValueError:
        raise BadAnswer("a chunk has no size") from None


def _says(head: bytes, name: bytes, word: bytes) -> bool:
    value = _value(head, b"\r\n%b:" % name)
    return value is not None and value.lower() == word


def _value(head: bytes, mark: bytes) -> bytes | None:
    """Return what follows the beginning of a header line: the line break, the name, a colon."""
    start = head.lower().find(mark)
    if start < 0:
        return None
    start += len(mark)
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()
