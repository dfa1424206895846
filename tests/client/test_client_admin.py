"""Everything else one may ask of a broker through the client."""

import inspect
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from skep.broker import traces
from skep.broker.dead_letters import letters, redrive
from skep.broker.groups import progress, seek
from skep.broker.messages import listing as message_list
from skep.broker.queues import configure, resources
from skep.broker.scheduled import listing as scheduled
from skep.broker.timers import answer as timer_answers
from skep.broker.timers import browse as timer_rows
from skep.client import (
    AsyncClient,
    BadRequest,
    Client,
    NotFound,
    OffsetOutOfRange,
    TransactionFailed,
    values,
)
from skep.client.pushes import Item
from skep.client.verdicts import AckItem
from skep.model import wire
from skep.server.api_document import shapes


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (values.PushResult, shapes.PushResult),
        (values.AckResult, shapes.AckResult),
        (values.Renewed, shapes.LeaseAnswer),
        (values.TransactionResult, shapes.TransactionResult),
        (values.TransactionAnswer, shapes.TransactionAnswer),
        (values.MessageCounts, resources.MessageCounts),
        (values.QueueSummary, resources.QueueSummary),
        (values.QueuePage, resources.QueuePage),
        (values.PartitionSummary, resources.PartitionSummary),
        (values.PartitionPage, resources.PartitionPage),
        (values.Configured, configure.Configured),
        (values.GroupEntry, progress.GroupEntry),
        (values.GroupLag, progress.GroupLag),
        (values.PartitionLag, progress.PartitionLag),
        (values.SeekPreview, seek.SeekPreview),
        (values.ListedMessage, message_list.ListedMessage),
        (values.MessagePage, message_list.MessagePage),
        (values.DeadLetter, letters.DeadLetter),
        (values.DeadLetterPage, letters.DeadLetterPage),
        (values.Redrive, redrive.Redrive),
        (values.Trace, traces.Trace),
        (values.FiledTrace, traces.FiledTrace),
        (values.ScheduledMessage, scheduled.WaitingMessage),
        (values.TimerChange, timer_answers.TimerResult),
        (values.TimerDetail, timer_rows.TimerDetail),
        (values.TimerPage, timer_rows.TimerRows),
        (values.LockResult, shapes.LockResult),
        (values.LockHolder, shapes.LockHolder),
        (values.Entry, shapes.KvResult),
        (values.EntryPage, shapes.KvResult),
        (values.Changed, shapes.KvResult),
        (Item, wire.PushItem),
        (AckItem, wire.AckItem),
    ],
    ids=lambda each: each.__name__,
)
def test_a_value_has_only_members_that_the_broker_sends_or_reads(ours, theirs):
    names = {field.encode_name for field in msgspec.structs.fields(ours)}

    assert names <= {field.encode_name for field in msgspec.structs.fields(theirs)}


async def test_queues_are_configured_found_paused_cleared_and_deleted(queen, queue):
    configured = await queen.queues.configure(queue, namespace="shop", task="t", leaseTime=60)
    await queen.push_many(queue, range(3), partition="p")
    found = await queen.queues.find(search=queue)
    partitions = await queen.queues.partitions(queue, search="p")
    await queen.queues.pause(queue)
    paused = await queen.pop(queue)
    await queen.queues.resume(queue)
    described = await queen.queues.describe(queue)
    await queen.queues.clear(queue)
    cleared = await queen.pop(queue)
    existed = await queen.queues.delete(queue)

    assert configured.options.lease_time == 60
    assert (configured.namespace, configured.task) == ("shop", "t")
    assert [(each.name, each.messages.total) for each in found.queues] == [(queue, 3)]
    assert partitions.partitions[0].head == 3
    assert paused == cleared == []
    assert described["totals"]["pending"] == 3
    assert existed
    with pytest.raises(NotFound):
        await queen.queues.configuration(queue)


async def test_configuring_may_restore_what_is_not_given(queen, queue):
    await queen.queues.configure(queue, leaseTime=60, retryLimit=9)

    replaced = await queen.queues.configure(queue, replace=True, leaseTime=50)
    shown = await queen.queues.configuration(queue)

    assert replaced.options.retry_limit == 3
    assert shown.options == replaced.options


