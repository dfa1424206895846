"""The other instances on the same database: send them notices, and judge what they send.

Hints and changes go to every peer in the settings, by datagram or by request. A notice is accepted
if it is genuine, fresh, new and from another instance; any other is only counted, by `Verdict`.

With a shared secret every notice is signed. Without one senders cannot be recognised: hints are
still exchanged, those by datagram only with the hosts of configured peers, since a hint can only
cause a query; changes are neither sent nor accepted. Without peers, parked polls find messages a
moment later.

Every process sends datagrams; the first process of an instance receives for all of it, because only
a process that sees every datagram can detect a replay. Sending never waits: a datagram that the
kernel has no room for is lost.
"""

import asyncio
import logging
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from skep.broker.cluster import notices
from skep.broker.cluster.requests import PeerRequests, RequestPeer
from skep.broker.polling_loop import end_task
from skep.settings.peers import PeerAddresses

_log = logging.getLogger(__name__)

LOOKUP_PAUSE_S: Final = 30.0
LOOKUP_RETRY_S: Final = 2.0

Address: TypeAlias = tuple[Any, ...]
"""What the socket library calls an address: host, port, and more for IPv6."""


class PeerDatagrams(asyncio.DatagramProtocol):
    """The datagrams between this process and other instances.

    A name may stand for several addresses (a headless service of Kubernetes names all its pods);
    it is looked up again from time to time.
    """

    def __init__(
        self, peers: Sequence[tuple[str, int]], hear: Callable[[bytes, str], None]
    ) -> None:
        """Take the peers by name, and what receives a datagram and the host it came from."""
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
        """Look up the peers, and receive on this socket, if there is one."""
        loop = asyncio.get_running_loop()
        if own_socket is not None:
            transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=own_socket)
            self._transport = transport
        self.point_to(self._peers)

    def point_to(self, peers: Sequence[tuple[str, int]]) -> None:
        """Send to these peers from now on."""
        self._peers = peers
        if self._lookup is not None:
            self._lookup.cancel()
        self._addresses = []
        self._lookup = asyncio.get_running_loop().create_task(self._keep_looking_up())

    async def stop(self) -> None:
        """Stop sending and receiving."""
        await end_task(self._lookup)
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
                _log.debug("could not send a datagram to a peer: %s", error)
            else:
                self.sent_count += 1

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Pass on a datagram."""
        self._hear(data, addr[0])

    def error_received(self, exc: Exception) -> None:
        """Log that a datagram could not be delivered."""
        _log.debug("could not send a datagram to a peer: %s", exc)

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
                _log.debug("peer %s cannot be resolved: %s", host, error)
            else:
                found.update({(int(family), address): None for family, *_, address in entries})
        self._addresses = list(found)
        return is_complete


class PeerStats(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What one process sent and received since it started."""

    is_authenticated: bool
    """Whether there is a shared secret; without one, changes are neither sent nor accepted."""
    is_listening: bool
    """Whether this is the process of its instance that receives datagrams."""
    datagram_hosts: list[str]
    datagrams_sent: int
    datagrams_failed: int
    request_peers: list[RequestPeer]
    heard: dict[str, int]
    """Notices received, by verdict."""
    changes_withheld: int
    """Changes that were not sent because there is no secret."""


