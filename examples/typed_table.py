# ruff: noqa: T201 (it talks to the person who runs it)
"""A queue as a table: in the lake, in the live log, and in both as one. No JVM is started.

python examples/typed_table.py http://127.0.0.1:6632 postgresql://... /var/lib/lake
"""

import sys
import time

import duckdb

from skep.client import Client
from skep.spark import open_queue
from skep.spark.archive.archiver import ArchivePlan, Archiver
from skep.spark.archive.lake import Lake
from skep.spark.archive.typed_table import duckdb_statement
from skep.spark.runtime.tasks import run_here

FIRST = {"shop": {"type": "string"}, "amount": {"type": "number"}}
SECOND = {"branch": {"type": "string", "x-renamed-from": "shop"}, "amount": {"type": "number"}}


def main(url: str, database_url: str, warehouse: str) -> None:
    """Archive orders, change their schema, and query all of them."""
    with Client(url) as client, Lake(database_url, {}) as lake:

        def archive(properties: dict[str, object], *orders: dict[str, object]) -> None:
            schema = {"type": "object", "properties": properties}
            client.queues.configure(
                "sales", archiveAfterSeconds=1, lakeTable="typed", jsonSchema=schema
            )
            client.push_many("sales", orders)
            plan = ArchivePlan(url=database_url, warehouse=warehouse, queues=("sales",))
            missing = len(orders)
            while missing:  # until they are a second old; in production `skep archive run --every`
                missing -= Archiver(lake, plan, run_here).archive().messages
                time.sleep(0.1)

        archive(FIRST, {"shop": "north", "amount": 10}, {"shop": "south", "amount": 20.5})
        archive(SECOND, {"branch": "north", "amount": 30, "note": "a gift"})
        table = duckdb.sql(duckdb_statement(lake.plain_files("sales")))
        print("in the lake:", table.query("t", "select count(*), sum(amount) from t").fetchall())

        client.push("sales", {"branch": "south", "amount": 40})
    both = duckdb.from_arrow(open_queue("sales", database_url))
    by_branch = "select branch, sum(amount) from t group by branch order by branch"
    print("in both:", both.query("t", by_branch).fetchall())


if __name__ == "__main__":
    main(*sys.argv[1:])