async def test_groups_are_sought_paused_exported_and_deleted(queen, queue):
    group = f"group of {queue}"
    await queen.push_many(queue, range(4), partition="p")
    async for _ in queen.consume(queue, group=group, limit=4):
        pass
    preview = await queen.groups.preview_seek(group, queue, "start")
    await queen.groups.seek(group, queue, 3, partition="p")
    at_three = await queen.groups.positions(group, queue)
    await queen.groups.seek(group, queue, datetime.now(UTC) - timedelta(days=1))
    lag = await queen.groups.lag(group, queue)
    await queen.groups.set_positions(group, queue, {"p": 1})
    await queen.groups.pause(group, queue)
    paused = await queen.pop(queue, group=group)
    await queen.groups.resume(group, queue)
    (next_one,) = await queen.pop(queue, group=group)
    described = await queen.groups.describe(group)
    await queen.groups.delete(group, queue)

    assert preview.replayed == 4
    assert at_three == {"p": 2}
    assert lag.offset_lag == 4
    assert paused == []
    assert next_one.data == 1
    assert list(described) == [queue]
    assert group not in {entry.name for entry in await queen.groups.find(queue=queue)}
    assert isinstance(await queen.groups.lagging(), list)


async def test_messages_are_found_peeked_at_given_up_and_deleted(queen, queue):
    first, second = await queen.push_many(queue, ["a", "b"])
    (message,) = await queen.pop(queue, group="g", auto_ack=False)
    await message.retry()
    found = await queen.messages.find(queue=queue)
    peeked = await queen.messages.peek(queue, group="g")
    shown = await queen.messages.show(first.partition_id, first.transaction_id)
    await queen.messages.dead_letter(first.partition_id, first.message_id, group="g", error="bad")
    await queen.messages.delete(second.partition_id, second.transaction_id)
    rest = await queen.pop(queue, group="g", batch=5)

    assert {each.id for each in found.messages} == {first.message_id, second.message_id}
    assert [each["data"] for each in peeked] == ["a", "b"]
    assert shown["payload"] == "a"
    assert rest == []
    with pytest.raises(NotFound):
        await queen.messages.show(second.partition_id, second.transaction_id)


async def test_dead_letters_are_listed_replayed_redriven_and_purged(queen, queue):
    await queen.push_many(queue, range(4), partition=str)
    for message in await queen.pop(queue, group="g", batch=4, partitions=4):
        await message.dead_letter("spoiled")
    page = await queen.dead_letters.find(queue=queue, group="g")
    first, second, third, _ = page.messages
    await queen.dead_letters.replay(first.dlq_id)
    await queen.dead_letters.delete(second.dlq_id)
    redriven = await queen.dead_letters.redrive(ids=[third.dlq_id], target_queue=f"{queue}-again")
    while (await queen.dead_letters.show_redrive(redriven.id)).state == "running":
        pass
    purged = await queen.dead_letters.purge(queue=queue)
    (again,) = await queen.pop(f"{queue}-again", wait_s=5)

    assert page.total == 4
    assert {letter.error_message for letter in page.messages} == {"spoiled"}
    assert (await queen.pop(queue, group="g"))[0].data == first.data
    assert again.data == third.data
    assert purged == 1
    with pytest.raises(NotFound):
        await queen.dead_letters.show(second.dlq_id)


async def test_traces_are_recorded_and_found(queen, queue):
    result = await queen.push(queue, {"n": 1})
    trace_id = await queen.traces.record(
        result.partition_id, result.transaction_id, {"step": 1}, names=[queue], event_type="note"
    )

    (of_message,) = await queen.traces.of_message(result.partition_id, result.transaction_id)
    (by_name,) = await queen.traces.by_name(queue)
    names = await queen.traces.names(limit=1000)

    assert of_message.id == by_name.id == trace_id
    assert (of_message.event_type, of_message.data) == ("note", {"step": 1})
    assert by_name.message_payload == {"n": 1}
    assert queue in {each["trace_name"] for each in names}


