"""Execute acks: record those of many requests in one call, and answer each request."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from skep.broker.ack.accept import AckRequest
from skep.broker.ack.statuses import REFUSAL_BY_OUTCOME, ack_columns, note_outcome
from skep.broker.cluster.wakeups import Announcer
from skep.broker.pop.lease_memory import LeaseMemory
from skep.db.access.slots import Caller
from skep.telemetry.meters import Meters

ACK_CALL: Final = "select * from skep.ack_messages($1, $2, $3, $4, $5, $6, $7)"


@dataclass(slots=True, eq=False, frozen=True)
class AckExecutor:
    """Executor of the operation `ack`.

    Repeating it after a lost answer is safe: a completed ack that was recorded is a no-op, and a
    nack is fenced by its lease, which the first try ended. Only a nack that names no lease, as the
    wire allows, may count as two failures then.
    """

    caller: Caller
    leases: LeaseMemory
    announcer: Announcer
    meters: Meters = field(default_factory=Meters)

    async def execute(self, batch: Sequence[AckRequest], *, is_repeated: bool) -> None:
        """Record the acknowledgments of all requests in one call."""
        del is_repeated
        sent = [(request, row) for request in batch for row in request.rows]
        found = await self.caller.call(ACK_CALL, *ack_columns([row for _, row in sent]))
        available: dict[int, set[int]] = {}
        asked: set[tuple[AckRequest, str]] = set()
        for item, outcome, queue_id, queue, partition, lease_released, has_more in found:
            request, row = sent[int(item) - 1]
            for position in row.positions:
                request.set_outcome(
                    position,
                    outcome,
                    queue=queue,
                    partition=partition,
                    lease_released=lease_released,
                )
            if outcome == "deferred":
                request.deferred.setdefault(row.partition_id, []).extend(row.positions)
            if lease_released and row.lease_text:
                self.leases.forget(row.lease_text, row.partition_id)
            if has_more:
                available.setdefault(queue_id, set()).add(row.partition_id)
            if row.positions:
                asked.add((request, queue))
                self._count((queue, row.group), row.status, outcome, len(row.positions))
        for _, queue in asked:
            self.meters.queues.of(queue).ack_requests += 1
        self.meters.operations["ack"].messages.observe(len(sent))
        for queue_id, partitions in available.items():
            self.announcer.announce(queue_id, len(partitions))
        for request in batch:
            _finish(request)

    def _count(self, group: tuple[str, str], status: str, outcome: str, messages: int) -> None:
        meter = self.meters.queues.of(group[0])
        if status == "completed" and outcome not in REFUSAL_BY_OUTCOME:
            meter.ack_success += messages
        else:
            meter.ack_failed += messages
        if outcome == "dead_lettered":
            meter.dead_letters += messages
        note_outcome(self.meters.groups, group, outcome)


def _finish(request: AckRequest) -> None:
    """Answer a request whose rows came back; a row that did not has no such partition or group."""
    for row in request.rows:
        for position in row.positions:
            if not request.results[position]:
                request.set_outcome(position, "no_group")
    request.finish()
