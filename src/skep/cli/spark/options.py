"""What commands on Spark share: options, a session, the lake, and a progress bar."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from skep.cli.shared.output import progress_bar
from skep.settings.fields import description

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skep.app.processes.database import Database
    from skep.settings import Settings
    from skep.spark.archive.lake import Lake

ShowCount = Callable[..., None]
"""Takes how much is done, of how much, and what to say of it."""

Master = Annotated[
    str | None, Option(help="Spark master: `local[*,4]`, `spark://host:7077` and so on.")
]
StorageText = Annotated[str | None, Option("--storage", help=description("archive_storage"))]
Warehouse = Annotated[
    str | None, Option(help=description("archive_warehouse") + " Required the first time.")
]


def session(name: str, master: str | None) -> "SparkSession":
    """Start Spark for one command; what Spark itself prints goes to a file."""
    from skep.spark.runtime.session import DEFAULT_MASTER, spark_session

    return spark_session(name, master=master or DEFAULT_MASTER, log=announced_log(name))


@cache
def announced_log(name: str) -> Path:
    """Return the file for what Spark prints; say once why nothing happens for a while."""
    from skep.spark.runtime.session import log_path

    path = log_path(name)
    typer.echo(f"Starting Spark in a Java process, which takes a while; its log: {path}", err=True)
    return path


@contextmanager
def opened_lake(settings: "Settings") -> Generator[tuple["Lake", "Database"]]:
    """Open the database that the settings name, and its lake."""
    from skep.app.processes.database import join_database
    from skep.spark.archive.lake import Lake, explained
    from skep.spark.archive.storage import storage_properties

    properties = storage_properties(settings.archive_storage)
    with join_database(settings) as database, explained(), Lake(database.dsn, properties) as lake:
        yield lake, database


@contextmanager
def counting_bar(title: str, said: str = "") -> Generator["ShowCount"]:
    """Show a bar with `n/m` and what is said of it; yield what moves it."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with progress_bar(*columns, TextColumn("{task.fields[said]}")) as progress:
        task = progress.add_task(title, total=None, said=said)

        def show(
            completed: float, total: float | None, said: str, title: str | None = None
        ) -> None:
            progress.update(
                task, completed=completed, total=total or None, said=said, description=title
            )

        yield show
