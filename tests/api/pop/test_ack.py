"""Acknowledgments over HTTP: what moves a group on, what brings messages back, what is refused."""

import json
from itertools import permutations

import pytest

from tests.support.broker import ack_item, elapsed, payloads

RESULT_KEYS = [
    "index",
    "transactionId",
    "success",
    "error",
    "queueName",
    "partitionName",
    "leaseReleased",
    "dlq",
]


async def push_and_pop(client, queue, *its_payloads, **parameters):
    await client.push(
        *(
            {"queue": queue, "partition": "p", "payload": payload, "transactionId": f"t{payload}"}
            for payload in its_payloads
        )
    )
    return await client.pop(queue, batch=100, **parameters)


async def dead_letters(broker, queue):
    async with broker.sql() as sql:
        return await sql.fetch(
            "select d.transaction_id, d.error, d.failures, d.envelope::text, g.name as group_name "
            "from skep.dead_letter d "
            "join skep.queue q on q.id = d.queue_id "
            "join skep.consumer_group g on g.id = d.group_id "
            "where q.name = $1 order by d.id",
            queue,
        )


def outcomes(results):
    return [result["success"] for result in results]


# Answers


async def test_an_ack_is_answered_200_with_an_array_of_its_one_result(client, queue):
    (message,) = await push_and_pop(client, queue, 1)

    answer = await client.post("/api/v1/ack", ack_item(message))

    assert answer.status == 200
    (result,) = json.loads(answer.body)
    assert list(result) == RESULT_KEYS
    assert result == {
        "index": 0,
        "transactionId": "t1",
        "success": True,
        "error": None,
        "queueName": queue,
        "partitionName": "p",
        "leaseReleased": True,
        "dlq": False,
    }


async def test_a_batch_is_answered_with_its_results_in_order(client, queue):
    messages = await push_and_pop(client, queue, 1, 2, 3)

    results = await client.ack_batch(*map(ack_item, reversed(messages)))

    assert [list(result) for result in results] == [RESULT_KEYS] * 3
    assert [result["index"] for result in results] == [0, 1, 2]
    assert [result["transactionId"] for result in results] == ["t3", "t2", "t1"]
    assert outcomes(results) == [True] * 3


async def test_a_batch_of_nothing_is_answered_with_nothing(client):
    assert await client.ack_batch() == []


async def test_the_nulls_that_clients_send_count_as_left_out(client, queue):
    (message,) = await push_and_pop(client, queue, 1)
    item = ack_item(message, None, {"error": None, "leaseId": None})

    (result,) = await client.ack_batch(item, consumerGroup=None)

    assert result["success"]


# Completed


async def test_after_an_ack_of_all_the_next_messages_come(client, queue):
    messages = await push_and_pop(client, queue, 1, 2)
    await client.push_payloads(queue, 3, partition="p")
    assert await client.pop(queue) == []

    results = await client.ack_batch(*map(ack_item, messages))
    following = await client.pop(queue, batch=10)

    assert [result["leaseReleased"] for result in results] == [True, True]
    assert payloads(following) == [3]
    assert following[0]["deliveryAttempt"] == 1


async def test_an_ack_of_a_part_keeps_the_lease(client, queue):
    first, _ = await push_and_pop(client, queue, 1, 2)

    result = await client.ack(first)

    assert (result["success"], result["leaseReleased"]) == (True, False)
    assert await client.pop(queue) == []


async def test_an_ack_completes_everything_before_it(client, queue):
    messages = await push_and_pop(client, queue, 1, 2, 3)

    result = await client.ack(messages[2])

    assert result["leaseReleased"] is True
    assert await client.pop(queue) == []


@pytest.mark.parametrize("status", ["completed", "success", "acked", "ok"])
async def test_several_words_mean_completed(client, queue, status):
    (message,) = await push_and_pop(client, queue, 1)

    assert (await client.ack(message, status))["success"]
    assert await client.pop(queue) == []


async def test_a_repeated_ack_changes_nothing_and_says_so(client, queue):
    (message,) = await push_and_pop(client, queue, 1)
    await client.ack(message)

    again = await client.ack(message)

    assert (again["success"], again["error"], again["noop"]) == (True, None, True)


async def test_an_ack_of_an_older_message_moves_nothing_back(client, queue):
    messages = await push_and_pop(client, queue, 1, 2, 3)
    await client.ack(messages[1])

    late = await client.ack(messages[0])
    await client.ack(messages[2], "retry")

    assert late["noop"]
    assert payloads(await client.pop(queue, batch=10)) == [3]


