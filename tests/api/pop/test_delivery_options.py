"""What the options of queues and groups do to delivery, over HTTP."""

import json
from uuid import uuid4

import pytest

from tests.support.broker import ack_item, elapsed, payloads, pop_path

WAIT = {"wait": True, "timeout": 20_000}


@pytest.fixture
def set_options(broker, client):
    """Change columns of a queue, also those that no route offers."""

    async def set_options(queue, **columns):
        await client.configure(queue)
        async with broker.sql() as sql:
            for column, value in columns.items():
                await sql.execute(
                    f"update skep.queue set {column} = $2 where name = $1", queue, value
                )

    return set_options


@pytest.fixture
def rewrite(broker):
    """Replace text in the stored messages of a queue."""

    async def rewrite(queue, old, new):
        async with broker.sql() as sql:
            await sql.execute(
                """
                update skep.segment s
                set body = convert_to(replace(convert_from(s.body, 'UTF8'), $2, $3), 'UTF8')
                from skep.queue q where q.id = s.queue_id and q.name = $1
                """,
                queue,
                old,
                new,
            )

    return rewrite


async def push(client, queue, *names, partition="p"):
    return await client.push(
        *(
            {"queue": queue, "partition": partition, "payload": name, "transactionId": name}
            for name in names
        )
    )


# Held back and passed over


@pytest.mark.slow
async def test_a_delayed_message_arrives_when_its_delay_is_over(client, queue):
    await client.configure(queue, delayedProcessing=1)
    with elapsed() as since_push:
        await push(client, queue, "a")
        assert await client.pop(queue) == []
        messages = await client.pop(queue, **WAIT)

    assert payloads(messages) == ["a"]
    assert since_push.seconds >= 0.9


@pytest.mark.slow
async def test_messages_gather_while_the_window_is_open(client, queue):
    await client.configure(queue, windowBuffer=1)
    await push(client, queue, "a")
    assert await client.pop(queue) == []
    await push(client, queue, "b")

    assert payloads(await client.pop(queue, batch=10, **WAIT)) == ["a", "b"]


async def test_messages_older_than_the_ttl_are_not_delivered(broker, client, queue, set_options):
    await set_options(queue, ttl_s=60)
    await push(client, queue, "old")
    async with broker.sql() as sql:
        await sql.execute(
            "update skep.segment s set created_at = s.created_at - interval '61 seconds' "
            "from skep.queue q where q.id = s.queue_id and q.name = $1",
            queue,
        )
    await push(client, queue, "young")

    assert payloads(await client.pop(queue, batch=10)) == ["young"]


@pytest.mark.parametrize("table", ["queue", "consumer_group"])
async def test_what_is_paused_keeps_its_polls_waiting_until_it_is_resumed(
    broker, open_client, client, queue, table
):
    where = (
        "name = $1"
        if table == "queue"
        else "queue_id = (select id from skep.queue where name = $1)"
    )
    await push(client, queue, "a")
    async with broker.sql() as sql:
        await sql.execute(f"update skep.{table} set is_paused = true where {where}", queue)
        assert await client.pop(queue) == []
        parked = await open_client()
        parked.send_poll(queue, **WAIT)
        await push(client, queue, "b")
        assert await client.pop(queue) == []
        await sql.execute(f"update skep.{table} set is_paused = false where {where}", queue)

    assert payloads(await parked.popped()) == ["a"]


async def test_a_message_nobody_answers_for_ends_in_the_dead_letters(
    broker, client, queue, set_options
):
    await set_options(queue, max_deliveries=2)
    await push(client, queue, "poison", "good")
    for _ in range(2):
        assert payloads(await client.pop(queue, batch=10))[0] == "poison"
        await broker.end_leases(queue)

    assert payloads(await client.pop(queue, batch=10)) == ["good"]

    async with broker.sql() as sql:
        errors = await sql.fetch(
            "select d.error from skep.dead_letter d "
            "join skep.queue q on q.id = d.queue_id where q.name = $1",
            queue,
        )
    assert [row["error"] for row in errors] == ["2 deliveries without an answer"]


async def test_defect_12_a_new_subscription_before_the_first_message_gets_it(client, queue):
    parameters = {"consumerGroup": "g", "subscriptionMode": "new"}
    assert await client.pop(queue, **parameters) == []

    await push(client, queue, "first")

    assert payloads(await client.pop(queue, **parameters)) == ["first"]


async def test_defect_13_new_only_starts_at_the_end(client, queue):
    await push(client, queue, "old")
    parameters = {"consumerGroup": "g", "subscriptionMode": "new-only"}
    assert await client.pop(queue, **parameters) == []

    await push(client, queue, "new")

    assert payloads(await client.pop(queue, **parameters)) == ["new"]


async def test_a_subscription_that_starts_later_skips_what_comes_before(client, queue):
    parameters = {"consumerGroup": "g", "subscriptionFrom": "2999-01-01T00:00:00Z"}
    assert await client.pop(queue, **parameters) == []

    await push(client, queue, "early")

    assert await client.pop(queue, **parameters) == []


# Messages that need no delivery


