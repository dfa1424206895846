"""Queues that are added to a stream, left by it, deleted, or made again under the same name."""

import json

import asyncpg
import pytest

from skep.spark.runtime.postgres import forget_connections
from skep.spark.source.message_log import DataLost
from skep.spark.source.positions import InvalidPosition, Position
from tests.spark.support.queries import Query

V1 = ("checked", "part", "seen", "since", "system", "taken")


@pytest.fixture
def query(database_url):
    yield lambda **options: Query(database_url, **{"queue": None, **options})
    forget_connections()


def remove(writer, queue="orders"):
    """Delete a queue, and sweep it."""
    queue_id = writer.value(f"select skep.remove_queue('{queue}')")
    while writer.value(f"select skep.sweep_removed_queue({queue_id}, 1000)"):
        pass


def test_a_queue_made_again_under_its_name_is_a_loss_if_the_old_one_was_unread(query, writer):
    writer.push(1)
    stream = query(subscribe="orders")
    assert stream.drain() == [1]
    writer.push(2)
    remove(writer)
    writer.push(3)

    with pytest.raises(DataLost, match=r"queue orders, which was deleted, transactions \d+ to \d+"):
        stream.step()
    stream.restart(failOnDataLoss="false")
    assert stream.drain() == [3]
    stream.restart(failOnDataLoss="true")
    assert stream.step() is None


def test_a_queue_made_again_is_read_from_its_beginning_if_the_old_one_was_read(query, writer):
    writer.push(1)
    stream = query(subscribe="orders")
    assert stream.drain() == [1]
    remove(writer)
    writer.push(2)
    writer.push(3)

    assert stream.drain() == [2, 3]


def test_an_empty_queue_that_is_deleted_is_no_loss(query, writer):
    writer.partition("orders")
    writer.push(1, queue="others")
    stream = query(subscribePattern=".*")
    assert stream.drain() == [1]
    remove(writer)
    writer.push(2, queue="others")

    assert stream.drain() == [2]


def test_a_queue_deleted_too_long_ago_to_be_on_record_counts_as_unread(query, writer):
    writer.push(1)
    stream = query(subscribe="orders")
    assert stream.drain() == [1]
    remove(writer)
    writer.execute("delete from skep.removed_span")
    writer.push(2)

    with pytest.raises(DataLost, match="too long ago to tell"):
        stream.step()


def test_single_partitions_of_a_queue_made_again_are_a_loss_too(query, writer):
    writer.push(1, partition="mine")
    stream = query(assign='{"orders": ["mine"]}')
    assert stream.drain() == [1]
    writer.push(2, partition="mine")
    remove(writer)
    writer.push(3, partition="mine")

    with pytest.raises(DataLost, match="which was deleted"):
        stream.step()


def test_a_queue_with_a_reader_that_is_behind_is_not_deleted(query, writer):
    writer.push(1)
    stream = query(subscribe="orders", consumerGroup="billing")
    stream.plan()

    with pytest.raises(asyncpg.PostgresError, match="reader billing: release it first"):
        remove(writer)
    assert stream.drain() == [1]
    stream.reader.commit(stream.start)
    remove(writer)


def test_what_is_removed_while_a_planned_batch_waits_to_be_repeated_is_a_loss(query, writer):
    writer.push(1)
    stream = query(subscribe="orders")
    stream.drain()
    writer.push(2)
    writer.push(3)
    end = stream.plan()
    writer.execute("delete from skep.segment where first = 2")
    stream.restart()

    with pytest.raises(DataLost, match="in queue orders"):
        stream.read(stream.start, end)


@pytest.mark.parametrize("limit", ["1", "100"])
def test_a_queue_added_on_restart_is_read_from_its_beginning_in_portions(query, writer, limit):
    for number in (1, 2, 3):
        writer.push(number, queue="late")
    writer.push(10)
    stream = query(subscribe="orders", maxMessagesPerTrigger=limit)
    assert stream.drain() == [10]
    writer.push(11)
    writer.push(4, queue="late")
    before = len(stream.batches)

    stream.restart(subscribe="orders,late")

    assert sorted(stream.drain()) == [1, 2, 3, 4, 11]
    assert all(len(found) <= max(int(limit), 3) for _, _, found in stream.batches[before:])
    stream.restart()
    assert [stream.read(start, end) for start, end, _ in stream.batches] == [
        found for _, _, found in stream.batches
    ]


