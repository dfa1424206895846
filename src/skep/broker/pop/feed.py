"""Feeds: deliver messages to a WebSocket client as they come.

A feed is a loop of polls for one client, bounded by credit: the client says how many messages it is
ready for, and without credit nothing is claimed. The next poll starts when the batch before it was
handed to the connection, so a slow client holds one batch, not many.

When a client disconnects, a batch that was not handed over is given back as if it had not been
claimed; leases of delivered batches end, and count as deliveries. The server carries the batches;
this module knows nothing of WebSockets.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import msgspec

from skep.broker.cluster.wakeups import Announcer
from skep.broker.directory import Group
from skep.broker.pop.accept import Poll, PollOptions, Pop
from skep.db.access.slots import Caller
from skep.model.errors import Overloaded, SkepError, Unavailable
from skep.model.ids import parse_partition_uuid
from skep.telemetry.defects import error_of

END_CALL: Final = "select skep.end_leases($1, $2, $3)"

WAIT_S: Final = 60.0
"""How long one poll of a feed waits before the next takes its place."""

PAUSE_S: Final = 1.0
"""Between a poll that could not be served and the next."""

CREDIT_MAX: Final = 1_000_000
"""The most credit that a client can have."""

_log = logging.getLogger(__name__)


class _Address(msgspec.Struct, rename="camel", gc=False):
    partition_id: str


class _Delivered(msgspec.Struct, gc=False):
    messages: list[_Address]


_addresses = msgspec.json.Decoder(_Delivered)


class Batch:
    """Messages claimed for a client: the body of a poll's answer, and what was claimed."""

    __slots__ = ("body", "count", "group", "is_leased", "lease_id", "partition_ids")

    def __init__(self, body: bytes, poll: Poll) -> None:
        assert poll.group is not None
        addresses = _addresses.decode(body).messages
        parsed = {parse_partition_uuid(address.partition_id) for address in addresses}
        self.body = body
        self.count = len(addresses)
        self.group = poll.group
        self.lease_id = poll.lease_id
        self.is_leased = not poll.options.auto_ack
        self.partition_ids = {partition_id for partition_id in parsed if partition_id is not None}


class FeedClient(Protocol):
    """The connection to a client."""

    def take(self, batch: Batch) -> None:
        """Hand a batch over soon, and call `Feed.handed_over` then."""
        ...

    def hear(self, error: SkepError, *, is_over: bool) -> None:
        """Send the client an error; after `is_over` the feed does nothing more."""
        ...


