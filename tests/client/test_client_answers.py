"""What the client does with answers that are not simply fine: busy, queued, denied, lost."""

import asyncio
import gc
import weakref

import pytest

from skep.client import (
    AccessDenied,
    AsyncClient,
    BadRequest,
    NotFound,
    OutcomeUnknown,
    QueueFull,
    Refused,
    Stopped,
    TransactionFailed,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from tests.client.support.scripted import listening, scripted

QUEUED = (201, [{"status": "queued", "queueName": "q", "transaction_id": "t"}])
FULL = (429, {"error": "the queue is full", "code": "queue_full"}, "retry-after: 0.01\r\n")
ACCEPTED = (202, {"operationId": "op-1", "queuePosition": 3, "estimatedWait": 0.5})
POPPED = {
    "messages": [
        {
            "id": "m",
            "transactionId": "t",
            "data": 1,
            "createdAt": "2026-01-01T00:00:00Z",
            "partition": "p",
            "partitionId": "pid",
            "leaseId": "lease-7",
            "consumerGroup": "g",
        }
    ]
}


def operation(status, **members):
    return (200, {"operationId": "op-1", "status": status, **members})


async def test_a_full_queue_is_asked_again_after_the_time_it_names():
    async with scripted(FULL, FULL, QUEUED) as broker, AsyncClient(broker.url) as client:
        result = await client.push("q", 1)

    assert result.status == "queued"
    assert len(broker.requests) == 3


async def test_a_full_queue_is_an_error_for_those_who_want_to_know():
    async with scripted(FULL) as broker, AsyncClient(broker.url, retry_on_429=False) as client:
        with pytest.raises(QueueFull, match="the queue is full"):
            await client.push("q", 1)

    assert len(broker.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadRequest),
        (404, NotFound),
        (409, Refused),
        (401, AccessDenied),
        (418, UnexpectedAnswer),
    ],
)
async def test_a_refusal_is_never_repeated(status, error):
    async with scripted((status, {"error": "no"})) as broker, AsyncClient(broker.url) as client:
        with pytest.raises(error, match="no"):
            await client.push("q", 1)

    assert len(broker.requests) == 1


async def test_a_broker_that_is_away_is_given_up_after_so_many_tries():
    away = (503, {"error": "away", "code": "unavailable"})
    async with (
        scripted(away) as broker,
        AsyncClient(broker.url, retries=2, max_retry_delay=0.01) as client,
    ):
        with pytest.raises(Unavailable, match="away"):
            await client.push("q", 1)

    assert len(broker.requests) == 3


async def test_a_broker_that_does_not_answer_in_time_is_unreachable():
    async with (
        listening(asyncio.Protocol) as url,
        AsyncClient(url, retries=0, timeout_s=0.05) as client,
    ):
        with pytest.raises(Unreachable, match="in time"):
            await client.push("q", 1)


async def test_a_broker_that_hangs_up_is_unreachable():
    async with scripted(None) as broker, AsyncClient(broker.url, retries=0) as client:
        with pytest.raises(Unreachable, match="closed"):
            await client.push("q", 1)


async def test_a_queued_push_is_waited_for():
    answers = (ACCEPTED, operation("waiting"), operation("completed", answer=QUEUED[1]))
    async with (
        scripted(*answers) as broker,
        AsyncClient(broker.url, queued_operation_behavior="poll") as client,
    ):
        result = await client.push("q", 1)

    assert result.status == "queued"
    assert b"Prefer: respond-async" in broker.requests[0]
    assert broker.paths[1:] == ["/api/v1/operations/op-1"] * 2


async def test_a_queued_push_may_be_returned_and_looked_at_later():
    answers = (ACCEPTED, operation("processing"), operation("completed", answer=QUEUED[1]))
    async with (
        scripted(*answers) as broker,
        AsyncClient(broker.url, queued_operation_behavior="return") as client,
    ):
        results = await client.push_many("q", [1])
        assert results.operation is not None
        shown = await client.operation(results.operation.operation_id)
        finished = await client.wait_for_operation(results.operation)

    assert results.operation.queue_position == 3
    assert not shown.is_over
    assert [result.status for result in finished] == ["queued"]
    with pytest.raises(Unavailable, match="op-1"):
        len(results)


async def test_a_queued_push_that_is_given_up_raises():
    answers = (ACCEPTED, operation("failed", error="too often"))
    async with scripted(*answers) as broker, AsyncClient(broker.url) as client:
        with pytest.raises(Refused, match="too often"):
            await client.push("q", 1)

    assert b"Prefer" not in broker.requests[0]


