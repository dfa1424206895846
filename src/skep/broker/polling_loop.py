"""Tasks that ask the database again and again.

`PollingLoop` is for what moves messages into the log. Its plan decides when to poll next, and may
be told meanwhile that it should be sooner. `repeat` is for steps with a fixed pause between them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

STOP_PATIENCE_S: Final = 2.0


async def repeat(step: Callable[[], Awaitable[object]], what: str, *, pause_s: float) -> None:
    """Do a step again and again; one that fails is only logged."""
    while True:
        try:
            await step()
        except SkepError as error:
            _log.debug("could not %s: %s", what, error)
        await asyncio.sleep(pause_s)


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel a task, and wait until it has ended."""
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class PollingLoop:
    """Polls whenever it is time, until it is stopped."""

    def __init__(
        self, poll: Callable[[], Awaitable[None]], next_poll_at: Callable[[], float]
    ) -> None:
        """Take what to do, and what says when, by the event loop's clock."""
        self._poll: Final = poll
        self._next_poll_at: Final = next_poll_at
        self._loop: Final = asyncio.get_running_loop()
        self._is_sooner: Final = asyncio.Event()
        self._is_stopping = False
        self._polling: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to poll."""
        self._polling = self._loop.create_task(self._run())

    def poll_sooner(self) -> None:
        """Ask the plan again: the next poll is sooner than it was."""
        self._is_sooner.set()

    async def stop(self) -> None:
        """Stop polling. A call under way may end; the database ends or undoes one given up."""
        self._is_stopping = True
        self._is_sooner.set()
        if self._polling is None:
            return
        await asyncio.wait([self._polling], timeout=STOP_PATIENCE_S)
        self._polling.cancel()
        await asyncio.gather(self._polling, return_exceptions=True)
        self._polling = None

    async def _run(self) -> None:
        while not self._is_stopping:
            await self._until_due()
            if not self._is_stopping:
                await self._poll()

    async def _until_due(self) -> None:
        while not self._is_stopping and (at := self._next_poll_at()) > self._loop.time():
            self._is_sooner.clear()
            try:
                async with asyncio.timeout_at(at):
                    await self._is_sooner.wait()
            except TimeoutError:
                return
