"""Write a DataFrame into a queue as a job with a name: once, with progress and one-line errors.

The name is that of a write (see `skep.spark.sink.options.Version`). The database keeps its record
for good, in the transaction that stored the messages: a job that is started again after it had
ended adds nothing, and one that died before had added nothing yet.
"""

import re
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from skep.model.errors import BadRequest, NotFound, Refused, SkepError
from skep.spark.runtime.encryption_keys import key_ring
from skep.spark.runtime.postgres import array_of, database
from skep.spark.runtime.tasks import POLL_S, last_cause, task_counts
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

    code: ClassVar[str] = "job_failed"


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


class QueueSecrets(NamedTuple):
    """What has to be known before messages of a queue are moved."""

    exists: bool
    is_encrypted: bool


def queue_secrets(url: str, queue: str) -> QueueSecrets:
    """Return whether a queue exists and seals its messages."""
    rows = _ask(url, READ_RULES, array_of([queue]))
    return QueueSecrets(bool(rows), any(row["encryption_enabled"] for row in rows))


def check_source(url: str, queue: str, keys: Mapping[str, str]) -> QueueSecrets:
    """Make sure that a queue exists and can be read with the keys in these options.

    Raises:
        NotFound: There is no such queue.
        NoEncryptionKey: It is encrypted, and there is no key.
    """
    secrets = queue_secrets(url, queue)
    if not secrets.exists:
        raise NotFound(f"there is no queue {queue!r} in this database")
    if secrets.is_encrypted:
        _require_key(queue, keys)
    return secrets


def check_target(
    source: QueueSecrets, url: str, queue: str, keys: Mapping[str, str], *, may_decrypt: bool
) -> None:
    """Make sure that messages can be written to a queue, and stay as secret as they were.

    Raises:
        NoEncryptionKey: The queue is encrypted, and there is no key.
        Refused: Sealed messages would be stored in the clear.
    """
    target = queue_secrets(url, queue)
    if target.is_encrypted:
        _require_key(queue, keys)
    elif source.is_encrypted:
        check_disclosure(source, f"queue {queue}", may_decrypt=may_decrypt)


def check_disclosure(source: QueueSecrets, place: str, *, may_decrypt: bool) -> None:
    """Raise `Refused` if sealed messages would become readable without consent."""
    if source.is_encrypted and not may_decrypt:
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
    watched = _watched(frame.sparkSession, lambda: _staged(url, write_id), on_reached)
    with explained(), watched:
        writer.save()
    done = outcome_of(url, write_id)
    # Without a single row Spark may run no task, and then there is nothing to commit.
    return Outcome(is_repeated=False) if done is None else done._replace(is_repeated=False)


@contextmanager
def explained() -> Generator[None]:
    """Turn an error of Spark's into one line.

    Raises:
        BadRequest: An expression, a column or a path is wrong.
        JobFailed: A task or the commit failed.
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
def _watched(
    spark: "SparkSession", staged: Callable[[], int], on_reached: OnReached
) -> Generator[None]:
    """Report, while the block runs, how far the tasks it started are.

    The work stays in the thread of the caller: sessions of Spark belong to threads. It stays in the
    job group of that thread if there is one, so that cancelling the group ends it.
    """
    context: Any = spark.sparkContext
    given = context.getLocalProperty(JOB_GROUP)
    group = given or f"skep-{time.monotonic_ns()}"
    is_over = threading.Event()

    def report() -> None:
        while not is_over.wait(POLL_S):
            try:
                reached = Reached(*task_counts(context.statusTracker(), group), staged())
            except SkepError:
                continue  # the job itself will say if the database is away for good
            on_reached(reached)

    if given is None:
        context.setJobGroup(group, "skep", interruptOnCancel=True)
    watcher = threading.Thread(target=report, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        context.setLocalProperty(JOB_GROUP, given)


def _require_key(queue: str, keys: Mapping[str, str]) -> None:
    from skep.model.encryption import NoEncryptionKey  # noqa: PLC0415 (needs a package of an extra)

    ring = key_ring(keys.get("encryptionKeys"), keys.get("encryptionKeyFile"))
    if not ring.can_encrypt:
        raise NoEncryptionKey(
            f"queue {queue} is encrypted, and there is no key: set SKEP_ENCRYPTION_KEYS or "
            "SKEP_ENCRYPTION_KEY_FILE as the broker has it"
        )


def _staged(url: str, write_id: str) -> int:
    return _ask(url, STAGED, write_id)[0]["messages"]


def _ask(url: str, sql: str, *arguments: str) -> list[dict[str, Any]]:
    return database(url, STATEMENT_TIMEOUT_S).rows(sql, *arguments)
