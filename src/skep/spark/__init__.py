"""The data pipeline on Spark: the data source `skep`, its session, and what both need.

Spark finds the source by itself (`pyspark_skep`), so `spark.read.format("skep")` is all a program
has to say. Driver and executors speak to PostgreSQL directly; the broker need not run. This
package knows the schema of the database and nothing of the broker: it imports SQL texts,
settings and the model.

Importing it costs nothing: PySpark, PyArrow and the database driver are imported where they are
used.
"""
