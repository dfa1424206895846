"""Push batches, one request at a time, until every item has an answer.

A broker that is away or full is waited for, and a request whose answer was lost is repeated: its
items keep their transaction ids, so nothing is stored twice. A request that is refused as a whole
is halved until the item that spoils it is found; the others are stored. One request at a time keeps
the order of lines within their partitions.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from time import monotonic
from typing import Final, TypeAlias

from skep.cli.messages.push_items import Batch, Line
from skep.client import Item, PushCounts, PushResults, Stopped
from skep.model.errors import BadRequest, Overloaded, Refused, SkepError, Unavailable

PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 2.0

OnReject: TypeAlias = Callable[[Line, str], None]
OnProgress: TypeAlias = Callable[[Batch], None]
OnWait: TypeAlias = Callable[[str], None]
"""Hears what is waited for."""


class Patience:
    """Pauses between tries that grow, until nothing worked for too long."""

    def __init__(
        self, give_up_s: float, *, on_wait: OnWait, clock: Callable[[], float] = monotonic
    ) -> None:
        self._give_up_s: Final = give_up_s
        self._on_wait: Final = on_wait
        self._clock: Final = clock
        self._stop: Final = Event()
        self._since: float | None = None
        self._pause_s = PAUSE_S_MIN

    def end(self) -> None:
        """Let nobody wait any longer."""
        self._stop.set()

    def succeed(self) -> None:
        """Take note that something worked."""
        self._since, self._pause_s = None, PAUSE_S_MIN

    def wait(self, error: SkepError) -> None:
        """Pause because of an error.

        Raises:
            SkepError: The error itself, when nothing worked for too long.
            Stopped: Somebody asked to end.
        """
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._give_up_s:
            raise error
        self._on_wait(error.message)
        asked_s = float(error.retry_after_s) if isinstance(error, Overloaded) else 0.0
        if self._stop.wait(max(self._pause_s, asked_s)):
            raise Stopped
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)


class Upload:
    """Batches on their way to a broker, and what became of their items."""

    def __init__(
        self,
        push: Callable[[list[Item]], PushResults],
        patience: Patience,
        *,
        on_reject: OnReject,
        on_progress: OnProgress,
    ) -> None:
        self._push: Final = push
        self._patience: Final = patience
        self._on_reject: Final = on_reject
        self._on_progress: Final = on_progress
        self.counts: Final = PushCounts()
        """What became of the lines so far; those that are no JSON have failed."""

    def run(self, batches: Iterable[Batch]) -> None:
        """Push all batches. The next one is made while one is on its way."""
        with ThreadPoolExecutor(1, "upload") as sender:
            in_flight: Future[None] | None = None
            try:
                for batch in batches:
                    if in_flight is not None:
                        in_flight.result()
                    in_flight = sender.submit(self._send, batch)
                if in_flight is not None:
                    in_flight.result()
            except BaseException:
                self._patience.end()  # the executor waits for its thread
                raise

    def _send(self, batch: Batch) -> None:
        for line, reason in batch.refused:
            self._reject(line, reason)
        if batch.items:
            self._store(batch.lines, batch.items)
        self._on_progress(batch)

    def _store(self, lines: list[Line], items: list[Item]) -> None:
        try:
            results = self._push_patiently(items)
        except (BadRequest, Refused) as error:
            if len(items) == 1:
                self._reject(lines[0], error.message)
                return
            half = len(items) // 2
            self._store(lines[:half], items[:half])
            self._store(lines[half:], items[half:])
            return
        counts = results.counts
        if counts.failed:
            for line, result in zip(lines, results, strict=True):
                if not result.is_stored:
                    self._reject(line, result.error or "refused")
            counts.failed = 0
        self.counts.add(counts)

    def _push_patiently(self, items: list[Item]) -> PushResults:
        while True:
            try:
                results = self._push(items)
            except (Unavailable, Overloaded) as error:
                self._patience.wait(error)
            else:
                self._patience.succeed()
                return results

    def _reject(self, line: Line, reason: str) -> None:
        self.counts.failed += 1
        self._on_reject(line, reason)
