"""Messages over a WebSocket: subscribe once, receive batches, acknowledge on the same socket.

`GET /api/v1/stream/queue/{queue}` with an upgrade. Frames are JSON objects with a `type`:
docs/reference/live.md lists them.

Acknowledgments that name no lease are taken to be under the lease this socket delivered. A frame
that cannot be read is answered by an error and changes nothing. The socket closes with 1008 when
the subscription is refused or the token has expired, 1012 when this instance stops, 1013 when it
has too many connections.
"""

import asyncio
from collections import deque
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.handlers import WebsocketRouteHandler

from skep.broker.ack.accept import Ack, AckRequest
from skep.broker.ack.naming import named_partition
from skep.broker.ack.renew import Renew, Renewal
from skep.broker.pop.accept import PollOptions
from skep.broker.pop.feed import Batch, Feed, Live
from skep.broker.timestamps import wire_time
from skep.model.errors import BadRequest, InvalidToken, SkepError, Unavailable
from skep.model.ids import partition_uuid
from skep.model.limits import LEASE_SECONDS_MAX, POP_BATCH_MAX, POP_PARTITIONS_MAX
from skep.model.names import check_name
from skep.model.wire import QUEUE_MODE, AckItem
from skep.server.auth import access
from skep.server.auth.guard import SUBPROTOCOL, Requester, requester_of
from skep.server.hot.decoding import decode_body, read_subscription
from skep.server.problems import problem_of
from skep.server.routes.parameters import QueueName

REPLIES_MAX: Final = 256
"""Unsent replies after which no further frame is read."""

RENEWAL_SECONDS: Final = 60

EXPIRY_S_MAX: Final = 86_400.0 * 365
"""A timer cannot be set further ahead, and no connection lasts as long."""

CLOSE_REFUSED: Final = 1008
CLOSE_RESTARTING: Final = 1012
CLOSE_TRY_LATER: Final = 1013


class SubscribeFrame(msgspec.Struct, rename="camel", tag_field="type", tag="subscribe"):
    """Start to receive."""

    consumer_group: str | None = None
    batch: int = 1
    partitions: int = 1
    auto_ack: bool = False
    subscription_mode: Literal["all", "from_beginning", "new", "new-only"] | None = None
    subscription_from: str | None = None
    lease_seconds: int = 0
    credits: int | None = None
    """One batch if left out."""
    create: bool | None = None
    """Whether a queue that does not exist is created."""


class CreditFrame(msgspec.Struct, tag_field="type", tag="credit"):
    """Grant the server more messages to send."""

    messages: int


class AckFrame(msgspec.Struct, tag_field="type", tag="ack"):
    """Acknowledge messages."""

    acknowledgments: list[AckItem]


class RenewFrame(msgspec.Struct, rename="camel", tag_field="type", tag="renew"):
    """Extend a lease."""

    lease_id: str
    seconds: int = RENEWAL_SECONDS


class UnsubscribeFrame(msgspec.Struct, tag_field="type", tag="unsubscribe"):
    """Receive nothing more; the socket still takes acknowledgments."""


class PingFrame(msgspec.Struct, tag_field="type", tag="ping"):
    """Ask for a pong."""


Frame: TypeAlias = (
    SubscribeFrame | CreditFrame | AckFrame | RenewFrame | UnsubscribeFrame | PingFrame
)

_frames: Final[msgspec.json.Decoder[Frame]] = msgspec.json.Decoder(Frame)


class _AckOutcome(msgspec.Struct, rename="camel"):
    success: bool
    lease_released: bool


_outcomes: Final = msgspec.json.Decoder(_AckOutcome)
_encode = msgspec.json.encode


class LiveParts(msgspec.Struct, frozen=True):
    """What a socket needs of the broker."""

    live: Live
    ack: Ack
    renew: Renew
    subscription_mode: str = "all"
    """Where a new group starts by default."""
    creates: bool = True
    """Whether a queue that does not exist is created by default."""


