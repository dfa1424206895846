"""Carry out the operations that were accepted while there was no room.

Every process does it; the database gives each the oldest operations of some partitions, the
important ones first. The effect of an operation and its end are one transaction, so it is done
once, even if a process dies in between. One that fails is tried again after a pause while its
partition waits. After some attempts it is given up and kept, with its error, for an operator.

One batch at a time, regardless of the load: a lasting overload must not hold up forever what was
accepted in it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID, uuid4

import msgspec

from skep.broker.ack.statuses import ack_columns
from skep.broker.cluster.wakeups import Announcer
from skep.broker.overload.deferral import ACK_TYPE, PRIORITY_BY_TYPE, AckPayload, PushPayload
from skep.broker.polling_loop import PollingLoop
from skep.broker.pop.lease_memory import LeaseMemory
from skep.broker.transaction.settlement import Operations, Settler, StagedPush
from skep.db.access.errors import NotExecuted, OutcomeUnknown
from skep.db.access.slots import Caller
from skep.model.encryption import is_sealed
from skep.model.errors import SkepError, Unavailable

_log = logging.getLogger(__name__)

CLAIM_CALL: Final = "select * from skep.claim_operations($1, $2, $3, $4, $5, $6)"
PROCESS_PUSHES_CALL: Final = (
    "select * from skep.process_pushes("
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)"
)
PROCESS_ACKS_CALL: Final = (
    "select * from skep.process_acks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)
POSTPONE_CALL: Final = "select skep.postpone_operation($1, $2, $3, $4, $5, $6)"

PRIORITIES: Final = sorted(PRIORITY_BY_TYPE.values())

PARTITIONS_PER_CLAIM: Final = 100
PER_PARTITION: Final = 100
BYTES_PER_CLAIM: Final = 4 << 20
"""Together they bound how long a call holds its partitions and how much memory it takes."""

IDLE_S: Final = 2.0
"""How often to check without a wake-up: for what another process left behind."""

RECOVERY_S: Final = 0.5
"""How long to leave a failing database alone."""

DATABASE_TRIES: Final = 5

PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 30.0
"""From the first failure of an operation to the next attempt; it doubles up to the other."""

GONE: Final = "the queue was deleted"
TIMED_OUT: Final = "each attempt timed out"

_unpack_push = msgspec.msgpack.Decoder(PushPayload).decode
_unpack_acks = msgspec.msgpack.Decoder(AckPayload).decode


class ProcessorLimits(NamedTuple):
    """When a processor gives up."""

    timeout_s: float
    """After so long another process may claim a claimed operation."""
    retries_max: int
    """Attempts beyond the first that an operation gets."""


class ClaimedOperation(msgspec.Struct):
    """An operation this process may carry out."""

    id: UUID
    type: str
    queue: str
    partition: str
    partition_id: int
    retries: int
    is_gone: bool
    payload: bytes

    @property
    def order_key(self) -> tuple[str, int]:
        """What its order is kept in."""
        return self.type, self.partition_id


class ClaimLost(SkepError):
    """Another worker claimed the operations."""

    code = "claim_lost"


@dataclass(slots=True, eq=False)
class OperationProcessor:
    """Claims operations and carries them out, in a task of its own."""

    caller: Caller
    settler: Settler
    leases: LeaseMemory
    announcer: Announcer
    open_envelope: Callable[[bytes], bytes]
    limits: ProcessorLimits
    completed_count: int = 0
    failed_count: int = 0
    _loop: PollingLoop = field(init=False)
    _next_at: float = field(default=0.0, init=False)
    _is_wanted: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._loop = PollingLoop(self._process, lambda: self._next_at)

    def start(self) -> None:
        """Begin to process operations."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop. A call under way may end; one that is cut off, the database ends or undoes."""
        await self._loop.stop()

    def hear_of_operations(self) -> None:
        """Process now: there are operations."""
        self._is_wanted, self._next_at = True, 0.0
        self._loop.poll_sooner()

    async def _process(self) -> None:
        """Carry out a claim, and say when to claim again: at once if it brought something."""
        self._is_wanted = False
        pause_s = IDLE_S
        try:
            if await self.work():
                pause_s = 0.0
        except SkepError as error:
            _log.warning("cannot process operations: %s", error)
            pause_s = RECOVERY_S
        except Exception:  # noqa: BLE001 -- a bug must not end the loop: partitions would wait forever
            _log.exception("a defect stopped processing operations")
            pause_s = RECOVERY_S
        if not self._is_wanted:
            self._next_at = asyncio.get_running_loop().time() + pause_s

    async def work(self) -> bool:
        """Carry out what one claim brings; tell whether that was anything.

        Raises:
            SkepError: The database failed. What was claimed can be claimed again in time.
        """
        claim_id = uuid4()
        rows = await self.caller.call(
            CLAIM_CALL,
            claim_id,
            PRIORITIES,
            PARTITIONS_PER_CLAIM,
            PER_PARTITION,
            BYTES_PER_CLAIM,
            self.limits.timeout_s,
        )
        claimed = [ClaimedOperation(*row) for row in rows]
        for _, operations in groupby(claimed, key=lambda operation: operation.type):
            await self._carry_out(claim_id, await self._give_up_hopeless(claim_id, operations))
        return bool(claimed)

    async def _give_up_hopeless(
        self, claim_id: UUID, operations: Iterable[ClaimedOperation]
    ) -> list[ClaimedOperation]:
        """Give up the partitions whose oldest operation cannot be done; return the others."""
        hopeful: list[ClaimedOperation] = []
        for _, in_partition in groupby(operations, key=lambda operation: operation.order_key):
            partition = list(in_partition)
            first = partition[0]
            if first.is_gone:
                await self._postpone(claim_id, first, GONE, retries_max=-1)
            elif first.retries > self.limits.retries_max:
                await self._postpone(claim_id, first, TIMED_OUT)
            else:
                hopeful += partition
        return hopeful

    async def _carry_out(self, claim_id: UUID, operations: Sequence[ClaimedOperation]) -> None:
        """Carry out operations of one type together; if that fails, find which one fails."""
        if not operations:
            return
        try:
            await self._execute_patiently(claim_id, operations)
        except ClaimLost:
            _log.info("claim of %d operations lost to another worker", len(operations))
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 -- any failure is some operation's
            await self._isolate(claim_id, operations, error)
        else:
            self.completed_count += len(operations)

    async def _execute_patiently(
        self, claim_id: UUID, operations: Sequence[ClaimedOperation]
    ) -> None:
        """Carry out operations, and again if the database could not be reached.

        Repeating is safe: what was done is not claimed any more.
        """
        for _ in range(DATABASE_TRIES):
            try:
                await self._execute(claim_id, operations)
            except (NotExecuted, OutcomeUnknown) as error:
                _log.info("retrying operations: %s", error)
                await asyncio.sleep(RECOVERY_S)
            else:
                return
        raise Unavailable

    async def _isolate(
        self, claim_id: UUID, operations: Sequence[ClaimedOperation], error: Exception
    ) -> None:
        partitions = [
            list(partition) for _, partition in groupby(operations, key=lambda each: each.order_key)
        ]
        if len(partitions) > 1:
            for partition in partitions:
                await self._carry_out(claim_id, partition)
        elif len(operations) > 1:
            # Only the first is certainly claimed; the next claim brings those behind it.
            await self._carry_out(claim_id, operations[:1])
        else:
            if not isinstance(error, SkepError):
                _log.error("a defect failed an operation", exc_info=error)
            await self._postpone(claim_id, operations[0], str(error) or type(error).__name__)

    async def _postpone(
        self,
        claim_id: UUID,
        operation: ClaimedOperation,
        error: str,
        *,
        retries_max: int | None = None,
    ) -> None:
        ((status,),) = await self.caller.call(
            POSTPONE_CALL,
            operation.id,
            claim_id,
            error.replace("\0", ""),
            self.limits.retries_max if retries_max is None else retries_max,
            PAUSE_S,
            PAUSE_S_MAX,
        )
        if status == "failed":
            self.failed_count += 1
            _log.warning("gave up operation %s: %s", operation.id, error)

    async def _execute(self, claim_id: UUID, operations: Sequence[ClaimedOperation]) -> None:
        if operations[0].type == ACK_TYPE:
            await self._record_acks(claim_id, operations)
        else:
            await self._store_pushes(claim_id, operations)

    async def _store_pushes(self, claim_id: UUID, operations: Sequence[ClaimedOperation]) -> None:
        pushes: list[StagedPush] = []
        numbers: list[int] = []
        for number, operation in enumerate(operations, start=1):
            staged = self._staged(operation)
            pushes += staged
            numbers += [number] * len(staged)
        settled = await self.settler.settle(
            PROCESS_PUSHES_CALL,
            [[operation.id for operation in operations], claim_id, numbers],
            Operations(pushes, [], []),
            is_repeated=True,
            with_places=True,
        )
        if settled.refusal is not None:
            raise ClaimLost

    def _staged(self, operation: ClaimedOperation) -> list[StagedPush]:
        """Return the messages of an operation, unsealed for the current rules to apply."""
        payload = _unpack_push(operation.payload)
        partition_key = (operation.queue, operation.partition)
        return [
            StagedPush(
                partition_key,
                transaction_id,
                trace_id,
                key,
                self.open_envelope(envelope) if is_sealed(envelope) else envelope,
            )
            for transaction_id, trace_id, key, envelope in zip(
                payload.transaction_ids,
                payload.trace_ids,
                payload.keys,
                payload.envelopes,
                strict=True,
            )
        ]

    async def _record_acks(self, claim_id: UUID, operations: Sequence[ClaimedOperation]) -> None:
        sent = [
            (number, row)
            for number, operation in enumerate(operations, start=1)
            for row in _unpack_acks(operation.payload).rows
        ]
        rows = [row for _, row in sent]
        answers = await self.caller.call(
            PROCESS_ACKS_CALL,
            [operation.id for operation in operations],
            claim_id,
            [number for number, _ in sent],
            *ack_columns(rows),
        )
        if answers and answers[0][0] is None:
            raise ClaimLost
        ready: dict[int, set[int]] = {}
        for item, _, queue_id, _, _, lease_released, has_more in answers:
            row = rows[int(item) - 1]
            if lease_released and row.lease_text:
                self.leases.forget(row.lease_text, row.partition_id)
            if has_more:
                ready.setdefault(queue_id, set()).add(row.partition_id)
        for queue_id, partitions in ready.items():
            self.announcer.announce(queue_id, len(partitions))
