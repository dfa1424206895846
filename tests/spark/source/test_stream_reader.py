"""The stream reader as Spark drives it, without Spark: positions in, record batches out."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random

import asyncpg
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from skep.db.schema.migrate import migrate
from skep.model.errors import NotFound
from skep.spark.runtime.postgres import forget_connections
from skep.spark.source.message_log import DataLost, MessageLog
from skep.spark.source.options import InvalidOption, read_options
from skep.spark.source.positions import InvalidPosition, Position
from tests.spark.support.logs import Writer
from tests.spark.support.queries import Query


@pytest.fixture
def query(database_url):
    yield lambda **options: Query(database_url, **options)
    forget_connections()


def test_a_stream_brings_what_came_since_the_last_batch(query, writer):
    writer.push(1, 2)
    stream = query()

    assert stream.step() == [1, 2]
    assert stream.step() is None
    writer.push(3, partition="b")
    writer.push(4)
    assert stream.step() == [3, 4]


def test_a_queue_without_messages_brings_nothing_until_there_are_some(query, writer):
    writer.partition()
    stream = query()

    assert stream.step() is None
    writer.push(1)
    assert stream.step() == [1]


def test_latest_begins_after_what_is_there(query, writer):
    writer.push(1)
    stream = query(startingOffsets="latest")
    stream.plan()

    writer.push(2)

    assert stream.drain() == [2]


def test_a_timestamp_holds_for_all_batches_and_not_only_for_the_first(query, writer):
    writer.execute("select set_config('skep.fake_now', '2026-01-01T12:00:00Z', false)")
    writer.push(1)
    stream = query(startingTimestamp="2026-01-01T12:00:05Z")
    assert stream.step() is None
    writer.push(2)
    writer.execute("select set_config('skep.fake_now', '2026-01-01T12:00:10Z', false)")
    writer.push(3)

    assert stream.drain() == [3]


def test_a_stored_position_is_gone_on_from(query, writer):
    writer.push(1)
    first = query()
    first.step()
    writer.push(2)

    assert query(startingOffsets=json.dumps(first.start)).drain() == [2]


def test_a_late_commit_is_delivered_once_and_replays_bring_the_same(query, writer, open_writer):
    slow = open_writer()
    slow.partition(partition="late")
    writer.push(0)
    stream = query()
    assert stream.step() == [0]
    slow.execute("begin")
    slow.push("late", partition="late")
    writer.push(1)
    assert stream.step() == [1]
    writer.push(2)
    assert stream.step() == [2]

    slow.execute("commit")

    assert stream.step() == ["late"]
    assert stream.step() is None
    stream.restart()
    assert [stream.read(start, end) for start, end, _ in stream.batches] == [
        found for _, _, found in stream.batches
    ]


def test_a_rolled_back_writer_leaves_nothing(query, writer, open_writer):
    slow = open_writer()
    slow.partition(partition="late")
    slow.execute("begin")
    slow.push("never", partition="late")
    writer.push(1)
    stream = query()
    assert stream.step() == [1]

    slow.execute("rollback")

    assert stream.step() is None


@pytest.mark.parametrize("limit", [1, 3, 5, 100])
def test_limited_batches_bring_everything_once_in_portions(query, writer, limit):
    numbers = count(1)
    for size in (2, 1, 3, 2, 1, 1):
        writer.push(*(next(numbers) for _ in range(size)), partition=f"p{size}")
    stream = query(maxMessagesPerTrigger=str(limit))

    assert sorted(stream.drain()) == list(range(1, 11))

    sizes = [len(found) for _, _, found in stream.batches]
    assert all(size <= max(limit, 3) for size in sizes)
    assert [stream.read(start, end) for start, end, _ in stream.batches] == [
        found for _, _, found in stream.batches
    ]


def test_late_commits_come_also_into_a_span_that_is_read_in_portions(query, writer, open_writer):
    slow = open_writer()
    slow.partition(partition="late")
    slow.execute("begin")
    slow.push("late", partition="late")
    for number in range(4):
        writer.push(number)
    stream = query(maxOffsetsPerTrigger="1")
    assert stream.step() == [0]
    slow.execute("commit")
    writer.push(4)

    rest = stream.drain()

    assert sorted(map(str, rest)) == ["1", "2", "3", "4", "late"]


def test_bytes_limit_a_batch_too(query, writer):
    for number in range(3):
        writer.push("x" * 1000 + str(number))

    stream = query(maxBytesPerTrigger="1500")

    assert isinstance(stream.reader.getDefaultReadLimit(), ReadMaxBytes)
    assert [len(found) for found in iter(stream.step, None)] == [1, 1, 1]


def test_the_limit_of_spark_says_whether_limits_count(query, writer):
    for number in range(3):
        writer.push(number)
    stream = query(maxMessagesPerTrigger="1")
    start = stream.reader.initialOffset()

    assert stream.reader.getDefaultReadLimit() == ReadMaxRows(1)
    everything = stream.reader.latestOffset(start, ReadAllAvailable())

    assert stream.read(start, everything) == [0, 1, 2]
    assert query().reader.getDefaultReadLimit() == ReadAllAvailable()


def test_a_small_batch_waits_for_more_but_not_for_ever(query, writer):
    writer.push(1)
    patient = query(minMessagesPerTrigger="3", maxTriggerDelay="1h")
    hasty = query(minMessagesPerTrigger="3", maxTriggerDelay="1ms")

    assert patient.step() is None
    writer.push(2, 3)
    assert patient.step() == [1, 2, 3]
    assert hasty.plan() != hasty.start
    writer.push(4)
    hasty.drain()
    writer.push(5)
    assert hasty.plan() == hasty.start
    assert any(hasty.plan() != hasty.start for _ in range(1000))


def test_available_now_ends_at_what_was_there_when_it_began(query, writer):
    for number in range(3):
        writer.push(number)
    stream = query(maxMessagesPerTrigger="2", minMessagesPerTrigger="2")
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.step() == [0, 1]

    writer.push(3)

    assert stream.drain() == [2]


def test_available_now_ends_although_the_query_was_ahead(query, writer):
    writer.push(1)
    stream = query()
    stream.drain()
    stream.restart()
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.step() is None


def test_new_queues_that_match_the_pattern_appear_by_themselves(query, writer):
    writer.push(1, queue="orders-a")
    stream = query(queue=None, subscribePattern="orders.*")
    assert stream.drain() == [1]

    writer.push(2, queue="orders-b")

    assert stream.drain() == [2]


def test_what_is_removed_unread_ends_the_stream_and_names_the_range(query, writer):
    writer.push(1)
    stream = query()
    stream.drain()
    writer.push(2)
    writer.push(3)
    writer.execute("delete from skep.segment where first = 2")

    with pytest.raises(DataLost, match=r"in queue orders, transactions \d+ to \d+.*failOnDataLoss"):
        stream.step()


def test_a_stream_that_may_lose_data_says_so_once_and_goes_on(query, writer, caplog):
    writer.push(1)
    stream = query(failOnDataLoss="false")
    stream.drain()
    writer.push(2)
    writer.push(3)
    writer.execute("delete from skep.segment where first = 2")

    with caplog.at_level(logging.WARNING):
        assert stream.drain() == [3]

    assert sum("removed before they had been read" in line for line in caplog.messages) == 1


def test_what_was_removed_before_the_start_or_after_reading_is_no_loss(query, writer):
    writer.push(1)
    writer.push(2)
    writer.execute("delete from skep.segment where first = 1")
    stream = query()
    assert stream.drain() == [2]
    writer.execute("delete from skep.segment where first = 2")
    writer.push(3)

    assert stream.drain() == [3]


def test_what_is_removed_between_planning_and_reading_is_noticed_by_the_task(query, writer):
    writer.push(1)
    writer.push(2)
    stream = query()
    end = stream.plan()
    tasks = stream.reader.partitions(stream.start, end)
    writer.execute("delete from skep.segment where first = 1")

    with pytest.raises(DataLost, match="1 of 2 segments of queue orders"):
        [batch for task in tasks for batch in stream.reader.read(task)]


def test_a_position_of_another_database_is_refused_with_advice(query, writer):
    writer.push(1)
    stream = query()
    stream.step()
    stream.start = {**stream.start, "system": "1:1"}

    with pytest.raises(
        InvalidPosition,
        match=r"restored from a dump\. After pg_upgrade run `skep adopt`.*Begin with a new",
    ):
        stream.step()


def test_a_position_ahead_of_the_database_is_refused_with_advice(query, writer):
    writer.push(1)
    stream = query()
    stream.step()
    stream.start = {**stream.start, "seen": "999999999:999999999:"}

    with pytest.raises(InvalidPosition, match="restored to an earlier time"):
        stream.step()
    stream.restart(consumerGroup="billing")
    with pytest.raises(InvalidPosition, match=r"run `select skep.forget_reader\('billing'\)`"):
        stream.step()


def test_a_first_batch_repeated_after_latest_moved_on_is_refused_and_not_skipped(query, writer):
    writer.push(1)
    stream = query(startingOffsets="latest")
    stream.plan()
    writer.push(2)
    end = stream.plan()
    writer.push(3)

    stream.restart()
    later = stream.reader.initialOffset()

    with pytest.raises(InvalidPosition, match="set the option consumerGroup"):
        stream.reader.partitions(later, end)


def test_a_consumer_group_keeps_the_start_until_the_first_commit(query, writer):
    writer.push(1)
    stream = query(startingOffsets="latest", consumerGroup="billing")
    start = stream.plan()
    writer.push(2)

    stream.restart()

    assert stream.reader.initialOffset() == start
    assert stream.drain() == [2]


def test_a_consumer_group_goes_on_with_a_new_checkpoint(query, writer):
    writer.push(1)
    assert query(consumerGroup="billing").drain() == [1]
    writer.push(2)

    assert query(consumerGroup="billing").drain() == [2]


def test_a_consumer_group_holds_the_log_and_shows_its_lag(query, writer, database_url):
    writer.push(1)
    stream = query(consumerGroup="billing", holdSeconds="60")
    stream.plan()
    log = MessageLog(read_options({"url": database_url, "queue": "orders"}))
    held = "select position::text, keep_s from skep.hold where name = 'billing'"

    assert writer.rows(held) == [("1:1:", 60)]
    assert [(row["queue"], row["messages"]) for row in log.lag("billing")] == [("orders", 1)]
    stream.drain()
    writer.push(2, 3)

    assert writer.rows(held) == [(stream.start["seen"], 60)]
    assert [row["messages"] for row in log.lag(None)] == [2]


def test_retention_waits_for_a_consumer_group(query, writer):
    writer.push(1)
    query(consumerGroup="billing").plan()
    held_from = "select skep.held_from(id)::text::bigint from skep.queue"

    assert writer.value(held_from) == 1


def test_an_idle_stream_renews_its_hold(query, writer):
    writer.push(1)
    stream = query(consumerGroup="billing", holdSeconds="1")
    stream.drain()
    writer.execute("update skep.hold set updated_at = '2020-01-01'")
    renewed = "select updated_at > '2026-01-01' from skep.hold"

    while not writer.value(renewed):
        assert stream.step() is None


def test_the_present_is_reported_beside_the_position(query, writer):
    writer.push(1)
    stream = query()
    reported = Position.from_json(stream.reader.reportLatestOffset())

    stream.drain()

    assert reported.seen == Position.from_json(stream.start).seen


def test_the_lag_behind_a_micro_batch_is_shown_with_the_present(query, writer):
    writer.execute("select set_config('skep.fake_now', '2026-01-01T12:00:00Z', false)")
    for number in range(3):
        writer.push(number, number)
    stream = query(maxMessagesPerTrigger="2", startingTimestamp="2026-01-01T11:00:00Z")
    assert "behind" not in stream.reader.reportLatestOffset()

    lags = []
    while stream.step() is not None:
        lags.append(stream.reader.reportLatestOffset()["behind"])

    assert [(lag["messages"], lag["exact"]) for lag in lags] == [(4, True), (2, True), (0, True)]
    assert [lag["seconds"] > 0 for lag in lags] == [True, True, False]
    shown = stream.reader.reportLatestOffset()
    assert {**Position.from_json(shown).to_json(), "behind": lags[-1]} == shown


def test_a_stream_has_no_end_and_its_queue_must_exist(query, writer):
    with pytest.raises(InvalidOption, match="not for streams"):
        query(endingTimestamp="2026-01-01")
    with pytest.raises(NotFound, match="queue nowhere does not exist"):
        query(queue="nowhere").plan()


def test_a_task_that_spark_made_up_brings_nothing(query, writer):
    writer.partition()

    assert list(query().reader.read(InputPartition(None))) == []


def test_a_stream_survives_a_lost_connection(query, writer):
    writer.push(1)
    stream = query()
    stream.drain()
    writer.push(2)
    writer.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
        " and datname = current_database() and backend_type = 'client backend'"
    )

    assert stream.drain() == [2]


def test_a_stream_waits_for_a_server_that_restarts(durable_postgres, arun):
    server = durable_postgres()
    server.start()
    url = server.dsn
    arun(migrate(url))
    writer = Writer(arun(asyncpg.connect(url)), arun)
    writer.push(1)
    stream = Query(url)
    assert stream.drain() == [1]
    writer.push(2)
    writer.close()
    server.stop()

    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(stream.drain)
        server.start()
        assert drained.result() == [2]

    forget_connections()


def test_a_reader_of_single_partitions_is_not_told_of_losses_in_others(query, writer):
    writer.push(1, partition="mine")
    stream = query(queue=None, assign='{"orders": ["mine"]}')
    assert stream.drain() == [1]
    writer.push("theirs", partition="other")
    writer.execute(
        "delete from skep.segment where partition_id <> (select min(id) from skep.partition)"
    )
    writer.push(2, partition="mine")

    assert stream.drain() == [2]


def test_positions_stay_small_however_many_partitions_there_are(query, writer):
    for number in range(50):
        writer.push(number, partition=f"p{number}")
    stream = query()

    stream.drain()

    assert len(json.dumps(stream.start)) < 300


@pytest.mark.parametrize("seed", range(3))
def test_many_writers_and_a_reader_restarted_at_random_agree_with_the_ledger(
    query, writer, open_writer, seed
):
    dice = Random(seed)
    writers = [open_writer() for _ in range(8)]
    for number, each in enumerate(writers):
        each.partition(partition=f"p{number}")
    pending = [None] * len(writers)
    numbers, ledger, delivered = count(), [], []
    stream = query(maxMessagesPerTrigger="7", minPartitions="3")
    for _ in range(150):
        which = dice.randrange(len(writers))
        action = dice.choice(["push", "push", "end", "read", "restart"])
        if action == "push":
            if pending[which] is None:
                writers[which].execute("begin")
                pending[which] = []
            sent = [next(numbers) for _ in range(dice.randint(1, 5))]
            writers[which].push(*sent, partition=f"p{which}")
            pending[which] += sent
        elif action == "end" and pending[which] is not None:
            is_kept = dice.random() < 0.8
            writers[which].execute("commit" if is_kept else "rollback")
            ledger += pending[which] if is_kept else []
            pending[which] = None
        elif action == "read":
            delivered += stream.step() or []
        elif action == "restart":
            stream.restart(maxMessagesPerTrigger=str(dice.randint(1, 20)))
    for each, sent in zip(writers, pending, strict=True):
        if sent is not None:
            each.execute("commit")
            ledger += sent

    delivered += stream.drain()

    assert sorted(delivered) == sorted(ledger)
    assert [stream.read(start, end) for start, end, _ in stream.batches] == [
        found for _, _, found in stream.batches
    ]


@pytest.mark.parametrize("options", [{}, {"maxMessagesPerTrigger": "1"}])
def test_what_was_stored_long_before_the_start_is_not_looked_at(query, writer, options):
    at = "select set_config('skep.fake_now', '2026-01-01T{}:00:00Z', false)"
    note = "select skep.note_snapshot('1 hour', '1 day')"
    writer.execute(at.format("10"))
    writer.push(1)
    writer.value(note)
    writer.execute(at.format("12"))
    since = {"startingTimestamp": "2026-01-01T12:00:00Z", **options}
    idle = query(**since)
    assert idle.step() is None
    past = writer.value("select xid::text::bigint + 1 from skep.segment")
    assert Position.from_json(idle.start).seen.xmax == past
    writer.push(2)
    writer.push(3)
    writer.value(note)

    assert idle.drain() == [2, 3]
    late = query(**since)
    assert late.plan() != late.start
    assert Position.from_json(late.start).seen.xmax >= past
    assert late.drain() == [2, 3]
