"""LISTEN for notifications on a separate connection.

A notification is only a hint: users of this also check now and then. Notifications are lost while
there is no connection, and a transaction pooler delivers none.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from skep.db.access.connection import Connection, connect
from skep.db.access.errors import CONNECTION_FAILURES

_log = logging.getLogger(__name__)

CHECK_S: Final = 3.0
"""How often to check whether listening is still wanted."""

PROBE_S: Final = 10.0
"""How often to probe the session, because a silently cut one hears nothing."""

PROBE_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 5.0
ABANDON_S: Final = 2.0
RECONNECT_S: Final = 0.5


class Listener:
    """Listens on channels, and connects again when the connection breaks."""

    def __init__(
        self,
        dsn: str,
        channels: Mapping[str, Callable[[str], None]],
        *,
        on_connect: Callable[[], None],
        application_name: str = "skep-listen",
    ) -> None:
        """Call `on_connect` whenever listening begins: earlier notifications were missed."""
        self._dsn: Final = dsn
        self._channels: Final = dict(channels)
        self._on_connect: Final = on_connect
        self._settings: Final = {"application_name": application_name}
        self._task: asyncio.Task[None] | None = None
        self.is_listening: Final = asyncio.Event()

    def start(self) -> None:
        """Begin to listen, until `stop`."""
        self._task = asyncio.get_running_loop().create_task(self.listen_while(lambda: True))

    async def stop(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def listen_while(self, is_wanted: Callable[[], bool]) -> None:
        """Listen while it is wanted."""
        while is_wanted():
            try:
                await self._listen_while(is_wanted)
            except CONNECTION_FAILURES as error:
                _log.debug("not listening, trying again: %s", error)
                await asyncio.sleep(RECONNECT_S)

    async def _listen_while(self, is_wanted: Callable[[], bool]) -> None:
        opening = asyncio.ensure_future(
            connect(self._dsn, timeout_s=CONNECT_TIMEOUT_S, server_settings=self._settings)
        )
        try:
            connection = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await _abandon(opening)
            raise
        try:
            has_ended = asyncio.Event()
            connection.add_termination_listener(lambda *_: has_ended.set())
            for channel, hear in self._channels.items():
                await connection.add_listener(channel, _payload_to(hear))
            self.is_listening.set()
            self._on_connect()
            await _watch(connection, has_ended, is_wanted)
        finally:
            self.is_listening.clear()
            connection.terminate()


async def _abandon(opening: "asyncio.Future[Connection]") -> None:
    """End a connection that is being opened.

    Cancelled in the middle of it, asyncpg leaves a future behind that complains on stderr.
    """
    done, _ = await asyncio.wait((opening,), timeout=ABANDON_S)
    if not done:
        opening.cancel()
    elif opening.exception() is None:
        opening.result().terminate()


def _payload_to(hear: Callable[[str], None]) -> Callable[..., None]:
    def heard(*notification: object) -> None:
        try:
            hear(str(notification[-1]))
        except Exception:  # noqa: BLE001 (one hint must not cost the connection)
            _log.exception("a notification could not be handled")

    return heard


async def _watch(
    connection: Connection, has_ended: asyncio.Event, is_wanted: Callable[[], bool]
) -> None:
    """Return when listening is no longer wanted.

    Raises:
        OSError: The connection has broken.
    """
    loop = asyncio.get_running_loop()
    probe_at = loop.time() + PROBE_S
    while is_wanted():
        try:
            async with asyncio.timeout(CHECK_S):
                await has_ended.wait()
        except TimeoutError:
            pass
        else:
            raise ConnectionResetError("the session has ended")
        if loop.time() >= probe_at:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await connection.execute("select 1")
            probe_at = loop.time() + PROBE_S