async def test_the_token_is_asked_for_each_time():
    tokens = iter(["first", "second"])
    async with (
        scripted(QUEUED) as broker,
        AsyncClient(broker.url, token=lambda: next(tokens), headers={"X-Tenant": "a"}) as client,
    ):
        await client.push("q", 1)
        await client.push("q", 2)

    assert b"Authorization: Bearer first\r\n" in broker.requests[0]
    assert b"Authorization: Bearer second\r\n" in broker.requests[1]
    assert b"X-Tenant: a\r\n" in broker.requests[0]


async def test_a_transaction_names_the_leases_it_depends_on():
    committed = (200, {"transactionId": "x", "success": True, "results": []})
    async with scripted((200, POPPED), committed) as broker, AsyncClient(broker.url) as client:
        (message,) = await client.pop("q", group="g")
        async with client.transaction() as transaction:
            transaction.ack(message)
            transaction.push("r", 2)

    body = broker.bodies()[1]
    assert body["requiredLeases"] == ["lease-7"]
    assert [operation["type"] for operation in body["operations"]] == ["push", "ack"]
    assert body["operations"][1]["leaseId"] == "lease-7"
    assert body["operations"][1]["consumerGroup"] == "g"


async def test_a_transaction_whose_answer_was_lost_is_of_unknown_outcome():
    refused = (200, {"transactionId": "x", "success": False, "error": "lease lost", "results": []})
    async with scripted(None, refused) as broker, AsyncClient(broker.url) as client:
        with pytest.raises(OutcomeUnknown, match="lease lost"):
            async with client.transaction() as transaction:
                transaction.push("r", 2)

    assert len(broker.requests) == 2


async def test_a_transaction_that_is_refused_at_once_did_not_happen():
    refused = (200, {"transactionId": "x", "success": False, "error": "lease lost", "results": []})
    async with scripted(refused) as broker, AsyncClient(broker.url) as client:
        with pytest.raises(TransactionFailed, match="lease lost"):
            async with client.transaction() as transaction:
                transaction.push("r", 2)


async def test_empty_answers_that_come_too_soon_slow_a_consumer_down():
    async with scripted((204,)) as broker, AsyncClient(broker.url) as client:
        seen = [message async for message in client.consume("q", idle_s=0.5, wait_s=30)]

    assert seen == []
    assert 2 <= len(broker.requests) <= 10


async def test_a_closed_client_says_so():
    async with scripted(QUEUED) as broker:
        client = AsyncClient(broker.url)
        await client.push("q", 1)
        await client.close()
        with pytest.raises(Stopped, match="closed"):
            await client.push("q", 2)


class MailServer(asyncio.Protocol):
    def connection_made(self, transport):
        transport.write(b"220 mail.example.org ESMTP\r\n\r\n")


async def test_a_server_that_speaks_something_else_is_unreachable():
    async with listening(MailServer) as url, AsyncClient(url, retries=0) as client:
        with pytest.raises(Unreachable):
            await client.push("q", 1)


class Witness:
    """Dies with the message that refers to it."""


async def test_messages_are_let_go_before_their_acknowledgment_is_awaited():
    witnesses, alive_at_ack = [], []
    acked = [{"transactionId": "t", "success": True}] * 3
    batch = {"messages": POPPED["messages"] * 3}
    async with scripted((200, batch), (200, acked)) as broker, AsyncClient(broker.url) as client:
        send = client.session.request

        async def request(method, *arguments, **options):
            if method == "POST":
                alive_at_ack.append(sum(witness() is not None for witness in witnesses))
            return await send(method, *arguments, **options)

        client.session.request = request
        gc.disable()  # what is let go goes at once, not with a collection
        try:
            async for message in client.consume("q", limit=3, delivery="poll"):
                message.headers = Witness()
                witnesses.append(weakref.ref(message.headers))
        finally:
            gc.enable()

    assert alive_at_ack == [1]  # the one that the loop has at hand


async def test_verdicts_that_were_taken_are_no_reason_to_complain_however_it_is_said(caplog):
    acked = (200, [{"success": True, "transactionId": "t"}])
    async with scripted((200, POPPED), acked) as broker, AsyncClient(broker.url) as client:
        seen = [message.data async for message in client.consume("q", limit=1)]

    assert seen == [1]
    assert caplog.text == ""


async def test_verdicts_that_come_too_late_are_told_to_the_log(caplog):
    acked = (200, [{"success": False, "transactionId": "t", "error": "somebody else has it"}])
    async with scripted((200, POPPED), acked) as broker, AsyncClient(broker.url) as client:
        seen = [message.data async for message in client.consume("q", limit=1)]

    assert seen == [1]
    assert "1 of 1 messages will come again: somebody else has it" in caplog.text
