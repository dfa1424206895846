"""Pushes while the database is unreachable or in maintenance.

They are stored in a directory per installation, which all processes of a machine on that
installation share.
"""

import logging
from typing import Final

from skep.app.parts.core import Core, utc_now
from skep.app.parts.push import PushParts
from skep.broker.cluster.changes import MAINTENANCE
from skep.broker.failover.diversion import Diversion
from skep.broker.failover.drain import SpillDrain
from skep.broker.failover.maintenance import Maintenance
from skep.broker.failover.outage import Outage
from skep.settings import Settings
from skep.spill.directory import spill_directory
from skep.spill.log import SpillLog

_log = logging.getLogger(__name__)


class FailoverParts:
    """The spill on disk, and when pushes go there."""

    def __init__(self, core: Core) -> None:
        self._core: Final = core
        self.outage: Final = Outage(after_s=core.settings.spill_after_s)
        self.maintenance: Final = Maintenance(core.vital, core.changes)
        self.diversion: Final = Diversion(
            core.directory, core.key_ring, self.outage, self.maintenance, now=utc_now
        )
        self._spill: SpillLog | None = None
        self._drain: SpillDrain | None = None
        core.changes.listen(MAINTENANCE, lambda _: self.maintenance.read())
        self._show()

    def open_spill(self) -> None:
        """Become able to store pushes on disk, with or without a database."""
        if self._spill is None:
            self._spill = open_spill(self._core.settings)
            if self._spill is not None:
                self.diversion.open(self._spill)

    def wire(self, push: PushParts) -> None:
        """Make the part that moves stored pushes into the database."""
        if self._spill is None:
            return
        core = self._core
        self._drain = SpillDrain(
            self._spill,
            core.hot,
            directory=core.directory,
            partitions=push.cached_partitions(),
            rule_book=push.rule_book,
            open_envelope=core.key_ring.open_envelope,
            announcer=core.announcer,
            due=push.sequencer,
            hash_seed=core.hash_seed,
            may_drain=self._may_drain,
        )
        self.maintenance.listen(self._drain.wake)

    async def start(self) -> None:
        """Follow the maintenance mode and the state of the database; drain the spill."""
        await self.maintenance.start()
        if self._spill is not None:
            self._core.hot.listener = self.outage.hear
        self.outage.hear(True)
        if self._drain is not None:
            self._drain.start()

    async def stop(self) -> None:
        """Stop draining. Pushes can still be stored."""
        await self.maintenance.stop()
        if self._drain is not None:
            await self._drain.stop()

    async def close(self) -> None:
        """Answer the pushes on their way to disk, and release the directory."""
        await self.diversion.close()
        if self._spill is not None:
            self._spill.close()

    def _may_drain(self) -> bool:
        is_whole = self._core.hot.is_whole
        return is_whole and not self.outage.is_on and not self.maintenance.is_push_on

    def _show(self) -> None:
        meters, stats, maintenance = self._core.meters, self.diversion.stats, self.maintenance
        meters.watch("skep_spill_pending_messages", lambda: stats().pending_messages)
        meters.watch("skep_spill_pending_bytes", lambda: stats().pending_bytes)
        meters.watch("skep_spill_rejected_files", lambda: stats().rejected_files)
        meters.watch("skep_database_away", lambda: int(stats().is_database_away))
        meters.gauges["skep_maintenance_mode"] = lambda: {
            ("push",): int(maintenance.is_push_on),
            ("pop",): int(maintenance.is_pop_on),
        }
        meters.counts["skep_spilled_messages"] = lambda: {(): stats().buffered_total}
        meters.counts["skep_spill_refused_messages"] = lambda: {(): stats().refused_total}
        meters.counts["skep_spill_fsyncs"] = lambda: {(): stats().fsync_total}


def open_spill(settings: Settings) -> SpillLog | None:
    """Open the spill of these settings; None, with a warning, if it cannot be used."""
    if not settings.spill_bytes_max:
        return None
    directory = spill_directory(settings)
    try:
        spill = SpillLog(directory, bytes_max=settings.spill_bytes_max)
    except OSError as error:
        _log.warning(
            "cannot use %s (%s): pushes will fail while PostgreSQL is unreachable; set spill_dir",
            directory,
            error,
        )
        return None
    _log.debug("pushes are stored in %s while PostgreSQL is unreachable", directory)
    return spill
