"""Instances telling each other on real sockets, and strangers trying to."""

import asyncio
import socket
import ssl
import threading
from contextlib import AsyncExitStack

import pytest

from skep.broker.cluster.notices import (
    Change,
    Notice,
    NoticeSigner,
    Stamp,
    Verdict,
    pack_datagram,
    spell_stamp,
)
from skep.broker.cluster.peers import Peers
from skep.broker.cluster.requests import trusted_certificates
from skep.settings.peers import PeerAddresses
from tests.support.certificates import Authority

PATIENCE_S = 30
NOW_MS = 1_700_000_000_000
RULES = Change("rules", 7)


class Instance:
    """One process of an instance, and what it heard."""

    def __init__(self, name, peers=(), urls=(), secret="shared"):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.address = self.socket.getsockname()
        self.heard = []
        self._news = asyncio.Event()
        self.peers = Peers(
            PeerAddresses(tuple(each.address for each in peers), tuple(urls)),
            secret,
            instance=name,
            hear=self._hear,
            now_ms=lambda: NOW_MS,
        )

    def _hear(self, notice):
        self.heard.append(notice)
        self._news.set()

    def count(self, verdict):
        return self.peers.stats().heard[verdict.value]

    async def until_judged(self, count):
        """Wait until so many notices arrived, whatever became of them."""
        async with asyncio.timeout(PATIENCE_S):
            while sum(self.peers.stats().heard.values()) < count:
                await asyncio.sleep(0)

    async def until_known(self):
        """Wait until the addresses of its peers are looked up."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.peers._datagrams.hosts:
                await asyncio.sleep(0)


@pytest.fixture
def start(arun):
    stack = AsyncExitStack()

    async def start(*arguments, **options):
        instance = Instance(*arguments, **options)
        await instance.peers.start(instance.socket)
        stack.push_async_callback(instance.peers.stop)
        if instance.peers._addresses.datagrams:
            await instance.until_known()
        return instance

    yield start
    arun(stack.aclose())


@pytest.fixture
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        yield stranger.sendto


def signed(number=1, notice=None, *, secret="shared", sent_at_ms=NOW_MS, sender=b"X" * 16):
    signer = NoticeSigner(secret, channel=b"datagram")
    notice = notice or Notice(wake=((1, 1),))
    return pack_datagram(Stamp(sender, number, sent_at_ms), notice, signer)


async def test_hints_and_changes_reach_a_peer(start):
    there = await start(b"there---")
    here = await start(b"here----", peers=[there])

    here.peers.tell_wakeups([(7, 2)])
    here.peers.tell_changes([RULES])
    await there.until_judged(2)

    assert there.heard == [Notice(wake=((7, 2),)), Notice(changed=(RULES,))]


async def test_an_instance_takes_no_notice_of_itself(start):
    here = await start(b"here----")
    itself = await start(b"here----", peers=[here])

    itself.peers.tell_wakeups([(7, 2)])
    await here.until_judged(1)

    assert here.heard == []
    assert here.count(Verdict.OWN) == 1


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (b"", Verdict.GARBAGE),
        (b"\x01" + b"?" * 64, Verdict.FORGED),
        (b"?" * 2000, Verdict.GARBAGE),
        (signed(secret="guessed"), Verdict.FORGED),
        (signed(secret=None), Verdict.FORGED),
        (signed(sent_at_ms=NOW_MS - 31_000), Verdict.STALE),
    ],
    ids=["empty", "forged", "too large", "another secret", "unsigned", "recorded"],
)
async def test_defect_49_a_spoofed_datagram_is_ignored_and_counted(start, send, data, verdict):
    here = await start(b"here----")

    send(data, here.address)
    await here.until_judged(1)

    assert here.heard == []
    assert here.count(verdict) == 1


async def test_a_replayed_datagram_is_ignored_and_counted(start, send):
    here = await start(b"here----")

    for _ in range(3):
        send(signed(), here.address)
    await here.until_judged(3)

    assert here.heard == [Notice(wake=((1, 1),))]
    assert here.count(Verdict.REPLAYED) == 2


async def test_signed_garbage_is_still_garbage(start, send):
    here = await start(b"here----")
    stamp, signer = Stamp(b"X" * 16, 1, NOW_MS), NoticeSigner("shared", channel=b"datagram")
    whole = pack_datagram(stamp, Notice(), signer)
    content = b"\xc1"
    head = whole[:33] + signer.mac(stamp, content)

    send(head + content, here.address)
    await here.until_judged(1)

    assert here.count(Verdict.GARBAGE) == 1


# Without a secret


async def test_without_a_secret_hints_are_exchanged_between_peers_only(start, send):
    there = await start(b"there---", secret=None)
    here = await start(b"here----", peers=[there], secret=None)

    here.peers.tell_wakeups([(7, 2)])
    await there.until_judged(1)
    assert there.count(Verdict.UNSIGNED) == 1, "it does not know whom it hears"

    await there.peers.change(PeerAddresses((here.address,)), None)
    await there.until_known()
    here.peers.tell_wakeups([(7, 2)])
    await there.until_judged(2)
    assert there.heard == [Notice(wake=((7, 2),))]


async def test_without_a_secret_changes_are_neither_sent_nor_taken(start, send, caplog):
    there = await start(b"there---", secret=None)
    here = await start(b"here----", peers=[there], secret=None)

    here.peers.tell_changes([RULES])
    send(signed(secret=None, notice=Notice(wake=((1, 1),), changed=(RULES,))), here.address)
    await here.until_judged(1)

    assert here.peers.stats().changes_withheld == 1
    assert here.heard == [Notice(wake=((1, 1),))]
    assert here.count(Verdict.UNSIGNED) == 1
    assert "without peer_secret" in caplog.text


async def test_a_new_secret_takes_over_without_a_restart(start):
    there = await start(b"there---", secret="new")
    here = await start(b"here----", peers=[there], secret="old")

    here.peers.tell_wakeups([(7, 2)])
    await there.until_judged(1)
    await here.peers.change(PeerAddresses((there.address,)), "new")
    await here.until_known()
    here.peers.tell_wakeups([(7, 2)])
    await there.until_judged(2)

    assert there.count(Verdict.FORGED) == 1
    assert there.heard == [Notice(wake=((7, 2),))]


# Requests


class Site:
    """A peer's HTTP side: answers what it is told to, and remembers requests."""

    def __init__(self, peers=None):
        self.bodies = []
        self.verdicts = []
        self.status = 200
        self.gate = asyncio.Event()
        self.gate.set()
        self.peers = peers
        self._news = asyncio.Event()

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        self.bodies.append(body)
        if self.peers is not None:
            self.verdicts.append(self.peers.take_request(headers["skep-peer-stamp"], body))
        self._news.set()
        await self.gate.wait()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % self.status)
        await writer.drain()
        writer.close()

    async def until(self, count):
        async with asyncio.timeout(PATIENCE_S):
            while len(self.bodies) < count:
                self._news.clear()
                await self._news.wait()


