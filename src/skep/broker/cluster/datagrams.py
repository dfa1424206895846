"""Tell other instances by UDP, and hear them.

Every process sends by itself; the first process of an instance hears for all of it, because only
one who sees every datagram can tell a replayed one. Sending never waits: a datagram the kernel has
no room for is one that was lost on the way.

A name may stand for several addresses (a headless service of Kubernetes names all its pods), and
is looked up again from time to time. An instance that hears itself takes no notice of it.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

_log = logging.getLogger(__name__)

LOOKUP_PAUSE_S: Final = 30.0
LOOKUP_RETRY_S: Final = 2.0

Address: TypeAlias = tuple[Any, ...]
"""What the socket library calls an address: host, port, and more for IPv6."""


class PeerDatagrams(asyncio.DatagramProtocol):
    """The datagrams between this process and other instances."""

    def __init__(
        self, peers: Sequence[tuple[str, int]], hear: Callable[[bytes, str], None]
    ) -> None:
        """Take the peers by name, and who hears a datagram and the host it came from."""
        self.sent_count = 0
        self.failed_count = 0
        self._peers: Sequence[tuple[str, int]] = peers
        self._hear: Final = hear
        self._addresses: list[tuple[int, Address]] = []
        self._senders: Final[dict[int, socket.socket]] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._lookup: asyncio.Task[None] | None = None

    @property
    def hosts(self) -> set[str]:
        """The hosts that the names of the peers stand for."""
        return {address[0] for _, address in self._addresses}

    async def start(self, own_socket: socket.socket | None) -> None:
        """Look up the peers, and hear on this socket, if this process is the one that hears."""
        loop = asyncio.get_running_loop()
        if own_socket is not None:
            transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=own_socket)
            self._transport = transport
        self.point_to(self._peers)

    def point_to(self, peers: Sequence[tuple[str, int]]) -> None:
        """Tell these peers from now on."""
        self._peers = peers
        if self._lookup is not None:
            self._lookup.cancel()
        self._addresses = []
        self._lookup = asyncio.get_running_loop().create_task(self._keep_looking_up())

    async def stop(self) -> None:
        """Hear and tell nothing any more."""
        if self._lookup is not None:
            self._lookup.cancel()
            with suppress(asyncio.CancelledError):
                await self._lookup
        if self._transport is not None:
            self._transport.close()
        for sender in self._senders.values():
            sender.close()
        self._senders.clear()
        self._addresses = []

    def send(self, datagram: bytes) -> None:
        """Send a datagram to every peer."""
        for family, address in self._addresses:
            try:
                self._sender(family).sendto(datagram, address)
            except OSError as error:
                self.failed_count += 1
                _log.debug("a peer could not be told: %s", error)
            else:
                self.sent_count += 1

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Pass on what somebody sent."""
        self._hear(data, addr[0])

    def error_received(self, exc: Exception) -> None:
        """Take note that a datagram could not be delivered."""
        _log.debug("a peer could not be told: %s", exc)

    def _sender(self, family: int) -> socket.socket:
        sender = self._senders.get(family)
        if sender is None:
            sender = self._senders[family] = socket.socket(family, socket.SOCK_DGRAM)
            sender.setblocking(False)
        return sender

    async def _keep_looking_up(self) -> None:
        while self._peers:
            is_complete = await self._look_up()
            await asyncio.sleep(LOOKUP_PAUSE_S if is_complete else LOOKUP_RETRY_S)

    async def _look_up(self) -> bool:
        loop = asyncio.get_running_loop()
        found: dict[tuple[int, Address], None] = {}
        is_complete = True
        for host, port in self._peers:
            try:
                entries = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            except OSError as error:
                is_complete = False
                _log.debug("peer %s is not known yet: %s", host, error)
            else:
                found.update({(int(family), address): None for family, *_, address in entries})
        self._addresses = list(found)
        return is_complete
