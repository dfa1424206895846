"""How far the archive of each queue reaches, and where the live log begins.

The broker does not archive. It reads the record that `skep archive` writes, so that people see what
a replay would find.
"""

from datetime import datetime
from typing import Final

import msgspec

from skep.db.access.slots import Caller

COVERAGE_CALL: Final = "select * from skep.archive_coverage($1, $2)"


class ArchivedQueue(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Which time of a queue is where."""

    queue: str
    messages: int
    """Archived so far."""
    archived_at: datetime | None
    is_wanted: bool
    """The queue's configuration asks for an archive."""
    is_running: bool
    """A run was begun and has not ended."""
    is_foreign: bool
    """The archive belongs to the server that this database was restored from."""
    gone_to: datetime | None
    """What was stored until then was deleted, and is in no archive."""
    covered_from: datetime | None
    covered_to: datetime | None
    """What was stored between is in the archive."""
    live_from: datetime | None
    """The oldest message of the live log."""


class ArchivePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the queues that have an archive or want one, by name."""

    queues: list[ArchivedQueue]
    total: int
    limit: int
    offset: int


class ArchiveCoverage:
    """Reads what is archived."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

    async def listed(self, *, limit: int, offset: int) -> ArchivePage:
        """Return a page of queues."""
        rows = await self._caller.call(COVERAGE_CALL, limit, offset)
        counted = rows or await self._caller.call(COVERAGE_CALL, 1, 0)
        names = ArchivedQueue.__struct_fields__
        return ArchivePage(
            queues=[ArchivedQueue(**{name: row[name] for name in names}) for row in rows],
            total=counted[0]["total"] if counted else 0,
            limit=limit,
            offset=offset,
        )