EXPIRED = '{"expiresAt":"2020-01-01T00:00:00Z","transactionId":"%s"'
LASTING = '{"expiresAt":"2999-01-01T00:00:00Z","transactionId":"%s"'
PLAIN = '{"transactionId":"%s"'


@pytest.mark.parametrize("parameters", [{}, {"autoAck": True}])
async def test_expired_messages_are_left_out(client, queue, rewrite, parameters):
    await push(client, queue, "a", "b", "c")
    await rewrite(queue, PLAIN % "b", EXPIRED % "b")
    await rewrite(queue, PLAIN % "c", LASTING % "c")

    messages = await client.pop(queue, batch=10, **parameters)

    assert payloads(messages) == ["a", "c"]
    assert messages[1]["expiresAt"] == "2999-01-01T00:00:00Z"


async def test_the_last_message_before_an_expired_one_releases_the_partition(
    client, queue, rewrite
):
    await push(client, queue, "a", "b")
    await rewrite(queue, PLAIN % "b", EXPIRED % "b")
    (message,) = await client.pop(queue, batch=10)
    await client.ack(message)
    await push(client, queue, "c")

    assert payloads(await client.pop(queue, **WAIT)) == ["c"]


@pytest.mark.parametrize("parameters", [{}, {"autoAck": True}])
@pytest.mark.parametrize("partition", [None, "p"])
async def test_a_poll_whose_messages_all_expired_goes_on_to_the_next(
    client, queue, rewrite, partition, parameters
):
    await push(client, queue, "a", "b", "c")
    await rewrite(queue, PLAIN % "a", EXPIRED % "a")
    await rewrite(queue, PLAIN % "b", EXPIRED % "b")

    assert payloads(await client.pop(queue, partition, batch=1, **parameters)) == ["c"]


async def test_a_poll_that_finds_nothing_but_expired_messages_is_empty(client, queue, rewrite):
    await push(client, queue, "a", "b")
    await rewrite(queue, PLAIN % "a", EXPIRED % "a")
    await rewrite(queue, PLAIN % "b", EXPIRED % "b")

    assert await client.pop(queue, batch=10) == []


async def test_a_poll_does_not_pass_over_expired_messages_for_ever(client, queue, rewrite):
    names = [f"old {number}" for number in range(150)]
    await push(client, queue, *names, "young")
    await rewrite(queue, (PLAIN % "old ")[:-1], (EXPIRED % "old ")[:-1])

    found = [payloads(await client.pop(queue, batch=1)) for _ in range(2)]

    assert found == [[], ["young"]]


async def test_a_waiting_poll_that_found_expired_messages_waits_on(
    open_client, client, queue, rewrite
):
    await push(client, queue, "a")
    await rewrite(queue, PLAIN % "a", EXPIRED % "a")
    parked = await open_client()
    parked.send_poll(queue, **WAIT)
    assert await client.pop(queue) == []

    await push(client, queue, "b")

    assert payloads(await parked.popped()) == ["b"]


async def test_defect_09_a_deleted_head_does_not_starve_other_partitions(client, queue, rewrite):
    await push(client, queue, "gone", partition="first")
    await push(client, queue, "here", partition="second")
    deleted = '{"transactionId":"gone","traceId":null,"producerSub":null,"data":"gone"}'
    await rewrite(queue, deleted, "null")

    assert payloads(await client.pop(queue, partitions=1)) == ["here"]


# Acks one by one


async def individual(client, queue, set_options, *names, **parameters):
    await set_options(queue, ack_mode="individual")
    await push(client, queue, *names)
    return await client.pop(queue, batch=10, **parameters)


async def test_messages_acked_out_of_order_are_not_delivered_again(
    broker, client, queue, set_options
):
    messages = await individual(client, queue, set_options, *"abcd")

    results = await client.ack_batch(ack_item(messages[1]), ack_item(messages[3]))

    assert [result["leaseReleased"] for result in results] == [False, False]
    await broker.end_leases(queue)
    assert payloads(await client.pop(queue, batch=10)) == ["a", "c"]


async def test_messages_acked_one_by_one_may_be_named_by_their_ids(
    broker, client, queue, set_options
):
    messages = await individual(client, queue, set_options, *"abcd")

    items = [
        ack_item(message, members={"transactionId": message["id"], "leaseId": ""})
        for message in (messages[1], messages[3])
    ]
    results = await client.ack_batch(*items)

    assert [result["success"] for result in results] == [True, True]
    await broker.end_leases(queue)
    assert payloads(await client.pop(queue, batch=10)) == ["a", "c"]


async def test_an_individual_batch_acked_as_a_whole_is_done(client, queue, set_options):
    messages = await individual(client, queue, set_options, *"abcd")

    results = await client.ack_batch(*map(ack_item, messages))

    assert {result["leaseReleased"] for result in results} == {True}
    assert await client.pop(queue) == []


async def test_a_nack_of_one_message_leaves_the_others_to_their_consumer(
    client, queue, set_options
):
    messages = await individual(client, queue, set_options, *"abc")

    first = await client.ack(messages[0], "retry")
    rest = [await client.ack(message) for message in messages[1:]]

    assert [result["success"] for result in [first, *rest]] == [True] * 3
    again = await client.pop(queue, batch=10)
    assert [(m["data"], m["deliveryAttempt"]) for m in again] == [("a", 2)]


