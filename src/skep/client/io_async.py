"""Sockets, waiting and concurrency on asyncio: what `aio` needs from the outside world.

`io_blocking` has the same names for threads. The client proper is written once, in `aio`, against
these names; the blocking one is generated from it.
"""

import asyncio
import inspect
import ssl
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Final, TypeVar, cast

from skep.client.endpoints import Address
from skep.client.http import Answer, AnswerReader, BadAnswer
from skep.client.io_shared import STOP_SIGNALS, InboxBase, StopBase

T = TypeVar("T")

Condition = asyncio.Condition


class Stop(StopBase):
    """A request to end. Waiting ends at once, and requests in flight are cut off."""

    def __init__(self) -> None:
        self._event: Final = asyncio.Event()
        super().__init__(self._event.set)

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the end is requested."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


class Connection(asyncio.Protocol):
    """One keep-alive connection to a broker, with at most one request in flight."""

    def __init__(self) -> None:
        # Asking for it costs a system call, with every request.
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader: Final = AnswerReader()
        self._answered: asyncio.Future[Answer] | None = None
        self._due_at_s = inf
        self._alarm: asyncio.TimerHandle | None = None
        self._ended: Final = asyncio.Event()
        self.is_open = True
        self.was_used = False
        """Whether it carried a request before: then the other side may have closed it meanwhile."""

    @classmethod
    async def open(
        cls, address: Address, tls: ssl.SSLContext | None, timeout_s: float
    ) -> "Connection":
        """Connect.

        Raises:
            OSError: No server listens there, or not in time.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                cls, address.host, address.port, ssl=tls if address.is_tls else None
            )
        return connection

    async def exchange(self, request: bytes, timeout_s: float, stop: Stop | None = None) -> Answer:
        """Send a request and return its answer; the connection is not usable after an error.

        Raises:
            OSError: The connection ended, or nothing came in time.
        """
        assert self._transport is not None
        loop = self._loop
        self._answered = answered = loop.create_future()
        if not self.is_open:
            raise ConnectionResetError("the connection is closed")
        self._await_until(loop.time() + timeout_s)
        if stop is not None:
            stop.add_callback(self.abort)
        try:
            self._transport.write(request)
            return await answered
        except BaseException:
            # Also when cancelled: a late answer must not be taken for that of the next request.
            self.abort()
            raise
        finally:
            self._due_at_s = inf
            if stop is not None:
                stop.remove_callback(self.abort)
            self.was_used = True
            self._answered = None

    def _await_until(self, due_at_s: float) -> None:
        """Give up at this time, unless the answer has come.

        The alarm outlives the answers: setting one for each request would cost more than to let it
        ring once in a while, and find that a later answer is awaited, or none.
        """
        self._due_at_s = due_at_s
        if self._alarm is not None:
            if self._alarm.when() <= due_at_s:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(due_at_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._due_at_s == inf:
            return
        if self._loop.time() < self._due_at_s:
            self._await_until(self._due_at_s)
        else:
            self._give_up(TimeoutError("no answer in time"))

    def abort(self) -> None:
        """Cut the connection; a pending request fails."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        self._give_up(ConnectionAbortedError("cut by this side"))

    async def close(self) -> None:
        """End the connection, and wait until it has ended."""
        if self._transport is None:
            return
        self.is_open = False
        self._transport.abort()
        await self._ended.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        try:
            answer = self._reader.feed(data)
        except BadAnswer as error:
            self._give_up(error)
            self.abort()
            return
        if answer is not None:
            self._deliver(answer)

    def eof_received(self) -> None:
        """Called by asyncio; returning nothing lets it close."""
        if (answer := self._reader.end()) is not None:
            self._deliver(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self.is_open = False
        if self._alarm is not None:
            self._alarm.cancel()
        self._ended.set()
        self._give_up(exc or ConnectionResetError("the broker closed the connection"))

    def _deliver(self, answer: Answer) -> None:
        if not self._reader.is_reusable:
            self.is_open = False
        if self._answered is None:
            self.abort()  # an answer without a request: the connection cannot be trusted
        elif not self._answered.done():
            self._answered.set_result(answer)

    def _give_up(self, error: Exception) -> None:
        self.is_open = False
        if self._answered is not None and not self._answered.done():
            cause = error if isinstance(error, OSError) else ConnectionError(str(error))
            self._answered.set_exception(cause)


class Inbox(InboxBase):
    """What another thread brings, taken out one after the other. None says that it is the end."""

    def __init__(self) -> None:
        super().__init__()
        self._loop: Final = asyncio.get_running_loop()
        self._news: Final = asyncio.Event()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, and with it all waiters
            self._loop.call_soon_threadsafe(self._news.set)

    async def take(self, timeout_s: float, stop: Stop | None = None) -> bytes | None:
        """Take out the next, or None at the end.

        Raises:
            TimeoutError: Nothing came in time, or until it was asked to stop.
        """
        if not self._texts:
            if stop is not None:
                stop.add_callback(self._news.set)
            try:
                async with asyncio.timeout(timeout_s):
                    # The signal of a text that was taken before may come while this one waits.
                    while not self._texts and (stop is None or not stop.is_set):
                        self._news.clear()
                        await self._news.wait()
            finally:
                if stop is not None:
                    stop.remove_callback(self._news.set)
        return self._next()


async def run_aside(work: Callable[[], T]) -> T:
    """Do something that blocks without holding up the loop."""
    return await asyncio.to_thread(work)


class Background:
    """Something that runs beside its owner, who waits for its end."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._task: Final = asyncio.ensure_future(work())

    async def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, and raise what went wrong; return False if it takes longer."""
        done, _ = await asyncio.wait([self._task], timeout=timeout_s)
        if done:
            self._task.result()
        return bool(done)


async def wait_on(condition: Condition, timeout_s: float | None) -> None:
    """Wait, holding the condition, until a notification or the timeout."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await condition.wait()


async def run_together(works: Sequence[Callable[[], Awaitable[None]]], stop: Stop) -> None:
    """Run all until all have ended; when one fails the others are asked to stop, and it raises."""

    async def run(work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except BaseException:
            stop.set()
            raise

    results = await asyncio.gather(*(run(work) for work in works), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def invoke(handler: Callable[[Any], Any], argument: Any) -> Any:
    """Call a handler. A plain function runs in a thread, so that it does not hold up the loop."""
    if inspect.iscoroutinefunction(handler):
        return await handler(argument)
    returned = await asyncio.to_thread(handler, argument)
    return await returned if inspect.isawaitable(returned) else returned


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Generator[None]:
    """Call this on the first SIGINT or SIGTERM; a second one does what it always does."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def restore() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    def obey() -> None:
        restore()
        stop()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, obey)
    try:
        yield
    finally:
        restore()
