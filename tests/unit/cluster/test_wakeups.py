"""Wake-ups: to this process at once, to its peers by one datagram a turn."""

import asyncio
import socket
import struct
from contextlib import ExitStack

import pytest

from skep.broker.cluster.notices import Change
from skep.broker.cluster.wakeups import PAIRS_PER_DATAGRAM_MAX, Wakeups

TOKEN = b"a token of sixteen"
PATIENCE_S = 30


def datagram(*pairs, token=TOKEN):
    return token + b"".join(struct.pack(">II", *pair) for pair in pairs)


class Polls:
    """Whoever is woken."""

    def __init__(self):
        self.woken = []
        self._news = asyncio.Event()

    def wake(self, queue_id, partition_count):
        self.woken.append((queue_id, partition_count))
        self._news.set()

    async def until(self, count):
        async with asyncio.timeout(PATIENCE_S):
            while len(self.woken) < count:
                self._news.clear()
                await self._news.wait()
        return self.woken


class Instance:
    """The wake-ups of one process on a real loopback socket."""

    def __init__(self, own_socket, peer_ports, token=TOKEN):
        self.polls = Polls()
        self.address = own_socket.getsockname()
        self.wakeups = Wakeups(
            wake=self.polls.wake, own_socket=own_socket, peer_ports=peer_ports, token=token
        )


@pytest.fixture
def bind():
    """Bind UDP sockets on the loopback address."""
    with ExitStack() as sockets:

        def bind():
            found = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            found.bind(("127.0.0.1", 0))
            found.setblocking(False)
            return found

        yield bind


def port_of(bound):
    return bound.getsockname()[1]


async def pair_up(bind, *, tokens=(TOKEN, TOKEN)):
    first, second = bind(), bind()
    instances = [
        Instance(first, [port_of(second)], tokens[0]),
        Instance(second, [port_of(first)], tokens[1]),
    ]
    for instance in instances:
        await instance.wakeups.start()
    return instances


async def read_datagram(bound):
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.get_running_loop().sock_recv(bound, 65_536)


async def test_polls_of_this_process_are_woken_at_once():
    polls = Polls()
    wakeups = Wakeups(wake=polls.wake, own_socket=None, peer_ports=[], token=TOKEN)

    wakeups.announce(7, 2)

    assert polls.woken == [(7, 2)]


async def test_two_instances_wake_each_other(bind):
    first, second = await pair_up(bind)

    first.wakeups.announce(7, 2)
    second.wakeups.announce(8, 1)

    assert await second.polls.until(2) == [(8, 1), (7, 2)]
    assert await first.polls.until(2) == [(7, 2), (8, 1)]
    first.wakeups.stop()
    second.wakeups.stop()


async def test_the_changes_of_one_turn_travel_in_one_datagram_added_up_by_queue(bind):
    listener = bind()
    sender = Instance(bind(), [port_of(listener)])
    await sender.wakeups.start()

    sender.wakeups.announce(7, 2)
    sender.wakeups.announce(8, 1)
    sender.wakeups.announce(7, 3)
    first = await read_datagram(listener)
    sender.wakeups.announce(9, 1)
    second = await read_datagram(listener)
    sender.wakeups.stop()

    assert first == datagram((7, 5), (8, 1))
    assert second == datagram((9, 1))


async def test_every_peer_is_told(bind):
    listeners = [bind(), bind()]
    sender = Instance(bind(), [port_of(listener) for listener in listeners])
    await sender.wakeups.start()

    sender.wakeups.announce(7, 2)
    heard = [await read_datagram(listener) for listener in listeners]
    sender.wakeups.stop()

    assert heard == [datagram((7, 2))] * 2


