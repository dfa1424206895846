"""The background work that one process of an installation leads, by its settings."""

from datetime import timedelta

from skep.broker.cluster.leadership import Term
from skep.broker.groups.subscriptions import RemovedGroupSweep
from skep.broker.messages.traces import TracePurge
from skep.broker.overload.operations import OperationPurge
from skep.broker.queues.lifecycle import RemovedQueueSweep
from skep.broker.retention.housekeeping import Duty
from skep.broker.retention.retention import CleanupDuty, Limits, PurgeDuty, RetentionDuty
from skep.broker.retention.staging_sweep import StagingSweep
from skep.broker.stats.rollups import LagSampleDuty, MetricsPurge, RollUpDuty
from skep.db.access.slots import Slots
from skep.jobs.service.upkeep import ChainPrune, JobUpkeep
from skep.settings import Settings
from skep.telemetry.meters import NoteLetters


def retention_limits(settings: Settings) -> Limits:
    """Return the most that a step of retention may take on."""
    return Limits(segments=settings.retention_batch, messages=settings.eviction_batch)


def leader_duties(
    settings: Settings, caller: Slots, term: Term, *, note_letters: NoteLetters
) -> list[Duty]:
    """Return what the leader does in turn."""
    limits = retention_limits(settings)
    duties: list[Duty] = [
        RetentionDuty(
            caller,
            term,
            name="retention",
            kinds=("retention", "completed"),
            interval_s=settings.retention_interval_s,
            limits=limits,
            note_letters=note_letters,
        ),
        RetentionDuty(
            caller,
            term,
            name="eviction",
            kinds=("eviction",),
            interval_s=settings.eviction_interval_s,
            limits=limits,
            note_letters=note_letters,
        ),
        PurgeDuty(
            caller,
            term,
            dead_letter_s=settings.dead_letter_retention_s,
            history_days=settings.history_retention_days,
        ),
        RemovedQueueSweep(caller),
        RemovedGroupSweep(caller),
        OperationPurge(
            caller,
            keep_s=settings.operation_retention_s,
            keep_failed_s=settings.operation_failed_retention_s,
        ),
        StagingSweep(caller),
        RollUpDuty(caller, term),
        LagSampleDuty(caller, term),
        MetricsPurge(caller, term, keep=timedelta(days=settings.history_retention_days)),
    ]
    duties.append(JobUpkeep(caller))
    if settings.job_retention_days:
        duties.append(ChainPrune(caller, keep=timedelta(days=settings.job_retention_days)))
    if settings.trace_retention_days:
        duties.append(TracePurge(caller, keep=timedelta(days=settings.trace_retention_days)))
    if settings.partition_cleanup_days:
        duties.append(CleanupDuty(caller, term, idle_days=settings.partition_cleanup_days))
    return duties
