"""How a client reaches its brokers, how patient it is, and what it consumes. Pure."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias, get_args

from skep.client.endpoints import affinity_of, path_of
from skep.client.errors import GATEWAY_STATUSES
from skep.model.errors import BadRequest
from skep.model.wire import QUEUE_MODE

Token: TypeAlias = str | Callable[[], str] | None
Delivery: TypeAlias = Literal["auto", "websocket", "poll"]

_HASTE_SHARE: Final = 0.5
_HASTE_PAUSE_S_MAX: Final = 1.0
_DOUBLINGS_MAX: Final = 30
"""Beyond, the pause has long reached its limit, and a float would not hold the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Whether a request is repeated, and after which pause.

    Repeated are 429 (if wanted), 502, 503, 504 and requests without an answer. Every request of
    this client may be repeated: pushes carry transaction ids, all others name the wanted state.
    """

    retries: int | None = 5
    """Repetitions after the first try; None never gives up."""
    first_pause_s: float = 0.1
    """The pause after the first failure; it doubles with each."""
    max_retry_delay: float = 30.0
    """The longest pause in seconds, even if the broker asks for more."""
    retry_on_429: bool = True
    honor_retry_after: bool = True

    def is_repeated(self, status: int | None) -> bool:
        """Say whether an answer of this status is worth another try; None is no answer."""
        if status == 429:
            return self.retry_on_429
        return status is None or status in GATEWAY_STATUSES

    def has_try_left(self, failures: int) -> bool:
        """Say whether a request that failed so often is tried once more."""
        return self.retries is None or failures <= self.retries

    def pause_s(self, failures: int, retry_after_s: float | None, chance: float) -> float:
        """Return how long to wait after so many failures, one at least.

        A chance between 0 and 1 spreads clients that failed together over half the pause.
        """
        whole = self.first_pause_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
        pause = min(whole, self.max_retry_delay) * (0.5 + chance / 2)
        if self.honor_retry_after and retry_after_s is not None:
            # Later than asked for by some chance, or all would come back in the same moment.
            pause = max(pause, retry_after_s * (1 + chance / 10))
        return min(pause, self.max_retry_delay)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How to reach the brokers."""

    urls: tuple[str, ...]
    token: Token = None
    """A token, or a function that returns the present one; it is called from any thread."""
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None = None
    connect_timeout_s: float = 5.0
    timeout_s: float = 30.0
    cool_off_s: float = 5.0
    retry: RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """What to consume, and how; checked."""

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
    create: bool | None = None
    limit: int | None = None
    idle_s: float | None = None
    delivery: Delivery = "auto"

    def __post_init__(self) -> None:
        if not self.queue and not self.namespace and not self.task:
            raise BadRequest("nothing to consume: name a queue, a namespace or a task")
        for name, least in (("batch", 1), ("lease_s", 1), ("partitions", 0), ("wait_s", 0)):
            if (value := getattr(self, name)) < least:
                raise BadRequest(f"invalid {name} {value!r}: use at least {least}")
        if self.delivery not in get_args(Delivery):
            choices = ", ".join(get_args(Delivery))
            raise BadRequest(f"invalid delivery {self.delivery!r}: use one of {choices}")

    @property
    def affinity(self) -> str:
        """The key that brings all requests of this consumption to one broker."""
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
        create=options.create,
    )


class Polls:
    """What a consumption asks for, poll by poll."""

    def __init__(self, options: ConsumeOptions) -> None:
        self._options: Final = options
        self._path = ""
        self._asked = (0, 0)
        self._delivered = 0
        self._hasty_answers = 0

    def size(self) -> int:
        """Return how many messages to ask for; 0 when the limit is reached."""
        if self._options.limit is None:
            return self._options.batch
        return max(min(self._options.batch, self._options.limit - self._delivered), 0)

    def path(self, size: int, wait_ms: int) -> str:
        """Return the path of a poll, which is mostly that of the last one."""
        if (size, wait_ms) != self._asked:
            self._path = pop_path(self._options, size, wait_ms)
            self._asked = (size, wait_ms)
        return self._path

    def note_delivery(self, count: int) -> None:
        """Note that messages came."""
        self._delivered += count
        self._hasty_answers = 0

    def pause_s(self, took_s: float, wait_s: float) -> float:
        """Return the pause after an empty answer.

        There is one if the answer came long before its time, as from a broker that is paused.
        """
        if wait_s > 0 and took_s >= wait_s * _HASTE_SHARE:
            self._hasty_answers = 0
            return 0.0
        self._hasty_answers = min(self._hasty_answers + 1, 10)
        return min(0.01 * 2**self._hasty_answers, _HASTE_PAUSE_S_MAX)