async def test_an_ack_needs_no_lease_id(client, queue):
    (message,) = await push_and_pop(client, queue, 1)

    result = await client.ack(message, leaseId="")

    assert (result["success"], result["leaseReleased"]) == (True, True)


async def test_an_ack_of_what_was_acked_on_delivery_is_harmless(client, queue):
    (message,) = await push_and_pop(client, queue, 1, autoAck=True)

    assert (await client.ack(message))["success"]


async def test_an_ack_speaks_for_its_group_only(client, queue):
    (message,) = await push_and_pop(client, queue, 1, consumerGroup="a")

    await client.ack(message)

    assert await client.pop(queue, consumerGroup="a") == []
    assert payloads(await client.pop(queue, consumerGroup="b")) == [1]


async def test_the_group_of_a_batch_stands_over_those_of_its_items(client, queue):
    (message,) = await push_and_pop(client, queue, 1, consumerGroup="a")

    (result,) = await client.ack_batch(
        ack_item(message, members={"consumerGroup": "no such"}), consumerGroup="a"
    )

    assert result["success"]


# Failed


async def test_a_failed_message_comes_again_at_once_without_a_retry_delay(client, queue):
    first, _ = await push_and_pop(client, queue, 1, 2)

    result = await client.ack(first, "failed", error="boom")
    again = await client.pop(queue, batch=10)

    assert (result["success"], result["leaseReleased"], result["dlq"]) == (True, True, False)
    assert payloads(again) == [1, 2]
    assert [again[0]["deliveryAttempt"], again[0]["retryCount"]] == [2, 1]
    assert again[0]["leaseId"] != first["leaseId"]


@pytest.mark.slow
async def test_a_failed_message_comes_again_after_the_retry_delay(client, queue):
    await client.configure(queue, retryDelay=1000)
    (message,) = await push_and_pop(client, queue, 1)

    with elapsed() as since_ack:
        await client.ack(message, "failed")
        at_once = await client.pop(queue)
        (again,) = await client.pop(queue, wait=True, timeout=20_000)

    assert at_once == []
    assert again["deliveryAttempt"] == 2
    assert since_ack.seconds > 0.9


async def test_a_message_that_fails_too_often_becomes_a_dead_letter(client, queue, broker):
    await client.configure(queue, retryLimit=1, retryDelay=0)
    (message,) = await push_and_pop(client, queue, 1, consumerGroup="g")
    retried = await client.ack(message, "failed", error="first")
    (message,) = await client.pop(queue, consumerGroup="g")
    await client.push_payloads(queue, 2, partition="p")

    buried = await client.ack(message, "failed", error="second")

    assert [retried["dlq"], buried["dlq"]] == [False, True]
    assert buried["success"]
    (letter,) = await dead_letters(broker, queue)
    assert [letter["transaction_id"], letter["group_name"]] == ["t1", "g"]
    assert [letter["error"], letter["failures"]] == ["second", 2]
    assert json.loads(letter["envelope"])["data"] == 1
    assert payloads(await client.pop(queue, consumerGroup="g", batch=10)) == [2]


async def test_a_dead_letter_without_an_error_says_why_it_is_one(client, queue, broker):
    await client.configure(queue, retryLimit=0)
    (message,) = await push_and_pop(client, queue, 1)

    await client.ack(message, "failed", error=None)

    (letter,) = await dead_letters(broker, queue)
    assert letter["error"] == "Retries exhausted"


async def test_a_message_may_be_sent_to_the_dead_letters_at_once(client, queue, broker):
    first, _ = await push_and_pop(client, queue, 1, 2)

    result = await client.ack(first, "dlq", error="not mine")
    letters = await dead_letters(broker, queue)

    assert (result["success"], result["dlq"]) == (True, True)
    assert [letter["transaction_id"] for letter in letters] == ["t1"]


async def test_retry_gives_back_at_once_and_spends_no_budget(client, queue, broker):
    await client.configure(queue, retryLimit=0, retryDelay=60_000)
    (message,) = await push_and_pop(client, queue, 1)

    for attempt in (2, 3):
        await client.ack(message, "retry")
        (message,) = await client.pop(queue)
        assert message["deliveryAttempt"] == attempt

    assert await dead_letters(broker, queue) == []


@pytest.mark.parametrize("order", [*permutations(range(3))])
async def test_a_failure_in_the_middle_stops_the_batch_there(client, queue, order):
    await client.configure(queue, retryDelay=0)
    first, second, third = await push_and_pop(client, queue, 1, 2, 3)
    items = [ack_item(first), ack_item(second, "failed"), ack_item(third)]

    results = await client.ack_batch(*(items[place] for place in order))

    assert outcomes(results) == [True, True, True]
    assert results[order.index(2)]["redelivered"] is True
    assert payloads(await client.pop(queue, batch=10)) == [2, 3]


