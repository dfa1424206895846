"""The rules by which queues take messages: validated, limited, encrypted, deduplicated.

There is one `QueueRules` for each queue this process pushes into; its partitions share it. A push
names the versions it went by, and the database refuses a call whose rules were changed since,
whoever changed them: the rules are read again, in place, and the call is repeated. Paths that are
not hot read the rules before each use instead.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from skep.broker.push.size_limit import SizeLimit
from skep.db.access.slots import Caller
from skep.model.envelopes import cut_envelope
from skep.model.schemas import PayloadValidator, SchemaCache

if TYPE_CHECKING:
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
        """Nothing to do for a message but to store it."""

    def refusal_of(self, envelope: bytes) -> str | None:
        """Say why the queue does not take a message; None when it does."""
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
            wanted.discard(row[0])
            self._learn(self.of(row[0]), row)
        for queue_id in wanted:
            # Gone. Its rules must not speak for a queue that takes its name.
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