# Only the newest


async def pop_body(client, queue, **parameters):
    answer = await client.call("GET", pop_path(queue, **parameters))
    return answer.status, json.loads(answer.body)


async def test_a_conflating_group_gets_the_newest_message_and_is_told_so(client, queue):
    await push(client, queue, "old", "new", partition="p")
    await push(client, queue, "other", partition="q")
    parameters = {"consumerGroup": "g", "conflation": True, "batch": 10, "partitions": 10}

    status, body = await pop_body(client, queue, **parameters)

    assert (status, body["conflation"]) == (200, True)
    assert sorted(payloads(body["messages"])) == ["new", "other"]
    await client.ack_batch(*map(ack_item, body["messages"]), consumerGroup="g")
    _, after = await pop_body(client, queue, **parameters)
    assert after["messages"] == []


async def test_an_empty_conflated_pop_has_a_body_that_says_so(client, queue):
    status, body = await pop_body(client, queue, consumerGroup="g", conflation=True)

    assert status == 200
    assert body == {
        "success": True,
        "conflation": True,
        "queue": queue,
        "partition": "",
        "partitionId": None,
        "leaseId": None,
        "consumerGroup": "g",
        "messages": [],
    }


async def test_a_group_that_conflates_does_so_for_everybody(client, queue):
    await pop_body(client, queue, consumerGroup="g", conflation=True)
    await push(client, queue, "old", "new")

    _, body = await pop_body(client, queue, consumerGroup="g", batch=10)

    assert body["conflation"] is True
    assert payloads(body["messages"]) == ["new"]


@pytest.mark.parametrize(("stored", "asked"), [("true", "false"), ("false", "true")])
async def test_a_poll_that_wants_otherwise_than_its_group_is_told(client, queue, stored, asked):
    await client.call("GET", pop_path(queue, consumerGroup="g", conflation=stored))
    await push(client, queue, "old", "new")

    _, body = await pop_body(client, queue, consumerGroup="g", conflation=asked, batch=10)

    assert body["conflationConflict"] is True
    assert "conflation" not in body
    assert payloads(body["messages"]) == (["new"] if stored == "true" else ["old", "new"])


async def test_a_group_that_exists_may_be_told_to_conflate_once(broker, client, queue):
    await push(client, queue, "old", "new")
    assert payloads(await client.pop(queue, consumerGroup="g")) == ["old"]
    await broker.end_leases(queue)

    _, body = await pop_body(client, queue, consumerGroup="g", conflation=True)

    assert (body["conflation"], payloads(body["messages"])) == (True, ["new"])


@pytest.mark.parametrize(
    "parameters",
    [{"conflation": True}, {"conflation": True, "consumerGroup": "g", "autoAck": True}],
)
async def test_conflation_needs_a_group_and_acks(client, queue, parameters):
    answer = await client.call("GET", pop_path(queue, **parameters))

    assert answer.status == 400
    assert "conflation needs a consumerGroup" in json.loads(answer.body)["error"]


async def test_a_plain_poll_says_nothing_of_conflation(client, queue):
    await push(client, queue, "a")

    _, body = await pop_body(client, queue, consumerGroup="g")

    assert not {"conflation", "conflationConflict"} & set(body)


# Acks by message id


async def test_a_message_may_be_named_by_its_id(client, queue):
    await push(client, queue, "a", "b")
    messages = await client.pop(queue, batch=10)

    result = await client.ack(messages[0], transactionId=messages[0]["id"], leaseId="")

    assert (result["success"], result["error"]) == (True, None)
    assert (await client.ack(messages[0]))["noop"] is True


async def test_an_id_of_another_partition_is_no_message_of_this_one(client, queue):
    await push(client, queue, "a", partition="p")
    await push(client, queue, "b", partition="q")
    a, b = await client.pop(queue, batch=10, partitions=2)

    result = await client.ack(a, transactionId=b["id"])

    assert (result["success"], result["error"]) == (False, "Message not found")


async def test_an_id_that_no_message_has_yet_moves_nothing(client, queue):
    await push(client, queue, "a")
    (message,) = await client.pop(queue)
    beyond = message["id"][:-1] + "9"

    result = await client.ack(message, transactionId=beyond, leaseId="")

    assert (result["success"], result["error"]) == (False, "Message not found")


async def test_a_message_beyond_the_leased_batch_cannot_be_resolved(client, queue):
    await push(client, queue, "a", "b")
    (message,) = await client.pop(queue)
    beyond = message["id"][:-1] + "2"

    result = await client.ack(message, transactionId=beyond)

    assert result["success"] is False
    assert result["error"].startswith("unresolvable")


async def test_defect_05_an_ack_under_a_lease_that_is_not_held_changes_nothing(client, queue):
    await push(client, queue, "a")
    (message,) = await client.pop(queue)

    result = await client.ack(message, leaseId=str(uuid4()))

    assert (result["success"], result["error"]) == (False, "Invalid or expired lease")
    assert (await client.ack(message))["success"] is True