def test_queues_added_while_another_one_joins_join_after_it(query, writer):
    for number in (1, 2):
        writer.push(number, queue="late")
        writer.push(number * 10, queue="later")
    writer.push("first")
    stream = query(subscribe="orders", maxMessagesPerTrigger="1")
    stream.drain()
    stream.restart(subscribe="orders,late")
    assert stream.step() == [1]

    stream.restart(subscribe="orders,late,later")

    assert sorted(stream.drain()) == [2, 10, 20]


def test_a_partition_added_on_restart_is_read_from_its_beginning(query, writer):
    writer.push(1, partition="late")
    writer.push("first", partition="a")
    stream = query(assign='{"orders": ["a"]}')
    assert stream.drain() == ["first"]

    stream.restart(assign='{"orders": ["a", "late"]}')

    assert stream.drain() == [1]
    with pytest.raises(InvalidPosition, match="single partitions"):
        query(assign=None, subscribe="orders", startingOffsets="earliest").reader.latestOffset(
            stream.start, None
        )


def test_with_latest_an_added_queue_is_read_from_where_the_stream_is(query, writer):
    writer.push("old", queue="late")
    writer.push("old")
    stream = query(subscribe="orders", startingOffsets="latest")
    stream.plan()
    writer.push("new", queue="late")

    stream.restart(subscribe="orders,late")

    assert stream.drain() == ["new"]


def test_an_added_queue_begins_at_the_timestamp_of_the_stream(query, writer):
    writer.execute("select set_config('skep.fake_now', '2026-01-01T12:00:00Z', false)")
    writer.push("old", queue="late")
    writer.execute("select set_config('skep.fake_now', '2026-01-01T13:00:00Z', false)")
    writer.push("new", queue="late")
    writer.push("first")
    stream = query(subscribe="orders", startingTimestamp="2026-01-01T12:30:00Z")
    assert stream.drain() == ["first"]

    stream.restart(subscribe="orders,late")

    assert stream.drain() == ["new"]


def test_the_log_of_a_queue_that_joins_is_held_from_its_beginning(query, writer):
    for number in (1, 2):
        writer.push(number, queue="late")
    writer.push("first")
    stream = query(subscribe="orders", consumerGroup="billing", maxMessagesPerTrigger="1")
    stream.drain()
    stream.restart(subscribe="orders,late")
    held = "select h.position::text from skep.hold h join skep.queue q on q.id = h.queue_id"

    stream.plan()

    assert writer.value(f"{held} where q.name = 'late'") == "1:1:"
    stream.drain()
    stream.reader.commit(stream.start)
    assert writer.value(f"{held} where q.name = 'late'") == stream.start["seen"]


def test_a_repeated_batch_reads_its_queues_whatever_is_subscribed_by_then(query, writer):
    writer.push(1)
    writer.push(2, queue="others")
    stream = query(subscribe="orders,others")
    end = stream.plan()

    stream.restart(subscribe="others")

    assert stream.read(stream.start, end) == [1, 2]


def test_a_queue_that_is_left_out_is_no_loss(query, writer):
    writer.push(1)
    writer.push(2, queue="others")
    stream = query(subscribe="orders,others")
    stream.drain()
    writer.push(3)

    stream.restart(subscribe="others")

    assert stream.drain() == []


def test_checkpoints_of_the_first_form_are_gone_on_from(query, writer):
    writer.push(1)
    stream = query(subscribe="orders")
    assert stream.drain() == [1]
    stream.start = {name: stream.start[name] for name in V1 if name in stream.start}
    old = Position.from_json(stream.start)

    assert old.to_json() == stream.start
    assert stream.step() is None
    writer.push(2)
    assert stream.drain() == [2]
    assert stream.start["version"] == 2
    assert json.loads(str(Position.from_json(stream.start))) == stream.start
