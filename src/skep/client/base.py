"""What both clients have in common: how they are made, what they consume, their plain requests."""

import ssl
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import repeat
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from skep.client import resources
from skep.client.deliveries import Delivered
from skep.client.endpoints import affinity_of, path_of, spell_time
from skep.client.errors import LeaseLost
from skep.client.leases import LeaseKeeper
from skep.client.options import ConsumeOptions, Delivery, RetryPolicy, SessionOptions, Token
from skep.client.pushes import Headers, Item, PartitionRule, TransactionIds, alike_body, encode
from skep.client.requests import Pushes, QueuedOperationBehavior, Request, ask
from skep.client.tracing import telemetry_of
from skep.client.values import (
    Fetched,
    Json,
    Operation,
    PushResult,
    PushResults,
    Renewed,
    read_fetched,
)
from skep.model.limits import PUSH_ITEMS_MAX
from skep.model.wire import DEFAULT_PARTITION, QUEUE_MODE

Start: TypeAlias = Literal["all", "new"] | datetime
"""Where a new group starts: with all messages, with new ones, or at a time."""

_NO_HEADERS: Final[Mapping[str, str]] = {}

C = TypeVar("C")
"""What iterates over messages."""


T = TypeVar("T")


def _parts_of(sequence: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split items or payloads into parts that one request may carry."""
    for begin in range(0, len(sequence), PUSH_ITEMS_MAX):
        yield sequence[begin : begin + PUSH_ITEMS_MAX]


def _as_they_are(results: PushResults) -> PushResults:
    return results


class ClientBase(resources.Resource[resources.S_co], Generic[resources.S_co, C]):
    """What both clients have in common."""

    def __init__(
        self,
        urls: str | Sequence[str] = "http://127.0.0.1:6632",
        *,
        token: Token = None,
        timeout_s: float = 30.0,
        connect_timeout_s: float = 5.0,
        retries: int = 5,
        retry_on_429: bool = True,
        honor_retry_after: bool = True,
        max_retry_delay: float = 30.0,
        queued_operation_behavior: QueuedOperationBehavior | None = None,
        telemetry: bool = False,
        headers: Mapping[str, str] = _NO_HEADERS,
        tls: ssl.SSLContext | None = None,
        cool_off_s: float = 5.0,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            urls: Of one broker, or of several instances: each queue stays with one of them while
                it is well, and moves to another when it is not.
            token: For `Authorization: Bearer`; a function is called for each request.
            timeout_s: For one try of one request.
            connect_timeout_s: For one connection.
            retries: Repetitions of a request that was not answered, or answered 429, 502, 503 or
                504. Consumers and buffers never give up.
            retry_on_429: Whether a full queue or a busy broker is asked again.
            honor_retry_after: Whether a pause lasts at least as long as the broker asks for.
            max_retry_delay: The longest pause, in seconds.
            queued_operation_behavior: What to do when a busy broker queues a push instead of
                refusing it: `poll` waits for its results, `return` returns without them. None does
                not ask for queueing; if a broker queues all the same, the client waits.
            telemetry: Carry the context of OpenTelemetry in the headers of messages.
            headers: Sent with every request.
            tls: For https; the system's certificates by default.
            cool_off_s: How long a broker that did not answer is passed over.
        """
        options = SessionOptions(
            urls=(urls,) if isinstance(urls, str) else tuple(urls),
            token=token,
            headers=headers,
            tls=tls,
            connect_timeout_s=connect_timeout_s,
            timeout_s=timeout_s,
            cool_off_s=cool_off_s,
            retry=RetryPolicy(
                retries=retries,
                max_retry_delay=max_retry_delay,
                retry_on_429=retry_on_429,
                honor_retry_after=honor_retry_after,
            ),
        )
        self._options: Final = options
        super().__init__(self._open_session(options))
        self._keeper: Final = LeaseKeeper(options)
        self._ids: Final = TransactionIds()
        self._telemetry: Final = telemetry_of(is_wanted=telemetry)
        self._queued_operation_behavior: Final = queued_operation_behavior
        self.queues: Final = resources.Queues(self.session)
        self.groups: Final = resources.Groups(self.session)
        self.messages: Final = resources.Messages(self.session)
        self.dead_letters: Final = resources.DeadLetters(self.session)
        self.traces: Final = resources.Traces(self.session)
        self.scheduled: Final = resources.Scheduled(self.session)
        self.timers: Final = resources.Timers(self.session)
        self.locks: Final = resources.Locks(self.session)
        self.kv: Final = resources.Kv(self.session)

    @abstractmethod
    def _open_session(self, options: SessionOptions) -> resources.S_co: ...

    @abstractmethod
    def _consumption(self, options: ConsumeOptions) -> C: ...

    @property
    def urls(self) -> tuple[str, ...]:
        """The brokers of this client."""
        return self._options.urls

    def consume(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
        batch: int = 100,
        partitions: int = 10,
        auto_ack: bool = False,
        lease_s: float = 60.0,
        lease_s_max: float = 3_600.0,
        ack_every_s: float = 1.0,
        wait_s: float = 30.0,
        start: Start = "all",
        conflation: bool | None = None,
        create: bool | None = None,
        limit: int | None = None,
        idle_s: float | None = None,
        delivery: Delivery = "auto",
    ) -> C:
        """Return the messages of a queue, to be iterated over: `for`, or `async for` on asyncio.

        A message is done when the next one is asked for. Leaving the loop gives back the current
        message; settle it before (`message.ack()`), or use `with`, which settles it by how the
        block ends. The broker may be restarted meanwhile.

        Args:
            queue: Or else a namespace or a task, whose queues are all consumed.
            group: Each group gets every message; without one all consumers share them.
            partition: Only of this partition.
            namespace: Queues of this namespace.
            task: Queues of this task.
            batch: Messages taken at once, at most.
            partitions: Partitions taken at once, at most; 0 is no limit.
            auto_ack: Done on delivery: at most once.
            lease_s: How soon messages come again if this process dies. Renewed by itself.
            lease_s_max: A lease is not renewed for longer: a handler that hangs loses it.
            ack_every_s: Verdicts are sent at least so often, and with every batch.
            wait_s: How long one request waits for messages.
            start: Where a new group starts.
            conflation: Deliver only the newest message of each partition.
            create: Whether a queue or partition that does not exist is created; if not, NotFound is
                raised. By default the broker decides.
            limit: End after so many messages.
            idle_s: End when no message came for so long.
            delivery: `websocket` (needs the package `websockets`), or `poll`; `auto` polls,
                because that costs less.
        """
        options = ConsumeOptions(
            queue=queue,
            namespace=namespace,
            task=task,
            partition=partition,
            group=group or QUEUE_MODE,
            batch=batch,
            partitions=partitions,
            auto_ack=auto_ack,
            lease_s=lease_s,
            lease_s_max=lease_s_max,
            ack_every_s=ack_every_s,
            wait_s=wait_s,
            subscription_mode=None if isinstance(start, datetime) else start,
            subscription_from=spell_time(start) if isinstance(start, datetime) else None,
            conflation=conflation,
            create=create,
            limit=limit,
            idle_s=idle_s,
            delivery=delivery,
        )
        return self._consumption(options)

    @resources.RequestMethod
    def push(
        self,
        queue: str,
        payload: Any,
        *,
        partition: str | None = None,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        headers: Headers | None = None,
        ttl_s: float | None = None,
        delay_s: float | None = None,
        deliver_at: datetime | None = None,
    ) -> Pushes[PushResult]:
        """Store one message, and return where it is.

        Args:
            queue: Made if it does not exist.
            payload: Any JSON value.
            partition: Messages of one partition are delivered in order.
            transaction_id: Idempotency key: a repeated one stores nothing; generated when absent.
            trace_id: A UUID that is delivered with it.
            headers: Delivered with it.
            ttl_s: Expire after so many seconds.
            delay_s: Deliver after so many seconds.
            deliver_at: Deliver at this time; one without a zone is UTC.

        Raises:
            BadRequest: It is malformed, or does not follow the queue's schema.
            PushFailed: The queue refused it.
        """
        names = partition, transaction_id, trace_id
        item = Item(queue, payload, *names, headers, ttl_s, deliver_at, delay_s)
        self._ids.complete([item])
        return self._pushes([item], lambda results: results.raise_for_failures()[0])

    @resources.RequestMethod
    def push_many(
        self, queue: str, payloads: Iterable[Any], *, partition: PartitionRule = None
    ) -> Pushes[PushResults]:
        """Store many messages, and return what became of each.

        Args:
            queue: Made if it does not exist.
            payloads: Each any JSON value.
            partition: One for all, or a function that chooses it by the payload (`by_field`).
        """
        listed = list(payloads)
        if callable(partition):
            ids = self._ids.take(len(listed))
            # Without a line of Python per message: this is most of the cost before sending.
            items = list(map(Item, repeat(queue), listed, map(partition, listed), ids))
            return self._pushes(items, _as_they_are)
        model = Item(queue, partition=partition)
        self._telemetry.inject([model])
        bodies = ((queue, alike_body(model, part, self._ids)) for part in _parts_of(listed))
        return Pushes(bodies, len(listed), _as_they_are, self._queued_operation_behavior)

    @resources.RequestMethod
    def push_items(self, items: Sequence[Item]) -> Pushes[PushResults]:
        """Store items, of any queues, and return what became of each. Items get their ids here."""
        self._ids.complete(items)
        return self._pushes(items, _as_they_are)

    def _pushes(self, items: Sequence[Item], read: Callable[[PushResults], T]) -> Pushes[T]:
        self._telemetry.inject(items)
        bodies = ((part[0].queue, encode({"items": part})) for part in _parts_of(items))
        return Pushes(bodies, len(items), read, self._queued_operation_behavior)

    @resources.RequestMethod
    def extend_lease(self, message: Delivered, seconds: int = 60) -> Request[datetime]:
        """Extend the lease of a message to so long from now; return when it ends.

        Raises:
            LeaseLost: It has ended.
        """

        def read(body: bytes) -> datetime:
            renewed = msgspec.json.decode(body, type=Renewed)
            if renewed.expires_at is None:
                raise LeaseLost(renewed.error)
            return renewed.expires_at

        path = path_of("lease", message.lease_id, "extend")
        affinity = affinity_of(message.queue, message.consumer_group)
        return Request("POST", path, read, encode({"seconds": seconds}), affinity)

    @resources.RequestMethod
    def operation(self, operation_id: str) -> Request[Operation]:
        """Return how far an operation is that the broker queued."""
        return ask(Operation, "GET", "operations", operation_id)

    @resources.RequestMethod
    def overview(self) -> Request[Json]:
        """Sum up the whole installation."""
        return ask(Json, "GET", "resources/overview")

    @resources.RequestMethod
    def health(self) -> Request[Json]:
        """Return the health of a broker; without repetitions."""
        retry = replace(self._options.retry, retries=0)
        return Request("GET", "/health", msgspec.json.decode, retry=retry)

    @resources.RequestMethod
    def request(self, method: str, path: str, body: Any = None) -> Request[Any]:
        """Send any request, with repetition and failover; return the decoded answer.

        For routes that have no method of their own here.
        """
        return Request(
            method,
            path,
            lambda text: msgspec.json.decode(text) if text else None,
            None if body is None else encode(body),
        )

    @resources.RequestMethod
    def download(self, path: str) -> Request[bytes]:
        """Return the bytes of an answer, for routes that do not answer JSON."""
        return Request("GET", path, bytes)

    @resources.RequestMethod
    def fetch(
        self,
        queue: str,
        partition: str = DEFAULT_PARTITION,
        offset: int = 0,
        *,
        max_bytes: int = 1024 * 1024,
        wait_s: float = 0.0,
    ) -> Request[Fetched]:
        """Read the messages of a partition from an offset on, without consuming them.

        Go on at `next_offset` of what is returned; `queues.offset_at` finds where a time begins.

        Args:
            queue: Its name.
            partition: Of the queue.
            offset: The first wanted; 0 is the beginning of a log from which nothing was removed.
            max_bytes: Of messages, up to 8 MiB. If there are any, at least one is returned.
            wait_s: How long to wait for a message if there is none, up to 30 seconds.

        Raises:
            NotFound: There is no such queue.
            OffsetOutOfRange: Messages from there on were removed, or the log ends before it.
        """
        entry = {"queue": queue, "partition": partition, "offset": offset, "maxBytes": max_bytes}
        members = {"entries": [entry], "maxWaitMs": round(wait_s * 1000), "maxBytes": max_bytes}
        return Request(
            "POST",
            path_of("fetch"),
            read_fetched,
            encode(members),
            affinity=affinity_of(queue, ""),
            wait_s=wait_s,
        )
