"""The rules by which queues take messages: validated, limited, encrypted, deduplicated.

There is one `QueueRules` for each queue this process pushes into; its partitions share it, and it
is forgotten with the last of them. A push names the versions it used, and the database refuses a
call whose rules have changed since: the rules are read again, in place, and the call is repeated.
Paths that are not hot read the rules before each use instead.

`Enforcer` applies them to what is about to be stored. A refusal never reaches the database, which
could have told that the rules changed; so the rules are read again before anything is refused.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from skep.broker.push.size_limit import AdmissionGate, SizeLimit, queue_full
from skep.db.access.slots import Caller
from skep.model.envelopes import LooseEnvelope, cut_envelope
from skep.model.errors import InvalidPayload, SkepError
from skep.model.schemas import InvalidSchema, PayloadValidator, UnusableSchema, compile_schema

if TYPE_CHECKING:
    from skep.broker.push.execute import Flush
    from skep.broker.push.request import Entry
    from skep.model.queue_options import Deferral

READ_CALL: Final = (
    "select r.*, q.is_strict from skep.read_rules($1) r join skep.queue q on q.id = r.queue_id"
)
"""`read_rules` has no column more, because brokers of the version before read all it returns."""

_DELETED: Final = (0, 0, 0, False, None, None, None, "asked", False)
"""A row of that call for a queue that does not exist."""

SealEnvelope: TypeAlias = Callable[[bytes], bytes]
"""Turns an envelope into one whose payload is encrypted, or raises a `SkepError`."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class QueueRules:
    """What a push must know of its queue."""

    queue_id: int
    version: int = 0
    dedup_window_s: int = 0
    validator: PayloadValidator | UnusableSchema | None = None
    size_limit: SizeLimit | None = None
    is_encrypted: bool = False
    deferral: "Deferral" = "asked"
    is_strict: bool = False
    is_plain: bool = True
    """A message only has to be stored."""

    def refusal_of(self, envelope: bytes) -> str | None:
        """Return why the queue does not take a message; None when it does."""
        if self.is_strict and isinstance(envelope, LooseEnvelope):
            return envelope.item.refusal
        if self.validator is None:
            return None
        _, payload = cut_envelope(envelope)
        return self.validator.validate(payload)


class RuleBook:
    """The rules of the queues this process uses."""

    def __init__(self, caller: Caller, *, seal: SealEnvelope) -> None:
        self._caller: Final = caller
        self._seal: Final = seal
        self._rules: Final[WeakValueDictionary[int, QueueRules]] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._rules)

    @property
    def dedup_window_s_max(self) -> int:
        """The longest duplicate window of a queue this process uses, in seconds."""
        return max([rules.dedup_window_s for rules in self._rules.values()], default=0)

    async def read(self, queue_ids: Iterable[int]) -> dict[int, QueueRules]:
        """Return the rules of these queues, read again."""
        return await self._read(self._find(queue_ids))

    async def read_new(self, queue_ids: Iterable[int]) -> dict[int, QueueRules]:
        """Return the rules of these queues; only those never read are read."""
        found = self._find(queue_ids)
        await self._read({each: rules for each, rules in found.items() if not rules.version})
        return found

    async def read_known(self, queue_id: int) -> None:
        """Read the rules of a queue again if this process uses them."""
        if queue_id in self._rules:
            await self.read((queue_id,))

    def seal(self, rules: QueueRules, envelope: bytes) -> bytes:
        """Return the envelope as the queue wants it stored; fails without the key for that."""
        return self._seal(envelope) if rules.is_encrypted else envelope

    def _find(self, queue_ids: Iterable[int]) -> dict[int, QueueRules]:
        """Return the rules of queues; those never read have a version that is refused."""
        return {
            each: self._rules.get(each) or self._rules.setdefault(each, QueueRules(each))
            for each in queue_ids
        }

    async def _read(self, found: dict[int, QueueRules]) -> dict[int, QueueRules]:
        if not found:
            return found
        rows = {row[0]: row for row in await self._caller.call(READ_CALL, sorted(found))}
        for queue_id, rules in found.items():
            # Without a row it was deleted. Its rules must not apply to a queue that takes its name.
            _learn(rules, rows.get(queue_id, _DELETED))
        return found


