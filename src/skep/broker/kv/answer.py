"""Render what became of a call on keys. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from skep.broker.kv.accept import KeyState, ListedKey, Outcome
from skep.broker.kv.execute import READ_BYTES_MAX
from skep.broker.kv.operations import KvOperation, Listing, Plan, Step
from skep.broker.timestamps import wire_time

_encode: Final = msgspec.json.encode
_NULL: Final = b"null"


def render(plan: Plan, outcome: Outcome) -> bytes:
    """Render the answer to a call: a result for each operation, in their order."""
    if outcome.is_undone:
        return _undone(plan, outcome)
    return b'{"results":[%b]}' % b",".join(_results(plan, outcome))


def render_single(plan: Plan, outcome: Outcome) -> tuple[bytes, int]:
    """Render the result of a call of one operation alone, with the version of its key."""
    (state,) = outcome.states
    return next(iter(_results(plan, outcome))), state.version


def render_rider(plan: Plan, outcome: Outcome, start: int) -> list[msgspec.Raw]:
    """Render the results of operations of a transaction, whose own results are before `start`."""
    return [
        msgspec.Raw(
            b'{"index":%d,"type":"kv","opIndex":%d,%b'
            % (start + place, place, result.partition(b",")[2])
        )
        for place, result in enumerate(_results(plan, outcome))
    ]


def lost_operation(plan: Plan, outcome: Outcome) -> tuple[int, KeyState]:
    """Return the first operation of a call that was required and not applied."""
    return min(
        (
            (step.place, state)
            for step, state in zip(plan.steps, outcome.states, strict=True)
            if step.is_required and not state.is_applied
        ),
        key=lambda lost: lost[0],
    )


def _results(plan: Plan, outcome: Outcome) -> list[bytes]:
    states: list[list[tuple[Step, KeyState]]] = [[] for _ in plan.operations]
    for step, state in zip(plan.steps, outcome.states, strict=True):
        states[step.place].append((step, state))
    pages = {
        listing.place: (listing, rows)
        for listing, rows in zip(plan.listings, outcome.listed, strict=True)
    }
    budget = _Budget()
    return [
        b'{"index":%d,"op":"%b",%b}'
        % (place, each.op.encode(), _result(each, states[place], pages.get(place), budget))
        for place, each in enumerate(plan.operations)
    ]


class _Budget:
    """The bytes of values that the reads of several keys may still return in one call."""

    def __init__(self) -> None:
        self._left = READ_BYTES_MAX

    def take(self, value: str) -> bool:
        """Whether there is room for a value; the first one always has room."""
        is_first = self._left == READ_BYTES_MAX
        if len(value) > self._left and not is_first:
            self._left = -1
            return False
        self._left -= len(value)
        return True


def _result(
    operation: KvOperation,
    states: Sequence[tuple[Step, KeyState]],
    page: tuple[Listing, Sequence[ListedKey]] | None,
    budget: _Budget,
) -> bytes:
    if page is not None:
        return _listed(*page, budget, keys_only=operation.keys_only)
    if operation.op == "getMany":
        return _many(states, budget)
    ((step, state),) = states
    return _read(step, state) if step.op == "get" else _written(step, state)


def _read(step: Step, state: KeyState) -> bytes:
    if not state.is_applied:
        return b'"found":false,"key":%b' % _encode(step.key[1])
    return b'"found":true,%b' % _row(step.key[1], state, state.value)


def _row(key: str, state: KeyState | ListedKey, value: str | None) -> bytes:
    expires = _NULL if state.expires_at is None else b'"%b"' % wire_time(state.expires_at)
    assert state.updated_at is not None
    return b'"key":%b,%b"version":%d,"expiresAt":%b,"updatedAt":"%b"' % (
        _encode(key),
        b"" if value is None else b'"value":%b,' % value.encode(),
        state.version,
        expires,
        wire_time(state.updated_at),
    )


def _many(states: Sequence[tuple[Step, KeyState]], budget: _Budget) -> bytes:
    rows: list[bytes] = []
    missing: list[str] = []
    is_truncated = False
    for step, state in states:
        if not state.is_applied:
            missing.append(step.key[1])
        elif not is_truncated and budget.take(state.value or ""):
            rows.append(b"{%b}" % _row(step.key[1], state, state.value))
        else:
            is_truncated = True
    return b'"rows":[%b],"missing":%b,"truncated":%b' % (
        b",".join(rows),
        _encode(missing),
        _encode(is_truncated),
    )


def _listed(
    listing: Listing, rows: Sequence[ListedKey], budget: _Budget, *, keys_only: bool
) -> bytes:
    shown = list(_within(rows[: listing.limit], budget, keys_only=keys_only))
    is_truncated = len(shown) < len(rows)
    after = _encode(shown[-1].key) if is_truncated and shown else _NULL
    lines = [b"{%b}" % _row(row.key, row, None if keys_only else row.value) for row in shown]
    return b'"rows":[%b],"truncated":%b,"nextAfter":%b' % (
        b",".join(lines),
        _encode(is_truncated),
        after,
    )


def _within(rows: Sequence[ListedKey], budget: _Budget, *, keys_only: bool) -> Iterator[ListedKey]:
    for row in rows:
        if not keys_only and not (row.has_room and budget.take(row.value or "")):
            return
        yield row


def _written(step: Step, state: KeyState) -> bytes:
    key, version = _encode(step.key[1]), state.version
    if state.is_applied:
        if step.op == "check":
            return b'"applied":true,"key":%b,"version":%d' % (key, version)
        value = step.value if step.op == "put" else state.value
        shown = (value or "null").encode()
        return b'"applied":true,"key":%b,"value":%b,"version":%d' % (key, shown, version)
    return b'"applied":false,"reason":"%b","key":%b,"value":%b,"version":%d' % (
        (state.reason or "").encode(),
        key,
        (state.value or "null").encode(),
        version,
    )


def _undone(plan: Plan, outcome: Outcome) -> bytes:
    """Say which operation was required and not applied: the first of the call, if there are more.

    There is a result for each operation all the same: clients take a missing array for a defect.
    """
    lost = {
        step.place: (step, state)
        for step, state in zip(plan.steps, outcome.states, strict=True)
        if step.is_required and not state.is_applied
    }
    failed = min(lost)
    _, state = lost[failed]
    results = [
        b'{"index":%d,"op":"%b",%b}'
        % (place, each.op.encode(), _written(*lost[place]) if place in lost else b'"applied":false')
        for place, each in enumerate(plan.operations)
    ]
    return (
        b'{"ok":false,"reason":"kv_precondition","failedIndex":%d,"kvReason":"%b","version":%d,'
        b'"value":%b,"results":[%b]}'
    ) % (
        failed,
        (state.reason or "").encode(),
        state.version,
        (state.value or "null").encode(),
        b",".join(results),
    )