async def test_scheduled_messages_are_brought_forward_and_taken_back(queen, queue):
    soon = await queen.push(queue, "soon", delay_s=3600)
    never = await queen.push(queue, "never", delay_s=3600)
    await queen.scheduled.deliver(soon.scheduled_id)
    await queen.scheduled.cancel(never.scheduled_id)

    (message,) = await queen.pop(queue, wait_s=10)

    assert message.data == "soon"
    assert await queen.scheduled.find(queue=queue) == []


async def test_timers_are_scheduled_replaced_listed_and_cancelled(queen, queue):
    first = await queen.timers.schedule(queue, "a/1", {"n": 1}, delay_s=600)
    second = await queen.timers.schedule(
        queue, "a/1", {"n": 2}, delay_s=60, partition="p", transaction_id="t"
    )
    await queen.timers.schedule(queue, "a/2", "text", delay_s=600)
    timer = await queen.timers.get(queue, "a/1")
    page = await queen.timers.find(queue, limit=1)
    rest = await queen.timers.find(queue, after=page.next_after)

    assert (first.status, second.status, second.txn) == ("scheduled", "rescheduled", "t")
    assert first.deliver_at > second.deliver_at == timer.deliver_at
    assert (bytes(timer.payload), timer.partition, timer.encrypted) == (b'{"n":2}', "p", False)
    assert [row.timer_key for row in page.rows + rest.rows] == ["a/1", "a/2"]
    assert await queen.timers.count(queue, "a/") == 2
    assert await queen.timers.cancel(queue, "a/1")
    assert not await queen.timers.cancel(queue, "a/1")
    assert await queen.timers.get(queue, "a/1") is None


async def test_keys_are_put_read_counted_and_deleted(queen, queue):
    put = await queen.kv.put(queue, "a/1", {"n": 1}, ttl_s=60)
    lost = await queen.kv.put_if_absent(queue, "a/1", 2, ttl_s=None)
    await queen.kv.put(queue, "a/2", None, ttl_s=None, expect=0)
    counts = [await queen.kv.incr(queue, "n", ttl_s=None, max=1) for _ in range(2)]
    entry = await queen.kv.get(queue, "a/1")
    page = await queen.kv.find(queue, "a/", limit=1)
    rest = await queen.kv.find(queue, "a/", after=page.next_after)

    assert (entry.value, entry.version, entry.expires_at > entry.updated_at) == (
        {"n": 1},
        put.version,
        True,
    )
    assert (bool(put), bool(lost), lost.reason, lost.value) == (True, False, "exists", {"n": 1})
    assert [(bool(each), each.value, each.reason) for each in counts] == [
        (True, 1, None),
        (False, 1, "limit"),
    ]
    assert [row.key for row in page.rows + rest.rows] == ["a/1", "a/2"]
    assert await queen.kv.delete(queue, "a/1", expect=put.version)
    assert await queen.kv.get(queue, "a/1") is None


async def test_a_call_of_which_a_required_operation_is_lost_changes_nothing(queen, queue):
    key = {"ns": queue, "key": "k", "forever": True}

    results = await queen.kv.call(
        [
            {"op": "put", **key, "value": 1},
            {"op": "check", "ns": queue, "key": "none", "expect": 7, "required": True},
        ]
    )

    assert [each["applied"] for each in results] == [False, False]
    assert await queen.kv.get(queue, "k") is None


async def test_a_transaction_acknowledges_and_pushes_together(queen, queue):
    await queen.push_many(queue, range(2), partition="p")

    async for message in queen.consume(queue, group="g", limit=2):
        async with queen.transaction() as transaction:
            transaction.ack(message)
            transaction.push(f"{queue}-out", message.data * 10, partition="p")
        assert message.is_settled
    out = await queen.pop(f"{queue}-out", batch=5)

    assert [message.data for message in out] == [0, 10]
    assert (await queen.groups.lag("g", queue)).offset_lag == 0
    assert [result.type for result in transaction.results] == ["push", "ack"]


