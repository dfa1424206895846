"""The client: pushes, consumers, transactions, and all requests to a broker."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

from skep.client.aio.buffer import Buffer
from skep.client.aio.consumption import Consumption, pop_messages
from skep.client.aio.lock import Lock
from skep.client.aio.message import Message, Settlement, send_acks
from skep.client.aio.session import Session
from skep.client.aio.transaction import Transaction
from skep.client.aio.worker import Worker
from skep.client.base import ClientBase
from skep.client.deliveries import decode_acked
from skep.client.endpoints import affinity_of
from skep.client.options import ConsumeOptions, SessionOptions, pop_path
from skep.client.pushes import BufferLimits, Item
from skep.client.values import AckResult, PushCounts, PushResult, PushResults, QueuedOperation
from skep.client.verdicts import COMPLETED, Verdict, ack_text


class AsyncClient(ClientBase[Session, Consumption]):
    """A client of one installation.

        async with AsyncClient("http://127.0.0.1:6632") as client:
            await client.push("orders", {"total": 42}, partition="customer-7")
            async for message in client.consume("orders", group="billing"):
                print(message.data)

    `ClientBase` has its arguments, and the methods that both clients share.
    """

    def _open_session(self, options: SessionOptions) -> Session:
        return Session(options)

    def _consumption(self, options: ConsumeOptions) -> Consumption:
        return Consumption(self.session, self._keeper, options)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections, and renew no lease any more."""
        self._keeper.close()
        await self.session.close()

    # Pushing

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
            on_failure: Called with the result of each refused item; without it they are raised at
                the end.
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
            self.session,
            self._ids,
            self._telemetry,
            limits=limits or BufferLimits(),
            on_failure=on_failure,
            close_timeout_s=close_timeout_s,
        )

    # Consuming

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
            by_batch: Call it with whole batches. Its verdict counts for all messages of a batch
                that it did not settle one by one.
            **consuming: Further arguments of `consume`.
        """
        options = self.consume(queue, **consuming).options
        return partial(
            Worker,
            partial(Consumption, self.session, self._keeper, options),
            concurrency=concurrency,
            by_batch=by_batch,
            telemetry=self._telemetry,
        )

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
        create: bool | None = None,
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
            create=create,
        ).options
        path = pop_path(options, batch, round(wait_s * 1000))
        messages = await pop_messages(self.session, options, path, wait_s=wait_s)
        if messages:
            Settlement(self.session, messages).adopt(messages)
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
        items = b",".join(ack_text(message, verdict) for message in messages)
        affinity = affinity_of(messages[0].queue, group)
        return decode_acked(await send_acks(self.session, items, group, affinity))

    # Everything else

    def transaction(self) -> Transaction:
        """Return a transaction: the operations of its block happen together, or not at all.

            async with client.transaction() as transaction:
                transaction.ack(message)
                transaction.push("invoices", {"order": 1})

        It commits only while the leases of the acknowledged messages are held.
        """
        return Transaction(self.session, self._ids, self._telemetry)

    def lock(
        self,
        name: str,
        *,
        ttl_s: int,
        wait_s: float = 0,
        owner: str | None = None,
        renews: bool = True,
    ) -> Lock:
        """Return a lock; entering its block acquires it, leaving releases it.

            async with client.lock("daily-report", ttl_s=30, wait_s=60) as lock:
                await write_report(fencing_token=lock.token)

        Args:
            name: Which lock.
            ttl_s: How long it stays held if this process dies; it is renewed meanwhile.
            wait_s: How long entering waits in line; `Refused` if it is still held then.
            owner: Who holds it; two with one owner are one holder. Unique unless given.
            renews: Whether it is renewed in the background.
        """
        return self.semaphore(name, 1, ttl_s=ttl_s, wait_s=wait_s, owner=owner, renews=renews)

    def semaphore(
        self,
        name: str,
        limit: int,
        *,
        ttl_s: int,
        wait_s: float = 0,
        owner: str | None = None,
        renews: bool = True,
    ) -> Lock:
        """Return one of so many permits, as `lock` does; all callers must say the same limit."""
        return Lock(
            self.session,
            name,
            ttl_s=ttl_s,
            limit=limit,
            owner=owner,
            wait_s=wait_s,
            renews=renews,
        )

    async def wait_for_operation(self, queued: QueuedOperation) -> PushResults:
        """Wait until a queued push is done; return its results.

        Raises:
            Refused: It failed or was cancelled.
        """
        return PushResults([await self.session.wait_for(queued)])
