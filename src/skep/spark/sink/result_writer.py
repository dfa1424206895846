"""Write the results of a pipeline to a table of the lake, as Spark asks for it.

Light on purpose: Spark starts a process to plan each micro-batch, which only makes the writer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from skep.model.errors import Unavailable
from skep.spark.sink.options import RESULT_TABLE

TRIES_MAX: Final = 5
PAUSE_S: Final = 0.5


@dataclass
class Written(WriterCommitMessage):
    """What one task tells the driver: the addresses of its files."""

    files: tuple[str, ...] = ()


class ResultWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url: Final = options["url"]
        self._storage: Final = options.get("storage")
        self._spelled_table: Final = options[RESULT_TABLE]

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task to files."""
        from skep.spark.archive.result_table import spelled_table, write_results  # noqa: PLC0415

        table = spelled_table(self._spelled_table)
        return Written(write_results(table, self._properties(), iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Commit the files of all tasks, unless the table has the micro-batch.

        Once more if the connection was lost, since the table tells what came of it.
        """
        from skep.spark.archive.lake import Lake, explained  # noqa: PLC0415 (see the module)
        from skep.spark.archive.result_table import commit_epoch, spelled_table  # noqa: PLC0415

        files = [file for each in messages if isinstance(each, Written) for file in each.files]
        tries = 0
        while files:
            tries += 1
            try:
                with explained(), Lake(self._url, self._properties()) as lake:
                    commit_epoch(lake, spelled_table(self._spelled_table), batchId, files)
                    return
            except Unavailable:
                if tries >= TRIES_MAX:
                    raise
            sleep(PAUSE_S)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's)
        """Leave all files: Spark also asks for this when it does not know what a commit did.

        Those that the table does not know go with a compaction.
        """

    def _properties(self) -> dict[str, str]:
        from skep.spark.archive.storage import storage_properties  # noqa: PLC0415 (see the module)

        return storage_properties(self._storage)
