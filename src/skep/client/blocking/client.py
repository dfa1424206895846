# Generated from skep/client/aio/client.py by tools/generate_blocking_client.py; edit that.
"""The client: pushes, consumers, transactions, and all requests to a broker."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

from skep.client.base import ClientBase
from skep.client.blocking.buffer import Buffer
from skep.client.blocking.consumption import Consumption, pop_messages
from skep.client.blocking.lock import Lock
from skep.client.blocking.message import Message, Settlement, send_acks
from skep.client.blocking.session import Session
from skep.client.blocking.transaction import Transaction
from skep.client.blocking.worker import Worker
from skep.client.deliveries import decode_acked
from skep.client.endpoints import affinity_of
from skep.client.options import ConsumeOptions, SessionOptions, pop_path
from skep.client.pushes import BufferLimits, Item
from skep.client.values import AckResult, PushCounts, PushResult, PushResults, QueuedOperation
from skep.client.verdicts import COMPLETED, Verdict, ack_text


class Client(ClientBase[Session, Consumption]):
    """A client of one installation.

        with Client("http://127.0.0.1:6632") as client:
            client.push("orders", {"total": 42}, partition="customer-7")
            for message in client.consume("orders", group="billing"):
                print(message.data)

    `ClientBase` has its arguments, and the methods that both clients share.
    """

    def _open_session(self, options: SessionOptions) -> Session:
        return Session(options)

    def _consumption(self, options: ConsumeOptions) -> Consumption:
        return Consumption(self.session, self._keeper, options)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections, and renew no lease any more."""
        self._keeper.close()
        self.session.close()

    # Pushing

    def push_from(
        self,
        source: Iterable[Item],
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
        with buffer:
            for item in source:
                buffer.push_item(item)
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

            with client.buffer() as buffer:
                buffer.push("orders", {"total": 42})

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
        """Make a handler a worker; `worker.run()` runs it.

            @client.worker("orders", group="billing", concurrency=4)
            def bill(message):
                ...

            bill.run()

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

    def replay(
        self,
        queue: str,
        *,
        since: datetime | None = None,
        partition: str | None = None,
        idle_s: float = 1.0,
    ) -> Generator[Message]:
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
            with closing(consumption.each()) as messages:
                yield from messages
        finally:
            self.groups.delete(group)

    def pop(
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
        messages = pop_messages(self.session, options, path, wait_s=wait_s)
        if messages:
            Settlement(self.session, messages).adopt(messages)
        return messages

    def ack(self, messages: Sequence[Message], verdict: Verdict = COMPLETED) -> list[AckResult]:
        """Give many messages of one group the same verdict; return what became of each."""
        if not messages:
            return []
        for message in messages:
            message.settlement.progress.settle(message.place, verdict)
        group = messages[0].consumer_group
        items = b",".join(ack_text(message, verdict) for message in messages)
        affinity = affinity_of(messages[0].queue, group)
        return decode_acked(send_acks(self.session, items, group, affinity))

    # Everything else

    def transaction(self) -> Transaction:
        """Return a transaction: the operations of its block happen together, or not at all.

            with client.transaction() as transaction:
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

            with client.lock("daily-report", ttl_s=30, wait_s=60) as lock:
                write_report(fencing_token=lock.token)

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

    def wait_for_operation(self, queued: QueuedOperation) -> PushResults:
        """Wait until a queued push is done; return its results.

        Raises:
            Refused: It failed or was cancelled.
        """
        return PushResults([self.session.wait_for(queued)])
