"""Which pushes go to disk, which go on, and which are held for a moment."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from msgspec import Raw

from skep.broker.directory import Directory, Partition
from skep.broker.failover.diversion import HELD_ITEMS_MAX, Diversion
from skep.broker.failover.maintenance import Maintenance
from skep.broker.failover.outage import Outage
from skep.broker.push.request import CalledPush
from skep.broker.push.rules import QueueRules
from skep.model.encryption import KeyRing
from skep.model.encryption_key import EncryptionKey
from skep.model.errors import Unavailable
from skep.model.wire import LoosePushItem, PushItem
from skep.spill.log import SpillLog
from skep.spill.records import Found

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Setting:
    """A diversion with its directory on disk."""

    def __init__(self, path, *keys, bytes_max=1 << 20):
        self.directory = Directory()
        self.outage = Outage(after_s=1)
        self.maintenance = Maintenance(None, None)
        self.spill = SpillLog(path, bytes_max=bytes_max)
        self.diversion = Diversion(
            self.directory, KeyRing(keys), self.outage, self.maintenance, now=lambda: NOW
        )
        self.diversion.open(self.spill)

    def take(self, *items, retry=None, is_under_way=lambda _: False):
        """Divert what has to be; return the positions that go on, and the answer to come."""
        answered = asyncio.get_running_loop().create_future()
        request = CalledPush.of(len(items), answered.set_result)
        return self.diversion.take(request, items, None, retry, is_under_way), answered

    def records(self):
        portion = self.spill.read(0, self.spill.board.end, bytes_max=1 << 20)
        return [piece.record for piece in portion.pieces if isinstance(piece, Found)]

    def drain(self):
        self.spill.board.note_drained(self.spill.board.pending, self.spill.board.end)

    async def close(self):
        await self.diversion.close()
        self.spill.close()


@pytest.fixture
def setting(tmp_path, arun):
    """Build settings inside of the test's loop; they are closed after the test."""
    settings = []

    async def build(*keys, **options):
        settings.append(Setting(tmp_path / "spill", *keys, **options))
        return settings[-1]

    yield build
    for each in settings:
        arun(each.close())


@pytest.fixture
def plain(setting, arun):
    return arun(setting())


def item(name, partition="a", **members):
    return PushItem("q", partition, Raw(b'"text of it"'), name, **members)


async def results(answered):
    request = await answered
    return [json.loads(each) for each in request.results]


async def test_nothing_is_diverted_without_a_reason(plain):
    assert not plain.diversion.is_needed
    assert plain.take(item("x"), item("y"))[0] == [0, 1]


@pytest.mark.parametrize("reason", ["outage", "maintenance"])
async def test_everything_is_diverted_while_the_database_cannot_or_should_not_be_used(
    plain, reason
):
    if reason == "outage":
        plain.outage.begin()
    else:
        plain.maintenance.is_push_on = True

    positions, answered = plain.take(item("x"), item("y", "b"))

    assert plain.diversion.is_needed
    assert positions == []
    assert [each["status"] for each in await results(answered)] == ["buffered"] * 2
    assert [record.address for record in plain.records()] == [("q", "a"), ("q", "b")]


async def test_only_partitions_that_wait_are_diverted_when_the_database_is_back(plain):
    plain.outage.begin()
    _, answered = plain.take(item("x"))
    await answered
    plain.outage.hear(True)

    positions, _ = plain.take(item("y", "b"), item("z"))

    assert positions == [0]
    await plain.take(item("w"))[1]  # written behind z
    plain.drain()
    assert not plain.diversion.is_needed


async def backlog_nearly_drained(setting):
    setting.outage.begin()
    _, answered = setting.take(item("x"))
    await answered
    setting.outage.hear(True)
    setting.spill.board.is_closing = True


async def test_a_push_is_held_while_the_last_of_its_partition_is_drained_and_then_goes_on(plain):
    await backlog_nearly_drained(plain)
    came_back = asyncio.Event()

    positions, _ = plain.take(item("y"), retry=came_back.set)
    behind, _ = plain.take(item("z"), retry=lambda: None)
    other, _ = plain.take(item("w", "b"), retry=lambda: None)
    plain.drain()
    plain.spill.board.is_closing = False

    assert [positions, behind, other] == [[], [], [0]]
    async with asyncio.timeout(30):
        await came_back.wait()
    assert [record.address for record in plain.records()] == [("q", "a")]


