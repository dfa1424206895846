"""Recognise requests whose head was parsed before.

A client that keeps its connection sends few heads, and repeats them byte for byte but for the
content length. What the parser made of one holds for its repetitions, if such a request arrives
whole and alone in one read.
"""

import re
from typing import Final

from skep.server.hot.exchange import Head

HEADS_MAX: Final = 4
"""Heads that a connection remembers: those of its last requests."""

LESSONS_MAX: Final = 16
"""Heads that are remembered in the life of a connection. Where each has an id of its own, none is
worth it."""

HEAD_BYTES_MAX: Final = 4 * 1024
"""The longest head that is remembered, to bound what a connection holds."""

_DIGITS_MAX: Final = 10
_BLANK_LINE: Final = b"\r\n\r\n"
_content_lengths = re.compile(rb"(?i)\r\ncontent-length: *(\d+)(?=\r\n|\Z)").finditer


class KnownHeads:
    """The last heads of one connection, each by what stands before and behind its length."""

    __slots__ = ("_heads", "_lessons_left", "routes_version")

    def __init__(self, routes_version: int = 0) -> None:
        self.routes_version = routes_version
        """Of the routes that chose the handlers of these heads."""
        self._heads: tuple[tuple[bytes, bytes, Head], ...] = ()
        self._lessons_left = LESSONS_MAX

    def find(self, read: bytes) -> tuple[Head, bytes] | None:
        """Return head and body of a read that is exactly one request with a known head."""
        for begin, end, head in self._heads:
            if not read.startswith(begin):
                continue
            at = len(begin)
            if not end:
                if len(read) == at:
                    return head, b""
                continue
            end_at = read.find(b"\r", at, at + _DIGITS_MAX)
            length = read[at:end_at]
            if end_at > 0 and length.isdigit() and read.startswith(end, end_at):
                body_at = end_at + len(end)
                if len(read) - body_at == int(length):
                    return head, read[body_at:]
        return None

    def learn(self, read: bytes, head: Head, body: bytes) -> None:
        """Remember the head of a request, if `read` is exactly its bytes."""
        if not self._lessons_left:
            return
        self._lessons_left -= 1
        text, blank_line, rest = read.partition(_BLANK_LINE)
        if not blank_line or rest != body or len(text) > HEAD_BYTES_MAX:
            return
        lengths = list(_content_lengths(text))
        if not lengths and not body:
            known = read, b"", head
        elif len(lengths) == 1 and int(lengths[0][1]) == len(body):
            known = text[: lengths[0].start(1)], text[lengths[0].end(1) :] + blank_line, head
        else:
            return
        self._heads = (known, *self._heads[: HEADS_MAX - 1])
