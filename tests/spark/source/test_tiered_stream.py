"""Streams over both tiers: the archive first, then the log, and back when the log has moved on."""

import json
from itertools import count
from random import Random

import pytest

from skep.spark.runtime.postgres import forget_connections
from skep.spark.source.message_log import DataLost
from tests.spark.support.archives import Shop
from tests.spark.support.queries import Query


@pytest.fixture
def shop(database_url, tmp_path, writer):
    yield Shop(database_url, tmp_path / "lake", writer)
    forget_connections()


@pytest.fixture
def query(database_url):
    return lambda **options: Query(database_url, **{"tier": "all", **options})


def age(shop):
    """Make everything in the log old and read, so that the next run takes it away."""
    shop.writer.execute("update skep.segment set created_at = now() - interval '2 hours'")
    shop.read_all()


def replays(stream):
    """Read every micro-batch again."""
    stream.restart()
    return [stream.read(start, end) for start, end, _ in stream.batches]


def brought(stream):
    return [found for _, _, found in stream.batches]


def test_a_stream_from_the_beginning_reads_the_archive_first(shop, query):
    shop.push_old(1, 2)
    shop.read_all()
    shop.archive()
    shop.writer.push(3)
    stream = query()

    assert stream.step() == [1, 2, 3]
    assert stream.step() is None
    shop.writer.push(4)
    assert stream.step() == [4]
    assert stream.step() is None


def test_a_stream_whose_log_is_all_archived_reads_and_then_rests(shop, query):
    shop.push_old(1)
    shop.read_all()
    shop.archive()
    stream = query()

    assert stream.drain() == [1]
    assert stream.step() is None


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_limited_batches_bring_both_tiers_once_in_portions(shop, query, limit):
    numbers = count(1)
    for size in (2, 1, 3):
        shop.push_old(*(next(numbers) for _ in range(size)), partition=f"p{size}")
    shop.read_all()
    shop.archive(messages_per_task=2)
    for size in (2, 1, 1):
        shop.writer.push(*(next(numbers) for _ in range(size)), partition=f"p{size}")
    stream = query(maxMessagesPerTrigger=str(limit))

    assert sorted(stream.drain()) == list(range(1, 11))

    assert all(len(found) <= max(limit, 3) for found in brought(stream))
    assert replays(stream) == brought(stream)


def test_bytes_limit_what_is_read_of_the_archive_too(shop, query):
    for number in range(4):
        shop.push_old("x" * 1000 + str(number))
    shop.archive()

    stream = query(maxBytesPerTrigger="1")

    assert len(stream.drain()) == 4
    assert [len(found) for found in brought(stream)] == [1, 1, 1, 1]


def test_a_position_lost_to_archiving_is_filled_from_the_archive(shop, query):
    shop.writer.push(1)
    both, live = query(), query(tier="live")
    assert (both.step(), live.step()) == ([1], [1])
    shop.writer.push(2)
    age(shop)
    shop.archive()
    shop.writer.push(3)

    assert both.drain() == [2, 3]
    with pytest.raises(DataLost, match="They are in the archive: set tier to all"):
        live.step()


def test_what_was_lost_before_it_could_be_archived_ends_the_stream(shop, query):
    shop.writer.push(1)
    stream = query()
    stream.step()
    shop.writer.push(2)
    shop.writer.push(3)
    shop.writer.execute("delete from skep.segment where first = 2")
    age(shop)
    shop.archive()

    with pytest.raises(DataLost, match="in queue orders"):
        stream.step()


def test_a_span_that_was_begun_in_the_log_is_finished_in_the_archive(shop, query):
    for number in range(6):
        shop.writer.push(number)
    stream = query(maxMessagesPerTrigger="2")
    assert stream.step() == [0, 1]
    age(shop)
    shop.archive(messages_per_task=2)
    shop.writer.push(6)

    assert stream.step() == [2, 3]
    assert sorted(stream.drain()) == [4, 5, 6]
    assert replays(stream) == brought(stream)


def test_a_late_commit_is_not_skipped_although_the_archive_has_moved_on(shop, query, open_writer):
    slow = open_writer()
    slow.partition(partition="late")
    shop.writer.push(0)
    stream = query()
    assert stream.step() == [0]
    slow.execute("begin")
    slow.push("late", partition="late")
    shop.writer.push(1)
    assert stream.step() == [1]
    slow.execute("commit")
    age(shop)
    shop.archive()

    assert shop.live() == []
    assert stream.step() == ["late"]
    assert stream.step() is None


def test_available_now_over_both_tiers_ends_at_what_was_there(shop, query):
    shop.push_old(1)
    shop.read_all()
    shop.archive()
    shop.writer.push(2)
    stream = query(maxMessagesPerTrigger="1")
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.step() == [1]

    shop.writer.push(3)

    assert stream.drain() == [2]


def test_a_stream_of_the_archive_alone_follows_its_watermark(shop, query):
    shop.push_old(1)
    shop.archive()
    stream = query(tier="archive")
    assert stream.drain() == [1]
    shop.writer.push(2)
    assert stream.step() is None

    age(shop)
    shop.archive()

    assert stream.drain() == [2]


def test_a_stored_position_is_gone_on_from_in_the_archive(shop, query):
    shop.writer.push(1)
    first = query(tier="live")
    first.step()
    shop.writer.push(2)
    age(shop)
    shop.archive()

    assert query(startingOffsets=json.dumps(first.start)).drain() == [2]


@pytest.mark.slow
def test_whatever_is_archived_when_a_stream_brings_everything_once(shop, query, open_writer):
    random = Random(7)
    numbers, pushed = count(), []
    slow = open_writer()
    stream = query(maxMessagesPerTrigger="5")
    is_open = False
    for _ in range(60):
        act = random.choice(["push", "push", "step", "step", "archive", "slow", "age"])
        if act == "push":
            batch = [next(numbers) for _ in range(random.randint(1, 4))]
            shop.writer.push(*batch, partition=f"p{random.randint(0, 2)}")
            pushed += batch
        elif act == "step":
            stream.step()
        elif act == "age":
            age(shop)
        elif act == "archive":
            shop.archive(messages_per_run=random.randint(1, 8), messages_per_task=3)
        elif is_open:
            slow.execute("commit")
            is_open = False
        else:
            slow.partition(partition="slow")
            slow.execute("begin")
            pushed.append(next(numbers))
            slow.push(pushed[-1], partition="slow")
            is_open = True
    if is_open:
        slow.execute("commit")
    age(shop)
    shop.archive()
    stream.drain()

    assert sorted(number for found in brought(stream) for number in found) == sorted(pushed)
    assert replays(stream) == brought(stream)
    assert shop.read(tier="all") == sorted(pushed)
    assert shop.archived() == sorted(pushed)
