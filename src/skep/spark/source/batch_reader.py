"""Read the log as a DataFrame: everything between two positions, as it was when it was planned."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from skep.spark.source.log import Partitions, Present
from skep.spark.source.options import InvalidOption, read_options, shape_options
from skep.spark.source.positions import NOTHING, Position
from skep.spark.source.slices import PortionReader
from skep.spark.source.tiers import TieredLog

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class SkepReader(DataSourceReader):
    """Plans and reads one DataFrame."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        """Check options and columns.

        Raises:
            InvalidOption: An option is wrong.
            InvalidColumns: There is no such column.
        """
        self._options: Final = read_options(options)
        if self._options.start == "latest":
            raise InvalidOption("startingOffsets=latest is for streams: a DataFrame would be empty")
        self._portions: Final = PortionReader(self._options, shape_options(options), schema)

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks.

        Raises:
            SkepError: The queues, the positions or the database do not allow it.
        """
        log = TieredLog(self._options)
        partitions = log.partitions()
        present = log.present(partitions)
        start = self._start(log, partitions, present)
        end = present.position() if self._options.end == "latest" else self._options.end
        log.check(end, present)
        return self._portions.plan(log, partitions, start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of one task as record batches."""
        return self._portions.read(partition)

    def _start(self, log: TieredLog, partitions: Partitions, present: Present) -> Position:
        start = self._options.start
        if not isinstance(start, Position):
            return Position(
                present.system, NOTHING, present.snapshot, since_us=self._options.since_us
            )
        log.check(start, present)
        log.check_losses(start, partitions)
        return start
