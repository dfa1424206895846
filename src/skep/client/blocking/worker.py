# Generated from skep/client/aio/worker.py by tools/generate_blocking_client.py; edit that.
"""Workers: a handler called for every message, several at a time, until asked to stop.

What a handler returns or raises decides what becomes of its message. Each of the concurrent loops
has leases of its own, so messages of one partition are never handled at the same time.
"""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

from skep.client.blocking.consumption import Consumption
from skep.client.blocking.message import Batch, Message
from skep.client.io_blocking import Stop, invoke, run_together, stopping_on_signals
from skep.client.tracing import Telemetry
from skep.client.verdicts import COMPLETED, Verdict, failure_of, verdict_of
from skep.telemetry.failures import FailureLog

_log = logging.getLogger("skep.client")


class Worker:
    """A handler and the messages it is for; `worker` of the client says how they come together."""

    def __init__(
        self,
        consume: Callable[[Stop], Consumption],
        handler: Callable[[Any], Any],
        *,
        concurrency: int,
        by_batch: bool,
        telemetry: Telemetry,
    ) -> None:
        self._consume: Final = consume
        self._handler: Final = handler
        self._concurrency: Final = concurrency
        self._by_batch: Final = by_batch
        self._telemetry: Final = telemetry
        self._failures: Final = FailureLog(_log)
        self._stop: Final = Stop()
        self.handled = 0
        """Messages whose handler has returned or raised."""

    def stop(self) -> None:
        """Finish what is being handled, give back the rest, and let `run` return."""
        self._stop.set()

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until stopped: by `stop`, a signal, the limit or the idle time of the options.

        Args:
            handle_signals: Whether SIGINT and SIGTERM stop it; in the main thread only.
        """
        with stopping_on_signals(self.stop) if handle_signals else nullcontext():
            run_together([self._loop] * self._concurrency, self._stop)

    def _loop(self) -> None:
        for batch in self._consume(self._stop).take_batches():
            if self._by_batch:
                self._handle_batch(batch)
            else:
                self._handle_each(batch)

    def _handle_each(self, batch: Batch) -> None:
        settlement = batch.settlement
        for message in batch:
            if self._stop.is_set:
                return
            if not settlement.is_next(message):
                continue
            with self._telemetry.handling(message.queue, message.headers or {}):
                verdict = self._verdict(message)
            self.handled += 1
            if verdict is not COMPLETED:
                settlement.settle(message, verdict)
            if settlement.complete(message):
                settlement.catch_up(message)

    def _handle_batch(self, batch: Batch) -> None:
        with self._telemetry.handling(batch[0].queue, batch[0].headers or {}):
            verdict = self._verdict(batch)
        self.handled += len(batch)
        batch.settle_open(verdict)

    def _verdict(self, argument: Message | Batch) -> Verdict:
        try:
            returned = invoke(self._handler, argument)
        except Exception as error:  # noqa: BLE001 (any exception of a handler is its verdict)
            verdict = verdict_of(raised=error)
            place, what = failure_of(argument, verdict)
            self._failures.tell(logging.WARNING, place, what, error)
            return verdict
        return verdict_of(returned)
