"""One connection that listens, and comes back when it breaks.

Notifications are hints. What was sent while there was no connection is lost, so whoever listens is
told when the connection is there (again) and must look by itself then; and must look now and then
anyway.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import asyncpg

from skep.db.connection import connect

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 5.0
RECONNECT_PAUSE_S: Final = 0.5
CHECK_S: Final = 10.0
"""How often a quiet connection is asked whether it is alive: the network tells nobody."""

_FAILURES: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


class Listener:
    """Listens to channels for as long as it runs."""

    def __init__(
        self,
        dsn: str,
        channels: Mapping[str, Callable[[str], None]],
        *,
        on_connect: Callable[[], None],
        application_name: str = "skep-listen",
    ) -> None:
        self._dsn: Final = dsn
        self._channels: Final = dict(channels)
        self._on_connect: Final = on_connect
        self._settings: Final = {"application_name": application_name}
        self._task: asyncio.Task[None] | None = None
        self.is_listening: Final = asyncio.Event()

    def start(self) -> None:
        """Begin to connect."""
        self._task = asyncio.get_running_loop().create_task(self._listen_again_and_again())

    async def stop(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _listen_again_and_again(self) -> None:
        while True:
            try:
                await self._listen()
            except _FAILURES as error:
                _log.debug("the listening connection broke: %s", error)
            self.is_listening.clear()
            await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _listen(self) -> None:
        connection = cast(
            "Any",
            await connect(self._dsn, timeout_s=CONNECT_TIMEOUT_S, server_settings=self._settings),
        )
        try:
            is_broken = asyncio.Event()

            def on_end(_connection: object) -> None:
                is_broken.set()

            connection.add_termination_listener(on_end)
            for channel, hear in self._channels.items():
                await connection.add_listener(channel, _callback(hear))
            self.is_listening.set()
            self._on_connect()
            while not await _is_set_within(is_broken, CHECK_S):
                await connection.fetchval("select 1", timeout=CONNECT_TIMEOUT_S)
        finally:
            connection.terminate()


def _callback(hear: Callable[[str], None]) -> Callable[[object, int, str, object], None]:
    def on_notification(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        try:
            hear(str(payload))
        except Exception:  # noqa: BLE001 (one hint must not cost the connection)
            _log.exception("a notification could not be handled")

    return on_notification


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
