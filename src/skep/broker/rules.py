"""Remember by which rules a queue takes messages, and learn when they change.

There is one `QueueRules` for each queue this process pushes into; its lanes share it. A push names
the versions it went by, and the database refuses a call whose rules were changed since, whoever
changed them: the rules are read again, in place, and the call is repeated.
"""

from collections.abc import Iterable
from typing import Any, Final

from skep.db.slots import Caller

READ_CALL: Final = "select * from skep.read_rules($1)"


class QueueRules:
    """What a push must know of its queue."""

    __slots__ = ("dedup_window_s", "queue_id", "version")

    def __init__(self, queue_id: int, version: int = 0, dedup_window_s: int = 0) -> None:
        self.queue_id = queue_id
        self.version = version
        self.dedup_window_s = dedup_window_s

    def learn(self, row: Any) -> None:
        """Take over what `read_rules` says."""
        _, self.version, self.dedup_window_s = row


class RuleBook:
    """The rules of the queues this process has met."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller
        self._rules: Final[dict[int, QueueRules]] = {}

    def of(self, queue_id: int) -> QueueRules:
        """Return the rules of a queue; those never read have a version that is refused."""
        rules = self._rules.get(queue_id)
        if rules is None:
            rules = self._rules[queue_id] = QueueRules(queue_id)
        return rules

    async def read(self, queue_ids: Iterable[int]) -> None:
        """Read the rules of these queues, whether they are known or not."""
        rows = await self._caller.call(READ_CALL, sorted(set(queue_ids)))
        for row in rows:
            self.of(row[0]).learn(row)

    async def read_new(self, queue_ids: Iterable[int]) -> None:
        """Read the rules of those of these queues that were never read."""
        unread = [each for each in set(queue_ids) if not self.of(each).version]
        if unread:
            await self.read(unread)
