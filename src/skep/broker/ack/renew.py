"""Renew: give the holder of a lease more time."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from skep.db.access.slots import Caller
from skep.engine.driver import Engine, Work
from skep.model.errors import SkepError

RENEW_CALL: Final = "select * from skep.renew_leases($1, $2)"
_WEIGHT: Final = 256


class Renewal(Work):
    """One client's request to extend a lease."""

    __slots__ = ("_answer", "error", "expires_at", "lease_id", "seconds")

    def __init__(self, lease_id: UUID, seconds: int, answer: Callable[["Renewal"], None]) -> None:
        super().__init__()
        self.lease_id = lease_id
        self.seconds = seconds
        self.expires_at: datetime | None = None
        self.error: SkepError | None = None
        self._answer = answer

    def finish(self, expires_at: datetime | None) -> None:
        """Answer; without an expiry the lease is not held any more."""
        self.expires_at = expires_at
        self.is_settled = True
        self._answer(self)

    def fail(self, error: SkepError) -> None:
        """Answer that it is not known whether the lease was renewed."""
        self.error = error
        self.finish(None)


class Renew:
    """Accept renewals."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine

    def renew_lease(self, renewal: Renewal) -> None:
        """Extend a lease; the renewal's answer is called once.

        Raises:
            Overloaded: The engine is full.
        """
        self._engine.submit("renew", None, _WEIGHT, renewal)


class RenewExecutor:
    """Executor of the operation `renew`. A renewal may be repeated at will."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

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
