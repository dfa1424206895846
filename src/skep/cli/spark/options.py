"""What commands on Spark share: flags of where it runs and where the lake is, and a session."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from skep.settings.fields import description

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master: TypeAlias = Annotated[
    str | None, typer.Option(help="Where Spark runs: `local[*,4]`, `spark://host:7077` and so on.")
]
StorageText: TypeAlias = Annotated[
    str | None, typer.Option("--storage", help=description("archive_storage"))
]
Warehouse: TypeAlias = Annotated[
    str | None, typer.Option(help=description("archive_warehouse") + " Needed the first time.")
]


def session(name: str, master: str | None) -> "SparkSession":
    """Start Spark for one command; what it has to say is said by us."""
    from skep.spark.runtime.session import DEFAULT_MASTER, spark_session

    return spark_session(name, master=master or DEFAULT_MASTER, config={"spark.log.level": "ERROR"})
