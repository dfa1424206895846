"""A subscription to a queue by WebSocket, and what its frames say: for both kinds of client."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from skep.client.deliveries import Delivered
from skep.client.io_shared import InboxBase
from skep.client.leases import UNLEASED, KeptLease, LeaseKeeper
from skep.client.live_link import LiveLink
from skep.client.options import ConsumeOptions
from skep.model.wire import QUEUE_MODE

_MESSAGES: Final = b'{"type":"messages",'
_ACKED: Final = b'{"type":"acked","results":'
_UNSUBSCRIBED: Final = b'{"type":"unsubscribed"'
_LEASE: Final = b'"leaseId":"'

_log = logging.getLogger("skep.client")
_encode: Final = msgspec.json.Encoder().encode

M = TypeVar("M", bound=Delivered)


class Taken(NamedTuple, Generic[M]):
    """Messages that came together, and the lease they are held by."""

    messages: Sequence[M]
    lease: KeptLease


class FeedBase(Generic[M]):
    """One subscription on one socket, but for the waiting."""

    def __init__(
        self,
        link: LiveLink,
        keeper: LeaseKeeper,
        options: ConsumeOptions,
        decode: Callable[[bytes], Sequence[M]],
        batches: InboxBase,
        replies: InboxBase,
    ) -> None:
        self._link: Final = link
        self._keeper: Final = keeper
        self._options: Final = options
        self._decode: Final = decode
        self._arrived: Final = batches
        self._answers: Final = replies
        self._leases: Final[dict[str, KeptLease]] = {}
        self._has_clear_replies = True
        self._credit = 0
        self._is_leaving = False
        self._is_closed = False

    def start(self, credit: int) -> None:
        """Subscribe, for so many messages at first.

        Raises:
            OSError: The socket is broken.
        """
        self._credit = credit
        self._link.start(self._hear, self._end)
        self._link.send(_encode(_subscription(self._options, credit)))

    def unsubscribe(self) -> None:
        """Let nothing more be sent: what is given back from now on goes to other consumers."""
        if not self._is_leaving:
            self._is_leaving = True
            with suppress(OSError):  # no more comes from a broken socket either
                self._link.send(b'{"type":"unsubscribe"}')

    def close(self) -> None:
        """End the socket, and keep no lease of messages that were not taken."""
        self._is_closed = True
        self._link.close()
        for lease_id in tuple(self._leases):
            self._keeper.forget(lease_id)

    def _ask_for(self, wanted: int) -> None:
        """Let so many messages be outstanding."""
        if self._credit < wanted:
            with suppress(OSError):  # what came before the end is taken all the same
                self._link.send(b'{"type":"credit","messages":%d}' % (wanted - self._credit))
            self._credit = wanted

    def _taken(self, text: bytes) -> Taken[M]:
        messages = self._decode(text)
        self._credit -= len(messages)
        lease = self._leases.pop(messages[0].lease_id, UNLEASED)
        return Taken(messages, lease)

    def _begin_ack(self, items: bytes) -> bool:
        """Send verdicts; return whether their answer can be awaited here."""
        if not self._has_clear_replies:
            return False
        # An answer that is given up on would be taken for that of the next verdicts.
        self._has_clear_replies = False
        try:
            self._link.send(b'{"type":"ack","acknowledgments":[%b]}' % items)
        except OSError:
            return False
        return True

    def _end_ack(self, text: bytes | None) -> bytes | None:
        """Return the results in the answer to verdicts; None if it is another answer."""
        if text is None or not text.startswith(_ACKED):
            return None
        self._has_clear_replies = True
        return text[len(_ACKED) : -1]

    # The thread of the socket calls these.

    def _hear(self, text: bytes) -> None:
        if text.startswith(_MESSAGES):
            if self._is_closed:
                return  # the broker sees the socket close, and delivers it again
            self._keep_lease(text)
            self._arrived.put(text)
        elif text.startswith(_ACKED):
            self._answers.put(text)
        elif text.startswith(_UNSUBSCRIBED):
            self._arrived.put(None)
        else:
            # It may be the answer to verdicts or about the delivery: the broker does not say.
            _log.info("The broker reports: %s", text[:200].decode(errors="replace"))
            if not self._has_clear_replies:
                self._answers.put(text)
            if self._is_leaving:
                self._arrived.put(None)

    def _keep_lease(self, text: bytes) -> None:
        begin = text.find(_LEASE)  # not within a name: its quotation marks would be escaped
        if begin < 0 or self._options.auto_ack:
            return
        begin += len(_LEASE)
        lease_id = text[begin : text.index(b'"', begin)].decode()
        self._leases[lease_id] = self._keeper.keep(lease_id, self._options)

    def _end(self) -> None:
        self._arrived.put(None)
        self._answers.put(None)


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
        "create": options.create,
    }
    return {name: value for name, value in frame.items() if value is not None}
