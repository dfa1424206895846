"""Write what became of jobs, many in one call.

One call is on its way at a time; what comes meanwhile leaves with the next. A chain that somebody
else holds is tried again by itself, so that it delays nobody. Each caller hears what became of his.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

from skep.db.access.errors import NotExecuted, OutcomeUnknown
from skep.db.access.slots import Caller
from skep.jobs.signals import Announcements, Signals
from skep.jobs.store import SETTLE_CALL, Settled, Settlement, settle_arguments, settled
from skep.model.errors import SkepError, Unavailable

BATCH_MAX: Final = 200
BUSY_PAUSE_S: Final = 0.05
RETRY_PAUSE_S: Final = 0.2
RETRY_PAUSE_S_MAX: Final = 5.0


class Settler:
    """Gathers settlements of one worker."""

    def __init__(
        self, caller: Caller, announcements: Announcements, worker_id: Callable[[], UUID]
    ) -> None:
        self._caller: Final = caller
        self._announcements: Final = announcements
        self._worker_id: Final = worker_id
        self._waiting: list[tuple[Settlement, asyncio.Future[Settled]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def settle(self, settlement: Settlement) -> Settled:
        """Write it, and return what became of it; tried again while the database is away.

        A call whose outcome is unknown is repeated: if the first did happen, the second finds the
        claim gone and says `lost`, which then means done.

        Raises:
            SkepError: the database refuses the values.
        """
        pause_s = RETRY_PAUSE_S
        while True:
            try:
                answer = await self._submit(settlement)
            except (NotExecuted, OutcomeUnknown, Unavailable):
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_PAUSE_S_MAX)
                continue
            if answer.outcome != "busy":
                return answer
            await asyncio.sleep(BUSY_PAUSE_S)

    async def _submit(self, settlement: Settlement) -> Settled:
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.append((settlement, future))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())
        return await future

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._write_batch(batch)
        finally:
            self._writing = None

    async def _write_batch(self, batch: list[tuple[Settlement, asyncio.Future[Settled]]]) -> None:
        settlements = [settlement for settlement, _ in batch]
        try:
            rows = await self._caller.call(
                SETTLE_CALL, *settle_arguments(self._worker_id(), settlements, wait=False)
            )
        except Unavailable as error:
            _tell(batch, error)
            return
        except SkepError as error:
            # One value is guilty, and its neighbours are not: each alone finds out who.
            if len(batch) == 1:
                _tell(batch, error)
                return
            middle = len(batch) // 2
            await self._write_batch(batch[:middle])
            await self._write_batch(batch[middle:])
            return
        answers = settled(rows)
        self._announcements.add(signals_of(settlements, answers))
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)


def signals_of(settlements: list[Settlement], answers: list[Settled]) -> Signals:
    """Return what others should look at after these."""
    continued = [
        settlement.next.job.name
        for settlement, answer in zip(settlements, answers, strict=True)
        if settlement.next is not None and answer.outcome == "settled"
    ]
    return Signals(
        types_ready=[*continued, *(name for answer in answers for name in answer.woken)],
        chains_closed=[chain_id for answer in answers for chain_id in answer.closed],
    )


def _tell(batch: list[tuple[Settlement, asyncio.Future[Settled]]], error: SkepError) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