class Peers:
    """What one process sends to other instances, and receives from them."""

    def __init__(
        self,
        addresses: PeerAddresses,
        secret: str | None,
        *,
        instance: bytes,
        hear: Callable[[notices.Notice], None],
        now_ms: Callable[[], int],
    ) -> None:
        """Take the peers, the shared secret, the id of this instance and what receives notices."""
        self._instance: Final = instance[: notices.INSTANCE_BYTES]
        self._sender: Final = self._instance + secrets.token_bytes(
            notices.SENDER_BYTES - notices.INSTANCE_BYTES
        )
        self._numbers: Final = count(1)
        self._hear: Final = hear
        self._now_ms: Final = now_ms
        self._guard: Final = notices.ReplayGuard()
        self._heard: Final[Counter[notices.Verdict]] = Counter()
        self._withheld = 0
        self._is_listening = False
        self._is_started = False
        self._addresses = addresses
        self._datagrams: Final = PeerDatagrams(addresses.datagrams, self._hear_datagram)
        self._requests: list[PeerRequests] = []
        self._use_secret(secret)

    @property
    def is_enabled(self) -> bool:
        """Whether this instance exchanges notices with others."""
        return bool(self._secret or self._addresses.datagrams or self._addresses.urls)

    async def start(self, own_socket: socket.socket | None) -> None:
        """Begin to send, and to receive if a socket is given."""
        self._is_started = True
        self._is_listening = own_socket is not None
        await self._datagrams.start(own_socket)
        self._requests = [PeerRequests(url, self._sign) for url in self._addresses.urls]
        self._warn_without_secret()

    async def stop(self) -> None:
        """Stop sending and receiving."""
        self._is_started = False
        await self._datagrams.stop()
        await asyncio.gather(*(peer.stop() for peer in self._requests))

    async def change(self, addresses: PeerAddresses, secret: str | None) -> None:
        """Send to other peers, or sign with another secret, from now on."""
        if (addresses, secret) == (self._addresses, self._secret) or not self._is_started:
            return
        self._addresses = addresses
        self._use_secret(secret)
        self._datagrams.point_to(addresses.datagrams)
        former = self._requests
        self._requests = [PeerRequests(url, self._sign) for url in addresses.urls]
        await asyncio.gather(*(peer.stop() for peer in former))
        self._warn_without_secret()

    def tell_wakeups(self, wake: Sequence[tuple[int, int]]) -> None:
        """Tell every peer that these queues may have something to read."""
        self._tell(wake, ())

    def tell_changes(self, changed: Sequence[notices.Change]) -> None:
        """Tell every peer to read this again, if notices can be signed."""
        if not self._secret:
            self._withheld += len(changed)
            return
        self._tell((), changed)

    def take_request(self, stamp: str | None, content: bytes) -> notices.Verdict:
        """Judge a notice that came by HTTP, and pass it on if it is accepted."""
        if stamp is not None:
            return self._take(
                notices.parse_stamp(stamp, content), self._request_signer, notices.read_request
            )
        if self._secret:
            return self._close(notices.Verdict.UNSIGNED, None)
        notice = notices.read_request(content)
        return self._close(notices.Verdict.TAKEN if notice else notices.Verdict.GARBAGE, notice)

    def stats(self) -> PeerStats:
        """Return what was sent and received so far."""
        return PeerStats(
            is_authenticated=bool(self._secret),
            is_listening=self._is_listening,
            datagram_hosts=sorted(self._datagrams.hosts),
            datagrams_sent=self._datagrams.sent_count,
            datagrams_failed=self._datagrams.failed_count,
            request_peers=[replace(peer.stats) for peer in self._requests],
            heard={verdict.value: self._heard[verdict] for verdict in notices.Verdict},
            changes_withheld=self._withheld,
        )

    def _use_secret(self, secret: str | None) -> None:
        self._secret = secret
        self._datagram_signer = notices.NoticeSigner(secret, channel=b"datagram")
        self._request_signer = notices.NoticeSigner(secret, channel=b"request")

    def _tell(self, wake: Sequence[tuple[int, int]], changed: Sequence[notices.Change]) -> None:
        if self._addresses.datagrams:
            for notice in notices.split_notices(
                wake,
                changed,
                wakes_max=notices.WAKES_PER_DATAGRAM,
                changes_max=notices.CHANGES_PER_DATAGRAM,
            ):
                self._datagrams.send(
                    notices.pack_datagram(self._stamp(), notice, self._datagram_signer)
                )
        for peer in self._requests:
            peer.tell(wake, changed)

    def _stamp(self) -> notices.Stamp:
        return notices.Stamp(self._sender, next(self._numbers), self._now_ms())

    def _sign(self, notice: notices.Notice) -> tuple[bytes, str]:
        content, stamp = msgspec.json.encode(notice), self._stamp()
        return content, notices.spell_stamp(stamp, self._request_signer.mac(stamp, content))

    def _hear_datagram(self, data: bytes, host: str) -> None:
        sealed = notices.unpack_datagram(data)
        if sealed is not None and not self._secret and host not in self._datagrams.hosts:
            self._close(notices.Verdict.UNSIGNED, None)
        else:
            self._take(sealed, self._datagram_signer, notices.read_datagram)

    def _take(
        self,
        sealed: notices.Sealed | None,
        signer: notices.NoticeSigner,
        read: Callable[[bytes], notices.Notice | None],
    ) -> notices.Verdict:
        verdict = self._judge(sealed, signer) if sealed else notices.Verdict.GARBAGE
        if sealed is None or verdict is not notices.Verdict.TAKEN:
            return self._close(verdict, None)
        notice = read(sealed.content)
        return self._close(notices.Verdict.TAKEN if notice else notices.Verdict.GARBAGE, notice)

    def _judge(self, sealed: notices.Sealed, signer: notices.NoticeSigner) -> notices.Verdict:
        # The MAC first: nothing of a forged notice may touch what the guard remembers.
        if not signer.is_genuine(sealed):
            return notices.Verdict.FORGED
        if sealed.stamp.instance == self._instance:
            return notices.Verdict.OWN
        return self._guard.judge(sealed.stamp, self._now_ms())

    def _close(self, verdict: notices.Verdict, notice: notices.Notice | None) -> notices.Verdict:
        """Count a notice, and pass it on if it is accepted: without a secret its hints only."""
        if notice is not None and notice.changed and not self._secret:
            verdict, notice = notices.Verdict.UNSIGNED, notices.Notice(wake=notice.wake)
        self._heard[verdict] += 1
        if self._heard[verdict] == 1 and verdict in {notices.Verdict.FORGED, notices.Verdict.STALE}:
            _log.warning(
                "refused a %s notice: check that all instances have the same peer_secret and time",
                verdict.value,
            )
        if notice is not None:
            self._hear(notice)
        return verdict

    def _warn_without_secret(self) -> None:
        if self._is_listening and self.is_enabled and not self._secret:
            _log.warning(
                "peers are configured without peer_secret: wake-ups are exchanged unsigned, and "
                "changes (configuration, maintenance) are neither sent nor taken"
            )
