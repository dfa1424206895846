# Generated from skep/client/aio/consumption.py by tools/generate_blocking_client.py; edit that.
"""The consumer loop: ask, hand out, settle, and go on even if the broker restarts.

A consumption is iterated over, message by message or batch by batch. A message counts as done when
the next one is asked for, unless it has another verdict. Leaving the loop gives back all that was
not handled; with `with` the current message is settled by how the block ended. Polls and
verdicts are repeated until they are answered.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from math import inf
from time import monotonic
from typing import Final

from skep.client.blocking.live import Feed, LiveDelivery
from skep.client.blocking.message import Batch, Message, Settlement, decode_popped
from skep.client.blocking.session import Session
from skep.client.errors import Stopped
from skep.client.io_blocking import Stop
from skep.client.leases import UNLEASED, KeptLease, LeaseKeeper
from skep.client.options import ConsumeOptions, Polls
from skep.client.verdicts import COMPLETED, verdict_of

ANSWER_SLACK_S: Final = 10.0
"""How much longer we wait for the broker than it waits for messages."""


def pop_messages(
    session: Session,
    options: ConsumeOptions,
    path: str,
    *,
    wait_s: float,
    stop: Stop | None = None,
    is_patient: bool = False,
) -> list[Message]:
    """Ask once for messages; the path says for which, and for how long (`pop_path`)."""
    answer = session.request(
        "GET",
        path,
        affinity=options.affinity,
        timeout_s=wait_s + ANSWER_SLACK_S,
        retry=session.patient if is_patient else None,
        stop=stop,
    )
    if answer.status == 204 or not answer.body:
        return []
    messages = decode_popped(answer.body)
    if messages and not messages[0].queue:
        for message in messages:
            message.queue = options.queue or ""
    return messages


class Consumption:
    """Messages of a queue for a group, one after the other."""

    def __init__(
        self,
        session: Session,
        keeper: LeaseKeeper,
        options: ConsumeOptions,
        stop: Stop | None = None,
    ) -> None:
        self._session: Final = session
        self._keeper: Final = keeper
        self.options: Final = options
        self._stop: Final = stop or Stop()
        self._live: Final = LiveDelivery(session, keeper, options)
        self._wants_socket: Final = options.wants_socket
        self._polls: Final = Polls(options)
        self._current: Message | None = None
        self._messages: Generator[Message] | None = None

    def stop(self) -> None:
        """End the iteration: after the current message, or now if it waits for one."""
        self._stop.set()

    def __iter__(self) -> Iterator[Message]:
        self._messages = self.each()
        return self._messages

    def __enter__(self) -> "Consumption":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        message = self._current
        if message is not None and (error is None or isinstance(error, Exception)):
            message.settlement.settle(message, verdict_of(raised=error))
        if self._messages is not None:
            self._messages.close()

    def each(self) -> Generator[Message]:
        """Iterate over messages, as the consumption itself does."""
        stop = self._stop
        with closing(self.take_batches()) as batches:
            for batch in batches:
                settlement, messages = batch.settlement, enumerate(batch.unseen)
                del batch
                progress, lease = settlement.progress, settlement.lease
                in_line = not settlement.is_lost
                # All users pay for every step of this loop: it does what `adopt` and `complete`
                # do, without a call for it.
                for place, message in messages:
                    message.settlement = settlement
                    message.place = place
                    if not in_line and not settlement.is_next(message):
                        continue
                    self._current = message
                    yield message
                    if in_line and progress.is_plain:
                        progress.completed_to = place + 1
                        is_quiet = monotonic() < settlement.catch_up_at_s and not lease.is_lost
                        if is_quiet and not stop.is_set:
                            continue
                    settlement.catch_up(message)
                    if stop.is_set:
                        return
                    in_line = progress.is_plain and progress.completed_to == place + 1
                    in_line = in_line and not settlement.is_lost

    def batches(self) -> Generator[Batch]:
        """Iterate over whole batches; messages without a verdict are done with the next batch."""
        with closing(self.take_batches()) as batches:
            for batch in batches:
                yield batch
                batch.settle_open(COMPLETED)
                del batch

    def take_batches(self) -> Generator[Batch]:
        """Iterate over batches that the caller settles; unsettled messages are given back."""
        try:
            while not self._stop.is_set and (batch := self._next_batch()) is not None:
                settlement, is_leaving = batch.settlement, True
                try:
                    yield batch
                    is_leaving = self._stop.is_set
                finally:
                    del batch
                    if is_leaving:
                        self._live.unsubscribe()  # else it would be sent what it gives back
                    settlement.finish()
        finally:
            self._live.close()

    def _next_batch(self) -> Batch | None:
        """Wait until there are messages; None when it is over."""
        asked_at_s = monotonic()
        quiet_until_s = asked_at_s + (inf if self.options.idle_s is None else self.options.idle_s)
        while not self._stop.is_set and (size := self._polls.size()) > 0:
            wait_s = min(self.options.wait_s, max(quiet_until_s - asked_at_s, 0.0))
            try:
                if (batch := self._ask(size, wait_s)) is not None:
                    return batch
                if monotonic() >= quiet_until_s:
                    return self._poll_once_more(size)
            except Stopped:
                return None
            if pause_s := self._polls.pause_s(monotonic() - asked_at_s, wait_s):
                self._stop.pause(pause_s)
            asked_at_s = monotonic()
        return None

    def _ask(self, size: int, wait_s: float) -> Batch | None:
        """Wait for messages from the socket, if there is one, or else by a poll."""
        if self._wants_socket:
            try:
                taken = self._live.take(size, wait_s, self._stop)
            except TimeoutError:
                return None
            if taken is not None:
                return self._batch_of(taken.messages, taken.lease, self._live.feed)
        return self._poll(size, wait_s)

    def _poll_once_more(self, size: int) -> Batch | None:
        """Poll before it is over: a socket that is quiet may only be slow."""
        if self._live.feed is None:
            return None
        self._live.close()
        return self._poll(size, 0.0)

    def _poll(self, size: int, wait_s: float) -> Batch | None:
        messages = pop_messages(
            self._session,
            self.options,
            self._polls.path(size, round(wait_s * 1000)),
            wait_s=wait_s,
            stop=self._stop,
            is_patient=True,
        )
        if not messages:
            return None
        lease_id = messages[0].lease_id
        lease = self._keeper.keep(lease_id, self.options) if lease_id else UNLEASED
        return self._batch_of(messages, lease)

    def _batch_of(
        self, messages: Sequence[Message], lease: KeptLease, feed: Feed | None = None
    ) -> Batch:
        self._polls.note_delivery(len(messages))
        settlement = Settlement(
            self._session,
            messages,
            lease=lease,
            keeper=self._keeper,
            ack_every_s=self.options.ack_every_s,
            stop=self._stop,
            acknowledger=feed,
        )
        return Batch(messages, settlement)
