"""Push: immediate, scheduled and staged messages, from the request to their partition."""

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skep.app.parts.core import MIB, Core, utc_now
from skep.broker.cluster.changes import QUEUE, RULES
from skep.broker.directory import GroupProvisioner, PartitionProvisioner
from skep.broker.overload.fallback import Fallback
from skep.broker.pop.hand_over import HandOvers
from skep.broker.push.accept import Push
from skep.broker.push.execute import PushExecutor
from skep.broker.push.rules import Enforcer, RuleBook
from skep.broker.push.size_limit import AdmissionGate
from skep.broker.push.stored_keys import KeyLoader
from skep.broker.scheduled.accept import Schedule, ScheduleExecutor
from skep.broker.scheduled.listing import Scheduled
from skep.broker.scheduled.sequence import ScheduledSequencer
from skep.broker.staged.move import StagedMover
from skep.broker.staged.sequence import StagedSequencer
from skep.broker.timers.accept import Timers
from skep.broker.timers.browse import TimerBrowser
from skep.broker.timers.execute import TimerExecutor
from skep.broker.transaction.cached_partitions import CachedPartitions
from skep.db.access.functions import Functions
from skep.engine.key_cache.cache import KeyCache

if TYPE_CHECKING:
    from skep.app.parts.failover import FailoverParts

OTHER_CACHE_BYTES: Final = MIB
"""What the key caches of transactions, staged messages and the drain start with."""


class PushParts:
    """Accepts messages and stores them."""

    def __init__(self, core: Core) -> None:
        settings = core.settings
        self._core: Final = core
        self._cache: Final = self._key_cache(
            settings.dedup_memory_mib * MIB, settings.dedup_memory_max_mib * MIB
        )
        self.gate: Final = AdmissionGate(core.vital, dropper=core.query, now=core.now)
        self.schedule: Final = Schedule(core.engine)
        self.timers: Final = Timers(core.engine)
        self.timer_browser: Final = TimerBrowser(Functions(core.query))
        self.sequencer: Final = ScheduledSequencer(core.hot, core.announcer)
        self.scheduled: Final = Scheduled(
            Functions(core.query), self.sequencer, core.key_ring.open_envelope
        )

    def wire(self, failover: "FailoverParts", fallback: Fallback, hand_overs: HandOvers) -> None:
        """Make the parts that need the seed."""
        core, slots, directory = self._core, self._core.hot, self._core.directory
        key_loader = KeyLoader(slots, self._cache, utc_now)
        self.rule_book = RuleBook(slots, seal=core.key_ring.seal_envelope)
        self.partitions = PartitionProvisioner(
            slots, directory, self.rule_book, key_loader, meters=core.meters
        )
        self.push = Push(
            core.engine,
            directory,
            self.schedule,
            fallback=fallback,
            diversion=failover.diversion,
            hash_seed=core.hash_seed,
            now=utc_now,
            meters=core.meters,
        )
        pushes = PushExecutor(
            slots,
            directory=directory,
            provisioner=self.partitions,
            loader=key_loader,
            rule_book=self.rule_book,
            enforcer=Enforcer(self.rule_book, self.gate),
            cache=self._cache,
            announcer=core.announcer,
            hand_overs=hand_overs,
            now=utc_now,
            meters=core.meters,
        )
        schedules = ScheduleExecutor(
            slots, self.rule_book, self.sequencer, waiting_max=core.settings.scheduled_max
        )
        cut_short = failover.outage.cut_short
        core.engine.serve("provision", cut_short(self.partitions.execute))
        core.engine.serve("subscribe", GroupProvisioner(slots, directory).execute)
        core.engine.serve("push", self.push.divert_first(cut_short(pushes.execute)))
        core.engine.serve("schedule", cut_short(schedules.execute))
        timers = TimerExecutor(slots, self.rule_book, self.sequencer, hash_seed=core.hash_seed)
        core.engine.serve("timers", timers.write)
        core.meters.counts["skep_timer_operations"] = lambda: timers.counts
        self.staged = StagedSequencer(
            self._staged_mover(), core.announcer, core.leadership, core.dsn
        )
        self._show_duplicates(key_loader)
        core.changes.listen(RULES, self.rule_book.read_known)
        core.changes.listen(QUEUE, self._forget_queue)

    def cached_partitions(self) -> CachedPartitions:
        """Return the partitions with a key cache of their own, which may grow as well."""
        core = self._core
        cache = self._key_cache(OTHER_CACHE_BYTES, core.settings.dedup_memory_max_mib * MIB // 4)
        loader = KeyLoader(core.hot, cache, utc_now)
        return CachedPartitions(core.directory, self.partitions, loader, cache)

    def _key_cache(self, first_bytes: int, bytes_max: int) -> KeyCache:
        return KeyCache(
            memory_bytes_max=max(first_bytes, bytes_max),
            first_bytes=first_bytes,
            needed_since=self._start_of_longest_window,
            spill_dir=self._core.settings.dedup_spill_dir or Path(tempfile.gettempdir()),
        )

    def _show_duplicates(self, loader: KeyLoader) -> None:
        meters, cache = self._core.meters, self._cache
        meters.watch("skep_dedup_memory_bytes", lambda: cache.memory_bytes)
        meters.watch("skep_dedup_disk_bytes", lambda: cache.disk_bytes)
        meters.watch("skep_dedup_keys", lambda: cache.key_count)
        meters.watch("skep_dedup_keys_max", lambda: cache.key_count_max)
        meters.watch("skep_dedup_lacking_seconds", self._lacking_s)
        meters.counts["skep_dedup_lookups"] = lambda: {(): cache.searched_count}
        meters.counts["skep_dedup_hits"] = lambda: {(): cache.found_count}
        meters.counts["skep_dedup_loaded_keys"] = lambda: {(): loader.loaded_keys}
        meters.counts["skep_dedup_searches"] = lambda: {(): meters.windows_searched}

    def _lacking_s(self) -> float:
        start = self._start_of_longest_window()
        return max(timedelta(), self._cache.horizon - start).total_seconds()

    def _start_of_longest_window(self) -> datetime:
        return utc_now() - timedelta(seconds=self.rule_book.dedup_window_s_max)

    def _staged_mover(self) -> StagedMover:
        core = self._core
        return StagedMover(
            sql=Functions(core.hot),
            partitions=self.cached_partitions(),
            rule_book=self.rule_book,
            gate=self.gate,
            announcer=core.announcer,
            due_listener=self.sequencer,
            hash_seed=core.hash_seed,
            scheduled_max=core.settings.scheduled_max,
            note_letters=core.meters.queues.note_letters,
        )

    async def _forget_queue(self, queue_id: int) -> None:
        self._core.directory.forget_queue(queue_id)
