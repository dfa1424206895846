"""Background work: what the leader of an installation does, and retention on request."""

from datetime import timedelta
from functools import partial
from typing import Final

from skep.app.parts.core import Core
from skep.broker.cluster.housekeeping import Duty, Housekeeper
from skep.broker.groups.subscriptions import removed_group_sweep
from skep.broker.kv.browse import kv_sweep
from skep.broker.overload.operations import operation_purge
from skep.broker.overload.shares import is_shed
from skep.broker.queues.lifecycle import removed_queue_sweep
from skep.broker.retention import retention
from skep.broker.stats.rollups import RollUpDuty, lag_sampling, metrics_purge
from skep.broker.traces import trace_purge
from skep.broker.transaction.settlement import settled_purge
from skep.db.access.functions import Functions
from skep.jobs.service.upkeep import ChainPrune, JobUpkeep
from skep.model.priorities import Priority


class BackgroundParts:
    """Deletes what may go, and keeps statistics; it gives way to messages."""

    def __init__(self, core: Core) -> None:
        settings = core.settings
        limits = retention.Limits(
            segments=settings.retention_batch, messages=settings.eviction_batch
        )
        self.retention: Final = retention.RetentionOnRequest(
            core.housekeeping, limits, core.meters.queues.note_letters
        )
        self.housekeeper: Final = Housekeeper(
            core.leadership,
            _leader_duties(core, limits),
            gives_way=lambda: is_shed(Priority.BACKGROUND, core.engine.load),
        )


def _leader_duties(core: Core, limits: retention.Limits) -> list[Duty]:
    settings, caller, term = core.settings, core.housekeeping, core.leadership.term
    days = timedelta(days=1)
    deletion = partial(
        retention.RetentionDuty,
        sql=Functions(caller),
        term=term,
        limits=limits,
        note_letters=core.meters.queues.note_letters,
    )
    duties: list[Duty] = [
        deletion(
            name="retention",
            kinds=("retention", "completed"),
            interval_s=settings.retention_interval_s,
        ),
        deletion(name="eviction", kinds=("eviction",), interval_s=settings.eviction_interval_s),
        retention.PurgeDuty(
            Functions(caller),
            term,
            dead_letter_s=settings.dead_letter_retention_s,
            history_days=settings.history_retention_days,
        ),
        removed_queue_sweep(caller),
        removed_group_sweep(caller),
        operation_purge(
            caller,
            keep_s=settings.operation_retention_s,
            keep_failed_s=settings.operation_failed_retention_s,
        ),
        retention.staging_sweep(caller),
        retention.snapshot_notes(caller),
        RollUpDuty(caller, term),
        lag_sampling(caller, term),
        metrics_purge(caller, term, keep=settings.history_retention_days * days),
        JobUpkeep(caller),
        kv_sweep(caller),
        settled_purge(caller),
    ]
    if settings.job_retention_days:
        duties.append(ChainPrune(caller, keep=settings.job_retention_days * days))
    if settings.trace_retention_days:
        duties.append(trace_purge(caller, keep=settings.trace_retention_days * days))
    if settings.partition_cleanup_days:
        duties.append(
            retention.CleanupDuty(caller, term, idle_days=settings.partition_cleanup_days)
        )
    return duties