async def test_those_held_come_back_in_their_order(plain):
    await backlog_nearly_drained(plain)
    order = []
    done = asyncio.Event()
    for number in range(5):
        plain.take(item(f"{number}"), retry=lambda number=number: order.append(number))
    plain.take(item("last"), retry=done.set)

    plain.spill.board.is_closing = False

    async with asyncio.timeout(30):
        await done.wait()
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("why", ["outage", "not nearly drained", "too many"])
async def test_a_push_that_cannot_be_held_goes_behind_those_that_were(plain, why):
    await backlog_nearly_drained(plain)
    answers = []

    def retry():
        answers.append(plain.take(item("first"))[1])

    plain.take(item("first"), retry=retry)
    if why == "outage":
        plain.outage.begin()
    elif why == "not nearly drained":
        plain.spill.board.is_closing = False
    else:
        plain.take(*(item(f"{n}") for n in range(HELD_ITEMS_MAX)), retry=lambda: None)

    _, answered = plain.take(item("later"), retry=lambda: None)
    await asyncio.gather(*answers, answered)

    written = [record.envelope for record in plain.records()]
    assert [b'"first"' in written[-2], b'"later"' in written[-1]] == [True, True]


@pytest.mark.parametrize("reason", ["outage", "waiting"])
async def test_a_push_follows_those_of_its_partition_that_are_under_way(plain, reason):
    await backlog_nearly_drained(plain)
    plain.spill.board.is_closing = False
    if reason == "outage":
        plain.outage.begin()

    positions, _ = plain.take(item("x"), item("y", "b"), is_under_way=lambda key: key[1] == "a")

    assert positions == ([0] if reason == "outage" else [0, 1])


async def test_a_push_that_was_held_already_goes_to_disk(plain):
    await backlog_nearly_drained(plain)

    positions, answered = plain.take(item("y"))

    assert positions == []
    assert (await results(answered))[0]["status"] == "buffered"


async def test_no_more_are_held_than_fit(plain):
    await backlog_nearly_drained(plain)
    plain.take(*(item(f"{n}") for n in range(HELD_ITEMS_MAX)), retry=lambda: None)

    _, answered = plain.take(item("y"), retry=lambda: None)

    assert (await results(answered))[0]["status"] == "buffered"


async def test_everything_on_disk_is_sealed_where_there_is_a_key(setting):
    sealing = await setting(EncryptionKey("k", b"0" * 32))
    sealing.outage.begin()

    _, answered = sealing.take(item("x"))
    await answered

    (record,) = sealing.records()
    assert record.envelope.startswith(b'{"enc":"k",')
    assert b"text of it" not in record.envelope


async def test_a_queue_known_to_be_encrypted_is_refused_without_a_key(plain):
    rules = QueueRules(1)
    rules.is_encrypted = True
    plain.directory.learn_partition(Partition("q", "a", 1, 1, rules))
    plain.outage.begin()

    _, answered = plain.take(item("x"), item("y", "b"))

    refused, kept = await results(answered)
    assert (refused["status"], kept["status"]) == ("failed", "buffered")
    assert [record.address for record in plain.records()] == [("q", "b")]


async def test_a_transaction_id_is_fixed_when_the_item_is_kept(plain):
    plain.outage.begin()

    _, answered = plain.take(item(None))

    (result,) = await results(answered)
    (record,) = plain.records()
    assert result["transaction_id"].encode() in record.envelope


async def test_a_delay_counts_from_now_on(plain):
    plain.outage.begin()

    _, answered = plain.take(item("x", delay_seconds=60))
    await answered

    (record,) = plain.records()
    assert record.deliver_at == NOW.timestamp() + 60


async def test_a_bad_item_fails_alone_and_the_others_are_written(plain):
    plain.outage.begin()

    _, answered = plain.take(item("x"), item("y" * 300), item("z", ""))

    assert [each["status"] for each in await results(answered)] == [
        "buffered",
        "failed",
        "buffered",
    ]
    assert len(plain.records()) == 2


async def test_a_loose_item_is_written_unless_its_queue_is_known_to_be_strict(plain):
    plain.outage.begin()
    plain.directory.learn_partition(Partition("q", "a", 1, 1, QueueRules(1, is_strict=True)))
    loose = [LoosePushItem("q", name, transaction_id="t", unknown=["x"]) for name in ("a", "b")]

    _, answered = plain.take(*loose)

    refused, kept = await results(answered)
    assert [refused["error"], kept["status"]] == ["unknown field `x`", "buffered"]
    assert [record.partition for record in plain.records()] == ["b"]


async def test_a_disk_that_refuses_is_an_error_and_never_buffered(setting):
    tiny = await setting(bytes_max=10)
    tiny.outage.begin()

    _, answered = tiny.take(item("x"))
    request = await answered

    assert isinstance(request.error, Unavailable)
    assert json.loads(request.results[0])["status"] == "failed"
    assert len(request.errors) == len(request.results)
    assert tiny.diversion.stats().refused_total == 1


async def test_who_cannot_be_diverted_is_refused_while_its_partition_waits(plain):
    plain.diversion.refuse_if_waiting(("q", "a"))
    await backlog_nearly_drained(plain)

    with pytest.raises(Unavailable):
        plain.diversion.refuse_if_waiting(("q", "a"))
    plain.diversion.refuse_if_waiting(("q", "b"))
