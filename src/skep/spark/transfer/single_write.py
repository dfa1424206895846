"""Write a DataFrame into a queue as a job with a name: once, with progress and one-line errors.

The name is that of a write (see `skep.spark.sink.options.Version`). The database keeps its record
for good, in the transaction that stored the messages: a job that is started again after it had
ended adds nothing, and one that died before had added nothing yet.
"""

import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from skep.model.errors import BadRequest, NotFound, Refused, SkepError
from skep.spark.runtime.encryption_keys import key_ring
from skep.spark.runtime.postgres import database
from skep.spark.runtime.tasks import last_cause, repeating, task_counts
from skep.spark.sink.columns import without_null_headers
from skep.spark.sink.rules import READ_RULES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATEMENT_TIMEOUT_S: Final = 3_600.0
"""A single statement commits all messages of a job."""
JOB_GROUP: Final = "spark.jobGroup.id"

OUTCOME: Final = (
    "select k.messages, k.scheduled, k.duplicates, k.rejected, k.committed_at "
    "from skep.sink k where k.write_id = $1"
)
STAGED: Final = (
    "select coalesce(sum(s.messages), 0)::bigint as messages "
    "from skep.staged_segment s where s.write_id = $1"
)

_RAISED: Final = re.compile(r"a task on Spark failed: (?:[\w.]+: )?")
_CONDITION: Final = re.compile(r"(?:: [\w.$]+: )?\[[A-Z_.]+\]\s*")


class JobFailed(Refused):
    """A job on Spark failed, and stored nothing."""


class Reached(NamedTuple):
    """How far a job has come."""

    tasks: int
    tasks_done: int
    messages: int
    """Those that are staged: written, but not committed yet."""


OnReached = Callable[[Reached], None]


class Outcome(NamedTuple):
    """What a job brought into the log."""

    is_repeated: bool
    """It had been done before, and nothing was done now."""
    messages: int = 0
    scheduled: int = 0
    duplicates: int = 0
    rejected: int = 0
    committed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessages:
    """Messages that a queue stored, in both tiers."""

    url: str
    queue: str
    since: datetime | None
    until: datetime | None
    """Only what was stored from `since` on and before `until`; None for no bound."""
    where: str | None = None
    """A condition of Spark SQL on the columns of the data source."""
    partition: str | None = None
    """The only partition; None for all."""
    storage: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """The options `encryptionKeys` and `encryptionKeyFile`, as far as they are given."""

    def frame(self, spark: "SparkSession", columns: str | None = None) -> "DataFrame":
        """Return them as a DataFrame of some columns, as Spark's DDL spells them; None for all."""
        reader = spark.read.format("skep").options(**self.options())
        frame = (reader if columns is None else reader.schema(columns)).load()
        return frame if self.where is None else frame.where(self.where)

    def options(self) -> dict[str, str]:
        """Return the options of the data source that read them, apart from `where`."""
        chosen = ("queue", self.queue)
        if self.partition is not None:
            chosen = ("assign", json.dumps({self.queue: [self.partition]}))
        options = {
            "url": self.url,
            "tier": "all",
            chosen[0]: chosen[1],
            "startingTimestamp": self.since and self.since.isoformat(),
            "endingTimestamp": self.until and self.until.isoformat(),
            "storage": self.storage,
            **self.keys,
        }
        return {name: text for name, text in options.items() if text is not None}


def short_digest(*texts: str) -> str:
    """Return a name for what a job does; the texts hold no NUL, so no two jobs look the same."""
    return sha256("\0".join(texts).encode()).hexdigest()[:32]


def is_encrypted(url: str, queue: str) -> bool | None:
    """Return whether a queue seals its messages; None if there is no such queue."""
    return next((row["encryption_enabled"] for row in _ask(url, READ_RULES, [queue])), None)


def check_source(url: str, queue: str, keys: Mapping[str, str]) -> bool:
    """Return whether a queue is encrypted, once it can be read with the keys in these options.

    Raises `NotFound`, or `NoEncryptionKey` if it is encrypted and there is no key.
    """
    is_sealed = is_encrypted(url, queue)
    if is_sealed is None:
        raise NotFound(f"there is no queue {queue!r} in this database")
    if is_sealed:
        _require_key(queue, keys)
    return is_sealed


