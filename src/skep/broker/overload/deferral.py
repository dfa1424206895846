"""Defer: accept a push or a batch of acks that there is no room for, to be done later.

A request is prepared as far as it can be, checked by the rules of its queues and stored, one
operation for each partition, in the order of acceptance. `processor` carries the operations out.
Calls that accept are fused like all others, and have a share of the engine kept free for them.

Messages of an encrypted queue are encrypted here as well.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from skep.broker.ack.statuses import AckRow
from skep.broker.directory import Directory, Partition, PartitionProvisioner, QueueLabels
from skep.broker.overload.shares import estimated_wait_s, retry_after_s
from skep.broker.push.request import Entry
from skep.broker.push.rules import QueueRules, RuleBook
from skep.broker.push.size_limit import AdmissionGate
from skep.db.access.errors import RulesChanged
from skep.db.access.slots import Caller
from skep.engine.driver import Work
from skep.model.errors import (
    BadRequest,
    InvalidPayload,
    Overloaded,
    Refused,
    SkepError,
    Unavailable,
)
from skep.model.ids import time_ordered_uuid
from skep.model.priorities import Priority

if TYPE_CHECKING:
    from skep.broker.ack.accept import AckRequest

DEFER_CALL: Final = (
    "select * from skep.defer_operations($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
)

PUSH_TYPE: Final = "push"
ACK_TYPE: Final = "ack_batch"
PRIORITY_BY_TYPE: Final = {PUSH_TYPE: int(Priority.PUSH), ACK_TYPE: int(Priority.BATCH_ACK)}

TRIES_MAX: Final = 5
"""How often rules may change or partitions vanish under a call before it is given up."""

_REFUSAL_BY_OUTCOME: Final = {
    "full": "the operation queue is full; try again when some operations are done",
    "partition_full": "the operation queue of the partition is full; try again when some are done",
}

DeferralReason: TypeAlias = Literal["overloaded", "partition_deferred"]

_encode = msgspec.json.encode
_pack = msgspec.msgpack.encode


class PushPayload(msgspec.Struct, array_like=True):
    """The messages of a push, as the operation keeps them."""

    keys: list[bytes]
    envelopes: list[bytes]
    transaction_ids: list[str]
    trace_ids: list[str | None]


class AckPayload(msgspec.Struct, array_like=True):
    """The acks of a batch, as the operation keeps them."""

    rows: list[AckRow]


class OperationPart(msgspec.Struct):
    """What a request wants of one partition."""

    type: str
    partition_id: int
    queue: str
    partition: str
    item_count: int
    items: bytes
    """What an answer repeats of the request, as JSON."""
    payload: bytes
    rules: QueueRules | None = None
    id: UUID = msgspec.field(default_factory=lambda: time_ordered_uuid(time.time_ns() // 1_000_000))


class Accepted(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An operation that waits now."""

    operation_id: str
    type: str
    queue: str
    partition: str
    queue_position: int
    """Among the operations of its partition and type; 1 is next."""
    estimated_wait: float
    """Seconds until it is done, at the present pace."""


