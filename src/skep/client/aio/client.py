"""The client: pushes, consumers, transactions, and all requests to a broker."""

import ssl
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from itertools import repeat
from typing import Any, Final, Literal, TypeAlias, TypeVar
from uuid import uuid4

import msgspec

from skep.client.aio.buffer import Buffer
from skep.client.aio.consumption import Consumption, pop_messages
from skep.client.aio.message import Message, Settlement, send_acks
from skep.client.aio.resources import DeadLetters, Groups, Messages, Queues, Scheduled, Traces
from skep.client.aio.session import Session
from skep.client.aio.transaction import Transaction
from skep.client.aio.worker import Worker
from skep.client.deliveries import ack_text_of, decode_acked
from skep.client.endpoints import affinity_of, path_of, spell_time
from skep.client.errors import LeaseLost
from skep.client.leases import LeaseKeeper
from skep.client.options import (
    ConsumeOptions,
    Delivery,
    RetryPolicy,
    SessionOptions,
    Token,
    pop_path,
)
from skep.client.pushes import (
    BufferLimits,
    Headers,
    Item,
    PartitionRule,
    TransactionIds,
    alike_body,
    encode,
)
from skep.client.requests import ASK_FOR_QUEUEING, queued_operation
from skep.client.tracing import telemetry_of
from skep.client.values import (
    AckResult,
    Json,
    Operation,
    PushCounts,
    PushResult,
    PushResults,
    QueuedOperation,
    Renewed,
)
from skep.client.verdicts import COMPLETED, Verdict
from skep.model.limits import PUSH_ITEMS_MAX
from skep.model.wire import QUEUE_MODE

QueuedOperationBehavior: TypeAlias = Literal["return", "poll"]
Start: TypeAlias = Literal["all", "new"] | datetime
"""Where a new group starts: with all messages, with new ones, or at a time."""

_NO_HEADERS: Final[Mapping[str, str]] = {}

T = TypeVar("T")


