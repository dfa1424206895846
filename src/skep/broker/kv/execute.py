"""Execute calls on keys: those of many clients in one statement, and answer each.

Reading takes one snapshot and no locks. Writing is one transaction: keys are locked in order, the
calls follow each other in memory, every key is written once. A call that waits too long for a key
is repeated apart from the others. After a lost connection the answers are read from the record.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import msgspec

from skep.broker.kv.accept import Attempt, KeyState, KvCall, ListedKey, Outcome
from skep.broker.kv.operations import Listing
from skep.db.access.errors import LockTimeout
from skep.db.access.slots import Caller

KV_READ_CALL: Final = "select * from skep.kv_read($1, $2, $3, $4, $5, $6, $7)"
KV_COMMIT_CALL: Final = (
    "select * from skep.kv_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
    "$15, $16, $17, $18)"
)
SETTLED_CALL: Final = "select * from skep.kv_settled($1)"

READ_BYTES_MAX: Final = 4 * 1024 * 1024
"""Values that the reads of several keys return in one call."""

PATIENCE_MS: Final = 200
"""How long calls that share an execution wait for a key that another transaction has locked."""

_ABSENT: Final = KeyState(False, "absent", None, 0, None, None)
_decode_listed: Final = msgspec.json.Decoder(list[ListedKey]).decode


@dataclass(slots=True, eq=False, frozen=True)
class KvExecutor:
    """Executor of the operations `kv` and `kv_read`."""

    caller: Caller

    async def read(self, batch: Sequence[KvCall], *, is_repeated: bool) -> None:
        """Answer calls that only read, all from one snapshot."""
        del is_repeated
        keys = [step.key for call in batch for step in call.plan.steps]
        rows = await self.caller.call(
            KV_READ_CALL,
            [ns for ns, _ in keys],
            [key for _, key in keys],
            *_list_columns(listing for call in batch for listing in call.plan.listings),
        )
        found: dict[int, KeyState] = {}
        listed: dict[int, list[ListedKey]] = {}
        for list_, place, key, value, version, expires_at, updated_at, has_room in rows:
            if list_ is None:
                found[place] = KeyState(True, None, value, version, expires_at, updated_at)
            else:
                row = ListedKey(list_, place, key, value, version, expires_at, updated_at, has_room)
                listed.setdefault(list_, []).append(row)
        steps = lists = 0
        for call in batch:
            step_end, list_end = steps + len(call.plan.steps), lists + len(call.plan.listings)
            states = [found.get(place, _ABSENT) for place in range(steps + 1, step_end + 1)]
            pages = [listed.get(number, []) for number in range(lists + 1, list_end + 1)]
            call.finish(Outcome(states, pages))
            steps, lists = step_end, list_end

    async def write(self, batch: Sequence[KvCall], *, is_repeated: bool) -> None:
        """Carry out calls, each entirely or not at all."""
        if is_repeated:
            batch = await self._settled(batch)
        together = [call for call in batch if not call.plan.listings]
        stuck = [call for call in batch if call.plan.listings]
        if together:
            await self._commit_apart(together, stuck)
        for call in stuck:
            await self._commit([call], None)

    async def _settled(self, batch: Sequence[KvCall]) -> Sequence[KvCall]:
        """Answer what an earlier attempt did, and return the calls that were not carried out."""
        ids = {call.attempt.id for call in batch if call.attempt is not None}
        rows = {row["id"]: row for row in await self.caller.call(SETTLED_CALL, list(ids))}
        for call in batch:
            if call.attempt is not None and call.attempt.id in rows:
                _finish(call, rows[call.attempt.id])
        return [call for call in batch if not call.is_settled]

    async def _commit_apart(self, batch: list[KvCall], stuck: list[KvCall]) -> None:
        """Carry out calls together, but for those whose key is locked for long: these get stuck."""
        try:
            await self._commit(batch, PATIENCE_MS)
        except LockTimeout:
            if len(batch) == 1:
                stuck.append(batch[0])
                return
            middle = len(batch) // 2
            await self._commit_apart(batch[:middle], stuck)
            await self._commit_apart(batch[middle:], stuck)

    async def _commit(self, batch: Sequence[KvCall], patience_ms: int | None) -> None:
        id_, start = uuid4(), 0
        for call in batch:
            call.attempt = Attempt(id_, start)
            start += len(call.plan.steps)
        steps = [step for call in batch for step in call.plan.steps]
        keys = sorted({step.key for step in steps})
        slot_by_key = {key: slot for slot, key in enumerate(keys, 1)}
        (row,) = await self.caller.call(
            KV_COMMIT_CALL,
            id_,
            patience_ms,
            [ns for ns, _ in keys],
            [key for _, key in keys],
            [number for number, call in enumerate(batch) for _ in call.plan.steps],
            [slot_by_key[step.key] for step in steps],
            [step.op for step in steps],
            [step.value for step in steps],
            [step.expect for step in steps],
            [step.ttl_s for step in steps],
            [step.is_required for step in steps],
            [step.min for step in steps],
            [step.max for step in steps],
            *_list_columns(listing for call in batch for listing in call.plan.listings),
        )
        for call in batch:
            _finish(call, row)


def _list_columns(listings: Iterable[Listing]) -> Sequence[object]:
    """Return the arguments for lists; one row more than is wanted tells that there are more."""
    every = list(listings)
    return (
        [each.ns for each in every],
        [each.prefix for each in every],
        [each.after for each in every],
        [each.limit + 1 for each in every],
        READ_BYTES_MAX,
    )


_COLUMNS: Final = ("applied", "reason", "value", "version", "expires_at", "updated_at")


def _finish(call: KvCall, row: Any) -> None:
    """Answer a call from the row of the execution that carried it."""
    assert call.attempt is not None
    start, count = call.attempt.start, len(call.plan.steps)
    part = slice(start, start + count)
    states = [KeyState(*each) for each in zip(*(row[name][part] for name in _COLUMNS), strict=True)]
    listed: list[list[ListedKey]] = [[] for _ in call.plan.listings]
    if row["listed"] is not None:
        for each in _decode_listed(row["listed"]):
            listed[each.list - 1].append(each)
    is_undone = bool(count) and bool(row["is_undone"][start])
    call.finish(Outcome(states, listed, is_undone))
