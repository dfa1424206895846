"""The other instances on the same database: tell them, and judge what they tell.

Hints and changes go to every peer the settings name, by datagram or by request. What arrives is
taken when it is genuine, fresh, new and not our own; everything else is counted by why it was not
(`Verdict`) and leaves no trace.

With a shared secret every notice is signed. Without one nobody can be recognised: hints are
exchanged all the same, those heard by datagram only from the hosts of configured peers, since a
hint can cause no more than a look; changes are neither sent nor taken. Without peers, or with all
of them silent, parked polls look by themselves and nothing but a moment is lost.
"""

import asyncio
import logging
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

import msgspec

from skep.broker.cluster.datagrams import PeerDatagrams
from skep.broker.cluster.notices import (
    CHANGES_PER_DATAGRAM,
    INSTANCE_BYTES,
    SENDER_BYTES,
    WAKES_PER_DATAGRAM,
    Change,
    Notice,
    NoticeSigner,
    ReplayGuard,
    Sealed,
    Stamp,
    Verdict,
    pack_datagram,
    parse_stamp,
    portions,
    read_datagram,
    spell_stamp,
    unpack_datagram,
)
from skep.broker.cluster.requests import PeerRequests
from skep.settings.peers import PeerAddresses

_log = logging.getLogger(__name__)

_notice_decoder: Final = msgspec.json.Decoder(Notice)


