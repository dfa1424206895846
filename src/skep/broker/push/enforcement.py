"""Apply the rules of queues to what is about to be stored in them.

An entry that breaks a rule is refused alone. Queues without rules cost nothing here.

The database makes sure that nothing is stored by rules that were changed elsewhere; a refusal it
never hears of. So before anything is refused the rules are read again.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from skep.broker.push.flush import Flush
from skep.broker.push.rules import QueueRules, RuleBook
from skep.broker.push.size_limit import AdmissionGate, Admitted, Full
from skep.model.errors import InvalidPayload, SkepError

if TYPE_CHECKING:
    from skep.broker.push.items import Entry


class Enforcer:
    """Validates, admits and encrypts."""

    def __init__(self, rule_book: RuleBook, gate: AdmissionGate) -> None:
        self._rule_book: Final = rule_book
        self._gate: Final = gate

    async def enforce(self, flushes: dict[int, Flush], *, is_repeated: bool) -> None:
        """Refuse what the queues do not take, and encrypt what they want encrypted.

        What an earlier try may have stored already is not refused any more.
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

    async def _refuse_invalid(self, flushes: Sequence[Flush]) -> None:
        """Refuse what does not follow the schemas of its queues, as they are now."""
        suspects = [flush for flush in flushes if len(_valid(flush)) < len(flush.entries)]
        if not suspects:
            return
        await self._rule_book.read(flush.partition.queue_id for flush in suspects)
        for flush in suspects:
            _refuse_invalid(flush)

    async def _admit(self, flushes: Sequence[Flush]) -> None:
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
                    _refuse_all(flush, verdict.error(flush.partition.key[0]))

    async def _decide(self, rules: QueueRules, count: int) -> Admitted | Full:
        if rules.size_limit is None:
            return Admitted()
        return await self._gate.decide(rules.queue_id, count, rules.size_limit)

    def _seal(self, flush: Flush) -> None:
        rules = flush.partition.rules
        try:
            flush.seal(lambda envelope: self._rule_book.seal(rules, envelope))
        except SkepError as error:
            _refuse_all(flush, error)


def _valid(flush: Flush) -> "list[Entry]":
    refusal_of = flush.partition.rules.refusal_of
    return [entry for entry in flush.entries if refusal_of(entry[3]) is None]


def _refuse_invalid(flush: Flush) -> None:
    refusal_of = flush.partition.rules.refusal_of
    accepted: list[Entry] = []
    for entry in flush.entries:
        refusal = refusal_of(entry[3])
        if refusal is None:
            accepted.append(entry)
        else:
            flush.refuse(entry, InvalidPayload(refusal))
    if len(accepted) < len(flush.entries):
        flush.keep(accepted)


def _refuse_all(flush: Flush, error: SkepError) -> None:
    for entry in flush.entries:
        flush.refuse(entry, error)
    flush.keep([])