async def test_only_the_message_that_failed_uses_up_its_retries(client, queue, broker):
    await client.configure(queue, retryLimit=1, retryDelay=0)
    messages = await push_and_pop(client, queue, 1, 2)
    await client.ack(messages[0], "failed")
    messages = await client.pop(queue, batch=10)
    await client.ack_batch(ack_item(messages[0]), ack_item(messages[1], "failed"))
    (message,) = await client.pop(queue, batch=10)

    result = await client.ack(message)

    assert payloads([message]) == [2]
    assert result["success"]
    assert await dead_letters(broker, queue) == []


# Refused


async def test_a_stale_lease_is_refused_while_the_rest_of_the_batch_succeeds(client, queue):
    await client.push_payloads(queue, 1, partition="a")
    await client.push_payloads(queue, 2, partition="b")
    stale, held = await client.pop(queue, batch=10, partitions=2)
    await client.ack(stale, "retry")
    await client.pop(queue)

    results = await client.ack_batch(ack_item(stale), ack_item(held))

    assert outcomes(results) == [False, True]
    assert list(results[0]) == RESULT_KEYS
    assert results[0]["error"] == "Invalid or expired lease"
    assert [results[0]["queueName"], results[0]["partitionName"]] == [queue, stale["partition"]]
    assert [results[0]["leaseReleased"], results[1]["leaseReleased"]] == [False, True]


async def test_a_failure_reported_late_does_not_undo_what_was_completed(client, queue):
    (message,) = await push_and_pop(client, queue, 1)
    await client.ack(message)

    late = await client.ack(message, "failed")

    assert late["success"] is False
    assert late["error"].startswith("already committed")
    assert await client.pop(queue) == []


UNKNOWN = "00000000-0000-8fff-8000-000000000000"


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"leaseId": "00000000-0000-4000-8000-000000000007"}, "Invalid or expired lease"),
        ({"leaseId": "not a lease"}, "Invalid or expired lease"),
        ({"transactionId": "unknown"}, "Message not found"),
        ({"partitionId": "not a partition"}, "Message not found"),
        ({"partitionId": UNKNOWN}, "consumer not found"),
        ({"consumerGroup": "unknown"}, "consumer not found"),
        ({"consumerGroup": "g" * 256}, "consumer not found"),
        ({"consumerGroup": "g\0"}, "consumer not found"),
        ({"status": "Completed"}, "unknown status 'Completed'"),
    ],
    ids=str,
)
async def test_what_cannot_be_done_is_refused_with_a_reason(client, queue, members, error):
    good, bad = await push_and_pop(client, queue, 1, 2)

    results = await client.ack_batch(ack_item(good), {**ack_item(bad, "failed"), **members})

    assert outcomes(results) == [True, False]
    assert results[1]["error"].startswith(error)
    assert results[1]["transactionId"] == members.get("transactionId", "t2")


# Defects of the broker whose API this is


async def test_defect_03_a_failed_message_of_a_mixed_batch_is_not_lost(client, queue):
    first, second = await push_and_pop(client, queue, 1, 2)

    await client.ack_batch(ack_item(first, "retry"), ack_item(second))

    assert payloads(await client.pop(queue, batch=10)) == [1, 2]


async def test_defect_04_an_ack_of_an_older_message_does_not_move_the_group_back(client, queue):
    first, second, _ = await push_and_pop(client, queue, 1, 2, 3)
    await client.ack(second)

    result = await client.ack(first)

    assert (result["noop"], result["leaseReleased"]) == (True, False)
    assert (await client.ack(second))["noop"] is True


async def test_defect_06_an_ack_for_a_group_that_does_not_exist_says_so(client, queue):
    (message,) = await push_and_pop(client, queue, 1)

    result = await client.ack(message, consumerGroup="nobody", leaseId="")

    assert (result["success"], result["error"]) == (False, "consumer not found")


async def test_defect_15_the_failures_of_one_message_are_not_counted_for_another(
    broker, client, queue
):
    await client.configure(queue, retryLimit=1, retryDelay=0)
    await client.push_payloads(queue, 1, 2)
    for _ in range(2):
        (first,) = await client.pop(queue)
        await client.ack(first, "failed")
    (second,) = await client.pop(queue)

    result = await client.ack(second, "failed")

    assert (second["data"], result["dlq"]) == (2, False)
    assert len(await dead_letters(broker, queue)) == 1
