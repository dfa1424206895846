"""Whether the database is away. Calls under way then end at once instead of waiting it out.

A connection that breaks is no outage: most come back at once, and requests outlast that. An outage
begins when no connection was left for `after_s`; it ends with the first one that is back.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from skep.engine.driver import Execute
from skep.model.errors import Unavailable

_log = logging.getLogger(__name__)


class Outage:
    """The state of the database as this process sees it."""

    def __init__(self, *, after_s: float) -> None:
        self.is_on = False
        self._timeouts: Final[set[asyncio.Timeout]] = set()
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
        for timeout in tuple(self._timeouts):
            timeout.reschedule(now)

    def cut_short(self, execute: Execute) -> Execute:
        """Let an operation give up as soon as there is an outage, instead of waiting it out.

        Its calls then raise `Unavailable`; whether they were executed is not known.
        """

        async def execute_in_time(batch: Sequence[Any], *, is_repeated: bool) -> None:
            if self.is_on:
                raise Unavailable
            try:
                async with asyncio.timeout(None) as timeout:
                    self._timeouts.add(timeout)
                    try:
                        await execute(batch, is_repeated=is_repeated)
                    finally:
                        self._timeouts.discard(timeout)
            except TimeoutError as error:
                raise Unavailable from error

        return execute_in_time
