"""Keys of a key server (JWKS).

A task fetches the document at startup and then periodically. A token with an unknown key triggers
one more fetch, shared by all requests that wait and at most every few seconds, so that forged key
ids do not reach the key server. Fetching runs in a thread.

While fetching fails, known keys stay valid. Without any, requests are answered 503.
"""

import asyncio
import logging
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final
from urllib.request import Request

from skep.model.errors import Unavailable
from skep.server.auth.tokens import KeySet, UnusableKey, document_keys, spelled

DOCUMENT_BYTES_MAX: Final = 1 << 20
CHUNK_BYTES: Final = 64 * 1024
PAUSE_S: Final = 10.0
"""Between two fetches for unknown keys, and after a failed fetch."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class KeyServer:
    """The keys of one key server, as of the last successful fetch."""

    fetch: Callable[[], bytes]
    """Fetches the document, in a thread; it may raise `OSError`."""
    refresh_s: float
    timeout_s: float
    on_change: Callable[[], None]
    now: Callable[[], float] = time.monotonic
    _keys: KeySet | None = field(default=None, init=False)
    _fetching: asyncio.Task[None] | None = field(default=None, init=False)
    _fetched_at: float = field(default=float("-inf"), init=False)  # or tried to
    _refresher: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def keys(self) -> KeySet:
        """The keys in force."""
        if self._keys is None:
            raise Unavailable("the keys that verify tokens could not be fetched yet")
        return self._keys

    def start(self) -> None:
        """Start fetching; does nothing if already started."""
        if self._refresher is not None:
            return
        self._refresher = asyncio.get_running_loop().create_task(self._refresh())

    async def stop(self) -> None:
        """Stop fetching."""
        tasks = [task for task in (self._refresher, self._fetching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def fetch_unknown(self) -> bool:
        """Fetch because of an unknown key; False if that was just done or timed out."""
        if self._fetching is None and self.now() - self._fetched_at < PAUSE_S:
            return False
        try:
            async with asyncio.timeout(self.timeout_s):
                await asyncio.shield(self._fetch_once())
        except TimeoutError:
            return False
        return True

    async def _refresh(self) -> None:
        while True:
            await asyncio.shield(self._fetch_once())
            await asyncio.sleep(self.refresh_s if self._keys is not None else PAUSE_S)

    def _fetch_once(self) -> asyncio.Task[None]:
        """Return the fetch in progress, or start one."""
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._renew())
        return self._fetching

    async def _renew(self) -> None:
        try:
            self._take(document_keys(await asyncio.to_thread(self.fetch)))
        except (OSError, HTTPException, UnusableKey, ValueError) as error:
            _log.warning("could not fetch keys; known keys stay valid: %s", error)
        finally:
            self._fetched_at = self.now()
            self._fetching = None

    def _take(self, keys: KeySet) -> None:
        known, self._keys = self._keys, keys
        if known is not None and spelled(known) != spelled(keys):
            _log.info("the keys of the key server changed", extra={"count": len(keys)})
            self.on_change()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Fetches the document from the configured URL only."""

    def redirect_request(self, *_args: Any, **_named: Any) -> None:
        """Follow no redirect."""


def fetch_document(url: str, timeout_s: float) -> bytes:
    """Fetch a URL, within limits of time and size."""
    deadline = time.monotonic() + timeout_s
    opener = urllib.request.build_opener(_NoRedirects)
    request = Request(url, headers={"accept": "application/json"})  # noqa: S310 (checked: http, https)
    document = bytearray()
    with opener.open(request, timeout=timeout_s) as answer:
        while chunk := answer.read1(CHUNK_BYTES):
            document += chunk
            if len(document) > DOCUMENT_BYTES_MAX:
                raise OSError(f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError("the document took too long to arrive")
    return bytes(document)
