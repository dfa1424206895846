# Generated from skep/client/aio/session.py by tools/generate_blocking_client.py; edit that.
"""Requests to the brokers: connections, repetition, failover, tokens, queued operations.

`Session.request` returns a successful answer or raises; everything else of the client is built on
it. A connection that broke while it was idle is replaced without counting as a failure.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

from skep.client.endpoints import Endpoint, Endpoints, path_of
from skep.client.errors import NotSent, Stopped, Unreachable
from skep.client.http import Answer
from skep.client.io_blocking import Connection, Stop, run_aside
from skep.client.live_link import LiveLink
from skep.client.options import RetryPolicy, SessionOptions
from skep.client.requests import (
    Doubt,
    IdleConnections,
    Renderer,
    Tries,
    decode_operation,
    default_tls,
    no_answer,
)
from skep.client.values import Operation, QueuedOperation
from skep.model.errors import Refused

_POLL_S_MIN: Final = 0.05
_POLL_S_MAX: Final = 2.0


class Session:
    """Requests to the brokers of a client."""

    def __init__(self, options: SessionOptions, *, clock: Callable[[], float] = monotonic) -> None:
        self.options: Final = options
        self.endpoints: Final = Endpoints(options.urls, cool_off_s=options.cool_off_s)
        self._clock: Final = clock
        self._idle: Final = IdleConnections[Connection](self.endpoints)
        self._tls: Final = options.tls or default_tls(self.endpoints)
        self._renderer: Final = Renderer(options)
        self._is_closed = False
        self.patient: Final = replace(options.retry, retries=None)
        """The retry policy that never gives up: for consumers and buffers."""

    def request(
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
    ) -> Answer:
        """Return the answer of the first broker that carries the request out.

        Args:
            method: Of HTTP.
            path: With its query, percent-encoded.
            body: JSON.
            affinity: Requests of equal affinity go to the same broker while it is well.
            timeout_s: For one try, beyond the session's own.
            retry: Instead of the session's own.
            stop: Ends the waiting.
            headers: Further header lines.
            doubt: Told when the outcome of a try is unknown.

        Raises:
            SkepError: The request was refused, or no broker answered in all tries.
        """
        tries = Tries(self.endpoints, retry or self.options.retry, affinity, doubt, self._clock)
        while True:
            self.check_open(stop)
            endpoint = tries.choose()
            rendered = self._renderer.render(endpoint, method, path, body, headers)
            outcome = self._try(endpoint, rendered, timeout_s or self.options.timeout_s, stop)
            if isinstance(outcome, Answer) and 200 <= outcome.status < 300:
                self.endpoints.report_success(endpoint)
                return outcome
            self.check_open(stop)
            if pause_s := tries.fail(endpoint, outcome):
                (stop or Stop()).pause(pause_s)

    def check_open(self, stop: Stop | None) -> None:
        """Check that requests may still be sent.

        Raises:
            Stopped: The session is closed, or the caller was asked to stop.
        """
        if self._is_closed:
            raise Stopped("the client is closed: make a new one")
        if stop is not None and stop.is_set:
            raise Stopped

    def _try(
        self, endpoint: Endpoint, request: bytes, timeout_s: float, stop: Stop | None
    ) -> Answer | Unreachable:
        """Ask one broker."""
        cls: type[Unreachable] = NotSent
        try:
            connection = self._idle.take(endpoint) or self._open(endpoint)
            cls = Unreachable
            was_idle = connection.was_used
            try:
                answer = connection.exchange(request, timeout_s, stop)
            except ConnectionError:
                if not was_idle or (stop is not None and stop.is_set):
                    raise
                # It may have been closed while it was idle, which says nothing about the broker.
                self._idle.abort(endpoint)
                connection = self._open(endpoint)
                answer = connection.exchange(request, timeout_s, stop)
        except OSError as error:
            unreachable = cls(no_answer(endpoint, error))
            unreachable.__cause__ = error
            return unreachable
        if self._is_closed or not self._idle.put_back(endpoint, connection):
            connection.close()
        return answer

    def _open(self, endpoint: Endpoint) -> Connection:
        return Connection.open(endpoint.address, self._tls, self.options.connect_timeout_s)

    def open_link(self, path: str, affinity: str) -> LiveLink:
        """Open a WebSocket to the broker that requests of this affinity go to.

        Raises:
            Unreachable: The broker does not answer; another is chosen the next time.
            LinkRefused: The broker has no WebSocket.
        """
        self.check_open(None)
        endpoint = self.endpoints.choose(affinity, self._clock())
        opening = partial(
            LiveLink.open,
            endpoint.address,
            path,
            headers=self._renderer.link_headers(),
            tls=self._tls,
            timeout_s=self.options.connect_timeout_s,
        )
        try:
            return run_aside(opening)
        except OSError as error:
            self.endpoints.report_failure(endpoint, self._clock())
            raise NotSent(no_answer(endpoint, error)) from error

    def operation(self, operation_id: str) -> Operation:
        """Return how far an operation is that the broker queued."""
        answer = self.request("GET", path_of("operations", operation_id))
        return decode_operation(answer.body)

    def wait_for(self, queued: QueuedOperation) -> bytes:
        """Wait until a queued operation is over, and return its answer.

        Raises:
            Refused: It failed or was cancelled.
        """
        pause_s = _POLL_S_MIN
        while not (operation := self.operation(queued.operation_id)).is_over:
            Stop().pause(pause_s)
            pause_s = min(pause_s * 2, _POLL_S_MAX)
        if operation.status != "completed":
            raise Refused(f"operation {queued.operation_id} {operation.status}: {operation.error}")
        return bytes(operation.answer)

    def close(self) -> None:
        """End all connections; requests from now on raise `Stopped`."""
        self._is_closed = True
        for connection in self._idle.take_all():
            connection.close()
