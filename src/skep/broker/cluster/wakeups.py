"""Wake parked polls that may find something, in this process and in the others.

Wake-ups are hints, sent after commit, never part of a transaction; a lost one costs a moment of
latency, because parked polls are also swept. One datagram per peer and turn of the loop carries all
queues that changed in it.

A datagram is the instance's token followed by pairs of big-endian integers: queue id, partitions;
or, after a token of its own, changes in MessagePack (see `changes`). The tokens keep datagrams of
other programs from causing work; they are no authentication, and a datagram can only cause a query.

Here peers are the other processes of this instance. `Peers` gets what this process announced
(`beyond`) and sends it to other instances; what those send is passed on among the processes here,
and never back.
"""

import asyncio
import logging
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Final, Protocol

import msgspec

from skep.broker.cluster.notices import Change

_log = logging.getLogger(__name__)

_PAIR: Final = struct.Struct(">II")
PAIRS_PER_DATAGRAM_MAX: Final = 1_000

_changes_decoder: Final = msgspec.msgpack.Decoder(tuple[Change, ...])


class Announcer(Protocol):
    """Wakes the polls of a queue that has something to read."""

    def announce(self, queue_id: int, partition_count: int) -> None:
        """Announce that about so many partitions of a queue became available to polls.

        0 if those that wait got everything: then it only concerns tails.
        """
        ...


@dataclass(eq=False, kw_only=True)
class Wakeups(asyncio.DatagramProtocol):
    """Wake-ups of one process: to its own parked polls at once, to its peers by datagram.

    `wake` leads to `LongPolls.wake`.
    """

    wake: Callable[[int, int], None]
    own_socket: socket.socket | None
    peer_ports: Sequence[int]
    token: bytes
    beyond: Callable[[Sequence[tuple[int, int]]], None] | None = None
    hear_changes: Callable[[Sequence[Change]], None] = lambda _: None

    def __post_init__(self) -> None:
        self._peers = [("127.0.0.1", port) for port in self.peer_ports]
        self._change_token = sha256(self.token + b"changes").digest()
        self._pending: defaultdict[int, int] = defaultdict(int)
        self._pending_beyond: defaultdict[int, int] = defaultdict(int)
        self._transport: asyncio.DatagramTransport | None = None
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Begin to receive from peers."""
        if self.own_socket is not None:
            transport, _ = await self._loop.create_datagram_endpoint(
                lambda: self, sock=self.own_socket
            )
            self._transport = transport

    def stop(self) -> None:
        """Stop sending and receiving."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def announce(self, queue_id: int, partition_count: int) -> None:
        """Wake this process's polls now, and all others at the end of this turn of the loop."""
        self.pass_on(queue_id, partition_count)
        if self.beyond is not None:
            if not self._pending_beyond:
                self._loop.call_soon(self._tell_beyond)
            self._pending_beyond[queue_id] += partition_count

    def pass_on(self, queue_id: int, partition_count: int) -> None:
        """Wake the polls of this instance only, for another instance."""
        self.wake(queue_id, partition_count)
        if not self._peers:
            return
        if not self._pending:
            self._loop.call_soon(self._tell_peers)
        self._pending[queue_id] += partition_count

    def tell_changes(self, changed: Sequence[Change]) -> None:
        """Tell the other processes of this instance to read this again."""
        if self._transport is None:
            return
        datagram = self._change_token + msgspec.msgpack.encode(changed)
        for peer in self._peers:
            self._transport.sendto(datagram, peer)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Wake the queues that a peer's datagram names, or pass on its changes."""
        del addr
        if data.startswith(self._change_token):
            self.hear_changes(_changes_decoder.decode(data[len(self._change_token) :]))
            return
        size = len(self.token)
        if not compare_digest(data[:size], self.token) or (len(data) - size) % _PAIR.size:
            return
        for queue_id, partition_count in _PAIR.iter_unpack(data[size:]):
            self.wake(queue_id, partition_count)

    def error_received(self, exc: Exception) -> None:
        """Log that a peer is not there; it is being restarted."""
        _log.debug("a wake-up could not be delivered: %s", exc)

    def _tell_beyond(self) -> None:
        pairs, self._pending_beyond = list(self._pending_beyond.items()), defaultdict(int)
        if self.beyond is not None and self._transport is not None:
            self.beyond(pairs)

    def _tell_peers(self) -> None:
        pairs, self._pending = list(self._pending.items()), defaultdict(int)
        if self._transport is None:
            return
        for start in range(0, len(pairs), PAIRS_PER_DATAGRAM_MAX):
            part = pairs[start : start + PAIRS_PER_DATAGRAM_MAX]
            datagram = self.token + b"".join(
                _PAIR.pack(queue_id, min(partition_count, 0xFFFF_FFFF))
                for queue_id, partition_count in part
            )
            for peer in self._peers:
                self._transport.sendto(datagram, peer)
