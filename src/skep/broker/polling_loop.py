"""A task that polls the database, each time when a plan says so.

For what moves messages into the log. The plan decides when to poll next, and may be told meanwhile
that it should be sooner.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

STOP_PATIENCE_S: Final = 2.0


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