class RequestPeer(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How one peer is told by requests."""

    url: str
    sent: int
    failed: int
    hints_dropped: int
    last_error: str | None


class PeerStats(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What one process told and heard since it started."""

    is_authenticated: bool
    """Whether there is a shared secret; without one, changes are neither sent nor taken."""
    is_listening: bool
    """Whether this is the process of its instance that hears datagrams."""
    datagram_hosts: list[str]
    datagrams_sent: int
    datagrams_failed: int
    request_peers: list[RequestPeer]
    heard: dict[str, int]
    """Notices that arrived, by what became of them."""
    changes_withheld: int
    """Changes that were not sent for want of a secret."""


class Peers:
    """What one process tells other instances, and hears of them."""

    def __init__(
        self,
        addresses: PeerAddresses,
        secret: str | None,
        *,
        instance: bytes,
        hear: Callable[[Notice], None],
        now_ms: Callable[[], int],
    ) -> None:
        """Take the peers, the shared secret, the name of this instance and whom to tell."""
        self._instance: Final = instance[:INSTANCE_BYTES]
        self._sender: Final = self._instance + secrets.token_bytes(SENDER_BYTES - INSTANCE_BYTES)
        self._numbers: Final = count(1)
        self._hear: Final = hear
        self._now_ms: Final = now_ms
        self._guard: Final = ReplayGuard()
        self._heard: Final[Counter[Verdict]] = Counter()
        self._withheld = 0
        self._is_listening = False
        self._is_started = False
        self._addresses = addresses
        self._secret = secret
        self._datagrams: Final = PeerDatagrams(addresses.datagrams, self._hear_datagram)
        self._requests: list[PeerRequests] = []
        self._datagram_signer = NoticeSigner(secret, channel=b"datagram")
        self._request_signer = NoticeSigner(secret, channel=b"request")

    @property
    def is_enabled(self) -> bool:
        """Whether this instance has anything to do with others."""
        return bool(self._secret or self._addresses.datagrams or self._addresses.urls)

    async def start(self, own_socket: socket.socket | None) -> None:
        """Begin to tell, and to hear when a socket is given."""
        self._is_started = True
        self._is_listening = own_socket is not None
        await self._datagrams.start(own_socket)
        self._requests = [PeerRequests(url, self._sign) for url in self._addresses.urls]
        self._warn_without_secret()

    async def stop(self) -> None:
        """Hear and tell nothing any more."""
        self._is_started = False
        await self._datagrams.stop()
        await asyncio.gather(*(peer.stop() for peer in self._requests))

    async def change(self, addresses: PeerAddresses, secret: str | None) -> None:
        """Tell other peers, or sign with another secret, from now on."""
        if (addresses, secret) == (self._addresses, self._secret) or not self._is_started:
            return
        self._addresses, self._secret = addresses, secret
        self._datagram_signer = NoticeSigner(secret, channel=b"datagram")
        self._request_signer = NoticeSigner(secret, channel=b"request")
        self._datagrams.point_to(addresses.datagrams)
        former, self._requests = (
            self._requests,
            [PeerRequests(url, self._sign) for url in addresses.urls],
        )
        await asyncio.gather(*(peer.stop() for peer in former))
        self._warn_without_secret()

    def tell_wakeups(self, wake: Sequence[tuple[int, int]]) -> None:
        """Tell every peer that these queues may have something to read."""
        self._tell(wake, ())

    def tell_changes(self, changed: Sequence[Change]) -> None:
        """Tell every peer to read this again, if it can know that it is we who say so."""
        if not self._secret:
            self._withheld += len(changed)
            return
        self._tell((), changed)

    def take_request(self, stamp: str | None, content: bytes) -> Verdict:
        """Judge a notice that came by HTTP, and hear it if it is to be taken."""
        if stamp is None:
            verdict, notice = Verdict.UNSIGNED, None
            if not self._secret:
                verdict, notice = self._read_request(content)
        else:
            verdict, notice = self._judge_request(parse_stamp(stamp, content), content)
        return self._close(verdict, notice)

    def stats(self) -> PeerStats:
        """Say what was told and heard so far."""
        return PeerStats(
            is_authenticated=bool(self._secret),
            is_listening=self._is_listening,
            datagram_hosts=sorted(self._datagrams.hosts),
            datagrams_sent=self._datagrams.sent_count,
            datagrams_failed=self._datagrams.failed_count,
            request_peers=[
                RequestPeer(
                    url=peer.url,
                    sent=peer.sent_count,
                    failed=peer.failed_count,
                    hints_dropped=peer.dropped_count,
                    last_error=peer.last_error,
                )
                for peer in self._requests
            ],
            heard={verdict.value: self._heard[verdict] for verdict in Verdict},
            changes_withheld=self._withheld,
        )

    def _tell(self, wake: Sequence[tuple[int, int]], changed: Sequence[Change]) -> None:
        if self._addresses.datagrams:
            for notice in portions(
                wake, changed, wakes_max=WAKES_PER_DATAGRAM, changes_max=CHANGES_PER_DATAGRAM
            ):
                self._datagrams.send(pack_datagram(self._stamp(), notice, self._datagram_signer))
        for peer in self._requests:
            peer.tell(wake, changed)

    def _stamp(self) -> Stamp:
        return Stamp(self._sender, next(self._numbers), self._now_ms())

    def _sign(self, notice: Notice) -> tuple[bytes, str]:
        content, stamp = msgspec.json.encode(notice), self._stamp()
        return content, spell_stamp(stamp, self._request_signer.mac(stamp, content))

    def _hear_datagram(self, data: bytes, host: str) -> None:
        sealed = unpack_datagram(data)
        if sealed is None:
            self._close(Verdict.GARBAGE, None)
        elif not self._secret and host not in self._datagrams.hosts:
            self._close(Verdict.UNSIGNED, None)
        else:
            verdict = self._judge(sealed, self._datagram_signer)
            notice = read_datagram(sealed) if verdict is Verdict.TAKEN else None
            is_garbage = verdict is Verdict.TAKEN and notice is None
            self._close(Verdict.GARBAGE if is_garbage else verdict, notice)

    def _judge_request(
        self, sealed: Sealed | None, content: bytes
    ) -> tuple[Verdict, Notice | None]:
        if sealed is None:
            return Verdict.GARBAGE, None
        verdict = self._judge(sealed, self._request_signer)
        return self._read_request(content) if verdict is Verdict.TAKEN else (verdict, None)

    def _read_request(self, content: bytes) -> tuple[Verdict, Notice | None]:
        try:
            return Verdict.TAKEN, _notice_decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Verdict.GARBAGE, None

    def _judge(self, sealed: Sealed, signer: NoticeSigner) -> Verdict:
        # The MAC first: nothing of a forged notice may touch what the guard remembers.
        if not signer.is_genuine(sealed):
            return Verdict.FORGED
        if sealed.stamp.instance == self._instance:
            return Verdict.OWN
        return self._guard.judge(sealed.stamp, self._now_ms())

    def _close(self, verdict: Verdict, notice: Notice | None) -> Verdict:
        """Count a notice, and hear it if it is to be taken: without a secret its hints only."""
        if notice is not None and notice.changed and not self._secret:
            verdict, notice = Verdict.UNSIGNED, Notice(wake=notice.wake)
        self._heard[verdict] += 1
        if self._heard[verdict] == 1 and verdict in {Verdict.FORGED, Verdict.STALE}:
            _log.warning(
                "refused a %s notice: do all instances share secret and time?", verdict.value
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
