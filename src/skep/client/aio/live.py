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
from typing import Final, NamedTuple

import msgspec

from skep.client.aio.message import Batch, Message, Settlement, decode_popped
from skep.client.aio.session import Session
from skep.client.endpoints import path_of
from skep.client.errors import Unreachable
from skep.client.io_async import Condition, Inbox, Stop
from skep.client.leases import UNLEASED, KeptLease, LeaseKeeper
from skep.client.live_link import LinkRefused, LiveLink
from skep.client.options import ConsumeOptions
from skep.model.wire import QUEUE_MODE

ANSWER_S_MAX: Final = 10.0
"""How long verdicts wait for an answer on the socket before they are sent by request."""

REOPEN_S: Final = 1.0
REOPEN_S_MAX: Final = 30.0

_MESSAGES: Final = b'{"type":"messages",'
_ACKED: Final = b'{"type":"acked","results":'
_LEASE: Final = b'"leaseId":"'

_log = logging.getLogger("skep.client")
_encode: Final = msgspec.json.Encoder().encode


class Taken(NamedTuple):
    """Messages that came together, the lease they are held by, and how verdicts go back."""

    messages: list[Message]
    lease: KeptLease
    feed: "Feed"


class Feed:
    """One subscription on one socket."""

    def __init__(self, link: LiveLink, keeper: LeaseKeeper, options: ConsumeOptions) -> None:
        self._link: Final = link
        self._keeper: Final = keeper
        self._options: Final = options
        self._batches: Final = Inbox()
        self._replies: Final = Inbox()
        self._leases: Final[dict[str, KeptLease]] = {}
        self._turn: Final = Condition()
        self._has_clear_replies = True
        self._credit = 0
        self._is_closed = False

    def start(self, credit: int) -> None:
        """Subscribe, for so many messages at first.

        Raises:
            OSError: The socket is broken.
        """
        self._credit = credit
        self._link.start(self._hear, self._end)
        self._link.send(_encode(_subscription(self._options, credit)))

    async def take(self, wanted: int, timeout_s: float, stop: Stop | None) -> Taken | None:
        """Return the next messages; None if the socket has ended.

        Args:
            wanted: How many may be outstanding.
            timeout_s: How long to wait.
            stop: Ends the waiting.

        Raises:
            TimeoutError: Nothing came.
        """
        if self._credit < wanted:
            with suppress(OSError):  # what came before the end is taken all the same
                self._link.send(b'{"type":"credit","messages":%d}' % (wanted - self._credit))
            self._credit = wanted
        text = await self._batches.take(timeout_s, stop)
        return None if text is None else self._taken(text)

    def _taken(self, text: bytes) -> Taken:
        messages = decode_popped(text).messages
        self._credit -= len(messages)
        lease = self._leases.pop(messages[0].lease_id, UNLEASED)
        return Taken(messages, lease, self)

    async def acknowledge(self, items: bytes) -> bytes | None:
        """Send verdicts; return the answer, or None if they have to go another way."""
        async with self._turn:
            if not self._has_clear_replies:
                return None
            # An answer that is given up on would be taken for that of the next verdicts.
            self._has_clear_replies = False
            try:
                self._link.send(b'{"type":"ack","acknowledgments":[%b]}' % items)
                text = await self._replies.take(ANSWER_S_MAX)
            except OSError:
                return None
            if text is None or not text.startswith(_ACKED):
                return None
            self._has_clear_replies = True
            return text[len(_ACKED) : -1]

    def take_rest(self) -> list[Taken]:
        """Return what has arrived and was not taken."""
        return [self._taken(text) for text in self._batches.take_all()]

    def close(self) -> None:
        """End the socket, and keep no lease of messages that were not taken."""
        self._is_closed = True
        self._link.close()
        for lease_id in tuple(self._leases):
            self._keeper.forget(lease_id)

    # The thread of the socket calls these.

    def _hear(self, text: bytes) -> None:
        if text.startswith(_MESSAGES):
            if self._is_closed:
                return  # the broker sees the socket close, and delivers it again
            self._keep_lease(text)
            self._batches.put(text)
        elif text.startswith(_ACKED):
            self._replies.put(text)
        else:
            # It may be the answer to verdicts or about the delivery: the broker does not say.
            _log.info("The broker reports: %s", text[:200].decode(errors="replace"))
            if not self._has_clear_replies:
                self._replies.put(text)

    def _keep_lease(self, text: bytes) -> None:
        begin = text.find(_LEASE)  # not within a name: its quotation marks would be escaped
        if begin < 0 or self._options.auto_ack:
            return
        begin += len(_LEASE)
        lease_id = text[begin : text.index(b'"', begin)].decode()
        self._leases[lease_id] = self._keeper.keep(
            lease_id,
            self._options.affinity,
            length_s=self._options.lease_s,
            limit_s=self._options.lease_s_max,
        )

    def _end(self) -> None:
        self._batches.put(None)
        self._replies.put(None)


class LiveDelivery:
    """Feeds of one consumption, one after the other."""

    def __init__(self, session: Session, keeper: LeaseKeeper, options: ConsumeOptions) -> None:
        self._session: Final = session
        self._keeper: Final = keeper
        self._options: Final = options
        self._feed: Feed | None = None
        self._is_refused = not options.wants_socket
        self._open_at_s = 0.0
        self._pause_s = REOPEN_S

    @property
    def is_open(self) -> bool:
        """Whether there is a socket that messages may come by."""
        return self._feed is not None

    async def take(self, wanted: int, timeout_s: float, stop: Stop) -> Taken | None:
        """Return the next messages; None if one has to poll at present.

        Raises:
            TimeoutError: Nothing came.
            Stopped: The client is closed.
        """
        while (feed := self._feed or await self._open(wanted)) is not None:
            self._session.check_open(stop)
            taken = await feed.take(wanted, timeout_s, stop)
            if taken is None:
                feed.close()
                self._drop()
            elif not taken.lease.is_lost:  # else it lay here for too long, and comes again
                self._pause_s = REOPEN_S
                return taken
        return None

    async def close(self) -> None:
        """Give back messages that were not taken, and end the socket."""
        feed, self._feed = self._feed, None
        if feed is None:
            return
        try:
            for messages, lease, _ in feed.take_rest():
                settlement = Settlement(
                    self._session, messages, lease=lease, keeper=self._keeper, acknowledger=feed
                )
                await Batch(messages, settlement).settlement.finish()
        finally:
            feed.close()

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
        return self._subscribe(link, wanted)

    def _subscribe(self, link: LiveLink, wanted: int) -> Feed | None:
        feed = Feed(link, self._keeper, self._options)
        try:
            feed.start(wanted)
        except OSError:
            feed.close()
            self._drop()
            return None
        self._feed = feed
        return feed

    def _drop(self) -> None:
        """Poll for a while."""
        self._feed = None
        self._open_at_s = monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, REOPEN_S_MAX)


def _subscription(options: ConsumeOptions, credit: int) -> dict[str, object]:
    frame: dict[str, object] = {
        "type": "subscribe",
        "consumerGroup": None if options.group == QUEUE_MODE else options.group,
        "batch": options.batch,
        "partitions": options.partitions,
        "autoAck": options.auto_ack,
        "leaseSeconds": 0 if options.auto_ack else round(options.lease_s),
        "subscriptionMode": options.subscription_mode,
        "subscriptionFrom": options.subscription_from,
        "credits": credit,
    }
    return {name: value for name, value in frame.items() if value is not None}
