"""What the meters of a worker show beyond what it counts: the state of its parts at the moment."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from skep.broker.cluster.peers import Peers
from skep.broker.failover.diversion import Diversion
from skep.broker.failover.maintenance import Maintenance
from skep.broker.overload.deferral import DeferralExecutor
from skep.broker.overload.processor import OperationProcessor
from skep.broker.overload.waiting_line import Line
from skep.broker.pop.batches import EnvelopeReader
from skep.broker.pop.feed import Live
from skep.broker.pop.lease_memory import LeaseMemory
from skep.broker.pop.long_poll import LongPolls
from skep.db.access.slots import Slots
from skep.engine.driver import Engine
from skep.telemetry.loop_watch import LoopWatch
from skep.telemetry.meters import Meters
from skep.telemetry.process_stats import ProcessStats, read_process_stats


def show_parts(
    meters: Meters,
    *,
    engine: Engine,
    long_polls: LongPolls,
    leases: LeaseMemory,
    live: Live,
    envelopes: EnvelopeReader,
    pools: Mapping[str, Slots],
) -> None:
    """Let the meters ask the parts of a broker about the moment."""
    meters.watch("skep_engine_weight_bytes", lambda: engine.weight)
    meters.watch("skep_parked_polls", lambda: len(long_polls))
    meters.watch("skep_leases_remembered", lambda: len(leases))
    meters.watch("skep_live_connections", lambda: live.connection_count)
    meters.counts["skep_expired_messages"] = lambda: {(): envelopes.expired_count}
    meters.gauges["skep_db_connections"] = lambda: {
        labels: count
        for name, slots in pools.items()
        for labels, count in (
            ((name, "busy"), slots.busy_count),
            ((name, "idle"), slots.connected_count - slots.busy_count),
        )
    }
    meters.gauges["skep_db_waiting_calls"] = lambda: {
        (name,): slots.waiting_count for name, slots in pools.items()
    }


def show_load(
    meters: Meters, *, line: Line, deferral: DeferralExecutor, processor: OperationProcessor
) -> None:
    """Let the meters ask how requests fare when there is no room for them."""
    meters.watch("skep_line_requests", lambda: len(line))
    meters.counts["skep_line_held"] = lambda: {(): line.held_count}
    meters.counts["skep_line_refused"] = lambda: {(): line.refused_count}
    meters.counts["skep_operations_accepted"] = lambda: {(): deferral.accepted_count}
    meters.counts["skep_operations_ended"] = lambda: {
        ("completed",): processor.completed_count,
        ("failed",): processor.failed_count,
    }


def show_failover(meters: Meters, diversion: Diversion, maintenance: Maintenance) -> None:
    """Let the meters ask what is kept on disk, and why."""
    meters.watch("skep_spill_pending_messages", lambda: diversion.stats().pending_messages)
    meters.watch("skep_spill_pending_bytes", lambda: diversion.stats().pending_bytes)
    meters.watch("skep_spill_rejected_files", lambda: diversion.stats().rejected_files)
    meters.watch("skep_database_away", lambda: int(diversion.stats().is_database_away))
    meters.gauges["skep_maintenance_mode"] = lambda: {
        ("push",): int(maintenance.is_push_on),
        ("pop",): int(maintenance.is_pop_on),
    }
    meters.counts["skep_spilled_messages"] = lambda: {(): diversion.stats().buffered_total}
    meters.counts["skep_spill_refused_messages"] = lambda: {(): diversion.stats().refused_total}
    meters.counts["skep_spill_fsyncs"] = lambda: {(): diversion.stats().fsync_total}


def show_peers(meters: Meters, peers: Peers) -> None:
    """Let the meters ask what is told to other instances, and heard of them."""
    meters.counts["skep_peer_notices_heard"] = lambda: {
        (verdict,): count for verdict, count in peers.stats().heard.items()
    }
    meters.counts["skep_peer_notices_sent"] = lambda: {
        ("datagram",): peers.stats().datagrams_sent,
        ("request",): sum(each.sent for each in peers.stats().request_peers),
    }
    meters.counts["skep_peer_notices_failed"] = lambda: {
        ("datagram",): peers.stats().datagrams_failed,
        ("request",): sum(each.failed for each in peers.stats().request_peers),
    }


class UsageProbe:
    """Reads what a worker uses, for its reports: shares of the time since the last reading."""

    def __init__(self, slots: Slots, long_polls: LongPolls, watch: LoopWatch) -> None:
        self._sunits: Final = slots
        self._long_polls: Final = long_polls
        self._watch: Final = watch
        self._loop: Final = asyncio.get_running_loop()
        self._then = self._loop.time()
        self._before = read_process_stats()

    def read(self) -> Mapping[str, Iterable[float]]:
        """Return the gauges of a sample."""
        now, stats = self._loop.time(), read_process_stats()
        user_pct, system_pct = _shares(self._before, stats, max(now - self._then, 1e-3))
        self._then, self._before = now, stats
        busy = self._sunits.busy_count
        return {
            "cpu_user_pct": [user_pct],
            "cpu_system_pct": [system_pct],
            "rss_bytes": [stats.rss_bytes],
            "virtual_bytes": [stats.virtual_bytes],
            "pool_size": [self._sunits.size],
            "pool_active": [busy],
            "pool_idle": [self._sunits.connected_count - busy],
            "waiting_calls": [self._sunits.waiting_count],
            "parked": [len(self._long_polls)],
            "loop_lag_ms": [lag_s * 1000 for lag_s in self._watch.take_recent()],
        }


def _shares(before: ProcessStats, after: ProcessStats, seconds: float) -> tuple[float, float]:
    """Return how much of some time was spent on a processor, in percent of one."""
    return (
        100 * (after.cpu_user_s - before.cpu_user_s) / seconds,
        100 * (after.cpu_system_s - before.cpu_system_s) / seconds,
    )
