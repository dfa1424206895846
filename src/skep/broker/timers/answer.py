"""Render what became of operations on timers. Pure."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from skep.broker.timers.accept import TimerState
from skep.broker.timers.operations import TimerStep
from skep.broker.timestamps import wire_time


class TimerResult(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What became of an operation."""

    index: int | msgspec.UnsetType = msgspec.UNSET
    ok: bool
    """False if there was no timer to cancel."""
    status: Literal["scheduled", "rescheduled", "cancelled", "absent"]
    queue: str
    timer_key: str
    txn: str | None
    """The transaction id of its message, by which consumers know it."""
    message_id: None = None
    """Always null: a message has no id before it has a place in the log."""
    deliver_at: str | None


class TimerAnswer(msgspec.Struct, frozen=True):
    """The results of a call, in the order of its operations."""

    results: list[TimerResult]


def results(steps: Sequence[TimerStep], states: Sequence[TimerState]) -> TimerAnswer:
    """Return the answer to a call."""
    each = zip(steps, states, strict=True)
    return TimerAnswer([result(step, state, index) for index, (step, state) in enumerate(each)])


def result(
    step: TimerStep, state: TimerState, index: int | msgspec.UnsetType = msgspec.UNSET
) -> TimerResult:
    """Return the result of an operation."""
    assert state.status in ("scheduled", "rescheduled", "cancelled", "absent")
    return TimerResult(
        index=index,
        ok=state.status != "absent",
        status=state.status,
        queue=step.queue,
        timer_key=step.timer_key,
        txn=state.transaction_id or step.transaction_id,
        deliver_at=None if state.deliver_at is None else wire_time(state.deliver_at).decode(),
    )
