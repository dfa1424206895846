"""Pop and ack: polls, live feeds and tails, leases and acknowledgments."""

from typing import Final

from skep.app.parts.core import MIB, Core
from skep.app.parts.failover import FailoverParts
from skep.broker.ack.accept import Ack
from skep.broker.ack.execute import AckExecutor
from skep.broker.ack.renew import Renew
from skep.broker.overload.fallback import Fallback
from skep.broker.pop.accept import Pop
from skep.broker.pop.batches import EnvelopeReader
from skep.broker.pop.deadlines import Deadlines
from skep.broker.pop.discovery import Discovery
from skep.broker.pop.execute import ClaimReturns, PopExecutor
from skep.broker.pop.feed import Live
from skep.broker.pop.hand_over import HandOvers
from skep.broker.pop.lease_memory import LeaseMemory
from skep.broker.pop.long_poll import LongPolls
from skep.broker.pop.parking import SweepPolicy
from skep.broker.pop.tail import Tails

LEASE_MEMORY_BYTES: Final = 64 * MIB


class PopParts:
    """Delivers messages and takes their acknowledgments."""

    def __init__(self, core: Core, fallback: Fallback) -> None:
        settings, meters, open_envelope = core.settings, core.meters, core.key_ring.open_envelope
        self._core: Final = core
        self._fallback: Final = fallback
        self.leases: Final = LeaseMemory(bytes_max=LEASE_MEMORY_BYTES)
        self._envelopes: Final = EnvelopeReader(open_envelope)
        self.long_polls: Final = LongPolls(
            core.vital,
            SweepPolicy(
                interval_s_min=settings.poll_interval_ms / 1000,
                interval_s_max=settings.poll_interval_ms_max / 1000,
                slack_s=settings.poll_interval_ms_max / 5000,
            ),
            meters=meters,
        )
        self.tails: Final = Tails(core.query, open_envelope=open_envelope)
        self.pop: Final = Pop(
            core.engine,
            core.directory,
            self.long_polls,
            fallback,
            Deadlines(lambda: core.reach.is_away(core.hot)),
            now=core.now,
        )
        self.discovery: Final = Discovery(core.vital, self.pop, now=core.now)
        self.renew: Final = Renew(core.engine, core.hot)
        self.live: Final = Live(
            self.pop, core.query, core.announcer, connections_max=settings.live_connections_max
        )
        meters.watch("skep_parked_polls", lambda: len(self.long_polls))
        meters.watch("skep_leases_remembered", lambda: len(self.leases))
        meters.watch("skep_live_connections", lambda: self.live.connection_count)
        meters.counts["skep_expired_messages"] = lambda: {(): self._envelopes.expired_count}

    def wire(self, failover: FailoverParts) -> None:
        """Make the parts that need the seed."""
        core, slots = self._core, self._core.hot
        self.ack = Ack(
            core.engine,
            self.leases,
            self._fallback,
            hash_seed=core.hash_seed,
            requires_lease=core.settings.require_lease,
        )
        polls = PopExecutor(
            slots,
            self.pop,
            self.leases,
            self.long_polls,
            pass_over=self.ack.pass_over,
            envelopes=self._envelopes,
            now=core.now,
            bytes_max=core.settings.pop_bytes_max,
            meters=core.meters,
            is_paused=lambda: failover.maintenance.is_pop_on,
            is_whole=lambda: slots.is_whole,
        )
        self.hand_overs = HandOvers(self.pop, self.long_polls, polls)
        acks = AckExecutor(slots, self.leases, core.announcer, meters=core.meters)
        returns = ClaimReturns(slots, core.announcer, is_whole=lambda: slots.is_whole)
        core.engine.serve("pop", polls.execute)
        core.engine.serve("pop_partition", polls.execute)
        core.engine.serve("release", returns.release)
        core.engine.serve("undo", returns.undo)
        core.engine.serve("ack", acks.execute)
        core.engine.serve("renew", self.renew.execute)

    def wake(self, queue_id: int, partition_count: int) -> None:
        """Check the waiting polls and tails of a queue: it may have messages for them."""
        if partition_count:
            self.long_polls.wake(queue_id, partition_count)
        self.tails.wake(queue_id)

    def stop_waiting(self) -> None:
        """Answer all waiting polls and tails."""
        self.discovery.stop()
        self.long_polls.stop()
        self.tails.stop()