def _parts_of(sequence: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split items or payloads into parts that one request may carry."""
    for begin in range(0, len(sequence), PUSH_ITEMS_MAX):
        yield sequence[begin : begin + PUSH_ITEMS_MAX]


class AsyncClient:
    """A client of one installation.

        async with AsyncClient("http://127.0.0.1:6632") as client:
            await client.push("orders", {"total": 42}, partition="customer-7")
            async for message in client.consume("orders", group="billing"):
                print(message.data)

    Args:
        urls: Of one broker, or of several instances: each queue stays with one of them while it is
            well, and moves to another when it is not.
        token: For `Authorization: Bearer`; a function is called for each request.
        timeout_s: For one try of one request.
        connect_timeout_s: For one connection.
        retries: Repetitions of a request that was not answered, or answered 429, 502, 503 or 504.
            Consumers and buffers never give up.
        retry_on_429: Whether a full queue or a busy broker is asked again.
        honor_retry_after: Whether a pause lasts at least as long as the broker asks for.
        max_retry_delay: The longest pause, in seconds.
        queued_operation_behavior: What to do when a busy broker queues a push instead of refusing
            it: `poll` waits for its results, `return` returns without them. None does not ask for
            queueing; if a broker queues all the same, the client waits.
        telemetry: Carry the context of OpenTelemetry in the headers of messages.
        headers: Sent with every request.
        tls: For https; the system's certificates by default.
        cool_off_s: How long a broker that did not answer is passed over.
    """

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
        self._session: Final = Session(options)
        self._keeper: Final = LeaseKeeper(options)
        self._ids: Final = TransactionIds()
        self._telemetry: Final = telemetry_of(is_wanted=telemetry)
        self._queued_operation_behavior: Final = queued_operation_behavior
        self._push_headers: Final = ASK_FOR_QUEUEING if queued_operation_behavior else b""
        self.queues: Final = Queues(self._session)
        self.groups: Final = Groups(self._session)
        self.messages: Final = Messages(self._session)
        self.dead_letters: Final = DeadLetters(self._session)
        self.traces: Final = Traces(self._session)
        self.scheduled: Final = Scheduled(self._session)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def urls(self) -> tuple[str, ...]:
        """The brokers of this client."""
        return self._session.options.urls

    async def close(self) -> None:
        """End all connections, and renew no lease any more."""
        self._keeper.close()
        await self._session.close()

    # Pushing

    async def push(
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
    ) -> PushResult:
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
        return (await self.push_items([item])).raise_for_failures()[0]

    async def push_many(
        self, queue: str, payloads: Iterable[Any], *, partition: PartitionRule = None
    ) -> PushResults:
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
            return await self._push(items)
        model = Item(queue, partition=partition)
        self._telemetry.inject([model])
        requests = ((queue, alike_body(model, part, self._ids)) for part in _parts_of(listed))
        return await self._send_pushes(requests, len(listed))

    async def push_items(self, items: Sequence[Item]) -> PushResults:
        """Store items, of any queues, and return what became of each. Items get their ids here."""
        self._ids.complete(items)
        return await self._push(items)

    async def _push(self, items: Sequence[Item]) -> PushResults:
        self._telemetry.inject(items)
        requests = ((part[0].queue, encode({"items": part})) for part in _parts_of(items))
        return await self._send_pushes(requests, len(items))

    async def _send_pushes(
        self, requests: Iterable[tuple[str, bytes]], item_count: int
    ) -> PushResults:
        """Send bodies of pushes, each to the broker of a queue; they have so many items."""
        bodies: list[bytes] = []
        for queue, body in requests:
            answer = await self._session.request(
                "POST", "/api/v1/push", body, affinity=queue, headers=self._push_headers
            )
            queued = queued_operation(answer)
            if queued is None:
                bodies.append(answer.body)
            elif self._queued_operation_behavior == "return" and item_count <= PUSH_ITEMS_MAX:
                return PushResults([], operation=queued)
            else:
                bodies.append(await self._session.wait_for(queued))
        return PushResults(bodies, item_count=item_count)

    async def push_from(
        self,
        source: AsyncIterable[Item],
        *,
        limits: BufferLimits | None = None,
        on_failure: Callable[[PushResult], None] | None = None,
        on_progress: Callable[[PushCounts], None] | None = None,
    ) -> PushCounts:
        """Store all items of an iterator; return how many items became what.

        If the broker restarts meanwhile, the client waits for it.

        Args:
            source: The items.
            limits: How many are sent together.
            on_failure: Called with the result of each refused item; without it refused items are
                raised at the end.
            on_progress: Called with the counts so far, after each item.
        """
        buffer = self.buffer(limits=limits, on_failure=on_failure)
        async with buffer:
            async for item in source:
                await buffer.push_item(item)
                if on_progress is not None:
                    on_progress(buffer.counts)
        return buffer.counts

    def buffer(
        self,
        *,
        limits: BufferLimits | None = None,
        on_failure: Callable[[PushResult], None] | None = None,
        close_timeout_s: float = 30.0,
    ) -> Buffer:
        """Return a buffer: it takes messages at once, and stores them soon.

            async with client.buffer() as buffer:
                await buffer.push("orders", {"total": 42})

        Args:
            limits: By count, size and age.
            on_failure: Called with the result of each refused item.
            close_timeout_s: How long leaving the block waits for the rest to be stored.
        """
        return Buffer(
            self._session,
            self._ids,
            self._telemetry,
            limits=limits or BufferLimits(),
            on_failure=on_failure,
            close_timeout_s=close_timeout_s,
        )

    # Consuming

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
        limit: int | None = None,
        idle_s: float | None = None,
        delivery: Delivery = "auto",
    ) -> Consumption:
        """Return the messages of a queue, to be iterated over.

            async for message in client.consume("orders", group="billing"):
                handle(message.data)

        A message is done when the next one is asked for. Leaving the loop gives back the current
        message; settle it before (`await message.ack()`), or use `async with`, which settles it by
        how the block ends. The broker may be restarted meanwhile.

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
            limit=limit,
            idle_s=idle_s,
            delivery=delivery,
        )
        return Consumption(self._session, self._keeper, options)

    def worker(
        self,
        queue: str | None = None,
        *,
        concurrency: int = 1,
        by_batch: bool = False,
        **consuming: Any,
    ) -> Callable[[Callable[[Any], Any]], Worker]:
        """Make a handler a worker; `await worker.run()` runs it.

            @client.worker("orders", group="billing", concurrency=4)
            async def bill(message):
                ...

            await bill.run()

        Returning completes a message; an exception fails it, `RetryMessage` gives it back at once,
        `DeadLetterMessage` makes it a dead letter. The verdicts `failed(...)`, `RETRY` and
        `dead_letter(...)` do the same when returned.

        Args:
            queue: As in `consume`.
            concurrency: Calls of the handler at the same time.
            by_batch: Call it with whole batches.
            **consuming: Further arguments of `consume`.
        """
        options = self.consume(queue, **consuming).options

        def decorate(handler: Callable[[Any], Any]) -> Worker:
            return Worker(
                self._session,
                self._keeper,
                options,
                handler,
                concurrency=concurrency,
                by_batch=by_batch,
                telemetry=self._telemetry,
            )

        return decorate

    async def replay(
        self,
        queue: str,
        *,
        since: datetime | None = None,
        partition: str | None = None,
        idle_s: float = 1.0,
    ) -> AsyncGenerator[Message]:
        """Read a queue again, from the start or a time, beside all groups and without effects.

        It ends when no message came for `idle_s`.
        """
        group = f"replay-{uuid4().hex}"
        consumption = self.consume(
            queue,
            group=group,
            partition=partition,
            auto_ack=True,
            start=since or "all",
            idle_s=idle_s,
        )
        try:
            async with aclosing(consumption.each()) as messages:
                async for message in messages:
                    yield message
        finally:
            await self.groups.delete(group)

    async def pop(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        batch: int = 1,
        partitions: int = 1,
        wait_s: float = 0.0,
        lease_s: float = 60.0,
        auto_ack: bool = False,
    ) -> list[Message]:
        """Take messages once. Their lease is not renewed by itself: see `extend_lease`."""
        options = self.consume(
            queue,
            group=group,
            partition=partition,
            batch=batch,
            partitions=partitions,
            auto_ack=auto_ack,
            lease_s=lease_s,
        ).options
        messages = await pop_messages(
            self._session,
            options,
            pop_path(options, batch, round(wait_s * 1000)),
            affinity=options.affinity,
            wait_s=wait_s,
        )
        if messages:
            Settlement(self._session, messages).adopt(messages)
        return messages

    async def ack(
        self, messages: Sequence[Message], verdict: Verdict = COMPLETED
    ) -> list[AckResult]:
        """Give many messages of one group the same verdict; return what became of each."""
        if not messages:
            return []
        for message in messages:
            message.settlement.progress.settle(message.place, verdict)
        group = messages[0].consumer_group
        items = b",".join(ack_text_of(message, verdict) for message in messages)
        affinity = affinity_of(messages[0].queue, group)
        return decode_acked(await send_acks(self._session, items, group, affinity))

    async def extend_lease(self, message: Message, seconds: int = 60) -> datetime:
        """Extend the lease of a message to so long from now; return when it ends.

        Raises:
            LeaseLost: It has ended.
        """
        path = path_of("lease", message.lease_id, "extend")
        affinity = affinity_of(message.queue, message.consumer_group)
        answer = await self._session.request(
            "POST", path, encode({"seconds": seconds}), affinity=affinity
        )
        renewed = msgspec.json.decode(answer.body, type=Renewed)
        if renewed.expires_at is None:
            raise LeaseLost(renewed.error)
        return renewed.expires_at

    # Everything else

    def transaction(self) -> Transaction:
        """Return a transaction: the operations of its block happen together, or not at all.

            async with client.transaction() as transaction:
                transaction.ack(message)
                transaction.push("invoices", {"order": 1})

        It commits only while the leases of the acknowledged messages are held.
        """
        return Transaction(self._session, self._ids, self._telemetry)

    async def operation(self, operation_id: str) -> Operation:
        """Return how far an operation is that the broker queued."""
        return await self._session.operation(operation_id)

    async def wait_for_operation(self, queued: QueuedOperation) -> PushResults:
        """Wait until a queued push is done; return its results.

        Raises:
            Refused: It failed or was cancelled.
        """
        return PushResults([await self._session.wait_for(queued)])

    async def overview(self) -> Json:
        """Sum up the whole installation."""
        return await self.request("GET", path_of("resources/overview"))

    async def health(self) -> Json:
        """Return the health of a broker; without repetitions."""
        policy = replace(self._session.options.retry, retries=0)
        answer = await self._session.request("GET", "/health", retry=policy)
        return msgspec.json.decode(answer.body)

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send any request, with repetition and failover; return the decoded answer.

        For routes that have no method of their own here.
        """
        encoded = None if body is None else encode(body)
        answer = await self._session.request(method, path, encoded)
        return msgspec.json.decode(answer.body) if answer.body else None

    async def fetch(self, path: str) -> bytes:
        """Return the bytes of an answer, for routes that do not answer JSON."""
        return (await self._session.request("GET", path)).body
