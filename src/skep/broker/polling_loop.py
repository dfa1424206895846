"""A task that looks again and again, each time when its plan says so.

For those who move messages into the log: a plan decides when to look, and may be told meanwhile
that it should be earlier. What a look finds, and when the next one is due, is theirs to know.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

STOP_PATIENCE_S: Final = 2.0


class LookLoop:
    """Looks whenever it is time, until it is stopped."""

    def __init__(self, look: Callable[[], Awaitable[None]], next_look: Callable[[], float]) -> None:
        """Take what to do, and what says when, by the event loop's clock."""
        self._look: Final = look
        self._next_look: Final = next_look
        self._loop: Final = asyncio.get_running_loop()
        self._is_earlier: Final = asyncio.Event()
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = self._loop.create_task(self._run())

    def hurry(self) -> None:
        """Hear that the next look is earlier than it was."""
        self._is_earlier.set()

    async def stop(self) -> None:
        """Stop looking. A call under way may end; given up, the database ends or undoes it."""
        self._is_stopping = True
        self._is_earlier.set()
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=STOP_PATIENCE_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _run(self) -> None:
        while not self._is_stopping:
            await self._until_due()
            if not self._is_stopping:
                await self._look()

    async def _until_due(self) -> None:
        while not self._is_stopping and (at := self._next_look()) > self._loop.time():
            self._is_earlier.clear()
            try:
                async with asyncio.timeout_at(at):
                    await self._is_earlier.wait()
            except TimeoutError:
                return
