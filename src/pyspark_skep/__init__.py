"""Where Spark finds the data source `skep`.

At the first look-up of a format Spark imports every module named `pyspark_*` and takes its
`DefaultSource`. So this must stay light: the source imports what it needs when it is used.
"""

from skep.spark.source.source import SkepDataSource as DefaultSource

__all__ = ["DefaultSource"]
