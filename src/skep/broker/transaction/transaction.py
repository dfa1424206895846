"""Transaction: acknowledge, push and change keys, all or nothing.

A request is checked, its partitions are provisioned, and it is settled by a call of its own:
transactions wait for each other only for rows they share. One that is refused is answered with
`success: false`, and nothing happened; only a malformed request is an error.

Repeating it after a lost answer is safe: the call is recorded under the transaction's id.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from uuid import uuid4

import msgspec

from skep.broker.kv.accept import KeyState, Outcome
from skep.broker.kv.answer import lost_operation, render_rider
from skep.broker.kv.operations import Plan
from skep.broker.overload.fallback import Client, Fallback, is_passing, push_kind
from skep.broker.overload.waiting_line import Kind, Turn
from skep.broker.transaction import settlement
from skep.model.errors import BadRequest, Overloaded, SkepError
from skep.model.ids import message_id, partition_uuid
from skep.model.limits import REQUIRED_LEASES_MAX, TRANSACTION_OPERATIONS_MAX
from skep.model.priorities import Priority
from skep.model.wire import AckItem, PushItem, TransactionBody, TransactionPush, flat_item

TRANSACT_CALL: Final = (
    "select * from skep.transact("
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, "
    "$21, $22, $23, $24, $25, $26)"
)
_OPERATION_WEIGHT: Final = 512
"""What an operation weighs that stands in line for room, without the value of a key."""

_NOT_DONE: Final = "not done: the transaction failed"

_KEY_COLUMNS: Final = (
    *("kv_applied", "kv_reason", "kv_value", "kv_version", "kv_expires_at", "kv_updated_at"),
)

NO_KEYS: Final = Plan([], [], [], writes=False)

_encode = msgspec.json.encode

Staged: TypeAlias = settlement.StagedPush | settlement.StagedAck


class Transaction:
    """Accept transactions."""

    def __init__(
        self, stager: settlement.Stager, settler: settlement.Settler, fallback: Fallback
    ) -> None:
        self._fallback: Final = fallback
        self._stager: Final = stager
        self._settler: Final = settler

    def commit(
        self,
        body: TransactionBody,
        client: Client,
        *,
        producer: str | None = None,
        keys: Plan | None = None,
    ) -> None:
        """Do all of it or nothing, now or when there is room; the client is answered once.

        `keys` are its operations on keys, checked.

        Raises:
            BadRequest: The request is malformed.
            Unavailable: Messages of a partition that came first are not stored yet.
        """
        fallback = self._fallback
        deadline = fallback.deadline()
        plan = keys or NO_KEYS

        def answer(result: bytes | SkepError) -> None:
            if isinstance(result, bytes):
                client.respond(200, result)
            elif is_passing(result):
                stand(push_kind(result))
            else:
                client.refuse(result)

        def attempt() -> None:
            self._submit(body, answer, producer, plan)

        def stand(kind: Kind) -> None:
            weight = _OPERATION_WEIGHT * (1 + len(body.operations)) + _weight_of(plan)
            turn = Turn(attempt, client.refuse)
            fallback.stand(kind, turn, weight=weight, deadline=deadline)

        if fallback.waited_for(Priority.PUSH) is not None:
            stand(Priority.PUSH)
            return
        try:
            attempt()
        except Overloaded:
            stand(Priority.PUSH)

    def _submit(
        self,
        body: TransactionBody,
        answer: Callable[[bytes | SkepError], None],
        producer: str | None,
        keys: Plan,
    ) -> None:
        """Check the operations and submit them; `answer` gets the answer's body or an error."""
        items = _flatten(body, has_keys=bool(keys.steps))
        lease_texts = list(dict.fromkeys(filter(None, body.required_leases or ())))
        if len(lease_texts) > REQUIRED_LEASES_MAX:
            raise BadRequest(f"more than {REQUIRED_LEASES_MAX} required leases")
        staged: list[Staged] = []
        try:
            required = [settlement.parse_lease_id(text) for text in lease_texts]
        except settlement.Unacceptable as refusal:
            answer(_render_refusal(f"Required lease not held: {refusal.message}", items))
            return
        try:
            # When an item is refused, the list holds those before it.
            staged.extend(self._stage(item, lease_texts, producer) for item in items)
        except settlement.Unacceptable as refusal:
            text = f"ACK operation failed: {refusal.message}"
            answer(_render_refusal(text, items, len(staged), refusal.message))
            return
        operations = settlement.Operations(
            [each for each in staged if isinstance(each, settlement.StagedPush)],
            [each for each in staged if isinstance(each, settlement.StagedAck)],
            required,
            _weight_of(keys),
        )

        id_ = uuid4()

        def settled(ending: settlement.Settled | SkepError) -> None:
            is_known = isinstance(ending, settlement.Settled)
            answer(_render(str(id_), staged, ending, keys) if is_known else ending)

        self._settler.submit(
            "transaction",
            settlement.Settlement(id_, TRANSACT_CALL, operations, settled, _key_columns(keys)),
        )

    def _stage(
        self, item: PushItem | AckItem, lease_texts: Sequence[str], producer: str | None
    ) -> Staged:
        if isinstance(item, PushItem):
            return self._stager.stage_push(item, producer=producer)
        return self._stager.stage_ack(item, lease_texts)


def _weight_of(keys: Plan) -> int:
    """Return about how many bytes operations on keys hold on to."""
    return sum(_OPERATION_WEIGHT + len(step.value or "") for step in keys.steps)


