"""Requests to the brokers: connections, repetition, failover, tokens, queued operations.

`Session.request` returns a successful answer or raises; everything else of the client is built on
it. A connection that broke while it was idle is replaced without counting as a failure.
"""

from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from skep.client.endpoints import Endpoint
from skep.client.errors import NotSent, Unreachable
from skep.client.http import Answer
from skep.client.io_async import Connection, Stop, run_aside
from skep.client.live_link import LiveLink
from skep.client.options import RetryPolicy
from skep.client.requests import (
    ASK_FOR_QUEUEING,
    Doubt,
    Pushes,
    Request,
    SessionBase,
    Tries,
    ask,
    no_answer,
    queued_operation,
)
from skep.client.values import Operation, PushResults, QueuedOperation
from skep.model.errors import Refused
from skep.model.limits import PUSH_ITEMS_MAX

T = TypeVar("T")

_POLL_S_MIN: Final = 0.05
_POLL_S_MAX: Final = 2.0


class Session(SessionBase[Connection]):
    """Requests to the brokers of a client."""

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        affinity: str = "",
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        stop: Stop | None = None,
        headers: bytes = b"",
        doubt: Doubt | None = None,
        is_repeatable: bool = True,
    ) -> Answer:
        """Return the answer of the first broker that carries the request out.

        Requests of equal affinity go to the same broker while it is well. The timeout is for one
        try. `doubt` is told when the outcome of a try is unknown; what is not repeatable ends
        there.

        Raises:
            SkepError: The request was refused, or no broker answered in all tries.
        """
        policy = retry or self.options.retry
        tries = Tries(self.endpoints, policy, affinity, doubt, is_repeatable=is_repeatable)
        timeout_s = timeout_s or self.options.timeout_s
        while True:
            self.check_open(stop)
            endpoint = tries.choose()
            rendered = self._render(endpoint, method, path, body, headers)
            outcome = await self._try(
                endpoint, rendered, timeout_s, stop, is_repeatable=is_repeatable
            )
            if isinstance(outcome, Answer) and outcome.is_success:
                self.endpoints.report_success(endpoint)
                return outcome
            self.check_open(stop)
            if pause_s := tries.fail(endpoint, outcome):
                await (stop or Stop()).pause(pause_s)

    async def _try(
        self,
        endpoint: Endpoint,
        request: bytes,
        timeout_s: float,
        stop: Stop | None,
        *,
        is_repeatable: bool,
    ) -> Answer | Unreachable:
        """Ask one broker."""
        cls: type[Unreachable] = NotSent
        try:
            connection = self._idle.take(endpoint) or await self._open(endpoint)
            cls = Unreachable
            was_idle = connection.was_used
            try:
                answer = await connection.exchange(request, timeout_s, stop)
            except ConnectionError:
                if not (was_idle and is_repeatable) or (stop is not None and stop.is_set):
                    raise
                # It may have been closed while it was idle, which says nothing about the broker.
                self._idle.abort(endpoint)
                connection = await self._open(endpoint)
                answer = await connection.exchange(request, timeout_s, stop)
        except OSError as error:
            unreachable = cls(no_answer(endpoint, error))
            unreachable.__cause__ = error
            return unreachable
        if self._is_closed or not self._idle.put_back(endpoint, connection):
            await connection.close()
        return answer

    async def _open(self, endpoint: Endpoint) -> Connection:
        return await Connection.open(endpoint.address, self._tls, self.options.connect_timeout_s)

    async def open_link(self, path: str, affinity: str) -> LiveLink:
        """Open a WebSocket to the broker that requests of this affinity go to.

        Raises:
            Unreachable: The broker does not answer; another is chosen the next time.
            LinkRefused: The broker has no WebSocket.
        """
        self.check_open(None)
        endpoint = self.endpoints.choose(affinity, monotonic())
        try:
            return await run_aside(partial(self._open_link, endpoint, path))
        except OSError as error:
            self.endpoints.report_failure(endpoint, monotonic())
            raise NotSent(no_answer(endpoint, error)) from error

    async def send(self, request: Request[T] | Pushes[T]) -> T:
        """Send a request and return its answer, read."""
        if isinstance(request, Pushes):
            return request.read(await self._push(request))
        answer = await self.request(
            request.method,
            request.path,
            request.body,
            affinity=request.affinity,
            timeout_s=self.options.timeout_s + request.wait_s,
            retry=request.retry,
            is_repeatable=request.is_repeatable,
        )
        return request.read(answer.body)

    async def _push(self, pushes: Pushes[Any]) -> PushResults:
        headers = ASK_FOR_QUEUEING if pushes.behavior else b""
        answers: list[bytes] = []
        for queue, body in pushes.bodies:
            answer = await self.request(
                "POST", "/api/v1/push", body, affinity=queue, headers=headers
            )
            queued = queued_operation(answer)
            if queued is None:
                answers.append(answer.body)
            elif pushes.behavior == "return" and pushes.item_count <= PUSH_ITEMS_MAX:
                return PushResults([], operation=queued)
            else:
                answers.append(await self.wait_for(queued))
        return PushResults(answers, item_count=pushes.item_count)

    async def wait_for(self, queued: QueuedOperation) -> bytes:
        """Wait until a queued operation is over, and return its answer.

        Raises:
            Refused: It failed or was cancelled.
        """
        pause_s = _POLL_S_MIN
        asking = ask(Operation, "GET", "operations", queued.operation_id)
        while not (operation := await self.send(asking)).is_over:
            await Stop().pause(pause_s)
            pause_s = min(pause_s * 2, _POLL_S_MAX)
        if operation.status != "completed":
            raise Refused(f"operation {queued.operation_id} {operation.status}: {operation.error}")
        return bytes(operation.answer)

    async def close(self) -> None:
        """End all connections; requests from now on raise `Stopped`."""
        self._is_closed = True
        for connection in self._idle.take_all():
            await connection.close()
