"""Commit a write: what the driver does when all tasks have staged their rows, or one has failed.

Whichever process is killed or repeated, an epoch of a write (a micro-batch of a stream) gets into
the log once: its messages and its record are one transaction. A commit whose outcome was lost with
the connection is repeated, and then returns what the first one did.
"""

import logging
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

from skep.model.errors import QueueFull, Refused, SkepError, Unavailable
from skep.spark.runtime.postgres import CannotRead, database
from skep.spark.sink.duplicates import Findings, find_duplicates
from skep.spark.sink.options import WriteOptions
from skep.spark.sink.staging import REJECTS_SHOWN, Staged

COMMIT: Final = (
    "select * from skep.commit_sink($1, $2::text::bigint, $3::text::boolean, $4::text::bigint[], "
    "$5::text::bigint, $6::text::json, $7)"
)
DISCARD: Final = "select skep.discard_staging($1, $2::text::bigint, $3) as rows"

TRIES_MAX: Final = 5
PAUSE_S: Final = 0.5

_GONE: Final = "SK404"
_CONFIGURED: Final = "SK409"
_FULL: Final = "SK429"
_REPEATABLE: Final = ("40001", "40P01")
_logger: Final = logging.getLogger(__name__)


class RejectedRows(Refused):
    """Rows cannot be stored."""


class StagingLost(Refused):
    """What was staged is gone."""


class QueueChanged(Refused):
    """The rules of a queue were changed while rows were written to it."""


class Committed(NamedTuple):
    """What became of an epoch."""

    is_repeated: bool
    messages: int
    scheduled: int
    duplicates: int
    rejected: int


def commit(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], *, is_passing: bool
) -> Committed | None:
    """Move what the tasks staged into the log; None when there were no tasks.

    The record of a write that `is_passing`, never repeated, need not be kept for long. Nothing is
    stored if it raises `RejectedRows`, `StagingLost`, `QueueChanged`, or `QueueFull` because a
    queue stayed full for as long as the writer may wait.
    """
    staged = [message for message in messages if isinstance(message, Staged)]
    if not staged:
        return None
    _refuse_what_tasks_found(options, staged)
    place = staged[0].place
    committed = _patiently(options, lambda: _commit(options, staged, is_passing=is_passing))
    _logger.info("%s epoch %d: %s", place.write_id, place.epoch, committed)
    return committed


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Throw away what the tasks staged; what cannot be thrown away now will be swept later."""
    place = next((each.place for each in messages if isinstance(each, Staged)), None)
    if place is None:
        return
    try:
        _ask(options, DISCARD, place.write_id, place.epoch, place.target)
    except SkepError as error:
        # Spark is about to say why the write failed; this must not stand in front of it.
        _logger.warning("What %s has staged is left to be swept: %s", place.write_id, error)


def _refuse_what_tasks_found(options: WriteOptions, staged: Sequence[Staged]) -> None:
    for each in staged:
        if each.refusal is not None:
            raise Refused(each.refusal)
    count = sum(each.rejects for each in staged)
    if count and options.on_error == "fail":
        shown = [line for each in staged for line in each.shown][:REJECTS_SHOWN]
        raise RejectedRows(
            f"at least {count} rows cannot be stored, and nothing was: {'; '.join(shown)}. Fix "
            "them, or set onError to dead-letter"
        )


def _ask(options: WriteOptions, sql: str, *arguments: object) -> list[dict[str, Any]]:
    return database(options.url, options.statement_timeout_s).rows(sql, *arguments)


def _commit(options: WriteOptions, staged: Sequence[Staged], *, is_passing: bool) -> Committed:
    place, attempts = staged[0].place, [each.place.attempt for each in staged]
    findings = Findings()
    if any(each.has_given_ids for each in staged):
        opened = database(options.url, options.statement_timeout_s)
        findings = find_duplicates(opened, place, attempts)
    (row,) = _ask(
        options,
        COMMIT,
        place.write_id,
        place.epoch,
        is_passing,
        attempts,
        sum(each.rows for each in staged),
        msgspec.json.encode(findings).decode(),
        place.target,
    )
    return Committed(**row)


def _patiently(options: WriteOptions, work: Callable[[], Committed]) -> Committed:
    """Repeat what may end otherwise: a lost connection, a deadlock, a queue that is full."""
    giving_up_at = monotonic() + options.full_timeout_s
    tries = 0
    while True:
        tries += 1
        try:
            return work()
        except Unavailable:
            if tries >= TRIES_MAX:
                raise
        except CannotRead as error:
            is_worth_it = (
                monotonic() < giving_up_at
                if error.state == _FULL
                else error.state in _REPEATABLE and tries < TRIES_MAX
            )
            if not is_worth_it:
                raise _explained(error, options) from None
        sleep(PAUSE_S)


def _explained(error: CannotRead, options: WriteOptions) -> SkepError:
    cause = error.message.removeprefix("PostgreSQL refused a statement: ")
    if error.state == _GONE:
        return StagingLost(
            f"{cause}: PostgreSQL was restarted after a crash, or they were swept. Nothing was "
            "stored; run it again"
        )
    if error.state == _CONFIGURED:
        return QueueChanged(f"{cause}. Nothing was stored; run it again by the new rules")
    if error.state == _FULL:
        return QueueFull(
            f"{cause}, and its consumers did not make room in {options.full_timeout_s:g} s. "
            "Nothing was stored; raise the option queueFullTimeout, or the queue's maxSize"
        )
    return error