async def test_more_queues_than_a_datagram_holds_are_told_in_several(bind):
    sender, receiver = await pair_up(bind)
    queues = range(1, PAIRS_PER_DATAGRAM_MAX + 2)

    for queue_id in queues:
        sender.wakeups.announce(queue_id, 1)
    woken = await receiver.polls.until(len(queues))
    sender.wakeups.stop()
    receiver.wakeups.stop()

    assert woken == [(queue_id, 1) for queue_id in queues]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        TOKEN[:-1],
        datagram((7, 1), token=b"another token of18"),
        datagram((7, 1))[:-1],
        datagram((7, 1)) + b"!",
        struct.pack(">II", 7, 1),
    ],
    ids=["empty", "half a token", "another token", "cut", "too long", "no token"],
)
async def test_a_malformed_datagram_is_ignored(bind, data):
    stranger = bind()
    instance = Instance(bind(), [])
    await instance.wakeups.start()

    stranger.sendto(data, instance.address)
    stranger.sendto(datagram((9, 9)), instance.address)
    woken = await instance.polls.until(1)
    instance.wakeups.stop()

    assert woken == [(9, 9)]


async def test_defect_49_instances_with_different_tokens_do_not_hear_each_other(bind):
    stranger, instance = await pair_up(bind, tokens=(b"x" * len(TOKEN), TOKEN))

    stranger.wakeups.announce(7, 1)
    instance.wakeups.announce(8, 1)
    peer = Instance(bind(), [instance.address[1]])
    await peer.wakeups.start()
    peer.wakeups.announce(9, 1)
    woken = await instance.polls.until(2)
    for each in (stranger, instance, peer):
        each.wakeups.stop()

    assert woken == [(8, 1), (9, 1)]


async def test_a_peer_that_is_being_restarted_does_not_matter(bind):
    gone = bind()
    listener = bind()
    sender = Instance(bind(), [port_of(gone), port_of(listener)])
    await sender.wakeups.start()
    gone.close()

    for number in range(1, 4):
        sender.wakeups.announce(number, 1)
        heard = await read_datagram(listener)
        assert heard == datagram((number, 1))
    sender.wakeups.stop()


async def test_a_count_beyond_the_format_is_cut_not_refused(bind):
    sender, receiver = await pair_up(bind)

    sender.wakeups.announce(7, 1 << 40)
    woken = await receiver.polls.until(1)
    sender.wakeups.stop()
    receiver.wakeups.stop()

    assert woken == [(7, 0xFFFF_FFFF)]


async def test_after_the_stop_peers_hear_nothing_and_polls_here_still_do(bind):
    listener = bind()
    sender = Instance(bind(), [port_of(listener)])
    await sender.wakeups.start()

    sender.wakeups.stop()
    sender.wakeups.announce(7, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert sender.polls.woken == [(7, 1)]
    with pytest.raises(BlockingIOError):
        listener.recv(100)


# Other instances


async def test_what_is_announced_here_is_told_beyond_once_a_turn_added_up_by_queue(bind):
    told, polls = [], Polls()
    wakeups = Wakeups(
        wake=polls.wake, own_socket=bind(), peer_ports=[], token=TOKEN, beyond=told.append
    )
    await wakeups.start()

    wakeups.announce(7, 2)
    wakeups.announce(8, 1)
    wakeups.announce(7, 3)
    await asyncio.sleep(0)
    wakeups.stop()

    assert told == [[(7, 5), (8, 1)]]


async def test_what_another_instance_told_is_passed_on_here_and_never_back(bind):
    told, polls, sibling = [], Polls(), bind()
    wakeups = Wakeups(
        wake=polls.wake,
        own_socket=bind(),
        peer_ports=[port_of(sibling)],
        token=TOKEN,
        beyond=told.append,
    )
    await wakeups.start()

    wakeups.pass_on(7, 2)
    heard = await read_datagram(sibling)
    wakeups.stop()

    assert polls.woken == [(7, 2)]
    assert heard == datagram((7, 2))
    assert told == []


async def test_changes_reach_the_other_processes_and_are_no_wakeups(bind):
    heard = asyncio.Queue()
    first, second, polls = bind(), bind(), Polls()
    listener = Wakeups(
        wake=polls.wake,
        own_socket=second,
        peer_ports=[],
        token=TOKEN,
        hear_changes=heard.put_nowait,
    )
    sender = Instance(first, [port_of(second)])
    await listener.start()
    await sender.wakeups.start()

    sender.wakeups.tell_changes([Change("rules", 7)])
    async with asyncio.timeout(PATIENCE_S):
        changes = await heard.get()
    sender.wakeups.stop()
    listener.stop()

    assert changes == (Change("rules", 7),)
    assert polls.woken == []
