"""The process that Spark forks its workers from, with all imported that readers and writers need.

Spark starts it when `spark.python.daemon.module` names it. Its own one imports next to nothing, so
every worker has to: a quarter of a second of CPU time for each, and again for each that takes the
place of one that had nothing to do for a minute.
"""

from typing import Final

from pyspark import daemon, worker

from skep.spark.sink import writer
from skep.spark.source import readers

SHARED: Final = (worker, readers, writer)
"""What workers find imported; `pyspark.worker` is compiled anew by each that does not."""

if __name__ == "__main__":
    daemon.manager()