async def test_a_transaction_whose_block_raises_or_asks_nothing_sends_nothing(queen, queue):
    async def change_the_mind():
        async with queen.transaction() as transaction:
            transaction.push(queue, 1)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await change_the_mind()
    async with queen.transaction():
        pass

    assert await queen.pop(queue) == []


async def test_defect_18_a_transaction_after_the_lease_was_lost_does_not_happen(queen, queue):
    await queen.push(queue, 1)
    (message,) = await queen.pop(queue, group="g")
    await queen.groups.seek("g", queue, "start")

    transaction = queen.transaction()
    transaction.ack(message)
    transaction.push(f"{queue}-out", 1)
    with pytest.raises(TransactionFailed):
        await transaction.commit()

    assert await queen.pop(f"{queue}-out") == []


async def test_the_broker_is_well_and_sums_itself_up(queen):
    assert (await queen.health())["status"] == "healthy"
    assert (await queen.overview())["queues"] >= 0
    assert "queues" in await queen.request("GET", "/api/v1/resources/queues")


def test_the_blocking_client_commits_transactions_and_asks_about_everything(bee, queue):
    bee.queues.configure(queue, leaseTime=30)
    bee.push(queue, 1)
    (message,) = bee.pop(queue, group="g")
    with bee.transaction() as transaction:
        transaction.ack(message)
        transaction.push(queue, 2)

    assert [each.data for each in bee.pop(queue, group="g")] == [2]
    assert bee.queues.find(search=queue).total == 1
    assert bee.groups.find(queue=queue)[0].name == "g"
    assert bee.health()["status"] == "healthy"


async def test_a_partition_is_read_by_offset_and_consumed_by_nobody(queen, queue):
    await queen.push_many(queue, ["a", "b", "c"], partition="p")
    first = await queen.fetch(queue, "p", max_bytes=1)
    rest = await queen.fetch(queue, "p", first.next_offset)
    nothing = await queen.fetch(queue, "p", rest.next_offset, wait_s=0.01)
    begun = await queen.queues.offset_at(queue, rest.records[0].ts, partition="p")
    page = await queen.queues.changed(queue, first.records[0].ts)

    assert [each.payload for each in first.records + rest.records] == ["a", "b", "c"]
    assert (nothing.records, nothing.next_offset, nothing.high_watermark) == ([], 4, 4)
    assert begun.offset == next(
        each.offset for each in first.records + rest.records if each.ts == begun.ts
    )
    assert [(each.name, each.last_offset) for each in page.partitions] == [("p", 3)]
    assert page.next is None
    assert len(await queen.pop(queue, batch=10)) == 3


async def test_what_cannot_be_read_by_offset_is_raised(queen, queue):
    await queen.push(queue, 1)

    with pytest.raises(NotFound, match="there is no queue"):
        await queen.fetch(f"{queue}-none")
    with pytest.raises(NotFound, match="there is no queue"):
        await queen.queues.changed(f"{queue}-none")
    with pytest.raises(BadRequest, match="Invalid after"):
        await queen.queues.changed(queue, after="nonsense")
    with pytest.raises(OffsetOutOfRange, match="which has those from 1 to before 2") as caught:
        await queen.fetch(queue, offset=7)
    assert (caught.value.log_start_offset, caught.value.high_watermark) == (1, 2)


def test_the_blocking_client_reads_by_offset(bee, queue):
    bee.push(queue, {"a": 1})

    assert [each.payload for each in bee.fetch(queue).records] == [{"a": 1}]


async def test_an_answer_that_is_not_json_is_fetched_as_it_came(queen, broker):
    text = await queen.download("/metrics/prometheus")

    assert b"# TYPE skep_parked_polls gauge" in text
    assert queen.urls == (broker.url,)


@pytest.mark.parametrize("kind", [AsyncClient, Client])
def test_a_method_can_be_looked_up_in_its_class(kind):
    assert inspect.getdoc(kind.push).startswith("Store one message")
    assert "payload" in inspect.signature(kind.push).parameters
