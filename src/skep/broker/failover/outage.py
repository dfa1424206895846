"""Whether the database is away, and who is told so instead of being kept waiting.

A connection that breaks is no outage: most come back at once, and requests outlast that. An outage
begins when no connection was left for `after_s`; it ends with the first one that is back.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from skep.engine.driver import Executor
from skep.model.errors import Unavailable

_log = logging.getLogger(__name__)


class Outage:
    """The state of the database as this process sees it."""

    def __init__(self, *, after_s: float) -> None:
        self.is_on = False
        self._after_s: Final = after_s
        self._timer: asyncio.TimerHandle | None = None
        self._limits: Final[set[asyncio.Timeout]] = set()

    def hear(self, is_connected: bool) -> None:
        """Hear that the last connection is gone, or that the first one is back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not is_connected:
            self._timer = asyncio.get_running_loop().call_later(self._after_s, self.begin)
        elif self.is_on:
            self.is_on = False
            _log.warning("the outage of the database is over")

    def begin(self) -> None:
        """The database is away: end what waits for it."""
        self.is_on = True
        _log.warning("the database is away; pushes are kept on disk until it is back")
        now = asyncio.get_running_loop().time()
        for limit in tuple(self._limits):
            limit.reschedule(now)

    async def run(self, executor: Executor, batch: Sequence[Any], *, is_repeated: bool) -> None:
        """Execute a call, unless and until the database is away.

        Raises:
            Unavailable: It is; whether the call was executed is not known.
            SkepError: As the executor.
        """
        if self.is_on:
            raise Unavailable
        try:
            async with asyncio.timeout(None) as limit:
                self._limits.add(limit)
                try:
                    await executor.execute(batch, is_repeated=is_repeated)
                finally:
                    self._limits.discard(limit)
        except TimeoutError as error:
            raise Unavailable from error


class CutShort:
    """An executor that gives up as soon as there is an outage, instead of waiting it out."""

    def __init__(self, executor: Executor, outage: Outage) -> None:
        self._executor: Final = executor
        self._outage: Final = outage

    async def execute(self, batch: Sequence[Any], *, is_repeated: bool) -> None:
        """Run one call; see `Outage.run`."""
        await self._outage.run(self._executor, batch, is_repeated=is_repeated)
