"""Holds: what external readers (Spark, an archive) still need, and retention must not delete.

A hold is a name on a queue and a position: a snapshot of PostgreSQL. The reader has read what the
snapshot sees; the rest is kept. A reader places its hold again with each position it reaches; one
that is not placed again within its time lapses.
"""

import re
from datetime import datetime
from typing import Final, NamedTuple

from skep.db.access.slots import Caller
from skep.model.errors import BadRequest, NotFound
from skep.model.names import check_name

LIST_CALL: Final = "select * from skep.list_holds($1, $2)"
PLACE_CALL: Final = (
    "select position::text, updated_at from skep.place_hold($1, $2, $3::text::pg_snapshot, $4)"
)
RELEASE_CALL: Final = "select skep.release_hold($1, $2)"

KEEP_S_DEFAULT: Final = 86_400
KEEP_S_MAX: Final = 86_400 * 365
_SNAPSHOT: Final = re.compile(r"[0-9]{1,20}:[0-9]{1,20}:(?:[0-9]{1,20}(?:,[0-9]{1,20})*)?")


class Hold(NamedTuple):
    """A hold on a queue."""

    queue: str
    name: str
    position: str
    keep_s: int
    updated_at: datetime
    is_active: bool


class Holds:
    """Place, show and release holds."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

    async def list(self, *, limit: int, offset: int) -> tuple[list[Hold], int]:
        """Return a page of the holds, and how many there are."""
        rows = await self._caller.call(LIST_CALL, limit, offset)
        if not rows and offset:
            first = await self._caller.call(LIST_CALL, 1, 0)
            return [], first[0]["total"] if first else 0
        total = rows[0]["total"] if rows else 0
        return [Hold(*tuple(row)[:-1]) for row in rows], total

    async def place(self, queue: str, name: str, position: str | None, keep_s: int) -> Hold:
        """Place a hold, or move it; without a position, at the present.

        Raises:
            BadRequest: The name, the position or the time is not acceptable.
            NotFound: There is no such queue.
        """
        check_name("queue", queue)
        check_name("hold", name)
        if position is not None and not _SNAPSHOT.fullmatch(position):
            raise BadRequest("position must be a snapshot, spelled xmin:xmax:xip")
        if not 0 < keep_s <= KEEP_S_MAX:
            raise BadRequest(f"keepSeconds must be between 1 and {KEEP_S_MAX}")
        rows = await self._caller.call(PLACE_CALL, queue, name, position, keep_s)
        if not rows:
            raise NotFound(f"queue {queue} does not exist")
        (row,) = rows
        return Hold(queue, name, row["position"], keep_s, row["updated_at"], is_active=True)

    async def release(self, queue: str, name: str) -> None:
        """Release a hold.

        Raises:
            NotFound: There is none of that name.
        """
        if not (await self._caller.call(RELEASE_CALL, queue, name))[0][0]:
            raise NotFound(f"queue {queue} has no hold named {name}")
