"""The rules of queues for the messages that are written to them.

A task reads them when it meets a queue; a queue that does not exist has none. The commit makes sure
that they still hold.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from skep.spark.runtime.arrow import pa
from skep.spark.runtime.postgres import Database
from skep.spark.sink.columns import QUEUE
from skep.spark.sink.json_rows import pc
from skep.spark.sink.options import WriteOptions

READ_RULES: Final = (
    "select f.name, r.encryption_enabled, r.json_schema, md5(r.json_schema) as schema_digest "
    "from skep.find_queues($1::text::text[], null) f "
    "cross join lateral skep.read_rules(array[f.id]) r"
)

Validate = Callable[[bytes], str | None]
"""Says what is wrong with a payload; None when nothing is."""


class QueueRules(NamedTuple):
    """What a queue asks of its messages."""

    is_encrypted: bool = False
    schema_digest: str | None = None


class RuleBook:
    """The rules of the queues that a task has met."""

    def __init__(self, database: Database, options: WriteOptions) -> None:
        self.validators: Final[dict[str, Validate]] = {}
        """By the name of the queue, for those that have a schema."""
        self._database: Final = database
        self._named: Final = {options.queue, options.dead_letter_queue} - {None}
        self._rules: Final[dict[str, QueueRules]] = {}

    def meet(self, batch: Any) -> None:
        """Read the rules of the queues in a batch that were not met before."""
        names = set(self._named)
        if QUEUE in batch.schema.names:
            column = batch.column(batch.schema.get_field_index(QUEUE))
            names |= set(_usable(pc.unique(column).cast(pa.binary()).to_pylist()))
        unread = sorted(name for name in names if name and name not in self._rules)
        if not unread:
            return
        self._rules.update(dict.fromkeys(unread, QueueRules()))
        for row in self._database.rows(READ_RULES, unread):
            name, digest = row["name"], row["schema_digest"]
            self._rules[name] = QueueRules(row["encryption_enabled"], digest)
            if digest is not None:
                self.validators[name] = _validator(row["json_schema"])

    def of(self, queue: str) -> QueueRules:
        """Return the rules of a queue that was met."""
        return self._rules[queue]


def _usable(names: Iterable[bytes | None]) -> Iterator[str]:
    """Leave out names that PostgreSQL could not even be asked about; their rows are rejects."""
    for name in names:
        try:
            text = (name or b"").decode()
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            yield text


def _validator(schema: str) -> Validate:
    from skep.model.schemas import compile_schema  # noqa: PLC0415 (needs a package of an extra)

    return compile_schema(msgspec.json.decode(schema)).validate