class AcceptedAnswer(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The request was accepted and is carried out later."""

    status: Literal["queued"] = "queued"
    reason: DeferralReason
    """Why it was not done at once: the broker is `overloaded`, or earlier operations wait for the
    partition (`partition_deferred`)."""
    note: str
    """Where to follow it, for people."""
    operation_id: str
    """Of the operation that will be done last; the only one unless there are several partitions."""
    queue_position: int
    estimated_wait: float
    operations: list[Accepted]
    """One for each partition."""
    results: list[msgspec.Raw]
    """Of the items whose outcome is known already."""


class DepthLimits(NamedTuple):
    """How many operations may wait."""

    operations: int
    per_partition: int
    bytes: int


@dataclass(slots=True, eq=False)
class PendingDeferral(Work):
    """One request to be stored as operations."""

    positions: Sequence[int]
    """Where each item stands in the request."""
    weight: int
    """About how many bytes it holds on to."""
    answer: Callable[["PendingDeferral"], None]
    parts: list[OperationPart] | None = None
    accepted: list[Accepted] = field(default_factory=list[Accepted])
    error: SkepError | None = None

    def finish(self) -> None:
        """Answer what was accepted, which may be nothing."""
        self.is_settled = True
        self.answer(self)

    def fail(self, error: SkepError) -> None:
        """Answer that nothing was accepted."""
        self.error = error
        self.finish()


@dataclass(slots=True, eq=False, kw_only=True)
class PushDeferral(PendingDeferral):
    """A push to accept."""

    entries_by_key: Mapping[tuple[str, str], Sequence[Entry]]
    """The items by queue and partition."""
    labels: QueueLabels
    refused: dict[int, SkepError] = field(default_factory=dict[int, SkepError])
    """Items that their queues do not take, by place in `positions`."""


@dataclass(slots=True, eq=False, kw_only=True)
class AckDeferral(PendingDeferral):
    """A batch of acks to accept."""

    request: "AckRequest"
    """Its rows are accepted; the others have their results."""
    names: Sequence[tuple[str | None, str | None]]
    """The transaction id and the message id of each item, as far as it has them."""


@dataclass(slots=True, eq=False)
class DeferralExecutor:
    """Executor of the operation `defer`."""

    caller: Caller
    directory: Directory
    provisioner: PartitionProvisioner
    rule_book: RuleBook
    gate: AdmissionGate
    limits: DepthLimits
    when_accepted: Callable[[Sequence[OperationPart]], None]
    accepted_count: int = 0

    async def execute(self, batch: Sequence[PendingDeferral], *, is_repeated: bool) -> None:
        """Accept the requests; what an earlier attempt accepted is recognised by its ids."""
        del is_repeated
        for _ in range(TRIES_MAX):
            pending = [work for work in batch if not work.is_settled]
            for work in pending:
                await self._prepare(work)
            pending = [work for work in pending if not work.is_settled]
            if not pending:
                return
            try:
                rows = await self._call(pending)
            except RulesChanged:
                await self._follow_rules(pending)
                continue
            self._apply(pending, {row["id"]: row for row in rows})
        for work in batch:
            if not work.is_settled:
                work.fail(Unavailable("the queue is being deleted"))

    async def _prepare(self, work: PendingDeferral) -> None:
        """Turn a request into parts, unless that was done."""
        if work.parts is not None:
            return
        try:
            if isinstance(work, PushDeferral):
                work.parts = await self._prepare_push(work)
            elif isinstance(work, AckDeferral):
                work.parts = _prepare_acks(work)
        except (BadRequest, Refused, Overloaded) as error:
            work.fail(error)
            return
        if not work.parts:
            work.finish()

    async def _prepare_push(self, work: PushDeferral) -> list[OperationPart]:
        await self.provisioner.provide(set(work.entries_by_key), work.labels)
        known = self.directory.partitions
        taken = {
            known[key]: entries
            for key, given in work.entries_by_key.items()
            if (entries := self._validate(work, known[key], given))
        }
        await self.gate.require_room(
            {partition: len(entries) for partition, entries in taken.items()}
        )
        return [self._push_part(work, partition, entries) for partition, entries in taken.items()]

    def _validate(
        self, work: PushDeferral, partition: Partition, entries: Sequence[Entry]
    ) -> list[Entry]:
        """Return what the queue takes, and note why it does not take the rest."""
        taken: list[Entry] = []
        for entry in entries:
            refusal = partition.rules.refusal_of(entry[3])
            if refusal is None:
                taken.append(entry)
            else:
                work.refused[entry[1]] = InvalidPayload(refusal)
        return taken

    def _push_part(
        self, work: PushDeferral, partition: Partition, entries: Sequence[Entry]
    ) -> OperationPart:
        rules = partition.rules
        ids = [str(msgspec.json.decode(entry[4])) for entry in entries]
        traces: list[str | None] = [msgspec.json.decode(entry[5]) for entry in entries]
        envelopes = [bytes(self.rule_book.seal(rules, entry[3])) for entry in entries]
        positions = [work.positions[entry[1]] for entry in entries]
        return OperationPart(
            type=PUSH_TYPE,
            partition_id=partition.partition_id,
            queue=partition.key[0],
            partition=partition.key[1],
            item_count=len(entries),
            items=_encode(list(zip(positions, ids, traces, strict=True))),
            payload=_pack(PushPayload([entry[2] for entry in entries], envelopes, ids, traces)),
            rules=rules,
        )

    async def _follow_rules(self, batch: Sequence[PendingDeferral]) -> None:
        parts = [part for work in batch for part in work.parts or ()]
        await self.rule_book.read(part.rules.queue_id for part in parts if part.rules is not None)
        for work in batch:
            if isinstance(work, PushDeferral):
                work.parts = None

    async def _call(self, batch: Sequence[PendingDeferral]) -> Sequence[Any]:
        sent = [(number, part) for number, work in enumerate(batch) for part in work.parts or ()]
        rules = {part.rules for _, part in sent if part.rules is not None}
        return await self.caller.call(
            DEFER_CALL,
            [part.id for _, part in sent],
            [number for number, _ in sent],
            [part.type for _, part in sent],
            [part.partition_id for _, part in sent],
            [PRIORITY_BY_TYPE[part.type] for _, part in sent],
            [part.item_count for _, part in sent],
            [part.items.decode() for _, part in sent],
            [part.payload for _, part in sent],
            [each.queue_id for each in rules],
            [each.version for each in rules],
            self.limits.operations,
            self.limits.per_partition,
            self.limits.bytes,
        )

    def _apply(self, batch: Sequence[PendingDeferral], row_by_id: Mapping[UUID, Any]) -> None:
        """Answer the requests; those of which a partition is gone stay to be tried again."""
        for work in batch:
            parts = work.parts or []
            rows = [row_by_id[part.id] for part in parts]
            outcomes = {row["outcome"] for row in rows}
            if outcomes == {"accepted"}:
                work.accepted = list(map(_accepted, parts, rows))
                self.accepted_count += len(parts)
                self.when_accepted(parts)
                work.finish()
            elif outcomes & {"gone", "again"}:
                self._drop_gone(work, {row["id"] for row in rows if row["outcome"] == "gone"})
            else:
                refusal = rows[0]
                after_s = retry_after_s(refusal["waiting"], refusal["pace_s"])
                message = _REFUSAL_BY_OUTCOME[refusal["outcome"]]
                depth = refusal["waiting"]
                work.fail(Overloaded(message, retry_after_s=after_s, queue_depth=depth))

    def _drop_gone(self, work: PendingDeferral, gone: set[UUID]) -> None:
        """Provision the partitions of a push again; an ack of a removed one has no consumer."""
        assert work.parts is not None
        lost = [part for part in work.parts if part.id in gone]
        if isinstance(work, AckDeferral):
            work.parts = [part for part in work.parts if part.id not in gone]
            ids = {part.partition_id for part in lost}
            for row in work.request.rows:
                for position in row.positions if row.partition_id in ids else ():
                    work.request.set_outcome(position, "no_group")
            if not work.parts:
                work.finish()
            return
        work.parts = None
        for part in lost:
            partition = self.directory.partitions.get((part.queue, part.partition))
            if partition is not None and partition.partition_id == part.partition_id:
                self.directory.forget_partition(partition)


def _prepare_acks(work: AckDeferral) -> list[OperationPart]:
    by_partition: dict[int, list[AckRow]] = {}
    for row in work.request.rows:
        by_partition.setdefault(row.partition_id, []).append(row)
    return [_ack_part(work, partition_id, rows) for partition_id, rows in by_partition.items()]


def _ack_part(work: AckDeferral, partition_id: int, rows: list[AckRow]) -> OperationPart:
    items = [[(work.positions[at], *work.names[at]) for at in row.positions] for row in rows]
    return OperationPart(
        type=ACK_TYPE,
        partition_id=partition_id,
        queue="",
        partition="",
        item_count=sum(map(len, items)),
        items=_encode(items),
        payload=_pack(AckPayload(rows)),
    )


def _accepted(part: OperationPart, row: Any) -> Accepted:
    return Accepted(
        operation_id=str(part.id),
        type=part.type,
        queue=row["queue"],
        partition=row["partition"],
        queue_position=row["queue_position"],
        estimated_wait=estimated_wait_s(row["waiting"], row["pace_s"]),
    )


def render_accepted(
    accepted: Sequence[Accepted], results: Iterable[bytes], reason: DeferralReason
) -> tuple[bytes, bytes]:
    """Render the answer to a request that was accepted, and the id of its last operation."""
    last = max(accepted, key=lambda each: each.queue_position)
    answer = AcceptedAnswer(
        reason=reason,
        note="Accepted, not done yet: follow it at GET /api/v1/operations/" + last.operation_id,
        operation_id=last.operation_id,
        queue_position=last.queue_position,
        estimated_wait=max(each.estimated_wait for each in accepted),
        operations=list(accepted),
        results=[msgspec.Raw(result) for result in results],
    )
    return _encode(answer), last.operation_id.encode()
