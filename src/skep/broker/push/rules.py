"""The rules by which queues take messages: validated, limited, encrypted, deduplicated.

There is one `QueueRules` for each queue this process pushes into; its partitions share it. A push
names the versions it used, and the database refuses a call whose rules have changed since: the
rules are read again, in place, and the call is repeated. Paths that are not hot read the rules
before each use instead.

`Enforcer` applies them to what is about to be stored. A refusal never reaches the database, which
could have told that the rules changed; so the rules are read again before anything is refused.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from skep.broker.push.size_limit import AdmissionGate, Admitted, Full, SizeLimit
from skep.db.access.slots import Caller
from skep.model.envelopes import cut_envelope
from skep.model.errors import InvalidPayload, SkepError
from skep.model.schemas import PayloadValidator, SchemaCache

if TYPE_CHECKING:
    from skep.broker.push.pending_writes import Entry, Flush
    from skep.model.queue_options import Deferral

READ_CALL: Final = "select * from skep.read_rules($1)"

SealEnvelope: TypeAlias = Callable[[bytes], bytes]
"""Turns an envelope into one whose payload is encrypted, or raises a `SkepError`."""


class QueueRules:
    """What a push must know of its queue."""

    __slots__ = (
        "dedup_window_s",
        "deferral",
        "is_encrypted",
        "is_plain",
        "queue_id",
        "size_limit",
        "validator",
        "version",
    )

    def __init__(self, queue_id: int, version: int = 0, dedup_window_s: int = 0) -> None:
        self.queue_id = queue_id
        self.version = version
        self.dedup_window_s = dedup_window_s
        self.validator: PayloadValidator | None = None
        self.size_limit: SizeLimit | None = None
        self.is_encrypted = False
        self.deferral: Deferral = "asked"
        self.is_plain = True
        """A message only has to be stored."""

    def refusal_of(self, envelope: bytes) -> str | None:
        """Return why the queue does not take a message; None when it does."""
        if self.validator is None:
            return None
        _, payload = cut_envelope(envelope)
        return self.validator.validate(payload)


class RuleBook:
    """The rules of the queues this process has met."""

    def __init__(self, caller: Caller, *, seal: SealEnvelope) -> None:
        self._caller: Final = caller
        self._seal: Final = seal
        self._schemas: Final = SchemaCache()
        self._rules: Final[dict[int, QueueRules]] = {}

    def of(self, queue_id: int) -> QueueRules:
        """Return the rules of a queue; those never read have a version that is refused."""
        rules = self._rules.get(queue_id)
        if rules is None:
            rules = self._rules[queue_id] = QueueRules(queue_id)
        return rules

    async def read(self, queue_ids: Iterable[int]) -> None:
        """Read the rules of these queues, whether they are known or not."""
        wanted = set(queue_ids)
        for row in await self._caller.call(READ_CALL, sorted(wanted)):
            queue_id = row[0]
            wanted.discard(queue_id)
            self._learn(self.of(queue_id), row)
        for queue_id in wanted:
            # Deleted. Its rules must not apply to a queue that takes its name.
            self._learn(self.of(queue_id), (queue_id, 0, 0, False, None, None, None, "asked"))

    async def read_new(self, queue_ids: Iterable[int]) -> None:
        """Read the rules of those of these queues that were never read."""
        unread = [each for each in set(queue_ids) if not self.of(each).version]
        if unread:
            await self.read(unread)

    async def read_known(self, queue_id: int) -> None:
        """Read the rules of a queue again if they were ever read."""
        if queue_id in self._rules:
            await self.read((queue_id,))

    def seal(self, rules: QueueRules, envelope: bytes) -> bytes:
        """Return the envelope as the queue wants it stored.

        Raises:
            SkepError: It must be encrypted and this process has no key.
        """
        return self._seal(envelope) if rules.is_encrypted else envelope

    def _learn(self, rules: QueueRules, row: Any) -> None:
        _, version, dedup_window_s, is_encrypted, max_size, overflow, schema, deferral = row
        rules.version = version
        rules.dedup_window_s = dedup_window_s
        rules.is_encrypted = is_encrypted
        rules.deferral = deferral
        rules.size_limit = SizeLimit(max_size, overflow) if max_size else None
        rules.validator = None
        if schema is not None:
            decoded = msgspec.json.decode(schema)
            rules.validator = self._schemas.validator(rules.queue_id, version, decoded)
        rules.is_plain = not (is_encrypted or max_size or schema)


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
            verdict = await self._decide(rules, count)
            if isinstance(verdict, Full):
                await self._rule_book.read((rules.queue_id,))
                verdict = await self._decide(rules, count)
            for flush in its_flushes:
                flush.is_admitted = True
                if isinstance(verdict, Full):
                    flush.refuse_all(verdict.error(flush.partition.key[0]))

    async def _decide(self, rules: QueueRules, count: int) -> Admitted | Full:
        if rules.size_limit is None:
            return Admitted()
        return await self._gate.decide(rules.queue_id, count, rules.size_limit)

    def _seal(self, flush: "Flush") -> None:
        rules = flush.partition.rules
        try:
            flush.seal(lambda envelope: self._rule_book.seal(rules, envelope))
        except SkepError as error:
            flush.refuse_all(error)


def _refusals(flush: "Flush") -> "list[str | None]":
    refusal_of = flush.partition.rules.refusal_of
    return [refusal_of(entry[3]) for entry in flush.entries]
