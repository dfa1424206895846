"""Send notices to another instance by HTTP, for networks that do not carry datagrams.

One request to a peer is under way at a time; what comes up meanwhile goes with the next one, each
queue once. A request that fails loses its hints, which the peer's sweeps make up for, but not its
changes; the pause before the next grows with each failure. No caller waits for a peer, and what is
kept for one is bounded.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final
from urllib.parse import urlsplit

import msgspec

from skep.broker.cluster.notices import Change, Notice, split_notices
from skep.broker.polling_loop import end_task

_log = logging.getLogger(__name__)

NOTIFY_PATH: Final = "/internal/api/notify"
STAMP_HEADER: Final = "skep-peer-stamp"

REQUEST_S: Final = 2.0
PAUSE_S: Final = 0.01
"""Between two requests to a peer; hints gather for so long."""

PAUSE_S_MAX: Final = 10.0
WAKES_KEPT_MAX: Final = 10_000
CHANGES_KEPT_MAX: Final = 1_000
STATUS_LINE_BYTES_MAX: Final = 1_024


Sign = Callable[[Notice], tuple[bytes, str]]
"""Returns a notice as the body of a request, and the stamp that goes into its header."""


class RequestPeer(msgspec.Struct, rename="camel", kw_only=True):
    """The requests to one peer."""

    url: str
    sent: int
    failed: int
    hints_dropped: int
    last_error: str | None


class PeerFailed(Exception):
    """A peer did not accept a notice."""


class PeerRequests:
    """The requests to one peer."""

    def __init__(self, url: str, sign: Sign) -> None:
        self.stats: Final = RequestPeer(url=url, sent=0, failed=0, hints_dropped=0, last_error=None)
        self._sign: Final = sign
        self._wake: dict[int, int] = {}
        self._changed: dict[Change, None] = {}
        self._failures = 0
        self._teller: asyncio.Task[None] | None = None

    def tell(self, wake: Iterable[tuple[int, int]], changed: Iterable[Change] = ()) -> None:
        """Queue hints and changes for this peer."""
        self._changed.update(dict.fromkeys(changed))
        while len(self._changed) > CHANGES_KEPT_MAX:
            del self._changed[next(iter(self._changed))]
        for queue_id, partition_count in wake:
            if queue_id in self._wake or len(self._wake) < WAKES_KEPT_MAX:
                self._wake[queue_id] = self._wake.get(queue_id, 0) + partition_count
            else:
                self.stats.hints_dropped += 1
        if self._teller is None and (self._wake or self._changed):
            self._teller = asyncio.get_running_loop().create_task(self._tell_until_done())

    async def stop(self) -> None:
        """Give up what is not sent yet."""
        await end_task(self._teller)

    async def _tell_until_done(self) -> None:
        try:
            while self._wake or self._changed:
                wake, changed = self._wake, self._changed
                self._wake, self._changed = {}, {}
                for notice in split_notices(
                    list(wake.items()),
                    list(changed),
                    wakes_max=WAKES_KEPT_MAX,
                    changes_max=CHANGES_KEPT_MAX,
                ):
                    await self._tell_one(notice)
                await asyncio.sleep(min(PAUSE_S * 2**self._failures, PAUSE_S_MAX))
        finally:
            self._teller = None

    async def _tell_one(self, notice: Notice) -> None:
        body, stamp = self._sign(notice)
        try:
            async with asyncio.timeout(REQUEST_S):
                await _post(self.stats.url + NOTIFY_PATH, body, stamp)
        except (OSError, EOFError, PeerFailed, asyncio.LimitOverrunError) as error:
            self._failed(notice, error)
            return
        if self._failures:
            _log.info("peer %s is reachable again", self.stats.url)
        self._failures = 0
        self.stats.sent += 1

    def _failed(self, notice: Notice, error: Exception) -> None:
        self.stats.failed += 1
        self.stats.hints_dropped += len(notice.wake)
        self._failures = min(self._failures + 1, 16)
        self.stats.last_error = str(error) or type(error).__name__
        # The order of changes does not matter.
        self._changed.update(dict.fromkeys(notice.changed))
        if self._failures == 1:
            _log.warning(
                "could not send a notice to peer %s: %s", self.stats.url, self.stats.last_error
            )


@cache
def trusted_certificates() -> ssl.SSLContext:
    """Return what a peer's certificate is checked with: the system's, read once per process.

    Reading takes up to 100 ms, so it is done beside the event loop.
    """
    return ssl.create_default_context()


async def _post(url: str, body: bytes, stamp: str) -> None:
    """Send a request on a connection of its own and make sure that it was accepted.

    Raises:
        PeerFailed: It was answered, but not with success.
        OSError, EOFError, LimitOverrunError: It was not answered.
    """
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if is_secure else 80),
        ssl=await asyncio.to_thread(trusted_certificates) if is_secure else None,
        limit=STATUS_LINE_BYTES_MAX,
    )
    try:
        head = (
            f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"{STAMP_HEADER}: {stamp}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        status = (await reader.readuntil(b"\r\n")).split(b" ", 2)[1:2]
    finally:
        writer.transport.abort()
    if status != [b"200"]:
        raise PeerFailed(f"it answered {b''.join(status).decode(errors='replace') or 'nonsense'}")
