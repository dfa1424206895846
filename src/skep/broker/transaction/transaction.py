"""Transaction: acknowledge and push, all or nothing.

A request is checked, its partitions are provisioned, and it is settled by a call of its own:
transactions wait for each other only for rows they share. One that is refused is answered with
`success: false`, and nothing happened; only a malformed request is an error.

Repeating it after a lost answer is safe: the call is recorded under the transaction's id.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from uuid import uuid4

import msgspec

from skep.broker.directory import Directory, PartitionRequest
from skep.broker.transaction.settlement import (
    TEXT_BY_REFUSAL,
    Operations,
    PushSettled,
    Settled,
    Settler,
    StagedAck,
    StagedPush,
    Stager,
    Unacceptable,
    parse_lease_id,
)
from skep.db.access.slots import Caller
from skep.engine.driver import Engine, Work
from skep.model.errors import BadRequest, SkepError
from skep.model.ids import message_id, partition_uuid
from skep.model.limits import REQUIRED_LEASES_MAX, TRANSACTION_OPERATIONS_MAX
from skep.model.wire import JSON_NULL, AckItem, PushItem, TransactionBody, TransactionPush

TRANSACT_CALL: Final = (
    "select * from skep.transact("
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
)
FORGET_CALL: Final = "select skep.forget_transactions($1)"
FORGET_AGE_S: Final = 600
"""Far longer than a broker repeats a call."""
FORGET_INTERVAL_S: Final = 60.0

_NOT_DONE: Final = "not done: the transaction failed"

_encode = msgspec.json.encode

Answer: TypeAlias = Callable[["TransactionRequest"], None]
Staged: TypeAlias = StagedPush | StagedAck


class TransactionRequest(Work):
    """One client's transaction, and what became of it."""

    __slots__ = ("_answer", "body", "error", "id", "operations", "staged")

    def __init__(self, staged: Sequence[Staged], operations: Operations, answer: Answer) -> None:
        super().__init__()
        self.id: Final = uuid4()
        self.staged: Final = staged
        """The operations in the client's order, one per result."""
        self.operations: Final = operations
        self.body = b""
        self.error: SkepError | None = None
        self._answer = answer

    def finish(self, settled: Settled) -> None:
        """Answer with how it ended."""
        if settled.refusal is None:
            self._respond(None, _results(self.staged, settled))
        else:
            self._respond(*_refused(self.staged, settled))

    def fail(self, error: SkepError) -> None:
        """Answer that it is not known to have happened."""
        self.error = error
        self.is_settled = True
        self._answer(self)

    def _respond(self, error: str | None, results: Sequence[dict[str, Any]]) -> None:
        self.body = render_answer(str(self.id), error, results)
        self.is_settled = True
        self._answer(self)


def render_answer(
    transaction_id: str, error: str | None, results: Sequence[dict[str, Any]]
) -> bytes:
    """Render the answer to a transaction that was not malformed."""
    answer: dict[str, Any] = {"transactionId": transaction_id, "success": error is None}
    if error is not None:
        answer["error"] = error
    return _encode({**answer, "results": results})


class Transaction:
    """Accept transactions."""

    def __init__(self, engine: Engine, directory: Directory, stager: Stager) -> None:
        self._engine: Final = engine
        self._directory: Final = directory
        self._stager: Final = stager

    def commit(
        self,
        body: TransactionBody,
        answer: Callable[[bytes | SkepError], None],
        *,
        producer: str | None = None,
    ) -> None:
        """Do all of it or nothing; `answer` is called once, with the answer's body or an error.

        `producer` is who sent it, if that is known.

        Raises:
            BadRequest: The request is malformed.
            Overloaded: The engine is full.
        """
        items = _flatten(body)
        lease_texts = list(dict.fromkeys(filter(None, body.required_leases or ())))
        if len(lease_texts) > REQUIRED_LEASES_MAX:
            raise BadRequest(f"more than {REQUIRED_LEASES_MAX} required leases")
        staged: list[Staged] = []
        try:
            required = [parse_lease_id(text) for text in lease_texts]
        except Unacceptable as refusal:
            answer(_render_refusal(f"Required lease not held: {refusal.message}", items))
            return
        try:
            # When an item is refused, the list holds those before it.
            staged.extend(self._stage(item, lease_texts, producer) for item in items)
        except Unacceptable as refusal:
            text = f"ACK operation failed: {refusal.message}"
            answer(_render_refusal(text, items, len(staged), refusal.message))
            return
        operations = Operations(
            [each for each in staged if isinstance(each, StagedPush)],
            [each for each in staged if isinstance(each, StagedAck)],
            required,
        )
        request = TransactionRequest(
            staged, operations, lambda done: answer(done.error or done.body)
        )
        submit_when_provisioned(self._engine, self._directory, "transaction", request, operations)

    def _stage(
        self, item: PushItem | AckItem, lease_texts: Sequence[str], producer: str | None
    ) -> Staged:
        if isinstance(item, PushItem):
            return self._stager.stage_push(item, producer=producer)
        return self._stager.stage_ack(item, lease_texts)


