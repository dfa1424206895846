"""Renew: give the holder of a lease more time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from skep.db.access.slots import Caller
from skep.engine.driver import Engine, Work
from skep.model.errors import SkepError

RENEW_CALL: Final = "select * from skep.renew_leases($1, $2)"
_WEIGHT: Final = 256


@dataclass(slots=True, eq=False)
class Renewal(Work):
    """One client's request to extend a lease."""

    lease_id: UUID
    seconds: int
    answer: Callable[["Renewal"], None]
    expires_at: datetime | None = None
    error: SkepError | None = None

    def finish(self, expires_at: datetime | None) -> None:
        """Answer; without an expiry the lease is not held any more."""
        self.expires_at = expires_at
        self.is_settled = True
        self.answer(self)

    def fail(self, error: SkepError) -> None:
        """Answer that it is not known whether the lease was renewed."""
        self.error = error
        self.finish(None)


class Renew:
    """Accepts renewals, and executes those of many clients in one call. All may be repeated."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        self._engine: Final = engine
        self._caller: Final = caller

    def renew_lease(self, renewal: Renewal) -> None:
        """Extend a lease; the renewal's answer is called once."""
        self._engine.submit("renew", None, _WEIGHT, renewal)

    async def execute(self, batch: Sequence[Renewal], *, is_repeated: bool) -> None:
        """Renew all leases in one call."""
        del is_repeated
        rows = await self._caller.call(
            RENEW_CALL,
            [renewal.lease_id for renewal in batch],
            [renewal.seconds for renewal in batch],
        )
        expiry_by_lease = {str(lease_id): expires_at for lease_id, expires_at in rows}
        for renewal in batch:
            renewal.finish(expiry_by_lease.get(str(renewal.lease_id)))
