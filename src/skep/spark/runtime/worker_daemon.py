"""The process that Spark forks its workers from, with all imported that readers and writers need.

Spark starts it when `spark.python.daemon.module` names it. Spark's own daemon imports next to
nothing, so every forked worker pays a quarter of a second of CPU for its imports, and Spark
replaces workers that were idle for a minute.
"""

from typing import Final

from pyspark import daemon, worker

from skep.spark.sink import writer
from skep.spark.source import readers

SHARED: Final = (worker, readers, writer)
"""What workers find imported; `pyspark.worker` is compiled anew by each that does not."""

if __name__ == "__main__":
    daemon.manager()