def _key_columns(keys: Plan) -> Sequence[object]:
    """Return the arguments for operations on keys."""
    steps = keys.steps
    named = sorted({step.key for step in steps})
    slot_by_key = {key: slot for slot, key in enumerate(named, 1)}
    return (
        [ns for ns, _ in named],
        [key for _, key in named],
        [slot_by_key[step.key] for step in steps],
        [step.op for step in steps],
        [step.value for step in steps],
        [step.expect for step in steps],
        [step.ttl_s for step in steps],
        [step.is_required for step in steps],
        [step.min for step in steps],
        [step.max for step in steps],
    )


def _outcome_of_keys(settled: settlement.Settled) -> Outcome:
    parts = (settled.row[name] or () for name in _KEY_COLUMNS)
    return Outcome([KeyState(*each) for each in zip(*parts, strict=True)], ())


def _flatten(body: TransactionBody, *, has_keys: bool) -> list[PushItem | AckItem]:
    """Return the operations one by one: a push of many items is many operations."""
    if body.timers or body.positions:
        raise BadRequest("transactions do not take timers and positions; nothing was done")
    if not body.operations and has_keys:
        return []
    if not body.operations:
        raise BadRequest("operations array cannot be empty")
    items: list[PushItem | AckItem] = []
    for operation in body.operations:
        if not isinstance(operation, TransactionPush):
            items.append(operation)
        elif operation.items is not None:
            items += operation.items
        elif operation.queue is not None:
            items.append(flat_item(operation))
        else:
            raise BadRequest("a push needs items, or a queue and a payload")
    if not items:
        raise BadRequest("operations array cannot be empty")
    if len(items) > TRANSACTION_OPERATIONS_MAX:
        raise BadRequest(f"more than {TRANSACTION_OPERATIONS_MAX} operations in one transaction")
    return items


def _render_answer(
    transaction_id: str, error: str | None, results: Sequence[dict[str, Any] | msgspec.Raw]
) -> bytes:
    """Render the answer to a transaction that was not malformed."""
    answer: dict[str, Any] = {"transactionId": transaction_id, "success": error is None}
    if error is not None:
        answer["error"] = error
    return _encode({**answer, "results": results})


def _render(
    transaction_id: str, staged: Sequence[Staged], settled: settlement.Settled, keys: Plan
) -> bytes:
    if settled.refusal is None:
        riders = render_rider(keys, _outcome_of_keys(settled), len(staged)) if keys.steps else ()
        return _render_answer(transaction_id, None, [*_results(staged, settled), *riders])
    if settled.refusal == "kv_precondition":
        place, state = lost_operation(keys, _outcome_of_keys(settled))
        return _encode(
            {
                "transactionId": transaction_id,
                "success": False,
                "ok": False,
                "reason": "kv_precondition",
                "error": f"A required operation on keys was not applied: {state.reason}",
                "failedIndex": len(staged) + place,
                "kvReason": state.reason,
                "version": state.version,
                "value": msgspec.Raw((state.value or "null").encode()),
                "results": [],
            }
        )
    return _render_answer(transaction_id, *_refused(staged, settled))


def _results(staged: Sequence[Staged], settled: settlement.Settled) -> list[dict[str, Any]]:
    acks, pushes = iter(settled.acks), iter(settled.pushes)
    results: list[dict[str, Any]] = []
    for index, each in enumerate(staged):
        if isinstance(each, settlement.StagedPush):
            results.append({"index": index, **_push_result(each, next(pushes))})
            continue
        outcome = next(acks).outcome
        result = _ack_result(index, each.transaction_id, None)
        result["dlq"] = outcome == "dead_lettered"
        if outcome in {"noop", "redelivered"}:
            result[outcome] = True
        results.append(result)
    return results


def _push_result(push: settlement.StagedPush, settled: settlement.PushSettled) -> dict[str, Any]:
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


def _ack_result(index: int, transaction_id: str | None, error: str | None) -> dict[str, Any]:
    return {
        "index": index,
        "type": "ack",
        "success": error is None,
        "transactionId": transaction_id,
        "error": error,
        "dlq": False,
    }


def _refused(
    staged: Sequence[Staged], settled: settlement.Settled
) -> tuple[str, list[dict[str, Any]]]:
    """Return the error, and a result for each operation."""
    assert settled.refusal is not None
    text = settlement.TEXT_BY_REFUSAL[settled.refusal]
    if settled.refusal == "required_lease":
        return f"Required lease not held: {text}", _undone(staged, None, text)
    refused_at = [
        index for index, each in enumerate(staged) if isinstance(each, settlement.StagedAck)
    ][settled.refused_position]
    return f"ACK operation failed: {text}", _undone(staged, refused_at, text)


def _undone(
    operations: Sequence[Staged | PushItem | AckItem], refused_at: int | None, text: str
) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for index, each in enumerate(operations):
        error = text if index == refused_at else _NOT_DONE
        result = _ack_result(index, each.transaction_id or "", error)
        if isinstance(each, settlement.StagedPush | PushItem):
            queue = each.queue if isinstance(each, PushItem) else each.partition_key[0]
            result = {**result, "type": "push", "queueName": queue}
        results.append(result)
    return results


def _render_refusal(
    error: str, items: Sequence[PushItem | AckItem], refused_at: int | None = None, text: str = ""
) -> bytes:
    """Answer a transaction that can never succeed."""
    return _render_answer(str(uuid4()), error, _undone(items, refused_at, text))
