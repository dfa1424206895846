"""Whether the database is away. Calls under way then end at once instead of waiting it out.

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
        self.timeouts: Final[set[asyncio.Timeout]] = set()
        """Of calls under way, which end when an outage begins."""
        self._after_s: Final = after_s
        self._timer: asyncio.TimerHandle | None = None

    def hear(self, is_connected: bool) -> None:
        """Note that the last connection is gone, or that the first one is back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not is_connected:
            self._timer = asyncio.get_running_loop().call_later(self._after_s, self.begin)
        elif self.is_on:
            self.is_on = False
            _log.warning("the outage of the database is over")

    def begin(self) -> None:
        """Begin an outage, and end the calls under way."""
        self.is_on = True
        _log.warning("the database is away; pushes are kept on disk until it is back")
        now = asyncio.get_running_loop().time()
        for timeout in tuple(self.timeouts):
            timeout.reschedule(now)


class CutShort:
    """An executor that gives up as soon as there is an outage, instead of waiting it out."""

    def __init__(self, executor: Executor, outage: Outage) -> None:
        self._executor: Final = executor
        self._outage: Final = outage

    async def execute(self, batch: Sequence[Any], *, is_repeated: bool) -> None:
        """Run one call, unless and until the database is away.

        Raises:
            Unavailable: It is; whether the call was executed is not known.
            SkepError: As the executor.
        """
        if self._outage.is_on:
            raise Unavailable
        timeouts = self._outage.timeouts
        try:
            async with asyncio.timeout(None) as timeout:
                timeouts.add(timeout)
                try:
                    await self._executor.execute(batch, is_repeated=is_repeated)
                finally:
                    timeouts.discard(timeout)
        except TimeoutError as error:
            raise Unavailable from error
