"""Pushes gathered by the client and sent together, in the background.

`push` returns when the item is taken, not when it is stored: leaving the buffer's block, or
`flush`, waits for that. Requests are repeated until a broker takes them; the order within a
partition is kept, because one request is in flight at a time. A refused item goes to `on_failure`,
or is raised at the end.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from skep.client.aio.session import Session
from skep.client.buffers import BufferBase
from skep.client.errors import Stopped, Unreachable
from skep.client.io_async import Background, Condition, Stop, wait_on
from skep.client.pushes import BufferLimits, Item, TransactionIds, push_body
from skep.client.tracing import Telemetry
from skep.client.values import PushResult
from skep.model.errors import BadRequest, Refused, SkepError


class Buffer(BufferBase):
    """Items on their way to the broker."""

    def __init__(
        self,
        session: Session,
        ids: TransactionIds,
        telemetry: Telemetry,
        *,
        limits: BufferLimits,
        on_failure: Callable[[PushResult], None] | None = None,
        close_timeout_s: float = 30.0,
    ) -> None:
        super().__init__(ids, telemetry, limits, on_failure)
        self._session: Final = session
        self._close_timeout_s: Final = close_timeout_s
        self._changed: Final = Condition()
        self._stop: Final = Stop()
        self._sender: Background | None = None

    async def __aenter__(self) -> "Buffer":
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close()
        except SkepError:
            if error is None:
                raise

    async def push(self, queue: str, payload: Any, *, partition: str | None = None) -> None:
        """Take a message to push. Waits only while the buffer is full."""
        await self.push_item(Item(queue, payload, partition))

    async def push_item(self, item: Item) -> None:
        """Take an item to push. Waits only while the buffer is full.

        Raises:
            SkepError: The buffer is closed, or gave up.
        """
        encoded = self._encode(item)
        async with self._changed:
            while not self._outbox.has_room and self._error is None:
                await wait_on(self._changed, None)
            self._check_open()
            self._outbox.add(encoded, monotonic())
            if self._sender is None:
                self._sender = Background(self._send_all)
            # The sender sleeps until the first item is due; only a full request wakes it sooner.
            if len(self._outbox) == 1 or self._outbox.due_in_s(0.0) == 0.0:
                self._changed.notify_all()

    async def flush(self) -> None:
        """Wait until everything taken so far is answered.

        Raises:
            PushFailed: Items were refused, and there is no `on_failure`.
        """
        async with self._changed:
            while self.waiting and self._error is None:
                self._flush_wanted = True
                self._changed.notify_all()
                await wait_on(self._changed, None)
            self._raise_failures()

    async def close(self) -> None:
        """Send the rest, and take nothing more.

        Raises:
            PushFailed: Items were refused, and there is no `on_failure`.
            Unreachable: The rest could not be sent in time.
        """
        async with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._sender is not None and not await self._sender.join(self._close_timeout_s):
            self._stop.set()
            await self._sender.join()
        self._raise_failures()
        if self.waiting:
            raise Unreachable(
                f"no broker answered in time: {self.waiting} buffered items may be lost"
            )

    async def _send_all(self) -> None:
        try:
            while items := await self._next_items():
                await self._push(items)
                async with self._changed:
                    self._in_flight = 0
                    self._changed.notify_all()
        except Stopped:
            return
        except SkepError as error:
            async with self._changed:
                self._error = error
                self._changed.notify_all()

    async def _next_items(self) -> list[bytes]:
        """Wait until items are due; none when the buffer closes and is empty."""
        async with self._changed:
            while True:
                due_in_s = self._due_in_s(monotonic())
                if due_in_s == 0:
                    items = self._outbox.take()
                    self._in_flight = len(items)
                    self._changed.notify_all()
                    return items
                await wait_on(self._changed, due_in_s)

    async def _push(self, items: list[bytes]) -> None:
        try:
            answer = await self._session.request(
                "POST",
                "/api/v1/push",
                push_body(items),
                retry=self._session.patient,
                stop=self._stop,
            )
        except (BadRequest, Refused) as error:
            await self._isolate(items, error)
        else:
            self._note_answer(answer.body, len(items))

    async def _isolate(self, items: list[bytes], error: BadRequest | Refused) -> None:
        """Find the items that a request was refused for, so that the others are stored."""
        if len(items) == 1:
            self._note_failure(PushResult(status="failed", error=error.message))
            self.counts.failed += 1
            return
        half = len(items) // 2
        await self._push(items[:half])
        await self._push(items[half:])
