"""Wire the broker of one process together.

`__init__` makes what needs nothing of the database, and declares the rest. `wire` makes that, once
the database has told the seed of its keys; until then `skep.app.processes.waiting` serves instead.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skep.app.parts.background import leader_duties, retention_limits
from skep.app.parts.batching import engine_core
from skep.app.parts.failover import open_spill
from skep.app.parts.instruments import show_failover, show_load, show_parts, show_peers
from skep.app.parts.neighbours import Neighbours
from skep.app.parts.observation import Observation
from skep.app.parts.pools import Pools
from skep.app.parts.security import Security
from skep.app.processes.assignment import WorkerAssignment
from skep.broker.ack.accept import Ack, AckExecutor
from skep.broker.ack.renew import Renew, RenewExecutor
from skep.broker.cluster.changes import MAINTENANCE, QUEUE, RULES
from skep.broker.cluster.leadership import Leadership
from skep.broker.cluster.wakeups import Announcer
from skep.broker.dead_letters.dead_letters import DeadLetters
from skep.broker.dead_letters.moves import Mover
from skep.broker.dead_letters.redrive import Redrives
from skep.broker.directory import Directory, GroupProvisioner, PartitionProvisioner
from skep.broker.failover.diversion import Diversion
from skep.broker.failover.drain import SpillDrain
from skep.broker.failover.maintenance import Maintenance
from skep.broker.failover.outage import CutShort, Outage
from skep.broker.groups.groups import Groups
from skep.broker.groups.seek import Seek
from skep.broker.groups.subscriptions import Subscriptions
from skep.broker.messages.listing import MessageList
from skep.broker.messages.messages import Messages
from skep.broker.overload.ack_attempt import AckIntake
from skep.broker.overload.deferral import DeferralExecutor, DepthLimits, OperationPart
from skep.broker.overload.fallback import Relief
from skep.broker.overload.intake import Intake
from skep.broker.overload.operations import OperationDesk
from skep.broker.overload.processor import OperationProcessor, ProcessorLimits
from skep.broker.overload.push_attempt import PushIntake
from skep.broker.overload.shares import is_shed
from skep.broker.overload.waiting_line import Line, PartitionKey, PartitionWatch
from skep.broker.pop.accept import Pop
from skep.broker.pop.batches import EnvelopeReader
from skep.broker.pop.discovery import Discovery
from skep.broker.pop.execute import PopExecutor, ReleaseExecutor, UndoExecutor
from skep.broker.pop.feed import Live
from skep.broker.pop.lease_memory import LeaseMemory
from skep.broker.pop.long_poll import LongPolls
from skep.broker.pop.parking import SweepPolicy
from skep.broker.pop.tail import Tails
from skep.broker.push.accept import Push, PushExecutor
from skep.broker.push.enforcement import Enforcer
from skep.broker.push.rules import RuleBook
from skep.broker.push.size_limit import AdmissionGate
from skep.broker.push.stored_keys import KeyLoader
from skep.broker.queues.configure import Configure
from skep.broker.retention.housekeeping import Housekeeper
from skep.broker.retention.retention import (
    RetentionOnRequest,
)
from skep.broker.scheduled.accept import Schedule, ScheduleExecutor
from skep.broker.scheduled.listing import Scheduled
from skep.broker.scheduled.sequence import ScheduledSequencer
from skep.broker.staged.mover import StagedSequencer
from skep.broker.staged.store import StagedMover
from skep.broker.transaction.settlement import Settler, Stager
from skep.broker.transaction.streams import CycleExecutor, Streams
from skep.broker.transaction.transaction import Transaction, TransactionExecutor
from skep.engine.dedup.cache import DedupCache
from skep.engine.driver import Engine
from skep.jobs.service.service import JobService
from skep.model.encryption import KeyRing
from skep.model.errors import Overloaded
from skep.model.priorities import Priority
from skep.settings.keys import encryption_keys
from skep.settings.reload import SettingsInForce
from skep.telemetry.meters import Meters

if TYPE_CHECKING:
    from skep.spill.log import SpillLog

_MIB: Final = 1024 * 1024
LEASE_MEMORY_BYTES: Final = 64 * _MIB
SETTLEMENT_DEDUP_BYTES: Final = 8 * _MIB
"""Keys that transactions and stream cycles pushed; about 300,000 in 3,000 partitions."""

STAGED_DEDUP_BYTES: Final = 8 * _MIB
"""Keys that were staged; as many."""
LINE_SHARE: Final = 0.25
"""What requests may weigh that are held back, as a share of the engine's capacity."""

