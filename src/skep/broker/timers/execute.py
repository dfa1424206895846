"""Execute calls on timers: those of many clients in one transaction; see `skep.broker.once`."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from skep.broker.once import OnceExecutor, call_numbers, columns
from skep.broker.push.rules import QueueRules, RuleBook
from skep.broker.scheduled.accept import DueListener
from skep.broker.timers.accept import Prepared, TimerCall, TimerState
from skep.broker.timers.operations import TimerStep
from skep.db.access.slots import Caller
from skep.model.errors import Refused, SkepError, TimersBadRequest

QUEUES_CALL: Final = "select * from skep.timer_queues($1, $2)"
COMMIT_CALL: Final = (
    "select * from skep.timers_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
)
SETTLED_CALL: Final = "select * from skep.timers_settled($1)"

_COLUMNS: Final = ("status", "transaction_id", "deliver_at", "seconds")
_GONE: Final = "the queue was deleted meanwhile and nothing was done; send the call again"


class TimerExecutor(OnceExecutor[TimerCall]):
    """Executor of the operation `timers`."""

    settled_call = SETTLED_CALL

    def __init__(
        self, caller: Caller, rule_book: RuleBook, listener: DueListener, *, hash_seed: int
    ) -> None:
        super().__init__(caller)
        self._rule_book: Final = rule_book
        self._listener: Final = listener
        self._hash_seed: Final = hash_seed
        self.counts: Final[dict[tuple[str, ...], float]] = {}
        """Operations by what became of them."""

    async def prepare(self, batch: Sequence[TimerCall]) -> Sequence[TimerCall]:
        """Find the queues, refuse what they do not take, and encrypt where they want it."""
        steps = [step for call in batch for step in call.plan]
        rows = await self.caller.call(
            QUEUES_CALL, [step.queue for step in steps], [step.schedules for step in steps]
        )
        ids: dict[str, int] = dict(map(tuple, rows))
        rules = await self._rule_book.read(
            ids[step.queue] for step in steps if step.schedules and step.queue in ids
        )
        for call in batch:
            try:
                call.prepared = [self._prepared(call, step, ids, rules) for step in call.plan]
            except SkepError as error:
                call.fail(error)
        return [call for call in batch if not call.is_settled]

    def _prepared(
        self,
        call: TimerCall,
        step: TimerStep,
        ids: dict[str, int],
        rules_by_queue: dict[int, QueueRules],
    ) -> Prepared:
        queue_id = ids.get(step.queue)
        if not step.schedules:
            return Prepared(queue_id, None, None)
        if queue_id is None:
            raise Refused(_GONE)
        rules = rules_by_queue[queue_id]
        envelope = step.envelope(call.producer)
        if refusal := rules.refusal_of(envelope):
            raise TimersBadRequest(refusal, reason="timers_payload_refused")
        return Prepared(queue_id, step.key(self._hash_seed), self._rule_book.seal(rules, envelope))

    async def send(self, id_: UUID, patience_ms: int | None, batch: Sequence[TimerCall]) -> Any:
        """Carry out calls in one transaction and return its answer."""
        steps = [step for call in batch for step in call.plan]
        prepared = [each for call in batch for each in call.prepared]
        order = sorted(
            range(len(steps)), key=lambda at: (prepared[at].queue_id or 0, steps[at].timer_key)
        )
        (row,) = await self.caller.call(
            COMMIT_CALL,
            id_,
            patience_ms,
            call_numbers(batch),
            [at + 1 for at in order],
            *columns(
                (
                    each.queue_id,
                    step.timer_key,
                    step.partition,
                    each.key,
                    step.transaction_id,
                    each.envelope,
                    step.delay_ms,
                )
                for step, each in zip(steps, prepared, strict=True)
            ),
        )
        return row

    def finish(self, call: TimerCall, steps: slice, row: Any) -> None:
        """Answer a call from the row of the execution that carried it."""
        parts = (row[name][steps] for name in _COLUMNS)
        states = [TimerState(*each) for each in zip(*parts, strict=True)]
        if any(state.status == "gone" for state in states):
            call.fail(Refused(_GONE))
            return
        for step, state in zip(call.plan, states, strict=True):
            label = (state.status,)
            self.counts[label] = self.counts.get(label, 0) + 1
            if step.schedules and state.seconds is not None:
                self._listener.hear_of_due(state.seconds)
        call.finish(states)