def _learn(rules: QueueRules, row: Any) -> None:
    _, version, dedup_window_s, is_encrypted, max_size, overflow, schema, deferral, strict = row
    if schema is None:
        rules.validator = None
    elif rules.validator is None or version != rules.version:
        rules.validator = _validator(schema)
    rules.version = version
    rules.dedup_window_s = dedup_window_s
    rules.is_encrypted = is_encrypted
    rules.deferral = deferral
    rules.is_strict = strict
    rules.size_limit = SizeLimit(max_size, overflow) if max_size else None
    rules.is_plain = not (is_encrypted or max_size or schema or strict)


def _validator(schema: str) -> PayloadValidator | UnusableSchema:
    try:
        return compile_schema(msgspec.json.decode(schema))
    except InvalidSchema as error:
        # Stored by a version that could use it. Other queues of the same call must not suffer.
        return UnusableSchema(error)


class Enforcer:
    """Validates, admits and encrypts. An entry that breaks a rule is refused alone."""

    def __init__(self, rule_book: RuleBook, gate: AdmissionGate) -> None:
        self._rule_book: Final = rule_book
        self._gate: Final = gate

    async def enforce(self, flushes: "dict[int, Flush]", *, is_repeated: bool) -> None:
        """Refuse what the queues do not take, and encrypt what they want encrypted.

        Entries that an earlier attempt may have stored are no longer refused.
        """
        governed = [flush for flush in flushes.values() if not flush.partition.rules.is_plain]
        if not governed:
            return
        if not is_repeated:
            await self._refuse_invalid(governed)
            await self._admit([flush for flush in governed if flush.entries])
        for flush in governed:
            if flush.entries and flush.partition.rules.is_encrypted:
                self._seal(flush)
            if not flush.entries:
                del flushes[flush.partition.partition_id]

    async def _refuse_invalid(self, flushes: "Sequence[Flush]") -> None:
        """Refuse what does not follow the current schemas."""
        suspects = [flush for flush in flushes if set(_refusals(flush)) != {None}]
        if not suspects:
            return
        await self._rule_book.read(flush.partition.queue_id for flush in suspects)
        for flush in suspects:
            accepted: list[Entry] = []
            for entry, refusal in zip(flush.entries, _refusals(flush), strict=True):
                if refusal is None:
                    accepted.append(entry)
                else:
                    flush.refuse(entry, InvalidPayload(refusal))
            if len(accepted) < len(flush.entries):
                flush.keep(accepted)

    async def _admit(self, flushes: "Sequence[Flush]") -> None:
        """Refuse the flushes of queues that are full; a queue takes all of a call or nothing."""
        by_queue: dict[QueueRules, list[Flush]] = {}
        for flush in flushes:
            if flush.partition.rules.size_limit is not None and not flush.is_admitted:
                by_queue.setdefault(flush.partition.rules, []).append(flush)
        for rules, its_flushes in by_queue.items():
            count = sum(len(flush.entries) for flush in its_flushes)
            has_room = await self._has_room(rules, count)
            if not has_room:
                await self._rule_book.read((rules.queue_id,))
                has_room = await self._has_room(rules, count)
            for flush in its_flushes:
                flush.is_admitted = True
                if not has_room:
                    depth = self._gate.depth(rules.queue_id)
                    flush.refuse_all(queue_full(flush.partition.key[0], depth))

    async def _has_room(self, rules: QueueRules, count: int) -> bool:
        limit = rules.size_limit
        return limit is None or await self._gate.decide(rules.queue_id, count, limit)

    def _seal(self, flush: "Flush") -> None:
        rules = flush.partition.rules
        try:
            flush.seal(lambda envelope: self._rule_book.seal(rules, envelope))
        except SkepError as error:
            flush.refuse_all(error)


def _refusals(flush: "Flush") -> "list[str | None]":
    refusal_of = flush.partition.rules.refusal_of
    return [refusal_of(entry[3]) for entry in flush.entries]
