"""Wait for chains to end, any number of them with one question.

Whoever waits asks once, then again when a signal names his chain, when the listening connection
comes back, and at intervals in any case. All who wait share these questions.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from skep.db.access.slots import Caller
from skep.jobs.errors import ChainNotFound
from skep.jobs.store import OUTCOME_CALL
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChainOutcome:
    """How a chain ended."""

    state: str
    type: str
    output: str | None
    error: str | None


class Awaiting:
    """Those who wait for chains, and the task that asks for them."""

    def __init__(self, caller: Caller, *, poll_s: float) -> None:
        self._caller: Final = caller
        self._poll_s: Final = poll_s
        self._waiting: dict[UUID, set[asyncio.Future[ChainOutcome]]] = {}
        self._in_doubt: set[UUID] = set()
        self._something: Final = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None

    async def outcome(self, chain_id: UUID) -> ChainOutcome:
        """Return how a chain ended, once it has.

        Raises:
            ChainNotFound: there is no such chain, or not any more.
        """
        future: asyncio.Future[ChainOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(chain_id, set()).add(future)
        self._look_at(chain_id)
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_again_and_again())
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
            self._look_at(UUID(text))

    def look_at_all(self) -> None:
        """Ask for every chain: signals may have been lost."""
        for chain_id in self._waiting:
            self._look_at(chain_id)

    async def stop(self) -> None:
        """Stop asking; those who still wait are cancelled."""
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking
        for futures in self._waiting.values():
            for future in futures:
                future.cancel()

    def _look_at(self, chain_id: UUID) -> None:
        if chain_id in self._waiting:
            self._in_doubt.add(chain_id)
            self._something.set()

    async def _ask_again_and_again(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._poll_s):
                    await self._something.wait()
            except TimeoutError:
                self.look_at_all()
            self._something.clear()
            in_doubt, self._in_doubt = self._in_doubt, set()
            if not in_doubt:
                continue
            try:
                await self._ask(in_doubt)
            except SkepError as error:
                _log.debug("could not ask how chains ended, will ask again: %s", error)

    async def _ask(self, in_doubt: set[UUID]) -> None:
        rows = await self._caller.call(OUTCOME_CALL, list(in_doubt))
        found = {row[0]: ChainOutcome(*row[1:]) for row in rows}
        for chain_id in in_doubt:
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
