"""Push: immediate, scheduled and staged messages, from the request to their partition."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skep.app.parts.core import MIB, Core, utc_now
from skep.broker.cluster.changes import QUEUE, RULES
from skep.broker.directory import GroupProvisioner, PartitionProvisioner
from skep.broker.failover.outage import CutShort
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
from skep.engine.dedup.cache import DedupCache

if TYPE_CHECKING:
    from skep.app.parts.failover import FailoverParts

STAGED_DEDUP_BYTES: Final = 8 * MIB
"""Keys of staged messages; about 300,000 in 3,000 partitions."""


class PushParts:
    """Accepts messages and stores them."""

    def __init__(self, core: Core) -> None:
        settings = core.settings
        self._core: Final = core
        self._cache: Final = DedupCache(
            memory_bytes_max=settings.dedup_memory_mib * MIB,
            spill_dir=settings.dedup_spill_dir or Path(tempfile.gettempdir()),
        )
        self.gate: Final = AdmissionGate(core.query, now=core.now)
        self.schedule: Final = Schedule(core.engine)
        self.sequencer: Final = ScheduledSequencer(core.hot, core.announcer)
        self.scheduled: Final = Scheduled(
            core.query, self.sequencer, open_envelope=core.key_ring.open_envelope
        )

    def wire(self, failover: "FailoverParts") -> None:
        """Make the parts that need the seed."""
        core, slots, directory = self._core, self._core.hot, self._core.directory
        key_loader = KeyLoader(slots, self._cache)
        self.rule_book = RuleBook(slots, seal=core.key_ring.seal_envelope)
        self.partitions = PartitionProvisioner(
            slots, directory, self.rule_book, key_loader, meters=core.meters
        )
        self.push = Push(
            core.engine,
            directory,
            self.schedule,
            diversion=failover.diversion,
            hash_seed=core.hash_seed,
            now=utc_now,
            meters=core.meters,
        )
        pushes = PushExecutor(
            slots,
            push=self.push,
            directory=directory,
            provisioner=self.partitions,
            listener=key_loader,
            rule_book=self.rule_book,
            enforcer=Enforcer(self.rule_book, self.gate),
            cache=self._cache,
            announcer=core.announcer,
            now=utc_now,
            meters=core.meters,
        )
        schedules = ScheduleExecutor(
            slots, self.rule_book, self.sequencer, waiting_max=core.settings.scheduled_max
        )
        core.engine.serve("provision", CutShort(self.partitions, failover.outage))
        core.engine.serve("subscribe", GroupProvisioner(slots, directory))
        core.engine.serve("push", CutShort(pushes, failover.outage))
        core.engine.serve("schedule", CutShort(schedules, failover.outage))
        self.staged = StagedSequencer(
            self._staged_mover(), core.announcer, core.leadership, core.dsn
        )
        self._follow_changes(self.rule_book)

    def _staged_mover(self) -> StagedMover:
        core, cache = self._core, DedupCache(memory_bytes_max=STAGED_DEDUP_BYTES)
        return StagedMover(
            core.hot,
            directory=core.directory,
            provisioner=self.partitions,
            listener=KeyLoader(core.hot, cache),
            rule_book=self.rule_book,
            gate=self.gate,
            cache=cache,
            announcer=core.announcer,
            due_listener=self.sequencer,
            hash_seed=core.hash_seed,
            scheduled_max=core.settings.scheduled_max,
            note_letters=core.meters.queues.note_letters,
        )

    def _follow_changes(self, rule_book: RuleBook) -> None:
        async def read_rules(queue_id: int) -> None:
            await rule_book.read_known(queue_id)

        async def forget_queue(queue_id: int) -> None:
            self._core.directory.forget_queue(queue_id)

        self._core.changes.listen(RULES, read_rules)
        self._core.changes.listen(QUEUE, forget_queue)
