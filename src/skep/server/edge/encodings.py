"""Accept request bodies that are compressed with gzip or zstd.

A body is decompressed piece by piece as the application reads it, so that one which the application
refuses by its head costs nothing. The limit of bodies holds before and after: a small body that
becomes a huge one is refused as soon as it passes the limit. Other content encodings are answered
415 with a list of those that are accepted; zstd is among them if `zstandard` is installed.

A compressed request passes by the application, also on hot routes.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import Final, Protocol, cast

from litestar.types import ASGIApp, HTTPScope, Message, Receive, ReceiveMessage, Scope, Send

from skep.model.errors import BadRequest, PayloadTooLarge, SkepError
from skep.server.hot.asgi import send_answer
from skep.server.problems import problem, problem_of

try:
    import zstandard
except ImportError:  # the extra `zstd` is not installed
    zstandard = None

SLICE_BYTES: Final = 512
"""Input of one step. zstd makes at most 128 KiB of four bytes, so a step makes at most 16 MiB."""

TURN_BYTES: Final = 1 << 20
"""Output after which other requests have their turn."""

ZSTD_WINDOW_BYTES_MAX: Final = 8 << 20
"""RFC 9659: the largest window of zstd as a content encoding."""

_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS

_DAMAGES: Final = (zlib.error,) if zstandard is None else (zlib.error, zstandard.ZstdError)


class Decoder(Protocol):
    """Decompresses one stream."""

    @property
    def eof(self) -> bool:
        """Whether the stream is complete."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What follows the stream."""
        ...

    def decompress(self, data: bytes, /) -> bytes:
        """Return what became of the next bytes."""
        ...


def _gzip() -> Decoder:
    return zlib.decompressobj(_GZIP_FORMAT)


def _zstd() -> Decoder:
    assert zstandard is not None
    return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX).decompressobj()


_DECODERS: Final[dict[str, Callable[[], Decoder]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    **({} if zstandard is None else {"zstd": _zstd}),
}
ACCEPTED: Final = ", ".join(name for name in _DECODERS if name != "x-gzip")


class DecodedBody:
    """Receives a compressed body as if it had not been."""

    def __init__(self, receive: Receive, coding: str, *, bytes_max: int) -> None:
        self._receive: Final = receive
        self._coding: Final = coding
        self._bytes_max: Final = bytes_max
        self._decoder: Final = _DECODERS[coding]()
        self._read_bytes = 0
        self._made_bytes = 0
        self._is_complete = False

    async def __call__(self) -> ReceiveMessage:
        """Return the next event of the request."""
        event = await self._receive()
        if event["type"] != "http.request" or self._is_complete:
            return event
        self._is_complete = not event.get("more_body", False)
        body = await self._decode(event.get("body", b""))
        if self._is_complete and self._read_bytes and not self._decoder.eof:
            raise BadRequest(f"the body ends in the middle of its {self._coding} data")
        event["body"] = body
        return event

    async def _decode(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        turn_bytes = 0
        for start in range(0, len(data), SLICE_BYTES):
            piece = self._step(data[start : start + SLICE_BYTES])
            pieces.append(piece)
            turn_bytes += len(piece)
            if turn_bytes > TURN_BYTES:
                turn_bytes = 0
                await asyncio.sleep(0)
        return b"".join(pieces)

    def _step(self, data: bytes) -> bytes:
        decoder = self._decoder
        if decoder.eof:
            raise BadRequest(f"the body goes on after its {self._coding} data")
        try:
            piece = decoder.decompress(data)
        except _DAMAGES as error:
            raise BadRequest(f"the body is not valid {self._coding}: {error}") from error
        if decoder.unused_data:
            raise BadRequest(f"the body goes on after its {self._coding} data")
        self._read_bytes += len(data)
        self._made_bytes += len(piece)
        if max(self._read_bytes, self._made_bytes) > self._bytes_max:
            raise PayloadTooLarge(f"The request body is larger than {self._bytes_max} bytes.")
        return piece


def decoding_bodies(app: ASGIApp, *, bytes_max: int) -> ASGIApp:
    """Return an application that gets compressed bodies decompressed."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        coding = _coding(cast("HTTPScope", scope)) if scope["type"] == "http" else ""
        if not coding:
            await app(scope, receive, send)
            return
        if coding not in _DECODERS:
            text = f"The content encoding {coding!r} is not supported; use {ACCEPTED} or none."
            accept = b"accept-encoding: %b\r\n" % ACCEPTED.encode()
            refusal = problem(415, "unsupported_encoding", text, headers=accept)
            await send_answer(send, refusal)
            return
        is_begun = False

        async def answer(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await app(_decoded(scope), DecodedBody(receive, coding, bytes_max=bytes_max), answer)
        except SkepError as error:
            if is_begun:
                raise
            await send_answer(send, problem_of(error))

    return run


def _coding(scope: HTTPScope) -> str:
    """Return the content encoding of a request; empty if there is none."""
    values = [
        value.decode("latin-1") for name, value in scope["headers"] if name == b"content-encoding"
    ]
    codings = [each.strip().lower() for value in values for each in value.split(",")]
    return ", ".join(each for each in codings if each not in {"", "identity"})


def _decoded(scope: Scope) -> Scope:
    """Return the scope of the request without what only describes the compressed body."""
    headers = cast("HTTPScope", scope)["headers"]
    kept = [each for each in headers if each[0] not in {b"content-encoding", b"content-length"}]
    return cast("Scope", {**scope, "headers": kept})
