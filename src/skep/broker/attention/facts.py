"""The facts that `judge` decides about. Plain values; a time is of the database's clock."""

from collections.abc import Collection, Mapping
from datetime import datetime

import msgspec

from skep.broker.groups.condition import GroupCondition, QueueCondition


class GroupSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group on a queue."""

    queue: str
    group: str
    condition: GroupCondition
    is_paused: bool = False
    """Itself, not only its queue."""
    backlog: int = 0
    lag_s: float = 0
    growth: float | None = None
    """Messages per second by which the backlog grows; None if unknown."""
    is_held: bool = False
    is_failing: bool = False
    polled_at: datetime | None = None
    progressed_at: datetime | None = None
    blocked_partitions: int = 0
    blocked_partition: str = ""
    deliveries: int = 0
    """Of the first message in `blocked_partition`."""


class QueueSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A queue."""

    name: str
    condition: QueueCondition
    is_paused: bool = False
    backlog: int = 0
    """Of its slowest group."""
    in_per_second: float = 0


class LettersSeen(msgspec.Struct, frozen=True, kw_only=True):
    """New dead letters of a group on a queue; of a group that is gone, without its name."""

    queue: str
    group: str | None
    count: int
    since: datetime
    last_at: datetime
    error: str | None


class ChainsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Chains of a type that failed lately."""

    type: str
    count: int
    since: datetime
    error: str | None


class JobTypeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A job type that is paused, or whose jobs wait long."""

    name: str
    is_paused: bool
    oldest_s: float | None
    """For how long its first ready job has waited; None if none is ready."""


class PipelineSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline as its runner reported it."""

    name: str
    state: str
    is_silent: bool
    """It should run, and has not reported lately."""
    error: str | None
    since: datetime
    """When it ended, or last reported."""


class ArchiveSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A queue whose archive is late."""

    queue: str
    late_s: float
    archived_at: datetime | None


class StuckSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A deferred operation that nothing carries out, and its partition with it."""

    queue: str
    partition: str
    since: datetime


class InstanceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that does not report any more."""

    name: str
    silent_s: float


class ProcessSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The instance that answers, and the modes of the installation."""

    is_push_maintenance: bool = False
    is_pop_maintenance: bool = False
    is_database_away: bool = False
    spilled: int = 0
    """Messages on this machine's disk, not in PostgreSQL yet."""
    rejected: int = 0
    """Spilled records that could not be stored."""
    dedup_share: float = 0
    """Of the memory for ids of recent pushes, the part in use."""
    dedup_lacking_s: float = 0
    """Part of the duplicate window that memory does not cover."""
    connections: int = 0
    connections_max: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment."""

    checked_at: datetime
    groups: Collection[GroupSeen] = ()
    queues: Collection[QueueSeen] = ()
    letters: Collection[LettersSeen] = ()
    chains: Collection[ChainsSeen] = ()
    job_types: Collection[JobTypeSeen] = ()
    workers: int = 0
    """Live workers of jobs."""
    pipelines: Collection[PipelineSeen] = ()
    archives: Collection[ArchiveSeen] = ()
    stuck: Collection[StuckSeen] = ()
    lost: Collection[InstanceSeen] = ()
    process: ProcessSeen = ProcessSeen()
    messages: Mapping[str, int] = {}
    jobs: Mapping[str, int] = {}
    instances: Mapping[str, int] = {}

    @property
    def queue_names(self) -> set[str]:
        """All queues that anything here is about."""
        about = (self.groups, self.letters, self.archives, self.stuck)
        return {each.name for each in self.queues} | {each.queue for part in about for each in part}

    def only(self, queues: Collection[str]) -> "Facts":
        """Return what a caller may know who is restricted to these queues."""
        return Facts(
            checked_at=self.checked_at,
            groups=[each for each in self.groups if each.queue in queues],
            queues=[each for each in self.queues if each.name in queues],
            letters=[each for each in self.letters if each.queue in queues],
            archives=[each for each in self.archives if each.queue in queues],
            stuck=[each for each in self.stuck if each.queue in queues],
        )
