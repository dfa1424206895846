"""What commands on Spark share: options, a session, and a progress bar."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from skep.cli.shared.output import progress_bar
from skep.settings.fields import description

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession
    from rich.progress import Progress

Master = Annotated[
    str | None, Option(help="Spark master: `local[*,4]`, `spark://host:7077` and so on.")
]
StorageText = Annotated[str | None, Option("--storage", help=description("archive_storage"))]
Warehouse = Annotated[
    str | None, Option(help=description("archive_warehouse") + " Required the first time.")
]


def session(name: str, master: str | None) -> "SparkSession":
    """Start Spark for one command; Spark itself logs errors only."""
    from skep.spark.runtime.session import DEFAULT_MASTER, spark_session

    return spark_session(name, master=master or DEFAULT_MASTER, config={"spark.log.level": "ERROR"})


def counting_bar(text: str) -> "AbstractContextManager[Progress]":
    """Show a bar with `n/m` and a text, a format string of rich."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    return progress_bar(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(text)
    )
