"""Carry out operations on locks, as calls on keys.

An operation looks at the keys of its lock, decides, and writes under the condition that they have
not changed; if they have, it looks again. Nothing is remembered anywhere else.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from skep.broker.kv.accept import KeyState, Kv, Outcome
from skep.broker.kv.operations import KvOperation, Plan, planned
from skep.broker.locks.decide import (
    Busy,
    Line,
    Mine,
    Permit,
    Take,
    View,
    acquired_value,
    choose,
    line_of,
    listed_permits,
    permit_of,
)
from skep.broker.locks.operations import GET_SLOTS, LIMIT_MAX, NAMESPACE, LockOperation, key_of
from skep.model.errors import SkepError

LINES: Final = "skep-lock-lines"
"""The namespace of the keys of those who wait."""

LINE_TTL_S: Final = 5
"""A line in which no process lives ends after so many seconds."""

TRIES: Final = 4

_KEYS_MAX: Final = LIMIT_MAX + 1
"""The permits of a lock and its line."""

LockResult: TypeAlias = dict[str, Any]

_States: TypeAlias = dict[tuple[str, str], KeyState]
"""By namespace and key."""

_FREE: Final = View({}, Line(), 0)
_encode: Final = msgspec.json.encode


class Permits:
    """The permits of locks, and their lines, as keys."""

    def __init__(self, kv: Kv, note_released: Callable[[str], None]) -> None:
        self._kv: Final = kv
        self._note_released: Final = note_released

    async def acquire(
        self, asked: LockOperation, ticket: str | None = None
    ) -> tuple[LockResult, View]:
        """Try to acquire a permit; return the result, and what was seen if there was none."""
        view = _FREE
        for tries in range(TRIES):
            if tries or asked.limit > 1 or ticket is not None:
                view = await self.look(asked)
                choice = choose(view, owner=asked.owner, limit=asked.limit, ticket=ticket)
            else:
                choice = Take(0)  # most locks are free
            if isinstance(choice, Mine):
                slot, token = choice.permit.slot, choice.permit.token
                return {**_acquired(asked, slot, token), "already": True}, view
            if isinstance(choice, Busy):
                return _refused(view, "held"), view
            token = await self._take(asked, choice.slot, view, ticket)
            if token is not None:
                return _acquired(asked, choice.slot, token), view
        return _refused(view, "contended"), view

    async def _take(
        self, asked: LockOperation, slot: int, view: View, ticket: str | None
    ) -> int | None:
        """Take a permit and leave the line; return its token, None if another was quicker.

        A client that hangs up meanwhile cannot know the token. With an owner it may ask again and
        get the permit; without one it would hold it for a whole lease, so it is given back.
        """
        put = KvOperation(
            op="putIfAbsent",
            ns=NAMESPACE,
            key=key_of(asked.name, slot),
            value=msgspec.Raw(acquired_value(asked.owner)),
            ttl_seconds=asked.ttl_seconds,
            required=True,
        )
        line = view.line if ticket is None else view.line.without(ticket)
        # Those that an application makes wait by `kv_check` of the permit wait in one place.
        writing = asyncio.ensure_future(
            self._commit(put, _line_operation(asked.name, view, line), busy=(put.ns, put.key))
        )
        try:
            states = await asyncio.shield(writing)
        except asyncio.CancelledError:
            if asked.owner is None:
                with suppress(SkepError):
                    if (states := await writing) is not None:
                        await self.give_back(asked, slot, states[put.ns, put.key].version)
            raise
        return None if states is None else states[put.ns, put.key].version

    async def give_back(self, asked: LockOperation, slot: int, token: int) -> None:
        """Release a permit whose client cannot know that it has it; the lease ends otherwise."""
        with suppress(SkepError):
            release = LockOperation(op="release", name=asked.name, slot=slot, token=token)
            await self.release(release)

    async def renew(self, asked: LockOperation) -> LockResult:
        """Extend a permit; its token changes."""
        found: Permit | None = None
        for _ in range(TRIES):
            get = KvOperation(op="get", ns=NAMESPACE, key=asked.key)
            found = permit_of(asked.slot, (await self._read(get))[get.ns, get.key])
            if found is None or not found.is_of(asked.token, asked.owner):
                break
            put = KvOperation(
                op="put",
                ns=NAMESPACE,
                key=asked.key,
                value=msgspec.Raw(found.renewed_value()),
                ttl_seconds=asked.ttl_seconds,
                expect=found.token,
                required=True,
            )
            states = await self._commit(put)
            if states is not None:
                token = states[put.ns, put.key].version
                return {"renewed": True, **_token(asked.name, asked.slot, token)}
        return {"renewed": False, **_lost(asked.slot, found)}

    async def release(self, asked: LockOperation) -> LockResult:
        """Give a permit back, and say so also if the client hangs up meanwhile."""
        return await asyncio.shield(self._release(asked))

    async def _release(self, asked: LockOperation) -> LockResult:
        delete = KvOperation(op="delete", ns=NAMESPACE, key=asked.key, expect=asked.token)
        state = (await self._read(delete))[delete.ns, delete.key]
        if not state.is_applied:
            return {"released": False, **_lost(asked.slot, permit_of(asked.slot, state))}
        self._note_released(asked.name)
        return {"released": True, "slot": asked.slot}

    async def get(self, asked: LockOperation) -> LockResult:
        """Say who holds permits."""
        prefix = f"{asked.name}#"
        listing = KvOperation(op="getPrefix", ns=NAMESPACE, prefix=prefix, limit=GET_SLOTS)
        outcome = await self._kv.carry_out(planned([listing]))
        permits = listed_permits(asked.name, outcome.listed[0][:GET_SLOTS])
        return {"held": bool(permits), "holders": [permit.details() for permit in permits]}

    async def look(self, asked: LockOperation) -> View:
        """Read the keys of a lock at one instant."""
        keys = {key_of(asked.name, slot): slot for slot in range(asked.limit)}
        states = await self._read(
            KvOperation(op="get", ns=LINES, key=asked.name),
            KvOperation(op="getMany", ns=NAMESPACE, keys=list(keys)),
        )
        found = (permit_of(slot, states[NAMESPACE, key]) for key, slot in keys.items())
        line = states[LINES, asked.name]
        permits = {permit.slot: permit for permit in found if permit is not None}
        return View(permits, line_of(line), line.version)

    async def change_line(self, name: str, view: View, line: Line) -> bool:
        """Replace a line, if it has not changed; return whether it was replaced."""
        return await self._commit(_line_operation(name, view, line)) is not None

    async def _commit(
        self, *operations: KvOperation, busy: tuple[str, str] | None = None
    ) -> _States | None:
        """Carry out operations in one call, of which some are required; None: nothing was done."""
        plan = planned(list(operations))
        outcome = await self._kv.carry_out(plan, busy)
        return None if outcome.is_undone else _by_key(plan, outcome)

    async def _read(self, *operations: KvOperation) -> _States:
        """Carry out operations in one call."""
        plan = planned(list(operations), keys_max=_KEYS_MAX)
        return _by_key(plan, await self._kv.carry_out(plan))


def _by_key(plan: Plan, outcome: Outcome) -> _States:
    return {step.key: state for step, state in zip(plan.steps, outcome.states, strict=True)}


def _line_operation(name: str, view: View, line: Line) -> KvOperation:
    """Return the operation that replaces a line, or makes sure that it has not changed."""
    change = KvOperation(op="check", ns=LINES, key=name, expect=view.line_version, required=True)
    if line != view.line and line.tickets:
        change.op, change.value = "put", msgspec.Raw(_encode(line))
        change.ttl_seconds = LINE_TTL_S
    elif line != view.line:
        change.op = "delete"
    return change


def _acquired(asked: LockOperation, slot: int, token: int) -> LockResult:
    return {"acquired": True, **_token(asked.name, slot, token), "owner": asked.owner}


def _token(name: str, slot: int, token: int) -> LockResult:
    key = key_of(name, slot)
    guard = {"op": "check", "ns": NAMESPACE, "key": key, "expect": token, "required": True}
    return {"slot": slot, "token": token, "guard": guard}


def _refused(view: View, reason: str) -> LockResult:
    holders = [permit.holder() for _, permit in sorted(view.permits.items())]
    return {"acquired": False, "reason": reason, "holders": holders}


def _lost(slot: int, permit: Permit | None) -> LockResult:
    holders = [] if permit is None else [permit.holder()]
    return {"reason": "lost", "slot": slot, "holders": holders}
