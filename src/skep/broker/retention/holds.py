"""Holds: what external readers (Spark, an archive) still need, and retention must not delete.

A hold is a name on a queue and a position: a snapshot of PostgreSQL. The reader has read what the
snapshot sees; the rest is kept. A reader places its hold again with each position it reaches; one
that is not placed again within its time lapses.
"""

import re
from typing import Any, Final

import msgspec

from skep.broker.paging import from_row, rows_and_total
from skep.broker.timestamps import spell_moment
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest, NotFound
from skep.model.names import check_name

PLACE_CALL: Final = (
    "select $1::text as queue, $2::text as name, position::text, $4::integer as keep_s, updated_at,"
    " true as is_active from skep.place_hold($1, $2, $3::text::pg_snapshot, $4)"
)

KEEP_S_DEFAULT: Final = 86_400
KEEP_S_MAX: Final = 86_400 * 365
_SNAPSHOT: Final = re.compile(r"[0-9]{1,20}:[0-9]{1,20}:(?:[0-9]{1,20}(?:,[0-9]{1,20})*)?")


class HoldReport(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A hold: messages behind its position are not deleted."""

    queue: str
    name: str
    position: str
    keep_seconds: int
    updated_at: str
    active: bool
    """False when it was not renewed for `keepSeconds`; it protects nothing then."""


class Holds:
    """Place, show and release holds."""

    def __init__(self, caller: Caller) -> None:
        self._sql: Final = Functions(caller)

    async def list(self, *, limit: int, offset: int) -> tuple[list[HoldReport], int]:
        """Return a page of the holds, and how many there are."""
        rows, total = await rows_and_total(self._sql, "list_holds", limit, offset)
        return [_shown(row) for row in rows], total

    async def place(self, queue: str, name: str, position: str | None, keep_s: int) -> HoldReport:
        """Place a hold, or move it; without a position, at the present."""
        check_name("queue", queue)
        check_name("hold", name)
        if position is not None and not _SNAPSHOT.fullmatch(position):
            raise BadRequest("position must be a snapshot, spelled xmin:xmax:xip")
        if not 0 < keep_s <= KEEP_S_MAX:
            raise BadRequest(f"keepSeconds must be between 1 and {KEEP_S_MAX}")
        rows = await self._sql.call(PLACE_CALL, queue, name, position, keep_s)
        if not rows:
            raise NotFound(f"queue {queue} does not exist")
        return _shown(rows[0])

    async def release(self, queue: str, name: str) -> None:
        """Release a hold."""
        missing = NotFound(f"queue {queue} has no hold named {name}")
        await self._sql.value("release_hold", queue, name, missing=missing)


def _shown(row: Any) -> HoldReport:
    return from_row(
        HoldReport,
        row,
        keep_seconds=row["keep_s"],
        updated_at=spell_moment(row["updated_at"]),
        active=row["is_active"],
    )