def check_target(
    url: str, queue: str, keys: Mapping[str, str], *, is_sealed: bool, may_decrypt: bool
) -> None:
    """Make sure that messages can be written to a queue, and stay as secret as they were.

    Raises `NoEncryptionKey`, or `Refused` if sealed messages would be stored in the clear.
    """
    if is_encrypted(url, queue):
        _require_key(queue, keys)
    else:
        check_disclosure(f"queue {queue}", is_sealed=is_sealed, may_decrypt=may_decrypt)


def check_disclosure(place: str, *, is_sealed: bool, may_decrypt: bool) -> None:
    """Raise `Refused` if sealed messages would become readable without consent."""
    if is_sealed and not may_decrypt:
        raise Refused(
            f"the messages are encrypted, and {place} would hold them in the clear: pass --decrypt "
            "to allow that"
        )


def outcome_of(url: str, write_id: str) -> Outcome | None:
    """Return what a job has brought; None when it has not ended."""
    rows = _ask(url, OUTCOME, write_id)
    return Outcome(is_repeated=True, **rows[0]) if rows else None


def write_once(
    frame: "DataFrame", options: Mapping[str, str], write_id: str, on_reached: OnReached
) -> Outcome:
    """Write a frame into queues under a name, unless that was done before."""
    url = options["url"]
    if done := outcome_of(url, write_id):
        return done
    rows = without_null_headers(frame)
    writer = rows.write.format("skep").mode("append").options(**options)
    writer = writer.option("txnAppId", write_id).option("txnVersion", "0")
    writer = writer.option("statementTimeout", f"{STATEMENT_TIMEOUT_S:g}s")

    def staged() -> int:
        return _ask(url, STAGED, write_id)[0]["messages"]

    with explained(), watched(frame.sparkSession, staged, on_reached):
        writer.save()
    done = outcome_of(url, write_id)
    # Without a single row Spark may run no task, and then there is nothing to commit.
    return Outcome(is_repeated=False) if done is None else done._replace(is_repeated=False)


@contextmanager
def explained() -> Generator[None]:
    """Turn an error of Spark's into one line.

    It is a `BadRequest` for a wrong expression, column or path, else a `JobFailed`.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 (comes with PySpark, an extra)
    from pyspark.errors import AnalysisException, PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if "Traceback" in text:
            raise JobFailed(_RAISED.sub("", last_cause(text), count=1)) from None
        line = _said_by_java(text) or type(error).__name__
        if isinstance(error, AnalysisException):
            raise BadRequest(line) from None
        raise JobFailed(line) from None


def _said_by_java(text: str) -> str:
    """Return the line that names what is wrong, without the name of the condition."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _CONDITION.match(line)]
    return _CONDITION.sub("", (named or lines or [""])[0], count=1)


@contextmanager
def watched(
    spark: "SparkSession", staged: Callable[[], int], on_reached: OnReached
) -> Generator[None]:
    """Report, while the block runs, how far the tasks it started are.

    The work stays in the thread of the caller: sessions of Spark belong to threads. It stays in the
    job group of that thread if there is one, so that cancelling the group ends it.
    """
    context: Any = spark.sparkContext
    given = context.getLocalProperty(JOB_GROUP)
    group = given or f"skep-{time.monotonic_ns()}"

    def report() -> None:
        # The job itself will say if the database is away for good.
        with suppress(SkepError):
            on_reached(Reached(*task_counts(context.statusTracker(), group), staged()))

    if given is None:
        context.setJobGroup(group, "skep", interruptOnCancel=True)
    try:
        with repeating(report):
            yield
        report()
    finally:
        context.setLocalProperty(JOB_GROUP, given)


def _require_key(queue: str, keys: Mapping[str, str]) -> None:
    from skep.model.encryption import NoEncryptionKey  # noqa: PLC0415 (needs a package of an extra)

    ring = key_ring(keys.get("encryptionKeys"), keys.get("encryptionKeyFile"))
    if not ring.can_encrypt:
        raise NoEncryptionKey(
            f"queue {queue} is encrypted, and there is no key: set SKEP_ENCRYPTION_KEYS or "
            "SKEP_ENCRYPTION_KEY_FILE as the broker has it"
        )


def _ask(url: str, sql: str, *arguments: object) -> list[dict[str, Any]]:
    return database(url, STATEMENT_TIMEOUT_S).rows(sql, *arguments)
