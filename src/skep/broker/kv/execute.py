"""Execute calls on keys: those of many clients in one statement, and answer each.

Reading takes one snapshot and no locks. Writing is one transaction: keys are locked in order, the
calls follow each other in memory, every key is written once; see `skep.broker.once`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from skep.broker.kv.accept import KeyState, KvCall, ListedKey, Outcome
from skep.broker.kv.operations import Listing, Step
from skep.broker.once import OnceExecutor, call_numbers, columns

KV_READ_CALL: Final = "select * from skep.kv_read($1, $2, $3, $4, $5, $6, $7)"
KV_COMMIT_CALL: Final = (
    "select * from skep.kv_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
    "$15, $16, $17, $18)"
)
SETTLED_CALL: Final = "select * from skep.kv_settled($1)"

READ_BYTES_MAX: Final = 4 * 1024 * 1024
"""Values that the reads of several keys return in one call."""

_SENT: Final = slice(Step._fields.index("op"), None)
"""What of a step is sent as it is, in the order of the arguments."""

_COLUMNS: Final = ("applied", "reason", "value", "version", "expires_at", "updated_at")
_ABSENT: Final = KeyState(False, "absent", None, 0, None, None)
_decode_listed: Final = msgspec.json.Decoder(list[ListedKey]).decode


class KvExecutor(OnceExecutor[KvCall]):
    """Executor of the operations `kv` and `kv_read`."""

    settled_call = SETTLED_CALL

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

    async def send(self, id_: UUID, patience_ms: int | None, batch: Sequence[KvCall]) -> Any:
        """Carry out calls in one transaction and return its answer."""
        steps = [step for call in batch for step in call.plan.steps]
        keys = sorted({step.key for step in steps})
        slot_by_key = {key: slot for slot, key in enumerate(keys, 1)}
        (row,) = await self.caller.call(
            KV_COMMIT_CALL,
            id_,
            patience_ms,
            [ns for ns, _ in keys],
            [key for _, key in keys],
            call_numbers(batch),
            [slot_by_key[step.key] for step in steps],
            *columns(step[_SENT] for step in steps),
            *_list_columns(listing for call in batch for listing in call.plan.listings),
        )
        return row

    def finish(self, call: KvCall, steps: slice, row: Any) -> None:
        """Answer a call from the row of the execution that carried it."""
        parts = (row[name][steps] for name in _COLUMNS)
        states = [KeyState(*each) for each in zip(*parts, strict=True)]
        listed: list[list[ListedKey]] = [[] for _ in call.plan.listings]
        if row["listed"] is not None:
            for each in _decode_listed(row["listed"]):
                listed[each.list - 1].append(each)
        is_undone = bool(states) and bool(row["is_undone"][steps.start])
        call.finish(Outcome(states, listed, is_undone))


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
