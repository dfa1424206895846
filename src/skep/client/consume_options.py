"""What to consume, and how: checked, and spelled as a poll."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from skep.client.addresses import affinity_of, path_of
from skep.model.errors import BadRequest
from skep.model.wire import QUEUE_MODE

Delivery: TypeAlias = Literal["auto", "websocket", "poll"]


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
    delivery: Delivery = "auto"

    def __post_init__(self) -> None:
        if not self.queue and not self.namespace and not self.task:
            raise BadRequest("name a queue, a namespace or a task to consume")
        if self.batch < 1 or self.partitions < 0 or self.lease_s < 1 or self.wait_s < 0:
            raise BadRequest("batch and lease_s must be at least 1, partitions and wait_s 0")
        if self.delivery not in get_args(Delivery):
            raise BadRequest(f"delivery must be one of {', '.join(get_args(Delivery))}")

    @property
    def affinity(self) -> str:
        """Lets all requests of this consumption meet at one broker."""
        return affinity_of(self.queue or f"{self.namespace}\0{self.task}", self.group)

    @property
    def wants_socket(self) -> bool:
        """Whether messages may come by WebSocket; a subscription is for one whole queue.

        `auto` polls: that costs less (ADR 0032).
        """
        is_plain = self.partition is None and self.conflation is None
        return self.delivery == "websocket" and self.queue is not None and is_plain


@lru_cache(maxsize=256)
def pop_path(options: ConsumeOptions, batch: int, wait_ms: int) -> str:
    """Return the path of a poll."""
    segments = ["pop"]
    if options.queue:
        segments = ["pop/queue", options.queue]
        if options.partition is not None:
            segments += ["partition", options.partition]
    return path_of(
        *segments,
        namespace=None if options.queue else options.namespace,
        task=None if options.queue else options.task,
        consumerGroup=None if options.group == QUEUE_MODE else options.group,
        batch=batch,
        partitions=None if options.partition is not None else options.partitions,
        wait=True if wait_ms > 0 else None,
        timeout=wait_ms if wait_ms > 0 else None,
        autoAck=True if options.auto_ack else None,
        leaseSeconds=None if options.auto_ack else round(options.lease_s),
        subscriptionMode=options.subscription_mode,
        subscriptionFrom=options.subscription_from,
        conflation=options.conflation,
    )