@pytest.fixture
def site(arun):
    found = Site()
    server = arun(asyncio.start_server(found.serve, "127.0.0.1", 0))
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield found
    server.close()


async def test_a_peer_is_told_by_request(start, site):
    there = await start(b"there---")
    site.peers = there.peers
    here = await start(b"here----", urls=[site.url])

    here.peers.tell_wakeups([(7, 2)])
    here.peers.tell_changes([RULES])
    await site.until(2)

    assert site.verdicts == [Verdict.TAKEN, Verdict.TAKEN]
    assert there.heard == [Notice(changed=(RULES,)), Notice(wake=((7, 2),))]


async def test_hints_gather_while_a_request_is_under_way(start, site):
    here = await start(b"here----", urls=[site.url])
    site.gate.clear()
    here.peers.tell_wakeups([(1, 1)])
    await site.until(1)

    for _ in range(100):
        here.peers.tell_wakeups([(1, 1), (2, 1)])
    site.gate.set()
    await site.until(2)

    assert site.bodies == [b'{"wake":[[1,1]]}', b'{"wake":[[1,100],[2,100]]}']


@pytest.fixture
def secure_site(arun, tmp_path, monkeypatch):
    """A peer that speaks TLS, with a certificate that this process trusts."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("there"))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    found = Site()
    server = arun(asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=context))
    found.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield found
    server.close()


async def test_certificates_are_read_once_and_beside_the_event_loop(
    start, secure_site, monkeypatch
):
    read, threads = ssl.create_default_context, []

    def reading():
        threads.append(threading.current_thread())
        return read()

    monkeypatch.setattr(ssl, "create_default_context", reading)
    trusted_certificates.cache_clear()
    here = await start(b"here----", urls=[secure_site.url])

    for count in (1, 2):
        here.peers.tell_wakeups([(count, 1)])
        await secure_site.until(count)

    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_peer_that_fails_loses_hints_and_keeps_changes(start, site):
    here = await start(b"here----", urls=[site.url])
    site.status = 503
    here.peers.tell_changes([RULES])
    here.peers.tell_wakeups([(1, 1)])
    await site.until(2)
    site.status = 200
    await site.until(3)

    assert site.bodies[2] == b'{"changed":[["rules",7]]}'
    (peer,) = here.peers.stats().request_peers
    assert peer.hints_dropped == 1
    assert peer.failed == 2
    assert peer.last_error == "it answered 503"


async def test_a_peer_that_is_not_there_holds_nobody_up(start):
    here = await start(b"here----", urls=["http://127.0.0.1:1"])

    here.peers.tell_wakeups([(1, 1)])
    async with asyncio.timeout(PATIENCE_S):
        while not here.peers.stats().request_peers[0].failed:
            await asyncio.sleep(0)

    assert here.peers.stats().request_peers[0].hints_dropped == 1


@pytest.mark.parametrize(
    ("secret", "stamp", "content", "verdict"),
    [
        ("shared", None, b'{"wake":[[1,1]]}', Verdict.UNSIGNED),
        ("shared", "nonsense", b'{"wake":[[1,1]]}', Verdict.GARBAGE),
        ("shared", spell_stamp(Stamp(b"X" * 16, 1, NOW_MS), bytes(32)), b"{}", Verdict.FORGED),
        (None, None, b'{"wake":[[1,1]]}', Verdict.TAKEN),
        (None, None, b'{"changed":[["rules",1]]}', Verdict.UNSIGNED),
        (None, None, b"[1", Verdict.GARBAGE),
    ],
)
async def test_a_request_is_judged_like_a_datagram(start, secret, stamp, content, verdict):
    here = await start(b"here----", secret=secret)

    assert here.peers.take_request(stamp, content) is verdict
