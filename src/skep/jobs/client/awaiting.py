"""Wait for chains to end, any number of them with one query.

A waiter reads the outcome once, then again when a signal names its chain, when the listening
connection comes back, and at intervals in any case. All waiters share these queries.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from skep.db.access.slots import Caller
from skep.jobs import store
from skep.jobs.errors import ChainNotFound
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChainOutcome:
    """How a chain ended."""

    chain_id: UUID
    state: str
    type: str
    output: str | None
    error: str | None


class Awaiting:
    """The waiters for chains, and the task that reads outcomes for them."""

    def __init__(self, caller: Caller, *, poll_s: float) -> None:
        self._caller: Final = caller
        self._poll_s: Final = poll_s
        self._waiting: dict[UUID, set[asyncio.Future[ChainOutcome]]] = {}
        self._unchecked: set[UUID] = set()
        self._has_work: Final = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def outcome(self, chain_id: UUID) -> ChainOutcome:
        """Return how a chain ended, once it has; ChainNotFound if there is none any more."""
        future: asyncio.Future[ChainOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(chain_id, set()).add(future)
        self._check_soon(chain_id)
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())
        try:
            return await future
        finally:
            waiting = self._waiting.get(chain_id, set())
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(chain_id, None)

    def hear_closed(self, text: str) -> None:
        """Take a signal that a chain ended."""
        with suppress(ValueError):
            self._check_soon(UUID(text))

    def check_all(self) -> None:
        """Check every chain: signals may have been lost."""
        for chain_id in self._waiting:
            self._check_soon(chain_id)

    async def stop(self) -> None:
        """Stop reading, and cancel the waiters."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        for futures in self._waiting.values():
            for future in futures:
                future.cancel()

    def _check_soon(self, chain_id: UUID) -> None:
        if chain_id in self._waiting:
            self._unchecked.add(chain_id)
            self._has_work.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._poll_s):
                    await self._has_work.wait()
            except TimeoutError:
                self.check_all()
            self._has_work.clear()
            unchecked, self._unchecked = self._unchecked, set()
            if not unchecked:
                continue
            try:
                await self._read(unchecked)
            except SkepError as error:
                _log.debug("could not read how chains ended, trying again: %s", error)

    async def _read(self, unchecked: set[UUID]) -> None:
        rows = await self._caller.call(store.OUTCOME_CALL, list(unchecked))
        found: dict[UUID, ChainOutcome] = {row["chain_id"]: ChainOutcome(**row) for row in rows}
        for chain_id in unchecked:
            outcome = found.get(chain_id)
            if outcome is not None and outcome.state == "open":
                continue
            for future in self._waiting.get(chain_id, ()):
                if future.done():
                    continue
                if outcome is None:
                    future.set_exception(ChainNotFound(f"there is no chain {chain_id}"))
                else:
                    future.set_result(outcome)