def live_route(parts: LiveParts) -> WebsocketRouteHandler:
    """Declare the route."""

    @websocket("/api/v1/stream/queue/{queue:str}", opt=access.WRITE_QUEUE)
    async def stream_queue(socket: WebSocket[Any, Any, Any], queue: QueueName) -> None:
        offered = socket.scope["subprotocols"]
        await socket.accept(subprotocols=SUBPROTOCOL if SUBPROTOCOL in offered else None)
        try:
            check_name("queue", queue)
            parts.live.enter()
        except SkepError as error:
            await socket.send_text(_error_frame(error))
            is_bad = isinstance(error, BadRequest)
            await socket.close(code=CLOSE_REFUSED if is_bad else CLOSE_TRY_LATER)
            return
        try:
            await LiveSession(socket, queue, parts, requester_of(socket)).run()
        finally:
            parts.live.leave()

    return stream_queue


class LiveSession:
    """One socket: reads frames, sends replies and batches in the order they become known."""

    def __init__(
        self, socket: WebSocket[Any, Any, Any], queue: str, parts: LiveParts, requester: Requester
    ) -> None:
        self._socket: Final = socket
        self._requester: Final = requester
        self._queue: Final = queue
        self._parts: Final = parts
        self._feed: Feed | None = None
        self._outbox: Final[deque[str | Batch]] = deque()
        self._has_output: Final = asyncio.Event()
        self._has_room: Final = asyncio.Event()
        self._has_room.set()
        self._close_code: int | None = None

    async def run(self) -> None:
        """Serve until the client disconnects or the feed ends."""
        sender = asyncio.create_task(self._send_all())
        expiry = self._await_expiry()
        try:
            await self._read_all()
        finally:
            expiry.cancel()
            sender.cancel()
            if self._feed is not None:
                self._parts.live.close_feed(self._feed)

    def _await_expiry(self) -> asyncio.TimerHandle:
        """Close the socket when its token expires."""
        left_s = min(self._requester.left_s, EXPIRY_S_MAX)
        expired = InvalidToken("Token has expired")
        return asyncio.get_running_loop().call_later(
            left_s, lambda: self.hear(expired, is_over=True)
        )

    # The feed calls these.

    def take(self, batch: Batch) -> None:
        """Queue a batch for sending."""
        self._outbox.append(batch)
        self._has_output.set()

    def hear(self, error: SkepError, *, is_over: bool) -> None:
        """Send an error, and close the socket after it if the feed is over."""
        if is_over:
            is_stopping = isinstance(error, Unavailable)
            self._close_code = CLOSE_RESTARTING if is_stopping else CLOSE_REFUSED
        self._reply(_error_frame(error))

    # Reading.

    async def _read_all(self) -> None:
        while True:
            await self._has_room.wait()
            try:
                text = await self._socket.receive_text()
            except WebSocketDisconnect:
                return
            try:
                frame = decode_body(_frames, text.encode(errors="surrogatepass"), {})
                if isinstance(frame, AckFrame):
                    named = map(named_partition, frame.acknowledgments)
                    partitions = {partition_uuid(each) for each in named if each is not None}
                    await self._requester.require(partition_ids=partitions)
                self._obey(frame)
            except SkepError as error:
                self._reply(_error_frame(error))

    def _obey(self, frame: Frame) -> None:
        match frame:
            case SubscribeFrame():
                self._subscribe(frame)
            case CreditFrame():
                self._grant(frame)
            case AckFrame():
                self._acknowledge(frame)
            case RenewFrame():
                self._renew(frame)
            case UnsubscribeFrame():
                self._subscribed().stop()
                self._reply('{"type":"unsubscribed"}')  # behind a batch that is on its way
            case PingFrame():
                self._reply('{"type":"pong"}')

    def _subscribe(self, frame: SubscribeFrame) -> None:
        if self._feed is not None:
            raise BadRequest("already subscribed: open another socket for another subscription")
        options = self._options(frame)
        credit = options.batch if frame.credits is None else frame.credits
        if credit < 0:
            raise BadRequest(f"credits must not be negative: {credit}")
        self._feed = self._parts.live.open_feed(options, self)
        self._feed.grant(credit)

    def _options(self, frame: SubscribeFrame) -> PollOptions:
        if frame.batch < 1:
            raise BadRequest("batch must be at least 1")
        group = check_name("consumerGroup", frame.consumer_group or QUEUE_MODE)
        partitions = frame.partitions if frame.partitions > 0 else POP_PARTITIONS_MAX
        return PollOptions(
            queue=self._queue,
            group=group,
            partition=None,
            batch=min(frame.batch, POP_BATCH_MAX),
            partitions=min(partitions, POP_PARTITIONS_MAX),
            auto_ack=frame.auto_ack,
            lease_s=min(max(frame.lease_seconds, 0), LEASE_SECONDS_MAX),
            subscription=read_subscription(
                group,
                mode=frame.subscription_mode,
                start=frame.subscription_from,
                default_mode=self._parts.subscription_mode,
            ),
            creates=self._parts.creates if frame.create is None else frame.create,
        )

    def _subscribed(self) -> Feed:
        if self._feed is None:
            raise BadRequest("not subscribed: send a subscribe frame first")
        return self._feed

    def _grant(self, frame: CreditFrame) -> None:
        feed = self._subscribed()
        if frame.messages < 1:
            raise BadRequest("messages must be at least 1")
        feed.grant(frame.messages)

    def _acknowledge(self, frame: AckFrame) -> None:
        items, feed = frame.acknowledgments, self._feed
        for item in items:
            partition = named_partition(item)
            if feed is not None and partition is not None and not item.lease_id:
                lease_id = feed.lease_of(partition)
                item.lease_id = None if lease_id is None else str(lease_id)

        def answer(request: AckRequest) -> None:
            if request.error is not None:
                self._reply(_error_frame(request.error))
                return
            self._note_released(items, request.results)
            results = b",".join(request.results).decode()
            self._reply('{"type":"acked","results":[' + results + "]}")

        group = None if feed is None else feed.group_name
        self._parts.ack.ack_messages(items, group, answer)

    def _note_released(self, items: list[AckItem], results: list[bytes]) -> None:
        if self._feed is None:
            return
        for item, result in zip(items, results, strict=True):
            outcome = _outcomes.decode(result)
            partition = named_partition(item)
            if outcome.lease_released and partition is not None and item.lease_id:
                self._feed.forget_partition(partition, UUID(item.lease_id))

    def _renew(self, frame: RenewFrame) -> None:
        if not 1 <= frame.seconds <= LEASE_SECONDS_MAX:
            raise BadRequest(f"seconds must be between 1 and {LEASE_SECONDS_MAX}")
        try:
            lease_id = UUID(frame.lease_id)
        except ValueError:
            self._reply(_renewed_frame(frame.lease_id, None))
            return

        def answer(renewal: Renewal) -> None:
            if renewal.error is not None:
                self._reply(_error_frame(renewal.error))
            else:
                self._reply(_renewed_frame(frame.lease_id, renewal.expires_at))

        self._parts.renew.renew_lease(Renewal(lease_id, frame.seconds, answer))

    # Sending.

    def _reply(self, text: str) -> None:
        self._outbox.append(text)
        self._has_output.set()
        if len(self._outbox) >= REPLIES_MAX:
            self._has_room.clear()

    async def _send_all(self) -> None:
        """Send the outbox; the reader notices a client that is gone."""
        try:
            while True:
                await self._has_output.wait()
                self._has_output.clear()
                while self._outbox:
                    await self._send(self._outbox[0])
                    self._outbox.popleft()
                self._has_room.set()
                if self._close_code is not None:
                    await self._socket.close(code=self._close_code)
                    return
        except (OSError, WebSocketDisconnect):
            return

    async def _send(self, output: str | Batch) -> None:
        if isinstance(output, str):
            await self._socket.send_text(output)
            return
        await self._socket.send_text('{"type":"messages",' + output.body[1:].decode())
        if self._feed is not None:
            self._feed.handed_over(output)


def _error_frame(error: SkepError) -> str:
    return '{"type":"error",' + problem_of(error).body[1:].decode()


def _renewed_frame(lease_id: str, expires_at: datetime | None) -> str:
    expires = None if expires_at is None else wire_time(expires_at).decode()
    frame = {
        "type": "renewed",
        "leaseId": lease_id,
        "success": expires is not None,
        "expiresAt": expires,
        "error": None if expires else "Lease not found or expired",
    }
    return _encode(frame).decode()