class Feed:
    """A loop of polls for one client."""

    def __init__(
        self,
        pop: Pop,
        options: PollOptions,
        client: FeedClient,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._pop: Final = pop
        self._options: Final = options
        self._client: Final = client
        self._loop: Final = loop
        self.group_name: Final = options.group
        self.credit = 0
        """How many messages the client is still ready for."""
        self._poll: Poll | None = None
        self._batch: Batch | None = None  # claimed, not handed over yet
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._group: Group | None = None
        self._lease_by_partition: dict[int, UUID] = {}

    def grant(self, messages: int) -> None:
        """Let the client have so many messages more."""
        self.credit = min(self.credit + messages, CREDIT_MAX)
        self._go_on()

    def handed_over(self, batch: Batch) -> None:
        """Note that the client has a batch, and fetch the next."""
        self._batch = None
        if batch.is_leased:
            self._group = batch.group
            # A partition has one lease at a time, so the newest is the one to give up.
            self._lease_by_partition.update(dict.fromkeys(batch.partition_ids, batch.lease_id))
        self._go_on()

    def lease_of(self, partition_id: int) -> UUID | None:
        """Return the lease under which the client has messages of a partition."""
        return self._lease_by_partition.get(partition_id)

    def forget_partition(self, partition_id: int, lease_id: UUID) -> None:
        """Note that the client has nothing of a partition any more."""
        if self._lease_by_partition.get(partition_id) == lease_id:
            del self._lease_by_partition[partition_id]

    def stop(self) -> None:
        """Claim nothing more. The client keeps what it has, and receives what is on its way."""
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        if self._poll is not None:
            self._pop.abort(self._poll)

    def close(self) -> tuple[Group | None, Mapping[int, UUID]]:
        """Stop, give back what was not handed over, and return the leases the client holds."""
        self.stop()
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self._pop.give_back(
                batch.group, batch.lease_id, batch.partition_ids, is_fenced=batch.is_leased
            )
        held, self._lease_by_partition = self._lease_by_partition, {}
        return self._group, held

    def _go_on(self) -> None:
        is_busy = self._poll is not None or self._batch is not None or self._pause is not None
        if self._is_closed or is_busy or self.credit < 1:
            return
        batch = min(self._options.batch, self.credit)
        poll = self._poll = Poll(
            msgspec.structs.replace(self._options, batch=batch),
            deadline=self._loop.time() + WAIT_S,
            answer=self._deliver,
            refuse=self._refuse,
            waits=True,
        )
        if error := error_of(partial(self._pop.pop_messages, poll)):
            self._refuse(error)

    def _deliver(self, body: bytes | None) -> bool:
        poll, self._poll = self._poll, None
        if self._is_closed or poll is None:
            return False
        batch = None if body is None else Batch(body, poll)
        if batch is not None and batch.count:
            self._batch = batch
            self.credit -= batch.count
            self._client.take(batch)
        elif self._loop.time() < poll.deadline:
            # Only a broker that stops answers a waiting poll before its deadline.
            self._end(Unavailable("this instance is shutting down; connect again"))
        else:
            self._go_on()
        return True

    def _refuse(self, error: SkepError) -> None:
        self._poll = None
        if self._is_closed:
            return
        if not isinstance(error, Overloaded | Unavailable):
            self._end(error)
            return
        self._client.hear(error, is_over=False)
        self._pause = self._loop.call_later(PAUSE_S, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._go_on()

    def _end(self, error: SkepError) -> None:
        self._is_closed = True
        self._client.hear(error, is_over=True)


class Live:
    """The feeds of one process."""

    def __init__(
        self, pop: Pop, caller: Caller, announcer: Announcer, *, connections_max: int
    ) -> None:
        self._pop: Final = pop
        self._caller: Final = caller
        self._announcer: Final = announcer
        self.connections_max = connections_max
        self.connection_count = 0
        """Connections open at the moment."""
        self._endings: Final[set[asyncio.Task[None]]] = set()

    def check_room(self) -> None:
        """Make sure that one more connection may stay open."""
        if self.connection_count >= self.connections_max:
            raise Overloaded(f"more than {self.connections_max} live connections")

    def enter(self) -> None:
        """Count a connection that stays open."""
        self.check_room()
        self.connection_count += 1

    def leave(self) -> None:
        """Count a connection no more."""
        self.connection_count -= 1

    def open_feed(self, options: PollOptions, client: FeedClient) -> Feed:
        """Start a feed; it delivers once it has credit."""
        return Feed(self._pop, options, client, loop=asyncio.get_running_loop())

    def close_feed(self, feed: Feed) -> None:
        """Stop a feed, and end the leases that its client holds."""
        group, held = feed.close()
        if group is None or not held:
            return
        # Apart from the connection's own task, which may be cancelled at any moment.
        ending = asyncio.get_running_loop().create_task(self._end_leases(group, held))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def finish(self) -> None:
        """Wait until the leases of closed feeds have ended."""
        await asyncio.gather(*self._endings)

    async def _end_leases(self, group: Group, held: Mapping[int, UUID]) -> None:
        partitions: Collection[int] = held.keys()
        try:
            await self._caller.call(
                END_CALL, list(partitions), [group.group_id] * len(partitions), list(held.values())
            )
        except SkepError as error:
            _log.warning("the leases of a client that left run on until they expire: %s", error)
            return
        self._announcer.announce(group.queue_id, len(partitions))
