"""Maintenance: pushes go to disk, or polls get nothing, until an operator ends it.

The modes are stored in the database, where every instance can see them. Each process reads them
once a second and when it hears of a change; a request only reads an attribute. While the database
is away the last known modes stand.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from skep.broker.cluster.changes import MAINTENANCE, ChangeAnnouncer
from skep.broker.polling_loop import end_task
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

READ_INTERVAL_S: Final = 1.0

Mode: TypeAlias = Literal["push", "pop"]


class Maintenance:
    """The modes of the whole installation, as this process knows them."""

    def __init__(self, caller: Caller, announcer: ChangeAnnouncer) -> None:
        self.is_push_on = False
        """Pushes are kept on disk."""
        self.is_pop_on = False
        """Polls get nothing."""
        self._sql: Final = Functions(caller)
        self._announcer: Final = announcer
        self._listeners: Final[list[Callable[[], None]]] = []
        self._reading: asyncio.Task[None] | None = None

    def listen(self, hear: Callable[[], None]) -> None:
        """Call `hear` whenever this process learns that a mode changed."""
        self._listeners.append(hear)

    async def start(self) -> None:
        """Read the modes, and follow them from now on."""
        await self.read()
        self._reading = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Stop following."""
        await end_task(self._reading)

    async def set_mode(self, mode: Mode, *, enabled: bool) -> None:
        """Switch a mode for all instances; each follows within a second."""
        await self._sql.value("set_maintenance", mode, enabled)
        self._announcer.announce(MAINTENANCE)
        await self.read()

    async def read(self) -> None:
        """Read the modes; while they cannot be read, what was known stands."""
        is_push_on, is_pop_on = await self._sql.row("read_maintenance")
        if (is_push_on, is_pop_on) != (self.is_push_on, self.is_pop_on):
            self.is_push_on, self.is_pop_on = is_push_on, is_pop_on
            _log.warning("maintenance: push %s, pop %s", _spell(is_push_on), _spell(is_pop_on))
            for hear in self._listeners:
                hear()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(READ_INTERVAL_S)
            try:
                await self.read()
            except SkepError as error:
                _log.debug("cannot read the maintenance modes: %s", error)


def _spell(is_on: bool) -> str:
    return "on" if is_on else "off"
