"""Archive round after round, for as long as a process lives; a database that is away is waited for.

A round that lost its database has done no harm: what it had planned is taken over by the next one
(`skep.spark.lake.archive_runs`). So the service only says what happened, waits a little, longer
each time up to a bound, and begins anew. It ends when somebody asks it to, and for every failure
that waiting does not mend: those need a person.

Every round leaves files and a snapshot, and every commit goes through all snapshots there are. So
the service also compacts, after its first round and then as often as it is told to.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from skep.model.errors import SkepError, Unavailable
from skep.spark.lake.archive_runs import ArchiveBusy

COMPACT_EVERY_S: Final = 86_400.0
PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
_log: Final = logging.getLogger(__name__)


class ArchiveService:
    """Repeats the rounds of one archivist."""

    def __init__(
        self,
        archive: Callable[[], None],
        *,
        every_s: float,
        before_waiting: Callable[[], None],
        compact: Callable[[], None] | None = None,
        compact_every_s: float = COMPACT_EVERY_S,
        pause_first_s: float = PAUSE_FIRST_S,
        pause_max_s: float = PAUSE_MAX_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            archive: One round; it raises Unavailable when the database is away.
            every_s: From the end of a round to the next one.
            before_waiting: Is called when the database is away, and raises if waiting is in vain.
            compact: Puts small files together; it raises what `archive` does. None: nobody does.
            compact_every_s: How long it is left alone then.
            pause_first_s: Before the first repetition of a round that failed; it doubles.
            pause_max_s: What the pause does not exceed.
            clock: Tells seconds.
        """
        self._archive: Final = archive
        self._every_s: Final = every_s
        self._before_waiting: Final = before_waiting
        self._compact: Final = compact
        self._compact_every_s: Final = compact_every_s
        self._clock: Final = clock
        self._compact_at = clock()
        self._pause_first_s: Final = pause_first_s
        self._pause_max_s: Final = pause_max_s
        self._failures = 0

    def run(self, stop: threading.Event) -> None:
        """Archive until the event is set; a round that is under way is brought to its end.

        Raises:
            SkepError: A round failed, and not because the database was away.
        """
        while not stop.wait(self._round()):
            pass

    def _round(self) -> float:
        """Archive once; return how long to wait before the next round."""
        try:
            self._archive()
            self._compact_if_due()
        except Unavailable as error:
            return self._outage(error)
        except ArchiveBusy as error:
            if not self._failures:
                raise
            # The lock of the connection that was lost: the server has yet to notice.
            return self._outage(error)
        if self._failures:
            _log.warning("the database is back: archived what had become old meanwhile")
        self._failures = 0
        return self._every_s

    def _compact_if_due(self) -> None:
        if self._compact is not None and self._clock() >= self._compact_at:
            self._compact()
            self._compact_at = self._clock() + self._compact_every_s

    def _outage(self, error: SkepError) -> float:
        self._before_waiting()
        pause_s = min(self._pause_max_s, self._pause_first_s * 2**self._failures)
        self._failures += 1
        _log.warning(
            "a round of the archive was cut short: %s. The archive is whole; trying again in %g s",
            error.message,
            pause_s,
        )
        return pause_s
