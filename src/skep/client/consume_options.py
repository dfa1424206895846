"""What to consume, and how: checked, and spelled as a poll."""

from dataclasses import dataclass

from skep.client.addresses import affinity_of, path_of
from skep.model.errors import BadRequest
from skep.model.wire import QUEUE_MODE


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """What to consume, and how."""

    queue: str | None = None
    namespace: str | None = None
    task: str | None = None
    partition: str | None = None
    group: str = QUEUE_MODE
    batch: int = 100
    partitions: int = 10
    auto_ack: bool = False
    lease_s: float = 60.0
    lease_s_max: float = 3_600.0
    ack_every_s: float = 1.0
    wait_s: float = 30.0
    subscription_mode: str | None = None
    subscription_from: str | None = None
    conflation: bool | None = None
    limit: int | None = None
    idle_s: float | None = None

    def __post_init__(self) -> None:
        if not self.queue and not self.namespace and not self.task:
            raise BadRequest("name a queue, a namespace or a task to consume")
        if self.batch < 1 or self.partitions < 0 or self.lease_s < 1 or self.wait_s < 0:
            raise BadRequest("batch and lease_s must be at least 1, partitions and wait_s 0")

    @property
    def affinity(self) -> str:
        """Lets all requests of this consumption meet at one broker."""
        return affinity_of(self.queue or f"{self.namespace}\0{self.task}", self.group)

    def pop_path(self, batch: int, wait_s: float) -> str:
        """Return the path of a poll."""
        segments = ["pop"]
        if self.queue:
            segments = ["pop/queue", self.queue]
            if self.partition is not None:
                segments += ["partition", self.partition]
        return path_of(
            *segments,
            namespace=None if self.queue else self.namespace,
            task=None if self.queue else self.task,
            consumerGroup=None if self.group == QUEUE_MODE else self.group,
            batch=batch,
            partitions=None if self.partition is not None else self.partitions,
            wait=True if wait_s > 0 else None,
            timeout=round(wait_s * 1000) if wait_s > 0 else None,
            autoAck=True if self.auto_ack else None,
            leaseSeconds=None if self.auto_ack else round(self.lease_s),
            subscriptionMode=self.subscription_mode,
            subscriptionFrom=self.subscription_from,
            conflation=self.conflation,
        )
