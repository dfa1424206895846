"""Elect the one process of an installation that does background work, by a lease in the database.

`Tenure` decides (pure), `Leadership` asks the database. A leader renews at each third of its lease,
so two lost answers cost nothing. It counts its lease from before it asked, so that its belief ends
no later than the database's record. After a crash another process leads within four thirds of a
lease, after a planned stop within one third.

A process can be suspended and resume later. Every step of background work therefore names its
`Term` to the database, which refuses those that are over.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from skep.broker.polling_loop import end_task
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import SkepError

_log = logging.getLogger(__name__)


LEASE_S: Final = 9.0
ATTEMPTS_PER_LEASE: Final = 3
RESIGN_S: Final = 2.0
"""How long a resignation may hold up the end of the process."""


class Term(NamedTuple):
    """The lease that work is done under: the first two arguments of every fenced function."""

    service: str
    holder: UUID


@dataclass(slots=True)
class Tenure:
    """What this process may believe about its leadership."""

    lease_s: float
    expires_at: float | None = None
    """When the belief ends without another answer."""

    def is_leader(self, now: float) -> bool:
        """Whether the lease that was granted last is still running."""
        return self.expires_at is not None and now < self.expires_at

    def heard(self, *, asked_at: float, is_granted: bool) -> None:
        """Take the answer to a question; no answer at all changes nothing."""
        self.expires_at = asked_at + self.lease_s if is_granted else None

    def next_question_at(self, asked_at: float) -> float:
        """When to ask again."""
        return asked_at + self.lease_s / ATTEMPTS_PER_LEASE


class Leadership:
    """Tries to lead one kind of background work for as long as it runs."""

    def __init__(self, caller: Caller, service: str, *, lease_s: float = LEASE_S) -> None:
        self.term: Final = Term(service, uuid4())
        self._sql: Final = Functions(caller)
        self._lease_s: Final = lease_s
        self._tenure: Final = Tenure(lease_s)
        self._is_leading: Final = asyncio.Event()
        self._loop: Final = asyncio.get_running_loop()
        self._expiry: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process leads, as far as it knows."""
        return self._tenure.is_leader(self._loop.time())

    async def wait_until_leader(self) -> None:
        """Return when this process leads."""
        await self._is_leading.wait()

    def start(self) -> None:
        """Begin to ask."""
        self._asking = self._loop.create_task(self._ask_again_and_again())

    async def stop(self) -> None:
        """Stop asking, and let another process lead at once."""
        await end_task(self._asking)
        self._tenure.expires_at = None
        self._lose()
        # Also without a lease that this process knows of: the last answer may have been cut off.
        try:
            async with asyncio.timeout(RESIGN_S):
                await self._sql.rows("resign_leadership", *self.term)
        except (SkepError, TimeoutError) as error:
            _log.debug("could not resign from %s, a lease runs out: %s", self.term.service, error)

    async def _ask_again_and_again(self) -> None:
        while True:
            asked_at = self._loop.time()
            await self._ask(asked_at)
            pause_s = self._tenure.next_question_at(asked_at) - self._loop.time()
            await asyncio.sleep(max(pause_s, 0))

    async def _ask(self, asked_at: float) -> None:
        try:
            is_granted = await self._sql.value("take_leadership", *self.term, self._lease_s)
        except SkepError as error:
            _log.debug("could not ask for the lease on %s: %s", self.term.service, error)
            return
        self._tenure.heard(asked_at=asked_at, is_granted=is_granted)
        if self.is_leader:
            self._lead()
        else:
            self._lose()

    def _lead(self) -> None:
        if not self._is_leading.is_set():
            _log.info("this process leads %s now", self.term.service)
            self._is_leading.set()
        if self._expiry is not None:
            self._expiry.cancel()
        assert self._tenure.expires_at is not None
        self._expiry = self._loop.call_at(self._tenure.expires_at, self._lose)

    def _lose(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._is_leading.is_set():
            _log.info("this process does not lead %s any more", self.term.service)
            self._is_leading.clear()
