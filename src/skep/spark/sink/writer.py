"""Write a DataFrame or a stream into queues, exactly once.

Spark creates a writer in the driver and pickles it for the tasks, so it holds nothing but options.
A stream is known by the id in its checkpoint, and an epoch is a micro-batch of it; a DataFrame is
written as the only epoch of an id made up here, unless the program says by `txnAppId` and
`txnVersion` which of its writes it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from skep.model.errors import BadRequest, Defect, Refused
from skep.spark.sink.columns import check_write_schema
from skep.spark.sink.commit import abort, commit
from skep.spark.sink.options import Version, WriteOptions, write_options
from skep.spark.sink.staging import Staged, Stager
from skep.spark.source.options import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class CannotOverwrite(BadRequest):
    """A log is appended to: use mode("append"), or outputMode("append") or ("update")."""


class SkepWriter(DataSourceArrowWriter):
    """Writes one DataFrame."""

    def __init__(
        self, options: Mapping[str, str], schema: "StructType", *, overwrite: bool
    ) -> None:
        self._options: Final = _checked(options, schema, overwrite=overwrite)
        self._version: Final = self._options.version or Version(str(uuid4()), 0)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of one task."""
        task = _task().partitionId()
        stager = Stager(self._options, self._version.write_id, self._version.epoch, task)
        return stager.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Move what the tasks staged into the log."""
        commit(self._options, messages, is_passing=self._options.version is None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Throw away what the tasks staged."""
        abort(self._options, messages)


class SkepStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query."""

    def __init__(
        self, options: Mapping[str, str], schema: "StructType", *, overwrite: bool
    ) -> None:
        self._options: Final = _checked(options, schema, overwrite=overwrite)
        if self._options.version is not None:
            raise InvalidOption("txnAppId and txnVersion are not for streams, which have their own")

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of one task."""
        context = _task()
        query, epoch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or epoch is None:
            raise Defect("Spark does not say which query and micro-batch this is.")
        return Stager(self._options, query, int(epoch), context.partitionId()).stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Move what the tasks staged into the log, unless that was done before."""
        del batchId  # the tasks have said it
        commit(self._options, messages, is_passing=False)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Throw away what the tasks staged."""
        del batchId
        abort(self._options, messages)


def write_here(options: Mapping[str, str], batches: Iterable[Any]) -> None:
    """Write record batches of this process, without Spark; `txnAppId` and `txnVersion` name them.

    Raises what `commit` does.
    """
    checked = write_options(options)
    if checked.version is None:
        raise InvalidOption("give txnAppId and txnVersion")
    staged = Stager(checked, checked.version.write_id, checked.version.epoch, 0).stage(batches)
    try:
        commit(checked, [staged], is_passing=False)
    except Refused:
        abort(checked, [staged])
        raise


def _checked(options: Mapping[str, str], schema: "StructType", *, overwrite: bool) -> WriteOptions:
    """Check options and columns; raise `InvalidOption`, `InvalidColumns` or `CannotOverwrite`."""
    checked = write_options(options)
    check_write_schema(schema, checked)
    if overwrite:
        raise CannotOverwrite
    return checked


def _task() -> Any:
    context = TaskContext.get()
    if context is None:
        raise Defect("A writer works in tasks of Spark only.")
    return context