def submit_when_provisioned(
    engine: Engine, directory: Directory, operation: str, work: Work, operations: Operations
) -> None:
    """Submit work once the partitions it pushes to exist.

    Raises:
        Overloaded: The engine is full.
    """
    missing = [key for key in operations.partition_keys() if key not in directory.partitions]
    if not missing:
        engine.submit(operation, None, operations.weight, work)
        return

    def proceed(error: SkepError | None) -> None:
        try:
            if error is not None:
                raise error
            engine.submit(operation, None, operations.weight, work)
        except SkepError as refusal:
            work.fail(refusal)

    engine.submit("provision", None, 512 * len(missing), PartitionRequest(missing, proceed))


class TransactionExecutor:
    """Executor of the operation `transaction`. A call carries one of them."""

    def __init__(self, caller: Caller, settler: Settler) -> None:
        self._caller: Final = caller
        self._settler: Final = settler
        self._forget_at = 0.0

    async def execute(self, batch: Sequence[TransactionRequest], *, is_repeated: bool) -> None:
        """Settle each transaction; one that an earlier try settled is found by its id."""
        for request in batch:
            settled = await self._settler.settle(
                TRANSACT_CALL,
                (request.id, is_repeated),
                request.operations,
                is_repeated=is_repeated,
            )
            request.finish(settled)
        await self._forget_old()

    async def _forget_old(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._forget_at:
            self._forget_at = now + FORGET_INTERVAL_S
            await self._caller.call(FORGET_CALL, FORGET_AGE_S)


def _flatten(body: TransactionBody) -> list[PushItem | AckItem]:
    """Return the operations one by one: a push of many items is many operations."""
    if body.kv or body.timers:
        raise BadRequest("this broker has no kv and timers; nothing was done")
    if not body.operations:
        raise BadRequest("operations array cannot be empty")
    items: list[PushItem | AckItem] = []
    for operation in body.operations:
        if not isinstance(operation, TransactionPush):
            items.append(
                AckItem(
                    operation.transaction_id,
                    operation.partition_id,
                    operation.status,
                    operation.error,
                    operation.lease_id,
                    operation.consumer_group,
                )
            )
        elif operation.items is None:
            items.append(_flat_push(operation))
        else:
            items += operation.items
    if not items:
        raise BadRequest("operations array cannot be empty")
    if len(items) > TRANSACTION_OPERATIONS_MAX:
        raise BadRequest(f"more than {TRANSACTION_OPERATIONS_MAX} operations in one transaction")
    return items


def _flat_push(operation: TransactionPush) -> PushItem:
    if operation.queue is None:
        raise BadRequest("a push needs items, or a queue and a payload")
    payload = operation.data if operation.payload is msgspec.UNSET else operation.payload
    return PushItem(
        operation.queue,
        operation.partition,
        JSON_NULL if isinstance(payload, msgspec.UnsetType) else payload,
        operation.transaction_id,
        operation.trace_id,
    )


def _results(staged: Sequence[Staged], settled: Settled) -> list[dict[str, Any]]:
    acks, pushes = iter(settled.acks), iter(settled.pushes)
    results: list[dict[str, Any]] = []
    for index, each in enumerate(staged):
        if isinstance(each, StagedPush):
            results.append({"index": index, **_push_result(each, next(pushes))})
            continue
        outcome = next(acks).outcome
        result = _ack_result(index, each.transaction_id, None)
        result["dlq"] = outcome == "dead_lettered"
        if outcome in {"noop", "redelivered"}:
            result[outcome] = True
        results.append(result)
    return results


def _push_result(push: StagedPush, settled: PushSettled) -> dict[str, Any]:
    partition_id = settled.partition.partition_id
    return {
        "type": "push",
        "success": True,
        "transactionId": push.transaction_id,
        "messageId": message_id(partition_id, settled.offset),
        "partitionId": partition_uuid(partition_id),
        "queueName": push.partition_key[0],
        "status": "duplicate" if settled.is_duplicate else "queued",
    }


def _ack_result(index: int, transaction_id: str, error: str | None) -> dict[str, Any]:
    return {
        "index": index,
        "type": "ack",
        "success": error is None,
        "transactionId": transaction_id,
        "error": error,
        "dlq": False,
    }


def _refused(staged: Sequence[Staged], settled: Settled) -> tuple[str, list[dict[str, Any]]]:
    """Return the error, and a result for each operation."""
    assert settled.refusal is not None
    text = TEXT_BY_REFUSAL[settled.refusal]
    if settled.refusal == "required_lease":
        return f"Required lease not held: {text}", _undone(staged, None, text)
    refused_at = [index for index, each in enumerate(staged) if isinstance(each, StagedAck)][
        settled.refused_position
    ]
    return f"ACK operation failed: {text}", _undone(staged, refused_at, text)


def _undone(
    operations: Sequence[Staged | PushItem | AckItem], refused_at: int | None, text: str
) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for index, each in enumerate(operations):
        error = text if index == refused_at else _NOT_DONE
        result = _ack_result(index, each.transaction_id or "", error)
        if isinstance(each, StagedPush | PushItem):
            queue = each.queue if isinstance(each, PushItem) else each.partition_key[0]
            result = {**result, "type": "push", "queueName": queue}
        results.append(result)
    return results


def _render_refusal(
    error: str, items: Sequence[PushItem | AckItem], refused_at: int | None = None, text: str = ""
) -> bytes:
    """Answer a transaction that can never succeed."""
    return render_answer(str(uuid4()), error, _undone(items, refused_at, text))
