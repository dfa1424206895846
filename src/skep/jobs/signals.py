"""Three channels by which processes tell each other about jobs and chains.

    skep_job_ready      names of job types that have something to run
    skep_chain_closed   ids of chains that ended
    skep_job_lost       ids of jobs that were taken from the worker that runs them

Signals are hints: each may be lost or come twice, and every waiter also polls. A commit that
notifies waits for every other that does, so only a user's transaction notifies by itself
(`chain_start`); all other signals are gathered for some milliseconds and sent after their commit,
many in one statement. A client or worker without notifications (behind a transaction pooler)
neither listens nor sends.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from uuid import UUID

from skep.db.access.slots import Caller
from skep.jobs.store import NOTIFY_CALL, Settled, Settlement
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)

Channel: TypeAlias = Literal["skep_job_ready", "skep_chain_closed", "skep_job_lost"]
JOB_READY: Final[Channel] = "skep_job_ready"
CHAIN_CLOSED: Final[Channel] = "skep_chain_closed"
JOB_LOST: Final[Channel] = "skep_job_lost"

GATHER_S: Final = 0.005
PAYLOAD_BYTES_MAX: Final = 7_900
"""PostgreSQL refuses payloads of 8000 bytes."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Types with jobs to run, chains that ended, jobs that their workers lost."""

    types_ready: Iterable[str] = ()
    chains_closed: Iterable[UUID] = ()
    jobs_lost: Iterable[UUID] = ()

    def texts(self) -> dict[Channel, dict[str, None]]:
        """Return each text once, by the channel it goes through."""
        texts: dict[Channel, dict[str, None]] = {
            JOB_READY: dict.fromkeys(self.types_ready),
            CHAIN_CLOSED: dict.fromkeys(map(str, self.chains_closed)),
            JOB_LOST: dict.fromkeys(map(str, self.jobs_lost)),
        }
        return {channel: said for channel, said in texts.items() if said}

    def payloads(self) -> list[tuple[Channel, str]]:
        """Return what to notify: channels and payloads."""
        return _payloads(self.texts())

    @classmethod
    def of_settled(
        cls,
        settlements: Sequence[Settlement],
        answers: Sequence[Settled],
        *,
        jobs_lost: Iterable[UUID] = (),
    ) -> "Signals":
        """Return the signals of settlements that are committed."""
        continued = [
            settlement.next.job.name
            for settlement, answer in zip(settlements, answers, strict=True)
            if settlement.next is not None and answer.outcome == "settled"
        ]
        return cls(
            types_ready=[*continued, *(name for answer in answers for name in answer.woken)],
            chains_closed=[chain_id for answer in answers for chain_id in answer.closed],
            jobs_lost=jobs_lost,
        )


class Announcements:
    """Signals that wait to be sent together."""

    def __init__(self, caller: Caller, *, is_silent: bool = False) -> None:
        self._caller: Final = caller
        self._is_silent: Final = is_silent
        self._waiting: dict[Channel, dict[str, None]] = {}
        self._sending: asyncio.Task[None] | None = None

    def add(self, signals: Signals) -> None:
        """Send these soon."""
        texts = signals.texts()
        if self._is_silent or not texts:
            return
        for channel, said in texts.items():
            self._waiting.setdefault(channel, {}).update(said)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def flush(self) -> None:
        """Wait until all signals so far were sent, or could not be."""
        if self._sending is not None:
            await self._sending

    async def _send(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(GATHER_S)
                waiting, self._waiting = self._waiting, {}
                await self._call(_payloads(waiting))
        finally:
            self._sending = None

    async def _call(self, payloads: list[tuple[Channel, str]]) -> None:
        try:
            await self._caller.call(NOTIFY_CALL, *map(list, zip(*payloads, strict=True)))
        except SkepError as error:
            _log.debug("could not send signals, waiters will find out by polling: %s", error)


def _payloads(texts: dict[Channel, dict[str, None]]) -> list[tuple[Channel, str]]:
    return [(channel, payload) for channel, said in texts.items() for payload in in_payloads(said)]


def in_payloads(texts: Iterable[str]) -> list[str]:
    """Join texts by newlines into as few payloads as possible."""
    payloads: list[str] = []
    for text in texts:
        joined = f"{payloads[-1]}\n{text}" if payloads else text
        if payloads and len(joined.encode()) <= PAYLOAD_BYTES_MAX:
            payloads[-1] = joined
        else:
            payloads.append(text)
    return payloads


def each_line(hear: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that calls `hear` for each text in a payload."""

    def on_payload(payload: str) -> None:
        for text in payload.split("\n"):
            hear(text)

    return on_payload
