"""The data source `skep`: what Spark asks for, answered by the readers and writers.

Light on purpose: Spark imports this module in every process that looks for a format.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from skep.spark.sink.result_writer import ResultWriter
    from skep.spark.sink.writer import SkepStreamWriter, SkepWriter
    from skep.spark.source.readers import SkepReader, SkepStreamReader


class SkepDataSource(DataSource):
    """Reads and writes the log of a Skep database."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "skep"

    def schema(self) -> str:
        """Return the columns there are when none are asked for; raise `InvalidOption`."""
        from skep.spark.source.columns import schema_of  # noqa: PLC0415 (see the module)
        from skep.spark.source.options import read_options  # noqa: PLC0415
        from skep.spark.source.typed_shape import shape_of  # noqa: PLC0415

        # What is wrong should be said at `load`, not at the first read.
        return schema_of(shape_of(self.options, read_options(self.options)))

    def reader(self, schema: "StructType") -> "SkepReader":
        """Return what reads a DataFrame."""
        from skep.spark.source.readers import SkepReader  # noqa: PLC0415 (see the module)

        return SkepReader(self.options, schema)

    def streamReader(self, schema: "StructType") -> "SkepStreamReader":  # noqa: N802 (Spark's)
        """Return what reads a stream."""
        from skep.spark.source.readers import SkepStreamReader  # noqa: PLC0415 (see the module)

        return SkepStreamReader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "SkepWriter":
        """Return what writes a DataFrame."""
        from skep.spark.sink.writer import SkepWriter  # noqa: PLC0415 (see the module)

        return SkepWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 (Spark's)
        self, schema: "StructType", overwrite: bool
    ) -> "SkepStreamWriter | ResultWriter":
        """Return what writes a stream."""
        from skep.spark.sink.options import RESULT_TABLE  # noqa: PLC0415 (see the module)

        if RESULT_TABLE in self.options:
            from skep.spark.sink.result_writer import ResultWriter  # noqa: PLC0415

            return ResultWriter(self.options)
        from skep.spark.sink.writer import SkepStreamWriter  # noqa: PLC0415

        return SkepStreamWriter(self.options, schema, overwrite=overwrite)
