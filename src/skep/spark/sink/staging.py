"""Stage the rows of a task: where they wait, unseen, for the transaction that commits them all.

A row that cannot be stored does not fail its task, which Spark would only repeat to the same end.
It is reported to the driver, which refuses the whole write and names it; or it is staged like
everything else and becomes a dead letter. Only a lost database is worth another attempt.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage
from xxhash import xxh32_hexdigest

from skep.model.errors import Refused
from skep.spark.runtime.arrow import pa
from skep.spark.runtime.encryption_keys import lazy_key_ring
from skep.spark.runtime.postgres import database
from skep.spark.sink.columns import DELIVER_AT
from skep.spark.sink.json_rows import pc
from skep.spark.sink.options import WriteOptions
from skep.spark.sink.rows import Reject, RowChecker
from skep.spark.sink.rules import RuleBook
from skep.spark.sink.segments import Place, SegmentMaker

OPEN: Final = (
    "select i.hash_seed, nextval('skep.staging_attempt') as attempt, skep.now() as staged_at, "
    "skep.committed_epoch($1, $2) as epoch "
    "from skep.installation i"
)

GATHERED_ROWS: Final = 100_000
GATHERED_BYTES: Final = 32 << 20
"""A task gathers rows up to one of these before it makes segments of them: the more, the larger the
segments of each partition, and the more memory."""
REJECTS_SHOWN: Final = 5


@dataclass
class Staged(WriterCommitMessage):
    """What one task tells the driver."""

    place: Place
    rows: int = 0
    """Rows of staging, not of the data; a segment is one."""
    has_given_ids: bool = False
    """Some transaction ids were not made up here, so there may be duplicates."""
    rejects: int = 0
    shown: tuple[str, ...] = ()
    """The first rejects, for a person."""
    refusal: str | None = None
    """Why the task gave up, if repeating it would not help."""


class Stager:
    """Stages the rows of one attempt of a task."""

    def __init__(self, options: WriteOptions, write_id: str, epoch: int, task: int) -> None:
        self._options: Final = options
        # A crash of the server empties staging in any case; the commit of the epoch is durable, and
        # with it everything that was written before.
        self._database: Final = database(options.url, options.statement_timeout_s, is_durable=False)
        (opened,) = self._database.rows(OPEN, write_id, options.target)
        self._hash_seed: Final[int] = opened["hash_seed"]
        self._is_committed: Final[bool] = opened["epoch"] >= epoch
        # Spark counts attempts anew when the driver is restarted; the database does not.
        attempt, staged_at = opened["attempt"], opened["staged_at"]
        self._place: Final = Place(write_id, epoch, task, attempt, staged_at, options.target)
        self._rules: Final = RuleBook(self._database, options)
        self._staged: Final = Staged(self._place)

    def stage(self, batches: Iterable[Any]) -> Staged:
        """Stage all rows; none if the epoch is known to be committed.

        Raises `Unavailable` if the database is away: the task is worth repeating.
        """
        if not self._is_committed:
            try:
                self._stage_all(batches)
            except Refused as error:
                self._staged.refusal = error.message
        return self._staged

    def _stage_all(self, batches: Iterable[Any]) -> None:
        """Stage until the end, or until the write has to be refused anyway."""
        place = self._place
        checker = RowChecker(
            self._options,
            id_prefix=_id_prefix(place),
            validators=self._rules.validators,
        )
        keys = lazy_key_ring(self._options.encryption_keys, self._options.encryption_key_file)
        maker = SegmentMaker(
            place,
            hash_seed=self._hash_seed,
            rules_of=self._rules.of,
            seal=lambda envelope: keys().seal_envelope(envelope),
        )
        for gathered in _gathered(batches):
            self._rules.meet(gathered)
            rows, rejects = checker.check(gathered)
            if rejects:
                self._note(rejects)
                if self._options.on_error == "fail":
                    return
                self._put("staged_reject", maker.dead_letters(self._addressed(rejects)))
            self._put_messages(maker, rows)

    def _note(self, rejects: Sequence[Reject]) -> None:
        staged = self._staged
        staged.rejects += len(rejects)
        room = REJECTS_SHOWN - len(staged.shown)
        staged.shown += tuple(f"task {self._place.task}, {each}" for each in rejects[:room])

    def _addressed(self, rejects: Sequence[Reject]) -> list[Reject]:
        """Give rejects without a queue the dead letter queue; raise `Refused` if there is none."""
        fallback = self._options.dead_letter_queue
        for each in rejects:
            if each.queue is None and fallback is None:
                raise Refused(
                    f"task {self._place.task}, {each}. It cannot become a dead letter without a "
                    "queue: name one by the option deadLetterQueue"
                )
        return [each._replace(queue=each.queue or fallback) for each in rejects]

    def _put_messages(self, maker: SegmentMaker, rows: Any) -> None:
        later, at_once = rows.slice(0, 0), rows
        if rows.column(DELIVER_AT).null_count < rows.num_rows:
            is_later = pc.is_valid(rows.column(DELIVER_AT))
            later, at_once = rows.filter(is_later), rows.filter(pc.invert(is_later))
        if at_once.num_rows:
            known, segments = maker.segments(at_once)
            self._staged.has_given_ids |= not pc.all(known.column("is_unique")).as_py()
            self._put("staged_segment", known)  # first: who throws it away finds the segments by it
            self._database.ingest("segment", segments)
        if later.num_rows:
            self._put("staged_message", maker.messages_for_later(later))

    def _put(self, table: str, made: Any) -> None:
        self._database.ingest(table, made)
        self._staged.rows += made.num_rows


def _id_prefix(place: Place) -> str:
    """Return how the transaction ids of a task begin, the same for every attempt."""
    # A target may be as long as an id.
    target = f"{xxh32_hexdigest(place.target.encode())}:" if place.target else ""
    return f"spark:{place.write_id}:{place.epoch}:{target}{place.task}:"


def _gathered(batches: Iterable[Any]) -> Iterator[Any]:
    """Put batches together to such that are worth making segments of."""
    group: list[Any] = []
    rows = size = 0
    for batch in batches:
        for part in _parts(batch):
            group.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if rows >= GATHERED_ROWS or size >= GATHERED_BYTES:
                yield pa.concat_batches(group)
                group, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(group)


def _parts(batch: Any) -> Iterator[Any]:
    """Cut a batch of large rows into pieces that are not too large to work on."""
    pieces = max(1, math.ceil(batch.nbytes / GATHERED_BYTES))
    step = max(1, math.ceil(batch.num_rows / pieces))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
