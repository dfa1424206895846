"""Messages by WebSocket: the broker sends batches as they come, and takes verdicts the same way.

Credit bounds the outstanding messages: the current batch and those that arrived behind it are
together never more than one batch of the options. Their leases are kept from the moment they
arrive. Where there is no WebSocket, or while it is broken, `take` says so, the caller polls, and
the WebSocket is tried again later. A broker that dies keeps its leases, one that sees the socket
close ends them: either way messages come again, and none is lost.
"""

import logging
from contextlib import suppress
from time import monotonic
from typing import Final

from skep.client.aio.message import Batch, Message, Settlement, decode_popped
from skep.client.aio.session import Session
from skep.client.endpoints import path_of
from skep.client.errors import Unreachable
from skep.client.feeds import FeedBase, Taken
from skep.client.io_async import Condition, Inbox, Stop
from skep.client.leases import LeaseKeeper
from skep.client.live_link import LinkRefused, LiveLink
from skep.client.options import ConsumeOptions

ANSWER_S_MAX: Final = 10.0
"""How long the broker may take to answer on the socket. Verdicts are then sent by request."""

REOPEN_S: Final = 1.0
REOPEN_S_MAX: Final = 30.0

_log = logging.getLogger("skep.client")


class Feed(FeedBase[Message]):
    """One subscription on one socket."""

    def __init__(self, link: LiveLink, keeper: LeaseKeeper, options: ConsumeOptions) -> None:
        self._batches: Final = Inbox()
        self._replies: Final = Inbox()
        self._turn: Final = Condition()
        super().__init__(link, keeper, options, decode_popped, self._batches, self._replies)

    async def take(self, wanted: int, timeout_s: float, stop: Stop | None) -> Taken[Message] | None:
        """Return the next messages, so many of which may be outstanding; None at the end.

        Raises:
            TimeoutError: Nothing came.
        """
        self._ask_for(wanted)
        text = await self._batches.take(timeout_s, stop)
        return None if text is None else self._taken(text)

    async def acknowledge(self, items: bytes) -> bytes | None:
        """Send verdicts; return the answer, or None if they have to go another way."""
        async with self._turn:
            if not self._begin_ack(items):
                return None
            try:
                return self._end_ack(await self._replies.take(ANSWER_S_MAX))
            except TimeoutError:
                return None


class LiveDelivery:
    """Feeds of one consumption, one after the other."""

    def __init__(self, session: Session, keeper: LeaseKeeper, options: ConsumeOptions) -> None:
        self._session: Final = session
        self._keeper: Final = keeper
        self._options: Final = options
        self.feed: Feed | None = None
        """The socket that messages may come by, if it is open."""
        self._is_refused = not options.wants_socket
        self._open_at_s = 0.0
        self._pause_s = REOPEN_S

    async def take(self, wanted: int, timeout_s: float, stop: Stop) -> Taken[Message] | None:
        """Return the next messages; None if one has to poll at present.

        Raises:
            TimeoutError: Nothing came.
            Stopped: The client is closed.
        """
        while (feed := self.feed or await self._open(wanted)) is not None:
            self._session.check_open(stop)
            taken = await feed.take(wanted, timeout_s, stop)
            if taken is None:
                feed.close()
                self._drop()
            elif not taken.lease.is_lost:  # else it lay here for too long, and comes again
                self._pause_s = REOPEN_S
                return taken
        return None

    def unsubscribe(self) -> None:
        """Let nothing more come by the socket."""
        if self.feed is not None:
            self.feed.unsubscribe()

    async def close(self) -> None:
        """Give back messages that were not taken, and end the socket."""
        self.unsubscribe()
        feed, self.feed = self.feed, None
        if feed is None:
            return
        try:
            with suppress(TimeoutError):
                while (taken := await feed.take(0, ANSWER_S_MAX, None)) is not None:
                    await self._give_back(taken, feed)
        finally:
            feed.close()

    async def _give_back(self, taken: Taken[Message], feed: Feed) -> None:
        messages, lease = taken
        settlement = Settlement(
            self._session, messages, lease=lease, keeper=self._keeper, acknowledger=feed
        )
        await Batch(messages, settlement).settlement.finish()

    async def _open(self, wanted: int) -> Feed | None:
        if self._is_refused or monotonic() < self._open_at_s:
            return None
        path = path_of("stream/queue", self._options.queue or "")
        try:
            link = await self._session.open_link(path, self._options.affinity)
        except LinkRefused as error:
            _log.warning("No WebSocket, polling instead: %s", error)
            self._is_refused = True
            return None
        except Unreachable as error:
            _log.info("WebSocket failed, polling for now: %s", error)
            self._drop()
            return None
        feed = Feed(link, self._keeper, self._options)
        try:
            feed.start(wanted)
        except OSError:
            feed.close()
            self._drop()
            return None
        self.feed = feed
        return feed

    def _drop(self) -> None:
        """Poll for a while."""
        self.feed = None
        self._open_at_s = monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, REOPEN_S_MAX)