DRAIN_DEDUP_BYTES: Final = 8 * _MIB
"""Keys that were drained from the spill; about 300,000."""

HOUSEKEEPING: Final = "housekeeping"
"""The background work that one process of the installation leads."""

PATIENCE_S: Final = 10.0
"""How long a request outlasts a database that is away before it is answered as unavailable."""


class Broker:
    """Everything one process needs to serve messages."""

    def __init__(self, assignment: WorkerAssignment) -> None:
        settings = assignment.settings
        loop = asyncio.get_running_loop()
        self.meters: Final = Meters(queues_exposed=settings.metrics_queues_max)
        pools = Pools(assignment, self.meters, patience_s=PATIENCE_S)
        self._pools: Final = pools
        self.hot_slots: Final = pools.hot
        self.query_slots: Final = pools.query
        self.housekeeping_slots: Final = pools.housekeeping
        self.security: Final = Security(settings, self.query_slots, now=loop.time)
        self.door: Final = self.security.door
        self.engine: Final = Engine(
            engine_core(settings), patience_s=PATIENCE_S, meters=self.meters
        )
        self._directory: Final = Directory()
        self._line: Final = Line(
            self.engine,
            wait_s=settings.overload_wait_s,
            weight_max=int(settings.engine_weight_mib * _MIB * LINE_SHARE),
            is_congestion=settings.overload_status == 503,
        )
        self._watch: Final = PartitionWatch(self.query_slots, self._line.free)
        self._leases: Final = LeaseMemory(bytes_max=LEASE_MEMORY_BYTES)
        self.key_ring: Final = KeyRing(encryption_keys(settings))
        self.envelopes: Final = EnvelopeReader(self.key_ring.open_envelope)
        self._cache: Final = DedupCache(
            memory_bytes_max=settings.dedup_memory_mib * _MIB,
            spill_dir=settings.dedup_spill_dir or Path(tempfile.gettempdir()),
        )
        self.long_polls: Final = LongPolls(
            self.query_slots,
            SweepPolicy(
                interval_s_min=settings.poll_interval_ms / 1000,
                interval_s_max=settings.poll_interval_ms_max / 1000,
                slack_s=settings.poll_interval_ms_max / 5000,
            ),
            meters=self.meters,
        )
        self.tails: Final = Tails(self.query_slots, open_envelope=self.key_ring.open_envelope)
        self.settings_in_force: Final = SettingsInForce(settings, assignment.origins)
        self._neighbours: Final = Neighbours(assignment, self.query_slots, wake=self._wake)
        self.peers: Final = self._neighbours.peers
        self.changes: Final = self._neighbours.changes
        self.cluster: Final = self._neighbours.cluster
        self._wakeups: Final = self._neighbours.wakeups
        self._leadership: Final = Leadership(self.query_slots, HOUSEKEEPING)
        self.housekeeper: Final = Housekeeper(
            self._leadership,
            leader_duties(
                settings,
                self.housekeeping_slots,
                self._leadership.term,
                note_letters=self.meters.queues.note_letters,
            ),
            gives_way=lambda: is_shed(Priority.BACKGROUND, self.engine.load),
        )
        self.pop: Final = Pop(self.engine, self._directory, self.long_polls, now=loop.time)
        self.discovery: Final = Discovery(self.query_slots, self.pop, now=loop.time)
        self.renew: Final = Renew(self.engine)
        self.live: Final = Live(
            self.pop,
            self.query_slots,
            self._wakeups,
            connections_max=settings.live_connections_max,
        )
        self._settings: Final = settings
        self.worker_index: Final = assignment.index
        self._outage: Final = Outage(after_s=settings.spill_after_s)
        self.maintenance: Final = Maintenance(self.query_slots, self.changes)
        self.diversion: Final = Diversion(
            self._directory, self.key_ring, self._outage, self.maintenance, now=utc_now
        )
        self._spill: SpillLog | None = None
        self._drain: SpillDrain | None = None
        self.default_subscription_mode: Final = settings.default_subscription_mode
        self.hash_seed: int
        self.retention: Final = RetentionOnRequest(
            self.housekeeping_slots, retention_limits(settings), self.meters.queues.note_letters
        )
        self.groups: Final = Groups(self.query_slots)
        self.subscriptions: Final = Subscriptions(self.query_slots, self._wakeups)
        self.seek: Final = Seek(self.query_slots, self._wakeups)
        self.configure: Final = Configure(
            self.query_slots,
            can_encrypt=lambda: self.key_ring.can_encrypt,
            changes=self.changes,
        )
        self._gate: Final = AdmissionGate(self.query_slots, now=loop.time)
        self.schedule: Final = Schedule(self.engine)
        self._sequencer: Final = ScheduledSequencer(self.hot_slots, self._wakeups)
        self.scheduled: Final = Scheduled(
            self.query_slots, self._sequencer, open_envelope=self.key_ring.open_envelope
        )
        self.job_service: Final = JobService(self.query_slots, now=loop.time)
        self._scheduled_max: Final = settings.scheduled_max
        self._dsn: Final = assignment.dsn
        self._staged: StagedSequencer
        show_parts(
            self.meters,
            engine=self.engine,
            long_polls=self.long_polls,
            leases=self._leases,
            live=self.live,
            envelopes=self.envelopes,
            pools={"hot": pools.hot, "query": pools.query, "housekeeping": pools.housekeeping},
        )
        show_failover(self.meters, self.diversion, self.maintenance)
        show_peers(self.meters, self.peers)
        self.observation: Final = Observation(
            assignment, self.meters, hot=pools.hot, query=pools.query, long_polls=self.long_polls
        )
        self.operations: Final = OperationDesk(
            self.query_slots, when_waiting=self._hear_of_operations
        )
        self.intake: Intake
        self._processor: OperationProcessor
        self.push: Push
        self.ack: Ack
        self.transaction: Transaction
        self.streams: Streams
        self.dead_letters: DeadLetters
        self.redrives: Redrives
        self.message_list: MessageList
        self.messages: Messages

    @property
    def announcer(self) -> Announcer:
        """Whoever tells parked polls of all processes that there may be something for them."""
        return self._wakeups

    def check_analytics(self) -> None:
        """Make sure that there is time for analytics.

        Raises:
            Overloaded: Messages come first.
        """
        if is_shed(Priority.ANALYTICS, self.engine.load):
            raise Overloaded("messages come first now; ask again shortly")

    async def start(self) -> None:
        """Connect, and become able to serve.

        Raises:
            Unavailable: The database cannot be reached.
        """
        self.open_spill()
        await self._pools.open()
        (row,) = await self.query_slots.call("select hash_seed from skep.installation")
        self.wire(hash_seed=row[0])
        await self._neighbours.start()
        self.long_polls.start(self.pop.attempt)
        self.housekeeper.start()
        self.redrives.start()
        self._sequencer.start()
        self._staged.start()
        self._processor.start()
        self.observation.start()
        self.security.start()
        await self.maintenance.start()
        if self._spill is not None:
            self.hot_slots.listener = self._outage.hear
        self._outage.hear(True)
        if self._drain is not None:
            self._drain.start()

    def open_spill(self) -> None:
        """Become able to keep pushes on disk, with or without a database."""
        if self._spill is None:
            self._spill = open_spill(self._settings)
            if self._spill is not None:
                self.diversion.open(self._spill)

    def wait_for_database(self) -> None:
        """Keep pushes on disk until `start` has succeeded."""
        self.open_spill()
        self._outage.begin()
        self.security.start()

    def wire(self, *, hash_seed: int) -> None:
        """Make the parts that need the seed of the keys. Nothing is connected or started by it."""
        self.hash_seed = hash_seed
        self.push = Push(
            self.engine,
            self._directory,
            self.schedule,
            diversion=self.diversion,
            hash_seed=hash_seed,
            now=utc_now,
            meters=self.meters,
        )
        requires_lease = self._settings.require_lease
        self.ack = Ack(
            self.engine, self._leases, hash_seed=hash_seed, requires_lease=requires_lease
        )
        stager = Stager(
            self._leases,
            hash_seed=hash_seed,
            now=utc_now,
            check_partition=self.diversion.refuse_if_waiting,
            requires_lease=requires_lease,
        )
        self.transaction = Transaction(self.engine, self._directory, stager)
        self.streams = Streams(self.query_slots, self.engine, self._directory, stager)
        self.intake = self._take_in()
        self._serve_operations()
        self._serve_dead_letters(hash_seed)

    async def stop(self) -> None:
        """Finish what is under way and let go of everything."""
        self.discovery.stop()
        self.long_polls.stop()
        self.tails.stop()
        self.observation.pulse.stop()
        await self.security.stop()
        await self.live.finish()
        await self.job_service.stop()
        await self.housekeeper.stop()
        await self.redrives.stop()
        await self._sequencer.stop()
        await self._staged.stop()
        await self._processor.stop()
        self._line.stop()
        await self._watch.stop()
        await self.maintenance.stop()
        if self._drain is not None:
            await self._drain.stop()
        await self.engine.drain()
        await self._gate.settle()
        await self.observation.stop()
        await self._neighbours.stop()
        await self._pools.close()
        await self.close_spill()

    async def stop_waiting(self) -> None:
        """Let go of what serves without a database."""
        await self.security.stop()
        await self.close_spill()

    async def close_spill(self) -> None:
        """Answer what is on its way to the disk, and let go of the directory."""
        await self.diversion.close()
        if self._spill is not None:
            self._spill.close()

    def _wake(self, queue_id: int, partition_count: int) -> None:
        self.long_polls.wake(queue_id, partition_count)
        self.tails.wake(queue_id)

    def _take_in(self) -> Intake:
        relief = Relief(self.engine, self._line, self._watch, deferral=self._settings.deferral)
        return Intake(
            relief,
            push=PushIntake(self.push, self._directory, relief),
            ack=AckIntake(self.ack, relief),
            pop=self.pop,
            transaction=self.transaction,
        )

    def _hear_of_operations(self) -> None:
        self._processor.hear_of_operations()

    def _note_deferred(self, parts: Sequence[OperationPart]) -> None:
        for part in parts:
            self._watch.note(PartitionKey(part.type, part.partition_id))
        self._hear_of_operations()

    def _listen_for_changes(self, rule_book: RuleBook) -> None:
        async def read_rules(queue_id: int) -> None:
            await rule_book.read_known(queue_id)

        async def forget_queue(queue_id: int) -> None:
            self._directory.forget_queue(queue_id)

        async def read_maintenance(_: int) -> None:
            await self.maintenance.read()

        self.changes.listen(MAINTENANCE, read_maintenance)
        self.changes.listen(RULES, read_rules)
        self.changes.listen(QUEUE, forget_queue)

    def _serve_operations(self) -> None:
        engine, slots = self.engine, self.hot_slots
        key_loader = KeyLoader(slots, self._cache)
        rule_book = RuleBook(slots, seal=self.key_ring.seal_envelope)
        self._listen_for_changes(rule_book)
        partitions = PartitionProvisioner(
            slots, self._directory, rule_book, key_loader, meters=self.meters
        )
        polls = PopExecutor(
            slots,
            self.pop,
            self._leases,
            self.long_polls,
            pass_over=self.ack.pass_over,
            envelopes=self.envelopes,
            now=asyncio.get_running_loop().time,
            meters=self.meters,
            is_paused=lambda: self.maintenance.is_pop_on,
        )
        engine.serve("provision", CutShort(partitions, self._outage))
        engine.serve("subscribe", GroupProvisioner(slots, self._directory))
        pushes = PushExecutor(
            slots,
            push=self.push,
            directory=self._directory,
            provisioner=partitions,
            listener=key_loader,
            rule_book=rule_book,
            enforcer=Enforcer(rule_book, self._gate),
            cache=self._cache,
            announcer=self._wakeups,
            now=utc_now,
            meters=self.meters,
        )
        engine.serve("push", CutShort(pushes, self._outage))
        engine.serve("pop", polls)
        engine.serve("pop_partition", polls)
        engine.serve("release", ReleaseExecutor(slots, self._wakeups))
        engine.serve("undo", UndoExecutor(slots, self._wakeups))
        engine.serve("ack", AckExecutor(slots, self._leases, self._wakeups, meters=self.meters))
        engine.serve("renew", RenewExecutor(slots))
        settled_keys = DedupCache(memory_bytes_max=SETTLEMENT_DEDUP_BYTES)
        settler = Settler(
            slots,
            directory=self._directory,
            provisioner=partitions,
            listener=KeyLoader(slots, settled_keys),
            rule_book=rule_book,
            gate=self._gate,
            cache=settled_keys,
            leases=self._leases,
            announcer=self._wakeups,
            meters=self.meters,
        )
        self._serve_deferral(partitions, rule_book, settler)
        engine.serve("transaction", TransactionExecutor(slots, settler))
        engine.serve("cycle", CycleExecutor(settler, self._wakeups))
        schedules = ScheduleExecutor(
            slots, rule_book, self._sequencer, waiting_max=self._scheduled_max
        )
        engine.serve("schedule", CutShort(schedules, self._outage))
        self._serve_spill(partitions, rule_book)
        self._sequence_staged(rule_book, partitions)

    def _sequence_staged(self, rule_book: RuleBook, partitions: PartitionProvisioner) -> None:
        staged_keys = DedupCache(memory_bytes_max=STAGED_DEDUP_BYTES)
        mover = StagedMover(
            self.hot_slots,
            directory=self._directory,
            provisioner=partitions,
            listener=KeyLoader(self.hot_slots, staged_keys),
            rule_book=rule_book,
            gate=self._gate,
            cache=staged_keys,
            announcer=self._wakeups,
            due_listener=self._sequencer,
            hash_seed=self.hash_seed,
            scheduled_max=self._scheduled_max,
            note_letters=self.meters.queues.note_letters,
        )
        self._staged = StagedSequencer(mover, self._wakeups, self._leadership, self._dsn)

    def _serve_spill(self, partitions: PartitionProvisioner, rule_book: RuleBook) -> None:
        if self._spill is None:
            return
        cache = DedupCache(memory_bytes_max=DRAIN_DEDUP_BYTES)
        self._drain = SpillDrain(
            self._spill,
            self.hot_slots,
            directory=self._directory,
            provisioner=partitions,
            listener=KeyLoader(self.hot_slots, cache),
            cache=cache,
            rule_book=rule_book,
            open_envelope=self.key_ring.open_envelope,
            announcer=self._wakeups,
            due=self._sequencer,
            hash_seed=self.hash_seed,
            may_drain=self._may_drain,
        )
        self.maintenance.listen(self._drain.look)

    def _may_drain(self) -> bool:
        return (
            self.hot_slots.is_whole and not self._outage.is_on and not self.maintenance.is_push_on
        )

    def _serve_deferral(
        self, partitions: PartitionProvisioner, rule_book: RuleBook, settler: Settler
    ) -> None:
        settings = self._settings
        deferral = DeferralExecutor(
            self.hot_slots,
            push=self.push,
            directory=self._directory,
            provisioner=partitions,
            rule_book=rule_book,
            gate=self._gate,
            limits=DepthLimits(
                operations=settings.operation_depth_max,
                per_partition=settings.operation_depth_max_per_partition,
                bytes=settings.operation_mib_max * _MIB,
            ),
            when_accepted=self._note_deferred,
        )
        self.engine.serve("defer", deferral)
        self._processor = OperationProcessor(
            self.hot_slots,
            settler,
            leases=self._leases,
            announcer=self._wakeups,
            open_envelope=self.key_ring.open_envelope,
            limits=ProcessorLimits(settings.operation_timeout_s, settings.operation_retries_max),
        )
        show_load(self.meters, line=self._line, deferral=deferral, processor=self._processor)

    def _serve_dead_letters(self, hash_seed: int) -> None:
        slots = self.query_slots
        open_envelope = self.key_ring.open_envelope
        mover = Mover(
            slots,
            self._wakeups,
            hash_seed=hash_seed,
            open_envelope=open_envelope,
            seal_envelope=self.key_ring.seal_envelope,
        )
        self.dead_letters = DeadLetters(slots, mover, open_envelope=open_envelope)
        self.redrives = Redrives(slots, self.dead_letters, mover)
        self.message_list = MessageList(slots, hash_seed=hash_seed)
        self.messages = Messages(
            slots,
            self.dead_letters,
            self._wakeups,
            hash_seed=hash_seed,
            note_letters=self.meters.queues.note_letters,
            open_envelope=open_envelope,
        )


def utc_now() -> datetime:
    """Return the time, for what is compared with times of the database."""
    return datetime.now(UTC)
